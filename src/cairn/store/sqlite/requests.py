"""What callers ask of the writer: each request is applied inside the writer's transaction.

The rule for all of them: check first, then change. A request that is refused with one of the
house's own errors has changed nothing, and the others of its batch go on.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Literal, final

from cairn.core.budgets import Cap, counted_alike
from cairn.core.codec import GENESIS
from cairn.core.commands import Command, Queue
from cairn.core.events import (
    BudgetsSet,
    Entry,
    RunContinued,
)
from cairn.core.evolve import fold
from cairn.core.index import Index, index_of
from cairn.core.run_table import ERASED
from cairn.core.spending import spending_of
from cairn.core.state import RunState
from cairn.errors import Fenced, Moved, RunErased, UnknownRun
from cairn.ports import Beside, Claim, NewRun, Pruned, RunInfo
from cairn.store.retention import previous_in
from cairn.store.sqlite import sessions
from cairn.store.sqlite.journal import (
    OF_SESSIONS,
    Prepared,
    Salts,
    asks_to_cancel,
    entries_of,
    hash_at,
    prepare,
)
from cairn.store.sqlite.lines import Line, ahead_of, info_of
from cairn.store.sqlite.pruning import remove
from cairn.store.sqlite.sessions import unbegun
from cairn.store.sqlite.spending import uncounted, wrong_counters
from cairn.store.sqlite.transaction import Transaction
from cairn.store.submission import respond

STORE = "store"
"""The journal of facts that belong to no run."""


class Request(ABC):
    """One wish, and the future its caller waits on."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = self.loop.create_future()

    @property
    def withdrawn(self) -> bool:
        """Whether its caller was cancelled before it was taken."""
        return self.future.cancelled()

    def forsaken(self) -> None:
        """Its caller was cancelled; the answer may be there already, just not looked at."""
        if self.future.done() and not self.future.cancelled() and not self.future.exception():
            self.unheard(self.future.result())

    def unheard(self, result: object) -> None:  # noqa: B027 - most have nothing to take back
        """It was done, but its caller was cancelled meanwhile and will never know."""

    @abstractmethod
    def apply(self, tx: Transaction) -> object:
        """Do it, or refuse with nothing changed; the result is handed over after the commit."""


class Append(Request):
    """The owner's write."""

    __slots__ = (
        "begins",
        "beside",
        "cancel",
        "epoch",
        "facts",
        "index",
        "prepared",
        "release",
        "run",
        "spending",
    )

    def __init__(
        self,
        run: str,
        epoch: int,
        entries: Sequence[Entry],
        index: Index | None,
        salts: Salts,
        *,
        release: bool,
        beside: Beside | None = None,
    ) -> None:
        super().__init__()
        self.run = run
        self.epoch = epoch
        self.beside = beside
        self.facts = prepare(STORE, beside.entries, salts) if beside is not None else []
        self.prepared = prepare(run, entries, salts)
        self.cancel = asks_to_cancel(entries)
        self.begins = [entry for entry in entries if type(entry.event) is RunContinued]
        self.spending = spending_of(entries)
        self.index = index
        self.release = release

    def apply(self, tx: Transaction) -> None:
        line = tx.line(self.run)
        prepared = self.prepared
        if self.epoch != line.epoch or not self.epoch:
            if line.owner != tx.owners.token:
                tx.driven.discard(self.run)
            raise Fenced(f"run {self.run!r} was claimed by another owner since")
        if prepared and prepared[0].seq != line.head + 1:
            raise Moved(f"run {self.run!r} is at event {line.head}")
        if self.beside is not None:
            _check_store(tx, self.beside.head, self.facts)
        if self.spending and tx.spending.stands:
            tx.spending.charge(line, self.spending)
        tx.extend(line, prepared)
        if prepared:
            tx.no_doubt(line)
        if self.begins:
            sessions.begun(tx, line, self.begins)
        if self.facts:
            tx.extend(tx.line(STORE), self.facts)
        if self.cancel:
            line.cancel = 1
            line.indexed = True
        if self.index is not None:
            tx.reindex(line, self.index)
        if self.release:
            tx.lease(line, None)


