"""How long it takes to replay a run, by its length: the work must grow as the journal does.

    python bench/replay.py [STEPS ...]

A run of this many one-tool turns is made in memory, then replayed three times; the fastest time
counts. The exponent is fitted over all lengths: 1 is linear, 2 would be quadratic.
"""

from __future__ import annotations

import argparse
import math
import time

import msgspec

from cairn.core import events as ev
from cairn.core.actions import Append, AskModel, StartCalls
from cairn.core.decide import decide
from cairn.core.evolve import evolve
from cairn.core.limits import Limits, Usage
from cairn.core.messages import Text
from cairn.core.outcomes import Called, Reply, model_outcome
from cairn.core.replay import replay
from cairn.core.rules import ModelSpec, Rules, ToolSpec
from cairn.core.state import RunState

LENGTHS = (1_000, 2_000, 5_000, 10_000)
REPEATS = 3
WIDE = Limits(steps=10**6, calls=10**6, tokens=10**12, running_s=10**9)
START = 1_800_000_000_000_000
RULES = Rules(
    tools={
        "look": ToolSpec(
            name="look",
            check=msgspec.json.decode,
            effect="read",
            recovery="repeat",
        )
    },
    models=(ModelSpec(name="m1", window=10**9),),
)


class Maker:
    """Writes the journal of a run by hand: decide, and give back what is asked for."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.state = RunState(run="r1")
        self.journal: list[ev.Entry] = []
        created = ev.RunCreated(agent="a", input=(Text("go"),), digest="d", limits=WIDE)
        self.add(created)

    def add(self, event: ev.Event, step: int = 0) -> None:
        entry = ev.Entry(seq=self.state.seq + 1, at=START + self.state.seq, event=event, step=step)
        self.state = evolve(self.state, entry)
        self.journal.append(entry)

    def reply(self) -> Reply:
        usage = Usage(input_tokens=20, output_tokens=9)
        if self.state.step >= self.steps:
            return Reply(parts=(Text("Done."),), usage=usage)
        return Reply(
            calls=(Called(name="look", arguments=f'{{"n":{self.state.step}}}'),), usage=usage
        )

    def make(self) -> list[ev.Entry]:
        while self.state.end is None:
            action = decide(self.state, RULES, START + self.state.seq)
            match action:
                case Append():
                    for step, event in action.events:
                        self.add(event, step)
                case AskModel():
                    asked = ev.ModelRequested(
                        model=action.model,
                        reserved=action.reserved,
                        messages=len(self.state.messages),
                    )
                    self.add(asked, action.step)
                    outcome = model_outcome(self.state, RULES, self.reply(), self.state.at, 9, 0.5)
                    self.add(outcome, action.step)
                case StartCalls():
                    for step, event in action.starts:
                        self.add(event, step)
                        result = msgspec.Raw(b'"result %d"' % self.state.seq)
                        self.add(ev.ToolCompleted(call=event.call, result=result), step)
                case _:
                    raise AssertionError(f"nothing to do but {action}")
        return self.journal


def seconds(journal: list[ev.Entry]) -> float:
    """The fastest of a few replays."""
    times = []
    for _ in range(REPEATS):
        before = time.perf_counter()
        found = replay(RunState(run="r1"), journal, RULES)
        times.append(time.perf_counter() - before)
        assert found.same, found.divergence
        assert found.changes == ()
    return min(times)


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of the line through the points, both axes in logarithms."""
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(t) for _, t in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum(
        (a - x) ** 2 for a in xs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", type=int, default=list(LENGTHS))
    points: list[tuple[int, float]] = []
    for steps in parser.parse_args().steps:
        journal = Maker(steps).make()
        took = seconds(journal)
        points.append((steps, took))
        each = took / len(journal) * 1e6
        print(
            f"{steps:>7,} steps {len(journal):>8,} events {took:>8.3f} s {each:>7.1f} us an event"
        )
    if len(points) > 1:
        print(f"time grows as steps ^ {exponent(points):.2f}")


if __name__ == "__main__":
    main()
