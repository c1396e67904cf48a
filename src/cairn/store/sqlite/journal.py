"""A run's events as rows: sealed on the way in, checked for gaps on the way out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from cairn.core.codec import GENESIS, Row, encode, header, open_row
from cairn.core.erasing import emptied
from cairn.core.events import (
    Entry,
    ErasedFact,
    RunCancelRequested,
    RunCreated,
    SessionForked,
    SessionRewound,
    SessionTitled,
)
from cairn.core.run_table import ERASED
from cairn.core.verification import Chain
from cairn.errors import CorruptJournal, IllegalTransition, RunErased
from cairn.store.sqlite.lines import Line, line_of, line_of_number

INLINE_BYTES = 8192
"""Payloads over this go to the blob table."""

OF_SESSIONS = (SessionTitled, SessionRewound, SessionForked)
"""What is said of sessions in the journal `store`."""

SALT_BYTES = 16
_SALTS_AT_ONCE = 256
_SEQ_BITS = 32
_SEQ_MASK = (1 << _SEQ_BITS) - 1

_COLUMNS = "SELECT id, at, step, actor, type, v, data, blob, salt, hash FROM event"
_SELECT = f"{_COLUMNS} WHERE id > ? AND id <= ? ORDER BY id"

# ---------------------------------------------------------------- in


class Prepared(NamedTuple):
    """All of a row but what depends on the journal it lands in: its run's number and its hash."""

    seq: int
    fields: tuple[int, int, str, int, int, bytes | None, bytes | None, bytes]
    """at, step, actor, type, v, data, blob, salt: as the table has them."""
    sealed: bytes
    """Header and digest, which the row's hash is made of beside the hash before it."""
    payload: bytes | None
    """What goes to the blob table."""


class Salts:
    """Random bytes, drawn in bulk: a system call for each row would cost more than its hash."""

    def __init__(self) -> None:
        self._left: list[bytes] = []

    def take(self) -> bytes:
        try:
            return self._left.pop()  # atomic, so that no salt is given out twice
        except IndexError:
            block = os.urandom(SALT_BYTES * _SALTS_AT_ONCE)
            cuts = range(0, len(block), SALT_BYTES)
            fresh = [block[at : at + SALT_BYTES] for at in cuts]
            salt = fresh.pop()
            self._left = fresh
            return salt


def prepare(run: str, entries: Sequence[Entry], salts: Salts) -> list[Prepared]:
    """The rows for `entries`, prepared on the caller's thread.

    It is `codec.seal` taken apart: only the last hash must wait for the transaction.

    Raises:
        IllegalTransition: the entries leave a gap among themselves.
    """
    prepared = []
    expected = entries[0].seq if entries else 0
    for entry in entries:
        seq = entry.seq
        if seq != expected:
            raise IllegalTransition(f"{run}: event {seq} cannot stand where {expected} must")
        expected += 1
        event = entry.event
        number, version = event.TYPE, event.V
        data = encode(event)
        salt = salts.take()
        sealed = header(run, entry, number, version) + sha256(salt + data).digest()
        inline: bytes | None = data
        payload = blob = None
        if len(data) > INLINE_BYTES:
            payload, blob, inline = data, sha256(data).digest(), None
        fields = (entry.at, entry.step, entry.actor, number, version, inline, blob, salt)
        prepared.append(Prepared(seq, fields, sealed, payload))
    return prepared


def first_id(number: int) -> int:
    """The event id below all of a run's own."""
    return number << _SEQ_BITS


# ---------------------------------------------------------------- out


def rows_between(connection: apsw.Connection, line: Line, after: int, upto: int) -> Iterator[Row]:
    """A run's own rows with `after < seq <= upto`.

    Raises:
        CorruptJournal: one is missing, or its payload is.
    """
    base = first_id(line.no)
    expected = after
    cursor: Any = connection.execute(_SELECT, (base + after, base + upto))
    for id_, at, step, actor, number, version, inline, blob, salt, hash_ in cursor:
        seq = id_ & _SEQ_MASK
        expected += 1
        if seq != expected:
            raise CorruptJournal(f"{line.id}: event {expected} is missing")
        yield Row(
            seq=seq,
            at=at,
            step=step,
            actor=actor,
            type=number,
            v=version,
            data=inline if blob is None else _payload(connection, line.id, seq, blob),
            salt=salt,
            hash=hash_,
        )
    if expected < upto:
        raise CorruptJournal(f"{line.id}: event {expected + 1} is missing")


def spending_rows(connection: apsw.Connection, line: Line, types: Sequence[int]) -> Iterator[Row]:
    """A run's own rows of these types, for counting: the others are not looked at."""
    marks = ", ".join("?" * len(types))
    first, last = first_id(line.no), first_id(line.no + 1)
    select = f"{_COLUMNS} WHERE id > ? AND id < ? AND type IN ({marks}) ORDER BY id"
    cursor: Any = connection.execute(select, (first, last, *types))
    for id_, at, step, actor, number, version, inline, blob, salt, hash_ in cursor:
        seq = id_ & _SEQ_MASK
        yield Row(
            seq=seq,
            at=at,
            step=step,
            actor=actor,
            type=number,
            v=version,
            data=inline if blob is None else _payload(connection, line.id, seq, blob),
            salt=salt,
            hash=hash_,
        )


def _payload(connection: apsw.Connection, run: str, seq: int, blob: bytes) -> bytes:
    found: Any = connection.execute("SELECT data FROM blob WHERE hash = ?", (blob,)).fetchone()
    if found is None:
        raise CorruptJournal(f"{run}: the payload of event {seq} is missing")
    data: bytes = found[0]
    return data


