"""Budgets in a file: which stand, what counts against them, and how it is counted anew.

The counters are index rows. They change in the transaction of the events they follow from, and
they can be rebuilt from the journals at any time. While no budgets stand, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw
import msgspec

from cairn.core.budgets import (
    Cap,
    RowKey,
    Spend,
    Standing,
    end_of,
    shown,
    start_of,
    told_from,
)
from cairn.core.codec import open_row
from cairn.core.events import BudgetsSet, Entry, RunCreated, StoreErased, StorePruned
from cairn.core.spending import (
    RECOUNT,
    SPENDING_TYPES,
    Ledger,
    charge,
    key_of,
    ledger_of,
    reserves,
    weigh,
)
from cairn.errors import BudgetUnknown, CorruptJournal
from cairn.store.retention import ENDED_VALUES
from cairn.store.sqlite.journal import first_id, rows_between, spending_rows
from cairn.store.sqlite.lines import COLUMNS, Line, line_of_number

NUMBERS = ("micro_usd", "tokens", "calls", "held_micro_usd", "held_tokens")
_ROW = f"SELECT {', '.join(NUMBERS)} FROM spend WHERE budget = ? AND key = ? AND start = ?"  # noqa: S608 - our own words
_KEYS = f"SELECT key, {', '.join(NUMBERS)} FROM spend WHERE budget = ? AND start = ? ORDER BY key"  # noqa: S608 - our own words
_UNCOUNTED = "SELECT id FROM run INDEXED BY run_uncounted WHERE counted <> head LIMIT 1"
_STANDING = (  # in the words of the index, or it would not be used
    "SELECT id FROM event INDEXED BY event_budgets WHERE type = 220 AND id < ? "
    "ORDER BY id DESC LIMIT 1"
)
_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED_VALUES))
_TO_COUNT = (
    f"SELECT {COLUMNS} FROM run "  # noqa: S608 - our own words
    f"WHERE no > 0 AND (updated_at >= ? OR status NOT IN ({_ENDED})) ORDER BY no"
)
AT_ONCE = 32
KEPT = 4096
"""Counters and ledgers that are remembered between transactions."""
Counters = dict[RowKey, Spend]
Counted = tuple[Counters, dict[int, Ledger]]
_decoder = msgspec.json.Decoder(Ledger)


class Spending:
    """The writer's view of budgets, kept between transactions while nobody else writes."""

    def __init__(self, connection: apsw.Connection, bring: Callable[[], None]) -> None:
        self._connection = connection
        self._bring = bring
        """Brings what the transaction has gathered to the file, so that it can be read there."""
        self.caps: tuple[Cap, ...] = ()
        """Those that stand."""
        self.fault = ""
        """Why it cannot be told which stand."""
        self._sound = False
        """Whether everything was counted when it was last looked at, and nobody wrote since."""
        self._rows: Counters = {}
        self._ledgers: dict[int, Ledger] = {}
        self._dirty_rows: set[RowKey] = set()
        self._dirty_ledgers: set[int] = set()

    # ------------------------------------------------------------ begin and end

    def begin(self, *, news: bool) -> None:
        """A transaction begins; what is remembered counts only if nobody else wrote."""
        if news or len(self._rows) > KEPT or len(self._ledgers) > KEPT:
            self.forget()
        if news:
            self.look()

    def look(self) -> None:
        """Find out which budgets stand."""
        try:
            self.caps, self.fault = standing_caps(self._connection), ""
        except CorruptJournal as error:
            self.caps = ()
            self.fault = (
                f"the budgets of this store cannot be read ({error}). "
                "Start a process that is configured with budgets="
            )

    def forget(self) -> None:
        """Nothing of it is remembered."""
        self._sound = False
        self._rows.clear()
        self._ledgers.clear()
        self._dirty_rows.clear()
        self._dirty_ledgers.clear()

    def flush(self) -> None:
        """Bring what has changed to the file."""
        if self._dirty_rows:
            rows = [(*at, *_numbers(self._rows[at])) for at in sorted(self._dirty_rows)]
            self._put("spend (budget, key, start, " + ", ".join(NUMBERS) + ")", rows)
            self._dirty_rows.clear()
        if self._dirty_ledgers:
            ledgers = self._ledgers
            dirty = sorted(self._dirty_ledgers)
            self._put("ledger (run, data)", [(n, msgspec.json.encode(ledgers[n])) for n in dirty])
            self._dirty_ledgers.clear()

    def _put(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Write rows, many with one statement: each statement lets the interpreter's lock go."""
        row = f"({', '.join(['?'] * len(rows[0]))})"
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at : at + AT_ONCE]
            values = ", ".join([row] * len(part))
            statement = f"INSERT OR REPLACE INTO {table} VALUES {values}"  # noqa: S608 - our own words
            self._connection.execute(statement, [value for each in part for value in each])

    # ------------------------------------------------------------ charging

    @property
    def stands(self) -> bool:
        """Whether there is anything to count for."""
        return bool(self.caps or self.fault)

    def charge(self, line: Line, entries: Sequence[Entry]) -> None:
        """Count what entries that are about to be appended to a run spend.

        Raises:
            BudgetReached: a budget has no room for what they begin; nothing has changed.
            BudgetUnknown: they begin something, and it cannot be told what budgets have left.
        """
        begins = reserves(entries)
        if begins:
            self._check()
        try:
            if self.fault:
                raise BudgetUnknown(self.fault)
            ledger, changed = weigh(self.caps, self._ledger(line), entries, self._row)
        except (CorruptJournal, BudgetUnknown) as error:
            if begins:
                raise BudgetUnknown(str(error)) from error
            self._miss(
                line
            )  # what came of something begun is never refused, but it is not forgotten
            return
        self._ledgers[line.no] = ledger
        self._dirty_ledgers.add(line.no)
        self._rows |= changed
        self._dirty_rows |= changed.keys()

    def _check(self) -> None:
        if self._sound:
            return
        if self.fault:
            raise BudgetUnknown(self.fault)
        wrong = uncounted(self._connection)
        if wrong:
            raise BudgetUnknown(wrong)
        self._sound = True

    def _miss(self, line: Line) -> None:
        self._connection.execute("INSERT OR IGNORE INTO uncounted VALUES (?)", (line.no,))
        self._sound = False

    def _row(self, at: RowKey) -> Spend:
        found = self._rows.get(at)
        if found is None:
            row: Any = self._connection.execute(_ROW, at).fetchone()
            found = self._rows[at] = Spend() if row is None else _spend(row)
        return found

    def _ledger(self, line: Line) -> Ledger:
        found = self._ledgers.get(line.no)
        if found is None:
            self._bring()
            row: Any = self._connection.execute(
                "SELECT data FROM ledger WHERE run = ?", (line.no,)
            ).fetchone()
            if row is None:
                found = owner_of(self._connection, line) or Ledger()
            else:
                try:
                    found = _decoder.decode(row[0])
                except msgspec.MsgspecError as error:
                    raise BudgetUnknown(
                        f"what run {line.id} has reserved cannot be read. {RECOUNT}"
                    ) from error
            self._ledgers[line.no] = found
        return found

    # ------------------------------------------------------------ counting anew

    def thin(self, before: int, now: int) -> None:
        """Remove counters of windows that were over before this time, all but the last of them."""
        until = min(before, now)
        for cap in self.caps:
            self._connection.execute(
                "DELETE FROM spend WHERE budget = ? AND start < ?",
                (cap.name, told_from((cap,), until)),
            )

    def counted(self, caps: Sequence[Cap], now: int, alike: frozenset[str]) -> Counted:
        """What the journals say; nothing has changed yet.

        What removed and erased runs have spent stands in no journal any more. So where there are
        such since the windows that count began, budgets that are counted `alike` keep what was
        used at least.

        Raises:
            BudgetUnknown: a journal that matters cannot be read.
        """
        connection = self._connection
        try:
            counters, ledgers = recounted(connection, caps, now)
        except CorruptJournal as error:
            raise BudgetUnknown(
                f"what was spent cannot be counted: {error}. Put a backup back, prune that run "
                "once it is over, or remove the budgets (budgets=[])"
            ) from error
        since = told_from(caps, now)
        if lost_since(connection, since):
            for at, spend in all_counters(connection).items():
                if at[0] in alike and at[2] >= since:
                    counters[at] = counters.get(at, Spend()).at_least(spend)
        return counters, ledgers

    def adopt(self, counted: Counted) -> None:
        """Put these counters in the place of all there are."""
        connection = self._connection
        self.forget()
        connection.execute("DELETE FROM spend; DELETE FROM ledger")
        self._rows, self._ledgers = counted
        self._dirty_rows, self._dirty_ledgers = set(self._rows), set(self._ledgers)
        self.flush()
        connection.execute(
            "UPDATE run SET counted = head WHERE counted <> head; DELETE FROM uncounted"
        )


