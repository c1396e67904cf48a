"""A reply that arrived whole: every part of it, in all four formats, streamed or not."""

import json

import pytest
from tests.models.wire.bodies import (
    CHAT,
    FORMATS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Said,
    Tokens,
    call,
    sse,
    text,
)
from tests.models.wire.kit import asked, every_format, fault, hear, reply, streamed_or_whole
from tests.models.wire.server import SSE, Answer

from cairn.core.limits import Usage
from cairn.core.messages import Reasoning, Text, parse_object
from cairn.errors import ErrorClass
from cairn.models.wire.replies import FAULTS, FINISH

ARGUMENTS = [
    '{ "q" :\t"tea"  ,\n "n":1 }',  # odd spacing
    '{"q": 1.0, "n": 1e2}',  # floats that are whole
    '{"q": "a", "q": "b"}',  # a name twice
    '{"q": "näive \u2028 茶 🫖 \\u00e9"}',  # no ASCII
    '{"q": 123456789012345678901234567890}',  # a number past 64 bits
    "{}",
    '{"q": {"a": [1, {"b": null}], "c": ""}}',  # deep
]
BROKEN = ['{"q": "te', "[1]", "tea, please", "null", '{"q": 1}}']


def carries_text(form, stream):
    """Whether the wire carries the arguments of a call as text."""
    return form in {CHAT, RESPONSES} or (form is MESSAGES and stream)


def pairs(words):
    """A JSON value in which the last of two equal names wins and 1.0 stays a float."""
    return repr(json.loads(words))


@every_format
@streamed_or_whole
def test_words_arrive_as_they_were_written(form, stream):
    words = "Zwei Tassen\n\n  <think>no tag is taken out</think> 🫖 \t."
    heard = hear(form, form.answer(text(words), stream=stream), stream=stream)
    assert heard.reply.parts[0].content == words
    assert not heard.reply.calls
    assert heard.reply.finish == "stop"
    assert "".join(heard.deltas) == (words if stream else "")


@every_format
@streamed_or_whole
def test_the_headers_and_the_time_of_a_success_are_kept(form, stream):
    found = reply(form, form.answer(text(), stream=stream), stream=stream)
    assert found.request_id == "req-1"
    assert found.model == "the-model-that-answered"
    assert (found.first_token_us > 0) is stream


@every_format
@streamed_or_whole
def test_arguments_arrive_byte_for_byte_where_the_wire_carries_text(form, stream):
    said = Said(parts=[call(each, id=f"id_{n}") for n, each in enumerate(ARGUMENTS)])
    found = reply(form, form.answer(said, stream=stream), stream=stream).calls
    assert {each.name for each in found} == {"find"}
    arrived = [each.arguments for each in found]
    if carries_text(form, stream):
        assert arrived == ARGUMENTS
    else:
        assert [pairs(each) for each in arrived] == [pairs(each) for each in ARGUMENTS]


@pytest.mark.parametrize(
    ("form", "stream"),
    [(f, s) for f in FORMATS for s in (True, False) if carries_text(f, s)],
    ids=repr,
)
def test_unreadable_arguments_are_handed_on_and_never_become_an_empty_object(form, stream):
    said = Said(parts=[call(each, id=f"id_{n}") for n, each in enumerate(BROKEN)])
    found = reply(form, form.answer(said, stream=stream), stream=stream).calls
    assert [each.arguments for each in found] == BROKEN


@every_format
@streamed_or_whole
def test_no_arguments_at_all_stand_for_none(form, stream):
    found = reply(form, form.answer(Said(parts=(call(""),)), stream=stream), stream=stream)
    assert parse_object(found.calls[0].arguments) == {}


@every_format
@streamed_or_whole
def test_text_beside_calls_is_kept_and_every_call_stands_where_it_was_written(form, stream):
    parts = (("text", "I look."), call('{"q": "a"}'), call('{"q": "b"}', "other", "id_2"))
    found = reply(form, form.answer(Said(parts=parts), stream=stream), stream=stream)
    assert [part.content for part in found.parts] == ["I look."]
    assert [(each.name, parse_object(each.arguments)) for each in found.calls] == [
        ("find", {"q": "a"}),
        ("other", {"q": "b"}),
    ]
    assert [each.place for each in found.calls] == [1, 1]
    assert found.finish in {"tool_calls", "stop"}


