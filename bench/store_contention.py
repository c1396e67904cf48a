"""Measure how long processes wait that write flat out to one store file, and whether any fails.

    python bench/store_contention.py [--processes 4] [--runs 4] [--seconds 3] [--durability full]

Prints a line for each process: appends, events a second, median, 99th percentile and worst wait
of a single append, and errors. Exit code 1 if anything failed or was lost.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cairn.errors import CairnError
from cairn.ports import RunFilter
from cairn.store import open_store
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

EVENT_BYTES = 300


async def write(path: str, name: str, runs: int, seconds: float, durability: str) -> None:
    store = open_store(path, durability=durability)
    waits: list[float] = []
    errors = 0
    ready = asyncio.Event()

    async def life(run: str) -> None:
        nonlocal errors
        story = Story(run)
        await create(store, story)
        epoch = await drive(store, story)
        await ready.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            told = story.tell(note("x" * EVENT_BYTES), note("y" * EVENT_BYTES))
            began = time.perf_counter()
            try:
                await store.append(run, epoch, told, story.index)
            except CairnError as error:
                errors += 1
                print(name, type(error).__name__, error, file=sys.stderr)
                return
            waits.append(time.perf_counter() - began)
        await store.append(run, epoch, [], None, release=True)

    lives = [asyncio.ensure_future(life(f"{name}-{n}")) for n in range(runs)]
    await asyncio.to_thread(sys.stdin.readline)
    ready.set()
    await asyncio.gather(*lives)
    await store.close()
    waits.sort()
    print(
        name,
        len(waits),
        round(2 * len(waits) / seconds),
        f"{statistics.median(waits) * 1e3:.2f}",
        f"{waits[int(len(waits) * 0.99)] * 1e3:.2f}",
        f"{waits[-1] * 1e3:.2f}",
        errors,
    )


async def check(path: str, appended: dict[str, int]) -> int:
    store = open_store(path)
    lost = 0
    found = dict.fromkeys(appended, 0)
    for line in await store.runs(RunFilter(limit=10_000)):
        events = await store.verify(line.run)
        found[line.run.split("-")[0]] += (events - 1) // 2
    for name, expected in appended.items():
        lost += expected - found[name]
    await store.close()
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--durability", choices=["full", "process"], default="full")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        path, name = options.worker
        asyncio.run(write(path, name, options.runs, options.seconds, options.durability))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "cairn.db")
        asyncio.run(open_store(path).close())
        workers = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--worker", path, f"p{n}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(options.processes)
        ]
        time.sleep(1.0)  # all are up before any begins
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        lines = [worker.communicate()[0].split() for worker in workers]
        lost = asyncio.run(check(path, {line[0]: int(line[1]) for line in lines}))
    print("process  appends  events/s  median ms  p99 ms  worst ms  errors")
    for line in lines:
        print("{:7} {:>8} {:>9} {:>10} {:>7} {:>9} {:>7}".format(*line))
    print(f"together {sum(int(line[2]) for line in lines)} events/s, lost {lost}")
    return int(bool(lost or any(int(line[6]) for line in lines)))


if __name__ == "__main__":
    sys.exit(main())