# ---------------------------------------------------------------- what stands


def standing_caps(connection: apsw.Connection) -> tuple[Cap, ...]:
    """The budgets that stand, from the journal of the store.

    Raises:
        CorruptJournal: the fact that says so cannot be read.
    """
    found: Any = connection.execute(_STANDING, (first_id(1),)).fetchone()
    if found is None:
        return ()
    seq = int(found[0])
    store = line_of_number(connection, 0)
    (row,) = rows_between(connection, store, seq - 1, seq)
    event = open_row(row).event
    assert isinstance(event, BudgetsSet)  # noqa: S101 - it was looked for by its type
    return event.budgets


def uncounted(connection: apsw.Connection) -> str:
    """Why it cannot be told what was spent, empty when it can."""
    found: Any = connection.execute(_UNCOUNTED).fetchone()
    if found is not None:
        return (
            f"run {found[0]} was written to by a process of an older Cairn, which counts nothing. "
            f"Stop it. {RECOUNT}"
        )
    missed: Any = connection.execute("SELECT 1 FROM uncounted").fetchone()
    return f"something was used and could not be counted. {RECOUNT}" if missed else ""


def standings(connection: apsw.Connection, now: int) -> list[Standing]:
    """How each budget stands in its present window."""
    found: list[Standing] = []
    for cap in standing_caps(connection):
        start, resets_at = start_of(cap.window, now), end_of(cap.window, now)
        rows: Any = connection.execute(_KEYS, (cap.name, start)).fetchall()
        found += [
            Standing(
                cap=cap, key=key, start=start, resets_at=resets_at, spend=_spend(tuple(numbers))
            )
            for key, *numbers in rows or [("", 0, 0, 0, 0, 0)]
        ]
    return found


