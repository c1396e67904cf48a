"""Budgets in memory: which stand, what counts against them, and how it is counted anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cairn.core.budgets import Cap, RowKey, Spend, Standing, counted_alike, end_of, start_of
from cairn.core.events import Entry
from cairn.core.spending import Ledger, charge, key_of, spending_of, weigh

Spent = tuple[str, Ledger, Sequence[Entry]]
"""A run, for whom it is charged, and its own entries."""


class Budgets:
    """The counters of a store in memory; its lock guards them."""

    def __init__(self) -> None:
        self.caps: tuple[Cap, ...] = ()
        self._counters: dict[RowKey, Spend] = {}
        self._ledgers: dict[str, Ledger] = {}
        self.pruned = False
        """Whether runs were removed."""

    def set(self, caps: Sequence[Cap], runs: Iterable[Spent]) -> None:
        """Let these stand, and count for them what runs have written."""
        alike, before = counted_alike(self.caps, caps), self._counters
        self.caps = tuple(caps)
        self._counters, self._ledgers = self._counted(runs)
        self._keep(before, alike)

    def _keep(self, before: dict[RowKey, Spend], alike: frozenset[str]) -> None:
        """What pruned runs have spent stands in no journal any more, and still counts."""
        if self.pruned:
            for at, spend in before.items():
                if at[0] in alike:
                    self._counters[at] = self._counters.get(at, Spend()).at_least(spend)

    def charge(self, run: str, owner: Callable[[], Ledger], entries: Sequence[Entry]) -> None:
        """Count what entries that are about to be appended spend.

        Raises:
            BudgetReached, BudgetUnknown: they begin what must not begin; nothing has changed.
        """
        spending = spending_of(entries) if self.caps else ()
        if not spending:
            return
        ledger = self._ledgers.get(run) or owner()
        ledger, changed = weigh(self.caps, ledger, spending, self._counter)
        self._ledgers[run] = ledger
        self._counters |= changed

    def _counter(self, at: RowKey) -> Spend:
        return self._counters.get(at, Spend())

    def recount(self, runs: Iterable[Spent]) -> list[str]:
        """Count anew; says which counters were not right."""
        before = self._counters
        self._counters, self._ledgers = self._counted(runs)
        self._keep(before, counted_alike(self.caps, self.caps))
        keys = sorted(before.keys() | self._counters.keys())
        return [f"budget {at[0]}" for at in keys if before.get(at) != self._counters.get(at)]

    def forget(self, key: str, runs: Iterable[str]) -> None:
        """Forget what these erased runs reserved, and what is counted under a principal's key."""
        mine = {cap.name for cap in self.caps if cap.per == "principal"}
        self._counters = {
            at: spend for at, spend in self._counters.items() if at[0] not in mine or at[1] != key
        }
        for run in runs:
            self._ledgers.pop(run, None)
            self.pruned = True

    def _counted(self, runs: Iterable[Spent]) -> tuple[dict[RowKey, Spend], dict[str, Ledger]]:
        counters: dict[RowKey, Spend] = {}
        ledgers: dict[str, Ledger] = {}
        for run, ledger, entries in runs:
            counted = [(cap, key) for cap in self.caps if (key := key_of(cap, ledger)) is not None]
            for entry in spending_of(entries):
                ledger, charges = charge(ledger, entry)  # noqa: PLW2901 - it is folded
                for each in charges:
                    for cap, key in counted:
                        at = (cap.name, key, start_of(cap.window, each.at))
                        counters[at] = counters.get(at, Spend()) + each.spend
            ledgers[run] = ledger
        return counters, ledgers

    def standings(self, now: int) -> list[Standing]:
        """How each budget stands in its present window."""
        found: list[Standing] = []
        for cap in self.caps:
            start, resets_at = start_of(cap.window, now), end_of(cap.window, now)
            rows = {
                key: spend
                for (name, key, began), spend in sorted(self._counters.items())
                if name == cap.name and began == start
            }
            found += [
                Standing(cap=cap, key=key, start=start, resets_at=resets_at, spend=spend)
                for key, spend in (rows or {"": Spend()}).items()
            ]
        return found
