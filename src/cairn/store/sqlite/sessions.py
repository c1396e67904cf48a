"""Sessions in the file: who stands where, who waits behind whom, where messages went."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import apsw
import msgspec

from cairn.core.codec import open_row
from cairn.core.events import (
    Entry,
    InputQueued,
    RunContinued,
    RunCreated,
    RunRef,
    SessionForked,
    SessionRemoved,
    SessionRewound,
    SessionTitled,
)
from cairn.core.run_table import ERASED
from cairn.errors import CorruptJournal, Moved, RunErased, SessionBusy, UnknownRun
from cairn.ports import NewRun, SessionInfo
from cairn.store.retention import Ties, previous_in
from cairn.store.sqlite.journal import Salts, empty, prepare, said_of, tenant_of
from cairn.store.sqlite.lines import ALL_COLUMNS, Line, find_line, line_of, line_of_number
from cairn.store.sqlite.transaction import Transaction
from cairn.store.submission import session_moved

STORE = "store"
_OVER = "('completed', 'failed', 'stopped', 'cancelled')"
_OPEN = (
    f"SELECT {ALL_COLUMNS} FROM run INDEXED BY run_open WHERE session = ? AND session <> '' "  # noqa: S608 - our own words
    f"AND status NOT IN {_OVER} ORDER BY no"
)
"""In the words of the index, or it would not be used."""
_PLACE = "SELECT title, run, newest FROM place WHERE session = ?"
_HEAD = (
    f"SELECT {ALL_COLUMNS} FROM run INDEXED BY run_session WHERE session = ? AND session <> '' "  # noqa: S608 - our own words
    "AND no > ? AND behind = 0 ORDER BY no DESC LIMIT 1"
)
_NEWEST = "SELECT id FROM run WHERE session = ? AND session <> '' ORDER BY no DESC LIMIT 1"
_UNREAD = (
    "SELECT id, session FROM run INDEXED BY run_unread WHERE unread > 0 AND session <> '' "
    "AND agent IN (SELECT value FROM json_each(?)) ORDER BY no"
)
_LIST = (
    "SELECT session, count(*), sum(status NOT IN ('completed', 'failed', 'stopped', 'cancelled')), "
    "min(created_at), max(updated_at), min(no) FROM run WHERE session <> '' "
)
_UNBEGUN = (
    "SELECT session FROM place WHERE (session = ? OR ? = '') "
    "AND NOT EXISTS (SELECT 1 FROM run WHERE run.session = place.session AND run.session <> '')"
)
_BARE = (
    "SELECT session FROM place WHERE run IN (SELECT id FROM run) "
    "AND NOT EXISTS (SELECT 1 FROM run WHERE run.session = place.session) ORDER BY no DESC"
)


def head(connection: apsw.Connection, session: str) -> Line | None:
    """The run a session stands at."""
    place: Any = connection.execute(_PLACE, (session,)).fetchone()
    after = place[2] if place is not None else 0
    found: Any = connection.execute(_HEAD, (session, after)).fetchone()
    if found is not None:
        return Line(*found)
    return find_line(connection, place[1]) if place is not None and place[1] else None


def open_lines(connection: apsw.Connection, session: str) -> list[Line]:
    """The runs of a session that are not over, oldest first."""
    found: Any = connection.execute(_OPEN, (session,)).fetchall()
    return [Line(*row) for row in found]


def message(connection: apsw.Connection, id_: str) -> RunRef | None:
    """See `Store.message`."""
    if find_line(connection, id_) is not None:
        return RunRef(run=id_, seq=1)
    found: Any = connection.execute(
        "SELECT r.id, m.seq FROM message AS m JOIN run AS r ON r.no = m.run WHERE m.id = ?", (id_,)
    ).fetchone()
    return None if found is None else RunRef(run=found[0], seq=found[1])


def unread(connection: apsw.Connection, agents: Sequence[str], limit: int) -> list[str]:
    """See `Store.unread`."""
    names = msgspec.json.encode(list(agents)).decode()
    found: list[str] = []
    for run, session in connection.execute(_UNREAD, (names,)):
        if len(found) == limit:
            break
        stands = head(connection, str(session))
        if stands is not None and stands.id == run and not open_lines(connection, str(session)):
            found.append(str(run))
    return found


# ---------------------------------------------------------------- lists


def listed(
    connection: apsw.Connection, principal: str, limit: int, tenant: str | None
) -> list[SessionInfo]:
    """See `Store.sessions`."""
    lines = _listed(connection, principal)
    mine = (line for line in lines if tenant is None or _tenant(connection, line.head) == tenant)
    return list(islice(mine, limit))


def _listed(connection: apsw.Connection, principal: str) -> Iterator[SessionInfo]:
    for (session,) in connection.execute(_BARE):
        line = one(connection, str(session))
        if principal in {"", line.principal}:
            yield line
    mine = "AND principal = ? " if principal else ""
    rows: Any = connection.execute(
        f"{_LIST}{mine}GROUP BY session ORDER BY max(no) DESC", (principal,) if principal else ()
    )
    for row in rows:
        yield _line(connection, *row)


def _tenant(connection: apsw.Connection, run: str) -> str | None:
    """Of the principal of a run, as its journal says it; None if that cannot be read."""
    try:
        return tenant_of(connection, line_of(connection, run))
    except CorruptJournal:
        return None


def one(connection: apsw.Connection, session: str) -> SessionInfo:
    """See `Store.session`."""
    row: Any = connection.execute(f"{_LIST}AND session = ?", (session,)).fetchone()
    return _line(connection, session, *row[1:])


def _line(
    connection: apsw.Connection,
    session: str,
    runs: int,
    going_on: int | None,
    created_at: int | None,
    updated_at: int | None,
    first: int | None,
) -> SessionInfo:
    stands = head(connection, session)
    if stands is None:  # none of its runs has begun, and none will go on from an earlier one
        newest: Any = connection.execute(_NEWEST, (session,)).fetchone()
        if newest is None:
            raise UnknownRun(f"there is no session {session!r}")
        stands = line_of(connection, newest[0])
    place: Any = connection.execute(_PLACE, (session,)).fetchone()
    return SessionInfo(
        session=session,
        title=place[0] if place is not None else "",
        head=stands.id,
        agent=stands.agent,
        principal=stands.principal,
        status=stands.status,
        runs=runs,
        open=going_on or 0,
        created_at=stands.updated_at if created_at is None else created_at,
        updated_at=stands.updated_at if updated_at is None else updated_at,
        first=line_of_number(connection, first).id if first is not None else "",
    )


# ---------------------------------------------------------------- in a transaction


def check(tx: Transaction, new: NewRun) -> None:
    """Refuse a run that its session does not take now."""
    going_on = open_lines(tx.connection, new.session)
    if new.behind:
        if not going_on:
            raise session_moved(new.session)
        return
    if going_on:
        raise SessionBusy(new.session, going_on[0].id)
    stands = head(tx.connection, new.session)
    if new.previous is not None and new.previous != (stands.id if stands is not None else ""):
        raise session_moved(new.session)
    if stands is not None and stands.session == new.session:
        tx.read_by_another(tx.line(stands.id))


def begun(tx: Transaction, line: Line, entries: Sequence[Entry]) -> None:
    """A run that waited behind another has begun, if one of the entries says so."""
    for entry in entries:
        if isinstance(entry.event, RunContinued):
            line.behind = 0
            line.indexed = True
            goes_on_from(tx.connection, line.no, entry.event.previous.run)
            before = tx.find(entry.event.previous.run)
            if before is not None and before.session == line.session:
                tx.read_by_another(before)


def goes_on_from(connection: apsw.Connection, number: int, previous: str) -> None:
    """Keep which run a run goes on from, which stays as long as this one does."""
    connection.execute("UPDATE run SET previous = ? WHERE no = ?", (previous, number))


def taken(tx: Transaction, id_: str) -> Line | None:
    """The run that a message of this id went to."""
    line = tx.find(id_)
    if line is not None:
        return line
    found: Any = tx.connection.execute(
        "SELECT r.id FROM message AS m JOIN run AS r ON r.no = m.run WHERE m.id = ?", (id_,)
    ).fetchone()
    return None if found is None else tx.find(found[0])


def queued(tx: Transaction, line: Line, entry: Entry) -> None:
    """Remember where a message went."""
    if isinstance(entry.event, InputQueued) and entry.event.id:
        tx.connection.execute(
            "INSERT INTO message (id, run, seq) VALUES (?, ?, ?)",
            (entry.event.id, line.no, entry.seq),
        )


def check_facts(tx: Transaction, entries: Sequence[Entry]) -> None:
    """Refuse facts that do not fit the runs as they are."""
    runs: Any
    for entry in entries:
        match entry.event:
            case SessionTitled() as event:
                runs = tx.connection.execute(_NEWEST, (event.session,)).fetchone()
                if runs is None and head(tx.connection, event.session) is None:
                    raise UnknownRun(f"there is no session {event.session!r}")
            case SessionRewound() as event:
                _check_run(tx, event.run)
                for line in open_lines(tx.connection, event.session):
                    raise SessionBusy(event.session, line.id)
                newest: Any = tx.connection.execute(_NEWEST, (event.session,)).fetchone()
                if newest is None or newest[0] != event.newest:
                    raise session_moved(event.session)
            case SessionForked() as event:
                _check_run(tx, event.run)
                runs = tx.connection.execute(_NEWEST, (event.session,)).fetchone()
                place: Any = tx.connection.execute(_PLACE, (event.session,)).fetchone()
                if runs is not None or (place is not None and place[1]):
                    raise Moved(f"there is a session {event.session!r} already")
            case _:
                pass


def _check_run(tx: Transaction, run: str) -> None:
    """Refuse to go on from a run that holds nothing: it may have been erased just now."""
    if tx.line(run).digest == ERASED:
        raise RunErased(run)


def keep(tx: Transaction, entries: Sequence[Entry]) -> None:
    """Take facts in."""
    for entry in entries:
        event = entry.event
        if isinstance(event, SessionTitled):
            tx.connection.execute(
                "INSERT INTO place (session, title) VALUES (?, ?) "
                "ON CONFLICT (session) DO UPDATE SET title = excluded.title",
                (event.session, event.title),
            )
        elif isinstance(event, SessionRewound | SessionForked):
            newest = tx.line(event.newest).no if isinstance(event, SessionRewound) else 0
            tx.connection.execute(
                "INSERT INTO place (session, run, newest) VALUES (?, ?, ?) ON CONFLICT (session) "
                "DO UPDATE SET run = excluded.run, newest = excluded.newest",
                (event.session, event.run, newest),
            )


def ties(connection: apsw.Connection, without: Collection[str]) -> Ties:
    """Who goes on from whom, but for the places of these sessions."""
    named: Any = connection.execute("SELECT id, previous FROM run WHERE previous <> ''")
    placed: Any = connection.execute(
        "SELECT place.session, place.run FROM place JOIN run ON run.id = place.run "
        "WHERE place.run <> '' AND run.session <> place.session"
    )
    previous = dict(named)
    places = {session: run for session, run in placed if session not in without}
    count = "SELECT count(*) FROM run WHERE session = ? AND session <> ''"
    sizes: Any = {name: connection.execute(count, (name,)).get for name in places}
    return Ties(previous, places, sizes)


def is_begun(tx: Transaction, session: str) -> bool:
    """Whether a session has a run of its own."""
    return tx.connection.execute(_NEWEST, (session,)).fetchone() is not None


def forget(tx: Transaction, session: str) -> bool:
    """Take out what is listed of a session that has no run any more; whether there was anything.

    What the journal `store` says of it must be emptied in the same transaction: see `silence`.
    """
    connection = tx.connection
    if is_begun(tx, session):
        return False
    connection.execute("DELETE FROM place WHERE session = ?", (session,))
    return connection.changes() > 0


def unbegun(connection: apsw.Connection, before: int, session: str = "") -> set[str]:
    """Sessions that were forked, have no run yet, and of which nothing was said since.

    None if it cannot be read what was said of them.

    Args:
        connection: What was said is written there.
        before: Since when; microseconds.
        session: Only this one; empty for all.
    """
    bare: Any = connection.execute(_UNBEGUN, (session, session))
    last = {str(name): 0 for (name,) in bare}
    store = find_line(connection, STORE)
    if not last or store is None:
        return set()
    try:
        for row in said_of(connection, store, last):
            name = open_row(row).event.session
            last[name] = max(row.at, last[name])
    except CorruptJournal:
        return set()
    return {name for name, at in last.items() if at < before}


def silence(tx: Transaction, sessions: Collection[str], now: int, salts: Salts) -> None:
    """Empty all that the journal `store` says of these sessions, and say so there."""
    if not sessions:
        return
    store = tx.line(STORE)
    tx.flush()
    if notes := [row.seq for row in said_of(tx.connection, store, sessions)]:
        empty(tx.connection, store, notes)
        at = max(now, store.updated_at)
        removed = Entry(seq=store.head + 1, at=at, event=SessionRemoved(notes=tuple(notes)))
        tx.extend(store, prepare(STORE, (removed,), salts))


# ---------------------------------------------------------------- what follows from journals


def wrong_messages(connection: apsw.Connection, line: Line, own: Sequence[Entry]) -> Iterator[str]:
    """What the table of messages says of a run, and its events do not."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'message'").get is None:
        return  # a file of an earlier version
    there: Any = connection.execute("SELECT id, seq FROM message WHERE run = ?", (line.no,))
    follows = {
        entry.event.id: entry.seq
        for entry in own
        if isinstance(entry.event, InputQueued) and entry.event.id
    }
    if dict(there) != follows:
        yield f"the messages listed for it are not those that the journal says: {sorted(follows)}"