@pytest.mark.parametrize("form", [RESPONSES, MESSAGES, GEMINI], ids=repr)
@streamed_or_whole
def test_the_order_of_thinking_words_and_calls_is_kept(form, stream):
    parts = (("thought", "Hm.", "bWFyaw=="), call(), ("text", "And now."), call(id="id_2"))
    found = reply(form, form.answer(Said(parts=parts), stream=stream), stream=stream)
    assert [type(part) for part in found.parts] == [Reasoning, Text]
    assert [each.place for each in found.calls] == [1, 2]


@every_format
@streamed_or_whole
def test_equal_ids_are_no_reason_to_lose_a_call(form, stream):
    """B17."""
    parts = (call('{"q": "a"}', id="x1"), call('{"q": "b"}', id="x1"))
    found = reply(form, form.answer(Said(parts=parts), stream=stream), stream=stream)
    assert [parse_object(each.arguments) for each in found.calls] == [{"q": "a"}, {"q": "b"}]


@every_format
@streamed_or_whole
def test_thinking_arrives_beside_the_words_with_the_mark_of_its_provider(form, stream):
    said = Said(parts=(("thought", "I weigh it.", "bWFyaw=="), ("text", "Tea.")))
    found = reply(form, form.answer(said, stream=stream), stream=stream)
    thought, words = found.parts
    assert isinstance(thought, Reasoning)
    assert thought.content == "I weigh it."
    assert words.content == "Tea."
    if form in {RESPONSES, MESSAGES}:
        assert "bWFyaw==" in thought.opaque


@streamed_or_whole
def test_the_thought_signature_of_a_google_call_is_kept_with_the_call(stream):
    said = Said(parts=(("call", "find", '{"q": 1}', "id_1", "c2lnbg=="),))
    found = reply(GEMINI, GEMINI.answer(said, stream=stream), stream=stream)
    assert "c2lnbg==" in found.calls[0].opaque


@streamed_or_whole
def test_hidden_reasoning_of_responses_is_kept_although_it_has_no_words(stream):
    said = Said(parts=(("thought", "", "ZW5j"), ("text", "Tea.")))
    found = reply(RESPONSES, RESPONSES.answer(said, stream=stream), stream=stream)
    assert "ZW5j" in found.parts[0].opaque
    assert found.parts[1].content == "Tea."


# ---------------------------------------------------------------- usage


@every_format
@streamed_or_whole
def test_no_token_is_counted_twice_and_streaming_changes_no_number(form, stream):
    """B41, B42: in the conventions of all formats."""
    said = text(tokens=Tokens(fresh=2_000, cached=8_000, spoken=300, thought=120))
    found = reply(form, form.answer(said, stream=stream), stream=stream).usage
    thinking = 0 if form is MESSAGES else 120  # Anthropic does not say how much of it was thinking
    assert found == Usage(
        input_tokens=2_000,
        cached_tokens=8_000,
        output_tokens=420 - thinking,
        reasoning_tokens=thinking,
    )


@streamed_or_whole
def test_tokens_written_to_the_cache_have_a_bucket_of_their_own(stream):
    said = text(tokens=Tokens(fresh=10, cached=20, written=40, spoken=5))
    found = reply(MESSAGES, MESSAGES.answer(said, stream=stream), stream=stream).usage
    assert found == Usage(input_tokens=10, cached_tokens=20, cache_write_tokens=40, output_tokens=5)


@every_format
@streamed_or_whole
def test_a_provider_that_says_nothing_of_usage_has_none_and_not_zero(form, stream):
    """B42: what is missing is unknown."""
    found = reply(form, form.answer(text(tokens=None), stream=stream), stream=stream)
    assert found.usage is None


def test_usage_in_a_last_chunk_that_has_choices_counts_too():
    """B42."""
    usage = CHAT.usage(Tokens(fresh=7, spoken=3))
    events = [
        CHAT.chunk(text(), {"content": "Tea."}),
        CHAT.chunk(text(), {}, "stop", usage=usage),
        sse("[DONE]"),
    ]
    found = reply(CHAT, Answer(events=events, kind=SSE))
    assert found.usage == Usage(input_tokens=7, output_tokens=3)


