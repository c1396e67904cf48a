"""The sync side: one event loop in a thread of its own, and verbs that run in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from cairn.errors import SyncInsideLoop

T = TypeVar("T")


class Portal:
    """Runs coroutines in a background loop for callers that have none."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result.

        Raises:
            SyncInsideLoop: an event loop is running in this thread.
        """
        refuse_inside_loop(work)
        future = asyncio.run_coroutine_threadsafe(work, self.loop())
        return self._wait(future)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, one at a time."""
        refuse_inside_loop(None)
        loop = self.loop()
        try:
            while True:
                try:
                    following = asyncio.run_coroutine_threadsafe(_next(items), loop)
                    yield self._wait(following)
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                asyncio.run_coroutine_threadsafe(close(), loop).result()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The background loop, started on first use."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="cairn loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop the loop, if it was ever started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    @staticmethod
    def _wait(future: Future[T]) -> T:
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


def refuse_inside_loop(work: Coroutine[Any, Any, Any] | None) -> None:
    """Raise `SyncInsideLoop` when an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if work is not None:
        work.close()
    raise SyncInsideLoop(
        "this is a sync call inside a running event loop; await its _async twin instead"
    )
