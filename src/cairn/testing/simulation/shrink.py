"""From a failing seed to the shortest story that still fails, and to a test of it.

Incidents have names, so any of them can be left out while all else stays as it was. What is left
out may change what follows; a shorter story counts when it breaks the same invariant.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cairn.core.messages import Record
from cairn.testing.simulation.simulation import Outcome, Simulation

TRIES = 400
"""How many stories are tried until the shortest so far must do."""


class Shrunk(Record, gc=True):
    """A failing story made short.

    Args:
        simulation: What to run to see it.
        outcome: What came of it.
        tried: How many stories were run on the way.
    """

    simulation: Simulation
    outcome: Outcome
    tried: int


def shrink(
    simulation: Simulation,
    outcome: Outcome | None = None,
    run: Callable[[Simulation], Outcome] = Simulation.run,
    tries: int = TRIES,
) -> Shrunk:
    """The shortest story found that breaks an invariant the given one breaks.

    Args:
        simulation: One that fails.
        outcome: What came of it, if that is known.
        run: Runs a simulation; the place to put a broken variant of the code around it.
        tries: How many stories to run at most.
    """
    first = outcome if outcome is not None else run(simulation)
    search = _Search({v.name for v in first.violations}, run, tries)
    best = (simulation, first)
    if not search.names:
        return Shrunk(simulation=simulation, outcome=first, tried=0)
    best = search.fewer_incidents(best)
    best = search.fewer_runs(best)
    best = search.shorter_scripts(best)
    best = search.fewer_incidents(best)
    return Shrunk(simulation=best[0], outcome=best[1], tried=search.tried)


Story = tuple[Simulation, Outcome]


class _Search:
    def __init__(self, names: set[str], run: Callable[[Simulation], Outcome], tries: int) -> None:
        self.names = names
        self.tried = 0
        self._run = run
        self._tries = tries

    def fails(self, simulation: Simulation) -> Outcome | None:
        """What comes of it, if it still breaks one of them."""
        if self.tried >= self._tries:
            return None
        self.tried += 1
        outcome = self._run(simulation)
        return outcome if self.names & {v.name for v in outcome.violations} else None

    def fewer_incidents(self, best: Story) -> Story:
        """Leave out halves, quarters, … and single incidents for as long as it still fails."""
        kept = list(dict.fromkeys(best[1].incidents))
        size = max(1, len(kept))
        while size:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                tried = msgspec.structs.replace(best[0], keep=frozenset(fewer))
                outcome = self.fails(tried)
                if outcome is None:
                    at += size
                    continue
                happened = set(outcome.incidents)
                kept = [name for name in fewer if name in happened]
                best = (msgspec.structs.replace(tried, keep=frozenset(kept)), outcome)
            size //= 2
        return best

    def fewer_runs(self, best: Story) -> Story:
        """Hand over only some of the tasks."""
        there = [int(run[1:]) for run in best[1].trace if run[:1] == "r" and run[1:].isdigit()]
        kept = sorted(there)
        for n in sorted(there, reverse=True):
            fewer = [k for k in kept if k != n]
            tried = msgspec.structs.replace(best[0], only=frozenset(fewer))
            outcome = self.fails(tried) if fewer else None
            if outcome is not None:
                kept, best = fewer, (tried, outcome)
        return best

    def shorter_scripts(self, best: Story) -> Story:
        """Let the model come to its answer sooner."""
        for turns in range(best[0].turns):
            tried = msgspec.structs.replace(best[0], turns=turns)
            outcome = self.fails(tried)
            if outcome is not None:
                return (tried, outcome)
        return best


def as_test(shrunk: Shrunk) -> str:
    """A test to paste: the story with what must hold of it."""
    simulation = shrunk.simulation
    lines = [
        f"def test_seed_{simulation.seed}():",
        *(f"    # {violation}" for violation in shrunk.outcome.violations[:3]),
        "    outcome = Simulation(",
        f"        seed={simulation.seed},",
    ]
    if simulation.store != "memory":
        lines.append(f'        store="{simulation.store}",')
    if simulation.theme:
        lines.append(f'        theme="{simulation.theme}",')
    if simulation.keep is not None:
        names = [f'                "{name}",' for name in sorted(simulation.keep)]
        few = ["        keep=frozenset("]
        few += ["            {", *names, "            }", "        ),"]
        lines += few if names else ["        keep=frozenset(),"]
    if simulation.only is not None:
        lines.append(f"        only=frozenset({sorted(simulation.only)}),")
    if simulation.turns != Simulation(seed=0).turns:
        lines.append(f"        turns={simulation.turns},")
    lines += ["    ).run()", "    assert outcome.violations == ()"]
    return "\n".join(lines) + "\n"
