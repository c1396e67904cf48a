"""What goes over the wire for a request: tools, choices, limits, schemas and cache marks."""

import json

import pytest
from tests.models.wire.bodies import CHAT, FORMATS, GEMINI, MESSAGES, RESPONSES, text
from tests.models.wire.kit import (
    FIND,
    asked,
    every_format,
    exchange,
    hear,
    run,
    speaking,
    streamed_or_whole,
)
from tests.models.wire.server import Loopback

from cairn.core.messages import user
from cairn.errors import ErrorClass
from cairn.models.endpoints import ENDPOINTS
from cairn.ports import ToolSchema

SCHEMA = {
    "type": "object",
    "description": "An order. äöü",
    "properties": {
        "size": {"type": "integer", "default": 3, "minimum": 1, "description": "How big."},
        "kind": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
        "title": {"type": "string", "description": "A name like any other."},
        "default": {"type": "boolean"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "maxItems": 9},
    },
    "required": ["lines"],
    "$defs": {"Line": {"type": "object", "properties": {"q": {"type": "string", "pattern": "^x"}}}},
}
ORDER = ToolSchema(name="order", description="Order things.", parameters=SCHEMA)
TWO = asked(tools=(FIND, ORDER))


def sent(form, request, **more):
    """The body of the one request, and its path."""
    stream = more.get("stream", True)
    heard = hear(form, form.answer(text(), stream=stream), request, **more)
    assert heard.fault is None
    return heard.sent


def schemas(form, body):
    """The schema of each tool by its name."""
    if form is CHAT:
        return {t["function"]["name"]: t["function"]["parameters"] for t in body["tools"]}
    if form is RESPONSES:
        return {t["name"]: t["parameters"] for t in body["tools"]}
    if form is MESSAGES:
        return {t["name"]: t["input_schema"] for t in body["tools"]}
    (declared,) = body["tools"]
    return {t["name"]: t["parameters_json_schema"] for t in declared["functionDeclarations"]}


@every_format
@streamed_or_whole
def test_the_schema_of_a_tool_is_sent_as_it_is(form, stream):
    found = schemas(form, sent(form, TWO, stream=stream))
    assert found == {"find": FIND.parameters, "order": SCHEMA}
    assert json.dumps(found["order"]["properties"]) == json.dumps(SCHEMA["properties"])


@every_format
@streamed_or_whole
def test_a_request_asks_for_the_right_model_at_the_right_place(form, stream):
    heard = hear(form, form.answer(text(), stream=stream), stream=stream)
    (seen,) = heard.seen
    assert seen.method == "POST"
    assert seen.path.startswith(form.path.partition("?")[0])
    assert form.model in seen.path or seen.body["model"] == form.model
    if form is GEMINI:
        assert ("stream" in seen.path) is stream
        assert seen.headers["x-goog-api-key"] == "k-1"
    else:
        assert seen.body.get("stream", False) is stream
        key = seen.headers.get("authorization", seen.headers.get("x-api-key"))
        assert key.removeprefix("Bearer ") == "k-1"


CHOICES = {
    CHAT: ["auto", "none", "required", {"type": "function", "function": {"name": "order"}}],
    RESPONSES: ["auto", "none", "required", {"type": "function", "name": "order"}],
    MESSAGES: [
        {"type": "auto"},
        {"type": "none"},
        {"type": "any"},
        {"type": "tool", "name": "order"},
    ],
    GEMINI: [
        {"mode": "AUTO"},
        {"mode": "NONE"},
        {"mode": "ANY"},
        {"mode": "ANY", "allowedFunctionNames": ["order"]},
    ],
}


@every_format
@pytest.mark.parametrize("number", range(4), ids=["auto", "none", "required", "named"])
def test_the_choice_of_tools_is_sent_in_the_words_of_the_format(form, number):
    choice = ["auto", "none", "required", "order"][number]
    body = sent(form, asked(tools=(FIND, ORDER), tool_choice=choice))
    expected = CHOICES[form][number]
    if form is GEMINI:
        config = body["toolConfig"]["functionCallingConfig"]
        assert {k: v for k, v in config.items() if v} == expected
        return
    assert body["tool_choice"] == expected


@every_format
def test_without_tools_nothing_is_said_of_tools(form):
    body = sent(form, asked(tools=()))
    assert not {"tools", "tool_choice", "toolConfig"} & set(body)


# ---------------------------------------------------------------- typed answers

ANSWER = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 1}, "why": {"type": "string"}},
    "required": ["n"],
}


def native(form, body):
    """The schema the provider itself is asked to hold to, None for none."""
    if form is CHAT:
        return body.get("response_format", {}).get("json_schema", {}).get("schema")
    if form is RESPONSES:
        return body.get("text", {}).get("format", {}).get("schema")
    if form is MESSAGES:
        found = body.get("output_config", {}).get("format") or body.get("output_format") or {}
        return found.get("schema")
    config = body.get("generationConfig", {})
    return config.get("responseJsonSchema", config.get("response_json_schema"))


def system(form, body):
    """What stands in the place of the system prompt."""
    if form is CHAT:
        return body["messages"][0]["content"]
    if form is RESPONSES:
        return body["instructions"]
    if form is MESSAGES:
        return "".join(block["text"] for block in body["system"])
    return "".join(part["text"] for part in body["systemInstruction"]["parts"])


