"""Retention in a file: whole runs go, payloads nobody else uses go with them, a tombstone stays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import apsw

from cairn.core.events import Entry, StorePruned
from cairn.ports import Pruned, RunInfo
from cairn.store.retention import ENDED_VALUES, prunable, settled
from cairn.store.sqlite import sessions
from cairn.store.sqlite.journal import Salts, entries_of, first_id, prepare
from cairn.store.sqlite.lines import ALL_COLUMNS, Line, info_of, line_of
from cairn.store.sqlite.owners import Owners
from cairn.store.sqlite.transaction import Transaction

_NEWEST_FIRST = f"SELECT {ALL_COLUMNS} FROM run WHERE no > 0 ORDER BY no DESC"  # noqa: S608 - our own words

RUNS_AT_ONCE = 32
"""Runs removed in one transaction, so that nobody's append waits long."""

PAGES_AT_ONCE = 1000
"""Freed pages given back to the filesystem with each of them."""


def choose(
    connection: apsw.Connection, owners: Owners, before: int, session: str = ""
) -> list[tuple[str, int]]:
    """The runs that may go, newest first, each with the head it has now."""
    alive = set(owners.alive(connection)) | {owners.token}
    heads: dict[str, int] = {}

    def lines() -> Iterator[RunInfo]:
        rows: Any = connection.execute(_NEWEST_FIRST)
        for row in rows:
            line = Line(*row)
            heads[line.id] = line.head
            yield info_of(connection, line, leased=line.owner in alive)

    def is_settled(run: str) -> bool:
        return settled(run, lambda: entries_of(connection, line_of(connection, run)))

    ties = sessions.ties(connection, sessions.unbegun(connection, before, session))
    chosen = prunable(lines(), before, is_settled, session, ties)
    return [(run, heads[run]) for run in chosen]


def remove(
    tx: Transaction,
    chosen: Sequence[tuple[str, int]],
    now: int,
    salts: Salts,
    forks: Collection[str] = (),
) -> Pruned:
    """Remove these runs, but for those that changed since; returns what went.

    Args:
        forks: Sessions without a run that go as well.
    """
    removed: list[str] = []
    unbegun = [name for name in forks if sessions.forget(tx, name)]
    ended, over = set(unbegun), set[str]()
    for run, head in chosen:
        line = tx.find(run)
        if line is None or line.head != head or not _may_go(tx, line):
            continue
        store = tx.line("store")
        tombstone = StorePruned(run=run, head=head, hash=line.hash.hex(), status=line.status)
        entry = Entry(seq=store.head + 1, at=max(now, store.updated_at), event=tombstone)
        tx.extend(store, prepare(store.id, (entry,), salts))
        _delete(tx, line)
        removed.append(run)
        if line.session and sessions.forget(tx, line.session):
            ended.add(line.session)
        if line.session and not sessions.is_begun(tx, line.session):
            over.add(line.session)
    sessions.silence(tx, ended, now, salts)
    vacuum = f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})"
    tx.connection.execute(vacuum).fetchall()  # it frees a page with every step
    return Pruned(removed, unbegun, over)


def _may_go(tx: Transaction, line: Line) -> bool:
    if line.status not in ENDED_VALUES or (line.unread and line.session):
        return False
    if line.owner is not None and tx.owners.fate(tx.connection, line.owner) == "alive":
        return False
    needed = tx.connection.execute(
        "SELECT 1 FROM run WHERE parent = :no "
        "UNION ALL SELECT 1 FROM run WHERE session = :session AND session <> '' AND no > :no "
        "UNION ALL SELECT 1 FROM run WHERE previous = :id AND previous <> '' AND no <> :no "
        "UNION ALL SELECT 1 FROM place WHERE run = :id AND run <> '' AND session <> :session",
        {"no": line.no, "session": line.session, "id": line.id},
    ).fetchone()
    return needed is None


def _delete(tx: Transaction, line: Line) -> None:
    connection = tx.connection
    own = (first_id(line.no), first_id(line.no + 1) - 1)
    blobs = connection.execute(
        "SELECT DISTINCT blob FROM event WHERE id BETWEEN ? AND ? AND blob IS NOT NULL", own
    ).fetchall()
    connection.execute("DELETE FROM event WHERE id BETWEEN ? AND ?", own)
    connection.executemany(
        "DELETE FROM blob WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM event WHERE blob = ?1)",
        blobs,
    )
    connection.execute("DELETE FROM run WHERE no = ?", (line.no,))
    tx.forget(line)
