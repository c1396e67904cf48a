"""How many sync tools may run at once in this process. Threads nobody waits for count as well."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

MAX_THREADS = 64


class Slots:
    """A counter that many threads and event loops share; who waits longest is served first.

    Args:
        limit: How many may be held at once.
    """

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """How many may be held at once."""
        return self._limit

    @property
    def taken(self) -> int:
        """How many are held now."""
        return self._taken

    def try_acquire(self) -> bool:
        """Take a slot if one is free."""
        with self._lock:
            if self._taken >= self._limit:
                return False
            self._taken += 1
            return True

    async def acquire(self) -> None:
        """Take a slot, waiting in line until one is free."""
        with self._lock:
            if self._taken < self._limit:
                self._taken += 1
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given and cannot be used
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back, or hand it to who waits longest. From any thread."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(self._give, turn)
                except RuntimeError:  # that loop is closed: nobody waits there any more
                    continue
                return
            self._taken -= 1

    def _give(self, turn: asyncio.Future[None]) -> None:
        if turn.cancelled():
            self.release()
        else:
            turn.set_result(None)


SLOTS = Slots()
"""The slots of this process."""
