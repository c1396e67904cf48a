"""Stores that are busy, move, fence us off or die, and faults of the runtime itself."""

import asyncio
import threading

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    TurnedClock,
    Watched,
    events,
    names,
    results,
    runtime,
    until,
)

from cairn import Context, Policy, Runtime, call, tool
from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.state import RunState
from cairn.errors import StoreBusy, StoreClosed, StoreFailed
from cairn.store.inmemory import InMemoryStore


def payer(ledger: Ledger, gate: asyncio.Event | None = None):
    @tool(effect="write")
    async def pay(n: int = 1) -> str:
        ledger.add(f"pay {n}")
        if gate is not None:
            await gate.wait()
        return f"paid {n}"

    return pay


# ---------------------------------------------------------------- busy


def test_a_busy_store_is_tried_again_and_nothing_is_lost_or_doubled():
    """B52: no run fails from a lock; a known outcome is written in the end."""

    async def main():
        ledger, watched = Ledger(), Watched()
        refusals = 0

        async def busy(name, *args, **kwargs):
            nonlocal refusals
            if name == "append" and refusals % 3 != 2:
                refusals += 1
                raise StoreBusy("held by somebody")
            refusals += name == "append"

        watched.before = busy
        rt = runtime([call("pay"), "done"], [payer(ledger)], store=watched)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", ["pay 1"])
        assert [len(c) for c in watched.commits] == [1, 2, 2, 2]

    asyncio.run(main())


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_store_that_stays_busy_is_told_to_the_caller_and_the_run_can_be_gone_on_with(nth):
    """The claim does not stay with a drive that gave up: the same process goes on later."""

    async def main():
        ledger, watched = Ledger(), Watched()
        appends, broken = 0, True

        async def busy(name, *args, **kwargs):
            nonlocal appends
            if name == "append" and args[2]:
                appends += 1
                if broken and appends >= nth:
                    raise StoreBusy("held by somebody")

        watched.before = busy
        rt = runtime([call("pay"), "done"], [payer(ledger)], store=watched)
        with pytest.raises(StoreBusy):
            await rt.run_async("a", "task", id="r")
        broken = False
        run = await rt.run_async("a", "task", id="r")
        if nth == 3:  # the outcome of a write could not be written: nobody may repeat it
            assert (run.status, run.reason) == ("waiting", "in_doubt")
        else:
            assert run.status == "completed"
        assert ledger.times("pay 1") == 1

    asyncio.run(main())


def test_a_store_that_failed_is_told_to_the_caller_and_stops_what_is_at_work():
    async def main():
        ledger, gate, watched = Ledger(), asyncio.Event(), Watched()

        async def broken(name, *args, **kwargs):
            if name == "append" and any(e.event.NAME == "tool.completed" for e in args[2]):
                raise StoreFailed("disk full")

        watched.before = broken

        @tool(effect="write", conflict_key="n")
        async def pay(n: int) -> str:
            ledger.add(f"pay {n}")
            if n:
                await gate.wait()
                ledger.add("went on after the end")
            return "paid"

        rt = runtime([[call("pay", n=0), call("pay", n=1)], "done"], [pay], store=watched)
        with pytest.raises(StoreFailed):
            await rt.run_async("a", "task", id="r")
        gate.set()
        await asyncio.sleep(0.02)
        assert "went on after the end" not in ledger.lines
        assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]

    asyncio.run(main())


def test_a_closed_store_is_said_so():
    async def main():
        rt = runtime(["done"])
        await rt.close_async()
        with pytest.raises(StoreClosed):
            await rt.run_async("a", "task")

    asyncio.run(main())


# ---------------------------------------------------------------- news at the wrong moment


def test_news_in_the_moment_of_letting_go_keeps_the_run_ours():
    """A message that lands between the decision to wait and its write is acted on by the owner,
    which has not given the claim up meanwhile."""

    async def main():
        ledger, watched = Ledger(), Watched()
        sent = []

        async def interfere(name, *args, **kwargs):
            if name == "append" and kwargs.get("release") and not sent:
                sent.append(True)
                await Runtime(watched.inner.beside()).pause_async("r")
            elif name == "append" and sent:
                assert (await watched.inner.info("r")).leased

        watched.before = interfere
        rt = runtime(
            [call("pay"), "done"], [payer(ledger)], store=watched, policy=Policy(name="ask")
        )
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, watched.commits[-1]) == ("paused", ("model.completed",))
        assert not (await watched.inner.info("r")).leased

    asyncio.run(main())


