"""Whether a journal is as it was written, and if not, which record is the first that is not.

A row's hash covers the hash before it, its header and the digest of its salt and data, so
anything that was changed, removed or put elsewhere breaks the chain at that place. What else can
be told of the break (the stored hash alone was changed, the record belongs elsewhere) is found
out by trying what the chain would be then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from typing import Literal

import msgspec

from cairn.core.codec import GENESIS, Row, decode, header
from cairn.core.events import EVENTS, Entry
from cairn.core.messages import Record
from cairn.errors import CorruptJournal

Kind = Literal[
    "missing",
    "moved",
    "changed",
    "unerased",
    "extra",
    "head",
    "row",
    "gone",
    "counter",
    "export",
]
SALT_BYTES = 16
HASH_BYTES = 32


class Finding(Record):
    """Something is not as it was written.

    Args:
        run: Whose journal.
        seq: The first record that is wrong, 0 when it is about no record.
        kind: `missing`, `moved` (it belongs elsewhere), `changed`, `unerased` (its data is gone
            and nobody recorded that it was erased), `extra` (it stands after the end), `head`
            (an exported hash does not fit, or the end was cut off), `row` (the run table or
            inbox does not follow from the journal), `gone` (the whole run), `counter`, `export`
            (an exported line does not say what its hash is of: the file was altered).
        text: The same in words.
    """

    run: str
    seq: int
    kind: Kind
    text: str

    def __str__(self) -> str:
        place = f"event {self.seq} " if self.seq else ""
        return f"{self.run}: {place}{self.text}"


class Mark(Record):
    """A hash that was kept elsewhere: of the record `seq` of a journal."""

    run: str
    seq: int
    hash: str


class Exported(Mark):
    """An exported event, whole: with what its hash is of."""

    at: int = 0
    step: int = 0
    actor: str = ""
    type: int = 0
    name: str = ""
    v: int = 0
    data: str | msgspec.UnsetType | None = msgspec.UNSET
    salt: str = ""

    @property
    def row(self) -> Row | None:
        """The row that it says it is of; None where it can be of none."""
        if isinstance(self.data, msgspec.UnsetType) or self.name != _name_of(self.type):
            return None
        try:
            return Row(
                seq=self.seq,
                at=self.at,
                step=self.step,
                actor=self.actor,
                type=self.type,
                v=self.v,
                data=None if self.data is None else self.data.encode(),
                salt=bytes.fromhex(self.salt),
                hash=bytes.fromhex(self.hash),
            )
        except ValueError:  # no hex, or half of a character
            return None


def altered(told: Exported, stored: Row | None, previous: Collection[bytes]) -> bool:
    """Whether an exported line says something else than its hash is of.

    Args:
        told: The line.
        stored: The row of that hash, None where the store has it no more.
        previous: The hashes that may stand before it, where it is not stored; none if not known.
    """
    row = told.row
    if row is None:
        return True
    if stored is not None:
        same = (row.at, row.step, row.actor, row.type, row.v)
        kept = (stored.at, stored.step, stored.actor, stored.type, stored.v)
        return same != kept or digest_of(row) != digest_of(stored)
    return bool(previous) and not any(fits(told.run, row, each) for each in previous)


def _name_of(number: int) -> str:
    return EVENTS[number].NAME if number in EVENTS else ""


def digest_of(row: Row) -> bytes:
    """The digest of a row's salt and data; an erased row keeps it in place of its salt."""
    return row.salt if row.data is None else sha256(row.salt + row.data).digest()


def hash_of(run: str, row: Row, previous: bytes, seq: int = 0) -> bytes:
    """The hash a row would have in this journal, behind that hash, at this place."""
    entry = Entry(seq=seq or row.seq, at=row.at, event=None, step=row.step, actor=row.actor)
    return sha256(previous + header(run, entry, row.type, row.v) + digest_of(row)).digest()


