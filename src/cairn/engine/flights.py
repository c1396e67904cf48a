"""What a run has at work at the moment: one task each, and a way to wait for the next to land."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from cairn.engine.backs import Back
from cairn.ports import Store

QUICK_S = 0.05
"""How long a flight may take before the run starts to listen for news from elsewhere."""


class Flights:
    """The open flights of one run, by key: `model`, `task`, a call id, or `probe` and a call id."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Task[Back]] = {}
        self._landed: list[asyncio.Task[Back]] = []
        self._waiter: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._open) or bool(self._landed)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def launch(self, key: str, work: Coroutine[Any, Any, Back]) -> None:
        """Set something to work; its key must be free."""
        task = asyncio.get_running_loop().create_task(work, name=f"cairn {key}")
        self._open[key] = task

        def landed(done: asyncio.Task[Back]) -> None:
            del self._open[key]
            self._landed.append(done)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

        task.add_done_callback(landed)

    def landed(self) -> list[Back]:
        """What has landed since the last call, in order."""
        done, self._landed = self._landed, []
        return [task.result() for task in done]

    async def wait(self, store: Store, run: str, head: int) -> bool:
        """Wait until something lands; False when news came first."""
        if self._landed:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(QUICK_S, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        if self._landed:
            return True
        return await self._wait_long(store, run, head)

    async def _wait_long(self, store: Store, run: str, head: int) -> bool:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        news = loop.create_task(store.changed(run, head, 3600.0))
        try:
            await asyncio.wait({waiter, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiter = None
            if not news.done():
                news.cancel()
        return bool(self._landed)

    async def halt(self) -> None:
        """Cancel all that is open and wait until each has said what came of it."""
        for task in tuple(self._open.values()):
            task.cancel()
        while self._open:
            await asyncio.wait(set(self._open.values()))


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
