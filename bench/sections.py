"""The measurements, one function for each; every one runs in a process of its own.

`run.py` starts this file with a section's name and reads rows as JSON from its output.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

from measure import (
    Cost,
    Meter,
    Row,
    cpu,
    exponent,
    interleaved,
    peak_rss_mb,
    ratio,
    rss_mb,
    wall,
)
from workloads import (
    KB,
    arguments_text,
    bare,
    cairn_run,
    checked,
    grouped,
    make_agent,
    two_commits,
)

from cairn import Runtime
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore

SMALL = 200
"""Bytes of a tool's result where payload is not the point."""

Section = Callable[[Path], list[Row]]


def _us(costs: list[Cost], turns: int) -> float:
    return cpu(costs) / turns * 1e6


# ---------------------------------------------------------------- CPU of a turn


def memory(folder: Path) -> list[Row]:
    """CPU of a turn with no store, beside the same loop by hand."""
    rows: list[Row] = []
    for turns, rounds in ((100, 15), (1000, 7)):
        agent = make_agent(turns, SMALL)
        found = interleaved(
            {
                "cairn": lambda agent=agent: cairn_run(InMemoryStore(), agent),
                "bare": lambda turns=turns: bare(turns, SMALL),
                "yields": lambda turns=turns: bare(turns, SMALL, yields=True),
            },
            rounds,
        )
        ours, floor, suspends = (_us(costs, turns) for costs in found.values())
        note = f"{ours:.0f} us beside {floor:.1f} us"
        times = ratio(found["cairn"], found["bare"])
        what = f"CPU of a turn, N={turns}, to a bare loop"
        rows.append(Row(group="no store", what=what, value=times, unit="x", bound=10, note=note))
        note = f"{ours:.0f} us beside {suspends:.1f} us, model and tool each suspend once"
        times = ratio(found["cairn"], found["yields"])
        what = f"CPU of a turn, N={turns}, to a loop that suspends"
        rows.append(Row(group="no store", what=what, value=times, unit="x", note=note))
    return rows


def durable(folder: Path) -> list[Row]:
    """CPU of a one-call turn on a file, every commit synced, beside two commits by hand."""
    turns, number = 200, count()
    agent = make_agent(turns, KB)
    found = interleaved(
        {
            "cairn": lambda: cairn_run(str(folder / f"{next(number)}.db"), agent),
            "floor": lambda: two_commits(folder / f"{next(number)}.log", turns, KB),
            "thread": lambda: grouped(folder / f"{next(number)}.log", 1, turns, KB),
        },
        9,
    )
    ours, floor, thread = (_us(costs, turns) for costs in found.values())
    return [
        Row(
            group="durable",
            what="CPU of a turn, 1 KB, to two commits by hand",
            value=ratio(found["cairn"], found["floor"]),
            unit="x",
            bound=2,
            note=f"{ours:.0f} us beside {floor:.0f} us",
        ),
        Row(
            group="durable",
            what="CPU of a turn, to two commits through a writer thread",
            value=ratio(found["cairn"], found["thread"]),
            unit="x",
            note=f"{ours:.0f} us beside {thread:.0f} us: the same loop, off the event loop",
        ),
    ]


def growth(folder: Path) -> list[Row]:
    """How the CPU of a run grows with its turns."""
    number = count()

    def memory_run(turns: int) -> Callable[[], Coroutine[Any, Any, Cost]]:
        agent = make_agent(turns, SMALL)
        return lambda: cairn_run(InMemoryStore(), agent)

    def file_run(turns: int) -> Callable[[], Coroutine[Any, Any, Cost]]:
        agent = make_agent(turns, SMALL)

        def work() -> Coroutine[Any, Any, Cost]:
            store = open_store(str(folder / f"{next(number)}.db"), durability="process")
            return cairn_run(store, agent)

        return work

    rows: list[Row] = []
    for what, make, sizes, rounds in (
        ("in memory", memory_run, (100, 1000, 10_000), 2),
        ("SQLite", file_run, (100, 500, 2000), 2),
    ):
        found = interleaved({str(n): make(n) for n in sizes}, rounds)
        points = {int(n): cpu(costs) for n, costs in found.items()}
        each = ", ".join(f"{value / n * 1e6:.0f} us at {n:,}" for n, value in points.items())
        title = f"CPU of a run {what}, N={sizes[0]} to {sizes[-1]:,}: N^"
        rows.append(
            Row(
                group="growth",
                what=title,
                value=exponent(points),
                unit="",
                bound=1.05,
                note=f"a turn: {each}",
            )
        )
    return rows


# ---------------------------------------------------------------- bytes of a turn


