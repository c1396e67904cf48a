"""Work that does not stop when told to: it takes nobody else's place, and ends with the run."""

import asyncio
from contextlib import suppress

from tests.engine.kit import Ledger, TurnedClock, runtime, until

from cairn import UNKNOWN, call, tool
from cairn.engine import flights


def test_an_attempt_that_ends_late_does_not_take_the_next_attempts_place(monkeypatch):
    """Found by the simulator: the second attempt's deadline was forgotten and the run hung."""
    monkeypatch.setattr(flights, "CLEANUP_S", 0.05)
    ledger = Ledger()
    gate = asyncio.Event()

    @tool(effect="read", timeout=0.05)
    async def look() -> str:
        """Look; the first attempt ignores that it is told to stop."""
        first = ledger.times("attempt") == 0
        ledger.add("attempt")
        if first:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await gate.wait()
            return "too late"
        gate.set()
        await asyncio.sleep(60)  # it must be cut off at its own deadline
        return "never"

    async def main():
        async with runtime([call("look"), "Done."], [look]) as rt:
            async with asyncio.timeout(15):
                run = await rt.run_async("a", "Look")
        assert run.status == "completed"
        assert ledger.times("attempt") == 2

    asyncio.run(main())


def test_a_probe_that_is_asked_when_the_run_ends_is_stopped_with_it():
    """Found by the simulator: the task of a hanging probe stayed at work for ever."""
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def did_it() -> object:
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return UNKNOWN

    @tool(effect="write", recovery="probe", probe=did_it, timeout=30)
    async def pay() -> str:
        """Pay, and never say whether."""
        raise ConnectionError("reset")

    async def main():
        async with runtime([call("pay"), "Done."], [pay], clock=TurnedClock()) as rt:
            run = await rt.start_async("a", "Pay")
            async with asyncio.timeout(20):
                await asked.wait()
                await rt.cancel_async(run)
                await until(stopped.is_set)
            left = [t for t in asyncio.all_tasks() if "_await" in repr(t.get_coro())]
            assert left == []

    asyncio.run(main())
