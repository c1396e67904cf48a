"""Every fault of the wire, through whole runs: what the referee says of us, and what it cannot do.

The table of all of them: `python -m tests.models.referee`.
"""

import asyncio
from dataclasses import replace

import pytest
from llmock.scenarios import Reply, StreamFault
from tests.models import referee
from tests.models.referee import CASES, QUICK, WIRES, Case, Row, play, quick_ladder, rows_of
from tests.models.wire.bodies import CHAT, FORMATS, GEMINI, MESSAGES, RESPONSES, Said, text
from tests.models.wire.server import Answer, Loopback

from cairn import Agent, Runtime
from cairn.core import events as ev
from cairn.core.limits import FREE
from cairn.models.remote import RemoteModel

pytestmark = pytest.mark.timeout(120)  # the first to come loads the vendor libraries
EVENTS = {"chat": 9, "responses": 13, "messages": 11}
"""How many events the referee streams for five words."""
AFTER_FINISH = {"chat": 2, "responses": 0, "messages": 1}
"""How many of them come after the one with the finish reason."""
QUICK_ROWS = rows_of(QUICK, ["streamed"])


@pytest.fixture(scope="module")
def played():
    rows = [replace(row) for row in QUICK_ROWS]
    return rows, play(rows, at_once=len(rows))


@pytest.mark.parametrize("number", range(len(QUICK_ROWS)), ids=[row.name for row in QUICK_ROWS])
def test_a_fault_ends_in_its_class_and_step_and_no_request_is_lost_or_repeated(played, number):
    assert played[0][number].complaints() == []


def test_the_referee_finds_nothing_to_complain_of(played):
    rows, verdict = played
    verdict.assert_ok(strict=True)
    assert verdict.attempts == sum(len(row.asked) for row in rows)
    failed = [step for row in rows for step in row.steps if not step.startswith("unknown_tool")]
    assert verdict.faults == len(failed) > 0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_fault_the_referee_can_do_is_borne_in_every_format(capsys):
    rows = rows_of()
    verdict = play(rows)
    with capsys.disabled():
        print(f"\n{len(CASES)} faults, {len(rows)} runs: {verdict.render().splitlines()[0]}")
    assert [f"{row.name}: {said}" for row in rows for said in row.complaints()] == []
    assert verdict.findings == ()
    theirs = sum(len(row.records) for row in rows)
    assert theirs == sum(len(row.asked) for row in rows)


@pytest.mark.slow
def test_a_stream_that_ends_early_is_whole_only_if_the_finish_reason_had_come(capsys):
    """Cut before each of its events in turn; after the finish reason only usage can be lost."""
    said = Reply(text="One two three four five.", times=None)
    rows = [
        Row(Case(f"cut at {at}", (said, StreamFault("truncate", at))), wire, "streamed")
        for wire in WIRES
        for at in range(EVENTS[wire.name])
    ]
    play(rows)
    for wire in WIRES:
        own = [row for row in rows if row.wire is wire]
        assert {row.records[-1].chunks_sent for row in own if row.steps} == {EVENTS[wire.name]}
        assert {(row.ends, row.run.text) for row in own} == {("completed", said.text)}
        assert all(len(row.records) == len(row.asked) == 1 + len(row.steps) for row in own)
        believed = [n for n, row in enumerate(own) if not row.steps]
        assert believed == list(range(len(own) - AFTER_FINISH[wire.name], len(own)))
        assert {row.steps for row in own} <= {(), ("stream_interrupted:retry",)}
        with capsys.disabled():
            print(f"\n{wire.name}: cut before each of {len(own)} events, believed {believed}")


# ---------------------------------------------------------------- what it cannot do

FAULTS = {
    "429 that asks for nothing": ("rate_limited", 0.0),
    "429 that asks for half seconds": ("rate_limited", 1.5),
    "a page of a proxy": ("unavailable", 0.0),
    "nothing at all": ("unavailable", 0.0),
    "JSON of another shape": ("unavailable", 0.0),
    "a body that is cut": ("stream_interrupted", 0.0),
}
BARE = ("nothing at all", "JSON of another shape")
"""Every field of Google's format may be missing, so that these look like a reply cut short."""


