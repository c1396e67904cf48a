"""Late outcomes: a busy store is tried again, so that what is known of an effect is not lost."""

import asyncio
import threading

import pytest
from tests.engine.kit import Ledger, Recorder, Watched, names, results, runtime, until

from cairn import NotDone, Refused, call, tool
from cairn.core.commands import Late
from cairn.engine.journal import PATIENCE
from cairn.errors import StoreBusy, StoreFailed
from cairn.store.inmemory import InMemoryStore


class Refusals:
    """Makes a store refuse the first `times` late outcomes, or reads before one, or all."""

    def __init__(self, watched: Watched, times: int, error: Exception | None = None) -> None:
        self.left, self.asked, self.on = times, 0, "submit"
        self.error = error or StoreBusy("held by somebody")
        watched.before = self

    async def __call__(self, name, *args, **kwargs) -> None:
        if name != self.on or (name == "submit" and not isinstance(args[2], Late)):
            return
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error


def paying_late(ledger: Ledger, gate: threading.Event):
    @tool(effect="write", timeout=0.05)
    def pay() -> str:
        ledger.add("pay")
        gate.wait(10)
        return "receipt 9"

    return pay


@pytest.mark.parametrize("busy", [1, PATIENCE - 1])
def test_an_outcome_after_the_time_out_is_written_though_the_store_is_busy(busy):
    async def main():
        ledger, gate, watched = Ledger(), threading.Event(), Watched()
        model = Recorder(call("pay"), "done")
        rt = runtime(model, [paying_late(ledger, gate)], store=watched)
        assert (await rt.run_async("a", "task", id="r")).reason == "in_doubt"
        refusals = Refusals(watched, busy)
        gate.set()

        async def late() -> bool:
            return "tool.late" in names(await rt.trace_async("r"))

        await until(late)
        assert refusals.asked == busy + 1
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert results(model.last) == {"c1": "receipt 9"}
        assert ledger.lines == ["pay"]

    asyncio.run(main())


def test_a_journal_that_cannot_be_read_at_first_does_not_lose_the_outcome():
    async def main():
        ledger, gate, watched = Ledger(), threading.Event(), Watched()
        rt = runtime([call("pay"), "done"], [paying_late(ledger, gate)], store=watched)
        await rt.run_async("a", "task", id="r")
        refusals = Refusals(watched, 1)
        refusals.on = "read"
        gate.set()
        await until(lambda: not refusals.left)

        async def late() -> bool:
            return "tool.late" in names(await watched.inner.read("r"))

        await until(late)

    asyncio.run(main())


@pytest.mark.parametrize("error", [StoreBusy("held"), StoreFailed("disk full")])
def test_an_outcome_that_cannot_be_written_is_named_in_the_log_and_not_tried_for_ever(
    error, caplog
):
    async def main():
        ledger, gate, watched = Ledger(), threading.Event(), Watched()
        rt = runtime([call("pay"), "done"], [paying_late(ledger, gate)], store=watched)
        await rt.run_async("a", "task", id="r")
        refusals = Refusals(watched, 10_000, error)
        gate.set()
        await until(lambda: "is lost" in caplog.text)
        assert refusals.asked == (PATIENCE if isinstance(error, StoreBusy) else 1)
        assert f"the late outcome of r/c1 is lost: {error}" in caplog.text
        assert (await rt.run_async("a", "task", id="r")).reason == "in_doubt"
        assert refusals.asked <= PATIENCE, "it was given up"

    asyncio.run(main())


def test_a_late_outcome_that_waits_for_a_busy_store_does_not_hold_up_the_end():
    async def main():
        ledger, gate, watched = Ledger(), threading.Event(), Watched()
        asked = asyncio.Event()

        async def for_ever(name, *args, **kwargs):
            if name == "submit":
                asked.set()
                await asyncio.sleep(3600)

        rt = runtime([call("pay"), "done"], [paying_late(ledger, gate)], store=watched)
        await rt.run_async("a", "task", id="r")
        watched.before = for_ever
        gate.set()
        await asked.wait()
        async with asyncio.timeout(10):
            await rt.close_async()

    asyncio.run(main())  # it returns, though the writing has not come to its end


