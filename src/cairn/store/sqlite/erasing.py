"""Erasing in a file: all that is kept of one principal goes, and the chain still verifies."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import apsw

from cairn.core.budgets import scoped
from cairn.core.erasing import (
    Erasure,
    Holdings,
    Share,
    check_over,
    removed_before,
    share_of,
    whose,
)
from cairn.core.events import Entry, Event, PrincipalErased, StoreErased
from cairn.core.messages import Principal
from cairn.core.run_table import ERASED, RunInfo
from cairn.memory import shelf
from cairn.memory.recalled import MARK, TELLING, row_tells
from cairn.store.retention import ENDED_VALUES
from cairn.store.sqlite.journal import (
    SALT_BYTES,
    Salts,
    empty,
    entries_of,
    prepare,
    tenant_of,
)
from cairn.store.sqlite.lines import ALL_COLUMNS, Line, info_of, line_of, line_of_number
from cairn.store.sqlite.memory_rows import Rows, WritableRows
from cairn.store.sqlite.owners import Owners
from cairn.store.sqlite.requests import Request
from cairn.store.sqlite.transaction import Clearing, Transaction

STORE = "store"
SEQ_BITS = 32
"""An event's id is the number of its run, and so many bits for its seq."""
_OF = f"SELECT {ALL_COLUMNS} FROM run WHERE principal = ? AND no > 0 ORDER BY no"  # noqa: S608 - our own words
_FORKS = f"SELECT {ALL_COLUMNS} FROM run WHERE parent = ? ORDER BY no"  # noqa: S608 - our own words
_PLACES = "SELECT session FROM place WHERE run = ? AND run <> ''"
_WRITTEN = (
    "SELECT DISTINCT id >> 32 FROM event WHERE actor = ? AND id >= 1 << 32 "
    "AND (data IS NOT NULL OR blob IS NOT NULL)"
)
_TELLING = (
    "SELECT event.id, event.type, event.v, coalesce(event.data, blob.data) FROM event "
    "LEFT JOIN blob ON blob.hash = event.blob WHERE event.id >= ? AND (event.type = ? OR "
    "event.type = ? AND instr(coalesce(event.data, blob.data), ?)) ORDER BY event.id"
)
_FORGET_LINE = (
    "UPDATE run SET session = '', principal = '', digest = ?, waits = '', wake_at = 0, cancel = 0, "
    "due = NULL, behind = 0, unread = 0, previous = '', owner = NULL, epoch = epoch + 1 "
    "WHERE no = ?"
)


class Found:
    """The runs of a principal as one snapshot of the file has them."""

    def __init__(self, connection: apsw.Connection, owners: Owners, principal: Principal) -> None:
        self.connection = connection
        self.principal = principal
        alive = {*owners.alive(connection), owners.token}
        self.lines = [*_lines_of(connection, principal)]
        numbers = {line.no for line in self.lines}
        self.foreign: list[str] = []
        for line in self.lines:  # grows as it is walked: a fork may be forked again
            for fork in _lines(connection, _FORKS, line.no):
                if fork.no in numbers:
                    continue
                if fork.principal == principal.id:  # whose tenant its parent's first event says
                    numbers.add(fork.no)
                    self.lines.append(fork)
                elif fork.digest != ERASED:
                    self.foreign.append(fork.id)
        self.lines.sort(key=lambda line: line.no)
        self.live = [
            line.id for line in self.lines if line.status not in ENDED_VALUES or line.owner in alive
        ]

    def elsewhere(self) -> Iterator[Line]:
        """Runs of others in the tenant in which something stands that the principal has written."""
        mine = {line.no for line in self.lines}
        written: Any = self.connection.execute(_WRITTEN, (self.principal.id,)).fetchall()
        for (number,) in sorted(written):
            if number in mine or not self.principal.id:
                continue
            line = line_of_number(self.connection, number)
            if line.digest != ERASED and tenant_of(self.connection, line) == self.principal.tenant:
                yield line

    def recalled(self, facts: Collection[int] | None) -> Iterator[Line]:
        """Runs of others whose journals tell these facts; None for those kept, or removed, here."""
        connection, mine = self.connection, {line.no for line in self.lines}
        if facts is None:
            entries = entries_of(connection, line_of(connection, STORE))
            kept = shelf.everything_of(Rows(connection), self.principal)
            facts = removed_before(entries, self.principal) | {fact.n for fact in kept}
        if not facts:
            return
        rows: Any = connection.execute(_TELLING, (1 << SEQ_BITS, *TELLING, MARK))
        numbers = {
            number
            for id_, type_, v, data in rows
            if (number := id_ >> SEQ_BITS) not in mine
            and data is not None
            and row_tells(type_, v, data, facts)
        }
        for number in sorted(numbers):
            line = line_of_number(connection, number)
            if line.digest != ERASED:
                yield line

    def share(self) -> Share:
        """What of the journal `store` is theirs."""
        connection = self.connection
        runs = {line.id for line in self.lines}
        sessions = {line.session for line in self.lines if line.session}
        for run in runs:
            sessions |= {str(name) for (name,) in connection.execute(_PLACES, (run,))}
        facts = {fact.n for fact in shelf.everything_of(Rows(connection), self.principal)}
        entries = entries_of(connection, line_of(connection, STORE))
        return share_of(entries, self.principal, runs, sessions, facts)


