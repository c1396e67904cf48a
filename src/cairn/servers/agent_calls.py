"""Runs on behalf of somebody at the other end of a wire: started, followed, cancelled, told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from cairn.core import commands as cmd
from cairn.core.events import Entry
from cairn.core.messages import Principal, Record
from cairn.core.views.words import words
from cairn.engine.client import new_id
from cairn.engine.result import Run
from cairn.errors import CairnError, ConfigError, UnknownRun
from cairn.runtime import Runtime

BAD_ENDS = frozenset({"failed", "stopped", "cancelled"})
LOOK_S = 5.0
TRACE_LINES = 500

OnEntry = Callable[[str, Entry], Awaitable[None]]


class Told(Record, gc=True):
    """What the other end is told of a run.

    Args:
        text: For people and models.
        data: The same as data: run id, status, what it waits for, class of fault.
        ok: Whether it did not end badly; a run that waits did not.
    """

    text: str
    data: dict[str, Any]
    ok: bool = True


class AgentCalls:
    """A runtime's agents, for one principal.

    Args:
        runtime: Whose agents.
        agents: Names of those that are offered; all by default.
        principal: For whom their runs work.
        tasks: What an agent does when it is called without an input, by its name.

    Raises:
        UnknownAgent: one of the names is none.
    """

    def __init__(
        self,
        runtime: Runtime,
        agents: Sequence[str] = (),
        principal: Principal | None = None,
        tasks: Mapping[str, str] | None = None,
    ) -> None:
        self._runtime = runtime
        self.principal = principal or Principal()
        self.agents = tuple(agents) or tuple(sorted(runtime.host.agents))
        self.tasks = dict(tasks or {})
        for name in (*self.agents, *self.tasks):
            runtime.agent(name)
        self._driven: set[asyncio.Task[Run]] = set()

    async def call(self, agent: str, input: str, run: str, on_entry: OnEntry) -> Told:
        """Start a run or go on with it, until it has a result or waits for people.

        When the caller is cancelled the run goes on in this process; `cancel` ends it.

        Args:
            run: Its id; the same task under the same id is one run. Empty for a fresh one.
            on_entry: Told what is written, as it is.
        """
        try:
            run = await self._runtime.enqueue_async(agent, input, id=run, principal=self.principal)
            driven = asyncio.create_task(self._runtime.drive_async(run), name=f"cairn run {run}")
            self._driven.add(driven)
            driven.add_done_callback(self._let_go)
            await self._follow(run, driven, on_entry)
            return told(await asyncio.shield(driven))
        except CairnError as error:
            return refused(run, error)

    async def _follow(self, run: str, driven: asyncio.Task[Run], on_entry: OnEntry) -> None:
        store, after = self._runtime.store, 0
        while True:
            ended = driven.done()
            for entry in await store.read(run, after=after):
                after = entry.seq
                await on_entry(run, entry)
            if ended:
                return
            news = asyncio.ensure_future(store.changed(run, after, LOOK_S))
            try:
                await asyncio.wait({news, driven}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
                with suppress(asyncio.CancelledError, CairnError):
                    await news

    def _let_go(self, driven: asyncio.Task[Run]) -> None:
        self._driven.discard(driven)
        if not driven.cancelled():
            driven.exception()  # seen: whoever waited was told, or has gone

    async def cancel(self, run: str, reason: str) -> None:
        """End a run; what is in flight is recorded as it stands."""
        with suppress(CairnError):  # it has ended meanwhile, or never began
            await self._runtime.client.submit(run, cmd.Cancel(reason=reason), self.principal.id)

    async def look(self, run: str) -> dict[str, Any]:
        """A run's result and what happened in it, if it is one of this principal's.

        Raises:
            UnknownRun: there is no such run, or it is somebody else's.
        """
        info = await self._runtime.store.info(run)
        entries = await self._runtime.trace_async(run)
        created: Any = entries[0].event
        owner = getattr(created, "principal", None)
        if info.agent not in self.agents or owner != self.principal:
            raise UnknownRun(f"there is no run {run!r}")
        lines = [f"{e.seq} {e.event.NAME} {words(e.event)}".rstrip() for e in entries]
        found = told(await self._runtime.get_async(run))
        return {**found.data, "text": found.text, "trace": lines[-TRACE_LINES:]}

    async def close(self) -> None:
        """Start nothing new and let what is in flight land; runs that are not over can go on."""
        self._runtime.host.draining = True
        if self._driven:
            await asyncio.wait(set(self._driven))


def told(run: Run) -> Told:
    """How a run stands, for the other end."""
    data: dict[str, Any] = {"run_id": run.id, "status": run.status}
    if run.reason:
        data["reason"] = run.reason
    if run.error_class:
        data["error_class"] = run.error_class
    if run.limit:
        data["limit"] = run.limit
    if run.output is not None:
        with suppress(TypeError, ValueError, NotImplementedError):
            data["output"] = msgspec.to_builtins(run.output)
    if run.pending:
        data["pending"] = [
            {"id": p.id, "kind": p.kind, "call": p.call, "tool": p.tool, "detail": p.detail}
            for p in run.pending
        ]
    return Told(text=_text(run), data=data, ok=run.status not in BAD_ENDS)


def _text(run: Run) -> str:
    if run.status not in {"waiting", "paused"}:
        return run.text
    wanted = "\n".join(f"- {each}" for each in run.pending)
    return (
        f"Run {run.id} is {run.status}"
        f"{f' for people ({run.reason})' if run.reason else ''}:\n{wanted or '- a resume'}\n"
        f"Nothing is lost: once that is decided, the same call with run_id {run.id!r} goes on.\n\n"
        f"{run.text}"
    )


def refused(run: str, error: CairnError) -> Told:
    """Why nothing could be done, typed."""
    data: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    if run:
        data["run_id"] = run
    if isinstance(error, ConfigError):
        data["field"] = error.field
    return Told(text=str(error), data=data, ok=False)


def fresh_id() -> str:
    """A run id for a call that names none."""
    return new_id()
