"""Pause, resume and cancel: at every wait, with work in flight, and whoever is alive."""

import asyncio
import threading

import pytest
from tests.engine.kit import (
    FREE_HAND,
    Ledger,
    Recorder,
    TurnedClock,
    events,
    names,
    results,
    runtime,
    until,
)

from cairn import Agent, Context, ErrorClass, ModelError, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import IllegalTransition
from cairn.store.inmemory import InMemoryStore


class Bench:
    """A run with something at work that ends when the gate opens."""

    def __init__(self, effect="write", sync=False, timeout=60.0, script=None):
        self.ledger, self.gate = Ledger(), threading.Event()
        self.store = InMemoryStore()
        if sync:

            @tool(effect=effect, timeout=timeout)
            def work(n: int = 1) -> str:
                self.ledger.add(f"began {n}")
                self.gate.wait(20)
                return self.ledger.add(f"ended {n}")
        else:

            @tool(effect=effect, timeout=timeout)
            async def work(n: int = 1) -> str:
                self.ledger.add(f"began {n}")
                await until(self.gate.is_set, 10_000)
                return self.ledger.add(f"ended {n}")

        self.work = work
        self.model = Recorder(*(script or (call("work"), "done")))
        self.rt = runtime(self.model, [work], store=self.store)
        self.other = Runtime(self.store.beside())

    async def begin(self):
        self.driving = asyncio.create_task(self.rt.run_async("a", "task", id="r"))
        await until(lambda: self.ledger.lines)


# ---------------------------------------------------------------- pause and resume


def test_a_pause_waits_for_what_is_in_flight_and_starts_nothing_new():
    async def main():
        bench = Bench()
        await bench.begin()
        paused = await bench.other.pause_async("r", "lunch")
        assert paused.status == "paused"
        bench.gate.set()
        run = await bench.driving
        assert run.status == "paused"
        assert bench.ledger.lines == ["began 1", "ended 1"]
        assert len(bench.model.requests) == 1
        assert (await bench.rt.run_async("a", "task", id="r")).status == "paused"
        run = await bench.rt.resume_async("r")
        assert run.status == "completed"
        assert results(bench.model.last) == {"c1": "ended 1"}
        assert bench.ledger.lines == ["began 1", "ended 1"]

    asyncio.run(main())


