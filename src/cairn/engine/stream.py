"""Driving a run and yielding, in order, what happens in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from cairn.core.events import Entry
from cairn.engine.given import check_seq
from cairn.engine.host import Host
from cairn.engine.notify import Notifier
from cairn.engine.worker import drive
from cairn.ports import Observed, Store

QUEUE = 10_000
"""Observations kept for a slow reader; past that deltas are dropped, events are read again."""
POLL_S = 0.25


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
    queue: asyncio.Queue[Observed | None] = asyncio.Queue(QUEUE)

    def observe(_: str, what: Observed | None) -> None:
        if not queue.full():
            queue.put_nowait(what)

    stop = host.watchers.watch(run, observe)
    driver = asyncio.create_task(drive(store, run, host, notifier))
    driver.add_done_callback(lambda _: observe(run, None))  # nobody waits for a poll at the end
    try:
        while not driver.done() or not queue.empty():
            try:
                async with asyncio.timeout(POLL_S):
                    what = await queue.get()
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