@pytest.mark.parametrize("at", range(1, 5))
def test_a_message_at_any_append_changes_nothing_but_the_conversation(at):
    """`Moved` before each of the owner's writes: outcomes are kept, decisions taken anew."""

    async def main():
        ledger, watched = Ledger(), Watched()
        appends = 0

        async def interfere(name, *args, **kwargs):
            nonlocal appends
            if name == "append" and args[2]:
                appends += 1
                if appends == at:
                    from cairn import Text
                    from cairn.core.commands import Queue

                    await rt.client.submit("r", Queue(parts=(Text("news"),)))

        watched.before = interfere
        model = Recorder(call("pay"), "done", "done again")
        rt = runtime(model, [payer(ledger)], store=watched)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", ["pay 1"])
        trace = await rt.trace_async("r")
        assert names(trace).count("input.given") == names(trace).count("input.queued") == 1
        assert names(trace).count("tool.completed") == 1
        results(model.last)

    asyncio.run(main())


# ---------------------------------------------------------------- fenced


@pytest.mark.parametrize("end", ["returns", "raises", "unsure"])
@pytest.mark.parametrize("read_on", [False, True])
def test_an_owner_that_was_given_up_hands_its_finished_effect_over(end, read_on):
    """B08: the late writer is refused, its effect arrives as `tool.late`, one final result.

    Also when it has read, before it finished, what the new owner wrote (`read_on`).
    """

    async def main():
        ledger, gate, store = Ledger(), asyncio.Event(), InMemoryStore()

        @tool(effect="write")
        async def pay() -> str:
            ledger.add("pay")
            await gate.wait()
            if end == "raises":
                raise ValueError("refused")
            if end == "unsure":
                raise TimeoutError("gateway")
            return "paid"

        frozen = runtime([call("pay"), "done"], [pay], store=store)
        zombie = asyncio.create_task(frozen.run_async("a", "task", id="r"))
        await until(lambda: ledger.lines)
        store.freeze()
        model = Recorder("unused", "done")
        newcomer = runtime(model, [pay], store=store.beside())
        run = await newcomer.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        store.condition = "alive"
        await asyncio.sleep(0.12 if read_on else 0)
        gate.set()

        async def settled() -> bool:
            return (
                zombie.done()
                or (await newcomer.run_async("a", "task", id="r")).status == "completed"
            )

        await until(settled)
        trace = await newcomer.trace_async("r")
        run = await newcomer.run_async("a", "task", id="r")
        if end == "unsure":
            assert "tool.late" not in names(trace)
            assert run.reason == "in_doubt"
        else:
            assert names(trace).count("tool.late") == 1
            assert run.status == "completed"
            told = results(model.last)["c1"]
            assert told == "paid" if end == "returns" else "refused" in told
        assert ledger.lines == ["pay"]
        assert (await zombie).status == run.status

    asyncio.run(main())


def test_an_effect_that_ends_after_the_new_owner_went_on_is_kept_and_changes_nothing():
    """B08: the call was repeated with its key and is long closed; the run is over once."""

    async def main():
        ledger, gate, store = Ledger(), threading.Event(), InMemoryStore()

        @tool(effect="write", recovery="keyed")
        def pay(ctx: Context) -> str:
            ledger.add(ctx.key)
            if len(ledger.lines) == 1:
                gate.wait(10)
            return f"paid in attempt {ctx.attempt}"

        frozen = runtime([call("pay"), "done"], [pay], store=store)
        zombie = asyncio.create_task(frozen.run_async("a", "task", id="r"))
        await until(lambda: ledger.lines)
        store.freeze()
        model = Recorder("unused", "done")
        newcomer = runtime(model, [pay], store=store.beside())
        assert (await newcomer.run_async("a", "task", id="r")).status == "completed"
        store.condition = "alive"
        await asyncio.sleep(0.12)
        gate.set()
        assert (await zombie).status == "completed"

        async def late() -> bool:
            return "tool.late" in names(await newcomer.trace_async("r"))

        await until(late)
        trace = await newcomer.trace_async("r")
        assert names(trace).count("run.completed") == 1
        assert results(model.last) == {"c1": "paid in attempt 2"}
        assert len(set(ledger.lines)) == 1

    asyncio.run(main())


