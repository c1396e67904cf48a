"""Erasing in memory: all that is kept of one principal goes, as a store in a file does it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cairn.core.budgets import scoped
from cairn.core.codec import Row
from cairn.core.erasing import (
    Erasure,
    Holdings,
    Share,
    check_over,
    emptied,
    removed_before,
    share_of,
    whose,
)
from cairn.core.events import Entry, ErasedFact, PrincipalErased, RunCreated, StoreErased
from cairn.core.messages import Principal, clean
from cairn.core.run_table import ERASED
from cairn.memory import shelf
from cairn.memory.port import Memory
from cairn.memory.recalled import facts_told
from cairn.ports import RunInfo
from cairn.store.memory_lines import Journal
from cairn.store.retention import ENDED_VALUES

if TYPE_CHECKING:
    from cairn.store.inmemory import Journals

Leased = Callable[[Journal], bool]
Sealed = Callable[[Journal], list[Row]]
SALT_BYTES = 16


def empty(journal: Journal, rows: list[Row], seqs: Collection[int] | None = None) -> int:
    """Take the data out of all events of a journal, or of these; how many held some.

    Args:
        rows: Those of the journal, as it keeps them.
    """
    emptied_ = 0
    for at, row in enumerate(rows):
        if row.data is None or (seqs is not None and row.seq not in seqs):
            continue
        rows[at] = emptied(row)
        gone = ErasedFact(type=row.type)
        journal.entries[at] = Entry(
            seq=row.seq, at=row.at, event=gone, step=row.step, actor=row.actor
        )
        emptied_ += 1
    return emptied_


class Erasing:
    """The journals of a store in memory, and one principal; their lock is held meanwhile.

    Args:
        leased: Whether somebody drives a run.
        sealed: The rows of a journal.
    """

    def __init__(
        self, journals: Journals, principal: Principal, leased: Leased, sealed: Sealed
    ) -> None:
        self.journals = journals
        self.principal = principal
        self._sealed = sealed
        self.runs = [*self._theirs()]
        mine = {journal.new.run for journal in self.runs}
        self.live = tuple(
            j.new.run for j in self.runs if j.index.status not in ENDED_VALUES or leased(j)
        )
        self.foreign = tuple(
            j.new.run
            for j in journals.runs.values()
            if j.new.parent in mine and j.new.run not in mine and j.new.digest != ERASED
        )

    def _theirs(self) -> Iterator[Journal]:
        for journal in self.journals.runs.values():
            if not self.principal.id or journal.new.principal != self.principal.id:
                continue
            if self._tenant(journal) == self.principal.tenant:
                yield journal

    def elsewhere(self) -> list[Journal]:
        """Runs of others in the tenant in which something stands that the principal has written."""
        mine = {journal.new.run for journal in self.runs}
        who, journals = self.principal, self.journals
        return [
            journal
            for journal in journals.runs.values()
            if who.id
            and journal.new.run not in mine
            and journal.new.digest != ERASED
            and any(entry.actor == who.id for entry in journal.entries)
            and self._tenant(journal) == who.tenant
        ]

    def recalled(self, facts: Collection[int]) -> list[Journal]:
        """Runs of others whose journals tell one of these facts."""
        mine = {journal.new.run for journal in self.runs}
        return [
            journal
            for journal in self.journals.runs.values()
            if facts
            and journal.new.run not in mine
            and any(not facts_told(entry.event).isdisjoint(facts) for entry in journal.entries)
        ]

    def _tenant(self, journal: Journal) -> str:
        root = journal
        while root.new.parent:
            root = self.journals.find(root.new.parent)
        created = root.entries[0].event
        return created.principal.tenant if isinstance(created, RunCreated) else ""

    def share(self, facts: Collection[int]) -> Share:
        """What of the journal `store` is theirs."""
        runs = {journal.new.run for journal in self.runs}
        sessions = {journal.new.session for journal in self.runs if journal.new.session}
        places = self.journals.sessions.places
        sessions |= {session for session, place in places.items() if place.run in runs}
        return share_of(self.journals.store.entries, self.principal, runs, sessions, facts)

    def check(self) -> None:
        """Refuse what cannot be erased."""
        check_over(self.principal, Holdings(live=self.live, foreign=self.foreign))

    def erase(
        self, facts: Collection[int], forgotten: int, now: int, actor: str, reason: str
    ) -> Erasure:
        """All but the facts, which are forgotten by then."""
        journals, share = self.journals, self.share(facts)
        events = sum([self._empty(journal) for journal in self.runs])
        notes = self._empty(journals.store, share.notes)
        for journal in self.runs:
            journals.written(journal, replace(journal.index, pending=(), waits=(), wake_at=0))
            journal.index = replace(journal.index, unread=0)
            journal.new = replace(journal.new, session="", principal="", digest=ERASED)
            journal.behind = journal.cancel = False
            journal.owner = None
            journal.previous = ""
            journal.epoch += 1
            journals.sessions.removed(journal.new.run)
        for session in share.sessions:
            journals.sessions.places.pop(session, None)
        runs = tuple(journal.new.run for journal in self.runs)
        journals.budgets.forget(scoped(self.principal.id, self.principal.tenant), runs)
        erased = Erasure(
            runs=runs,
            events=events,
            sessions=len(share.sessions),
            facts=forgotten,
            grants=len(share.grants),
            notes=notes,
            budgets=share.budgets,
        )
        if runs or notes or forgotten:
            self._note(erased, share, now, actor, reason)
        return erased

    def _empty(self, journal: Journal, seqs: Collection[int] | None = None) -> int:
        """Take the data out of all events, or of these; how many held some."""
        return empty(journal, self._sealed(journal), seqs)

    def _note(self, erased: Erasure, share: Share, now: int, actor: str, reason: str) -> None:
        store, salt = self.journals.store, os.urandom(SALT_BYTES)
        at = max(now, store.updated_at)
        for journal in self.runs:
            hash_ = self._sealed(journal)[-1].hash.hex()
            fact = StoreErased(run=journal.new.run, head=journal.head, hash=hash_, reason=reason)
            store.extend((Entry(seq=store.head + 1, at=at, event=fact, actor=actor),))
        whole = PrincipalErased(
            whose=whose(self.principal, salt),
            salt=salt.hex(),
            runs=len(erased.runs),
            events=erased.events,
            sessions=erased.sessions,
            facts=erased.facts,
            grants=erased.grants,
            notes=share.notes,
            reason=reason,
        )
        store.extend((Entry(seq=store.head + 1, at=at, event=whole, actor=actor),))
        self.journals.written(store, None)


def facts_of(journals: Journals, principal: Principal) -> set[int]:
    """Numbers of the facts that are kept for a principal; the lock of the journals is free."""
    with journals.facts.lock:
        return {fact.n for fact in shelf.everything_of(journals.facts, principal)}


class Erases(ABC):
    """The part of a store in memory that erases."""

    @abstractmethod
    def _shared(self) -> Journals:
        """What it keeps, if it is open."""

    @abstractmethod
    def _info(self, journal: Journal) -> RunInfo: ...

    @abstractmethod
    def _leased(self, journal: Journal) -> bool: ...

    @abstractmethod
    def _sealed(self, journal: Journal) -> list[Row]: ...

    @abstractmethod
    def memory(self) -> Memory:
        """The facts that are kept here."""

    async def holdings(
        self, principal: Principal, facts: Collection[int] | None = None
    ) -> Holdings:
        """See `Store.holdings`."""
        journals = self._shared()
        kept = facts_of(journals, principal)
        with journals.lock:
            found = self._erasing(principal)
            share = found.share(kept)
            told = removed_before(journals.store.entries, principal) | kept
            return Holdings(
                runs=tuple(map(self._info, found.runs)),
                sessions=share.sessions,
                facts=len(kept),
                grants=share.grants,
                budgets=share.budgets,
                notes=share.notes,
                live=found.live,
                foreign=found.foreign,
                elsewhere=tuple(map(self._info, found.elsewhere())),
                recalled=tuple(map(self._info, found.recalled(told if facts is None else facts))),
            )

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erasure:
        """See `Store.erase`."""
        journals = self._shared()
        actor, reason = clean(actor), clean(reason)
        facts = facts_of(journals, principal)
        with journals.lock:
            self._erasing(principal).check()
        forgotten = await self.memory().erase(principal, now, actor=actor, reason=reason)
        with journals.lock:
            found = self._erasing(principal)
            found.check()
            return found.erase(facts, forgotten.facts, now, actor, reason)

    def _erasing(self, principal: Principal) -> Erasing:
        return Erasing(self._shared(), principal, self._leased, self._sealed)
