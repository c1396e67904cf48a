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

from msgspec.structs import replace

from cairn.core.budgets import Cap, Standing
from cairn.core.codec import GENESIS, Row, check_chain, seal
from cairn.core.commands import Command, Queue
from cairn.core.events import (
    BudgetsSet,
    Entry,
    Event,
    RunContinued,
    RunCreated,
    StorePruned,
)
from cairn.core.evolve import fold
from cairn.core.index import Index, Pending, index_of
from cairn.core.run_table import ERASED
from cairn.core.spending import Ledger, ledger_of
from cairn.core.state import RunState
from cairn.errors import (
    ConfigError,
    Fenced,
    Moved,
    RunErased,
    StoreClosed,
    UnknownRun,
)
from cairn.memory.embedding import Embedding
from cairn.memory.inmemory import InMemoryMemory, Tables
from cairn.memory.port import Memory
from cairn.ports import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo
from cairn.store.counting import Budgets, Spent
from cairn.store.erasing import Erases
from cairn.store.memory_lines import Journal, drivable, info_of, matches
from cairn.store.memory_sessions import SessionReads, Sessions, silence
from cairn.store.retention import ENDED_VALUES, prunable, settled
from cairn.store.sequence import check_gapless
from cairn.store.submission import respond
from cairn.store.waiting import ANYTHING, Waiters, wait

STORE_JOURNAL = "store"
"""The journal of facts that belong to no run."""


