"""The reference model: journals in memory, as simple as the contract allows.

Every other store is tested beside this one. Rows are sealed (salted, hashed, chained) only when
somebody asks for them. Several `InMemoryStore` objects on the same `Journals` stand for several
processes on one file; `crash` and `freeze` stand for what can happen to a process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Literal

from cairn.core.codec import GENESIS, Row, check_chain, seal
from cairn.core.commands import Command
from cairn.core.events import Entry, RunCancelRequested, StorePruned
from cairn.core.evolve import fold
from cairn.core.index import Index, Pending, index_of
from cairn.core.state import RunState
from cairn.errors import (
    ConfigError,
    Fenced,
    IllegalTransition,
    Moved,
    SessionBusy,
    StoreClosed,
    UnknownRun,
)
from cairn.ports import Claim, NewRun, RunFilter, RunInfo
from cairn.store.retention import ENDED_VALUES, prunable, settled
from cairn.store.submission import respond, session_moved
from cairn.store.waiting import ANYTHING, Waiters, wait

STORE_JOURNAL = "store"
"""The journal of facts that belong to no run."""


class _Journal:
    """A run's line and its own entries."""

    __slots__ = (
        "cancel",
        "created_at",
        "entries",
        "epoch",
        "head",
        "index",
        "new",
        "owner",
        "sealed",
        "updated_at",
    )

    def __init__(self, new: NewRun, index: Index) -> None:
        self.new = new
        self.index = index
        self.entries: list[Entry] = []
        self.head = new.parent_at
        self.epoch = 0
        self.owner: InMemoryStore | None = None
        self.cancel = False
        self.created_at = 0
        self.updated_at = 0
        self.sealed: list[Row] = []

    def extend(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self.entries += entries
        self.head = entries[-1].seq
        self.updated_at = entries[-1].at
        for entry in entries:
            if type(entry.event) is RunCancelRequested:
                self.cancel = True


class Journals:
    """What outlives the process: all runs, and the inbox over them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: dict[str, _Journal] = {}
        self.inbox: dict[str, Pending] = {}
        self.store = _Journal(NewRun(run=STORE_JOURNAL, agent="", digest=""), Index(status=""))
        self.writes = 0
        self.waiters = Waiters()

    def find(self, run: str) -> _Journal:
        if run == STORE_JOURNAL:
            return self.store
        try:
            return self.runs[run]
        except KeyError:
            raise UnknownRun(f"there is no run {run!r} in this store") from None

    def written(self, journal: _Journal, index: Index | None) -> None:
        """Bring the index rows up to date and wake who waits."""
        if index is not None:
            if journal.index.pending != index.pending:
                self._refile(journal.index.pending, index.pending)
            journal.index = index
        self.writes += 1
        if self.waiters:
            self.waiters.wake(journal.new.run, journal.head)
            self.waiters.wake(ANYTHING, self.writes)

    def _refile(self, old: tuple[Pending, ...], new: tuple[Pending, ...]) -> None:
        for gone in {item.id for item in old} - {item.id for item in new}:
            del self.inbox[gone]
        for item in new:
            self.inbox[item.id] = item  # one that was there keeps its place


class InMemoryStore:
    """A store for tests, demos and runs that need not survive the process.

    Args:
        journals: Shared with another object to stand for a second process; fresh by default.
    """

    def __init__(self, journals: Journals | None = None) -> None:
        self.journals = journals or Journals()
        self.condition: Literal["alive", "frozen", "closed", "dead"] = "alive"
        """What has become of the process this object stands for."""

    # ------------------------------------------------------------ processes, for tests

    def beside(self) -> InMemoryStore:
        """The same journals as another process sees them."""
        return InMemoryStore(self.journals)

    def crash(self) -> None:
        """The process is gone: its claims are free, and it says nothing more."""
        self.condition = "dead"

    def freeze(self) -> None:
        """The process has not been heard of for too long; it may yet wake up and write."""
        self.condition = "frozen"

    def _leased(self, journal: _Journal) -> bool:
        owner = journal.owner
        return owner is self or (owner is not None and owner.condition == "alive")

    # ------------------------------------------------------------ writing

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        """See `Store.create`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            if new.run == STORE_JOURNAL:
                raise ConfigError("run", "the id 'store' is reserved", "Choose another id")
            taken = journals.runs.get(new.run)
            if taken is not None:
                return self._info(taken)
            if new.parent and journals.find(new.parent).head < new.parent_at:
                raise UnknownRun(f"run {new.parent!r} has no event {new.parent_at}")
            if new.session:
                self._check_session(new.session, new.previous)
            check_gapless(new.run, new.parent_at, entries)
            journal = _Journal(new, Index(status=index.status))
            journal.extend(entries)
            journal.created_at = entries[0].at if entries else 0
            journals.runs[new.run] = journal
            journals.written(journal, index)
            return None

    def _check_session(self, session: str, previous: str | None) -> None:
        runs = [j for j in reversed(self.journals.runs.values()) if j.new.session == session]
        for journal in runs:
            if journal.index.status not in ENDED_VALUES:
                raise SessionBusy(session, journal.new.run)
        if previous is not None and previous != (runs[0].new.run if runs else ""):
            raise session_moved(session)

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        self._check_open()
        with self.journals.lock:
            journal = self.journals.find(run)
            if self._leased(journal):
                return None
            previous: Literal["new", "released", "dead", "expired"]
            if journal.owner is not None:
                previous = "dead" if journal.owner.condition == "dead" else "expired"
            else:
                previous = "released" if journal.epoch else "new"
            journal.epoch += 1
            journal.owner = self
            return Claim(epoch=journal.epoch, head=journal.head, previous=previous)

    async def append(
        self,
        run: str,
        epoch: int,
        entries: Sequence[Entry],
        index: Index | None,
        *,
        release: bool = False,
    ) -> None:
        """See `Store.append`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            journal = journals.find(run)
            if epoch != journal.epoch or not epoch:
                raise Fenced(f"run {run!r} was claimed by another owner since")
            if entries:
                if entries[0].seq != journal.head + 1:
                    raise Moved(f"run {run!r} is at event {journal.head}")
                check_gapless(run, journal.head, entries)
                journal.extend(entries)
            if release:
                journal.owner = None
            journals.written(journal, index)

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        """See `Store.submit`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            journal = journals.find(run)
            state = fold(seen, self._read(run, seen.seq, journal.head))
            state, entry = respond(state, command, now, actor)
            if entry is not None:
                journal.extend((entry,))
                journals.written(journal, index_of(state))
            return state, entry

    # ------------------------------------------------------------ reading

    async def info(self, run: str) -> RunInfo:
        """See `Store.info`."""
        self._check_open()
        return self._info(self.journals.find(run))

    def _info(self, journal: _Journal) -> RunInfo:
        return _info(journal, leased=self._leased(journal))

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        """See `Store.read`."""
        self._check_open()
        with self.journals.lock:
            return self._read(run, after, upto or self.journals.find(run).head)

    def _read(self, run: str, after: int, upto: int) -> list[Entry]:
        journal = self.journals.find(run)
        shared = journal.new.parent_at
        found: list[Entry] = []
        if journal.new.parent and after < shared:
            found = self._read(journal.new.parent, after, min(upto, shared))
        if upto > shared:
            found = found + journal.entries[max(0, after - shared) : upto - shared]
        return found

    async def rows(self, run: str) -> list[Row]:
        """See `Store.rows`."""
        self._check_open()
        with self.journals.lock:
            return list(self._sealed(self.journals.find(run)))

    def _sealed(self, journal: _Journal) -> list[Row]:
        rows = journal.sealed
        previous = rows[-1].hash if rows else self._hash_before(journal)
        for entry in journal.entries[len(rows) :]:
            rows.append(seal(journal.new.run, entry, os.urandom(16), previous))
            previous = rows[-1].hash
        return rows

    def _hash_before(self, journal: _Journal) -> bytes:
        """The hash a journal's first own row chains to: a fork goes on from its parent's."""
        at = journal.new.parent_at
        while journal.new.parent:
            journal = self.journals.find(journal.new.parent)
            if at > journal.new.parent_at:
                return self._sealed(journal)[at - journal.new.parent_at - 1].hash
        return GENESIS

    async def verify(self, run: str) -> int:
        """See `Store.verify`."""
        self._check_open()
        with self.journals.lock:
            journal = self.journals.find(run)
            while True:
                rows = self._sealed(journal)
                check_chain(journal.new.run, rows, self._hash_before(journal))
                if not journal.new.parent:
                    return self.journals.find(run).head
                journal = self.journals.find(journal.new.parent)

    async def runs(self, where: RunFilter) -> list[RunInfo]:
        """See `Store.runs`."""
        self._check_open()
        found: list[RunInfo] = []
        for journal in reversed(list(self.journals.runs.values())):
            if len(found) == where.limit:
                break
            if _matches(journal, where):
                found.append(self._info(journal))
        return found

    async def runnable(self, agents: Sequence[str], now: int, limit: int = 100) -> list[str]:
        """See `Store.runnable`."""
        self._check_open()
        known = frozenset(agents)
        found: list[str] = []
        for journal in list(self.journals.runs.values()):
            if len(found) == limit:
                break
            if _drivable(journal, known, now) and not self._leased(journal):
                found.append(journal.new.run)
        return found

    async def pending(self, limit: int = 100) -> list[Pending]:
        """See `Store.pending`."""
        self._check_open()
        return list(self.journals.inbox.values())[:limit]

    async def session_head(self, session: str) -> RunInfo | None:
        """See `Store.session_head`."""
        found = await self.runs(RunFilter(session=session, limit=1))
        return found[0] if found and session else None

    # ------------------------------------------------------------ waiting

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        """See `Store.changed`."""
        self._check_open()
        waiters = self.journals.waiters
        waiter = waiters.add(run, seq)
        try:
            if self.journals.find(run).head > seq:
                return True
            return await wait(waiter, timeout_s) is not None
        finally:
            waiters.leave(run, waiter)

    async def news(self, seen: int, timeout_s: float) -> int:
        """See `Store.news`."""
        self._check_open()
        waiters = self.journals.waiters
        waiter = waiters.add(ANYTHING, seen)
        try:
            if self.journals.writes <= seen:
                await wait(waiter, timeout_s)
            return self.journals.writes
        finally:
            waiters.leave(ANYTHING, waiter)

    # ------------------------------------------------------------ the rest

    def lock_path(self, run: str, call: str) -> str:
        """See `Store.lock_path`: nothing of this store is on disk."""
        return ""

    def call_alive(self, run: str, call: str) -> bool:
        """See `Store.call_alive`: without a lock file nothing can be said to live."""
        return False

    async def prune(self, before: int, dry_run: bool = False) -> list[str]:
        """See `Store.prune`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            lines = [self._info(journal) for journal in reversed(journals.runs.values())]
            chosen = prunable(lines, before, self._is_settled)
            if not dry_run:
                for run in chosen:
                    self._remove(run)
            return chosen

    def _is_settled(self, run: str) -> bool:
        return settled(run, lambda: self._read(run, 0, self.journals.find(run).head))

    def _remove(self, run: str) -> None:
        journal = self.journals.find(run)
        tombstone = StorePruned(
            run=run,
            head=journal.head,
            hash=self._sealed(journal)[-1].hash.hex(),
            status=journal.index.status,
        )
        store = self.journals.store
        at = max(time.time_ns() // 1000, store.updated_at)
        store.extend((Entry(seq=store.head + 1, at=at, event=tombstone),))
        del self.journals.runs[run]
        self.journals.written(store, None)

    async def backup(self, path: str) -> None:
        """See `Store.backup`: memory has no file to copy."""
        raise ConfigError("store", "a store in memory has no file to copy", "Use a file path")

    async def close(self) -> None:
        """See `Store.close`."""
        if self.condition == "alive":
            self.condition = "closed"

    def _check_open(self) -> None:
        if self.condition in {"closed", "dead"}:
            raise StoreClosed("this store was closed; open it again")


def check_gapless(run: str, head: int, entries: Sequence[Entry]) -> None:
    """Refuse entries that would leave a gap.

    Raises:
        IllegalTransition: an entry does not follow the one before it.
    """
    for entry in entries:
        head += 1
        if entry.seq != head:
            raise IllegalTransition(f"{run}: event {entry.seq} cannot stand where {head} must")


def _drivable(journal: _Journal, agents: frozenset[str], now: int) -> bool:
    index = journal.index
    if index.status in ENDED_VALUES:
        return False
    if journal.cancel:
        return True
    if journal.new.agent not in agents:
        return False
    if index.status in {"queued", "running"}:
        return True
    return index.status == "waiting" and 0 < index.wake_at <= now


def _matches(journal: _Journal, where: RunFilter) -> bool:
    new = journal.new
    return (
        (not where.status or journal.index.status in where.status)
        and where.agent in {"", new.agent}
        and where.session in {"", new.session}
        and where.principal in {"", new.principal}
    )


def _info(journal: _Journal, *, leased: bool) -> RunInfo:
    new, index = journal.new, journal.index
    return RunInfo(
        run=new.run,
        agent=new.agent,
        session=new.session,
        principal=new.principal,
        head=journal.head,
        status=index.status,
        waits=index.waits,
        wake_at=index.wake_at,
        leased=leased,
        digest=new.digest,
        parent=new.parent,
        parent_at=new.parent_at,
        created_at=journal.created_at,
        updated_at=journal.updated_at,
        steps=index.steps,
        tokens=index.tokens,
        micro_usd=index.micro_usd,
    )
