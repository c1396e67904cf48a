"""Waiting for code of the deployment, bounded and with an ear for news of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from cairn.engine.flights import QUICK_S, Flights
from cairn.engine.journal import OpenJournal
from cairn.ports import Store

T = TypeVar("T")

TASK_S = 60.0
"""Deadline of everything the deployment's own code is asked for."""
LISTEN_S = 0.25
"""How soon the wish to stop is noticed at the latest."""


async def attend(
    work: Awaitable[T], what: str, store: Store, journal: OpenJournal, flights: Flights
) -> tuple[T] | None:
    """What comes of it, as a tuple of one; None when the run is to stop or pause first.

    Raises:
        TimeoutError: it takes too long; `what` names it.
        Whatever it raises itself.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    ends = loop.time() + TASK_S
    try:
        await asyncio.wait({task}, timeout=QUICK_S)
        while not task.done():
            if flights.stopping or await _has_news(task, store, journal):
                return None
            if loop.time() >= ends:
                raise TimeoutError(f"{what} took longer than {TASK_S:g} s")
        return (task.result(),)
    finally:
        task.cancel()


async def _has_news(task: asyncio.Future[T], store: Store, journal: OpenJournal) -> bool:
    """Wait a moment; whether the journal now says that nothing new shall be started."""
    state = journal.state
    news = asyncio.ensure_future(store.changed(state.run, journal.head, LISTEN_S))
    try:
        both: set[asyncio.Future[Any]] = {task, news}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not news.done() or not news.result():
            return False
    finally:
        news.cancel()
    await journal.catch_up()
    state = journal.state
    return state.cancel is not None or state.paused or state.end is not None
