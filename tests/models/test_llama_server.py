"""A real llama.cpp server speaks the three wire formats: the shapes, never the answers."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from cairn.core.messages import Text, text_of, user
from cairn.models.action import action_schema, decode, encode
from cairn.ports import ModelReply, ModelRequest, ToolSchema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HELLO = [{"role": "user", "content": "Say hello."}]
TOKENS = 8
FORMATS = {
    "chat": ("/v1/chat/completions", {"messages": HELLO, "max_tokens": TOKENS}),
    "responses": ("/v1/responses", {"input": HELLO, "max_output_tokens": TOKENS}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": TOKENS}),
}


def post(url: str, body: dict[str, Any]) -> tuple[int, str, str]:
    """Status, content type and text of the reply."""
    data = json.dumps({"model": "smollm2", "temperature": 0, **body}).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.headers["content-type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def whole(url: str, wire: str, **more: Any) -> dict[str, Any]:
    path, body = FORMATS[wire]
    status, kind, text = post(url + path, {**body, **more})
    assert (status, kind.split(";")[0]) == (200, "application/json")
    return json.loads(text)


def streamed(url: str, wire: str, **more: Any) -> list[tuple[str, Any]]:
    """The events of a stream: each one's name, empty where the format has none, and its data."""
    path, body = FORMATS[wire]
    status, kind, text = post(url + path, {**body, "stream": True, **more})
    assert (status, kind.split(";")[0]) == (200, "text/event-stream")
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        data = fields["data"]
        events.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return events


# ---------------------------------------------------------------- chat completions


def test_chat_gives_a_finish_reason_usage_and_an_id(llama_url):
    reply = whole(llama_url, "chat")
    (choice,) = reply["choices"]
    assert choice["finish_reason"] in {"stop", "length"}
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    usage = reply["usage"]
    assert 0 < usage["completion_tokens"] <= TOKENS < usage["prompt_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    assert reply["id"].startswith("chatcmpl-")


def test_a_chat_stream_has_one_finish_reason_then_usage_then_its_end(llama_url):
    events = streamed(llama_url, "chat", stream_options={"include_usage": True})
    chunks = [data for _, data in events[:-1]]
    assert events[-1] == ("", "[DONE]")
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert reasons[-1] in {"stop", "length"}
    assert set(reasons[:-1]) == {None}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] <= TOKENS
    assert any(c["choices"][0]["delta"].get("content") for c in chunks if c["choices"])


def test_chat_says_when_the_reply_was_cut(llama_url):
    reply = whole(llama_url, "chat", max_tokens=1)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 1


# ---------------------------------------------------------------- Responses


def test_responses_gives_output_items_a_status_and_usage(llama_url):
    reply = whole(llama_url, "responses")
    assert (reply["object"], reply["status"]) == ("response", "completed")
    (item,) = reply["output"]
    assert (item["type"], item["role"]) == ("message", "assistant")
    assert [part["type"] for part in item["content"]] == ["output_text"]
    usage = reply["usage"]
    assert 0 < usage["output_tokens"] <= TOKENS < usage["input_tokens"]
    assert usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]


def test_a_responses_stream_begins_created_and_ends_completed(llama_url):
    events = streamed(llama_url, "responses")
    names = [name for name, _ in events]
    assert names == [data["type"] for _, data in events]
    assert (names[0], names[-1]) == ("response.created", "response.completed")
    text = "".join(d["delta"] for n, d in events if n == "response.output_text.delta")
    final = events[-1][1]["response"]
    assert final["output"][0]["content"][0]["text"] == text
    assert final["usage"]["output_tokens"] <= TOKENS


# ---------------------------------------------------------------- Messages


def test_messages_gives_content_blocks_a_stop_reason_and_usage(llama_url):
    reply = whole(llama_url, "messages")
    assert (reply["type"], reply["role"]) == ("message", "assistant")
    assert [block["type"] for block in reply["content"]] == ["text"]
    assert reply["stop_reason"] in {"end_turn", "max_tokens"}
    usage = reply["usage"]
    assert 0 < usage["output_tokens"] <= TOKENS
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] > TOKENS


def test_a_messages_stream_opens_and_closes_its_blocks_and_says_why_it_stopped(llama_url):
    events = streamed(llama_url, "messages")
    names = [name for name, _ in events]
    assert names == [data["type"] for _, data in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert events[-2][1]["delta"]["stop_reason"] in {"end_turn", "max_tokens"}
    assert events[-2][1]["usage"]["output_tokens"] <= TOKENS


# ---------------------------------------------------------------- faults, and forced JSON


@pytest.mark.parametrize("wire", FORMATS)
def test_a_prompt_past_the_window_is_refused_by_name_in_every_format(llama_url, wire):
    long = [{"role": "user", "content": "x " * 9_000}]
    path, body = FORMATS[wire]
    key = "input" if wire == "responses" else "messages"
    status, _, text = post(llama_url + path, {**body, key: long})
    error = json.loads(text)["error"]
    assert (status, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"]


@pytest.mark.parametrize("wire", FORMATS)
def test_a_request_without_a_conversation_is_refused_in_every_format(llama_url, wire):
    path, _ = FORMATS[wire]
    status, _, text = post(llama_url + path, {"max_tokens": 1})
    assert 400 <= status < 600
    assert json.loads(text)["error"]["message"]


ADD = ToolSchema(
    name="add",
    description="Add two whole numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


@pytest.mark.parametrize("choice", ["add", "none"])
def test_the_action_schema_as_response_format_forces_an_action(llama_url, choice):
    request = ModelRequest(
        system="",
        messages=(user("What is 2 plus 3?"),),
        tools=(ADD,),
        tool_choice=choice,
        output_mode="action",
    )
    sent = encode(request)
    reply = whole(
        llama_url,
        "chat",
        messages=[
            {"role": "system", "content": sent.system},
            *({"role": m.role, "content": text_of(m.parts)} for m in sent.messages),
        ],
        max_tokens=200,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "action", "schema": action_schema(request)},
        },
    )
    (said,) = reply["choices"]
    if said["finish_reason"] == "stop":  # a small model may talk until it is cut
        got = decode(ModelReply(parts=(Text(said["message"]["content"]),)), request)
        assert [c.name for c in got.calls] == (["add"] if choice == "add" else [])
    else:
        assert said["message"]["content"].lstrip().startswith("{")
