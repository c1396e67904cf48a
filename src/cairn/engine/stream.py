"""Driving a run and yielding, in order, what happens in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress

from cairn.core.events import Entry
from cairn.engine.given import check_seq
from cairn.engine.host import Host
from cairn.engine.notify import Notifier
from cairn.engine.worker import drive
from cairn.ports import Observed, Store

QUEUE = 10_000
"""Observations kept for a slow reader; past that deltas are dropped, events are read again."""
POLL_S = 0.25


class _Seen:
    """What was observed and not yet yielded; any thread may observe."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Observed | None] = asyncio.Queue(QUEUE)
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()

    def observe(self, _: str, what: Observed | None) -> None:
        if threading.get_ident() == self._home:
            self._put(what)
            return
        with suppress(RuntimeError):  # the loop is closed: nobody looks any more
            self._loop.call_soon_threadsafe(self._put, what)

    def _put(self, what: Observed | None) -> None:
        if not self.queue.full():
            self.queue.put_nowait(what)


async def stream_run(
    store: Store, run: str, host: Host, notifier: Notifier | None, after: int
) -> AsyncGenerator[Observed]:
    """Yield every event after `after` exactly once and in order, and deltas between them.

    Ends when the run is over or waits for people. Closing the iterator early stops driving the
    run here; it stays resumable.

    Raises:
        UnknownRun: there is no such run, or `after` is no event of it.
    """
    if after:
        check_seq(run, after, (await store.info(run)).head)
    seen = _Seen()
    stop = host.watchers.watch(run, seen.observe)
    driver = asyncio.create_task(drive(store, run, host, notifier))
    # nobody waits for a poll at the end
    driver.add_done_callback(lambda _: seen.observe(run, None))
    try:
        while not driver.done() or not seen.queue.empty():
            try:
                async with asyncio.timeout(POLL_S):
                    what = await seen.queue.get()
            except TimeoutError:
                for entry in await store.read(run, after=after):  # driven somewhere else
                    after = entry.seq
                    yield entry
                continue
            if what is None:
                continue
            if not isinstance(what, Entry):
                yield what
                continue
            if what.seq > after + 1:
                for entry in await store.read(run, after=after, upto=what.seq - 1):
                    after = entry.seq
                    yield entry
            if what.seq > after:
                after = what.seq
                yield what
        for entry in await store.read(run, after=after):
            after = entry.seq
            yield entry
        await driver
    finally:
        stop()
        if not driver.done():
            driver.cancel()
            await asyncio.wait({driver})
        elif not driver.cancelled():
            driver.exception()  # seen, also when something else was raised before it