def fits(run: str, row: Row, previous: bytes, seq: int = 0) -> bool:
    """Whether a row's own hash says that it stood there."""
    return hash_of(run, row, previous, seq) == row.hash


class Chain:
    """Walks the rows of a journal in order and stops at the first that is wrong.

    Args:
        run: The journal they were written in.
        after: The seq before the first of them.
        previous: The hash before the first of them.
        erased_upto: Up to which record the store's journal says that data was erased.
        erased: Single records of which it says so.
    """

    def __init__(
        self,
        run: str,
        after: int = 0,
        previous: bytes = GENESIS,
        erased_upto: int = 0,
        erased: Collection[int] = (),
    ) -> None:
        self.run = run
        self.seq = after
        self.hash = previous
        self.erased = 0
        """How many rows hold no data any more."""
        self._erased_upto = erased_upto
        self._erased = erased

    def walk(self, rows: Iterable[Row], upto: int) -> Finding | None:
        """The first thing that is wrong in rows that must reach exactly to `upto`."""
        for row, following in _with_next(rows):
            if row.seq != self.seq + 1:
                return self._find(self.seq + 1, "missing", "is missing")
            if self.seq >= upto:
                return self._find(row.seq, "extra", "stands after the end")
            wrong = self._row(row, following)
            if wrong is not None:
                return wrong
            self.seq, self.hash = row.seq, row.hash
        if self.seq < upto:
            return self._find(self.seq + 1, "missing", "is missing")
        return None

    def _row(self, row: Row, following: Row | None) -> Finding | None:
        if not fits(self.run, row, self.hash):
            return self._find(row.seq, "changed", f"was changed: {self._what(row, following)}")
        if row.data is None:
            self.erased += 1
            if row.seq > self._erased_upto and row.seq not in self._erased:
                said = "has no data, and the store's journal does not say that it was erased"
                return self._find(row.seq, "unerased", said)
        return None

    def _what(self, row: Row, following: Row | None) -> str:
        """What of a row that does not fit is wrong, as far as the chain can tell."""
        if len(row.hash) != HASH_BYTES:
            return "its hash is none"
        if len(row.salt) != (SALT_BYTES if row.data is not None else HASH_BYTES):
            return "its salt is none"
        computed = hash_of(self.run, row, self.hash)
        if following is not None and fits(self.run, following, computed, row.seq + 1):
            return "only its hash; what it says is as it was written"
        unreadable = _unreadable(row)
        if unreadable:
            return unreadable
        if following is not None and not fits(self.run, following, row.hash, row.seq + 1):
            return "and so is what follows it"
        return "its time, step, actor, type, salt or data"

    def _find(self, seq: int, kind: Kind, text: str) -> Finding:
        return Finding(run=self.run, seq=seq, kind=kind, text=text)


def _with_next(rows: Iterable[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Each row beside the one that follows it."""
    before: Row | None = None
    for row in rows:
        if before is not None:
            yield before, row
        before = row
    if before is not None:
        yield before, None


def _unreadable(row: Row) -> str:
    if row.type not in EVENTS:
        return f"there is no event of type {row.type}"
    if row.data is None:
        return "its data was taken away" if len(row.salt) == SALT_BYTES else ""
    try:
        decode(row.type, row.v, row.data)
    except CorruptJournal as error:
        return f"its data cannot be read ({error})"
    return ""


def moved_from(run: str, row: Row, hashes: Iterable[tuple[int, bytes]]) -> int:
    """Where a row that does not fit stood before, 0 if that cannot be told.

    Args:
        hashes: Seq and hash of every row of the journal, as they are now.
    """
    stored = dict(hashes)
    for seq in range(1, max(stored, default=0) + 2):
        # behind its old neighbour, or behind the neighbour that it changed places with
        for previous in (GENESIS if seq == 1 else stored.get(seq - 1), stored.get(seq)):
            if previous is not None and seq != row.seq and fits(run, row, previous, seq):
                return seq
    return 0
