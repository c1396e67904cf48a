"""Streams that break off, stall or turn into errors: nothing partial ever comes back as a reply."""

import asyncio
import json

import pytest
from tests.models.wire.bodies import CHAT, GEMINI, MESSAGES, RESPONSES, Said, call, sse, text
from tests.models.wire.kit import (
    asked,
    every_format,
    exchange,
    fault,
    hear,
    reply,
    run,
    speaking,
    streamed_or_whole,
)
from tests.models.wire.server import SILENCE, SSE, Answer, Loopback

from cairn.errors import ErrorClass, ModelError

CALL = Said(parts=(("text", "I look."), call()))
closed_or_torn = pytest.mark.parametrize("end", ["whole", "drop"])


@every_format
@closed_or_torn
def test_words_without_a_finish_reason_are_a_cut_reply(form, end):
    found = fault(form, form.cut(text(), before=form.ending, end=end))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@every_format
@closed_or_torn
def test_a_complete_call_without_a_finish_reason_is_a_cut_reply(form, end):
    found = fault(form, form.cut(CALL, before=form.ending, end=end))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@closed_or_torn
@pytest.mark.parametrize(("form", "before"), [(CHAT, 4), (RESPONSES, 4), (MESSAGES, 4)], ids=str)
def test_half_a_call_is_a_cut_reply(form, before, end):
    """B32."""
    found = fault(form, form.cut(CALL, before=before, end=end))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


def test_done_without_a_finish_reason_is_a_cut_reply():
    found = fault(CHAT, Answer(events=[*CHAT.opening(), sse("[DONE]")], kind=SSE))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@every_format
@pytest.mark.parametrize("end", ["whole", "drop"])
def test_a_stream_that_opens_and_says_nothing_is_no_reply(form, end):
    found = fault(form, Answer(events=[], kind=SSE, end=end))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@every_format
def test_a_whole_body_with_an_empty_finish_reason_is_a_cut_reply(form):
    found = fault(form, form.answer(text(finish=None), stream=False), stream=False)
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED
    assert found.request_id == "req-1"


@pytest.mark.parametrize("status", ["in_progress", "queued", "cancelled"])
def test_a_response_that_is_not_finished_is_a_cut_reply(status):
    said = text(finish=status)
    found = fault(RESPONSES, RESPONSES.answer(said, stream=False), stream=False)
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@streamed_or_whole
def test_a_failed_response_is_a_fault_with_the_words_of_the_provider(stream):
    body = RESPONSES.whole(text(finish="failed"))
    body["error"] = {"code": "server_error", "message": "Something broke on our side."}
    body["output"] = []
    failed = sse({"type": "response.failed", "sequence_number": 1, "response": body})
    opened = RESPONSES.events(text())[0]
    events = Answer(events=[opened, failed], kind=SSE)
    whole = Answer(body=json.dumps(body).encode())
    found = fault(RESPONSES, events if stream else whole, stream=stream)
    assert found.error_class == ErrorClass.UNAVAILABLE


def test_a_finish_reason_is_enough_although_the_usage_after_it_is_cut():
    found = reply(CHAT, CHAT.cut(text(), before=2))
    assert found.finish == "stop"
    assert found.parts[0].content == "Good morning."
    assert found.usage is None


# ---------------------------------------------------------------- data that is none


@every_format
@pytest.mark.parametrize("words_before", [True, False])
def test_an_unreadable_event_is_a_cut_reply(form, words_before):
    events = [*(form.opening() if words_before else ()), form.broken_event()]
    found = fault(form, Answer(events=events, kind=SSE))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@every_format
def test_an_unreadable_event_is_not_skipped_although_the_rest_is_whole(form):
    events = form.events(text())
    broken = [*events[: -form.ending], form.broken_event(), *events[-form.ending :]]
    found = fault(form, Answer(events=broken, kind=SSE))
    assert found.error_class == ErrorClass.STREAM_INTERRUPTED


@every_format
def test_overload_inside_a_stream_is_overload_before_and_after_words(form):
    error = form.error_event("The model is overloaded.")
    for events in ([error], [*form.opening(), error]):
        headers = {form.request_id: "req-1"}
        found = hear(form, Answer(events=events, kind=SSE, headers=headers))
        assert found.reply is None
        assert found.fault.error_class == ErrorClass.OVERLOADED
        assert found.fault.status is None
        assert "overloaded" in str(found.fault)
        if form is not GEMINI:  # Google gives no id with a response
            assert found.fault.request_id == "req-1"
        assert "".join(found.deltas) == ("" if len(events) == 1 else "Good morning.")


