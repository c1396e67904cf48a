"""What is asked of the file without changing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from cairn.core.codec import Row
from cairn.core.events import Entry
from cairn.core.evolve import fold
from cairn.core.state import RunState
from cairn.ports import RunFilter, RunInfo
from cairn.store.sqlite.journal import entries_of, rows_between
from cairn.store.sqlite.lines import ALL_COLUMNS, Line, info_of, line_of, unknown
from cairn.store.sqlite.owners import Owners

_RUNNABLE = (
    "SELECT id FROM run INDEXED BY run_due WHERE due <= ? "
    "AND (cancel OR agent IN (SELECT value FROM json_each(?))) "
    "AND (owner IS NULL OR owner NOT IN (SELECT value FROM json_each(?))) "
    "AND (behind = 0 OR cancel OR NOT EXISTS ("
    "SELECT 1 FROM run AS a INDEXED BY run_open WHERE a.session = run.session "
    "AND a.session <> '' AND a.no < run.no "
    "AND a.status NOT IN ('completed', 'failed', 'stopped', 'cancelled'))) "
    "ORDER BY no LIMIT ?"
)

_GOES_ON = (
    "no IN (SELECT no FROM run AS a INDEXED BY run_previous "
    "WHERE a.previous = ? AND a.previous <> '' AND a.id <> a.previous "
    "UNION ALL SELECT b.no FROM run AS c CROSS JOIN run AS b INDEXED BY run_parent "
    "ON b.parent = c.no WHERE c.id = ? AND b.session <> '')"
)
"""In the words of the indexes, or they would not be used."""


def info(connection: apsw.Connection, owners: Owners, run: str) -> RunInfo:
    """The run's line. Raises `UnknownRun`."""
    line = line_of(connection, run)
    leased = line.owner is not None and owners.fate(connection, line.owner) == "alive"
    return info_of(connection, line, leased=leased)


def read(connection: apsw.Connection, run: str, after: int, upto: int) -> list[Entry]:
    """Entries of a run, a fork's prefix too."""
    return entries_of(connection, line_of(connection, run), after, upto)


def folded(connection: apsw.Connection, run: str, seen: RunState) -> RunState:
    """The state of a run as the file has it now."""
    line = line_of(connection, run)
    return fold(seen, entries_of(connection, line, seen.seq)) if seen.seq < line.head else seen


def rows(connection: apsw.Connection, run: str) -> list[Row]:
    """A run's own rows."""
    line = line_of(connection, run)
    shared = line.parent_at if line.parent is not None else 0
    return list(rows_between(connection, line, shared, line.head))


def head(connection: apsw.Connection, run: str) -> int:
    """The run's last seq. Raises `UnknownRun`."""
    found: Any = connection.execute("SELECT head FROM run WHERE id = ?", (run,)).fetchone()
    if found is None:
        raise unknown(run)
    return int(found[0])


def heads(connection: apsw.Connection, runs: Sequence[str]) -> dict[str, int]:
    """The last seqs of those runs that exist."""
    found: Any = connection.execute(
        "SELECT id, head FROM run WHERE id IN (SELECT value FROM json_each(?))", (_json(runs),)
    )
    return dict(found)


def runs(connection: apsw.Connection, owners: Owners, where: RunFilter) -> list[RunInfo]:
    """The run table, newest first."""
    wanted = {
        "status IN (SELECT value FROM json_each(?))": _json(where.status) if where.status else "",
        "agent = ?": where.agent,
        "session = ? AND session <> ''": where.session,  # as the index has it
        "principal = ?": where.principal,
        _GOES_ON: where.previous,
    }
    terms = " AND ".join(["no > 0", *(term for term, value in wanted.items() if value)])
    values = [value for term, value in wanted.items() if value for _ in range(term.count("?"))]
    found: Any = connection.execute(
        f"SELECT {ALL_COLUMNS} FROM run WHERE {terms} ORDER BY no DESC LIMIT ?",  # noqa: S608 - our own words
        (*values, where.limit),
    ).fetchall()
    alive = _alive(connection, owners)
    lines = [Line(*row) for row in found]
    return [info_of(connection, line, leased=line.owner in alive) for line in lines]


def runnable(
    connection: apsw.Connection, owners: Owners, agents: Sequence[str], now: int, limit: int
) -> list[str]:
    """Runs that could be driven now and are not, oldest first."""
    alive = sorted(_alive(connection, owners))
    found: Any = connection.execute(_RUNNABLE, (now, _json(agents), _json(alive), limit))
    return [run for (run,) in found]


def _alive(connection: apsw.Connection, owners: Owners) -> set[str]:
    return {*owners.alive(connection), owners.token}


def _json(words: Sequence[str]) -> str:
    return msgspec.json.encode(list(words)).decode()