class Journals:
    """What outlives the process: all runs, and the inbox over them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: dict[str, Journal] = {}
        self.inbox: dict[str, Pending] = {}
        self.store = Journal(NewRun(run=STORE_JOURNAL, agent="", digest=""), Index(status=""))
        self.writes = 0
        self.made = 0
        self.waiters = Waiters()
        self.budgets = Budgets()
        self.facts = Tables()
        self.facts.noted = self.note
        self.sessions = Sessions(self.runs)

    def find(self, run: str) -> Journal:
        if run == STORE_JOURNAL:
            return self.store
        try:
            return self.runs[run]
        except KeyError:
            raise UnknownRun(f"there is no run {run!r} in this store") from None

    def readable(self, run: str) -> Journal:
        """The journal of a run that holds something."""
        journal = self.find(run)
        if journal.new.digest == ERASED:
            raise RunErased(run)
        return journal

    def written(self, journal: Journal, index: Index | None) -> None:
        """Bring the index rows up to date and wake who waits."""
        if index is not None:
            if journal.index.pending != index.pending:
                self._refile(journal.index.pending, index.pending)
            if journal.index.status in ENDED_VALUES and index.unread != journal.index.unread:
                index = replace(index, unread=journal.index.unread)
            journal.index = index
        self.writes += 1
        if self.waiters:
            self.waiters.wake(journal.new.run, journal.head)
            self.waiters.wake(ANYTHING, self.writes)

    def check_store(self, head: int, entries: Sequence[Entry]) -> None:
        """Refuse what was decided at another head of the journal `store`."""
        if self.store.head != head:
            raise Moved(f"the journal {STORE_JOURNAL!r} is at event {self.store.head}")
        check_gapless(STORE_JOURNAL, head, entries)

    def note(self, event: Event, now: int, actor: str) -> int:
        """Append one event to the journal `store`; the time it got."""
        with self.lock:
            at = max(now, self.store.updated_at)
            self.store.extend((Entry(seq=self.store.head + 1, at=at, event=event, actor=actor),))
            self.written(self.store, None)
            return at

    def owner_of(self, journal: Journal) -> Ledger:
        """For whom a run is charged: as its first event says, which a fork shares."""
        while journal.new.parent:
            journal = self.find(journal.new.parent)
        created = journal.entries[0].event
        return ledger_of(created) if isinstance(created, RunCreated) else Ledger()

    def spent(self) -> list[Spent]:
        """What every run has written, for counting."""
        return [
            (run, self.owner_of(journal), journal.entries)
            for run, journal in self.runs.items()
            if journal.new.digest != ERASED
        ]

    def _refile(self, old: tuple[Pending, ...], new: tuple[Pending, ...]) -> None:
        for gone in {item.id for item in old} - {item.id for item in new}:
            del self.inbox[gone]
        for item in new:
            self.inbox[item.id] = item  # one that was there keeps its place


class InMemoryStore(SessionReads, Erases):
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

    def _leased(self, journal: Journal) -> bool:
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
            if new.session and (into := journals.sessions.taken(new.run)):
                return self._info(journals.find(into))
            if new.parent and journals.readable(new.parent).head < new.parent_at:
                raise UnknownRun(f"run {new.parent!r} has no event {new.parent_at}")
            if new.session:
                journals.sessions.check(new)
                if not new.behind:
                    before = journals.sessions.head(new.session)
                    journals.sessions.read_by_another(before, new.session)
            check_gapless(new.run, new.parent_at, entries)
            journals.made += 1
            journal = Journal(new, Index(status=index.status), journals.made)
            journal.extend(entries)
            journal.created_at = entries[0].at if entries else 0
            journals.runs[new.run] = journal
            journals.written(journal, index)
            return None

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        self._check_open()
        with self.journals.lock:
            journal = self.journals.readable(run)
            behind = self.journals.sessions.before(journal) and not journal.cancel
            if self._leased(journal) or behind:
                return None
            previous: Literal["new", "released", "dead", "expired"]
            if journal.owner is not None:
                journal.doubt |= journal.owner.condition != "dead"
                previous = "expired" if journal.doubt else "dead"
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
        beside: Beside | None = None,
    ) -> None:
        """See `Store.append`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            journal = journals.find(run)
            if epoch != journal.epoch or not epoch:
                raise Fenced(f"run {run!r} was claimed by another owner since")
            if beside is not None:
                journals.check_store(beside.head, beside.entries)
            if entries:
                if entries[0].seq != journal.head + 1:
                    raise Moved(f"run {run!r} is at event {journal.head}")
                check_gapless(run, journal.head, entries)
                journals.budgets.charge(run, lambda: journals.owner_of(journal), entries)
                journal.extend(entries)
                journal.doubt = False
            for entry in entries:
                if isinstance(entry.event, RunContinued):
                    before = journals.runs.get(entry.event.previous.run)
                    journals.sessions.read_by_another(before, journal.new.session)
            if beside is not None and beside.entries:
                journals.store.extend(beside.entries)
                journals.written(journals.store, None)
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
            journal = journals.readable(run)
            state = fold(seen, self._read(run, seen.seq, journal.head))
            if isinstance(command, Queue) and journals.sessions.taken(command.id):
                return state, None
            state, entry = respond(state, command, now, actor)
            if entry is not None:
                journal.extend((entry,))
                journals.sessions.queued(run, (entry,))
                journals.written(journal, index_of(state))
            return state, entry

    async def keep(self, head: int, entries: Sequence[Entry]) -> None:
        """See `Store.keep`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            journals.check_store(head, entries)
            journals.sessions.check_facts(entries)
            journals.store.extend(entries)
            journals.sessions.keep(entries)
            journals.written(journals.store, None)

    def memory(self, embedding: Embedding | None = None) -> Memory:
        """The facts that are kept here."""
        return InMemoryMemory(self.journals.facts, embedding)

    async def set_budgets(self, caps: Sequence[Cap], now: int, actor: str = "") -> bool:
        """See `Store.set_budgets`."""
        self._check_open()
        journals = self.journals
        with journals.lock:
            if journals.budgets.caps == tuple(caps):
                return False
            store = journals.store
            fact = BudgetsSet(budgets=tuple(caps), by=actor)
            store.extend((Entry(seq=store.head + 1, at=max(now, store.updated_at), event=fact),))
            journals.budgets.set(caps, journals.spent())
            journals.written(store, None)
            return True

    async def recount(self, now: int) -> list[str]:
        """See `Store.recount`."""
        self._check_open()
        with self.journals.lock:
            return self.journals.budgets.recount(self.journals.spent())

    # ------------------------------------------------------------ reading

    async def budgets(self, now: int) -> list[Standing]:
        """See `Store.budgets`."""
        self._check_open()
        with self.journals.lock:
            return self.journals.budgets.standings(now)

    async def info(self, run: str) -> RunInfo:
        """See `Store.info`."""
        self._check_open()
        return self._info(self.journals.find(run))

    def _info(self, journal: Journal) -> RunInfo:
        behind = self.journals.sessions.before(journal)
        return info_of(journal, leased=self._leased(journal), behind=behind)

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        """See `Store.read`."""
        self._check_open()
        with self.journals.lock:
            return self._read(run, after, upto or self.journals.find(run).head)

    def _read(self, run: str, after: int, upto: int) -> list[Entry]:
        journal = self.journals.readable(run)
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

    def _sealed(self, journal: Journal) -> list[Row]:
        rows = journal.sealed
        previous = rows[-1].hash if rows else self._hash_before(journal)
        for entry in journal.entries[len(rows) :]:
            rows.append(seal(journal.new.run, entry, os.urandom(16), previous))
            previous = rows[-1].hash
        return rows

    def _hash_before(self, journal: Journal) -> bytes:
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
            if matches(journal, where):
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
            if not drivable(journal, known, now) or self._leased(journal):
                continue
            if journal.cancel or not self.journals.sessions.before(journal):
                found.append(journal.new.run)
        return found

    async def pending(self, limit: int = 100) -> list[Pending]:
        """See `Store.pending`."""
        self._check_open()
        return list(self.journals.inbox.values())[:limit]

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

    async def prune(
        self, before: int, dry_run: bool = False, session: str = "", now: int = 0
    ) -> Pruned:
        """See `Store.prune`."""
        self._check_open()
        journals, now = self.journals, now or time.time_ns() // 1000
        with journals.lock:
            lines = [self._info(journal) for journal in reversed(journals.runs.values())]
            forks = journals.sessions.unbegun(journals.store.entries, before, session)
            ties = journals.sessions.ties(forks)
            chosen = prunable(lines, before, self._is_settled, session, ties)
            over: set[str] = set()
            if not dry_run:
                had = {journals.runs[run].new.session for run in chosen} - {""}
                forks = {name for name in forks if journals.sessions.forget(name)}
                ended = forks | {name for run in chosen if (name := self._remove(run, now))}
                silence(journals.store, self._sealed(journals.store), ended, now)
                over = {name for name in had if not journals.sessions.of(name)}
            return Pruned(chosen, forks, over)

    def _is_settled(self, run: str) -> bool:
        return settled(run, lambda: self._read(run, 0, self.journals.find(run).head))

    def _remove(self, run: str, now: int) -> str:
        """Take a run out; its session, if it was the last one and something was said of that."""
        journal = self.journals.find(run)
        tombstone = StorePruned(
            run=run,
            head=journal.head,
            hash=self._sealed(journal)[-1].hash.hex(),
            status=journal.index.status,
        )
        store = self.journals.store
        at = max(now, store.updated_at)
        store.extend((Entry(seq=store.head + 1, at=at, event=tombstone),))
        del self.journals.runs[run]
        self.journals.sessions.removed(run)
        self.journals.budgets.pruned = True
        self.journals.written(store, None)
        session = journal.new.session
        return session if self.journals.sessions.forget(session) else ""

    async def backup(self, path: str) -> None:
        """See `Store.backup`: memory has no file to copy."""
        raise ConfigError("store", "a store in memory has no file to copy", "Use a file path")

    async def close(self) -> None:
        """See `Store.close`."""
        if self.condition == "alive":
            self.condition = "closed"

    def _shared(self) -> Journals:
        self._check_open()
        return self.journals

    def _check_open(self) -> None:
        if self.condition in {"closed", "dead"}:
            raise StoreClosed("this store was closed; open it again")
