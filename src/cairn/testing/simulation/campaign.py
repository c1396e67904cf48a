"""Many seeds in several processes, and their figures."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from cairn.core.messages import Record
from cairn.testing.simulation.cast import rules
from cairn.testing.simulation.simulation import Simulation, StoreKind

CHUNK = 25
"""Seeds handed to a process at once."""
COLLECT = 10
"""After how many worlds their remains are collected."""
EVERY = 20
"""In a mixed campaign, one seed in so many lies in a real SQLite file."""


class Failure(Record):
    """A seed that broke something, and what."""

    seed: int
    store: StoreKind
    violations: tuple[str, ...]


class Figures(Record):
    """What a campaign has come to.

    Args:
        seeds: Worlds simulated; `files` of them in a SQLite file.
        runs, events: How many there were in all of them.
        seconds: Wall time.
        cpu_s: Processor time, over all processes.
        faults: How often each kind of incident happened.
        ends: How the runs ended.
        seen: What came of memory, sessions and threads, in worlds of memory.
        failures: The seeds that broke something.
    """

    seeds: int = 0
    files: int = 0
    runs: int = 0
    events: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    faults: dict[str, int] = {}
    ends: dict[str, int] = {}
    seen: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()

    def plus(self, other: Figures) -> Figures:
        """Both together; the time is not added, for they may have run side by side."""
        return Figures(
            seeds=self.seeds + other.seeds,
            files=self.files + other.files,
            runs=self.runs + other.runs,
            events=self.events + other.events,
            seconds=max(self.seconds, other.seconds),
            cpu_s=self.cpu_s + other.cpu_s,
            faults=dict(Counter(self.faults) + Counter(other.faults)),
            ends=dict(Counter(self.ends) + Counter(other.ends)),
            seen=dict(Counter(self.seen) + Counter(other.seen)),
            failures=(*self.failures, *other.failures),
        )

    def __str__(self) -> str:
        pace = self.runs / self.cpu_s if self.cpu_s else 0.0
        worlds = f"{self.seeds} worlds ({self.files} in SQLite files)"
        time_taken = f"{self.seconds:.0f} s ({pace:.0f} runs per second of processor time)"
        lines = [
            f"{worlds}, {self.runs} runs, {self.events} events in {time_taken}",
            "ends: " + ", ".join(f"{n} {how}" for how, n in sorted(self.ends.items())),
            f"{sum(self.faults.values())} incidents of {len(self.faults)} kinds:",
            *(f"  {n:7} {kind}" for kind, n in sorted(self.faults.items())),
            *(["seen:"] if self.seen else []),
            *(f"  {n:7} {what}" for what, n in sorted(self.seen.items())),
            f"{len(self.failures)} seeds with violations",
        ]
        return "\n".join(lines)


def kind_of(seed: int, store: str) -> StoreKind:
    """Where the journals of this seed lie."""
    if store == "both":
        return "sqlite" if seed % EVERY == EVERY - 1 else "memory"
    return "sqlite" if store == "sqlite" else "memory"


def simulate_some(seeds: range, store: str, theme: str = "") -> Figures:
    """Several seeds, one after the other, in this process."""
    rules(theme)
    collecting = gc.isenabled()
    gc.disable()  # a world is one large ring of references: it is collected when it is over
    figures = Figures()
    begun = time.process_time()
    try:
        for n, seed in enumerate(seeds):
            figures = figures.plus(_one(seed, kind_of(seed, store), theme))
            if n % COLLECT == 0:
                gc.collect()
    finally:
        if collecting:
            gc.enable()
    return figures.plus(Figures(cpu_s=time.process_time() - begun))


def _one(seed: int, store: StoreKind, theme: str) -> Figures:
    outcome = Simulation(seed=seed, store=store, theme=theme).run()
    failed = Failure(seed=seed, store=store, violations=tuple(map(str, outcome.violations)))
    return Figures(
        seeds=1,
        files=int(store == "sqlite"),
        runs=outcome.stats.runs,
        events=outcome.stats.events,
        faults=outcome.stats.faults,
        ends=outcome.stats.ends,
        seen=outcome.stats.seen,
        failures=() if outcome.ok else (failed,),
    )


def campaign(
    seeds: int,
    first: int = 0,
    store: str = "memory",
    jobs: int = 1,
    seconds: float = 0.0,
    theme: str = "",
) -> Iterator[Figures]:
    """The figures so far, again and again, until all seeds are done or the time is up.

    Args:
        seeds: How many; 0 for as many as the time allows.
        first: The first seed.
        store: `memory`, `sqlite`, or `both`: one in twenty in a file.
        jobs: How many processes share the work.
        seconds: When to stop; 0 for not before all are done.
        theme: What the worlds are about; see `Simulation`.
    """
    begun = time.perf_counter()
    total = Figures()
    for part in _parts(seeds, first, store, jobs, theme):
        elapsed = time.perf_counter() - begun
        total = total.plus(part)
        total = total.plus(Figures(seconds=elapsed))
        yield total
        if seconds and elapsed >= seconds:
            return


def _parts(seeds: int, first: int, store: str, jobs: int, theme: str) -> Iterator[Figures]:
    last = first + seeds if seeds else 1 << 62
    chunks = (range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK))
    work = ((chunk, store, theme) for chunk in chunks)
    if jobs <= 1:
        for given in work:
            yield _star(given)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        waiting = [pool.apply_async(_star, (given,)) for given in islice(work, 2 * jobs)]
        while waiting:
            yield waiting.pop(0).get()
            waiting += [pool.apply_async(_star, (given,)) for given in islice(work, 1)]


def _star(given: tuple[range, str, str]) -> Figures:
    return simulate_some(*given)
