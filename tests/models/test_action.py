"""JSON-action mode: a clear action is carried out exactly, and nothing else ever is."""

import itertools
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import Agent, ErrorClass, ModelError, Runtime, Scripted, Usage, call, tool
from cairn.core.context import faults
from cairn.core.messages import (
    Blob,
    CallPart,
    Message,
    Reasoning,
    ResultPart,
    Text,
    text_of,
    user,
)
from cairn.models.action import AnswerShown, action_schema, decode, encode, in_words
from cairn.ports import ModelReply, ModelRequest, ToolSchema

ADD = ToolSchema(
    name="add",
    description="Add two\n whole numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
TREE = ToolSchema(
    name="plant",
    description="Plant a tree.",
    parameters={
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "required": ["root"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                "required": ["kids"],
            }
        },
    },
)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def asked(*messages: Message, **more) -> ModelRequest:
    given = {"system": "Be brief.", "tools": (ADD, TREE), "output_mode": "action", **more}
    return ModelRequest(messages=messages or (user("1 and 2?"),), **given)


def said(text: str, **more) -> ModelReply:
    return ModelReply(parts=(Text(text),), **more)


def refused(text: str, **more) -> str:
    with pytest.raises(ModelError) as caught:
        decode(said(text), asked(**more))
    assert caught.value.error_class is ErrorClass.MALFORMED_OUTPUT
    return str(caught.value)


def assistant(*parts) -> Message:
    return Message(role="assistant", parts=parts)


# ---------------------------------------------------------------- what the model is told


def test_a_request_without_tool_calls_says_in_words_what_the_tools_are():
    sent = encode(asked())
    assert (sent.tools, sent.tool_choice, sent.output_mode) == ((), "auto", "schema")
    assert sent.system.startswith("Be brief.\n\nReply with one JSON object")
    assert "- add: Add two whole numbers." in sent.system
    assert json.dumps(ADD.parameters, separators=(",", ":")) in sent.system
    assert '{"tool": "add", "arguments": {"a": 1}}' in sent.system
    assert '{"tool": "plant", "arguments": {"root": {"kids": [' in sent.system
    assert sent.output_schema == action_schema(asked())


def test_a_request_of_another_mode_is_left_as_it_is():
    request = asked(output_mode="text")
    assert encode(request) is request


def test_a_call_and_its_result_become_an_action_and_a_marked_user_message():
    sent = encode(
        asked(
            user("1 and 2?"),
            assistant(CallPart(id="c1", name="add", arguments='{"a":1,  "b":2}')),
            Message(role="tool", parts=(ResultPart(id="c1", result="3"),)),
            user("[runtime] go on"),
        )
    )
    assert [m.role for m in sent.messages] == ["user", "assistant", "user"]
    assert text_of(sent.messages[1].parts) == '{"tool": "add", "arguments": {"a":1,  "b":2}}'
    assert text_of(sent.messages[2].parts) == "Result of call c1 (add):\n3\n\n[runtime] go on"


def test_several_calls_of_one_reply_are_told_one_after_the_other():
    sent = in_words(
        [
            user("both"),
            assistant(
                Reasoning(content="hm"),
                Text("I do both."),
                CallPart(id="c1", name="add", arguments='{"a": 1}'),
                CallPart(id="c2", name="add", arguments='{"a": 2}'),
            ),
            Message(role="tool", parts=(ResultPart(id="c2", result="no", ok=False),)),
            Message(role="tool", parts=(ResultPart(id="c1", result="yes"),)),
        ]
    )
    assert [(m.role, text_of(m.parts)) for m in sent] == [
        ("user", "both"),
        ("assistant", 'I do both.\n{"tool": "add", "arguments": {"a": 1}}'),
        ("user", "Result of call c1 (add):\nyes"),
        ("assistant", '{"tool": "add", "arguments": {"a": 2}}'),
        ("user", "Failed call c2 (add):\nno"),
    ]


def test_earlier_answers_look_the_way_answers_are_asked_for():
    told = (user("?"), assistant(Text('It is "so".')), user("and?"))
    sent = encode(asked(*told))
    assert text_of(sent.messages[1].parts) == '{"answer": "It is \\"so\\"."}'
    sent = encode(asked(*told, output_schema=CITY))
    assert text_of(sent.messages[1].parts) == '{"answer": "It is \\"so\\"."}'
    sent = encode(asked(user("?"), assistant(Text(' {"city": "Bonn"}')), output_schema=CITY))
    assert text_of(sent.messages[1].parts) == '{"answer": {"city": "Bonn"}}'


def test_an_old_call_that_was_no_json_does_not_break_the_request():
    sent = in_words([assistant(CallPart(id="c1", name="add", arguments="{oops"))])
    assert json.loads(text_of(sent[0].parts))["tool"] == "add"