def test_groq_says_its_usage_in_a_place_of_its_own():
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    events = [
        CHAT.chunk(text(), {"content": "Tea."}),
        CHAT.chunk(text(), {}, "stop", x_groq={"id": "req_01", "usage": usage}),
        sse("[DONE]"),
    ]
    found = reply(CHAT, Answer(events=events, kind=SSE), provider="groq", model="some/model")
    assert found.usage == Usage(input_tokens=7, output_tokens=3)


def test_usage_said_again_and_again_is_counted_once():
    usage = CHAT.usage(Tokens(fresh=7, spoken=3))
    events = [
        CHAT.chunk(text(), {"content": "Tea."}, usage=CHAT.usage(Tokens(fresh=7, spoken=1))),
        CHAT.chunk(text(), {}, "stop", x_groq={"id": "req_01", "usage": usage}),
        CHAT.chunk(text(), {}, choices=[], usage=usage),
        sse("[DONE]"),
    ]
    found = reply(CHAT, Answer(events=events, kind=SSE), provider="groq", model="some/model")
    assert found.usage == Usage(input_tokens=7, output_tokens=3)


# ---------------------------------------------------------------- what servers do differently


@streamed_or_whole
@pytest.mark.parametrize("name", ["find", "search"])
def test_two_calls_at_one_index_are_two_calls(stream, name):
    """B26: a new id, or another name, begins a new call."""

    def piece(id, name, arguments):
        function = {"name": name, "arguments": arguments}
        return {"index": 0, "id": id, "type": "function", "function": function}

    one, two = piece("a", "find", '{"q": "a"}'), piece("b", name, '{"q": "b"}')
    events = [
        CHAT.chunk(text(), {"tool_calls": [one]}),
        CHAT.chunk(text(), {"tool_calls": [two]}),
        CHAT.chunk(text(), {}, "tool_calls"),
        sse("[DONE]"),
    ]
    body = CHAT.whole(text())
    body["choices"][0]["message"]["tool_calls"] = [one, two]
    whole = Answer(body=json.dumps(body).encode())
    found = reply(CHAT, Answer(events=events, kind=SSE) if stream else whole, stream=stream)
    assert [(c.name, c.arguments) for c in found.calls] == [
        ("find", '{"q": "a"}'),
        (name, '{"q": "b"}'),
    ]


def test_pieces_of_calls_that_come_by_turns_are_put_together_by_index():
    def piece(index, arguments, **more):
        function = {"arguments": arguments} | ({"name": more.pop("name")} if more else {})
        return {"tool_calls": [{"index": index, "function": function, **more}]}

    deltas = [
        piece(0, '{"q"', name="find", id="a"),
        piece(1, '{"q"', name="find", id="b"),
        piece(0, ': "a"}'),
        piece(1, ': "b"}'),
    ]
    events = [CHAT.chunk(text(), delta) for delta in deltas]
    events += [CHAT.chunk(text(), {}, "tool_calls"), sse("[DONE]")]
    found = reply(CHAT, Answer(events=events, kind=SSE))
    assert [c.arguments for c in found.calls] == ['{"q": "a"}', '{"q": "b"}']


def test_an_id_that_comes_with_every_piece_is_one_call():
    """B26, the other way round."""

    def piece(arguments, name):
        function = {"arguments": arguments, "name": name}
        return {"tool_calls": [{"index": 0, "id": "a", "function": function}]}

    events = [CHAT.chunk(text(), piece('{"q"', "find")), CHAT.chunk(text(), piece(": 1}", None))]
    events += [CHAT.chunk(text(), {}, "tool_calls"), sse("[DONE]")]
    found = reply(CHAT, Answer(events=events, kind=SSE))
    assert [(c.name, c.arguments) for c in found.calls] == [("find", '{"q": 1}')]


def test_pieces_of_one_call_that_come_apart_in_one_chunk_are_one_call():
    """B26, the other way round: one index, and the id is said with the first piece only."""

    def piece(arguments, **more):
        function = {"arguments": arguments} | ({"name": "find"} if more else {})
        return {"index": 0, "function": function, **more}

    events = [
        CHAT.chunk(text(), {"tool_calls": [piece('{"q"', id="a"), piece(": 1")]}),
        CHAT.chunk(text(), {"tool_calls": [piece("}")]}),
        CHAT.chunk(text(), {}, "tool_calls"),
        sse("[DONE]"),
    ]
    found = reply(CHAT, Answer(events=events, kind=SSE))
    assert [(c.name, c.arguments) for c in found.calls] == [("find", '{"q": 1}')]


