"""A process's store that fails as disks and processes do, around the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from cairn.core.budgets import Cap, Standing
from cairn.core.codec import Row
from cairn.core.commands import Command
from cairn.core.erasing import Erasure, Holdings
from cairn.core.events import Entry, RunRef
from cairn.core.index import Index, Pending
from cairn.core.messages import Principal
from cairn.core.state import RunState
from cairn.errors import StoreBusy, StoreClosed, StoreFailed
from cairn.memory.embedding import Embedding
from cairn.memory.port import Memory
from cairn.ports import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo, SessionInfo, Store
from cairn.testing.simulation.facts import FaultyMemory

if TYPE_CHECKING:
    from cairn.testing.simulation.process import Process

T = TypeVar("T")
STRETCH = 5.0
"""How much longer than asked news is waited for: looking less often makes no other story."""

OF_PROCESSES = {
    "store: crash before the commit": 0.006,
    "store: crash after the commit": 0.006,
    "store: acknowledgement lost": 0.003,
    "store: disk full": 0.003,
    "store: busy": 0.01,
    "store: slow": 0.02,
    "process: frozen before the commit": 0.008,
    "process: frozen after the commit": 0.008,
}
"""How likely each way of a write to go wrong is, in a process that works."""
LOSING = {"store: acknowledgement lost", "store: disk full", "store: busy"}
"""After these a process may have lost what it knew."""
OF_PEOPLE = {"store: busy": 0.02, "store: acknowledgement lost": 0.01, "store: slow": 0.02}
OF_READS = {"store: read busy": 0.002}


class FaultyStore:
    """One process's store. What fails is drawn; what was acknowledged is kept as a witness."""

    def __init__(self, process: Process, inner: Store) -> None:
        self.inner = inner
        self._process = process
        self._world = process.world
        self._broken = False
        self._faults = OF_PEOPLE if process.is_people else OF_PROCESSES

    # ------------------------------------------------------------ going wrong

    def _check(self) -> None:
        if self._process.gone:
            raise StoreClosed("the process is gone")
        if self._broken:
            raise StoreFailed("the disk failed. Open the store again")

    async def _write(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        self._check()
        process, world = self._process, self._world
        if world.loop.spins():
            await world.loop.create_future()
        kind = world.chance.incident(f"{process.name} {what}", self._faults)
        process.troubled |= kind in LOSING
        if kind == "store: slow":
            await asyncio.sleep(world.chance.draw("slow") * 1.5)
            self._check()
        elif kind == "store: busy":
            raise StoreBusy("others held the file for too long; nothing was written")
        elif kind == "store: disk full":
            self._fail()
        elif kind == "store: crash before the commit":
            await process.crash()
        elif kind == "process: frozen before the commit":
            await process.freeze_now()
            self._check()
        result = await work()
        if kind == "process: frozen after the commit":
            await process.freeze_now()
        if kind == "store: crash after the commit":
            await process.crash()
        elif kind == "store: acknowledgement lost":
            self._fail()
        return result

    def _fail(self) -> None:
        """After a fault of the disk the object is void, and its process is replaced."""
        if self._process.is_people:  # who only asks opens it again at once
            self._world.disk.die(self.inner)
            self.inner = self._world.disk.open()
        else:
            self._broken = True
            self._process.replace_soon()
        raise StoreFailed("the disk failed. Open the store again")

    async def _read(self, work: Callable[[], Awaitable[T]]) -> T:
        self._check()
        if self._world.loop.spins():
            await self._world.loop.create_future()
        if self._world.chance.incident(f"{self._process.name} read", OF_READS):
            self._process.troubled = True
            raise StoreBusy("others held the file for too long")
        return await work()

    # ------------------------------------------------------------ writing

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        found = await self._write("create", lambda: self._create(new, entries, index))
        if found is None:
            self._world.witness.acknowledged(new.run, entries)
        return found

    async def _create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        found = await self.inner.create(new, entries, index)
        if found is None:
            self._world.witness.lines.created(new, entries)
        return found

    async def claim(self, run: str) -> Claim | None:
        return await self._write("claim", lambda: self._claim(run))

    async def _claim(self, run: str) -> Claim | None:
        found = await self.inner.claim(run)
        if found is not None:
            self._world.witness.claimed(run, found.epoch)
        return found

    async def append(
        self,
        run: str,
        epoch: int,
        entries: Sequence[Entry],
        index: Index | None,
        *,
        release: bool = False,
        beside: Beside | None = None,
    ) -> None:
        async def work() -> None:
            await self.inner.append(run, epoch, entries, index, release=release, beside=beside)
            self._world.witness.wrote(run, epoch)
            self._world.witness.lines.appended(run, entries)
            self._world.witness.grants.appended(run, entries, beside)

        await self._write("append", work)
        self._world.witness.acknowledged(run, entries)

    async def keep(self, head: int, entries: Sequence[Entry]) -> None:
        async def work() -> None:
            await self.inner.keep(head, entries)
            self._world.witness.grants.kept(entries)
            self._world.witness.lines.kept(entries)

        await self._write("keep", work)

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        async def work() -> tuple[RunState, Entry | None]:
            state, entry = await self.inner.submit(run, seen, command, now, actor)
            if entry is not None:
                self._world.witness.grants.submitted(run, entry)
                self._world.witness.lines.appended(run, (entry,))
            return state, entry

        state, entry = await self._write("submit", work)
        if entry is not None:
            self._world.witness.acknowledged(run, (entry,))
        return state, entry

    def memory(self, embedding: Embedding | None = None) -> Memory:
        """The facts that are kept here, which fail as all else does."""

        def inner() -> Memory:
            found: Memory = self.inner.memory(embedding)  # type: ignore[attr-defined]  # it has one
            return found

        return FaultyMemory(inner, self._write, self._read, self._world.witness.facts)

    async def prune(
        self, before: int, dry_run: bool = False, session: str = "", now: int = 0
    ) -> Pruned:
        async def work() -> Pruned:
            gone = await self.inner.prune(before, dry_run, session, now)
            if not dry_run:
                self._world.witness.lines.removed(gone, gone.forks)
            return gone

        return await self._write("prune", work)

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erasure:
        async def work() -> Erasure:
            erased = await self.inner.erase(principal, now, actor=actor, reason=reason)
            self._world.witness.facts.erased(principal, erased.facts)
            self._world.witness.lines.principal_erased(principal, erased)
            return erased

        return await self._write("erase", work)

    # ------------------------------------------------------------ reading

    async def info(self, run: str) -> RunInfo:
        return await self._read(lambda: self.inner.info(run))

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        return await self._read(lambda: self.inner.read(run, after, upto))

    async def rows(self, run: str) -> list[Row]:
        return await self._read(lambda: self.inner.rows(run))

    async def verify(self, run: str) -> int:
        return await self._read(lambda: self.inner.verify(run))

    async def set_budgets(self, caps: Sequence[Cap], now: int, actor: str = "") -> bool:
        return await self._write("set budgets", lambda: self.inner.set_budgets(caps, now, actor))

    async def budgets(self, now: int) -> list[Standing]:
        return await self._read(lambda: self.inner.budgets(now))

    async def recount(self, now: int) -> list[str]:
        return await self._write("recount", lambda: self.inner.recount(now))

    async def runs(self, where: RunFilter) -> list[RunInfo]:
        return await self._read(lambda: self.inner.runs(where))

    async def runnable(self, agents: Sequence[str], now: int, limit: int = 100) -> list[str]:
        return await self._read(lambda: self.inner.runnable(agents, now, limit))

    async def pending(self, limit: int = 100) -> list[Pending]:
        return await self._read(lambda: self.inner.pending(limit))

    async def session_head(self, session: str) -> RunInfo | None:
        return await self._read(lambda: self.inner.session_head(session))

    async def session_open(self, session: str) -> list[RunInfo]:
        return await self._read(lambda: self.inner.session_open(session))

    async def session(self, session: str) -> SessionInfo:
        return await self._read(lambda: self.inner.session(session))

    async def sessions(
        self, principal: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[SessionInfo]:
        return await self._read(lambda: self.inner.sessions(principal, limit, tenant))

    async def unread(self, agents: Sequence[str], limit: int = 100) -> list[str]:
        return await self._read(lambda: self.inner.unread(agents, limit))

    async def message(self, id: str) -> RunRef | None:
        return await self._read(lambda: self.inner.message(id))

    # ------------------------------------------------------------ waiting and the rest

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        self._check()
        return await self.inner.changed(run, seq, timeout_s * STRETCH)

    async def news(self, seen: int, timeout_s: float) -> int:
        self._check()
        return await self.inner.news(seen, timeout_s * STRETCH)

    def lock_path(self, run: str, call: str) -> str:
        return self.inner.lock_path(run, call)

    def call_alive(self, run: str, call: str) -> bool:
        return self.inner.call_alive(run, call)

    async def holdings(
        self, principal: Principal, facts: Collection[int] | None = None
    ) -> Holdings:
        return await self._read(lambda: self.inner.holdings(principal, facts))

    async def backup(self, path: str) -> None:
        await self.inner.backup(path)

    async def close(self) -> None:
        if not self._process.gone and not self._broken:
            await self.inner.close()

    def __repr__(self) -> str:
        return f"<store of {self._process.name}>"
