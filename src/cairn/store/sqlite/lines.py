"""The run table: its lines in memory, how they are found, and what of them is shown."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from cairn.core.index import Pending
from cairn.errors import CorruptJournal, UnknownRun
from cairn.ports import RunInfo
from cairn.store.retention import ENDED_VALUES

COLUMNS = (
    "no, id, parent, parent_at, head, hash, epoch, owner, agent, session, principal, digest, "
    "status, waits, wake_at, cancel, steps, tokens, micro_usd, created_at, updated_at"
)
"""Those that every version of the file has."""
ALL_COLUMNS = f"{COLUMNS}, behind, unread"


AHEAD = (
    "SELECT id FROM run INDEXED BY run_open WHERE session = ? AND session <> '' AND no < ? "
    "AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled') ORDER BY no LIMIT 1"
)
"""In the words of the index, or it would not be used."""
_BY_ID = f"SELECT {ALL_COLUMNS} FROM run WHERE id = ?"  # noqa: S608 - our own words
_BY_NUMBER = f"SELECT {ALL_COLUMNS} FROM run WHERE no = ?"  # noqa: S608 - our own words


class Line(msgspec.Struct):
    """A line of the run table, in the order of `ALL_COLUMNS`, and what its writer knows."""

    no: int
    id: str
    parent: int | None
    parent_at: int
    head: int
    hash: bytes
    epoch: int
    owner: str | None
    agent: str
    session: str
    principal: str
    digest: str
    status: str
    waits: str
    wake_at: int
    cancel: int
    steps: int
    tokens: int
    micro_usd: int
    created_at: int
    updated_at: int
    behind: int = 0
    unread: int = 0

    base_head: int = -1
    """Head and epoch as the file has them: what the guarded update names."""
    base_epoch: int = -1
    indexed: bool = False
    """A column changed that the indexes hold."""
    pending: tuple[Pending, ...] | None = None
    """Its inbox rows, None when they were not looked at yet."""

    @property
    def due(self) -> int | None:
        """From when on somebody could drive it, None for not before it changes."""
        if self.status in ENDED_VALUES:
            return None
        if self.cancel or self.status in {"queued", "running"}:
            return 0
        return self.wake_at or None if self.status == "waiting" else None


def find_line(connection: apsw.Connection, run: str) -> Line | None:
    """The line of a run, or None."""
    found = _one(connection, _BY_ID, run)
    return None if found is None else Line(*found)


def _one(connection: apsw.Connection, select: str, value: object) -> Any:
    try:
        return connection.execute(select, (value,)).fetchone()
    except apsw.SQLError:  # a file of an earlier version, which is looked at as it is
        return connection.execute(select.replace(ALL_COLUMNS, COLUMNS), (value,)).fetchone()


def line_of(connection: apsw.Connection, run: str) -> Line:
    """The line of a run. Raises `UnknownRun`."""
    line = find_line(connection, run)
    if line is None:
        raise unknown(run)
    return line


def unknown(run: str) -> UnknownRun:
    """The error for a run that is not there."""
    return UnknownRun(f"there is no run {run!r} in this store")


def line_of_number(connection: apsw.Connection, number: int) -> Line:
    """The line of a run that a foreign key says is there. Raises `CorruptJournal`."""
    found = _one(connection, _BY_NUMBER, number)
    if found is None:
        raise CorruptJournal(f"line {number} of the run table is missing, and a fork names it")
    return Line(*found)


def info_of(connection: apsw.Connection, line: Line, *, leased: bool) -> RunInfo:
    """What the port shows of a line."""
    parent = "" if line.parent is None else line_of_number(connection, line.parent).id
    return RunInfo(
        run=line.id,
        agent=line.agent,
        session=line.session,
        principal=line.principal,
        head=line.head,
        status=line.status,
        waits=tuple(line.waits.split(",")) if line.waits else (),
        wake_at=line.wake_at,
        leased=leased,
        digest=line.digest,
        parent=parent,
        parent_at=line.parent_at,
        created_at=line.created_at,
        updated_at=line.updated_at,
        steps=line.steps,
        tokens=line.tokens,
        micro_usd=line.micro_usd,
        behind=ahead_of(connection, line),
        unread=line.unread,
    )


def ahead_of(connection: apsw.Connection, line: Line) -> str:
    """The run that must be over before this one begins; empty if none."""
    if not line.behind or line.status in ENDED_VALUES:
        return ""
    found: Any = connection.execute(AHEAD, (line.session, line.no)).fetchone()
    return "" if found is None else str(found[0])


def pending_of_run(connection: apsw.Connection, number: int) -> tuple[Pending, ...]:
    """The inbox rows of one run."""
    return tuple(_pending(row) for row in connection.execute(_PENDING_OF_RUN, (number,)))


def pending_of_all(connection: apsw.Connection, limit: int) -> list[Pending]:
    """The inbox, oldest first."""
    return [_pending(row) for row in connection.execute(_PENDING_OF_ALL, (limit,))]


_PENDING = "SELECT id, kind, call, tool, detail, digest, expires_at FROM pending"
_PENDING_OF_RUN = f"{_PENDING} WHERE run = ? ORDER BY no"
_PENDING_OF_ALL = f"{_PENDING} ORDER BY no LIMIT ?"


def _pending(row: tuple[object, ...]) -> Pending:
    names = ("id", "kind", "call", "tool", "detail", "digest", "expires_at")
    try:
        return msgspec.convert(dict(zip(names, row, strict=True)), Pending)
    except msgspec.ValidationError as error:
        raise CorruptJournal(f"a line of the inbox cannot be read: {error}") from error
