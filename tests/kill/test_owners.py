"""Who may drive: two processes at once, a dead owner, a frozen one, children that outlive it."""

import asyncio
import signal
import time

import pytest

from cairn import Refused, Runtime
from cairn.engine.clock import SystemClock

pytestmark = pytest.mark.kill


class Later(SystemClock):
    """The same clock, some seconds on."""

    def __init__(self, seconds: float) -> None:
        self.ahead_us = int(seconds * 1e6)

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


def wait_for(ready) -> None:
    for _ in range(4_000):
        if ready():
            return
        time.sleep(0.005)
    raise AssertionError("it never became so")


def held_in(bench, script: str, tool: str, **more):
    """A process that waits in the middle of a tool until the gate is there."""
    gate = bench.folder / "gate"
    process = bench.start(script, hold=str(gate), hold_in=tool, **more)
    wait_for(lambda: tool in bench.counts())
    return process, gate


def test_of_two_processes_one_drives_and_the_other_follows(bench):
    driver, gate = held_in(bench, "once", "post")
    followers = [bench.start("once") for _ in range(2)]
    gate.touch()
    runs = [p.result() for p in (driver, *followers)]
    assert {r["status"] for r in runs} == {"completed"}
    assert {r["text"] for r in runs} == {"done"}
    assert bench.counts() == {"m": 3, "fast": 1, "post": 1}


def test_many_processes_that_start_the_same_run_at_once_make_one(bench):
    """B12: the same create request to several processes at the same moment."""
    started = [bench.start("once") for _ in range(4)]
    runs = [p.result() for p in started]
    assert {r["status"] for r in runs} == {"completed"}
    assert bench.counts() == {"m": 3, "fast": 1, "post": 1}


def test_an_approval_from_another_process_runs_its_call_beside_the_one_at_work(bench):
    """B02: the outcome of the tool that was at work meanwhile is kept, and nothing is repeated."""
    driver, gate = held_in(bench, "beside", "post")
    bench.run("beside", verb="approve")
    wait_for(lambda: "refund" in bench.counts())
    gate.touch()
    run = driver.result()
    assert run["status"] == "completed"
    assert [line.split()[0] for line in bench.lines] == ["m", "post", "refund", "m"]


def test_a_cancel_from_another_process_stops_the_tool_at_work(bench):
    """B07: cancel returns when the run has ended, not when the wish was written down."""
    driver, gate = held_in(bench, "once", "post")
    run = bench.run("once", verb="cancel")
    assert (run["status"], run["pending"]) == ("cancelled", ["r/c2"])
    assert driver.result()["status"] == "cancelled"
    gate.touch()
    assert bench.counts() == {"m": 2, "fast": 1, "post": 1}


def test_an_interrupt_from_the_keyboard_lets_what_is_in_flight_land(bench):
    """Ctrl-C leaves no doubt behind: the tool ends, nothing new starts, the run can go on."""
    process, gate = held_in(bench, "once", "post", verb="sync")
    process.signal(signal.SIGINT)
    time.sleep(0.1)
    gate.touch()
    assert process.result() == {"status": "interrupted"}
    assert bench.counts() == {"m": 2, "fast": 1, "post": 1}
    run = bench.run("once")
    assert run["status"] == "completed"
    assert bench.counts() == {"m": 3, "fast": 1, "post": 1}


def test_a_second_interrupt_ends_it_at_once_and_leaves_the_effect_unknown(bench):
    process, _ = held_in(bench, "once", "post", verb="sync")
    for _ in range(2):
        process.signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.result() == {"status": "interrupted"}
    run = bench.run("once")
    assert (run["status"], run["reason"]) == ("waiting", "in_doubt")
    assert bench.counts()["post"] == 1


def test_a_follower_takes_over_as_soon_as_the_driver_is_killed(bench):
    """The owner's lock says that it is gone: nobody waits for a lease to expire."""
    driver, gate = held_in(bench, "read", "look")
    follower = bench.start("read")
    driver.kill()
    wait_for(lambda: bench.counts()["look"] == 2)
    gate.touch()
    follower = bench.run("read") if follower.wait() else follower.result()
    assert follower["status"] == "completed"
    assert bench.counts() == {"m": 3, "fast": 1, "look": 2}


def test_a_frozen_owner_is_fenced_and_its_finished_effect_arrives_late(bench):
    """B08: it stops past its lease, another takes the run, it wakes up and finishes."""
    frozen, gate = held_in(bench, "once", "post", expiry=0.6)
    frozen.signal(signal.SIGSTOP)
    time.sleep(0.8)
    run = bench.run("once", expiry=0.6)
    assert (run["status"], run["reason"]) == ("waiting", "in_doubt")

    async def too_early():
        async with Runtime(bench.store) as rt:
            with pytest.raises(Refused, match="may still be at work"):
                await rt.resolve_async("r/c2", happened=False)

    asyncio.run(too_early())
    gate.touch()
    frozen.signal(signal.SIGCONT)
    assert frozen.wait() == 0

    async def look():
        async with Runtime(bench.store) as rt:
            return [e.event.NAME for e in await rt.trace_async("r")]

    wait_for(lambda: "tool.late" in asyncio.run(look()))
    run = bench.run("once", expiry=0.6)
    assert (run["status"], run["text"]) == ("completed", "done")
    assert bench.counts() == {"m": 3, "fast": 1, "post": 1}
    assert asyncio.run(look()).count("tool.late") == 1


def test_a_frozen_owner_of_a_read_is_replaced_and_writes_nothing_over(bench):
    frozen, gate = held_in(bench, "read", "look", expiry=0.6)
    frozen.signal(signal.SIGSTOP)
    time.sleep(0.8)
    gate.touch()
    run = bench.run("read", expiry=0.6)
    assert run["status"] == "completed"
    frozen.signal(signal.SIGCONT)
    late = frozen.result()
    assert (late["status"], late["text"]) == ("completed", "done")

    async def look():
        async with Runtime(bench.store) as rt:
            assert await rt.store.verify("r") > 0
            return [e.event.NAME for e in await rt.trace_async("r")]

    assert asyncio.run(look()).count("run.completed") == 1


def test_a_child_that_outlives_its_killed_worker_keeps_the_verdict_shut(bench):
    """What `ctx.run` started may still act: "it did not happen" is refused until the grace ends."""
    worker = bench.start("child", child_s=8)
    wait_for(lambda: "begun" in bench.counts())
    worker.kill()
    run = bench.run("child")
    assert (run["status"], run["reason"]) == ("waiting", "in_doubt")

    async def say(ahead: float = 0.0):
        async with Runtime(bench.store, clock=Later(ahead)) as rt:
            await rt.resolve_async("r/c1", happened=False)

    with pytest.raises(Refused, match="may still be at work"):
        asyncio.run(say())
    with pytest.raises(Refused, match="may still be at work"):
        asyncio.run(say(80.0))
    asyncio.run(say(92.0))


def test_a_child_that_is_gone_when_the_run_is_taken_over_opens_the_verdict_at_once(bench):
    worker = bench.start("child", child_s=1)
    wait_for(lambda: "begun" in bench.counts())
    worker.kill()
    wait_for(lambda: "spawned" in bench.counts())
    time.sleep(0.1)
    run = bench.run("child")
    assert (run["status"], run["reason"]) == ("waiting", "in_doubt")

    async def say():
        async with Runtime(bench.store) as rt:
            await rt.resolve_async("r/c1", happened=True, result="seen")

    asyncio.run(say())
    assert bench.run("child")["status"] == "completed"
    assert bench.counts()["begun"] == 1
