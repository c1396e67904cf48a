"""The sync side: one event loop in a thread of its own, and verbs that run in it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from cairn.errors import SyncInsideLoop

T = TypeVar("T")
log = logging.getLogger("cairn")


class Portal:
    """Runs coroutines in a background loop for callers that have none.

    Args:
        interrupted: Called with True at the first Ctrl-C during a call, and with False once what
            was in flight has landed, or a second Ctrl-C came.
    """

    def __init__(self, interrupted: Callable[[bool], None]) -> None:
        self._interrupted = interrupted
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def call(self, work: Coroutine[Any, Any, T], verb: str = "") -> T:
        """The coroutine's result.

        Raises:
            SyncInsideLoop: an event loop is running in this thread.
            KeyboardInterrupt: after what was in flight has landed, or at once the second time.
        """
        try:
            refuse_inside_loop(verb)
        except SyncInsideLoop:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self.loop())
        return self._wait(future)

    def iterate(self, items: AsyncIterator[T], verb: str = "") -> Iterator[T]:
        """The items of an async iterator, one at a time."""
        refuse_inside_loop(verb)
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
                self._stopped = threading.Event()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop, self._stopped), name="cairn loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop the loop, if it was ever started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            self._stopped.set()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _wait(self, future: Future[T]) -> T:
        try:
            return future.result()
        except KeyboardInterrupt:
            self._interrupted(True)
            try:
                with suppress(Exception):  # whatever came of it, the caller wants to stop
                    future.result()
            except KeyboardInterrupt:
                future.cancel()
            finally:
                self._interrupted(False)
            raise


def _serve(loop: asyncio.AbstractEventLoop, stopped: threading.Event) -> None:
    """Run the loop until it is stopped.

    A task that raises `SystemExit` breaks the loop off, and whoever waits elsewhere for another
    would wait for ever. It is that task's end and nothing else: its own caller gets it.
    """
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            log.warning("%s was raised in the background; its caller gets it", type(error).__name__)
            if not stopped.is_set():
                continue
        return


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


def refuse_inside_loop(verb: str) -> None:
    """Raise `SyncInsideLoop` when an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if verb == "with":
        cure = "write `async with Runtime(...)` in place of `with`"
    else:
        cure = f"write `await rt.{verb}_async(...)` in place of `rt.{verb}(...)`"
    raise SyncInsideLoop(f"an event loop is running here, as in asyncio code and notebooks: {cure}")
