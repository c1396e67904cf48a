"""Events to bytes and back, and the hash chain over them.

A row keeps a header, the event's data as JSON, a salt and a hash:

    digest = SHA-256(salt ‖ data)
    hash   = SHA-256(previous hash ‖ header ‖ digest)

so that data can be erased and the chain still be verified. Old shapes are translated once, here:
an upcaster for (type, version) turns a stored object into the next version's; the inside of the
house knows only the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import msgspec

from cairn.core.events import EVENTS, Entry, Event
from cairn.core.messages import Record
from cairn.errors import ConfigError, CorruptJournal

GENESIS = bytes(32)
"""What the first hash of a journal chains to."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[tuple[int, int], Upcaster] = {}
"""(type, version) → a function from that version's object to the next version's."""

_encoder = msgspec.json.Encoder()
_decoders = {number: msgspec.json.Decoder(cls) for number, cls in EVENTS.items()}


class Row(Record):
    """An event as a store keeps it; when erased, `data` is None and `salt` is the digest."""

    seq: int
    at: int
    step: int
    actor: str
    type: int
    v: int
    data: bytes | None
    salt: bytes
    hash: bytes


def encode(event: Event) -> bytes:
    """The event's data as compact, strict JSON."""
    return _encoder.encode(event)


def decode(number: int, version: int, data: bytes) -> Event:
    """The event of this type number, translated from the version it was written in.

    Raises:
        CorruptJournal: the type or version is unknown, or the data does not fit it.
    """
    cls = EVENTS.get(number)
    if cls is None:
        raise CorruptJournal(f"event type {number} is unknown; was it written by a newer Cairn?")
    try:
        if version == cls.V:
            return _decoders[number].decode(data)
        value = msgspec.json.decode(data)
        while version < cls.V:
            value = UPCASTERS[number, version](value)
            version += 1
        if version > cls.V:
            raise CorruptJournal(f"{cls.NAME} has version {version}; this Cairn reads {cls.V}")
        return _decoders[number].decode(_encoder.encode(value))
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, ConfigError) as error:
        raise CorruptJournal(f"{cls.NAME} cannot be read: {error}") from error


def header(run: str, entry: Entry, number: int, version: int) -> bytes:
    """What of a row is hashed beside its data; one line a field."""
    return (
        f"{run}\n{entry.seq}\n{entry.at}\n{entry.step}\n{entry.actor}\n{number}\n{version}"
    ).encode()


def seal(run: str, entry: Entry, salt: bytes, previous: bytes) -> Row:
    """The row for `entry`, chained to the hash before it."""
    event = entry.event
    data = _encoder.encode(event)
    digest = sha256(salt + data).digest()
    head = header(run, entry, event.TYPE, event.V)
    return Row(
        seq=entry.seq,
        at=entry.at,
        step=entry.step,
        actor=entry.actor,
        type=event.TYPE,
        v=event.V,
        data=data,
        salt=salt,
        hash=sha256(previous + head + digest).digest(),
    )


def open_row(row: Row) -> Entry:
    """The entry a row holds.

    Raises:
        CorruptJournal: its data is erased or cannot be read.
    """
    if row.data is None:
        raise CorruptJournal(f"event {row.seq} was erased")
    return Entry(
        seq=row.seq,
        at=row.at,
        step=row.step,
        actor=row.actor,
        event=decode(row.type, row.v, row.data),
    )


def row_object(run: str, row: Row) -> dict[str, Any]:
    """A row as it is stored, bytes as text or hex."""
    return {
        "run": run,
        "seq": row.seq,
        "at": row.at,
        "step": row.step,
        "actor": row.actor,
        "type": row.type,
        "name": EVENTS[row.type].NAME if row.type in EVENTS else "",
        "v": row.v,
        "data": row.data.decode() if row.data is not None else None,
        "salt": row.salt.hex(),
        "hash": row.hash.hex(),
    }


def check_chain(run: str, rows: Iterable[Row], previous: bytes = GENESIS) -> bytes:
    """Check that rows are gapless and chained; returns the last hash.

    Raises:
        CorruptJournal: names the first row that was changed, removed or put elsewhere.
    """
    expected: int | None = None
    for row in rows:
        if expected is not None and row.seq != expected:
            raise CorruptJournal(f"{run}: event {expected} is missing")
        expected = row.seq + 1
        # an erased row keeps the 32-byte digest in place of its salt
        digest = row.salt if row.data is None else sha256(row.salt + row.data).digest()
        entry = Entry(seq=row.seq, at=row.at, event=None, step=row.step, actor=row.actor)
        found = sha256(previous + header(run, entry, row.type, row.v) + digest).digest()
        if found != row.hash:
            raise CorruptJournal(f"{run}: event {row.seq} was changed")
        previous = row.hash
    return previous