def test_what_may_have_run_in_a_frozen_process_is_not_soon_said_not_to_have_happened():
    """Only a proven death opens the verdict at once; also after a process in between gave up."""

    async def main():
        from cairn import Refused
        from cairn.errors import UnknownAgent

        ledger, gate, store = Ledger(), asyncio.Event(), InMemoryStore()
        frozen = runtime([call("pay"), "done"], [payer(ledger, gate)], store=store)
        zombie = asyncio.create_task(frozen.run_async("a", "task", id="r"))
        await until(lambda: ledger.lines)
        store.freeze()
        with pytest.raises(UnknownAgent):  # it claims, cannot drive, and gives the claim back
            await Runtime(store.beside()).drive_async("r")
        newcomer = runtime(["unused", "done"], [payer(ledger, gate)], store=store.beside())
        run = await newcomer.run_async("a", "task", id="r")
        assert run.reason == "in_doubt"
        with pytest.raises(Refused, match="may still be at work"):
            await newcomer.client.resolve("r/c1", "not_happened")
        zombie.cancel()
        await asyncio.wait({zombie})

    asyncio.run(main())


def test_what_ran_in_a_dead_process_can_be_said_not_to_have_happened_at_once():
    async def main():
        ledger, gate, store = Ledger(), asyncio.Event(), InMemoryStore()
        dead = runtime([call("pay"), "done"], [payer(ledger, gate)], store=store)
        ghost = asyncio.create_task(dead.run_async("a", "task", id="r"))
        await until(lambda: ledger.lines)
        store.crash()
        newcomer = runtime(["unused", "done"], [payer(ledger)], store=store.beside())
        run = await newcomer.run_async("a", "task", id="r")
        assert run.reason == "in_doubt"
        await newcomer.resolve_async("r/c1", happened=False)
        assert (await newcomer.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay 1", "pay 1"]
        ghost.cancel()
        await asyncio.wait({ghost})

    asyncio.run(main())


def test_a_tool_that_settles_late_is_waited_for_after_its_process_died():
    async def main():
        from cairn import Refused

        ledger, gate, store, clock = Ledger(), asyncio.Event(), InMemoryStore(), TurnedClock()

        @tool(effect="write", settle=120)
        async def pay() -> str:
            ledger.add("pay")
            await gate.wait()
            return "paid"

        ghost = asyncio.create_task(
            runtime([call("pay"), "done"], [pay], store=store, clock=clock).run_async(
                "a", "t", id="r"
            )
        )
        await until(lambda: ledger.lines)
        store.crash()
        newcomer = runtime(["unused", "done"], [pay], store=store.beside(), clock=clock)
        await newcomer.run_async("a", "t", id="r")
        with pytest.raises(Refused, match="120 s"):
            await newcomer.client.resolve("r/c1", "not_happened")
        clock.turn(120)
        await newcomer.client.resolve("r/c1", "not_happened")
        ghost.cancel()
        await asyncio.wait({ghost})

    asyncio.run(main())


# ---------------------------------------------------------------- faults of the runtime


def broken_inside(monkeypatch, when: str):
    """Make the drive raise where it records the named kind of outcome."""
    from cairn.engine import drive

    real = drive.events_for

    def events_for(back, *args):
        if type(back).__name__ == when:
            raise ZeroDivisionError("a bug in the runtime")
        return real(back, *args)

    monkeypatch.setattr(drive, "events_for", events_for)


def test_a_fault_of_the_runtime_ends_the_run_as_failed_and_keeps_what_is_known(monkeypatch, caplog):
    async def main():
        ledger, gate = Ledger(), asyncio.Event()

        @tool(effect="write", conflict_key="n")
        async def pay(n: int) -> str:
            ledger.add(f"pay {n}")
            if n:
                await gate.wait()
            return f"paid {n}"

        broken_inside(monkeypatch, "ToolBack")
        rt = runtime([[call("pay", n=0), call("pay", n=1)], "done"], [pay])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "internal")
        assert "ZeroDivisionError: a bug in the runtime" in run.reason
        assert [p.id for p in run.pending] == ["r/c1", "r/c2"]
        assert not (await rt.store.info("r")).leased
        monkeypatch.undo()
        again = await rt.run_async("a", "task", id="r")
        assert again.status == "failed"
        await rt.resolve_async("r/c1", happened=True)
        assert [p.id for p in (await rt.get_async("r")).pending] == ["r/c2"]
        assert ledger.lines == ["pay 0", "pay 1"]

    asyncio.run(main())
    assert "failed inside the runtime" in caplog.text