def test_files_stay_where_they_were_given():
    blob = Blob(mime_type="image/png", content=b"x")
    sent = in_words([Message(role="user", parts=(Text("look"), blob)), user("well?")])
    assert sent == (Message(role="user", parts=(Text("look"), blob, Text("well?"))),)


MESSAGES = st.lists(
    st.one_of(
        st.text(max_size=5).map(user),
        st.text(max_size=5).map(lambda t: assistant(Text(t))),
        st.lists(st.text(max_size=5), min_size=1, max_size=3),
    ),
    max_size=6,
)


@given(MESSAGES)
def test_every_conversation_becomes_one_that_alternates_and_is_well_formed(drawn):
    messages, n = [], 0
    for item in drawn:
        if isinstance(item, Message):
            messages.append(item)
            continue
        ids = [f"c{n + k}" for k in range(len(item))]
        n += len(item)
        messages.append(assistant(*(CallPart(id=i, name="add") for i in ids)))
        results = (ResultPart(id=i, result=r) for i, r in zip(ids, item, strict=True))
        messages.append(Message(role="tool", parts=tuple(results)))
    sent = encode(asked(*messages)).messages if messages else ()
    assert not faults(sent)
    assert all(a.role != b.role for a, b in itertools.pairwise(sent))
    assert {m.role for m in sent} <= {"user", "assistant"}
    told = "\n".join(text_of(m.parts) for m in sent)
    assert all(f"call c{k} (add):" in told for k in range(n))


# ---------------------------------------------------------------- what a grammar forces


@pytest.mark.parametrize(
    ("choice", "names", "answers"),
    [
        ("auto", ["add", "plant"], True),
        ("none", [], True),
        ("required", ["add", "plant"], False),
        ("add", ["add"], False),
    ],
)
def test_the_schema_holds_what_the_choice_allows_and_nothing_else(choice, names, answers):
    schema = action_schema(asked(tool_choice=choice))
    branches = schema.get("anyOf", [schema])
    tools = [b["properties"]["tool"]["enum"] for b in branches if "tool" in b["properties"]]
    assert tools == [[name] for name in names]
    assert any("answer" in b["properties"] for b in branches) is answers
    assert all(b["required"] == list(b["properties"]) for b in branches)
    told = encode(asked(tool_choice=choice)).system
    assert ("- plant:" in told) is ("plant" in names)
    assert ('"answer"' in told) is answers


def test_a_forced_choice_without_any_tool_leaves_the_answer():
    assert list(action_schema(asked(tools=(), tool_choice="required"))["properties"]) == ["answer"]


def test_definitions_of_different_tools_do_not_get_in_each_others_way():
    answer = {"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "null"}}}
    schema = action_schema(asked(output_schema=answer))
    assert set(schema["$defs"]) == {"t1_Node", "answer_Node"}
    branches = schema["anyOf"]
    assert branches[1]["properties"]["arguments"]["properties"]["root"] == {
        "$ref": "#/$defs/t1_Node"
    }
    assert branches[2]["properties"]["answer"] == {"$ref": "#/$defs/answer_Node"}
    items = schema["$defs"]["t1_Node"]["properties"]["kids"]["items"]
    assert items == {"$ref": "#/$defs/t1_Node"}


def test_a_schema_that_names_its_own_root_keeps_a_root():
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    schema = action_schema(asked(tools=(), output_schema=node))
    assert schema["properties"]["answer"]["properties"]["next"] == {"$ref": "#/$defs/answer_"}
    assert schema["$defs"]["answer_"]["type"] == "object"


def test_what_no_grammar_can_force_is_left_out_and_fields_of_such_names_stay():
    odd = {
        "type": "object",
        "title": "Odd",
        "properties": {
            "pattern": {"type": "string", "pattern": "^(?!x).*$", "maxLength": 9_000},
            "title": {"type": "string", "pattern": "^T-\\d+$", "maxLength": 8, "default": "T-1"},
            "default": {"enum": ["title"], "examples": ["title"]},
            "any": True,
            "list": {"type": "array", "items": True, "prefixItems": [True, {"const": True}]},
        },
        "required": ["title"],
        "additionalProperties": True,
    }
    schema = action_schema(asked(tools=(), output_schema=odd))
    assert schema["properties"]["answer"] == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "title": {"type": "string", "pattern": "^T-\\d+$", "maxLength": 8},
            "default": {"enum": ["title"]},
            "any": {},
            "list": {"type": "array", "prefixItems": [{}, {"const": True}]},
        },
        "required": ["title"],
        "additionalProperties": True,
    }


