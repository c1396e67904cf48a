"""Streams taken up again: from a position what is missing, and no wait looks like an end."""

import asyncio
from contextlib import aclosing

import pytest
from tests.engine.kit import FREE_HAND, Ledger, names, runtime

from cairn import Entry, UnknownRun, call, tool
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.state import waits
from cairn.engine.load import load
from cairn.store.inmemory import InMemoryStore


async def gather(stream) -> list[Entry]:
    return [what async for what in stream if isinstance(what, Entry)]


async def read_some(stream, count: int) -> list[Entry]:
    """The next `count` events; then the connection drops."""
    found: list[Entry] = []
    async with aclosing(stream):
        if count:
            async for what in stream:
                if isinstance(what, Entry):
                    found.append(what)
                if len(found) == count:
                    break
    return found


@tool(effect="read")
async def look(n: int) -> str:
    return f"seen {n}"


def looker(**options):
    return runtime([*(call("look", n=n) for n in range(3)), "done"], [look], **options)


def test_a_stream_that_drops_twice_goes_on_with_exactly_the_events_that_are_missing():
    """B71: the second drop comes before any event, and the position is kept all the same."""

    async def main():
        rt = looker()
        first = await read_some(rt.stream_async("a", "task", id="r"), 3)
        again = await read_some(rt.watch_async("r", after=first[-1].seq), 0)
        rest = await gather(rt.watch_async("r", after=first[-1].seq))
        assert (len(first), again) == (3, [])
        assert [*first, *rest] == await rt.trace_async("r")
        assert rest[-1].event.NAME == "run.completed"

    asyncio.run(main())


def test_a_stream_can_be_taken_up_after_each_event_while_the_run_moves_and_when_it_is_over():
    """B71: whatever the position, what comes is what is behind it, once and in order."""

    async def main():
        whole = await gather(looker().stream_async("a", "task", id="r"))
        for cut in range(len(whole) + 1):
            rt = looker()
            await rt.enqueue_async("a", "task", id="r")
            seen = await read_some(rt.watch_async("r"), cut)
            seen += await gather(rt.watch_async("r", after=cut))
            trace = await rt.trace_async("r")
            # what was cut off in the middle was begun again: the journal says so, the stream too
            assert seen == trace
            assert [e.seq for e in seen] == list(range(1, len(trace) + 1))
            assert await gather(rt.watch_async("r", after=cut)) == trace[cut:], "now it is over"

    asyncio.run(main())


def test_a_position_of_one_run_brings_nothing_of_another():
    """B71: a number that was read in one run is a number of the other run's own events there."""

    async def main():
        store = InMemoryStore()
        rt = looker(store=store)
        one = await gather(rt.stream_async("a", "one task", id="r-1"))
        two = await gather(rt.stream_async("a", "another", id="r-2"))
        rest = await gather(rt.watch_async("r-2", after=one[3].seq))
        assert rest == two[4:]
        with pytest.raises(UnknownRun, match="no run 'r-3'"):
            await gather(rt.watch_async("r-3", after=one[3].seq))

    asyncio.run(main())


def test_following_what_others_drive_goes_on_from_a_position_too():
    """B71 for who only looks: `follow` drives nothing and has the same positions."""

    async def main():
        store = InMemoryStore()
        rt = looker(store=store)
        whole = await gather(rt.stream_async("a", "task", id="r"))
        client = looker(store=store.beside()).client
        for cut in range(len(whole) + 1):
            assert await gather(client.follow("r", after=cut)) == whole[cut:]

    asyncio.run(main())


@tool(effect="write", conflict_key="n")
async def pay(n: int) -> str:
    return f"paid {n}"


@tool(effect="write")
async def doubtful() -> str:
    raise TimeoutError("gateway")


WAITS = {
    "approvals": ([call("pay", n=1), call("pay", n=2)], "approval", {"r/1": "c1", "r/2": "c2"}),
    "question": (call("ask_user", question="Which?"), "input", {"r/1": "c1"}),
    "unknown": (call("doubtful"), "in_doubt", {"r/c1": "c1"}),
}
REQUESTS = {"approval.requested", "input.requested", "tool.unknown"}


@pytest.mark.parametrize("case", WAITS)
def test_a_stream_that_ends_over_open_calls_says_waiting_and_names_each(case):
    """B72: no stream of a run that waits for people looks like that of one that is finished."""
    line, reason, open_calls = WAITS[case]

    async def main():
        policy = FREE_HAND if case == "unknown" else DEFAULT_POLICY
        rt = runtime([line, "done"], [pay, doubtful], policy=policy)
        seen = await gather(rt.stream_async("a", "task", id="r"))
        assert not [name for name in names(seen) if name in {"run.completed", "run.failed"}]
        last = seen[-len(open_calls) :]
        assert {e.event.NAME for e in last} <= REQUESTS, names(seen)
        assert [e.event.call for e in last] == list(open_calls.values())
        run = await rt.get_async("r")
        assert (run.status, run.reason, run.ok) == ("waiting", reason, False)
        assert {item.id: item.call for item in run.pending} == open_calls
        assert waits(await load(rt.store, "r")) == {reason}
        again = await gather(rt.stream_async("a", "task", id="r"))
        assert again == seen, "asked once more it waits once more"

    asyncio.run(main())


def test_a_decision_continues_the_same_run_and_the_stream_behind_its_last_event():
    """B72: of two open calls one is decided: it still waits, for the other one only."""

    async def main():
        ledger = Ledger()

        @tool(effect="write", conflict_key="n")
        async def pay(n: int) -> str:
            return ledger.add(f"pay {n}")

        script = [[call("pay", n=1), call("pay", n=2)], "done"]
        rt = runtime(script, [pay], policy=DEFAULT_POLICY)
        seen = await gather(rt.stream_async("a", "task", id="r"))
        for n, still in ((1, ["r/2"]), (2, [])):
            await rt.approve_async(f"r/{n}")
            seen += await gather(rt.watch_async("r", after=seen[-1].seq))
            assert ledger.lines == [f"pay {i}" for i in range(1, n + 1)]
            assert [item.id for item in (await rt.get_async("r")).pending] == still
            assert ("run.completed" in names(seen)) == (not still)
        assert seen == await rt.trace_async("r")
        assert len(await rt.runs_async()) == 1

    asyncio.run(main())