def test_a_pause_while_the_model_thinks_keeps_its_reply_and_starts_no_call():
    async def main():
        ledger, asked, gate = Ledger(), asyncio.Event(), asyncio.Event()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        async def thinking(request):
            if request.turn == 0:
                asked.set()
                await gate.wait()
                return call("pay")
            return "done"

        store = InMemoryStore()
        rt = runtime(thinking, [pay], store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await asked.wait()
        await Runtime(store.beside()).pause_async("r")
        gate.set()
        assert (await driving).status == "paused"
        assert ledger.lines == []
        assert names(await rt.trace_async("r"))[-1] == "model.completed"
        assert (await rt.resume_async("r")).status == "completed"
        assert ledger.lines == ["pay"]

    asyncio.run(main())


def test_a_paused_run_takes_decisions_and_acts_on_them_after_the_resume():
    """Resume returns to what the journal then says."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        rt = runtime([call("pay"), "done"], [pay], policy=DEFAULT_POLICY)
        await rt.run_async("a", "task", id="r")
        assert (await rt.pause_async("r")).status == "paused"
        await rt.pause_async("r")
        await rt.client.approve("r/1")
        assert (await rt.run_async("a", "task", id="r")).status == "paused"
        assert ledger.lines == []
        assert (await rt.resume_async("r")).status == "completed"
        assert ledger.lines == ["pay"]
        assert names(await rt.trace_async("r")).count("run.pause_requested") == 1

    asyncio.run(main())


def test_resuming_what_is_not_paused_only_drives_it():
    async def main():
        rt = runtime(["done"])
        await rt.enqueue_async("a", "t", id="r")
        assert (await rt.resume_async("r")).status == "completed"
        assert (await rt.resume_async("r")).status == "completed"
        assert "run.resumed" not in names(await rt.trace_async("r"))

    asyncio.run(main())


def test_a_queued_run_can_be_paused_before_it_began():
    async def main():
        model = Recorder("done")
        rt = runtime(model)
        await rt.enqueue_async("a", "t", id="r")
        await rt.pause_async("r")
        assert (await rt.drive_async("r")).status == "paused"
        assert model.requests == []
        assert (await rt.resume_async("r")).status == "completed"

    asyncio.run(main())


def test_an_ended_run_can_be_neither_paused_nor_cancelled():
    async def main():
        rt = runtime(["done"])
        await rt.run_async("a", "task", id="r")
        with pytest.raises(IllegalTransition, match="can no longer pause"):
            await rt.pause_async("r")
        assert (await rt.cancel_async("r")).status == "completed"
        assert names(await rt.trace_async("r"))[-1] == "run.completed"

    asyncio.run(main())


def test_why_a_run_has_ended_is_said_in_one_way_to_whoever_comes_too_late():
    async def main():
        rt = runtime([call("look"), call("look")])
        run = await rt.run_async("a", "task", id="r", limits={"steps": 1})
        assert run.status == "stopped"
        with pytest.raises(IllegalTransition, match=r"run r is stopped \(.*steps.*can no longer"):
            await rt.pause_async("r")

    asyncio.run(main())


# ---------------------------------------------------------------- cancel at every wait


async def waiting_for(kind: str, store: InMemoryStore) -> Runtime:
    """A runtime whose run `r` waits for the given reason."""
    ledger = Ledger()

    @tool(effect="write")
    async def pay() -> str:
        if kind == "in_doubt":
            raise TimeoutError
        return ledger.add("pay")

    first = call("ask_user", question="Which?") if kind == "input" else call("pay")
    policy = DEFAULT_POLICY if kind == "approval" else FREE_HAND
    rt = runtime([first, "done"], [pay], store=store, policy=policy)
    if kind == "queued":
        await rt.enqueue_async("a", "t", id="r")
        return rt
    await rt.run_async("a", "t", id="r")
    if kind == "paused":
        rt = runtime([call("pay"), "done"], [pay], store=store, policy=DEFAULT_POLICY)
        await rt.run_async("a", "t", id="p")
    return rt


@pytest.mark.parametrize("kind", ["queued", "approval", "input", "in_doubt"])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_waits_is_cancelled_by_anybody_at_once(kind, paused, known):
    """B07: it ends in a settled state whoever is alive; a process without the agent can do it."""

    async def main():
        store = InMemoryStore()
        rt = await waiting_for(kind, store)
        if paused:
            await rt.pause_async("r")
        canceller = rt if known else Runtime(store.beside())
        run = await canceller.cancel_async("r", "not needed", by="ann")
        assert (run.status, run.reason) == ("cancelled", "not needed")
        assert names(await rt.trace_async("r"))[-1] == "run.cancelled"
        assert not (await store.info("r")).leased
        kinds = [p.kind for p in run.pending]
        assert kinds == (["in_doubt"] if kind == "in_doubt" else [])
        again = await rt.run_async("a", "t", id="r")
        assert again.status == "cancelled"

    asyncio.run(main())


# ---------------------------------------------------------------- cancel with work in flight


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_cancel_stops_the_tool_that_is_at_work_and_says_that_its_effect_is_unknown(
    sync, elsewhere
):
    async def main():
        bench = Bench(sync=sync)
        await bench.begin()
        run = await (bench.other if elsewhere else bench.rt).cancel_async("r")
        assert run.status == "cancelled"
        assert [(p.id, p.kind) for p in run.pending] == [("r/c1", "in_doubt")]
        assert (await bench.driving).status == "cancelled"
        unknown = events(await bench.rt.trace_async("r"), ev.ToolUnknown)
        assert [u.reason for u in unknown] == ["cancelled"]
        bench.gate.set()
        if sync:  # a thread cannot be stopped: what comes of it is kept

            async def late() -> bool:
                return names(await bench.rt.trace_async("r"))[-1] == "tool.late"

            await until(late)
            assert (await bench.rt.get_async("r")).pending == ()
        assert (await bench.rt.get_async("r")).status == "cancelled"

    asyncio.run(main())


def test_cancelling_a_read_leaves_nothing_to_settle():
    async def main():
        bench = Bench(effect="read")
        await bench.begin()
        run = await bench.rt.cancel_async("r")
        bench.gate.set()
        assert (run.status, run.pending) == ("cancelled", ())

    asyncio.run(main())


def test_a_cancel_is_noticed_while_one_of_several_tools_goes_on():
    """News is listened for again after each outcome, not only after the last."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()

        @tool(effect="read")
        async def look(n: int) -> str:
            await asyncio.sleep(0.15 if n == 1 else 30)
            return ledger.add(f"look {n}")

        rt = runtime([[call("look", n=1), call("look", n=2)], "done"], [look], store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: ledger.lines)
        await asyncio.sleep(0.1)
        run = await Runtime(store.beside()).cancel_async("r")
        assert run.status == (await driving).status == "cancelled"
        assert ledger.lines == ["look 1"]

    asyncio.run(main())


def test_a_deadline_holds_for_a_tool_that_starts_while_a_longer_one_is_at_work():
    async def main():
        ledger = Ledger()

        @tool(effect="write", timeout=20, conflict_key="n")
        async def long(n: int) -> str:
            await until(lambda: "short 2" in ledger.lines)
            return ledger.add("long")

        @tool(effect="write", recovery="keyed", timeout=0.3, conflict_key="n")
        async def short(n: int, ctx: Context) -> str:
            ledger.add(f"short {ctx.attempt}")
            await asyncio.sleep(0.1 if n == 1 else 30 if ctx.attempt == 1 else 0)
            return "short"

        lines = [[call("long", n=0), call("short", n=1), call("short", n=2)], "done"]
        rt = runtime(lines, [long, short])
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines[-1] == "long"

    asyncio.run(main())


def test_a_cancel_while_the_model_thinks_charges_the_reservation_and_ends_the_run():
    async def main():
        asked, store = asyncio.Event(), InMemoryStore()

        async def thinking(request):
            asked.set()
            await asyncio.sleep(60)

        rt = runtime(thinking, store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await asked.wait()
        run = await Runtime(store.beside()).cancel_async("r")
        assert run.status == (await driving).status == "cancelled"
        assert run.usage.output_tokens == 4096
        assert run.usage.input_tokens > 0

    asyncio.run(main())


def test_a_cancel_during_an_approved_tool_uses_the_approval_up():
    """B04: no second execution after resume, and the session takes a new prompt."""

    async def main():
        bench = Bench(script=(call("work"), "done"))
        rt = Runtime(
            bench.store,
            agents=[Agent("a", Scripted(bench.model), tools=[bench.work])],
            policy=DEFAULT_POLICY,
        )
        await rt.start_async("a", "task", id="r", session="s")
        await until(lambda: not rt._driven)
        await rt.approve_async("r/1")
        await until(lambda: bench.ledger.lines)
        await bench.other.cancel_async("r")
        bench.gate.set()
        assert (await rt.run_async("a", "task", id="r", session="s")).status == "cancelled"
        assert (await rt.resume_async("r")).status == "cancelled"
        await asyncio.sleep(0.02)
        assert bench.ledger.lines[0] == "began 1"
        assert bench.ledger.times("began 1") == 1
        following = Recorder("hello again")
        rt = runtime(following, store=bench.store.beside())
        assert (await rt.run_async("a", "hello", session="s")).status == "completed"
        assert len(results(following.last)) == 1

    asyncio.run(main())


@pytest.mark.parametrize("known", [True, False])
def test_a_run_whose_worker_died_in_a_tool_is_cancelled_by_any_process(known):
    """B07: worker killed in mid-run; cancel settles run and claim; a new message works."""

    async def main():
        bench = Bench()
        await bench.begin()
        bench.store.crash()
        survivor = bench.store.beside()
        rt = runtime(["hello"], store=survivor) if known else Runtime(survivor)
        run = await rt.cancel_async("r")
        assert run.status == "cancelled"
        assert [p.kind for p in run.pending] == ["in_doubt"]
        assert not (await survivor.info("r")).leased
        bench.driving.cancel()
        bench.gate.set()
        await asyncio.wait({bench.driving})

    asyncio.run(main())


def test_a_run_whose_worker_died_in_a_model_call_is_cancelled_without_the_agent():
    async def main():
        asked, store = asyncio.Event(), InMemoryStore()

        async def thinking(request):
            asked.set()
            await asyncio.sleep(60)

        driving = asyncio.create_task(runtime(thinking, store=store).run_async("a", "t", id="r"))
        await asked.wait()
        store.crash()
        run = await Runtime(store.beside()).cancel_async("r")
        assert (run.status, run.usage.output_tokens) == ("cancelled", 4096)
        driving.cancel()
        await asyncio.wait({driving})

    asyncio.run(main())


def test_cancel_waits_until_the_owner_has_ended_the_run_also_when_it_is_paused():
    """Accepted is told apart from stopped: cancel returns when the run has ended."""

    async def main():
        bench = Bench()
        await bench.begin()
        await bench.other.pause_async("r")
        run = await bench.other.cancel_async("r")
        assert run.status == "cancelled"
        bench.gate.set()
        assert (await bench.driving).status == "cancelled"

    asyncio.run(main())


def test_a_cancel_ends_the_wait_for_a_retry():
    """B33: cancel ends the back-off."""

    async def main():
        store = InMemoryStore()
        error = ModelError(ErrorClass.RATE_LIMITED, "slow down", retry_after_s=500)
        rt = runtime([error, "done"], store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))

        async def waits() -> bool:
            return "r" in store.journals.runs and (await store.info("r")).waits == ("retry_at",)

        await until(waits)
        run = await Runtime(store.beside()).cancel_async("r")
        assert run.status == (await driving).status == "cancelled"

    asyncio.run(main())


def test_cancelled_calls_that_never_started_never_start():
    async def main():
        bench = Bench(script=([call("work", n=1), call("work", n=2)], "done"))
        await bench.begin()
        run = await bench.rt.cancel_async("r")
        bench.gate.set()
        assert run.status == "cancelled"
        assert "Not done: work (c2)" in run.text
        assert "Unknown: work (c1)" in run.text
        assert "began 2" not in bench.ledger.lines

    asyncio.run(main())


# ---------------------------------------------------------------- the caller goes away


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_caller_that_gives_up_leaves_a_run_that_can_be_gone_on_with(effect):
    """The task that called `run` is cancelled: what was at work is recorded, the claim is free."""

    async def main():
        bench = Bench(effect=effect)
        await bench.begin()
        bench.driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bench.driving
        assert not (await bench.store.info("r")).leased
        bench.gate.set()
        run = await bench.rt.run_async("a", "task", id="r")
        if effect == "read":
            assert run.status == "completed"
            assert bench.ledger.times("began 1") == 2
        else:
            assert (run.status, run.reason) == ("waiting", "in_doubt")
            assert bench.ledger.times("began 1") == 1

    asyncio.run(main())


@pytest.mark.parametrize(("effect", "status"), [("read", "completed"), ("write", "waiting")])
def test_a_loop_that_is_closed_over_a_background_run_leaves_it_to_the_next_loop(effect, status):
    """`asyncio.run` ends while a started run is at work; the next one goes on with it."""
    ledger, store = Ledger(), InMemoryStore()

    @tool(effect=effect)
    async def look() -> str:
        ledger.add("look")
        if ledger.times("look") == 1:
            await asyncio.sleep(60)
        return "seen"

    rt = runtime([call("look"), "done"], [look], store=store)

    async def first():
        await rt.start_async("a", "task", id="r")
        await until(lambda: ledger.lines)

    async def second():
        return await rt.run_async("a", "task", id="r")

    asyncio.run(first())
    assert asyncio.run(second()).status == status
    assert ledger.times("look") <= (2 if effect == "read" else 1)


def test_closing_lets_what_is_in_flight_land_and_starts_nothing_new():
    async def main():
        bench = Bench()
        await bench.begin()
        closing = asyncio.create_task(bench.rt.close_async())
        await asyncio.sleep(0.02)
        bench.gate.set()
        await closing
        run = await bench.driving
        assert bench.ledger.lines == ["began 1", "ended 1"]
        assert len(bench.model.requests) == 1
        return run

    with pytest.raises(Exception, match="closed"):
        asyncio.run(main())


def test_closing_does_not_wait_for_a_back_off():
    async def main():
        store = InMemoryStore()
        error = ModelError(ErrorClass.RATE_LIMITED, "slow down", retry_after_s=500)
        rt = runtime([error, "done"], store=store)
        await rt.start_async("a", "task", id="r")

        async def waits() -> bool:
            return (await store.info("r")).waits == ("retry_at",)

        await until(waits)
        await rt.close_async()

    asyncio.run(main())


def test_two_times_turned_clocks_do_not_matter_to_a_cancel():
    async def main():
        clock = TurnedClock()
        rt = runtime([call("ask_user", question="?"), "done"], clock=clock)
        await rt.run_async("a", "task", id="r")
        clock.turn(-3600)  # the wall clock steps back: the journal's time does not (B53)
        run = await rt.cancel_async("r")
        assert run.status == "cancelled"
        times = [e.at for e in await rt.trace_async("r")]
        assert times == sorted(times)

    asyncio.run(main())