def test_objects_take_no_field_that_nobody_named_unless_they_say_so():
    part = {"type": "object", "properties": {"a": CITY}}
    schema = {
        "type": "object",
        "properties": {"open": {"type": "object"}, "part": part},
        "allOf": [part],
    }
    forced = action_schema(asked(tools=(), output_schema=schema))["properties"]["answer"]
    assert forced["additionalProperties"] is False
    assert forced["properties"]["open"] == {"type": "object"}
    assert forced["properties"]["part"]["properties"]["a"]["additionalProperties"] is False
    assert "additionalProperties" not in forced["allOf"][0]
    assert forced["allOf"][0]["properties"]["a"]["additionalProperties"] is False


# ---------------------------------------------------------------- what the model said


def test_a_call_keeps_its_arguments_byte_for_byte():
    exact = '{ "a":1e2,\n "b":\t12345678901234567890, "c": "\\u00e9é" }'
    reply = said(f'{{"arguments": {exact} , "tool":"add"}}', usage=Usage(output_tokens=7))
    got = decode(reply, asked())
    assert [(c.name, c.arguments) for c in got.calls] == [("add", exact)]
    assert (got.parts, got.finish, got.usage) == ((), "tool_calls", Usage(output_tokens=7))


def test_a_call_without_arguments_has_none():
    assert decode(said('{"tool": "add"}'), asked()).calls[0].arguments == "{}"


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "It is 3."}',
        '  \n{"answer":"It is 3."}\n',
        '```json\n{"answer": "It is 3."}\n```',
        '```{"answer": "It is 3."}```',
        'Here you are:\n\n{\n  "answer": "It is 3."\n}\n\nAnything else?',
        'Sure.\n```json\n{"answer": "It is 3."}\n```\nDone.',
    ],
)
def test_an_answer_is_found_alone_fenced_or_between_lines_of_text(text):
    assert decode(said(text), asked()).parts == (Text("It is 3."),)


def test_what_a_model_thought_is_kept_beside_its_action():
    thought = Reasoning(content="hm", opaque="sig")
    reply = ModelReply(parts=(thought, Text('{"answer": "3"}')), request_id="r1")
    got = decode(reply, asked())
    assert (got.parts, got.request_id) == ((thought, Text("3")), "r1")


def test_a_typed_answer_is_the_exact_json_of_it():
    text = '{"answer": {"city":  "Bonn"} }'
    assert decode(said(text), asked(output_schema=CITY)).parts == (Text('{"city":  "Bonn"}'),)
    assert decode(said('{"answer": "x"}'), asked(output_schema=CITY)).parts == (Text('"x"'),)


def test_an_answer_that_is_no_text_is_told_as_its_json():
    assert decode(said('{"answer": 42}'), asked()).parts == (Text("42"),)


PROSE = {
    "plain text": "It is 3.",
    "a call inside a sentence": 'Never send {"tool": "add", "arguments": {"a": 1}} to anyone.',
    "a call that a sentence goes on behind": '{"tool": "add", "arguments": {"a": 1}} is bad.',
    "two calls": '{"tool": "add", "arguments": {"a": 1}}\n{"tool": "add", "arguments": {"a": 2}}',
    "a call and an answer": '{"tool": "add"}\n{"answer": "3"}',
    "a call that is also an answer": '{"tool": "add", "arguments": {}, "answer": "3"}',
    "another form of call": '{"name": "add", "arguments": {"a": 1}}',
    "more than a call": '{"tool": "add", "arguments": {"a": 1}, "then": "stop"}',
    "a field twice": '{"tool": "add", "tool": "plant", "arguments": {}}',
    "an argument twice": '{"tool": "add", "arguments": {"a": 1, "a": 2}}',
    "a trailing comma": '{"tool": "add", "arguments": {"a": 1},}',
    "single quotes": "{'tool': 'add', 'arguments': {'a': 1}}",
    "an open object": '{"tool": "add", "arguments": {"a": 1',
    "arguments as text": '{"tool": "add", "arguments": "{\\"a\\": 1}"}',
    "arguments as a list": '{"tool": "add", "arguments": [1, 2]}',
    "a name that is no text": '{"tool": 7, "arguments": {}}',
    "a list of actions": '[{"tool": "add", "arguments": {"a": 1}}]',
    "no number": '{"tool": "add", "arguments": {"a": NaN}}',
    "no answer": '{"answer": null}',
    "an empty object": "{}",
    "endless depth": '{"tool": "add", "arguments": {"a": ' + "[" * 100_000,
}


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE)
def test_an_action_is_never_guessed_and_the_model_is_told_the_form(text):
    message = refused(text)
    assert "nothing of it was executed" in message
    assert '{"tool": <name>, "arguments": {...}} or {"answer": ...}' in message


def test_broken_json_is_told_with_its_place():
    assert "line 2, column 16" in refused('Well:\n{"tool": "add" "arguments": {}}')


def test_a_choice_that_was_not_kept_is_refused():
    assert "a tool must be called now" in refused('{"answer": "3"}', tool_choice="required")
    assert "no tool may be called now" in refused('{"tool": "add"}', tool_choice="none")
    assert "'plant' must be called" in refused('{"tool": "add"}', tool_choice="plant")


