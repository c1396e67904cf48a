"""What the tables say beside the journals, compared with what follows from these.

The run table, the inbox and the ledgers are written with the events they follow from. Columns
that are no evidence are left out: who drives a run, and in which order the inbox lists requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from cairn.core.codec import open_row
from cairn.core.events import Entry, RunForked
from cairn.core.index import Index, Pending, index_of
from cairn.core.run_table import ERASED
from cairn.core.spending import SPENDING_TYPES, Ledger, charge
from cairn.core.state import RunState
from cairn.errors import CorruptJournal
from cairn.store.sqlite.journal import first_id, spending_rows
from cairn.store.sqlite.lines import COLUMNS, Line, line_of_number, pending_of_run
from cairn.store.sqlite.sessions import listed_previous, wrong_messages, wrong_previous
from cairn.store.sqlite.spending import owner_of, recounted, standing_caps, uncounted

_decoder = msgspec.json.Decoder(Ledger)
_STRAY_BLOBS = "SELECT hash FROM blob WHERE NOT EXISTS (SELECT 1 FROM event WHERE blob = blob.hash)"
_STRAY_PENDING = "SELECT id FROM pending WHERE run NOT IN (SELECT no FROM run)"
_STRAY_LEDGERS = "SELECT run FROM ledger WHERE run NOT IN (SELECT no FROM run)"
_NEXT_EVENT = "SELECT min(id) FROM event WHERE id >= ?"
_BOTH = "SELECT id FROM event WHERE id > ? AND id < ? AND data IS NOT NULL AND blob IS NOT NULL"
_LEDGERS = (
    f"SELECT l.data, {', '.join(f'r.{name}' for name in COLUMNS.split(', '))} "  # noqa: S608 - our own words
    "FROM ledger AS l JOIN run AS r ON r.no = l.run ORDER BY l.run"
)


# ---------------------------------------------------------------- of one journal


def wrong_line(
    connection: apsw.Connection, line: Line, entries: Sequence[Entry], state: RunState
) -> Iterator[str]:
    """What the run table and the inbox say of a run, and its events do not.

    Args:
        entries: All events of the run, at least one of them its own.
        state: What they fold to.
    """
    index, created = index_of(state), state.created
    forks = [entry.event for entry in entries if isinstance(entry.event, RunForked)]
    own = entries[line.parent_at if line.parent is not None else 0]
    follows = _of_index(index) | {
        "created_at": own.at,
        "updated_at": entries[-1].at,
        "cancel": int(state.cancel is not None),
        "behind": int(created is not None and bool(created.behind) and not forks),
        "fork": (forks[-1].parent, forks[-1].at) if forks else ("", 0),
    }
    if created is not None:
        follows |= {
            "agent": created.agent,
            "principal": created.principal.id,
            "digest": created.digest,
            # only who goes on in its place is part of the conversation
            "session": created.session if all(f.reason == "retry" for f in forks) else "",
        }
    if line.unread or state.end is None:  # else a later run may have taken them over
        follows["unread"] = index.unread
    yield from _compare(connection, line, follows, index.pending)
    since = [e for e in entries if e.seq >= own.seq]
    yield from wrong_messages(connection, line, since)
    yield from wrong_previous(connection, line, since)


def wrong_own_line(connection: apsw.Connection, line: Line) -> Iterator[str]:
    """The same for the store's own journal, which no row says anything of but where it ends."""
    found: Any = connection.execute("SELECT at FROM event WHERE id = ?", (line.head,)).fetchone()
    follows = _of_index(Index(status="")) | {
        **dict.fromkeys(("agent", "principal", "digest", "session"), ""),
        "behind": 0,
        "unread": 0,
        "created_at": 0,
        "updated_at": 0 if found is None else found[0],
        "cancel": 0,
        "fork": ("", 0),
    }
    yield from _compare(connection, line, follows, ())
    if previous := listed_previous(connection, line):
        yield f"the run table says previous {previous!r:.200}, the journal says ''"


def wrong_erased_line(connection: apsw.Connection, line: Line) -> Iterator[str]:
    """What the run table still says of a run whose events were erased."""
    if line.digest != ERASED:
        return  # its line was left as it was, which is no sign of a change
    says = msgspec.structs.asdict(line)
    for field in ("session", "principal", "waits", "wake_at", "cancel", "behind", "unread"):
        if says[field]:
            yield f"the run table says {field} {says[field]!r}, and the run was erased"
    if previous := listed_previous(connection, line):
        yield f"the run table says previous {previous!r:.200}, and the run was erased"


