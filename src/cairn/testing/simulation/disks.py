"""Where the journals of a simulated world lie: in memory, or in a real SQLite file.

A store of a world is opened once per process. A file's store has threads of its own; here each of
its operations is waited for in full before anything else happens, so a seed stays one story.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Collection, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from cairn.core.budgets import Cap, Standing
from cairn.core.codec import Row
from cairn.core.commands import Command
from cairn.core.erasing import Erasure, Holdings
from cairn.core.events import Entry, RunRef
from cairn.core.index import Index, Pending
from cairn.core.messages import Principal
from cairn.core.state import RunState
from cairn.errors import CairnError
from cairn.memory.embedding import Embedding
from cairn.ports import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo, SessionInfo, Store
from cairn.store.inmemory import InMemoryStore, Journals
from cairn.store.sqlite import owners
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.store.waiting import ANYTHING, wait


class Disk(Protocol):
    """What outlives the processes of a world."""

    def open(self) -> Store:
        """The journals as a new process sees them."""
        ...

    def die(self, store: Store) -> None:
        """The process that opened it is gone."""
        ...

    def freeze(self, store: Store) -> None:
        """Its process has not been heard of for longer than its lease."""
        ...

    def wake(self, store: Store) -> None:
        """Its process is heard of again."""
        ...

    def close(self) -> None:
        """The world is over."""
        ...


class _Waiter:
    def __init__(self, after: int) -> None:
        self.after = after
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class InOrder:
    """A waiting room whose guests are woken in the order they came: the same for the same seed."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[_Waiter, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, run: str, after: int) -> Any:
        waiter = _Waiter(after)
        self._waiting.setdefault(run, {})[waiter] = None
        return waiter

    def leave(self, run: str, waiter: Any) -> None:
        here = self._waiting.get(run)
        if here is not None:
            here.pop(waiter, None)
            if not here:
                del self._waiting[run]

    def wake(self, run: str, position: int) -> None:
        for waiter in tuple(self._waiting.get(run, ())):
            if waiter.after < position and not waiter.future.done():
                waiter.future.set_result(position)


class Memory:
    """Journals in memory."""

    def __init__(self) -> None:
        self._journals = Journals()
        self._journals.waiters = cast("Any", InOrder())

    def open(self) -> Store:
        return InMemoryStore(self._journals)

    def die(self, store: Store) -> None:
        cast("InMemoryStore", store).crash()

    def freeze(self, store: Store) -> None:
        cast("InMemoryStore", store).freeze()

    def wake(self, store: Store) -> None:
        memory = cast("InMemoryStore", store)
        if memory.condition == "frozen":
            memory.condition = "alive"

    def close(self) -> None:
        self._journals = Journals()


class _Elsewhere:
    """A real event loop in a thread, for the operations of a store that has threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class File:
    """Journals in one SQLite file, opened once per process as separate processes do."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="cairn-simulation-")
        self._elsewhere = _Elsewhere()
        self._opened: list[SqliteStore] = []
        self.waiters = InOrder()
        self.writes = 0
        self._poll, owners.POLL_US = owners.POLL_US, 0  # real seconds mean nothing in here

    def open(self) -> Store:
        path = str(Path(self._folder) / "cairn.db")
        store = SqliteStore(Settings(path=os.path.realpath(path), durability="process"))
        self._opened.append(store)
        return cast("Store", _Waited(self, store, self._elsewhere))

    def die(self, store: Store) -> None:
        held = cast("_Waited", store).real._owners  # noqa: SLF001 - as the store's own tests do
        if held._lock is not None:  # noqa: SLF001 - as the store's own tests do
            os.close(held._lock)  # noqa: SLF001 - as the store's own tests do
            held._lock = None  # noqa: SLF001 - as the store's own tests do

    def freeze(self, store: Store) -> None:
        real = cast("_Waited", store).real
        token = real._owners.token  # noqa: SLF001 - as the store's own tests do
        self._elsewhere.do(_beat(real, token))

    def wake(self, store: Store) -> None:
        cast("_Waited", store).real._owners.undone()  # noqa: SLF001 - its line is renewed next

    def close(self) -> None:
        owners.POLL_US = self._poll
        for store in self._opened:
            with suppress(CairnError, OSError):
                self._elsewhere.do(store.close())
        self._elsewhere.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


async def _beat(real: SqliteStore, token: str) -> None:
    """Make an owner's line look as if it had not been renewed for long."""
    connection = real._writer._connection  # noqa: SLF001 - as the store's own tests do
    connection.execute("UPDATE owner SET beat = ? WHERE token = ?", (owners.LONG_AGO, token))