def wrong_previous(connection: apsw.Connection, line: Line, own: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with the run that a run goes on from.

    Args:
        own: Its events, without those of a run it was forked from.
    """
    for entry in own:
        event = entry.event
        previous = event.previous if isinstance(event, RunCreated | RunContinued) else None
        if previous is None:
            continue
        before = find_line(connection, previous.run)
        if before is None:
            yield f"it goes on from run {previous.run}, which is missing"
        elif before.head < previous.seq:
            yield f"it goes on from event {previous.seq} of {previous.run}, which is missing"
    yield from _compare_previous(connection, line, previous_in(own) or "")


def _compare_previous(connection: apsw.Connection, line: Line, follows: str) -> Iterator[str]:
    says = listed_previous(connection, line)
    if says is not None and says != follows:
        yield f"the run table says previous {says!r:.200}, the journal says {follows!r:.200}"


def listed_previous(connection: apsw.Connection, line: Line) -> str | None:
    """What the run table says a run goes on from; None in a file of an earlier version."""
    try:
        found = connection.execute("SELECT previous FROM run WHERE no = ?", (line.no,)).get
    except apsw.SQLError:
        return None
    return str(found)


def stray_messages(connection: apsw.Connection) -> Iterator[str]:
    """Messages that are listed where no message is."""
    rows: Any = connection.execute(
        "SELECT id FROM message AS m WHERE NOT EXISTS "
        "(SELECT 1 FROM event AS e WHERE e.id = (m.run << 32) + m.seq AND e.type = ?)",
        (InputQueued.TYPE,),
    )
    for (id_,) in rows:
        yield f"the message {id_!r:.80} is listed where none is"


def wrong_places(connection: apsw.Connection, facts: Sequence[object]) -> Iterator[str]:
    """What is listed of sessions, and the store's own journal does not say."""
    follows: dict[str, tuple[str, str, str]] = {}
    for fact in facts:
        if isinstance(fact, SessionTitled):
            follows[fact.session] = (fact.title, *follows.get(fact.session, ("", "", ""))[1:])
        elif isinstance(fact, SessionRewound | SessionForked):
            newest = fact.newest if isinstance(fact, SessionRewound) else ""
            title = follows.get(fact.session, ("", "", ""))[0]
            follows[fact.session] = (title, fact.run, newest)
    rows: Any = connection.execute(
        "SELECT session, title, run, newest FROM place ORDER BY no"
    ).fetchall()
    for session, title, run, number in rows:
        said = follows.pop(session, None)
        newest = said[2] if said is not None else ""
        line = find_line(connection, newest) if newest else None
        pruned = newest and line is None  # its number went with it
        right = pruned or number == (line.no if line is not None else 0)
        if said is None or said[:2] != (title, run) or not right:
            yield f"what is listed of session {session!r:.80} is not what the journal says"
    for session in follows:
        yield f"session {session!r:.80} is not listed as the journal says"