def test_a_fault_while_a_reply_is_recorded_charges_the_reservation(monkeypatch, caplog):
    async def main():
        broken_inside(monkeypatch, "ModelBack")
        rt = runtime(["done"])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "internal")
        assert run.usage.output_tokens == 4096
        monkeypatch.undo()
        assert (await rt.retry_async("r", id="r2")).status == "completed"

    asyncio.run(main())


def test_an_observer_that_breaks_hurts_no_run():
    async def main():
        rt = runtime(["done"])

        def broken(run, what):
            raise RuntimeError("observer")

        rt.host.watchers.watch("*", broken)
        assert (await rt.run_async("a", "task")).status == "completed"

    asyncio.run(main())


def test_a_worker_thread_that_ends_after_the_loop_is_only_logged(caplog):
    """A sync tool that outlives its loop cannot write, and brings nothing down."""
    gate, ended = threading.Event(), threading.Event()
    store = InMemoryStore()

    @tool(effect="write", timeout=0.05)
    def pay() -> str:
        gate.wait(10)
        ended.set()
        return "paid"

    async def main():
        rt = runtime([call("pay"), "done"], [pay], store=store)
        return await rt.run_async("a", "task", id="r")

    assert asyncio.run(main()).reason == "in_doubt"
    gate.set()
    assert ended.wait(5)

    async def later():
        return await Runtime(store).get_async("r")

    assert asyncio.run(later()).reason == "in_doubt"


# ---------------------------------------------------------------- everything, shuffled


@pytest.mark.parametrize("seed", range(12))
def test_drivers_deciders_and_delays_in_any_order_leave_one_effect_per_call(seed):
    """Two processes drive, a third decides, every store call is held up at random."""
    import random

    chance = random.Random(seed)

    async def main():
        ledger, store = Ledger(), InMemoryStore()

        async def delay(*_args, **_kwargs):
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)

        def process():
            watched = Watched(store.beside())
            watched.before = watched.after = delay
            return watched

        def script(request):
            if request.turn < 3:
                return [
                    call("pay", n=request.turn * 10),
                    call("free", n=request.turn * 10 + 1),
                    call("free", n=request.turn * 10 + 2),
                ]
            return "done"

        @tool(effect="write", conflict_key="n")
        async def free(n: int) -> str:
            await delay()
            return ledger.add(f"free {n}")

        @tool(effect="write", conflict_key="n")
        async def pay(n: int) -> str:
            await delay()
            return ledger.add(f"pay {n}")

        policy = Policy(tools={"free": "allow"})
        rts = [runtime(script, [pay, free], store=process(), policy=policy) for _ in range(2)]
        decider = Runtime(process())

        async def drive(rt):
            while (await rt.run_async("a", "task", id="r")).status != "completed":
                await delay()
                await asyncio.sleep(0)

        async def decide():
            while True:
                for pending in await decider.pending_async():
                    await decider.client.approve(pending.id)
                await asyncio.sleep(0)

        deciding = asyncio.create_task(decide())
        await asyncio.gather(*map(drive, rts))
        deciding.cancel()
        await asyncio.wait({deciding})
        wanted = [f"pay {t * 10}" for t in range(3)]
        wanted += [f"free {t * 10 + n}" for t in range(3) for n in (1, 2)]
        assert sorted(ledger.lines) == sorted(wanted)
        trace = await decider.trace_async("r")
        assert fold(RunState(run="r"), trace).status == "completed"
        assert not events(trace, ev.ErrorRaised)

    asyncio.run(main())


def test_a_claim_is_given_back_though_the_store_is_busy_when_that_is_tried():
    """Found by the simulator (seed 106173): kept, it would shut the run to everybody."""

    async def main():
        store = Watched()
        refusals = {"read": 1, "append": 2}

        async def before(name, *args, **kwargs):
            if refusals.get(name, 0) > 0 and (await store.inner.info("r1")).leased:
                refusals[name] -= 1
                raise StoreBusy(f"{name} was refused")

        rt = runtime(["Done."], store=store)
        run = await rt.enqueue_async("a", "Do it", id="r1")
        store.before = before
        with pytest.raises(StoreBusy):
            await rt.drive_async(run)
        assert refusals == {"read": 0, "append": 0}
        assert not (await store.inner.info(run)).leased
        store.before = None
        assert (await rt.drive_async(run)).status == "completed"

    asyncio.run(main())
