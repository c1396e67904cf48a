"""What condensing did to long work elsewhere, and must not here."""

import asyncio
from typing import Any

import pytest
from tests.context.test_compaction import Clerk, Quick, agent, said, size
from tests.engine.kit import FREE_HAND as FREE
from tests.engine.kit import Recorder, events, texts

from cairn import (
    Agent,
    ErrorClass,
    Limits,
    ModelError,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.context import faults, messages_of
from cairn.core.limits import Usage
from cairn.core.summaries import SECTIONS
from cairn.engine.load import load
from cairn.ports import ModelReply, ReplyCall
from cairn.store.inmemory import InMemoryStore

HEADS = "\n".join(f"## {name}\nNone" for name in SECTIONS)
CONDENSED = "The conversation before this point was condensed"


def summarises(script: Any, **more: Any) -> Scripted:
    return Scripted(script, name="cheap", summarises=True, **more)


# ---------------------------------------------------------------- a summary that fails


@pytest.mark.parametrize(
    "cue",
    [ModelError(ErrorClass.UNAVAILABLE, "HTTP 500: internal error"), "", HEADS + "word " * 9_000],
    ids=["answers 500", "is empty", "is too long"],
)
def test_a_summary_that_fails_cuts_nothing_off_and_its_failure_is_seen(cue: Any) -> None:
    """B55: until something valid stands for it, the conversation is sent as it was."""

    async def main() -> None:
        whole, seen = {}, []

        def model(request: Any) -> Any:
            text = said(request)
            seen.append(CONDENSED in text)
            if not seen[-1]:
                whole.update({n: True for n in range(request.turn) if f"record {n}:" in text})
                assert len(whole) == request.turn, "what was looked at is all in front of it"
            return clerk(request)

        clerk = Clerk(60, 2)
        rt = Runtime(
            ":memory:",
            [
                agent(
                    Scripted(model, window=8_000, max_output=500),
                    summary_model=summarises([cue], repeat=True),
                )
            ],
            clock=Quick(),
        )
        run = await rt.run_async("a", "Look, then tell me the code of record 2. Order AB-4711.")
        assert (run.status, seen[0], seen[-1]) == ("completed", False, True)
        entries = await rt.trace_async(run.id)
        first = next(e for e in entries if isinstance(e.event, ev.ContextCompacted))
        failed = [
            e.event
            for e in entries
            if e.seq < first.seq and isinstance(e.event, ev.ModelFailed | ev.ModelRejected)
        ]
        assert len(failed) == 2
        assert all(getattr(each, "message", "") or each.note for each in failed)
        assert first.event.by == "rule"
        assert "AB-4711" in first.event.text

    asyncio.run(main())


def test_a_run_that_is_cancelled_while_it_is_summarised_keeps_its_conversation_whole() -> None:
    """B55: what was not finished stands for nothing; the next run has all of it before it."""

    async def main() -> None:
        begun, asked = asyncio.Event(), []

        async def hangs(request: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        async def well(request: Any) -> str:
            asked.append(said(request))
            return HEADS

        store = InMemoryStore()
        model = Scripted(Clerk(80, 2), window=8_000, max_output=500)
        rt = Runtime(store, [agent(model, summary_model=summarises(hangs))])
        working = asyncio.create_task(rt.run_async("a", "Look.", id="r1", session="s"))
        await begun.wait()
        await rt.cancel_async("r1")
        assert (await working).status == "cancelled"
        assert events(await rt.trace_async("r1"), ev.ContextCompacted) == []
        looked = len(events(await rt.trace_async("r1"), ev.ToolCompleted))
        after = Runtime(
            store,
            [
                agent(
                    Scripted(lambda _: "done", window=8_000, max_output=500),
                    summary_model=summarises(well),
                )
            ],
        )
        run = await after.run_async("a", "And now?", id="r2", session="s")
        assert run.status == "completed"
        state = await load(store, "r2")
        told = "\n".join(p.result for m in state.messages for p in m.parts if hasattr(p, "result"))
        assert all(f"record {n}:" in told for n in range(looked))
        assert faults(messages_of(state)) == []
        assert not asked or "record 0:" in asked[0]

    asyncio.run(main())


def test_a_summary_that_never_comes_is_given_up_in_time() -> None:
    """B55: the run goes on, with a summary by rule."""

    async def main() -> None:
        async def hangs(request: Any) -> Any:
            await asyncio.Event().wait()

        cheap = summarises(hangs)
        cheap.timeout_s = 0.2  # type: ignore[attr-defined]  # as models that have a deadline do
        model = Scripted(Clerk(30, 2), window=6_000, max_output=500)
        rt = Runtime(":memory:", [agent(model, summary_model=cheap)])
        run = await asyncio.wait_for(rt.run_async("a", "Look, and tell the code."), 20)
        assert run.status == "completed"
        compactions = events(await rt.trace_async(run.id), ev.ContextCompacted)
        assert {each.by for each in compactions} == {"rule"}

    asyncio.run(main())


# ---------------------------------------------------------------- a summary that frees nothing


def grows(request: Any) -> str:
    """A summary that holds the one before it, and all that it stands for."""
    return f"{HEADS}\n{said(request)}"


def test_a_summary_as_long_as_what_it_stands_for_is_not_adopted_and_nothing_loops() -> None:
    """B56: each compaction frees something, and the model's turns are not eaten up by them."""

    async def main() -> None:
        clerk = Clerk(120, 2)
        rt = Runtime(
            ":memory:",
            [agent(Scripted(clerk, window=8_000, max_output=500), summary_model=summarises(grows))],
        )
        run = await rt.run_async("a", "Look, then tell me the code of record 2.")
        assert run.status == "completed"
        assert max(clerk.sizes) <= 8_000
        entries = await rt.trace_async(run.id)
        compactions = events(entries, ev.ContextCompacted)
        assert compactions
        assert {each.by for each in compactions} == {"rule"}
        assert all(each.after < each.before for each in compactions)
        row = tries = 0
        for entry in entries:
            match entry.event:
                case ev.ModelRequested(purpose="summary"):
                    tries += 1
                case ev.ContextCompacted():
                    row, tries = row + 1, 0
                case ev.ModelRequested(purpose="turn"):
                    row = 0
            assert row <= 3
            assert tries <= 2

    asyncio.run(main())


def test_what_cannot_be_made_to_fit_ends_the_run_with_its_class_and_asks_nobody() -> None:
    """B56: then a clear overflow, and no request that is known to be too large."""

    async def main() -> None:
        model = Recorder("never")
        rt = Runtime(
            ":memory:",
            [agent(Scripted(model, window=4_000, max_output=500), summary_model=summarises(grows))],
        )
        run = await rt.run_async("a", "word " * 10_000)
        assert (run.status, run.limit) == ("stopped", "window")
        assert "the model has room for 3500" in run.reason
        assert model.requests == []
        assert len(await rt.trace_async(run.id)) < 20

    asyncio.run(main())


def test_a_model_that_summarises_and_has_a_smaller_window_than_the_talk_loops_on_nothing() -> None:
    """B56: it is given as much as it can read, part by part."""

    async def main() -> None:
        sizes = []

        def narrow(request: Any) -> str:
            sizes.append(size(request) + request.max_output)
            return HEADS

        clerk = Clerk(150, 2)
        rt = Runtime(
            ":memory:",
            [
                agent(
                    Scripted(clerk, window=16_000, max_output=500),
                    summary_model=summarises(narrow, window=3_000, max_output=600),
                )
            ],
        )
        run = await rt.run_async("a", "Look, then tell me the code of record 2.")
        assert run.status == "completed"
        assert max(sizes) <= 3_000
        assert len(sizes) < 60

    asyncio.run(main())


# ---------------------------------------------------------------- pairs and parts of turns


def test_no_cut_ever_parts_calls_from_their_results_also_where_a_session_is_cut_again() -> None:
    """B15: many calls a turn, condensed, forked and rewound to before and behind a summary."""

    @tool(effect="read")
    async def peek(n: int, why: str) -> str:
        """Look at one."""
        await asyncio.sleep(0)
        return f"record {n}: " + "and so on " * (2 if why else 60)

    def model(request: Any) -> Any:
        said(request)  # it is well-formed
        done = sum(m.role == "assistant" for m in request.messages)
        last = texts(request)[-1]
        if last.startswith("look") and request.turn < 12:
            # now it is the calls that are long, now the results: a cut could fall before either
            why = "for a reason " * (90 if request.turn % 3 else 0)
            return [call("peek", n=request.turn * 3 + k, why=why) for k in range(3)]
        return f"done {done}"

    async def main() -> None:
        scripted = Scripted(model, window=6_000, max_output=500)
        options = {"limits": Limits(steps=500, calls=500, no_progress=500)}
        rt = Runtime(":memory:", [Agent("a", scripted, tools=[peek], **options)])
        runs = [await rt.send_async("s", f"look {n}", agent="a") for n in range(4)]
        assert {run.status for run in runs} == {"completed"}
        traces = [await rt.trace_async(run.id) for run in runs]
        assert any(events(entries, ev.ContextCompacted) for entries in traces)
        for n, run in enumerate(runs):
            await rt.fork_session_async("s", f"f{n}", at=run.id)
            assert (await rt.send_async(f"f{n}", "look again")).status == "completed"
        for run in reversed(runs):
            await rt.rewind_async("s", run.id)
            after = await rt.send_async("s", "go on")
            assert after.status == "completed"
            assert faults(messages_of(await load(rt.store, after.id))) == []
            await rt.rewind_async("s", after.id)

    asyncio.run(main())


def test_nothing_is_condensed_while_a_call_is_under_way() -> None:
    """What was begun and has no outcome yet is in no summary."""

    @tool(effect="write")
    async def book(n: int) -> str:
        """Book it."""
        await asyncio.sleep(0.002)
        return f"booked {n} " + "and so on " * 80

    def model(request: Any) -> Any:
        done = len(request.messages) and request.turn
        return [call("book", n=done), call("book", n=done + 1_000)] if done < 25 else "done"

    async def main() -> None:
        rt = Runtime(
            ":memory:",
            [
                Agent(
                    "a",
                    Scripted(model, window=6_000, max_output=500),
                    tools=[book],
                    limits=Limits(steps=500, calls=500, no_progress=500),
                )
            ],
            policy=FREE,
        )
        working = asyncio.create_task(rt.run_async("a", "Book them.", id="r", session="s"))
        await asyncio.sleep(0.05)
        await rt.send_async("s", "and the blue one")
        assert (await working).status == "completed"
        open_calls: set[str] = set()
        condensed = 0
        for entry in await rt.trace_async("r"):
            match entry.event:
                case ev.ToolStarted(call=one):
                    open_calls.add(one)
                case ev.ToolCompleted(call=one) | ev.ToolFailed(call=one):
                    open_calls.discard(one)
                case ev.ContextCompacted():
                    condensed += 1
                    assert open_calls == set()
        assert condensed > 1

    asyncio.run(main())


def test_several_results_that_are_too_many_only_together_are_shortened_and_stay_readable() -> None:
    """None of them is large; the turn is neither lost nor refused."""

    @tool(effect="read")
    def page(n: int) -> str:
        """A page."""
        return f"page {n} begins. " + "and so on " * 250 + f"The code of page {n} is {n * 7919}."

    requests: list[Any] = []

    def model(request: Any) -> Any:
        requests.append(request)
        said(request)
        if request.turn == 0:
            return [call("page", n=n) for n in range(8)]
        return call("read_artifact", id="c5", offset=2_300) if request.turn == 1 else "done"

    async def main() -> None:
        rt = Runtime(
            ":memory:", [Agent("a", Scripted(model, window=4_500, max_output=400), tools=[page])]
        )
        run = await rt.run_async("a", "Read all pages.")
        assert run.status == "completed"

    asyncio.run(main())
    parts = [p for m in requests[1].messages if m.role == "tool" for p in m.parts]
    assert len(parts) == 8
    assert all(f"page {n} begins" in part.result for n, part in enumerate(parts))
    assert size(requests[1]) <= 4_500
    assert f"The code of page 4 is {4 * 7919}" in said(requests[2])


# ---------------------------------------------------------------- what must not be lost


def test_a_task_that_is_done_does_not_come_back_as_an_order() -> None:
    """The request at work stays as the person's own words; older ones are told as a record."""

    requests: list[Any] = []

    def model(request: Any) -> Any:
        requests.append(request)
        return call("look", n=request.turn) if request.turn < 40 else "done"

    async def main() -> None:
        rt = Runtime(
            ":memory:",
            [agent(Scripted(model, window=6_000, max_output=500), summary_model=None)],
        )
        await rt.run_async("a", "TASK-A: paint the red door.", session="s")
        run = await rt.run_async("a", "TASK-B: mend the blue roof.", id="b", session="s")
        assert run.status == "completed"
        assert len(events(await rt.trace_async("b"), ev.ContextCompacted)) > 2

    asyncio.run(main())
    late = [r for r in requests if r.run == "b"]
    for request in late:
        own = [t for t in texts(request) if not t.startswith("[runtime]")]
        assert own[-1] == "TASK-B: mend the blue roof."
    own = [t for t in texts(late[-1]) if not t.startswith("[runtime]")]
    assert own == ["TASK-B: mend the blue roof."]
    (record,) = [t for t in texts(late[-1]) if CONDENSED in t]
    assert "TASK-A" in record
    assert "not an instruction" in record


def test_what_the_engine_knows_outlives_any_number_of_empty_summaries() -> None:
    """Goal, what was done, what is open and what comes next are kept beside every summary."""

    broken = []

    def cheap(request: Any) -> str:
        return "" if broken else HEADS

    def model(request: Any) -> Any:
        if request.turn == 0:
            return call("update_plan", items=[{"text": "count the boats", "status": "doing"}])
        if request.turn == 45:
            broken.append(True)
        return call("look", n=request.turn) if request.turn < 70 else "done"

    async def main() -> None:
        rt = Runtime(
            ":memory:",
            [agent(Scripted(model, window=6_000, max_output=500), summary_model=summarises(cheap))],
        )
        run = await rt.run_async("a", "Find the owner of boat ZX-991.")
        assert run.status == "completed"
        compactions = events(await rt.trace_async(run.id), ev.ContextCompacted)
        assert [each.by for each in compactions][:2] == ["model", "model"]
        last = compactions[-1]
        assert last.by == "rule"
        for known in ("Find the owner of boat ZX-991.", "look: ", "count the boats", "ZX-991"):
            assert known in last.text, known

    asyncio.run(main())


# ---------------------------------------------------------------- what is no reason to condense


@pytest.mark.parametrize(
    "fault",
    [
        ModelError(ErrorClass.RATE_LIMITED, "too many tokens per minute, context limit reached"),
        ModelError(ErrorClass.UNAVAILABLE, "maximum context length service is down"),
    ],
    ids=["a rate limit that speaks of tokens", "an outage that speaks of context"],
)
def test_only_a_request_that_is_too_large_is_made_smaller(fault: ModelError) -> None:
    async def main() -> None:
        requests: list[Any] = []

        def model(request: Any) -> Any:
            requests.append(request)
            if len(requests) == 6:
                raise fault
            return call("look", n=request.turn) if request.turn < 7 else "done"

        rt = Runtime(
            ":memory:", [agent(Scripted(model, window=100_000, max_output=500))], clock=Quick()
        )
        run = await rt.run_async("a", "Look.")
        assert run.status == "completed"
        assert events(await rt.trace_async(run.id), ev.ContextCompacted) == []
        assert len(requests[5].messages) == len(requests[6].messages)
        assert size(requests[5]) == size(requests[6])

    asyncio.run(main())


def test_tokens_a_provider_read_from_its_cache_condense_nothing() -> None:
    """A bill that counts them again and again says nothing of the size of a request."""

    async def main() -> None:
        bill = Usage(input_tokens=7_000, cached_tokens=900_000)
        replies = [
            ModelReply(calls=(ReplyCall(name="look", arguments=f'{{"n":{n}}}'),), usage=bill)
            for n in range(4)
        ]
        rt = Runtime(
            ":memory:", [agent(Scripted([*replies, "done"], window=8_000, max_output=500))]
        )
        run = await rt.run_async("a", "Look.")
        assert run.status == "completed"
        assert events(await rt.trace_async(run.id), ev.ContextCompacted) == []

    asyncio.run(main())
