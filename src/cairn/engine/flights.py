"""What a run has at work at the moment, and one way to wait for the next of it to land.

One timer serves a whole drive: it looks after deadlines, and turns a long wait into one that also
listens for news from elsewhere. Turns that are quick never touch a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

from cairn.engine.backs import Back
from cairn.ports import Store

QUICK_S = 0.05
"""How long to wait for a flight before the run also listens for news from elsewhere."""
CLEANUP_S = 2.0
"""How long something that was told to stop may take until it is left behind."""

Reason = Literal["timeout", "cancelled"]


class Flight(Protocol):
    """Something at work. It lands by itself, by calling `Flights.land`."""

    def cancel(self, reason: Reason) -> None:
        """Stop, and land soon."""
        ...

    def overdue(self) -> Back:
        """What is recorded when it was told to stop and did not land in time."""
        ...


class _Open:
    __slots__ = ("deadline", "flight", "told")

    def __init__(self, flight: Flight, deadline: float) -> None:
        self.flight = flight
        self.deadline = deadline
        self.told = False


class Flights:
    """The open flights of one run, by key: `model`, `task`, a call id, or `probe` and a call id."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, _Open] = {}
        self._landed: list[Back] = []
        self._waiter: asyncio.Future[None] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._fault: BaseException | None = None
        self.stopping = False
        self.redacted: Callable[[Back], Back] = lambda back: back
        """Takes out what must not be kept, before anything is cut or quoted of what landed."""

    def __bool__(self) -> bool:
        return bool(self._open) or bool(self._landed)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def add(self, key: str, flight: Flight, timeout_s: float) -> None:
        """Keep track of something that was set to work; its key must be free."""
        self._open[key] = _Open(flight, self._loop.time() + timeout_s)
        if timeout_s < QUICK_S and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def launch(
        self,
        key: str,
        work: Coroutine[Any, Any, Back],
        timeout_s: float,
        stopped: Callable[[Reason], Back],
    ) -> None:
        """Set a coroutine to work; `stopped` says what is recorded if it is ended early."""
        self.add(key, _Work(self, key, work, stopped), timeout_s)

    def land(self, key: str, back: Back, flight: Flight) -> bool:
        """A flight has landed; False when it was given up, and perhaps another has its key now."""
        each = self._open.get(key)
        if each is None or each.flight is not flight:
            return False
        del self._open[key]
        self._landed.append(back)
        self._wake()
        return True

    def crash(self, key: str, error: BaseException, flight: Flight) -> None:
        """A flight is gone and will not land: whoever waits for the next one gets the error."""
        each = self._open.get(key)
        if each is None or each.flight is not flight:  # it was given up
            return
        del self._open[key]
        self._fault = self._fault or error
        self._wake()

    def landed(self) -> list[Back]:
        """What has landed since the last call, in order."""
        done, self._landed = self._landed, []
        return [self.redacted(back) for back in done]

    def stop(self) -> None:
        """Have the drive stop as soon as it looks here again."""
        self.stopping = True
        self._wake()

    # ---------------------------------------------------------------- waiting

    async def wait(self, store: Store, run: str, head: int) -> bool:
        """Wait until something lands; False when news, or the wish to stop, came first.

        Raises:
            BaseException: what a flight ended with that will never land.
        """
        if self._over():
            return bool(self._landed)
        await self._wait(self._loop.time())
        if self._over():
            return bool(self._landed)
        news = self._loop.create_task(store.changed(run, head, 3600.0))
        news.add_done_callback(lambda _: self._wake())
        try:
            while not (self._over() or news.done()):
                await self._wait(float("inf"))
        finally:
            news.cancel()
        return bool(self._landed)

    def _over(self) -> bool:
        """Whether there is nothing to wait for any more; a crashed flight says so by its error."""
        if self._fault is not None and not self.stopping:
            raise self._fault
        return bool(self._landed) or self.stopping

    async def _wait(self, since: float) -> None:
        self._since = since
        self._waiter = self._loop.create_future()
        if self._timer is not None and self._timer.when() > since + QUICK_S:
            self._timer.cancel()  # it was set for a deadline; news must be listened for sooner
            self._timer = None
        if self._timer is None:
            self._set_timer(self._loop.time())
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, now: float) -> None:
        soon = min((each.deadline for each in self._open.values()), default=now + CLEANUP_S)
        if self._since + QUICK_S > now:
            soon = min(soon, self._since + QUICK_S)
        self._timer = self._loop.call_at(max(soon, now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for key, each in tuple(self._open.items()):
            if each.deadline <= now:
                self._expire(key, each, "timeout")
        if self._waiter is None:
            return
        if self._since + QUICK_S <= now:
            self._wake()
        self._set_timer(now)

    def _expire(self, key: str, each: _Open, reason: Reason) -> None:
        if each.told:
            self.land(key, each.flight.overdue(), each.flight)
            return
        each.told = True
        each.deadline = self._loop.time() + CLEANUP_S
        each.flight.cancel(reason)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def halt(self) -> None:
        """Stop all that is open and wait until each has landed or is left behind."""
        for key, each in tuple(self._open.items()):
            if not each.told:
                self._expire(key, each, "cancelled")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._open:
            await self._wait(float("inf"))

    def close(self) -> None:
        """The drive is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Work:
    """A coroutine as a flight."""

    __slots__ = ("_flights", "_key", "_reason", "_stopped", "_task", "_work")

    def __init__(
        self,
        flights: Flights,
        key: str,
        work: Coroutine[Any, Any, Back],
        stopped: Callable[[Reason], Back],
    ) -> None:
        self._flights = flights
        self._key = key
        self._stopped = stopped
        self._reason: Reason = "cancelled"
        self._work = work
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        try:
            back = await self._work
        except asyncio.CancelledError as error:
            if not self._task.cancelling():
                said = f"{self._key} raised CancelledError, though nobody had cancelled it"
                raise RuntimeError(said) from error
            back = self._stopped(self._reason)
        self._flights.land(self._key, back, self)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step: nothing of it ever ran
            self._work.close()
            self._flights.land(self._key, self._stopped(self._reason), self)
        elif (error := task.exception()) is not None:  # of any kind, also what ends a loop
            self._flights.crash(self._key, error, self)

    def cancel(self, reason: Reason) -> None:
        self._reason = reason
        self._task.cancel()

    def overdue(self) -> Back:
        return self._stopped(self._reason)
