"""What one transaction of the writer changes: lines by compare-and-set, rows by the batch.

Changes gather in memory and go to the file in a handful of statements, each over many rows. Not
for the database's sake: the library lets the interpreter's lock go around every statement, and
beside a busy thread it can take 5 ms to come back, so a statement for each row would cost a
batch of 64 appends a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import apsw

from cairn.core.index import Index, Pending
from cairn.store.retention import ENDED_VALUES
from cairn.store.sqlite.connection import has_moved
from cairn.store.sqlite.journal import Prepared, first_id
from cairn.store.sqlite.lines import Line, find_line, pending_of_run, unknown
from cairn.store.sqlite.owners import Owners
from cairn.store.sqlite.spending import Spending

LINES_KEPT = 4096
_CHUNKS = (16, 8, 4, 2, 1)

EventRow = tuple[int, int, int, str, int, int, bytes | None, bytes | None, bytes, bytes]

_INSERT = "INSERT INTO event (id, at, step, actor, type, v, data, blob, salt, hash) VALUES "
_INSERT_EVENTS = {n: _INSERT + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * n) for n in _CHUNKS}


def _update(columns: Sequence[str]) -> dict[int, str]:
    """Statements that set columns of n lines, each only where head and epoch are as known."""
    sets = ", ".join(f"{name} = n.column{at}" for at, name in enumerate(columns, 1))
    width = len(columns)
    guard = (
        f"no = n.column{width + 1} AND head = n.column{width + 2} AND epoch = n.column{width + 3}"
    )
    values = f"({', '.join(['?'] * (width + 3))})"
    statements = {
        n: f"UPDATE run SET {sets} FROM (VALUES {rows}) AS n WHERE {guard}"  # noqa: S608 - our own words
        for n in _CHUNKS
        for rows in [", ".join([values] * n)]
    }
    # one line alone, the most common of all, needs no table of values
    alone = ", ".join(f"{name} = ?" for name in columns)
    statements[1] = f"UPDATE run SET {alone} WHERE no = ? AND head = ? AND epoch = ?"  # noqa: S608 - our own words
    return statements


_PLAIN = ("head", "counted", "hash", "updated_at", "steps", "tokens", "micro_usd")
_INDEXED = ("epoch", "owner", "status", "waits", "wake_at", "cancel", "due", "behind", "unread")
_UPDATE_PLAIN = _update(_PLAIN)
_UPDATE_ALL = _update(_PLAIN + _INDEXED)


class Overtaken(Exception):
    """The file is not as this process remembers it: the batch is done again, from the file."""


class Clearing:
    """What is to be done once the transaction is written, so that no page keeps what it removed."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False
        """Whether the file was written anew and its log cut, as its users let us."""