class _Waited:
    """A store with threads, each of whose operations is waited for at once."""

    def __init__(self, disk: File, real: SqliteStore, elsewhere: _Elsewhere) -> None:
        self.real = real
        self._disk = disk
        self._elsewhere = elsewhere

    def _wrote(self, run: str, head: int) -> None:
        disk = self._disk
        disk.writes += 1
        disk.waiters.wake(run, head)
        disk.waiters.wake(ANYTHING, disk.writes)

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        found: RunInfo | None = self._elsewhere.do(self.real.create(new, entries, index))
        self._wrote(new.run, entries[-1].seq)
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
        work = self.real.append(run, epoch, entries, index, release=release, beside=beside)
        self._elsewhere.do(work)
        self._wrote(run, entries[-1].seq if entries else 0)

    async def keep(self, head: int, entries: Sequence[Entry]) -> None:
        self._elsewhere.do(self.real.keep(head, entries))
        self._wrote("store", entries[-1].seq if entries else 0)

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        state, entry = self._elsewhere.do(self.real.submit(run, seen, command, now, actor))
        if entry is not None:
            self._wrote(run, entry.seq)
        return state, entry

    async def claim(self, run: str) -> Claim | None:
        found: Claim | None = self._elsewhere.do(self.real.claim(run))
        return found

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        waiters = self._disk.waiters
        waiter = waiters.add(run, seq)
        try:
            if (await self.info(run)).head > seq:
                return True
            return await wait(waiter, timeout_s) is not None
        finally:
            waiters.leave(run, waiter)

    async def news(self, seen: int, timeout_s: float) -> int:
        waiters = self._disk.waiters
        waiter = waiters.add(ANYTHING, seen)
        try:
            if self._disk.writes <= seen:
                await wait(waiter, timeout_s)
            return self._disk.writes
        finally:
            waiters.leave(ANYTHING, waiter)

    async def _do(self, work: Awaitable[Any]) -> Any:
        return self._elsewhere.do(cast("Coroutine[Any, Any, Any]", work))

    def memory(self, embedding: Embedding | None = None) -> Any:
        return _MemoryWaited(self.real.memory(embedding), self._elsewhere)

    async def prune(
        self, before: int, dry_run: bool = False, session: str = "", now: int = 0
    ) -> Pruned:
        gone = cast("Pruned", await self._do(self.real.prune(before, dry_run, session, now)))
        self._wrote("store", 0)
        return gone

    async def holdings(
        self, principal: Principal, facts: Collection[int] | None = None
    ) -> Holdings:
        return cast("Holdings", await self._do(self.real.holdings(principal, facts)))

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erasure:
        work = self.real.erase(principal, now, actor=actor, reason=reason)
        erased = cast("Erasure", await self._do(work))
        for run in erased.runs:
            self._wrote(run, 0)
        self._wrote("store", 0)
        return erased

    async def info(self, run: str) -> RunInfo:
        return cast("RunInfo", await self._do(self.real.info(run)))

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        return cast("list[Entry]", await self._do(self.real.read(run, after, upto)))

    async def rows(self, run: str) -> list[Row]:
        return cast("list[Row]", await self._do(self.real.rows(run)))

    async def verify(self, run: str) -> int:
        return cast("int", await self._do(self.real.verify(run)))

    async def set_budgets(self, caps: Sequence[Cap], now: int, actor: str = "") -> bool:
        return cast("bool", await self._do(self.real.set_budgets(caps, now, actor)))

    async def budgets(self, now: int) -> list[Standing]:
        return cast("list[Standing]", await self._do(self.real.budgets(now)))

    async def recount(self, now: int) -> list[str]:
        return cast("list[str]", await self._do(self.real.recount(now)))

    async def runs(self, where: RunFilter) -> list[RunInfo]:
        return cast("list[RunInfo]", await self._do(self.real.runs(where)))

    async def runnable(self, agents: Sequence[str], now: int, limit: int = 100) -> list[str]:
        return cast("list[str]", await self._do(self.real.runnable(agents, now, limit)))

    async def pending(self, limit: int = 100) -> list[Pending]:
        return cast("list[Pending]", await self._do(self.real.pending(limit)))

    async def session_head(self, session: str) -> RunInfo | None:
        return cast("RunInfo | None", await self._do(self.real.session_head(session)))

    async def session_open(self, session: str) -> list[RunInfo]:
        return cast("list[RunInfo]", await self._do(self.real.session_open(session)))

    async def session(self, session: str) -> SessionInfo:
        return cast("SessionInfo", await self._do(self.real.session(session)))

    async def sessions(
        self, principal: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[SessionInfo]:
        found = await self._do(self.real.sessions(principal, limit, tenant))
        return cast("list[SessionInfo]", found)

    async def unread(self, agents: Sequence[str], limit: int = 100) -> list[str]:
        return cast("list[str]", await self._do(self.real.unread(agents, limit)))

    async def message(self, id: str) -> RunRef | None:
        return cast("RunRef | None", await self._do(self.real.message(id)))

    def lock_path(self, run: str, call: str) -> str:
        return ""

    def call_alive(self, run: str, call: str) -> bool:
        return False

    async def close(self) -> None:
        """The file is closed when the world is over."""


class _MemoryWaited:
    """The memory of such a store: what it does is waited for at once as well."""

    def __init__(self, real: Any, elsewhere: _Elsewhere) -> None:
        self._real = real
        self._elsewhere = elsewhere

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)

        async def waited(*args: Any, **options: Any) -> Any:
            return self._elsewhere.do(method(*args, **options))

        return waited
