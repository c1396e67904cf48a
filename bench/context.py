"""What the context costs: how much of a request stays the same, and what a long run pays for it.

    python bench/context.py

Runs the same scripted work in windows of several sizes, and prints for each how often it was
condensed, how large the largest request was, how many of the leading bytes of the request before
stood unchanged in the next one (what a provider's cache can serve), and the time of a turn at the
beginning and at the end of the run.
"""

import asyncio
import time

from cairn import Agent, ContextBlock, Limits, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.limits import estimate_tokens
from cairn.core.sizes import tokens_of
from cairn.core.state import RunState
from cairn.core.views.context import bytes_of, share_unchanged
from cairn.ports import ModelRequest

TURNS = 2_000
WINDOWS = (8_000, 32_000, 128_000)


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: " + "and so on " * 60


async def measure(window: int) -> str:
    """One run, as a line of the table."""
    sizes: list[int] = []
    times: list[float] = []

    def model(request: ModelRequest) -> object:
        times.append(time.perf_counter())
        size = sum(map(tokens_of, request.messages)) + estimate_tokens(request.system)
        sizes.append(size + request.max_output)
        return call("look", n=request.turn) if request.turn < TURNS else "done"

    agent = Agent(
        "a",
        Scripted(model, window=window, max_output=1_000),
        instructions="You look at records. " * 40,
        tools=[look],
        context=[ContextBlock("shop", "We sell tea. " * 40)],
        limits=Limits(steps=10**5, calls=10**5, tokens=10**10, no_progress=10**5),
    )
    rt = Runtime(":memory:", [agent])
    run = await rt.run_async("a", "Look at all of them.")
    entries = await rt.trace_async(run.id)
    shares, before, state = [], None, RunState(run=run.id)
    for entry in entries:
        state = evolve(state, entry)
        if isinstance(entry.event, ev.ModelRequested):
            now = bytes_of(state)
            if before is not None:
                shares.append(share_unchanged(before, now))
            before = now
    compactions = sum(isinstance(e.event, ev.ContextCompacted) for e in entries)
    whole = sum(share == 1.0 for share in shares) / len(shares)
    early = (times[300] - times[100]) / 200 * 1e6
    late = (times[-101] - times[-301]) / 200 * 1e6
    return (
        f"{window:>8,} {compactions:>12} {max(sizes):>14,} {sum(shares) / len(shares):>11.1%} "
        f"{whole:>14.1%} {early:>9.0f} {late:>9.0f} {late / early:>7.2f}"
    )


def main() -> None:
    """The command."""
    print(f"{TURNS:,} turns; times in microseconds")
    print(
        f"{'window':>8} {'compactions':>12} {'most tokens':>14} {'unchanged':>11} "
        f"{'wholly so':>14} {'early':>9} {'late':>9} {'ratio':>7}"
    )
    for window in WINDOWS:
        print(asyncio.run(measure(window)), flush=True)


if __name__ == "__main__":
    main()
