"""What must hold in every journal, checked from its events alone.

    from cairn.testing.invariants import check, check_store

    assert check(entries) == []                 # one run's events, for example from store.read(run)
    assert await check_store(store) == []       # every run of a store, with its chain and its row

A check keeps its own small books and shares no decision with the core: it is a second opinion.
With the agent's rules it also knows which call needed a person and in which order calls had to
run; with a world's own log of effects it sees what no journal can know.
"""

from __future__ import annotations

from cairn.testing.invariants.case import NAMES, Violation
from cairn.testing.invariants.effects import Effect, check_effects
from cairn.testing.invariants.journal import check
from cairn.testing.invariants.stores import (
    Acknowledged,
    check_acknowledged,
    check_run,
    check_store,
    fingerprint,
)

__all__ = [
    "NAMES",
    "Acknowledged",
    "Effect",
    "Violation",
    "check",
    "check_acknowledged",
    "check_effects",
    "check_run",
    "check_store",
    "fingerprint",
]
