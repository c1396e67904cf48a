"""Driving: one run until it settles, or every run there are agents for."""

from __future__ import annotations

import asyncio
import logging

from cairn.core.lifecycle import ENDED
from cairn.core.state import RunState
from cairn.engine.advance import carry
from cairn.engine.client import settled
from cairn.engine.drive import Directive
from cairn.engine.ends import asked_for
from cairn.engine.host import Host
from cairn.engine.notify import Notifier
from cairn.engine.turns import take_over
from cairn.errors import CairnError, words_of
from cairn.ports import RunInfo, Store

POLL_S = 1.0
"""How often a run that somebody else holds, and the run table, are looked at without news."""
OVER = frozenset(status.value for status in ENDED)
BACKOFF_S = 30.0
"""How long a run that cannot be driven here is left alone."""

log = logging.getLogger("cairn")


async def drive(
    store: Store, run: str, host: Host, notifier: Notifier | None = None
) -> RunState | None:
    """Drive a run until it is over or needs people. If somebody else drives it, follow.

    Returns the state it was driven to, None when somebody else did it.

    Raises:
        UnknownRun, UnknownAgent, StoreError: as `advance`.
    """
    while True:
        directive, state = await carry(store, run, host)
        if directive.kind == "done":
            return state
        info = await store.info(run)
        match directive.kind:
            case "more":
                if host.draining:
                    return state
            case "wait":
                if settled(info):
                    if notifier is not None:
                        await notifier.waiting(store, run)
                        info = await store.info(run)
                        if not settled(info):  # decided while people were being told
                            continue
                    return state if state is not None and info.head == state.seq else None
            case "later":
                await _until(store, run, directive, host)
                if host.draining:
                    return None
            case "busy":
                if host.draining or not await _stand_by(store, info, host, notifier):
                    return None


async def _stand_by(store: Store, info: RunInfo, host: Host, notifier: Notifier | None) -> bool:
    """Follow a run that cannot be claimed, or carry on what it waits behind.

    False when only people can bring it further.
    """
    if not info.behind and settled(info):
        return False
    ahead = await store.info(info.behind) if info.behind else info
    if ahead.status in OVER:
        return True
    if settled(ahead):
        return False
    if info.behind and ahead.agent in host.agents:
        await drive(store, ahead.run, host, notifier)
    else:
        await store.changed(ahead.run, ahead.head, POLL_S)
    return True


async def _until(store: Store, run: str, directive: Directive, host: Host) -> None:
    """Wait for the directive's time, for news of the run, or for this process to drain."""
    seconds = max((directive.until - host.clock.now_us()) / 1e6, 0.001)
    time_up = asyncio.ensure_future(host.clock.sleep(seconds))
    try:
        while not time_up.done() and not host.draining:
            news = asyncio.ensure_future(store.changed(run, directive.head, POLL_S))
            try:
                await asyncio.wait({time_up, news}, return_when=asyncio.FIRST_COMPLETED)
                if news.done() and news.result():
                    return
            finally:
                news.cancel()
    finally:
        time_up.cancel()


class Worker:
    """Drives all runs of a store that this process has agents for.

    Args:
        concurrency: Runs driven at the same time.
    """

    def __init__(
        self,
        store: Store,
        host: Host,
        *,
        concurrency: int = 256,
        notifier: Notifier | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self._notifier = notifier
        self._concurrency = concurrency
        self._active: dict[str, asyncio.Task[None]] = {}
        self._left_alone: dict[str, float] = {}

    async def work(self, *, until_idle: bool = False) -> None:
        """Drive runs until `stop`, or until none is left that could be driven."""
        if self._notifier is not None:
            await self._notifier.waiting_all(self._store)
        token = 0
        try:
            while not self._host.draining:
                active = bool(self._active)  # what ends while we look may free another run
                started = await self._pick_up()
                if until_idle and not started and not active and not self._active:
                    return
                token = await self._next(token)
        finally:
            await self._land()

    async def _next(self, token: int) -> int:
        """Wait until something was written or a run has settled."""
        news = asyncio.ensure_future(self._store.news(token, POLL_S))
        await asyncio.wait({news, *self._active.values()}, return_when=asyncio.FIRST_COMPLETED)
        if not news.done():
            news.cancel()
            return token
        return news.result()

    async def _pick_up(self) -> int:
        free = self._concurrency - len(self._active)
        if free <= 0:
            return 0
        loop = asyncio.get_running_loop()
        await self._take_over()
        runs = await self._store.runnable(
            sorted(self._host.agents), self._host.clock.now_us(), limit=free + len(self._active)
        )
        started = 0
        for run in runs[:]:
            if run in self._active or self._left_alone.get(run, 0.0) > loop.time():
                continue
            self._active[run] = loop.create_task(self._drive(run), name=f"cairn run {run}")
            started += 1
        return started

    async def _take_over(self) -> None:
        """Start the runs that messages are owed which an ended run left unread."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for run in await self._store.unread(sorted(self._host.agents)):
            if self._left_alone.get(run, 0.0) > loop.time():
                continue
            try:
                await take_over(self._store, run, self._host)
            except BaseException as error:  # one run's fault must not end the worker
                if asked_for(error, task):
                    raise
                self._leave_alone(run, error, "what run %s left unread waits for %g s: %s")

    async def _drive(self, run: str) -> None:
        task = asyncio.current_task()
        try:
            await drive(self._store, run, self._host, self._notifier)
        except BaseException as error:  # one run's agent must not stop the others, nor spin
            if asked_for(error, task):
                raise
            self._leave_alone(run, error, "run %s is left alone for %g s: %s")
        finally:
            del self._active[run]

    def _leave_alone(self, run: str, error: BaseException, said: str) -> None:
        """Back off from a run after a fault, and say so."""
        trace = None if isinstance(error, CairnError) else error
        log.warning(said, run, BACKOFF_S, words_of(error), exc_info=trace)
        self._left_alone[run] = asyncio.get_running_loop().time() + BACKOFF_S

    async def _land(self) -> None:
        """Let what is in flight come to its end; nothing new is started meanwhile."""
        before, self._host.draining = self._host.draining, True
        try:
            while self._active:
                await asyncio.wait(set(self._active.values()))
        finally:
            self._host.draining = before

    def stop(self) -> None:
        """Start nothing new; `work` returns when what is in flight has landed."""
        self._host.draining = True