class Keep(Request):
    """Facts that belong to no run."""

    __slots__ = ("entries", "head", "prepared")

    def __init__(self, head: int, entries: Sequence[Entry], salts: Salts) -> None:
        super().__init__()
        self.entries = entries
        self.head = head
        self.prepared = prepare(STORE, entries, salts)

    def apply(self, tx: Transaction) -> None:
        _check_store(tx, self.head, self.prepared)
        if any(isinstance(entry.event, OF_SESSIONS) for entry in self.entries):
            tx.flush()
            sessions.check_facts(tx, self.entries)
            sessions.keep(tx, self.entries)
        tx.extend(tx.line(STORE), self.prepared)


def _check_store(tx: Transaction, head: int, prepared: Sequence[Prepared]) -> None:
    """Refuse what was decided at another head of the journal `store`."""
    line = tx.line(STORE)
    if line.head != head or (prepared and prepared[0].seq != head + 1):
        raise Moved(f"the journal {STORE!r} is at event {line.head}")


class Create(Request):
    """A new journal."""

    __slots__ = ("entries", "index", "new", "prepared")

    def __init__(self, new: NewRun, entries: Sequence[Entry], index: Index, salts: Salts) -> None:
        super().__init__()
        self.new = new
        self.prepared = prepare(new.run, entries, salts)
        self.entries = entries
        self.index = index

    def apply(self, tx: Transaction) -> RunInfo | None:
        new = self.new
        taken = tx.find(new.run)
        if taken is not None:
            leased = taken.owner is not None and _is_alive(tx, taken.owner)
            return info_of(tx.connection, taken, leased=leased)
        if new.session and (into := sessions.taken(tx, new.run)) is not None:
            return info_of(tx.connection, into, leased=into.owner is not None)
        parent = tx.line(new.parent) if new.parent else None
        if parent is not None and parent.digest == ERASED:
            raise RunErased(parent.id)
        if parent is not None and parent.head < new.parent_at:
            raise UnknownRun(f"run {new.parent!r} has no event {new.parent_at}")
        if new.session:
            tx.flush()
            sessions.check(tx, new)
        previous = GENESIS
        if parent is not None:
            tx.flush()
            previous = hash_at(tx.connection, parent, new.parent_at)
        line = self._insert(tx, None if parent is None else parent.no, previous)
        tx.remember(line)
        tx.extend(line, self.prepared)
        tx.reindex(line, self.index, cancel=asks_to_cancel(self.entries))
        return None

    def _insert(self, tx: Transaction, parent: int | None, previous: bytes) -> Line:
        new, index = self.new, self.index
        created_at = self.entries[0].at if self.entries else 0
        line = Line(
            no=0,
            id=new.run,
            parent=parent,
            parent_at=new.parent_at,
            head=new.parent_at,
            hash=previous,
            epoch=0,
            owner=None,
            agent=new.agent,
            session=new.session,
            principal=new.principal,
            digest=new.digest,
            status=index.status,
            waits="",
            wake_at=0,
            cancel=0,
            steps=0,
            tokens=0,
            micro_usd=0,
            created_at=created_at,
            updated_at=created_at,
            behind=int(new.behind),
            pending=(),
        )
        tx.connection.execute(
            "INSERT INTO run (id, parent, parent_at, head, hash, agent, session, principal, "
            "digest, status, due, created_at, updated_at, behind, previous) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(new.run, parent, new.parent_at, new.parent_at, previous),
                *(new.agent, new.session, new.principal, new.digest),
                *(index.status, line.due, created_at, created_at, line.behind),
                previous_in(self.entries) or "",
            ),
        )
        line.no = tx.connection.last_insert_rowid()
        return line


class Take(Request):
    """A claim."""

    __slots__ = ("put", "run")

    def __init__(self, run: str, put: Callable[[GiveUp], None]) -> None:
        super().__init__()
        self.run = run
        self.put = put

    def unheard(self, result: object) -> None:
        if isinstance(result, Claim):  # nobody would ever drive the run
            self.put(GiveUp(self.run, result.epoch))

    def apply(self, tx: Transaction) -> Claim | None:
        line = tx.line(self.run)
        if line.digest == ERASED:
            raise RunErased(line.id)
        if line.behind and not line.cancel:
            tx.flush()
            if ahead_of(tx.connection, line):
                return None
        previous: Literal["new", "released", "dead", "expired"]
        if line.owner is None:
            previous = "released" if line.epoch else "new"
        else:
            fate = tx.owners.fate(tx.connection, line.owner)
            if fate == "alive":
                return None
            previous = fate
        if line.epoch and tx.in_doubt(line, frozen=previous == "expired") and previous == "dead":
            previous = "expired"
        tx.owners.enlist(tx.connection)
        line.epoch += 1
        line.indexed = True
        tx.lease(line, tx.owners.token)
        return Claim(epoch=line.epoch, head=line.head, previous=previous)


