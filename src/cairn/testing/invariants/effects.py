"""The world as a witness: what happened outside, beside what the journal says of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from cairn.core import events as ev
from cairn.core.messages import Record
from cairn.testing.invariants.case import Violation


class Effect(Record):
    """Something that happened outside, noted there and not by the runtime.

    Args:
        run: The run whose call it was.
        call: The call's id.
        attempt: Which attempt of it.
        tool: The tool that did it.
        key: The idempotency key it came with; the other side honours it for keyed tools only.
    """

    run: str
    call: str
    attempt: int
    tool: str
    key: str


def check_effects(
    journals: Mapping[str, Sequence[ev.Entry]],
    effects: Iterable[Effect],
    recoveries: Mapping[str, str],
) -> list[Violation]:
    """What the world saw happen and no journal allows.

    Args:
        journals: The events of every run, a fork's prefix included. Two forks of one run are two
            lines of descent: what both do was asked for twice.
        effects: The world's log, in order.
        recoveries: Of each tool: `read`, or its recovery (repeat, keyed, probe, once).
    """
    found: list[Violation] = []
    by_attempt: Counter[tuple[str, str, int]] = Counter()
    by_run: dict[str, list[Effect]] = defaultdict(list)
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for effect in effects:
        by_attempt[effect.run, effect.call, effect.attempt] += 1
        by_run[effect.run].append(effect)
        keys[effect.run, effect.call].add(effect.key)
    for (run, call, attempt), times in by_attempt.items():
        if times > 1:
            found.append(_said(run, f"attempt {attempt} of {call} was made {times} times"))
    for (run, call), seen in keys.items():
        if len(seen) > 1:
            found.append(_said(run, f"{call} came with {len(seen)} keys"))
    for run, entries in journals.items():
        line = [e for each in _line(run, entries) for e in by_run.get(each, ())]
        found += _of_line(run, entries, line, recoveries)
    return found


def _line(run: str, entries: Sequence[ev.Entry]) -> list[str]:
    """A run and those it was forked from; two forks of one run are two lines."""
    parents = [e.event.parent for e in entries if isinstance(e.event, ev.RunForked)]
    return [*dict.fromkeys(parents), run]


def _of_line(
    run: str, entries: Sequence[ev.Entry], line: list[Effect], recoveries: Mapping[str, str]
) -> list[Violation]:
    found: list[Violation] = []
    by_key: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in line:
        by_key[effect.key, effect.tool].append(effect)
    for (_, tool), made in by_key.items():
        recovery = recoveries.get(tool, "once")
        if recovery in {"once", "probe"} and any(e.run == run for e in made):
            call = made[-1].call
            if len(made) > 1 + _not_happened(entries, call):
                text = f"{tool} ({recovery}) of {call} happened {len(made)} times"
                found.append(_said(run, text))
    return found


def _not_happened(entries: Sequence[ev.Entry], call: str) -> int:
    """How often somebody who could know said that it did not happen, so that it was done anew."""
    return sum(
        isinstance(e.event, ev.ToolResolved)
        and e.event.call == call
        and e.event.verdict == "not_happened"
        for e in entries
    )


def _said(run: str, text: str) -> Violation:
    return Violation(name="once", run=run, seq=0, text=text)
