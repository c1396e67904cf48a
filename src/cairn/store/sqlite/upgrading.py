"""What a migration does beside its statements, in the same transaction."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Any

import apsw

from cairn.core.events import Entry, SessionRemoved
from cairn.errors import CorruptJournal
from cairn.store.sqlite.journal import Salts, empty, first_id, prepare, said_of
from cairn.store.sqlite.lines import line_of

PREVIOUS = 6
"""The version from which on nothing is left of a session whose last run is removed."""
STORE = "store"
_ORPHANS = (
    "SELECT session FROM place WHERE run NOT IN (SELECT id FROM run) "
    "AND NOT EXISTS (SELECT 1 FROM run WHERE run.session = place.session)"
)
_INSERT = (
    "INSERT INTO event (id, at, step, actor, type, v, data, blob, salt, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def upgrade(connection: apsw.Connection, since: int) -> None:
    """Bring what an older Cairn left behind to where this one leaves it.

    Args:
        connection: In the transaction in which the statements were run.
        since: The version that the file had before.
    """
    if since < PREVIOUS:
        _forget_orphans(connection)


def _forget_orphans(connection: apsw.Connection) -> None:
    """Take away what is said of sessions of which no run is left to go on from.

    An older Cairn left it when it removed their last run, and who began a session of the same
    name had its title. A journal that cannot be read is left to whoever finds out why.
    """
    found: Any = connection.execute(_ORPHANS).fetchall()
    orphans = {session for (session,) in found}
    if not orphans:
        return
    connection.execute("SAVEPOINT orphans")
    try:
        connection.executemany("DELETE FROM place WHERE session = ?", [(o,) for o in orphans])
        store = line_of(connection, STORE)
        if notes := [row.seq for row in said_of(connection, store, orphans)]:
            empty(connection, store, notes)
            _append(connection, SessionRemoved(notes=tuple(notes)))
    except (CorruptJournal, apsw.ConstraintError):
        connection.execute("ROLLBACK TO orphans")
    connection.execute("RELEASE orphans")


def _append(connection: apsw.Connection, event: SessionRemoved) -> None:
    """Append to the journal `store` without a writer, which there is none of yet."""
    store = line_of(connection, STORE)
    at = max(time.time_ns() // 1000, store.updated_at)
    (row,) = prepare(STORE, (Entry(seq=store.head + 1, at=at, event=event),), Salts())
    hash_ = sha256(store.hash + row.sealed).digest()
    if row.payload is not None:
        connection.execute(
            "INSERT INTO blob (hash, data) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (row.fields[6], row.payload),
        )
    connection.execute(_INSERT, (first_id(store.no) + row.seq, *row.fields, hash_))
    connection.execute(
        "UPDATE run SET head = ?1, counted = ?1, hash = ?2, updated_at = ?3 WHERE no = ?4",
        (row.seq, hash_, at, store.no),
    )
