"""A simulated world around the real runtime: everything that can go wrong, from a seed.

    from cairn.testing.simulation import Simulation

    outcome = Simulation(seed=7).run()
    assert outcome.violations == ()

The real core, engine and store run in an event loop whose time is not ours, among workers that
crash, freeze and come back, models and tools that fail in every way there is, and people who come
late or twice. Then the world heals, and every invariant is checked on every journal.

`python -m cairn.testing.simulation --seeds 1000` prints the figures.
"""

from __future__ import annotations

from cairn.testing.simulation.simulation import Outcome, Simulation, Stats, simulate

__all__ = ["Outcome", "Simulation", "Stats", "simulate"]
