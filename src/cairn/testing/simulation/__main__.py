"""`python -m cairn.testing.simulation`: simulate many worlds and print what came of them."""

from __future__ import annotations

import argparse
import sys

from cairn.testing.simulation.campaign import Failure, campaign
from cairn.testing.simulation.shrink import as_test, shrink
from cairn.testing.simulation.simulation import Simulation

SHOWN = 5
"""How many failing seeds are told in full."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if anything did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m cairn.testing.simulation", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, default=0, help="how many worlds; 100 by default")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--store", choices=("memory", "sqlite", "both"), default="memory")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time")
    parser.add_argument("--shrink", action="store_true", help="make failing seeds short")
    parser.add_argument(
        "--theme",
        choices=("", "approvals", "context", "memory"),
        default="",
        help="approvals: worlds full of decisions, expiries, grants and takeovers; "
        "context: worlds of small windows, in which what is sent is condensed; "
        "memory: worlds in which runs remember, sessions are moved and people leave",
    )
    given = parser.parse_args(arguments)
    seeds = given.seeds or (0 if given.minutes else 100)
    figures = None
    parts = campaign(seeds, given.first, given.store, given.jobs, given.minutes * 60, given.theme)
    for figures in parts:  # noqa: B007 - the last one is told
        pass
    if figures is None:
        return 0
    _say(str(figures))
    for failure in figures.failures[:SHOWN]:
        _tell(failure, given.theme, short=given.shrink)
    return 1 if figures.failures else 0


def _tell(failure: Failure, theme: str, *, short: bool) -> None:
    _say(f"\nseed {failure.seed} ({failure.store}):")
    for line in failure.violations[:SHOWN]:
        _say(f"  {line}")
    if short:
        shrunk = shrink(Simulation(seed=failure.seed, store=failure.store, theme=theme))
        _say(f"\n# the shortest of {shrunk.tried} stories tried\n{as_test(shrunk)}")
    else:
        of = f" --theme {theme}" if theme else ""
        _say(f"  again, and shorter: --from {failure.seed} --seeds 1 --shrink{of}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