def _whole_faults(form):
    said = form.answer(text("Never believed."), stream=False)
    page = b"<html><body>Bad gateway</body></html>"
    half = Answer(events=[said.body[:40]], end="drop")
    return {
        "429 that asks for nothing": Answer(body=b'{"error": {}}', status=429),
        "429 that asks for half seconds": Answer(
            body=b'{"error": {}}', status=429, headers={"retry-after": "1.5"}
        ),
        "a page of a proxy": Answer(body=page, kind="text/html"),
        "nothing at all": Answer(),
        "JSON of another shape": Answer(body=b'{"hello": ["world"]}'),
        "a body that is cut": half,
    }


async def _run(form, answer, *, stream):
    """One run against a server that says this first, and a good reply ever after."""
    good = form.answer(text("Believed."), stream=stream)
    async with Loopback(answer, good) as server:
        base = server.url + ("/v1" if form in {CHAT, RESPONSES} else "")
        model = RemoteModel(
            f"{form.provider}:{form.model}", base_url=base, api_key="k", price=FREE, stream=stream
        )
        agent = Agent("a", model, builtins=())
        async with Runtime(":memory:", agents=[agent], ladder=quick_ladder()) as rt:
            run = await rt.run_async("a", "Say something.", id="r")
            entries = await rt.trace_async("r")
        await model.close()
    return run, entries, server.seen


@pytest.mark.parametrize("form", FORMATS, ids=repr)
def test_what_comes_back_instead_of_a_reply_is_tried_again_once_for_each_time(form):
    async def main():
        cases = [
            (name, answer, stream)
            for stream in (True, False)
            for name, answer in _whole_faults(form).items()
        ]
        done = await asyncio.gather(*(_run(form, a, stream=s) for _, a, s in cases))
        for (name, _, stream), (run, entries, seen) in zip(cases, done, strict=True):
            due, asked_s = FAULTS[name]
            due = (due, "stream_interrupted") if form is GEMINI and name in BARE else (due,)
            failed = [e for e in entries if isinstance(e.event, ev.ModelFailed)]
            asked = [e for e in entries if isinstance(e.event, ev.ModelRequested)]
            shown = (name, stream, [f.event.message for f in failed])
            assert [f.event.error_class.value for f in failed] in [[d] for d in due], shown
            assert [f.event.disposition for f in failed] == ["retry"], shown
            assert asked[1].at - failed[0].at >= asked_s * 1e6 - referee.WRITTEN_US, shown
            assert (run.status, run.text) == ("completed", "Believed."), shown
            assert len(seen) == len(asked) == 2, shown

    asyncio.run(main())


@pytest.mark.parametrize("form", FORMATS, ids=repr)
def test_an_error_in_the_middle_of_a_stream_is_a_failed_attempt_with_the_providers_class(form):
    async def main():
        events = form.events(text("Half of it, never believed."))
        broken = Answer(
            events=[*events[:3], form.error_event("Overloaded, please retry")],
            kind="text/event-stream",
        )
        run, entries, seen = await _run(form, broken, stream=True)
        failed = [e.event for e in entries if isinstance(e.event, ev.ModelFailed)]
        assert [(f.error_class.value, f.disposition) for f in failed] == [("overloaded", "retry")]
        assert (run.status, run.text, len(seen)) == ("completed", "Believed.", 2)

    asyncio.run(main())


@pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES, GEMINI], ids=repr)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_reply_that_does_not_say_what_it_used_is_charged_at_its_reservation(form, stream):
    async def main():
        answer = form.answer(Said(parts=(("text", "Believed."),), tokens=None), stream=stream)
        run, entries, seen = await _run(form, answer, stream=stream)
        [asked] = [e.event for e in entries if isinstance(e.event, ev.ModelRequested)]
        [done] = [e.event for e in entries if isinstance(e.event, ev.ModelCompleted)]
        assert (run.status, len(seen), done.measured) == ("completed", 1, False)
        assert run.usage.output_tokens == asked.reserved.output_tokens

    asyncio.run(main())
