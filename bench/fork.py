"""Measure what a fork costs, and whether that grows faster than its parent is long.

    python bench/fork.py [--sizes 100,1000,10000] [--rounds 5] [--json]

Forks a run of N steps just before its end, without driving it: CPU of the fork, beside CPU of
only reading and folding the same journal; rows it added and the bytes of them; the exponent of N,
1.0 being linear. Looking at the run as it stood in the middle (`Runtime.at`) is measured too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measure import Meter, exponent  # noqa: E402 - found beside this file
from workloads import checked, make_agent  # noqa: E402 - as above

from cairn import Runtime  # noqa: E402 - as above
from cairn.engine.load import fold_entries  # noqa: E402 - as above
from cairn.store import open_store  # noqa: E402 - as above

RESULT_BYTES = 200


async def measured(folder: Path, steps: int, rounds: int) -> dict[str, float]:
    """What forks of a run of this many steps cost, each figure the median of `rounds`."""
    path = folder / f"{steps}.db"
    agent = make_agent(steps - 1, RESULT_BYTES)
    async with Runtime(open_store(str(path), durability="process"), agents=[agent]) as rt:
        await checked(rt.run_async("bench", "go", id="r"))
        head = (await rt.store.info("r")).head
    async with Runtime(open_store(str(path), durability="process"), agents=[agent]) as rt:

        async def cpu(work: Callable[[], Coroutine[Any, Any, Any]]) -> float:
            with Meter() as meter:
                await work()
            return meter.cost.cpu_s

        async def folded() -> None:  # all of it: what this process knows already is not asked
            await fold_entries(rt.store, "r", await rt.store.read("r"))

        await folded()  # what is warm for one is warm for all
        found: dict[str, list[float]] = {"load": [], "fork": [], "at": []}
        for n in range(rounds):
            fork = f"f{n}"
            found["load"].append(await cpu(folded))
            found["fork"].append(
                await cpu(lambda fork=fork: rt.client.fork("r", head - 1, new=fork))
            )
            found["at"].append(await cpu(lambda: rt.at_async("r", head // 2)))
        rows = await rt.store.rows("f0")
        await rt.store.verify("f0")
    result = {name: statistics.median(values) for name, values in found.items()}
    return result | {
        "events": head,
        "rows": len(rows),
        "bytes": sum(len(r.data or b"") + len(r.salt) + len(r.hash) for r in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--sizes", default="100,1000,10000", help="steps of the parent")
    parser.add_argument("--rounds", type=int, default=5, help="forks of each")
    parser.add_argument("--json", action="store_true", help="write figures as JSON")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        figures = {n: asyncio.run(measured(Path(folder), n, asked.rounds)) for n in sizes}
    slope = exponent({n: f["fork"] for n, f in figures.items()})
    if asked.json:
        sys.stdout.write(json.dumps({"figures": figures, "exponent": slope}, indent=2) + "\n")
        return 0
    print("| steps | events | fork, CPU | to reading it | a step | state, middle | rows | bytes |")
    print("|---|---|---|---|---|---|---|---|")
    for n, f in figures.items():
        cells = (
            f"{n:,}",
            f"{f['events']:,.0f}",
            f"{f['fork'] * 1e3:.1f} ms",
            f"{f['fork'] / f['load']:.2f} x",
            f"{f['fork'] / n * 1e6:.0f} us",
            f"{f['at'] * 1e3:.1f} ms",
            f"{f['rows']:.0f}",
            f"{f['bytes']:,.0f}",
        )
        print(f"| {' | '.join(cells)} |")
    print(f"\nCPU of a fork grows with N^{slope:.2f}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