def holdings(
    connection: apsw.Connection,
    owners: Owners,
    principal: Principal,
    facts: Collection[int] | None = None,
) -> Holdings:
    """See `Store.holdings`."""
    found = Found(connection, owners, principal)
    share, alive = found.share(), {*owners.alive(connection), owners.token}

    def infos(lines: Iterable[Line]) -> tuple[RunInfo, ...]:
        return tuple(info_of(connection, line, leased=line.owner in alive) for line in lines)

    return Holdings(
        runs=infos(found.lines),
        sessions=share.sessions,
        facts=len(shelf.everything_of(Rows(connection), principal)),
        grants=share.grants,
        budgets=share.budgets,
        notes=share.notes,
        live=tuple(found.live),
        foreign=tuple(found.foreign),
        elsewhere=infos(found.elsewhere()),
        recalled=infos(found.recalled(facts)),
    )


def _lines(connection: apsw.Connection, select: str, value: object) -> list[Line]:
    rows: Any = connection.execute(select, (value,)).fetchall()
    return [Line(*row) for row in rows]


def _lines_of(connection: apsw.Connection, principal: Principal) -> Iterator[Line]:
    """The runs that were started for a principal: the table has the id, the journal the tenant."""
    for line in _lines(connection, _OF, principal.id) if principal.id else ():
        if tenant_of(connection, line) == principal.tenant:
            yield line


class Erase(Request):
    """All that is kept of one principal goes, in one transaction; copies in pages, after it."""

    __slots__ = ("actor", "clearing", "now", "principal", "reason", "salts")

    def __init__(
        self, principal: Principal, now: int, actor: str, reason: str, salts: Salts
    ) -> None:
        super().__init__()
        self.principal = principal
        self.now = now
        self.actor = actor
        self.reason = reason
        self.salts = salts
        self.clearing = Clearing()

    def apply(self, tx: Transaction) -> Erasure:
        tx.flush()
        connection, principal = tx.connection, self.principal
        found = Found(connection, tx.owners, principal)
        held = Holdings(live=tuple(found.live), foreign=tuple(found.foreign))
        check_over(principal, held)
        share = found.share()
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        rows = WritableRows(tx, self.salts)
        facts = shelf.erase(rows, principal, self.now, self.actor, self.reason)
        tx.flush()
        events = sum([empty(connection, line, self._own(line)) for line in found.lines])
        store = tx.line(STORE)
        notes = empty(connection, store, share.notes)
        self._forget_rows(tx, found.lines, share)
        erased = Erasure(
            runs=tuple(line.id for line in found.lines),
            events=events,
            sessions=len(share.sessions),
            facts=facts,
            grants=len(share.grants),
            notes=notes,
            budgets=share.budgets,
        )
        if found.lines or notes or facts:
            self._note(tx, found.lines, erased, share)
        for line in found.lines:
            tx.forget(line)
        tx.clearing = self.clearing = tx.clearing or self.clearing  # one for all of the batch
        return erased

    @staticmethod
    def _own(line: Line) -> range:
        return range(line.parent_at + 1 if line.parent is not None else 1, line.head + 1)

    def _forget_rows(self, tx: Transaction, lines: Sequence[Line], share: Share) -> None:
        """Take out of the other tables what names the principal, or is kept for them."""
        connection = tx.connection
        numbers = [(line.no,) for line in lines]
        connection.executemany("DELETE FROM pending WHERE run = ?", numbers)
        connection.executemany("DELETE FROM message WHERE run = ?", numbers)
        connection.executemany("DELETE FROM ledger WHERE run = ?", numbers)
        connection.executemany(_FORGET_LINE, [(ERASED, no) for (no,) in numbers])
        sessions = [(session,) for session in share.sessions]
        connection.executemany("DELETE FROM place WHERE session = ?", sessions)

        key = scoped(self.principal.id, self.principal.tenant)
        counters = [(cap.name, key) for cap in tx.spending.caps if cap.per == "principal"]
        connection.executemany("DELETE FROM spend WHERE budget = ? AND key = ?", counters)
        tx.spending.forget()

    def _note(self, tx: Transaction, lines: Sequence[Line], erased: Erasure, share: Share) -> None:
        """Say in the journal `store` what has no data any more, run by run and whole."""
        facts: list[Event] = [
            StoreErased(run=line.id, head=line.head, hash=line.hash.hex(), reason=self.reason)
            for line in lines
        ]
        salt = os.urandom(SALT_BYTES)
        facts.append(
            PrincipalErased(
                whose=whose(self.principal, salt),
                salt=salt.hex(),
                runs=len(erased.runs),
                events=erased.events,
                sessions=erased.sessions,
                facts=erased.facts,
                grants=erased.grants,
                notes=share.notes,
                reason=self.reason,
            )
        )
        store = tx.line(STORE)
        at = max(self.now, store.updated_at)
        entries = [
            Entry(seq=store.head + n, at=at, event=fact, actor=self.actor)
            for n, fact in enumerate(facts, 1)
        ]
        tx.extend(store, prepare(STORE, entries, self.salts))