@pytest.mark.parametrize("missing", ["type", "id"])
def test_a_call_of_a_careless_server_is_a_call(missing):
    body = CHAT.whole(Said(parts=(call(),)))
    del body["choices"][0]["message"]["tool_calls"][0][missing]
    found = reply(CHAT, Answer(body=json.dumps(body).encode()), stream=False)
    assert [(c.name, c.arguments) for c in found.calls] == [("find", '{"q": "tea"}')]


def test_what_a_provider_did_by_itself_may_lack_the_fields_of_today():
    body = RESPONSES.whole(text("Found."))
    body["output"].insert(0, {"id": "ws_1", "type": "web_search_call", "status": "completed"})
    found = reply(RESPONSES, Answer(body=json.dumps(body).encode()), stream=False)
    assert [part.content for part in found.parts if isinstance(part, Text)] == ["Found."]


def test_a_large_output_limit_does_not_turn_a_whole_reply_into_a_stream():
    request = asked(max_output=64_000)
    for form in FORMATS:
        heard = hear(form, form.answer(text(), stream=False), request, stream=False)
        assert heard.reply.parts[0].content == "Good morning."
        assert not heard.sent.get("stream", False)


# ---------------------------------------------------------------- finish reasons

WORDS = {
    CHAT: [
        "stop",
        "length",
        "content_filter",
        "tool_calls",
        "function_call",
        "eos",
        "model_length",
    ],
    RESPONSES: ["completed", "max_output_tokens", "content_filter"],
    MESSAGES: ["end_turn", "stop_sequence", "max_tokens", "tool_use", "refusal"],
    GEMINI: ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "BLOCKLIST", "SPII", "IMAGE_SAFETY"],
}
WORDS[MESSAGES] += ["model_context_window_exceeded"]
WORDS[GEMINI] += ["PROHIBITED_CONTENT"]
REASONS = [(form, word) for form, words in WORDS.items() for word in words]
FAILED = [
    (CHAT, "error"),
    (CHAT, "insufficient_system_resource"),
    (CHAT, "network_error"),
    (GEMINI, "MALFORMED_FUNCTION_CALL"),
    (GEMINI, "UNEXPECTED_TOOL_CALL"),
]


@streamed_or_whole
@pytest.mark.parametrize(("form", "word"), REASONS, ids=str)
def test_every_finish_reason_is_told_in_the_words_of_the_core(form, word, stream):
    needs_call = FINISH[word.lower()] == "tool_calls"
    said = Said(parts=(call(),) if needs_call else (("text", "Tea"),), finish=word)
    found = reply(form, form.answer(said, stream=stream), stream=stream)
    assert found.finish == FINISH[word.lower()]
    assert bool(found.calls) is needs_call
    assert bool(found.parts) is not needs_call


@streamed_or_whole
@pytest.mark.parametrize(("form", "word"), FAILED, ids=str)
def test_a_finish_reason_that_tells_of_a_fault_is_a_fault(form, word, stream):
    found = fault(form, form.answer(text(finish=word), stream=stream), stream=stream)
    assert found.error_class == FAULTS[word.lower()]
    assert found.request_id == "req-1"


@pytest.mark.filterwarnings("ignore:NEWLY_MADE is not a valid FinishReason")
@streamed_or_whole
@pytest.mark.parametrize("form", [CHAT, MESSAGES, GEMINI], ids=repr)
def test_a_finish_reason_nobody_knows_is_handed_on(form, stream):
    found = reply(form, form.answer(text(finish="NEWLY_MADE"), stream=stream), stream=stream)
    assert found.finish == "newly_made"
    assert found.parts[0].content == "Good morning."


@streamed_or_whole
@pytest.mark.parametrize("form", [CHAT, MESSAGES], ids=repr)
def test_a_call_that_was_announced_and_has_no_name_is_told_to_the_model(form, stream):
    said = text("I look.", finish=form.tool_calls)
    found = fault(form, form.answer(said, stream=stream), stream=stream)
    assert found.error_class == ErrorClass.MALFORMED_OUTPUT