async def _zombie(watched: Watched, store: InMemoryStore, calls: int):
    """A drive that has lost its run while its calls were at work; they have ended since."""
    ledger, gate = Ledger(), asyncio.Event()

    @tool(effect="write", conflict_key="n")
    async def pay(n: int) -> str:
        ledger.add(f"pay {n}")
        await gate.wait()
        return f"paid {n}"

    script = [[call("pay", n=n) for n in range(calls)], "done"]
    frozen = runtime(script, [pay], store=watched)
    zombie = asyncio.create_task(frozen.run_async("a", "task", id="r"))
    await until(lambda: len(ledger.lines) == calls)
    store.freeze()
    model = Recorder("unused", "done")
    newcomer = runtime(model, [pay], store=store.beside())
    assert (await newcomer.run_async("a", "task", id="r")).reason == "in_doubt"
    store.condition = "alive"
    return zombie, newcomer, model, gate


@pytest.mark.parametrize("busy", [1, PATIENCE - 1])
def test_an_owner_that_was_given_up_hands_over_what_it_knows_though_the_store_is_busy(busy):
    async def main():
        store = InMemoryStore()
        watched = Watched(store)
        zombie, newcomer, model, gate = await _zombie(watched, store, 2)
        refusals = Refusals(watched, busy)
        gate.set()

        async def settled() -> bool:
            return names(await newcomer.trace_async("r")).count("tool.late") == 2

        await until(settled)
        assert refusals.asked == busy + 2
        assert (await newcomer.run_async("a", "task", id="r")).status == "completed"
        assert results(model.last) == {"c1": "paid 0", "c2": "paid 1"}
        assert (await zombie).status == "completed"

    asyncio.run(main())


def test_an_owner_that_was_given_up_has_one_patience_for_all_it_knows(caplog):
    async def main():
        store = InMemoryStore()
        watched = Watched(store)
        zombie, newcomer, _, gate = await _zombie(watched, store, 3)
        refusals = Refusals(watched, 10_000)
        gate.set()
        with pytest.raises(StoreBusy):
            await zombie
        assert refusals.asked == PATIENCE
        for lost in ("r/c1", "r/c2", "r/c3"):
            assert f"the late outcome of {lost} is lost" in caplog.text
        run = await newcomer.run_async("a", "task", id="r")
        assert (run.reason, len(run.pending)) == ("in_doubt", 3)

    asyncio.run(main())


def test_an_outcome_handed_over_says_which_attempt_it_is_of_though_the_next_one_was_decided():
    async def main():
        store = InMemoryStore()
        watched, ledger = Watched(store), Ledger()

        @tool(effect="write", retries=1, backoff=0)
        async def pay() -> str:
            ledger.add("pay")
            raise NotDone("busy")

        newcomer = runtime(["unused"], [pay], store=store.beside())

        async def given_up(name, *args, **kwargs):
            if name == "append" and ledger.lines:
                watched.before = None
                store.freeze()  # neither the failure nor the start that follows is written yet
                assert (await newcomer.run_async("a", "task", id="r")).reason == "in_doubt"
                store.condition = "alive"

        watched.before = given_up
        zombie = runtime([call("pay"), "done"], [pay], store=watched)
        await zombie.run_async("a", "task", id="r")
        entries = await newcomer.trace_async("r")
        late = [e.event for e in entries if e.event.NAME == "tool.late"]
        assert [(event.ok, event.attempt) for event in late] == [(False, 1)]
        assert "tool.resolved" not in names(entries), "what came of the call is known without it"

    asyncio.run(main())


def test_the_heir_of_a_frozen_owner_may_die_at_once_and_no_verdict_comes_too_early():
    async def main():
        store = InMemoryStore()
        ledger, begun, gate = Ledger(), asyncio.Event(), asyncio.Event()

        @tool(effect="write", timeout=5)
        async def pay() -> str:
            begun.set()
            await gate.wait()
            return ledger.add("pay")

        frozen = runtime([call("pay"), "done"], [pay], store=store)
        zombie = asyncio.create_task(frozen.run_async("a", "task", id="r"))
        await begun.wait()
        store.freeze()
        heir = store.beside()
        assert (await heir.claim("r")).previous == "expired"
        heir.crash()
        rt = runtime(["done"], [pay], store=store.beside())
        assert (await rt.run_async("a", "task", id="r")).reason == "in_doubt"
        with pytest.raises(Refused, match="may still be at work"):
            await rt.resolve_async("r/c1", happened=False)
        gate.set()
        await asyncio.wait([zombie], timeout=10)
        assert ledger.lines == ["pay"]

    asyncio.run(main())
