"""How the benchmarks measure: CPU time of the whole process, medians, and ratios in one run.

Wall time on a shared machine says little, so it is only ever compared with wall time taken in
the same minute. Variants take turns (A B A B), so that a slow minute hits all of them.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement beside its target.

    Args:
        group: What it belongs to.
        what: What was measured.
        value: The figure.
        unit: Of the figure: x, us, ms, bytes, MB.
        bound: The target; None when the figure is only reported.
        least: Whether the bound is a lower one.
        note: How it came about: the two sides of a ratio, how it was counted.
    """

    group: str
    what: str
    value: float
    unit: str
    bound: float | None = None
    least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.least else self.value <= self.bound

    @property
    def share(self) -> float:
        """How much of the target is used up: 1.0 is exactly met, more is missed."""
        if self.bound is None or not self.value or not self.bound:
            return 0.0
        return self.bound / self.value if self.least else self.value / self.bound

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met, "share_of_target": round(self.share, 3)}


@dataclass(frozen=True)
class Cost:
    """What a piece of work took."""

    cpu_s: float
    wall_s: float


Work = Callable[[], Coroutine[Any, Any, Cost]]


class Meter:
    """`with Meter() as meter: ...` measures CPU (all threads) and wall time into `meter.cost`."""

    cost = Cost(0.0, 0.0)

    def __enter__(self) -> Self:
        gc.collect()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        cpu_s = time.process_time() - self._cpu
        self.cost = Cost(cpu_s, time.perf_counter() - self._wall)


def interleaved(variants: dict[str, Work], rounds: int) -> dict[str, list[Cost]]:
    """Every variant once a round, in turn; one round before that is thrown away.

    A variant prepares, measures itself with a `Meter`, and returns the cost.
    """
    found: dict[str, list[Cost]] = {name: [] for name in variants}
    for count in range(rounds + 1):
        for name, work in variants.items():
            cost = asyncio.run(work())
            if count:
                found[name].append(cost)
    return found


def cpu(costs: Sequence[Cost]) -> float:
    """Median CPU in seconds."""
    return statistics.median(cost.cpu_s for cost in costs)


def wall(costs: Sequence[Cost]) -> float:
    """Median wall time in seconds."""
    return statistics.median(cost.wall_s for cost in costs)


def ratio(ours: Sequence[Cost], theirs: Sequence[Cost]) -> float:
    """Median of the CPU ratios, each of two neighbours in time."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(a.cpu_s / b.cpu_s for a, b in pairs)


def exponent(points: dict[int, float]) -> float:
    """The slope of log(cost) over log(n): 1.0 is linear."""
    xs = [math.log(n) for n in points]
    ys = [math.log(value) for value in points.values()]
    return statistics.linear_regression(xs, ys).slope


def rss_mb() -> float:
    """Resident memory of this process now, in MB."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_rss_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_rss_mb() -> float:
    """The most resident memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