def spans(
    connection: apsw.Connection, line: Line, after: int, upto: int
) -> list[tuple[Line, int, int]]:
    """Which journals hold the events `after < seq <= upto` of a run: the forked-from ones first.

    Raises:
        CorruptJournal: a run it was forked from is missing, or is no earlier one.
    """
    found: list[tuple[Line, int, int]] = []
    while True:
        shared = line.parent_at if line.parent is not None else 0
        if upto > shared:
            found.append((line, max(after, shared), upto))
        if line.parent is None or after >= shared:
            return found[::-1]
        if line.parent >= line.no:  # a run is forked from an earlier one: this could go in a ring
            raise CorruptJournal(f"{line.id}: the run table says it was forked from a later run")
        upto = min(upto, shared)
        line = line_of_number(connection, line.parent)


def entries_of(
    connection: apsw.Connection, line: Line, after: int = 0, upto: int = 0
) -> list[Entry]:
    """A run's entries, a fork's prefix too; the line says how far the journal goes.

    Raises:
        RunErased: what it said was erased.
        CorruptJournal: an entry is missing, or cannot be read.
    """
    upto = min(upto, line.head) if upto else line.head
    found = []
    for part, start, end in spans(connection, line, after, upto):
        for row in rows_between(connection, part, start, end):
            if row.data is None:
                found.append(_erased(line, part, row))
                continue
            try:
                found.append(open_row(row))
            except CorruptJournal as error:
                raise CorruptJournal(f"{part.id}: event {row.seq}: {error}") from error
    return found


def _erased(line: Line, part: Line, row: Row) -> Entry:
    """What is read in the place of an erased fact of the journal `store`; of a run nothing is."""
    if part.digest == ERASED:
        raise RunErased(line.id)
    if part.no or len(row.salt) == SALT_BYTES:  # with its salt it was not erased, but taken away
        raise CorruptJournal(f"{part.id}: event {row.seq} was erased")
    event = ErasedFact(type=row.type)
    return Entry(seq=row.seq, at=row.at, event=event, step=row.step, actor=row.actor)


def hash_at(connection: apsw.Connection, line: Line, seq: int) -> bytes:
    """The hash of a run's event `seq`, in its own rows or in its prefix."""
    for part, _, end in spans(connection, line, seq - 1, seq):
        (row,) = rows_between(connection, part, end - 1, end)
        return row.hash
    return GENESIS


def verify(connection: apsw.Connection, run: str) -> int:
    """Check the whole chain of a run, its prefix included; the number of events.

    Raises:
        CorruptJournal: names the first row that does not fit.
    """
    line = line_of(connection, run)
    previous = GENESIS
    for part, start, end in spans(connection, line, 0, line.head):
        chain = Chain(part.id, start, previous, erased_upto=end)
        wrong = chain.walk(rows_between(connection, part, start, end), end)
        if wrong is not None:
            raise CorruptJournal(str(wrong))
        previous = chain.hash
    last: Any = connection.execute(
        "SELECT max(id) FROM event WHERE id BETWEEN ? AND ?",
        (first_id(line.no), first_id(line.no + 1) - 1),
    ).fetchone()
    if last[0] is not None and last[0] & _SEQ_MASK > line.head:
        raise CorruptJournal(f"{run}: event {line.head + 1} stands after the end")
    if line.head and previous != line.hash:
        raise CorruptJournal(f"{run}: event {line.head} is not the one the run's line names")
    return line.head


def empty(connection: apsw.Connection, line: Line, seqs: Iterable[int]) -> int:
    """Take the data out of events that still hold some; how many did.

    Raises:
        CorruptJournal: one of them is missing, or its payload: no digest would fit it.
    """
    base, wanted = first_id(line.no), set(seqs)
    if not wanted:
        return 0
    first, last = min(wanted) - 1, max(wanted)
    going: list[Row] = [
        emptied(row)
        for row in rows_between(connection, line, first, last)
        if row.seq in wanted and row.data is not None
    ]
    said = "SELECT DISTINCT blob FROM event WHERE id > ? AND id <= ? AND blob IS NOT NULL"
    blobs = connection.execute(said, (base + first, base + last)).fetchall()
    connection.executemany(
        "UPDATE event SET data = NULL, blob = NULL, salt = ? WHERE id = ?",
        [(row.salt, base + row.seq) for row in going],
    )
    connection.executemany(
        "DELETE FROM blob WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM event WHERE blob = ?1)",
        blobs,
    )
    return len(going)


def said_of(connection: apsw.Connection, store: Line, sessions: Collection[str]) -> list[Row]:
    """The events of the journal `store` that say something of these sessions.

    Raises:
        CorruptJournal: one of them cannot be read.
    """
    types = [event.TYPE for event in OF_SESSIONS]
    return [
        row
        for row in spending_rows(connection, store, types)
        if row.data is not None and getattr(open_row(row).event, "session", "") in sessions
    ]


def tenant_of(connection: apsw.Connection, line: Line) -> str:
    """Of the principal that a run, or the one that it was forked from, was started for.

    Raises:
        CorruptJournal: its first event cannot be read.
    """
    root = line
    while root.parent is not None and root.parent < root.no:
        root = line_of_number(connection, root.parent)
    (row,) = rows_between(connection, root, 0, 1)
    event = open_row(row).event
    if not isinstance(event, RunCreated):
        raise CorruptJournal(f"{root.id}: the journal does not start with run.created")
    return event.principal.tenant


def asks_to_cancel(entries: Sequence[Entry]) -> bool:
    """Whether one of the entries is the wish that the run ends, whoever drives it.

    To end it gently needs somebody who knows its agent, as all else does.
    """
    return any(
        type(entry.event) is RunCancelRequested and not entry.event.gently for entry in entries
    )
