"""An event loop with a clock of its own, in which several processes take turns by a seed.

Within a process callbacks run in the order they were scheduled, as asyncio promises; between
processes any order is legal, so it is drawn. A frozen process is not served until it is woken, and
a dead one never again: it does not even run its `finally`.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from bisect import insort
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, Literal

MOST_ASKED = 5_000
"""How many questions to the stores may come at one instant."""
Condition = Literal["alive", "frozen", "dead"]


class Place:
    """A process, as the loop sees it: a queue of its own, and whether it is served."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.condition: Condition = "alive"
        self.queue: deque[asyncio.Handle] = deque()


HERE: ContextVar[Place | None] = ContextVar("cairn_simulated_process", default=None)


class Stuck(Exception):
    """Nothing is left that could ever happen, or too much has happened."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks of several processes; time only passes when nobody has anything to do.

    Args:
        choose: From how many processes want to run to which one does.
        most: How many callbacks may run until it is given up.
    """

    def __init__(self, choose: Callable[[int], int], most: int = 100_000) -> None:
        self._choose = choose
        self._left = most
        self._now = 0.0
        self._outer = Place("world")
        self._numbers = 0
        self._busy: list[Place] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Place]] = []
        self._count = 0
        self._closed = False
        self._asked = 0
        self.tasks: list[tuple[Place, asyncio.Task[Any]]] = []
        self.complaints: list[str] = []

    # ---------------------------------------------------------------- what asyncio asks for

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append((self._place(context), task))
        return task

    def _place(self, context: Context | None) -> Place:
        found = HERE.get() if context is None else context.get(HERE)
        return found or self._outer

    def call_soon(  # type: ignore[override]  # the typed form of variadic arguments says the same
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(self._place(context), handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread only

    def call_later(  # type: ignore[override]  # as call_soon
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as call_soon
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heappush(self._timers, (when, self._count, handle, self._place(context)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled timer is skipped when it is due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---------------------------------------------------------------- processes

    def _put(self, place: Place, handle: asyncio.Handle) -> None:
        if not place.queue and place.condition == "alive":
            insort(self._busy, place, key=_number)
        place.queue.append(handle)

    def freeze(self, place: Place) -> None:
        """Stop serving a process; what falls due for it waits."""
        self._leave(place, "frozen")

    def kill(self, place: Place) -> None:
        """Never serve a process again; what it would have done is kept until `finish`."""
        self._leave(place, "dead")

    def _leave(self, place: Place, condition: Condition) -> None:
        place.condition = condition
        if place in self._busy:
            self._busy.remove(place)

    def wake(self, place: Place) -> None:
        """Serve a frozen process again."""
        if place.condition == "frozen":
            place.condition = "alive"
            if place.queue:
                insort(self._busy, place, key=_number)

    def start(self, place: Place, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process; all that it starts is the process's too."""
        context = copy_context()
        context.run(HERE.set, place)
        if not place.number:
            self._numbers += 1
            place.number = self._numbers
        return self.create_task(work, context=context)

    def alive(self, place: Place) -> list[asyncio.Task[Any]]:
        """The tasks of a process that have not ended."""
        return [task for where, task in self.tasks if where is place and not task.done()]

    def spins(self) -> bool:
        """Whether somebody asks on and on while no time passes; to be told of every question."""
        self._asked += 1
        return self._asked > MOST_ASKED

    # ---------------------------------------------------------------- running

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run until `work` has ended; what it returns.

        Raises:
            Stuck: it can never end.
        """
        events._set_running_loop(self)  # noqa: SLF001 - what every event loop does
        try:
            main = self.create_task(work)
            while not main.done():
                self._step()
            return main.result()
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - what every event loop does

    def _step(self) -> None:
        busy = self._busy
        if not busy:
            self._pass_time()
            return
        self._left -= 1
        if self._left < 0 or self._asked > MOST_ASKED:
            raise Stuck("too many callbacks: something spins")
        place = busy[self._choose(len(busy)) if len(busy) > 1 else 0]
        handle = place.queue.popleft()
        if not place.queue:
            busy.remove(place)
        if not handle._cancelled:  # noqa: SLF001 - what every event loop does
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001 - as loops do
            except Exception as error:  # a callback's fault is no fault of the loop
                self.call_exception_handler({"message": "in a callback", "exception": error})

    def _pass_time(self) -> None:
        while self._timers:
            when, _, handle, place = heappop(self._timers)
            if handle._cancelled:  # noqa: SLF001 - what every event loop does
                continue
            if place.condition == "dead":
                self._put(place, handle)
                continue
            if when > self._now:
                self._now, self._asked = when, 0
            self._put(place, handle)
            if place.condition == "alive":
                return
        raise Stuck("nothing is left to happen")

    def finish(self, rounds: int = 8) -> int:
        """Cancel all that is left, of the dead too, and let it end; how many did not."""
        events._set_running_loop(self)  # noqa: SLF001 - what every event loop does
        self._left, self._asked = 100_000, 0
        left: list[asyncio.Task[Any]] = []
        try:
            for _ in range(rounds):
                with suppress(Stuck):
                    left = self._cancelled()
                    if not left:
                        break
                    while any(not task.done() for task in left):
                        self._step()
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - what every event loop does
            self._closed = True
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - they are known
        return len(left)

    def _cancelled(self) -> list[asyncio.Task[Any]]:
        """Everything that has not ended, told to; what had not even begun begins first."""
        for place, _ in self.tasks:
            place.condition = "alive"
        here = {id(p): p for p, _ in self.tasks}.values()
        self._busy = sorted((p for p in here if p.queue), key=_number)
        for _ in range(sum(len(p.queue) for p in here) + 100):
            if self._busy:
                self._step()
        left = [task for _, task in self.tasks if not task.done()]
        for task in left:
            task.cancel()
        return left


def _number(place: Place) -> int:
    return place.number
