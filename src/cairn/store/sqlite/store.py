"""The store on one SQLite file, and how the processes' users come to share it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, TypeVar, cast

import apsw
import msgspec

from cairn.core.budgets import Cap, Standing
from cairn.core.codec import Row
from cairn.core.commands import Command
from cairn.core.erasing import Erasure, Holdings
from cairn.core.events import Entry, RunRef
from cairn.core.index import Index, Pending
from cairn.core.messages import Principal, clean
from cairn.core.state import RunState
from cairn.errors import ConfigError, StoreClosed, UnsupportedStore, safe_repr
from cairn.memory.embedding import Embedding
from cairn.memory.port import Memory
from cairn.ports import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo, SessionInfo
from cairn.store.sqlite import (
    backup,
    erasing,
    journal,
    owners,
    pruning,
    queries,
    sessions,
    spending,
)
from cairn.store.sqlite.connection import Settings, abandon, open_writer
from cairn.store.sqlite.faults import translate
from cairn.store.sqlite.journal import Salts
from cairn.store.sqlite.lines import Line, info_of, pending_of_all
from cairn.store.sqlite.memory import Change, SqliteMemory
from cairn.store.sqlite.owners import Owners
from cairn.store.sqlite.readers import Readers
from cairn.store.sqlite.requests import (
    Append,
    Create,
    Keep,
    Recount,
    Remove,
    SetBudgets,
    Submit,
    Take,
)
from cairn.store.sqlite.watch import Watch
from cairn.store.sqlite.writer import Writer

T = TypeVar("T")


class SqliteStore:
    """Journals in one file; the contract is `Store`.

    `open_store` is the way to one: it shares one object between all users of a file.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.users = 1
        """How many have opened it and not closed it yet; kept by `open_sqlite`."""
        connection = open_writer(settings)
        try:
            written = connection.execute("SELECT 1 FROM run WHERE no > 0 LIMIT 1").fetchone()
        except apsw.Error as error:
            abandon(connection)
            raise translate(error, settings.path) from error
        self._connection = connection
        self._salts = Salts()
        self._owners = Owners(settings)
        self._readers = Readers(settings)
        self._watch = Watch(settings, self._owners, self._readers, 1 if written else 0)
        self._writer = Writer(settings, connection, self._owners, self._watch.wrote)
        self._parent = 0
        """In a forked child: the process that opened it."""
        _alive.add(self)

    @property
    def failed(self) -> bool:
        """Whether a fault of the disk, or a close, has put an end to this object."""
        return self._writer.fault is not None

    # ------------------------------------------------------------ writing

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        """See `Store.create`."""
        self._check_open()
        if new.run == "store":
            raise ConfigError("run", "the id 'store' is reserved", "Choose another id")
        request = Create(new, entries, index, self._salts)
        return cast("RunInfo | None", await self._writer.ask(request))

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        self._check_open()
        request = Take(run, self._writer.put_if_open)
        try:
            return cast("Claim | None", await self._writer.ask(request))
        except asyncio.CancelledError:
            request.forsaken()
            raise

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
        """See `Store.append`."""
        self._check_open()
        request = Append(run, epoch, entries, index, self._salts, release=release, beside=beside)
        await self._writer.ask(request)

    async def keep(self, head: int, entries: Sequence[Entry]) -> None:
        """See `Store.keep`."""
        self._check_open()
        await self._writer.ask(Keep(head, entries, self._salts))

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        """See `Store.submit`."""
        # what can be folded beforehand is not folded while others wait for the file
        seen = await self._read(lambda c: queries.folded(c, run, seen))
        request = Submit(run, seen, command, now, actor, self._salts)
        return cast("tuple[RunState, Entry | None]", await self._writer.ask(request))

    async def set_budgets(self, caps: Sequence[Cap], now: int, actor: str = "") -> bool:
        """See `Store.set_budgets`."""
        self._check_open()
        return cast("bool", await self._writer.ask(SetBudgets(caps, now, actor, self._salts)))

    async def recount(self, now: int) -> list[str]:
        """See `Store.recount`."""
        self._check_open()
        return cast("list[str]", await self._writer.ask(Recount(now)))

    # ------------------------------------------------------------ reading

    async def budgets(self, now: int) -> list[Standing]:
        """See `Store.budgets`."""
        return await self._read(lambda c: spending.standings(c, now))

    async def info(self, run: str) -> RunInfo:
        """See `Store.info`."""
        return await self._read(lambda c: queries.info(c, self._owners, run))

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        """See `Store.read`."""
        return await self._read(lambda c: queries.read(c, run, after, upto))

    async def rows(self, run: str) -> list[Row]:
        """See `Store.rows`."""
        return await self._read(lambda c: queries.rows(c, run))

    async def verify(self, run: str) -> int:
        """See `Store.verify`."""
        return await self._read(lambda c: journal.verify(c, run))

    async def runs(self, where: RunFilter) -> list[RunInfo]:
        """See `Store.runs`."""
        return await self._read(lambda c: queries.runs(c, self._owners, where))

    async def runnable(self, agents: Sequence[str], now: int, limit: int = 100) -> list[str]:
        """See `Store.runnable`."""
        return await self._read(lambda c: queries.runnable(c, self._owners, agents, now, limit))

    async def pending(self, limit: int = 100) -> list[Pending]:
        """See `Store.pending`."""
        return await self._read(lambda c: pending_of_all(c, limit))

    async def session_head(self, session: str) -> RunInfo | None:
        """See `Store.session_head`."""
        return await self._read(lambda c: self._shown(c, sessions.head(c, session)))

    def _shown(self, connection: apsw.Connection, line: Line | None) -> RunInfo | None:
        if line is None:
            return None
        leased = line.owner is not None and self._owners.fate(connection, line.owner) == "alive"
        return info_of(connection, line, leased=leased)

    async def session_open(self, session: str) -> list[RunInfo]:
        """See `Store.session_open`."""
        return await self._read(
            lambda c: [
                info
                for line in sessions.open_lines(c, session)
                if (info := self._shown(c, line)) is not None
            ]
        )

    async def sessions(
        self, principal: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[SessionInfo]:
        """See `Store.sessions`."""
        return await self._read(lambda c: sessions.listed(c, principal, limit, tenant))

    async def session(self, session: str) -> SessionInfo:
        """See `Store.session`."""
        return await self._read(lambda c: sessions.one(c, session))

    async def unread(self, agents: Sequence[str], limit: int = 100) -> list[str]:
        """See `Store.unread`."""
        return await self._read(lambda c: sessions.unread(c, agents, limit))

    async def message(self, id: str) -> RunRef | None:
        """See `Store.message`."""
        return await self._read(lambda c: sessions.message(c, id))

    # ------------------------------------------------------------ memory

    def memory(self, embedding: Embedding | None = None) -> Memory:
        """The facts that are kept in this file; open as long as the store is."""
        return SqliteMemory(self, embedding)

    async def change(self, request: Change) -> object:
        """A change of facts, in the writer's next transaction; its result once it is durable."""
        self._check_open()
        return await self._writer.ask(request)

    async def look(self, query: Callable[[apsw.Connection], T]) -> T:
        """What a function finds in one snapshot of the file."""
        return await self._read(query)

    async def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        self._check_open()
        return await self._readers.run(query)

    # ------------------------------------------------------------ waiting

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        """See `Store.changed`."""
        self._check_open()
        return await self._watch.changed(run, seq, timeout_s)

    async def news(self, seen: int, timeout_s: float) -> int:
        """See `Store.news`."""
        self._check_open()
        return await self._watch.news(seen, timeout_s)

    # ------------------------------------------------------------ the rest

    def lock_path(self, run: str, call: str) -> str:
        """See `Store.lock_path`."""
        self._owners.make_folders()
        return self._owners.call_lock(run, call)

    def call_alive(self, run: str, call: str) -> bool:
        """See `Store.call_alive`."""
        return owners.is_shared(self._owners.call_lock(run, call))

    async def prune(
        self, before: int, dry_run: bool = False, session: str = "", now: int = 0
    ) -> Pruned:
        """See `Store.prune`."""
        forks = await self._read(lambda c: sessions.unbegun(c, before, session))
        chosen = await self._read(lambda c: pruning.choose(c, self._owners, before, session))
        if dry_run:
            return Pruned([run for run, _ in chosen], forks)
        now = now or time.time_ns() // 1000
        removed: list[str] = []
        unbegun: list[str] = []
        over: list[str] = []
        for at in range(0, max(len(chosen), 1), pruning.RUNS_AT_ONCE):
            part = chosen[at : at + pruning.RUNS_AT_ONCE]
            request = Remove(part, before, now, self._salts, forks)
            went = cast("Pruned", await self._writer.ask(request))
            removed += went
            unbegun += went.forks
            over += went.sessions
        for run in removed:
            self._owners.forget_calls(run)
        return Pruned(removed, unbegun, over)

    async def holdings(
        self, principal: Principal, facts: Collection[int] | None = None
    ) -> Holdings:
        """See `Store.holdings`."""
        return await self._read(lambda c: erasing.holdings(c, self._owners, principal, facts))

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erasure:
        """See `Store.erase`."""
        self._check_open()
        request = erasing.Erase(principal, now, clean(actor), clean(reason), self._salts)
        erased = cast("Erasure", await self._writer.ask(request))
        for run in erased.runs:
            self._owners.forget_calls(run)
        return msgspec.structs.replace(erased, cleared=request.clearing.done)

    async def backup(self, path: str) -> None:
        """See `Store.backup`."""
        await self._read(lambda c: backup.back_up(c, path))

    async def close(self) -> None:
        """See `Store.close`."""
        if self._parent:
            return  # a forked child has nothing of its own to close
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        with _registry_lock:
            self.users -= 1
            if self.users > 0:
                return
            if _open.get(self.settings.path) is self:
                del _open[self.settings.path]
        self._watch.stop()
        self._readers.close()
        self._writer.stop()
        _alive.discard(self)

    def _check_open(self) -> None:
        if self._parent:
            raise StoreClosed(
                f"this store belongs to process {self._parent}, which this one was forked from. "
                "Open it after the fork, or start processes with 'spawn'"
            )
        fault = self._writer.fault
        if fault is not None:
            raise type(fault)(str(fault))

    def _forked(self) -> None:
        import ctypes

        self._parent = os.getppid()
        self._owners.forked()
        for connection in (self._connection, *self._readers.connections()):
            # closing it here would meddle with the parent's file: it is kept for ever instead
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# ---------------------------------------------------------------- one object for each file

_registry_lock = threading.Lock()
_open: dict[str, SqliteStore] = {}
_alive: set[SqliteStore] = set()
_inherited: set[str] = set()
"""Files a parent process had open at the fork: the library's picture of their locks is wrong."""


def open_sqlite(path: str, *, durability: Literal["full", "process"] = "full") -> SqliteStore:
    """See `cairn.store.open_store`."""
    if durability not in ("full", "process"):
        raise ConfigError(
            "durability", f"{safe_repr(durability)} is not known", "Write 'full' or 'process'"
        )
    real = os.path.realpath(path)
    if real in _inherited:
        raise UnsupportedStore(
            f"{path} was open in the process that this one was forked from. "
            "Open it after the fork only, or start processes with 'spawn'"
        )
    with _registry_lock:
        store = _open.get(real)
        if store is not None and not store.failed:
            if store.settings.durability != durability:
                raise ConfigError(
                    "durability",
                    f"{path} is open in this process with {store.settings.durability!r}",
                    f"Open it with durability={store.settings.durability!r}",
                )
            store.users += 1
            return store
        store = SqliteStore(Settings(path=real, durability=durability))
        _open[real] = store
        return store


def restore(backup_path: str | Path, path: str | Path) -> None:
    """See `cairn.store.restore`."""
    source, target = os.path.realpath(backup_path), os.path.realpath(path)
    with _registry_lock:
        used = {store.settings.path for store in _alive} | _inherited
        if source in used or target in used:
            raise UnsupportedStore("the store is open in this process: close it first")
        backup.restore(source, target)


def _in_forked_child() -> None:
    global _registry_lock  # noqa: PLW0603 - the parent's lock may be held for ever here
    _registry_lock = threading.Lock()
    for store in _alive:
        _inherited.add(store.settings.path)
        store._forked()  # noqa: SLF001 - this module's own class
    _open.clear()
    owners.forget_left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
