"""A store file looked at without being opened for work: nothing in it is changed, or trusted.

It works on a file that may only be read, on a copy, and beside processes that write. Where
`Store.read` gives up at the first damaged row, this says which row it is and what is wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw
import msgspec

from cairn.core.codec import GENESIS, Row, open_row
from cairn.core.events import PrincipalErased, SessionRemoved, StoreErased, StorePruned
from cairn.core.evolve import fold
from cairn.core.state import RunState
from cairn.core.verification import (
    Chain,
    Exported,
    Finding,
    Kind,
    Mark,
    altered,
    fits,
    moved_from,
)
from cairn.core.views.audit import AuditLine, audit
from cairn.errors import (
    CairnError,
    ConfigError,
    CorruptJournal,
    StoreFailed,
    UnsupportedStore,
)
from cairn.store.sqlite import memory_checks, schema, spending, tables
from cairn.store.sqlite.faults import patiently, translate
from cairn.store.sqlite.journal import first_id, spans
from cairn.store.sqlite.lines import Line, find_line, line_of
from cairn.store.sqlite.sessions import stray_messages, wrong_places

T = TypeVar("T")
PATIENCE_S = 10.0
BUDGETS_SINCE = 2
"""The version of the file that budgets came with."""
SESSIONS_SINCE = 5
"""And the one that messages with an id, and what is said of sessions, came with."""
STORE = "store"
NEIGHBOURS = 10_000
"""In how many journals a record that does not fit is looked for."""
_SEQ_MASK = (1 << 32) - 1
_ROWS = (
    "SELECT e.id, e.at, e.step, CAST(e.actor AS BLOB), e.type, e.v, e.data, e.blob, b.data, "
    "e.salt, e.hash FROM event AS e LEFT JOIN blob AS b ON b.hash = e.blob "
    "WHERE e.id > ? AND e.id <= ? ORDER BY e.id"
)


class Inspection(msgspec.Struct, frozen=True):
    """What was found in one journal.

    Args:
        run: Its id.
        events: How many events it has, a fork's prefix included.
        erased: How many of them hold no data any more, as the store's journal says.
        removed: How many of these were of sessions that were removed: the others were erased.
        findings: What is wrong; of the chain only the first place.
    """

    run: str
    events: int
    erased: int = 0
    removed: int = 0
    findings: tuple[Finding, ...] = ()


class Erasures:
    """What the journal `store` says was erased: of runs all, of itself single facts."""

    def __init__(self, facts: Sequence[object]) -> None:
        self.runs = {f.run: f for f in facts if isinstance(f, StoreErased)}
        erased = (f for f in facts if isinstance(f, PrincipalErased | SessionRemoved))
        self.notes = frozenset(seq for fact in erased for seq in fact.notes)
        self.removed = sum(len(f.notes) for f in facts if isinstance(f, SessionRemoved))

    def chain(self, run: str, after: int, previous: bytes) -> Chain:
        """What walks over a part of this journal."""
        known = self.runs.get(run)
        return Chain(
            run,
            after,
            previous,
            erased_upto=known.head if known else 0,
            erased=self.notes if run == STORE else (),
        )


class Inspector:
    """A look at a store file. Close it, or use it as a context manager.

    Raises:
        ConfigError: there is no such file.
        SchemaTooNew, UnsupportedStore, StoreError: it is no store that can be looked at.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = os.path.realpath(path)
        if not Path(self.path).is_file():
            raise ConfigError("store", f"there is no store {path}", "Name the store file")
        schema.check_untouched(self.path)
        self._undisturbed: tuple[int, int] | None = None
        """What the file was like when it was opened as one that nobody writes to."""
        beside = (self._log, Path(f"{self.path}-journal"))
        self._connection = self._open(alone=not any(file.exists() for file in beside))
        self._version = self._ask(lambda c: schema.check_version(c, self.path))
        if not self._version:
            self.close()
            raise UnsupportedStore(f"{path} holds no store")
        self._erasures: Erasures | None = None

    @property
    def _has_memory(self) -> bool:
        return self._version >= memory_checks.SINCE

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    def _open(self, *, alone: bool) -> apsw.Connection:
        """A connection that changes nothing; `alone` says that no other process has it open.

        It would make side files beside a file that nobody has open, and cannot remove them; so
        such a file is taken as one that stays as it is, and looked at again when it did not.
        """
        address = Path(self.path).as_uri()
        option = "immutable=1" if alone else "mode=ro"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self._undisturbed = self._stamp() if alone else None
        connection = apsw.Connection(f"{address}?{option}", flags=flags)
        try:
            connection.execute("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except apsw.Error as error:
            connection.close(True)
            if not alone and self._log.exists() and not self._log.stat().st_size:
                return self._open(alone=True)  # its folder is closed to us, and its log is empty
            raise translate(error, self.path) from error
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    def _stamp(self) -> tuple[int, int]:
        found = Path(self.path).stat()
        return found.st_mtime_ns, found.st_size

    def _was_disturbed(self) -> bool:
        if self._undisturbed is None:
            return False
        written = self._log.exists() and self._log.stat().st_size
        return bool(written) or self._stamp() != self._undisturbed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._connection.close(True)

    def _ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """The answer of one snapshot of the file."""

        def once() -> T:
            self._connection.execute("BEGIN")
            try:
                return question(self._connection)
            finally:
                with contextlib.suppress(apsw.Error):
                    self._connection.execute("ROLLBACK")

        try:
            try:
                answer = patiently(once, PATIENCE_S)
            except apsw.Error:
                if not self._was_disturbed():
                    raise
            else:
                if not self._was_disturbed():
                    return answer
            self._connection.close(True)
            self._connection = self._open(alone=False)
            return patiently(once, PATIENCE_S)
        except apsw.Error as error:
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            raise CorruptJournal(f"{self.path} is damaged: {error}") from error

    # ------------------------------------------------------------ what there is

    def journals(self) -> list[str]:
        """All journals, the newest run first, the store's own last if it holds anything."""

        def names(connection: apsw.Connection) -> list[str]:
            rows: Any = connection.execute("SELECT id FROM run WHERE no > 0 ORDER BY no DESC")
            found = [run for (run,) in rows]
            store: Any = connection.execute(
                "SELECT 1 FROM event WHERE id < ? LIMIT 1", (first_id(1),)
            ).fetchone()
            line = find_line(connection, "store")
            return [*found, *(["store"] if store or line is None or line.head else [])]

        return self._ask(names)

    def heads(self) -> Iterator[Mark]:
        """The last record of each journal, to be kept where nobody who can change the file can."""
        for run in self.journals():
            line = self._ask(lambda c, run=run: find_line(c, run))  # type: ignore[misc]  # bound at once
            if line is not None and line.head:
                yield Mark(run=run, seq=line.head, hash=line.hash.hex())

    # ------------------------------------------------------------ one journal

    def inspect(self, run: str) -> Inspection:
        """Look at one journal: its chain, a fork's prefix too, and the rows that follow from it.

        Raises:
            UnknownRun: there is no such run.
        """
        erasures = self._erased()
        try:
            return self._ask(lambda c: _inspect(c, run, erasures))
        except (CorruptJournal, StoreFailed) as error:
            wrong = Finding(run=run, seq=0, kind="changed", text=f"it cannot be read: {error}")
            return Inspection(run=run, events=0, findings=(wrong,))

    def _erased(self) -> Erasures:
        if self._erasures is None:
            self._erasures = Erasures(self._ask(lambda c: list(_facts(c))))
        return self._erasures

    def audit(self, runs: Sequence[str] = (), since: int = 0) -> Iterator[AuditLine]:
        """Who decided what: journal by journal, no more than one in memory.

        Args:
            runs: Only these journals; all by default.
            since: Journals that were last written to before this time are left out.

        Raises:
            UnknownRun: one of the runs does not exist.
        """
        for run in runs or self.journals():
            yield from self._ask(lambda c, run=run: _audited(c, run, since))  # type: ignore[misc]  # bound at once

    def missed(self, marks: Sequence[Mark]) -> list[Finding]:
        """What was kept elsewhere and is not so here: changed, cut off at the end, or gone.

        Of whole events (`Exported`) also what in the export is not what their hash is of.
        """
        before = {(mark.run, mark.seq): bytes_of(mark.hash) for mark in marks}
        pruned = {
            fact.run: fact
            for fact in self._ask(lambda c: list(_facts(c)))
            if isinstance(fact, StorePruned)
        }
        return [
            found
            for mark in marks
            if (found := self._ask(lambda c, mark=mark: _missed(c, mark, pruned, before)))  # type: ignore[misc]  # bound at once
            is not None
        ]

    def counters(self, now: int) -> list[Finding]:
        """Counters of budgets, and what runs have reserved, that do not follow from the journals.

        Args:
            now: Which windows count: microseconds since 1970, UTC.
        """
        if self._version < BUDGETS_SINCE:
            return []

        def look(connection: apsw.Connection) -> list[str]:
            missed = spending.uncounted(connection)
            wrong = spending.wrong_counters(connection, now)
            return [*wrong, *tables.wrong_ledgers(connection, now), *([missed] if missed else [])]

        return self._beside(look, "counter")

    def strays(self) -> list[Finding]:
        """Rows that belong to no journal, and those of memory that do not follow from one."""

        def look(connection: apsw.Connection) -> list[str]:
            found = list(tables.strays(connection))
            if self._version >= SESSIONS_SINCE:
                found += wrong_places(connection, list(_facts(connection)))
                found += stray_messages(connection)
            if self._has_memory:
                found += memory_checks.wrong_facts(connection)
            return found

        return self._beside(look, "row")

    def _beside(self, look: Callable[[apsw.Connection], list[str]], kind: Kind) -> list[Finding]:
        try:
            wrong = self._ask(look)
        except CorruptJournal as error:
            wrong = [str(error)]
        return [Finding(run="store", seq=0, kind=kind, text=text) for text in wrong]


# ---------------------------------------------------------------- reading what may be damaged


def _raw(connection: apsw.Connection, line: Line, after: int, upto: int) -> Iterator[Row]:
    """Rows as they are: what is missing is missing, a payload that is gone is no data."""
    base = first_id(line.no)
    last = base + upto if upto else first_id(line.no + 1) - 1
    cursor: Any = connection.execute(_ROWS, (base + after, last))
    for id_, at, step, actor, number, version, inline, blob, payload, salt, hash_ in cursor:
        yield Row(
            seq=id_ & _SEQ_MASK,
            at=at,
            step=step,
            actor=actor.decode(errors="replace"),
            type=number,
            v=version,
            data=inline if blob is None else payload,
            salt=salt,
            hash=hash_,
        )


def _line_of(connection: apsw.Connection, run: str) -> Line:
    """The line of a run. Raises `UnknownRun`; of the store's own, which every file has, more."""
    if run == "store" and find_line(connection, run) is None:
        raise CorruptJournal("the run table has no line of the store's own journal any more")
    return line_of(connection, run)


def _facts(connection: apsw.Connection) -> Iterator[object]:
    """What the store's journal says, as far as it can be read."""
    store = find_line(connection, "store")
    if store is None:
        return
    for row in _raw(connection, store, 0, 0):
        with contextlib.suppress(CorruptJournal):
            yield open_row(row).event


def _audited(connection: apsw.Connection, run: str, since: int) -> list[AuditLine]:
    """The decisions of one journal; a fork's prefix is only read to know what its own are about."""
    line = _line_of(connection, run)
    if line.updated_at < since:
        return []
    rows = (
        row
        for part, start, end in spans(connection, line, 0, line.head)
        for row in _raw(connection, part, start, end)
    )
    return list(audit(run, rows, line.parent_at if line.parent is not None else 0))


# ---------------------------------------------------------------- what is wrong


def _inspect(connection: apsw.Connection, run: str, erasures: Erasures) -> Inspection:
    line = _line_of(connection, run)
    previous, erased = GENESIS, 0
    parts = spans(connection, line, 0, line.head)
    for part, start, end in parts:
        chain = erasures.chain(part.id, start, previous)
        # of the run itself also what stands behind its end
        wrong = chain.walk(_raw(connection, part, start, end if part is not line else 0), end)
        if wrong is not None:
            wrong = _placed(connection, part, wrong)
            return Inspection(run=run, events=line.head, findings=(wrong,))
        previous = chain.hash
        erased += chain.erased
    findings = _line(connection, line, previous, erased=erased)
    removed = erasures.removed if run == STORE else 0
    return Inspection(run, line.head, erased, removed, tuple(findings))


def _placed(connection: apsw.Connection, line: Line, wrong: Finding) -> Finding:
    """The same, and where the record that does not fit belongs, if that can be found out."""
    if wrong.kind != "changed":
        return wrong
    (row,) = _raw(connection, line, wrong.seq - 1, wrong.seq)
    base, last = first_id(line.no), first_id(line.no + 1)
    hashes: Any = connection.execute(
        "SELECT id, hash FROM event WHERE id > ? AND id < ?", (base, last)
    ).fetchall()
    seq = moved_from(line.id, row, [(id_ & _SEQ_MASK, hash_) for id_, hash_ in hashes])
    if seq:
        return _moved(wrong, f"is event {seq}, put here in its place")
    others: Any = connection.execute(
        "SELECT r.id, e.hash FROM run AS r LEFT JOIN event AS e ON e.id = (r.no << 32) + ? "
        "WHERE r.no <> ? ORDER BY r.no DESC LIMIT ?",
        (wrong.seq - 1, line.no, NEIGHBOURS),
    ).fetchall()
    for other, before in others:
        previous = GENESIS if wrong.seq == 1 else before
        if previous is not None and fits(other, row, previous):
            return _moved(wrong, f"is event {wrong.seq} of {other}, put here in its place")
    return wrong


def _moved(wrong: Finding, text: str) -> Finding:
    return Finding(run=wrong.run, seq=wrong.seq, kind="moved", text=text)


def _line(
    connection: apsw.Connection, line: Line, head: bytes, *, erased: int
) -> Iterator[Finding]:
    """What the run table and the inbox say that the journal does not."""

    def say(text: str, seq: int = 0, kind: Kind = "row") -> Finding:
        return Finding(run=line.id, seq=seq, kind=kind, text=text)

    if head != line.hash:
        none = "" if line.head else "has no event, and the hash of its last one "
        yield say(f"{none}is not the one that the run table names", line.head)
        return
    if line.no == 0:
        yield from map(say, tables.wrong_own_line(connection, line))
        return
    if line.head <= (line.parent_at if line.parent is not None else 0):
        yield say("the run table lists it, and it has no event of its own")
        return
    if seq := tables.two_payloads(connection, line):
        yield say("was changed: it holds text beside the payload that it names", seq, "changed")
    if erased:
        # no more follows from events that were erased
        yield from map(say, tables.wrong_erased_line(connection, line))
        return
    try:
        entries = [
            open_row(row)
            for part, start, end in spans(connection, line, 0, line.head)
            for row in _raw(connection, part, start, end)
        ]
        state = fold(RunState(run=_origin(connection, line), alone=True), entries)
    except CairnError as error:
        yield say(f"its events fit the chain, but cannot be folded: {error}")
        return
    yield from map(say, tables.wrong_line(connection, line, entries, state))


def _origin(connection: apsw.Connection, line: Line) -> str:
    """The run that a journal's first events were written in."""
    first = spans(connection, line, 0, 1)
    return first[0][0].id if first else line.id


ALTERED = "does not say in the export what its hash is of: the file was altered"


def bytes_of(text: str) -> bytes:
    """A hash that was kept as hex; empty for what is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _missed(
    connection: apsw.Connection,
    mark: Mark,
    pruned: dict[str, StorePruned],
    before: dict[tuple[str, int], bytes],
) -> Finding | None:
    def say(text: str, kind: Kind, seq: int = 0) -> Finding:
        return Finding(run=mark.run, seq=seq, kind=kind, text=text)

    line = find_line(connection, mark.run)
    if line is None:
        fact = pruned.get(mark.run)
        if fact is None:
            return say(f"it is gone; {mark.seq} events of it were exported", "gone")
        if fact.head < mark.seq or (fact.head == mark.seq and fact.hash != mark.hash):
            return say("it was removed, but not as it was exported", "gone")
        known = GENESIS if mark.seq == 1 else before.get((mark.run, mark.seq - 1))
        if isinstance(mark, Exported) and altered(mark, None, [known] if known else []):
            return say(ALTERED, "export", mark.seq)
        return None
    if mark.seq > line.head:
        said = f"it ends at event {line.head}; the exported one has {mark.seq}: its end was cut off"
        return say(said, "head")
    for part, start, end in spans(connection, line, mark.seq - 1, mark.seq):
        for row in _raw(connection, part, start, end):
            if row.hash.hex() == mark.hash:
                if isinstance(mark, Exported) and altered(mark, row, ()):
                    return say(ALTERED, "export", mark.seq)
                return None
    return say("is not the one that was exported", "head", mark.seq)