@pytest.mark.parametrize("end", ["whole", "hang"])
@every_format
def test_an_error_inside_a_stream_leaves_no_connection_open(form, end):
    async def main():
        answer = Answer(events=[*form.opening(), form.error_event("Full.")], kind=SSE, end=end)
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            with pytest.raises(ModelError):
                await exchange(connection, form)
            await server.closed()

    run(main())


BODIES = {
    "a page": (b"<html><title>Bad gateway</title></html>", "text/html"),
    "nothing": (b"", "application/json"),
    "an empty object": (b"{}", "application/json"),
    "a list": (b"[]", "application/json"),
    "null": (b"null", "application/json"),
    "a string": (b'"hello"', "application/json"),
    "an error": (b'{"error": {"message": "Full.", "code": 529}}', "application/json"),
    "text": (b"upstream connect error", "text/plain"),
}


@every_format
@streamed_or_whole
@pytest.mark.parametrize(("body", "kind"), BODIES.values(), ids=BODIES)
def test_success_with_a_body_that_is_no_reply_is_a_fault_that_may_be_tried_again(
    form, stream, body, kind
):
    found = fault(form, Answer(body=body, kind=kind), stream=stream)
    assert found.error_class in {
        ErrorClass.UNAVAILABLE,
        ErrorClass.OVERLOADED,
        ErrorClass.STREAM_INTERRUPTED,
    }
    assert found.status is None


@every_format
@streamed_or_whole
def test_a_page_in_place_of_a_reply_says_so_and_asks_for_the_address(form, stream):
    body, _ = BODIES["a page"]
    found = fault(form, Answer(body=body, kind="text/html; charset=utf-8"), stream=stream)
    assert "answered with text/html" in str(found)
    assert "is the address right?" in str(found)
    assert "Bad gateway" not in str(found)


@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=repr)
@streamed_or_whole
def test_plain_words_in_place_of_a_reply_say_so_too(form, stream):
    body, kind = BODIES["text"]
    assert "answered with text/plain" in str(
        fault(form, Answer(body=body, kind=kind), stream=stream)
    )


def test_an_error_that_a_router_sends_under_success_is_told_by_its_own_status():
    body = b'{"error": {"message": "Rate limit exceeded", "code": 429}}'
    found = fault(CHAT, Answer(body=body), stream=False, provider="openrouter", model="a/b")
    assert found.error_class == ErrorClass.RATE_LIMITED


# ---------------------------------------------------------------- silence


@every_format
@pytest.mark.parametrize("where", ["never answers", "opens and stalls", "stalls after words"])
def test_a_wire_that_is_silent_for_too_long_is_a_time_out(form, where):
    answers = {
        "never answers": SILENCE,
        "opens and stalls": Answer(events=[], kind=SSE, end="hang"),
        "stalls after words": Answer(events=form.opening(), kind=SSE, end="hang"),
    }
    heard = hear(form, answers[where], stall_s=0.05)
    assert heard.reply is None
    assert heard.fault.error_class == ErrorClass.TIMEOUT
    assert len(heard.seen) <= 1


@every_format
def test_a_whole_reply_that_never_comes_is_a_time_out(form):
    heard = hear(form, SILENCE, stall_s=0.05, stream=False)
    assert heard.reply is None
    assert heard.fault.error_class == ErrorClass.TIMEOUT


@every_format
def test_the_deadline_of_a_request_counts_although_words_have_come(form):
    answer = Answer(events=form.opening(), kind=SSE, end="hang")
    heard = hear(form, answer, asked(timeout_s=0.1))
    assert heard.reply is None
    assert heard.fault.error_class == ErrorClass.TIMEOUT
    assert "0.1 s" in str(heard.fault)


@every_format
def test_nobody_at_the_address_is_a_fault_of_the_network(form):
    async def main():
        async with Loopback() as server:
            url = server.url
        async with speaking(url, form) as connection:
            with pytest.raises(ModelError) as caught:
                await exchange(connection, form)
        assert caught.value.error_class == ErrorClass.NETWORK

    run(main())


@every_format
def test_a_connection_that_was_closed_while_nobody_used_it_is_replaced(form):
    async def main():
        answer = form.answer(text(), stream=True)
        async with Loopback(answer) as first, speaking(first.url, form) as connection:
            await exchange(connection, form)
            first.hang_up()
            await first.closed()
            await asyncio.sleep(0)
            found = await exchange(connection, form)
            assert found.parts[0].content == "Good morning."
            assert first.connections == 2

    run(main())
