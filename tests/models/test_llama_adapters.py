"""Our adapters against a real llama.cpp server, in its three formats: shapes, never the answers."""

import asyncio
from dataclasses import dataclass

import pytest

from cairn import Agent, ErrorClass, ModelError, RemoteModel, Runtime, tool
from cairn.core.messages import CallPart, Message, ResultPart, Text, text_of, user
from cairn.ports import ModelReply, ModelRequest, ToolSchema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LOOK = ToolSchema(
    name="look_up",
    description="Look an order up.",
    parameters={
        "type": "object",
        "properties": {"order": {"type": "string"}},
        "required": ["order"],
    },
)
WIRES = {"chat": ("llamacpp", "/v1"), "responses": ("openai", "/v1"), "messages": ("anthropic", "")}


def model_at(url: str, wire: str, **options) -> RemoteModel:
    provider, path = WIRES[wire]
    return RemoteModel(
        f"{provider}:smollm2",
        base_url=url + path,
        api_key="none-needed",
        window=4_096,
        settings={"temperature": 0.0},
        **options,
    )


def ask(model: RemoteModel, request: ModelRequest, *, again: bool = False):
    """The reply and the text that was shown while it came."""

    async def main() -> tuple[ModelReply, str]:
        shown: list[str] = []
        try:
            if again:
                await model.request(request)
            return await model.request(request, shown.append), "".join(shown)
        finally:
            await model.close()

    return asyncio.run(main())


def hello(**fields) -> ModelRequest:
    given = {"messages": [user("Say hello.")], "max_output": 200, **fields}
    return ModelRequest(system="You are brief.", **given)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_real_server_answers_with_text_usage_and_a_finish_reason(llama_url, wire, stream):
    reply, shown = ask(model_at(llama_url, wire, stream=stream), hello())
    assert text_of(reply.parts).strip()
    assert reply.finish == "stop"
    assert reply.calls == ()
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0
    assert reply.usage.input_tokens + reply.usage.cached_tokens > 0
    assert reply.request_id
    if stream:
        assert shown == text_of(reply.parts)
        assert reply.first_token_us > 0


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_that_a_real_server_cut_is_marked_as_cut_whatever_it_says(llama_url, wire, stream):
    """B20: llama.cpp's Responses call a cut reply completed."""
    asked = hello(max_output=5, messages=[user("Tell me a long story about the sea.")])
    reply, _ = ask(model_at(llama_url, wire, stream=stream), asked)
    assert reply.finish == "length"


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_conversation_with_calls_is_taken_by_a_real_server(llama_url, wire):
    # llama.cpp's Responses take no earlier text of the assistant that is not wrapped its own way
    said = () if wire == "responses" else (Text("Let me look."),)
    call = CallPart(id="c1", name="look_up", arguments='{"order":  "7"}')
    messages = [
        user("Where is order 7? 请查一下。"),
        Message(role="assistant", parts=(*said, call)),
        Message(role="tool", parts=(ResultPart(id="c1", result="on its way"),)),
        user("And now?"),
    ]
    asked = hello(messages=messages, tools=(LOOK,))
    reply, _ = ask(model_at(llama_url, wire), asked)
    assert reply.finish in {"stop", "tool_calls", "length"}
    assert reply.usage is not None


def test_a_real_server_holds_an_answer_to_its_schema(llama_url):
    schema = {
        "type": "object",
        "properties": {"greeting": {"type": "string", "maxLength": 20}},
        "required": ["greeting"],
        "additionalProperties": False,
    }
    asked = hello(output_mode="schema", output_schema=schema)
    reply, _ = ask(model_at(llama_url, "chat"), asked)
    assert text_of(reply.parts).lstrip().startswith("{")
    assert '"greeting"' in text_of(reply.parts)


def test_a_prompt_longer_than_the_window_is_a_context_overflow_in_every_format(llama_url):
    """B36: one class, however a provider words it."""
    for wire in WIRES:
        asked = hello(messages=[user("word " * 9_000)])
        with pytest.raises(ModelError) as caught:
            ask(model_at(llama_url, wire), asked)
        assert caught.value.error_class is ErrorClass.CONTEXT_OVERFLOW, (wire, caught.value)


@dataclass
class Order:
    """Where an order is."""

    order: str
    delivered: bool


def test_a_run_on_a_real_server_by_json_actions_calls_only_what_the_gate_lets_through(llama_url):
    seen = []

    @tool(effect="read")
    def look_up(order: str) -> str:
        """Look an order up."""
        seen.append(order)
        return f"order {order} was delivered"

    model = model_at(llama_url, "chat", takes_tools=False, max_output=300)
    agent = Agent("clerk", model, tools=[look_up], builtins=[], tool_choice="look_up")
    with Runtime(":memory:", agents=[agent]) as rt:
        run = rt.run("clerk", "Where is order 7?", limits={"steps": 4})
        assert run.status in {"completed", "stopped", "failed"}
        asked = [e.event for e in rt.trace(run.id) if e.event.NAME == "model.requested"]
        assert asked[0].output_mode == "action"
        assert asked[0].tool_choice == "look_up"
        assert seen
        assert run.usage.micro_usd == 0
