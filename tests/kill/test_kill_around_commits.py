"""SIGKILL before and after every single write: nothing that had finished is repeated."""

import asyncio
import contextlib
import os
import random
import signal
import time

import pytest

from cairn import Runtime
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.evolve import fold
from cairn.core.state import RunState

pytestmark = pytest.mark.kill

LAST_APPEND = 9
"""How many appends the script takes at least, over all the processes that drive it."""
EVERYTHING = {"look", "pay", "fast", "post", "refund", "send"}


def go_on(bench, die: dict | None = None) -> bool:
    """Drive the run to its end, deciding as the world is; whether a process died on the way."""
    died = False
    more = {"die": die, "counter": str(bench.folder / "counter")} if die else {}
    for _ in range(12):
        started = bench.start("mixed", **more)
        if started.wait() == -signal.SIGKILL:
            died = True
            continue
        run = started.result()
        if run["status"] == "completed":
            return died
        assert run["status"] == "waiting", run
        died = bench.start("mixed", verb="settle", **more).wait() == -signal.SIGKILL or died
    raise AssertionError("it never completed")


def check(bench, kills: int = 1) -> list:
    async def look():
        async with Runtime(bench.store) as rt:
            assert await rt.store.verify("r") > 0
            return await rt.trace_async("r")

    trace = asyncio.run(look())
    counts = bench.counts()
    assert set(counts) - {"m", "probe"} == EVERYTHING
    assert counts["post"] == counts["refund"] == 1  # they run once, whatever happens
    assert counts["send"] == 1  # its probe knows
    assert max(counts[name] for name in EVERYTHING) <= 1 + kills
    keys = {line for line in bench.lines if line.startswith("pay")}
    assert len(keys) == 1
    finished: set[str] = set()
    for entry in trace:
        if isinstance(entry.event, ev.ToolStarted):
            assert entry.event.call not in finished
        if isinstance(entry.event, ev.ToolCompleted):
            finished.add(entry.event.call)
    state = fold(RunState(run="r"), trace)
    assert (state.status.value, state.answer_text) == ("completed", "done")
    assert faults(state.messages) == []
    assert not [e for e in trace if isinstance(e.event, ev.ErrorRaised)]
    return trace


def test_without_a_kill_everything_happens_once(bench):
    assert not go_on(bench)
    trace = check(bench)
    assert bench.counts() == {"m": 3, **dict.fromkeys(EVERYTHING, 1)}
    attempts = [e.event.attempt for e in trace if isinstance(e.event, ev.ToolStarted)]
    assert attempts == [1] * 6


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("n", range(1, LAST_APPEND + 1))
def test_a_kill_around_the_nth_append_repeats_no_finished_effect(bench, n, side):
    """B02, B03, B05: parallel calls, an approval, one tool of each recovery."""
    assert go_on(bench, {"append": n, "side": side})
    check(bench)


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_around_a_decision_loses_it_whole_or_keeps_it_whole(bench, side):
    """An approval or verdict is there after the kill, or it is not; the run can go on."""
    assert go_on(bench, {"submit": 1, "side": side})
    check(bench)


@pytest.mark.parametrize("seed", range(int(os.environ.get("CAIRN_KILL_SEEDS", "1"))))
def test_kills_at_any_moment_of_several_processes_repeat_no_finished_effect(bench, seed):
    """Two processes drive, each is killed after a random while, a third decides."""
    chance = random.Random(seed)
    for _ in range(4):
        pair = [bench.start("mixed") for _ in range(2)]
        for process in pair:
            time.sleep(chance.uniform(0.0, 0.12))
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                process.signal(signal.SIGKILL)
        for process in pair:
            process.wait()
        bench.start("mixed", verb="settle").wait()
    go_on(bench)
    check(bench, kills=8)
