"""Waiting for the deployment's code, or for a provider's lane, with an ear for news of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

from cairn.engine.flights import QUICK_S, Flights
from cairn.engine.journal import OpenJournal
from cairn.errors import ErrorClass
from cairn.ports import Lane, Permit, Store

T = TypeVar("T")

TASK_S = 60.0
"""Deadline of everything the deployment's own code is asked for."""
LISTEN_S = 0.25
"""How soon the wish to stop is noticed at the latest."""


async def attend(
    work: Awaitable[T],
    what: str,
    store: Store,
    journal: OpenJournal,
    flights: Flights,
    *,
    bounded: bool = True,
) -> tuple[T] | None:
    """What comes of it, as a tuple of one; None when the run is to stop or pause first.

    What is not `bounded` here has bounds of its own.

    Raises:
        TimeoutError: it takes too long; `what` names it.
        Whatever it raises itself.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    ends = loop.time() + TASK_S if bounded else inf
    try:
        await asyncio.wait({task}, timeout=QUICK_S)
        while not task.done():
            if flights.stopping or await _has_news(task, store, journal):
                return None
            if loop.time() >= ends:
                raise TimeoutError(f"{what} took longer than {TASK_S:g} s")
        if task.cancelled():  # nobody here did that
            raise RuntimeError(f"{what} was cancelled, though nobody has cancelled the run")
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


async def stand_in_line(
    lane: Lane,
    tokens: int,
    store: Store,
    journal: OpenJournal,
    flights: Flights,
    draining: Callable[[], bool],
) -> Permit | None:
    """Leave to make a request, however long it takes; None when there is news, or a wish to stop.

    Something of the run that lands is news as well. A permit that came too late is closed.
    """
    entering = asyncio.ensure_future(lane.enter(tokens))
    kept = False
    try:
        while await _nothing_new(entering, store, journal, flights, draining):
            if entering.done():
                kept = True
                return entering.result()
        return None
    finally:
        if not kept:
            await _leave(entering)


async def _nothing_new(
    entering: asyncio.Future[Permit],
    store: Store,
    journal: OpenJournal,
    flights: Flights,
    draining: Callable[[], bool],
) -> bool:
    """Wait until somebody is let in or there is news; whether the wait may go on."""
    state = journal.state
    news = asyncio.ensure_future(flights.wait(store, state.run, journal.head))
    both: set[asyncio.Future[Any]] = {entering, news}
    try:
        while not (entering.done() or news.done() or draining()):
            await asyncio.wait(both, timeout=LISTEN_S, return_when=asyncio.FIRST_COMPLETED)
        if news.done():
            if news.result():
                return False
            await journal.catch_up()
    finally:
        news.cancel()
        await asyncio.wait({news})  # until it is over, nobody else can wait for flights
    return journal.state is state and not flights.stopping and not draining()


async def _leave(entering: asyncio.Future[Permit]) -> None:
    """Give up a place in line, and what had been given for it already."""
    if not entering.done():
        entering.cancel()
        await asyncio.wait({entering})
    if not entering.cancelled() and entering.exception() is None:
        entering.result().close(ErrorClass.CANCELLED)