def size(folder: Path) -> list[Row]:
    """Bytes of a one-tool turn beyond its payload, early and late in a run of 10,000.

    Results vary in length, from half to one and a half times the size that is named: rows of one
    length fill pages well or badly as it happens.
    """
    rows: list[Row] = []
    for bytes_, turns in ((SMALL, 10_000), (KB, 2000)):
        path = folder / f"{bytes_}.db"
        window = turns // 10
        marks = (10, 10 + window, turns - window - 1, turns - 1)
        sizes = _sizes_at(path, turns, bytes_, marks)
        early = (sizes[1] - sizes[0]) / window
        late = (sizes[3] - sizes[2]) / window
        payload = bytes_ + 2 + len(arguments_text(turns // 2))
        rows.append(
            Row(
                group="size",
                what=f"bytes of a turn beyond its payload, {bytes_} bytes of result",
                value=max(early, late) - payload,
                unit="bytes",
                bound=1536,
                note=f"{early:.0f} bytes from turn 10 on, {late:.0f} at {turns:,}",
            )
        )
        rows.append(
            Row(
                group="size",
                what=f"change of that from turn 10 to {turns:,}",
                value=abs(late / early - 1) * 100,
                unit="%",
                bound=3,
            )
        )
    return rows


def _sizes_at(path: Path, turns: int, bytes_: int, marks: tuple[int, ...]) -> list[int]:
    """Size of the main file, everything checkpointed into it, when each of these turns runs."""
    import apsw

    found: list[int] = []

    def on_turn(n: int) -> None:
        if n not in marks:
            return
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(5000)
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy, "the log could not be written back"
        found.append(path.stat().st_size)
        connection.close()

    agent = make_agent(turns, bytes_, on_turn, varied=True)
    asyncio.run(cairn_run(open_store(str(path), durability="process"), agent))
    return found


# ---------------------------------------------------------------- many runs

RUNS, STEPS = 1000, 10


def crowd(folder: Path) -> list[Row]:
    """1,000 runs of 10 turns at once, in this process, on one file, every commit synced."""
    number = count()
    agent = make_agent(STEPS, KB)
    added: list[float] = []

    async def cairn() -> Cost:
        async with Runtime(str(folder / f"{next(number)}.db"), agents=[agent]) as runtime:
            await checked(runtime.run_async("bench", "go"))
            before = rss_mb()
            with Meter() as meter:
                await asyncio.gather(
                    *(checked(runtime.run_async("bench", "go")) for _ in range(RUNS))
                )
            added.append(peak_rss_mb() - before)
        return meter.cost

    floor = lambda: grouped(folder / f"{next(number)}.log", RUNS, STEPS, KB)  # noqa: E731
    found = interleaved({"cairn": cairn, "floor": floor}, 2)
    pairs = zip(found["cairn"], found["floor"], strict=True)
    times = statistics.median(theirs.wall_s / ours.wall_s for ours, theirs in pairs)
    turns = RUNS * STEPS
    per_s = [turns / wall(found[name]) for name in ("cairn", "floor")]
    cpus = [_us(found[name], turns) for name in ("cairn", "floor")]
    return [
        Row(
            group="crowd",
            what="1,000 runs x 10 turns: turns/s, to a group-commit floor",
            value=times,
            unit="x",
            bound=0.2,
            least=True,
            note=f"median {per_s[0]:,.0f} beside {per_s[1]:,.0f} turns/s; all completed",
        ),
        Row(
            group="crowd",
            what="CPU of a turn, to that floor",
            value=ratio(found["cairn"], found["floor"]),
            unit="x",
            note=f"{cpus[0]:.0f} us beside {cpus[1]:.0f} us",
        ),
        Row(
            group="crowd",
            what="peak memory beyond the process before",
            value=added[0],  # of the first round: later ones use its memory again
            unit="MB",
            bound=60,
        ),
    ]


# ---------------------------------------------------------------- resume


def resume(folder: Path) -> list[Row]:
    """Opening a file whose process was killed inside a tool, and driving its run to the end."""
    import shutil
    import subprocess

    rows: list[Row] = []
    for steps in (200, 2000):
        made = folder / f"made-{steps}"
        made.mkdir()
        command = [sys.executable, __file__, "die", str(made), str(steps)]
        subprocess.run(command, check=False, capture_output=True)
        costs: list[Cost] = []
        for attempt in range(6):
            copy = folder / f"copy-{steps}-{attempt}"
            shutil.copytree(made, copy)
            costs.append(asyncio.run(_go_on(copy, steps)))
        costs = costs[1:]
        bound = 50 + 0.05 * steps
        best = min(cost.wall_s for cost in costs)  # wall time is other people's as well
        for what, value, how in (("CPU", cpu(costs), "median"), ("wall time", best, "best")):
            rows.append(
                Row(
                    group="resume",
                    what=f"{what} to reopen and drive on after {steps:,} steps",
                    value=value * 1000,
                    unit="ms",
                    bound=bound,
                    note=f"killed in a tool; until the result is there; {how} of 5",
                )
            )
    return rows


async def _go_on(folder: Path, steps: int) -> Cost:
    agent = make_agent(steps, KB)
    with Meter() as meter:
        runtime = Runtime(str(folder / "store.db"), agents=[agent])
        await checked(runtime.run_async("bench", "go", id="r"))
    await runtime.close_async()
    return meter.cost


def die(folder: Path, steps: int) -> None:
    """Run until the last tool call, and end the process inside it as `kill -9` would."""
    import os

    def on_turn(n: int) -> None:
        if n == steps - 1:
            os._exit(9)

    async def work() -> None:
        store = open_store(str(folder / "store.db"), durability="process")
        async with Runtime(store, agents=[make_agent(steps, KB, on_turn)]) as runtime:
            await runtime.run_async("bench", "go", id="r")

    asyncio.run(work())


# ---------------------------------------------------------------- syncs, as the kernel sees them


def turns_for_trace(folder: Path, turns: int) -> None:
    """One run of so many turns, to be watched from outside."""
    asyncio.run(cairn_run(str(folder / f"{turns}.db"), make_agent(turns, KB)))


SECTIONS: dict[str, Section] = {
    "memory": memory,
    "durable": durable,
    "growth": growth,
    "size": size,
    "crowd": crowd,
    "resume": resume,
}


def main() -> None:
    name, *rest = sys.argv[1:]
    if name == "die":
        die(Path(rest[0]), int(rest[1]))
    elif name == "turns":
        turns_for_trace(Path(rest[0]), int(rest[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            rows = SECTIONS[name](Path(folder))
        sys.stdout.write(json.dumps([row.as_dict() for row in rows]))


if __name__ == "__main__":
    main()