def _of_index(index: Index) -> dict[str, object]:
    return {
        "status": index.status,
        "waits": ",".join(index.waits),
        "wake_at": index.wake_at,
        "steps": index.steps,
        "tokens": index.tokens,
        "micro_usd": index.micro_usd,
    }


def _compare(
    connection: apsw.Connection,
    line: Line,
    follows: Mapping[str, object],
    wanted: Sequence[Pending],
) -> Iterator[str]:
    parent = "" if line.parent is None else line_of_number(connection, line.parent).id
    due: Any = connection.execute("SELECT due FROM run WHERE no = ?", (line.no,)).fetchone()
    says = msgspec.structs.asdict(line) | {"fork": (parent, line.parent_at), "due": due[0]}
    for field, value in {**follows, "due": line.due}.items():
        if says[field] != value:
            yield f"the run table says {field} {says[field]!r}, the journal says {value!r}"
    try:
        listed = pending_of_run(connection, line.no)
    except CorruptJournal as error:
        yield str(error)
        return
    yield from _compare_inbox(listed, wanted)


def _compare_inbox(listed: Sequence[Pending], wanted: Sequence[Pending]) -> Iterator[str]:
    names, ids = sorted(p.id for p in listed), sorted(p.id for p in wanted)
    if names != ids:
        yield f"the inbox lists {names}, from the journal follow {ids}"
        return
    for row, item in zip(sorted(listed, key=_id), sorted(wanted, key=_id), strict=True):
        says = msgspec.structs.asdict(row)
        for field, value in msgspec.structs.asdict(item).items():
            if says[field] != value:
                yield (
                    f"the inbox says {field} {says[field]!r:.200} of {row.id}, "
                    f"the journal says {value!r:.200}"
                )


def _id(item: Pending) -> str:
    return item.id


def two_payloads(connection: apsw.Connection, line: Line) -> int:
    """The first event of a run that holds text of its own beside its payload, 0 if none does."""
    base = first_id(line.no)
    found: Any = connection.execute(f"{_BOTH} LIMIT 1", (base, first_id(line.no + 1))).fetchone()
    return 0 if found is None else int(found[0]) - base


# ---------------------------------------------------------------- of none


def strays(connection: apsw.Connection) -> Iterator[str]:
    """Rows that belong to nothing: no journal names them, so none can say that they are right."""
    rows: Any = connection.execute("SELECT no FROM run")
    numbers = {no for (no,) in rows}
    at = 0
    while (found := connection.execute(_NEXT_EVENT, (at,)).get) is not None:
        number = int(found) >> 32
        if number not in numbers:
            yield f"there are events of line {number} of the run table, which is missing"
        at = first_id(number + 1)
    for (hash_,) in connection.execute(_STRAY_BLOBS):
        shown = hash_.hex() if isinstance(hash_, bytes) else repr(hash_)
        yield f"there is a payload that no event names: {shown:.80}"
    for (id_,) in connection.execute(_STRAY_PENDING):
        yield f"the inbox lists {id_!r:.80} of a run that is not there"


def wrong_ledgers(connection: apsw.Connection, now: int) -> Iterator[str]:
    """What runs have reserved, as the ledgers say it and the journals do not.

    Raises:
        CorruptJournal: a journal that matters cannot be read.
    """
    caps = standing_caps(connection)
    if not caps or uncounted(connection):
        return  # nothing is kept up to date, or it is said already that it is not
    for (number,) in connection.execute(_STRAY_LEDGERS):
        yield f"there is a ledger of line {number} of the run table, which is missing"
    seen: set[int] = set()
    rows: Any = connection.execute(_LEDGERS).fetchall()
    for data, *columns in rows:
        line = Line(*columns)
        seen.add(line.no)
        follows = _ledger(connection, line)
        try:
            there = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            yield f"the ledger of run {line.id} cannot be read: {error}"
            continue
        if follows is not None and there != follows:
            yield f"the ledger of run {line.id} says {there}, the journal says {follows}"
    _, expected = recounted(connection, caps, now)
    for number in sorted(expected.keys() - seen):
        run = line_of_number(connection, number).id
        yield f"the ledger of run {run} is missing, the journal says {expected[number]}"


def _ledger(connection: apsw.Connection, line: Line) -> Ledger | None:
    """For whom a run is charged and what it has reserved; None when that was erased."""
    ledger = owner_of(connection, line)
    if ledger is None:
        return None
    for row in spending_rows(connection, line, SPENDING_TYPES):
        if row.data is None:
            return None
        ledger, _ = charge(ledger, open_row(row))
    return ledger