@final
class GiveUp:
    """A claim that nobody knows of is let go; nobody waits for that."""

    __slots__ = ("epoch", "run")

    def __init__(self, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch

    def apply(self, tx: Transaction) -> None:
        line = tx.find(self.run)
        if line is not None and line.epoch == self.epoch:
            tx.lease(line, None)


class Submit(Request):
    """Everybody else's write."""

    __slots__ = ("actor", "command", "now", "run", "salts", "seen")

    def __init__(
        self, run: str, seen: RunState, command: Command, now: int, actor: str, salts: Salts
    ) -> None:
        super().__init__()
        self.run = run
        self.seen = seen
        self.command = command
        self.now = now
        self.actor = actor
        self.salts = salts

    def apply(self, tx: Transaction) -> tuple[RunState, Entry | None]:
        line = tx.line(self.run)
        if line.digest == ERASED:
            raise RunErased(line.id)
        state = self.seen
        if state.seq < line.head:
            tx.flush()
            state = fold(state, entries_of(tx.connection, line, state.seq))
        if isinstance(self.command, Queue) and self.command.id:
            tx.flush()
            if sessions.taken(tx, self.command.id) is not None:
                return state, None
        state, entry = respond(state, self.command, self.now, self.actor)
        if entry is not None:
            prepared = prepare(self.run, (entry,), self.salts)
            index = index_of(state)
            tx.extend(line, prepared)
            tx.reindex(line, index, cancel=asks_to_cancel((entry,)))
            sessions.queued(tx, line, entry)
        return state, entry


class Remove(Request):
    """Prune these runs, given as id and head, unless they changed since they were chosen.

    Sessions that were forked and have no run go too, if nothing was said of them since `before`.
    """

    __slots__ = ("before", "chosen", "forks", "now", "salts")

    def __init__(
        self,
        chosen: Sequence[tuple[str, int]],
        before: int,
        now: int,
        salts: Salts,
        forks: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.chosen = chosen
        self.before = before
        self.now = now
        self.salts = salts
        self.forks = frozenset(forks)

    def apply(self, tx: Transaction) -> Pruned:
        tx.flush()
        tx.spending.thin(self.before, self.now)
        forks = self.forks and self.forks & unbegun(tx.connection, self.before)
        return remove(tx, self.chosen, self.now, self.salts, forks)


class SetBudgets(Request):
    """Let these budgets stand, and count for them."""

    __slots__ = ("actor", "caps", "now", "salts")

    def __init__(self, caps: Sequence[Cap], now: int, actor: str, salts: Salts) -> None:
        super().__init__()
        self.caps = tuple(caps)
        self.now = now
        self.actor = actor
        self.salts = salts

    def apply(self, tx: Transaction) -> bool:
        tx.flush()
        spending = tx.spending
        same = spending.caps == self.caps and not spending.fault
        if same and not uncounted(tx.connection):
            return False
        alike = counted_alike(spending.caps, self.caps)
        counted = spending.counted(self.caps, self.now, alike)
        if not same:
            store = tx.line(STORE)
            fact = BudgetsSet(budgets=self.caps, by=self.actor)
            entry = Entry(seq=store.head + 1, at=max(self.now, store.updated_at), event=fact)
            tx.extend(store, prepare(STORE, (entry,), self.salts))
            tx.flush()
            spending.look()
        spending.adopt(counted)
        return True


class Recount(Request):
    """Count anew what was spent."""

    __slots__ = ("now",)

    def __init__(self, now: int) -> None:
        super().__init__()
        self.now = now

    def apply(self, tx: Transaction) -> list[str]:
        tx.flush()
        spending = tx.spending
        caps = spending.caps
        counted = spending.counted(caps, self.now, counted_alike(caps, caps))
        wrong = wrong_counters(tx.connection, self.now)
        missed = uncounted(tx.connection)
        spending.adopt(counted)
        return [*wrong, *([missed] if missed else [])]


def _is_alive(tx: Transaction, token: str) -> bool:
    return tx.owners.fate(tx.connection, token) == "alive"