@every_format
def test_a_typed_answer_is_held_by_the_provider_or_asked_for_in_words(form):
    body = sent(form, asked(tools=(), output_mode="schema", output_schema=ANSWER))
    found = native(form, body)
    if found is None:
        assert '"why": {"type": "string"}' in system(form, body)
    else:
        assert set(found["properties"]) == {"n", "why"}
        assert found["properties"]["why"] == {"type": "string"}
        assert found["required"] == ["n"]
        assert system(form, body) == "You help."


@pytest.mark.parametrize(("name", "held"), [("deepseek", False), ("compatible", True)])
def test_a_provider_that_takes_no_schema_is_asked_in_words(name, held):
    request = asked(tools=(), output_mode="schema", output_schema=ANSWER)
    body = sent(CHAT, request, provider=name, model="a-model")
    assert (native(CHAT, body) is not None) is held
    assert ('"why": {"type": "string"}' in system(CHAT, body)) is not held


@every_format
def test_an_answer_in_words_has_no_schema(form):
    body = sent(form, asked(output_schema=ANSWER))
    assert native(form, body) is None
    assert system(form, body) == "You help."


def test_google_is_asked_in_words_where_it_cannot_take_tools_and_a_schema_together():
    request = asked(output_mode="schema", output_schema=ANSWER)
    body = sent(GEMINI, request)
    assert native(GEMINI, body) is None
    assert '"why"' in system(GEMINI, body)
    assert body["tools"]


# ---------------------------------------------------------------- limits and settings


@pytest.mark.parametrize("name", sorted(ENDPOINTS))
def test_the_output_limit_is_sent_under_the_name_the_endpoint_knows(name):
    endpoint = ENDPOINTS[name]
    form = next(f for f in FORMATS if ENDPOINTS[f.provider].wire == endpoint.wire)
    model = form.model if form.provider == name else "a-lab/a-model"
    body = sent(form, asked(max_output=321), provider=name, model=model)
    if form is GEMINI:
        assert body["generationConfig"]["maxOutputTokens"] == 321
        return
    limits = {k: v for k, v in body.items() if "max" in k and "tokens" in k}
    (limit,) = limits
    assert limits == {limit: 321}
    if form is RESPONSES:
        assert limit == "max_output_tokens"
    elif form is MESSAGES or endpoint.max_tokens:
        assert limit == "max_tokens"
    if name == "openai-chat":
        assert limit == "max_completion_tokens"


def test_settings_reach_the_wire():
    settings = {"temperature": 0.25, "top_p": 0.5, "seed": 7, "stop_sequences": ["END"]}
    body = sent(CHAT, asked(), settings=settings, provider="compatible", model="a-model")
    assert body["temperature"] == 0.25
    assert body["top_p"] == 0.5
    assert body["seed"] == 7
    assert body["stop"] == ["END"]


def test_openai_is_told_to_store_nothing():
    assert sent(RESPONSES, asked())["store"] is False


def test_headers_of_the_user_go_with_every_request():
    async def main():
        async with (
            Loopback(CHAT.answer(text(), stream=True)) as server,
            speaking(server.url, CHAT, headers={"X-Team": "tea"}) as connection,
        ):
            await exchange(connection, CHAT)
            assert server.seen[0].headers["x-team"] == "tea"

    run(main())


# ---------------------------------------------------------------- caches


def test_the_prefix_is_marked_for_the_cache_of_anthropic():
    body = sent(MESSAGES, TWO)
    assert body["system"][-1]["cache_control"]["type"] == "ephemeral"
    assert body["tools"][-1]["cache_control"]["type"] == "ephemeral"
    assert body["messages"][-1]["content"][-1]["cache_control"]["type"] == "ephemeral"
    assert (
        b"cache_control"
        not in hear(MESSAGES, MESSAGES.answer(text(), stream=True), TWO, cache=False).seen[0].raw
    )


@pytest.mark.parametrize("name", sorted(n for n, e in ENDPOINTS.items() if e.wire != "gemini"))
def test_only_openai_is_given_a_key_for_its_cache(name):
    form = next(f for f in FORMATS if ENDPOINTS[f.provider].wire == ENDPOINTS[name].wire)
    model = form.model if form.provider == name else "a-lab/a-model"
    body = sent(form, asked(), provider=name, model=model)
    assert ("prompt_cache_key" in body) is (name in {"openai", "openai-chat"})


def test_the_key_of_the_cache_hangs_on_the_prefix_and_nothing_else():
    keys = [
        sent(RESPONSES, request)["prompt_cache_key"]
        for request in (TWO, asked(tools=(FIND, ORDER), messages=(user("Else."),)), asked())
    ]
    assert keys[0] == keys[1] != keys[2]


# ---------------------------------------------------------------- what cannot be asked


@every_format
def test_what_the_library_refuses_to_send_is_an_invalid_request(form):
    heard = hear(form, form.answer(text(), stream=True), asked(tool_choice="no_such_tool"))
    assert heard.fault.error_class == ErrorClass.INVALID_REQUEST
    assert "no_such_tool" in str(heard.fault)
    assert heard.seen == []