class Transaction:
    """The writer's view of the file, from BEGIN to COMMIT and on to the next one.

    Lines are remembered between transactions; `data_version` says whether another process wrote
    meanwhile, and then they are forgotten. The guard in every update decides all the same.
    """

    def __init__(self, connection: apsw.Connection, owners: Owners) -> None:
        self.connection = connection
        self.owners = owners
        self.spending = Spending(connection, self.flush)
        self.driven: set[str] = set()
        """Runs this process has claimed and not released."""
        self.clears_log = False
        """Whether what this transaction removes must not stay in the write-ahead log either."""
        self.clearing: Clearing | None = None
        """Whether it must not stay in any page of the file either, and who wants to know."""
        self._doubtful: set[str] = set()
        self._lines: dict[str, Line] = {}
        self._version = -1
        self._touched: dict[int, Line] = {}
        self._dirty: dict[int, Line] = {}
        self._rows: list[EventRow] = []
        self._payloads: list[tuple[bytes, bytes]] = []

    # ------------------------------------------------------------ begin and end

    def begin(self) -> None:
        """Take the write lock, and notice what others wrote.

        Raises:
            apsw.BusyError: others hold it.
            apsw.CantOpenError: the file was removed, or another was put in its place.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        if has_moved(self.connection):
            raise apsw.CantOpenError("the file was removed, or another was put in its place")
        version = self.connection.execute("PRAGMA data_version").get
        news = version != self._version
        if news:
            self._lines.clear()
            self._version = version
        self.spending.begin(news=news)

    def commit(self) -> list[Line]:
        """Write and commit; returns the lines that changed."""
        self.flush()
        self.connection.execute("COMMIT")
        touched = list(self._touched.values())
        self._touched.clear()
        for line in touched:
            if line.owner == self.owners.token:
                self.driven.add(line.id)
            else:
                self.driven.discard(line.id)
        if len(self._lines) > LINES_KEPT:
            self._lines.clear()
        return touched

    def roll_back(self) -> None:
        """Nothing of it happened; nothing of it is remembered."""
        self._version = -1
        self.clears_log = False
        self.clearing = None
        self.spending.forget()
        self._lines.clear()
        self._touched.clear()
        self._dirty.clear()
        self._rows.clear()
        self._payloads.clear()
        self.owners.undone()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    # ------------------------------------------------------------ lines

    def find(self, run: str) -> Line | None:
        """The line of a run, or None."""
        line = self._lines.get(run)
        if line is None:
            line = find_line(self.connection, run)
            if line is not None:
                self.remember(line)
        return line

    def line(self, run: str) -> Line:
        """The line of a run. Raises `UnknownRun`."""
        line = self.find(run)
        if line is None:
            raise unknown(run)
        return line

    def remember(self, line: Line) -> None:
        """The file holds this line as it is here."""
        line.base_head = line.head
        line.base_epoch = line.epoch
        self._lines[line.id] = line

    def forget(self, line: Line) -> None:
        """The line was removed."""
        self._lines.pop(line.id, None)
        self._dirty.pop(line.no, None)
        self._touched.pop(line.no, None)
        self.driven.discard(line.id)

    def lease(self, line: Line, owner: str | None) -> None:
        """Hand the run to an owner, or to nobody."""
        if line.owner != owner:
            line.owner = owner
            line.indexed = True
        self._dirty[line.no] = line

    def in_doubt(self, line: Line, *, frozen: bool) -> bool:
        """Whether who drove a run before may yet wake up; remembered until something is written.

        `frozen` says so of the last one; of those before it the file does.
        """
        if not frozen:
            doubt = self.connection.execute("SELECT doubt FROM run WHERE no = ?", (line.no,)).get
            if not doubt:
                return False
        self.connection.execute("UPDATE run SET doubt = 1 WHERE no = ?", (line.no,))
        self._doubtful.add(line.id)
        return True

    def no_doubt(self, line: Line) -> None:
        """What was at work when a run was claimed has been told of."""
        if line.id in self._doubtful:
            self._doubtful.discard(line.id)
            self.connection.execute("UPDATE run SET doubt = 0 WHERE no = ?", (line.no,))

    def extend(self, line: Line, prepared: Sequence[Prepared]) -> None:
        """Append rows, chained to the last one."""
        previous = line.hash
        base = first_id(line.no)
        rows = self._rows
        for seq, fields, sealed, payload in prepared:
            previous = sha256(previous + sealed).digest()
            rows.append((base + seq, *fields, previous))
            if payload is not None:
                self._payloads.append((fields[6] or b"", payload))
        if prepared:
            line.hash = previous
            line.head = prepared[-1].seq
            line.updated_at = prepared[-1].fields[0]
        self._dirty[line.no] = line

    def reindex(self, line: Line, index: Index, *, cancel: bool = False) -> None:
        """Bring the index columns and inbox rows up to date, as far as they changed."""
        line.steps, line.tokens, line.micro_usd = index.steps, index.tokens, index.micro_usd
        waits = ",".join(index.waits)
        # what came later than the end was read by nobody of this run, and is no message any more
        unread = line.unread if line.status in ENDED_VALUES else index.unread
        if (
            index.status != line.status
            or index.wake_at != line.wake_at
            or waits != line.waits
            or unread != line.unread
            or cancel
        ):
            line.status, line.wake_at, line.waits = index.status, index.wake_at, waits
            line.unread = unread
            line.cancel |= cancel
            line.indexed = True
        if line.pending != index.pending:
            self._refile(line, index.pending)
        self._dirty[line.no] = line

    def read_by_another(self, line: Line) -> None:
        """What a run left unread has been taken over by the one that goes on from it."""
        if line.unread:
            line.unread = 0
            line.indexed = True
            self._dirty[line.no] = line

    def _refile(self, line: Line, pending: tuple[Pending, ...]) -> None:
        old = line.pending
        if old is None:
            old = pending_of_run(self.connection, line.no)
        line.pending = pending
        if old == pending:
            return
        gone = {item.id for item in old} - {item.id for item in pending}
        self.connection.executemany("DELETE FROM pending WHERE id = ?", [(id_,) for id_ in gone])
        self.connection.executemany(
            "INSERT INTO pending (run, id, kind, call, tool, detail, digest, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, "
            "call = excluded.call, tool = excluded.tool, detail = excluded.detail, "
            "digest = excluded.digest, expires_at = excluded.expires_at",
            [
                (line.no, p.id, p.kind, p.call, p.tool, p.detail, p.digest, p.expires_at)
                for p in pending
            ],
        )

    # ------------------------------------------------------------ to the file

    def flush(self) -> None:
        """Bring everything gathered to the file, so that it can be read there."""
        if self._payloads:
            self.connection.executemany(
                "INSERT INTO blob (hash, data) VALUES (?, ?) ON CONFLICT DO NOTHING",
                self._payloads,
            )
            self._payloads = []
        if self._rows:
            self._in_chunks(_INSERT_EVENTS, self._rows)
            self._rows = []
        if self._dirty:
            self._flush_lines()
        self.spending.flush()

    def _flush_lines(self) -> None:
        plain, indexed = [], []
        for line in self._dirty.values():
            values = [line.head, line.head, line.hash, line.updated_at]
            values += (line.steps, line.tokens, line.micro_usd)
            guard = (line.no, line.base_head, line.base_epoch)
            if line.indexed:
                values += (line.epoch, line.owner, line.status, line.waits, line.wake_at)
                values += (line.cancel, line.due, line.behind, line.unread, *guard)
                indexed.append(values)
                line.indexed = False
            else:
                values += guard
                plain.append(values)
            line.base_head = line.head
            line.base_epoch = line.epoch
        changed = self._in_chunks(_UPDATE_PLAIN, plain) + self._in_chunks(_UPDATE_ALL, indexed)
        if changed != len(plain) + len(indexed):
            raise Overtaken
        self._touched |= self._dirty
        self._dirty.clear()

    def _in_chunks(self, statements: dict[int, str], rows: Sequence[Sequence[object]]) -> int:
        """Run a many-row statement over all rows; returns how many lines it changed."""
        connection = self.connection
        changed = at = 0
        left = len(rows)
        for size in _CHUNKS:
            while left >= size:
                values: list[object] = []
                for row in rows[at : at + size]:
                    values += row
                connection.execute(statements[size], values)
                changed += connection.changes()
                at += size
                left -= size
        return changed