def _spend(row: tuple[int, ...]) -> Spend:
    return Spend(**dict(zip(NUMBERS, row, strict=True)))


def _numbers(spend: Spend) -> list[int]:
    return [getattr(spend, name) for name in NUMBERS]


# ---------------------------------------------------------------- from the journals


def owner_of(connection: apsw.Connection, line: Line) -> Ledger | None:
    """For whom a run is charged: as its first event says, which a fork shares with its parent.

    None when that was erased.

    Raises:
        CorruptJournal: that event is missing or cannot be read.
    """
    while line.parent is not None:
        if line.parent >= line.no:  # as in `spans`: this could go in a ring
            raise CorruptJournal(f"{line.id}: the run table says it was forked from a later run")
        line = line_of_number(connection, line.parent)
    (row,) = rows_between(connection, line, 0, 1)
    if row.data is None:
        return None
    event = open_row(row).event
    if not isinstance(event, RunCreated):
        raise CorruptJournal(f"{line.id}: the journal does not start with run.created")
    return ledger_of(event)


def recounted(connection: apsw.Connection, caps: Sequence[Cap], now: int) -> Counted:
    """Counters and ledgers as the journals say them, exact from `told_from` on.

    Raises:
        CorruptJournal: a journal that matters cannot be read.
    """
    counters: Counters = {}
    ledgers: dict[int, Ledger] = {}
    if not caps:
        return counters, ledgers
    since = told_from(caps, now)
    for line in _to_count(connection, since):
        ledger = owner_of(connection, line)
        if ledger is None:
            continue
        mine = [(cap, key) for cap in caps if (key := key_of(cap, ledger)) is not None]
        for row in spending_rows(connection, line, SPENDING_TYPES):
            if row.data is None:
                continue
            ledger, charges = charge(ledger, open_row(row))
            for each in charges:
                for cap, key in mine:
                    at = (cap.name, key, start_of(cap.window, each.at))
                    counters[at] = counters.get(at, Spend()) + each.spend
        if ledger.holds:
            ledgers[line.no] = ledger
    return counters, ledgers


def _to_count(connection: apsw.Connection, since: int) -> Iterator[Line]:
    rows: Any = connection.execute(_TO_COUNT, (since,)).fetchall()
    for row in rows:
        yield Line(*row)


def lost_since(connection: apsw.Connection, since: int) -> bool:
    """Whether runs were removed or erased whose spending may count from then on."""
    found: Any = connection.execute(
        "SELECT 1 FROM event WHERE id < ? AND type IN (?, ?) AND at >= ? LIMIT 1",
        (first_id(1), StorePruned.TYPE, StoreErased.TYPE, since),
    ).fetchone()
    return found is not None


def all_counters(connection: apsw.Connection) -> Counters:
    """The counters as they are."""
    rows: Any = connection.execute(
        f"SELECT budget, key, start, {', '.join(NUMBERS)} FROM spend"  # noqa: S608 - our own words
    )
    return {(name, key, start): _spend(tuple(numbers)) for name, key, start, *numbers in rows}


def wrong_counters(connection: apsw.Connection, now: int) -> list[str]:
    """Counters that do not follow from the journals, in words.

    Where runs were removed or erased it may be higher: then only a lower one is wrong.
    """
    caps = standing_caps(connection)
    if not caps:
        return []
    since = told_from(caps, now)
    expected, _ = recounted(connection, caps, now)
    there = all_counters(connection)
    lost = lost_since(connection, since)
    names = {cap.name for cap in caps}
    wrong: list[str] = []
    for at in sorted(there.keys() | expected.keys()):
        name, key, start = at
        is_, should = there.get(at, Spend()), expected.get(at, Spend())
        should = should.at_least(is_) if lost else should
        if name in names and start >= since and is_ != should:
            whose = f" of {shown(key)}" if key else ""
            wrong.append(
                f"budget {name}: the counter that begins at {start}{whose} says "
                f"{_numbers(is_)}, the journals say {_numbers(should)} ({', '.join(NUMBERS)})"
            )
    return wrong
