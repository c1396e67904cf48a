"""An event loop in a thread of its own, for what outlives the loops of those who use it.

A runtime may be used from several loops, and one after another; a connection belongs to one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cairn.errors import SyncInsideLoop

T = TypeVar("T")


def refuse_on_a_loop(verb: str) -> None:
    """Raise `SyncInsideLoop` when an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SyncInsideLoop(f"an event loop is running here: await {verb}_async(...)")


class Side:
    """Runs coroutines elsewhere, for whoever awaits them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What it gives. Cancelling the waiter cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work(), self._running())
        return await asyncio.wrap_future(future)

    @property
    def begun(self) -> bool:
        """Whether the thread was started."""
        return self._loop is not None

    def stop(self) -> None:
        """End the thread; what is still at work in it is cancelled first. It can begin again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=f"cairn mcp {self._name}", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
