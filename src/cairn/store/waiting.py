"""Who waits for news of a store, on whichever event loop, and how they are woken."""

from __future__ import annotations

import asyncio
import threading

ANYTHING = ""
"""The key of those who wait for a write to any run; its position is a token, not a seq."""


class _Waiter:
    __slots__ = ("after", "future", "loop", "thread")

    def __init__(self, after: int) -> None:
        self.after = after
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[int] = self.loop.create_future()
        self.thread = threading.get_ident()

    def settle(self, position: int) -> None:
        """Hand the position over, from whatever thread this is called on."""
        if self.thread == threading.get_ident():
            self._set(position)
            return
        try:
            self.loop.call_soon_threadsafe(self._set, position)
        except RuntimeError:  # the loop is closed: nobody waits there any more
            return

    def _set(self, position: int) -> None:
        if not self.future.done():
            self.future.set_result(position)


class Waiters:
    """The waiting room: keyed by run, woken by whoever writes.

    A waiter names the position it has seen and is woken by the first position past it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[_Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def runs(self) -> list[str]:
        """The runs somebody waits for."""
        with self._lock:
            return [run for run in self._waiting if run != ANYTHING]

    def add(self, run: str, after: int) -> _Waiter:
        """Start to wait; look at the present position only after this, or news is missed."""
        waiter = _Waiter(after)
        with self._lock:
            self._waiting.setdefault(run, set()).add(waiter)
        return waiter

    def leave(self, run: str, waiter: _Waiter) -> None:
        """Stop to wait, woken or not."""
        with self._lock:
            here = self._waiting.get(run)
            if here is not None:
                here.discard(waiter)
                if not here:
                    del self._waiting[run]

    def wake(self, run: str, position: int) -> None:
        """Tell everybody who waits for this run, and has not seen as much."""
        with self._lock:
            due = [w for w in self._waiting.get(run, ()) if w.after < position]
        for waiter in due:
            waiter.settle(position)


async def wait(waiter: _Waiter, timeout_s: float) -> int | None:
    """The position that woke the waiter, or None after the time-out."""
    done, _ = await asyncio.wait((waiter.future,), timeout=max(0.0, timeout_s))
    return waiter.future.result() if done else None