@streamed_or_whole
def test_a_nameless_call_alone_is_no_empty_reply(stream):
    said = Said(parts=(call(name=""),))
    found = fault(CHAT, CHAT.answer(said, stream=stream), stream=stream)
    assert found.error_class == ErrorClass.MALFORMED_OUTPUT


@streamed_or_whole
def test_the_output_limit_inside_a_call_leaves_the_half_call_with_its_reason(stream):
    parts = (("text", "I look."), call('{"q": "te'))
    for form in (CHAT, RESPONSES, *((MESSAGES,) if stream else ())):
        said = Said(parts=parts, finish=form.length)
        found = reply(form, form.answer(said, stream=stream), stream=stream)
        assert found.finish == "length"
        assert [each.arguments for each in found.calls] == ['{"q": "te']


@every_format
@streamed_or_whole
@pytest.mark.parametrize("spoken", [300, 301, 299])
def test_a_call_that_is_as_long_as_the_limit_allows_is_cut_whatever_finish_reason_is_sent(
    form, stream, spoken
):
    """B20: the provider says that it has called its tool; the length of the reply says more."""
    half = call('{"text": "half a wor"}' if form is GEMINI else '{"text": "half a wor', "write")
    if form is MESSAGES and not stream:
        half = call('{"text": "half a wor"}', "write")
    said = Said(parts=(half,), finish=form.tool_calls, tokens=Tokens(spoken=spoken))
    answer = form.answer(said, stream=stream)
    found = reply(form, answer, asked(max_output=300), stream=stream)
    assert (found.finish == "length") is (spoken >= 300)


@every_format
@streamed_or_whole
def test_a_refusal_keeps_its_reason_and_holds_no_call(form, stream):
    """B31."""
    said = text("I will not.", finish=form.refused)
    found = reply(form, form.answer(said, stream=stream), stream=stream)
    assert found.finish == "content_filter"
    assert found.parts[0].content == "I will not."


@streamed_or_whole
def test_an_openai_refusal_field_is_a_refusal_with_its_words(stream):
    """B31."""
    body = CHAT.whole(text())
    body["choices"][0]["message"] |= {"content": None, "refusal": "I will not."}
    events = [CHAT.chunk(text(), {"refusal": "I will "}), CHAT.chunk(text(), {"refusal": "not."})]
    events += [CHAT.chunk(text(), {}, "stop"), sse("[DONE]")]
    whole = Answer(body=json.dumps(body).encode())
    found = reply(CHAT, Answer(events=events, kind=SSE) if stream else whole, stream=stream)
    assert found.finish == "content_filter"
    assert found.parts == (Text("I will not."),)


@streamed_or_whole
def test_a_refusal_part_of_responses_is_a_refusal_with_its_words(stream):
    said = Said(parts=(("refusal", "I will not."),))
    found = reply(RESPONSES, RESPONSES.answer(said, stream=stream), stream=stream)
    assert found.finish == "content_filter"
    assert found.parts[0].content == "I will not."


@streamed_or_whole
def test_a_prompt_google_refuses_to_read_is_a_refusal(stream):
    body = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
        "modelVersion": "some-model",
        "responseId": "req-1",
    }
    whole = Answer(body=json.dumps(body).encode())
    found = reply(GEMINI, Answer(events=[sse(body)], kind=SSE) if stream else whole, stream=stream)
    assert found.finish == "content_filter"
    assert (found.parts, found.calls) == ((), ())
    assert found.usage == Usage(input_tokens=9)


@every_format
@streamed_or_whole
def test_a_reply_that_says_nothing_is_an_empty_reply_and_nothing_is_made_up(form, stream):
    found = reply(form, form.answer(Said(parts=()), stream=stream), stream=stream)
    assert found.parts == ()
    assert found.calls == ()
    assert found.finish == "stop"


def test_a_server_that_never_says_how_it_finished_can_be_let_off():
    answer = CHAT.answer(text(finish=None), stream=True)
    found = reply(CHAT, answer, finish_required=False)
    assert found.parts[0].content == "Good morning."
    assert found.finish == "stop"