@pytest.mark.parametrize("finish", ["length", "max_tokens", "content_filter", "refusal"])
def test_a_cut_or_refused_reply_is_left_for_the_runtime_to_name(finish):
    reply = said('{"tool": "add", "arguments": {"a": 1}}', finish=finish)
    assert decode(reply, asked()) is reply


def test_an_empty_reply_is_left_for_the_runtime_to_name():
    reply = said("  \n")
    assert decode(reply, asked()) is reply


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.sampled_from([None, 2]))
def test_what_is_encoded_as_an_action_decodes_to_the_same_call(arguments, indent):
    exact = json.dumps(arguments, indent=indent)
    part = CallPart(id="c1", name="add", arguments=exact)
    (sent,) = in_words([assistant(part)])
    got = decode(said(text_of(sent.parts)), asked()).calls[0]
    assert (got.name, json.loads(got.arguments)) == ("add", arguments)


@given(st.text(max_size=40))
def test_any_text_is_an_action_or_a_typed_refusal(text):
    for given_text in (text, "{" + text, '{"answer": "' + text):
        with suppress(ModelError):
            assert not decode(said(given_text), asked()).calls


# ---------------------------------------------------------------- the answer as it arrives


def shown(text: str, size: int) -> str:
    pieces: list[str] = []
    stream = AnswerShown(pieces.append)
    for at in range(0, len(text), size):
        stream.feed(text[at : at + size])
    return "".join(pieces)


@given(st.text(max_size=30), st.booleans(), st.integers(1, 7))
def test_an_answer_is_shown_as_it_arrives_exactly(text, escaped, size):
    assert shown(json.dumps({"answer": text}, ensure_ascii=escaped), size) == text


@pytest.mark.parametrize(
    "text",
    ['{"tool": "add", "arguments": {"answer": "no"}}', '{"answer": {"city": "Bonn"}}', "Hm, well"],
)
def test_nothing_of_a_call_or_a_typed_answer_is_shown(text):
    assert shown(text + " " * 80, 3) == ""


# ---------------------------------------------------------------- through the runtime


class Actions(Scripted):
    """A model without tool calls whose script is the text it replies with."""

    takes_tools = False

    def __init__(self, *texts: str) -> None:
        super().__init__(list(texts))
        self.sent: list[ModelRequest] = []

    async def request(self, request, on_delta=None):
        self.sent.append(encode(request))
        return decode(await super().request(self.sent[-1], on_delta), request)


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"sunny in {city}"


def test_a_run_calls_and_answers_by_json_actions_alone():
    model = Actions('{"tool": "look", "arguments": {"city": "Bonn"}}', '{"answer": "Sunny."}')
    with Runtime(store=":memory:", agents=[Agent("a", model, tools=[look])]) as rt:
        run = rt.run("a", "Weather?")
    assert (run.status, run.text, run.calls) == ("completed", "Sunny.", 1)
    assert "sunny in Bonn" in text_of(model.sent[1].messages[-1].parts)


def test_a_reply_that_is_no_action_is_mended_by_the_model_itself():
    model = Actions(
        "I shall look at Bonn.",
        '{"tool": "look", "arguments": {"city": "B"}}',
        "{}",
        '{"answer": "ok"}',
    )
    with Runtime(store=":memory:", agents=[Agent("a", model, tools=[look])]) as rt:
        run = rt.run("a", "Weather?")
    assert (run.status, run.text, run.calls) == ("completed", "ok", 1)
    told = text_of(model.sent[1].messages[-1].parts)
    assert "[runtime] Your last reply was not usable" in told


def test_a_typed_answer_given_as_an_action_becomes_the_runs_output():
    model = Actions('{"answer": {"n": "x"}}', '{"answer": {"n": 3}}')
    with Runtime(
        store=":memory:", agents=[Agent("a", model, tools=[look], output_type=dict[str, int])]
    ) as rt:
        run = rt.run("a", "How many?")
    assert (run.status, run.output) == ("completed", {"n": 3})


def test_a_model_that_takes_over_finds_the_calls_of_the_one_before_in_words():
    first = Scripted([call("look", city="Ulm"), ModelError(ErrorClass.AUTH, "no")])
    second = Actions("", "", '{"answer": "Sunny in Ulm."}')
    agent = Agent("a", first, tools=[look], fallback_models=[second])
    with Runtime(store=":memory:", agents=[agent]) as rt:
        run = rt.run("a", "Weather?")
    assert (run.status, run.text) == ("completed", "Sunny in Ulm.")
    told = [text_of(m.parts) for m in second.sent[-1].messages]
    assert '{"tool": "look", "arguments": {"city":"Ulm"}}' in told
