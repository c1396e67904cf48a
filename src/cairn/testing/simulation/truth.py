"""What the journals say of each attempt, beside what the world saw of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cairn.core import events as ev
from cairn.testing.invariants import Effect, Violation

Attempt = tuple[str, str, int]


def check_truth(
    own: Mapping[str, Sequence[ev.Entry]], effects: Iterable[Effect]
) -> list[Violation]:
    """Attempts that are called completed and did nothing, or failed and did it.

    A simulated tool that raises a known error has done nothing, and one that returns has done its
    work; nothing is said here of attempts whose outcome is unknown.
    """
    happened = {(e.run, e.call, e.attempt) for e in effects}
    return [found for run, entries in own.items() for found in _of_run(run, entries, happened)]


def _of_run(run: str, entries: Sequence[ev.Entry], happened: set[Attempt]) -> list[Violation]:
    found: list[Violation] = []
    open_starts: dict[str, ev.ToolStarted] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.ToolStarted):
            open_starts[event.call] = event
        elif isinstance(event, ev.ToolCompleted | ev.ToolFailed | ev.ToolUnknown):
            start = open_starts.pop(event.call, None)
            text = _untrue(run, start, event, happened) if start is not None else ""
            if text:
                found.append(Violation(name="known", run=run, seq=entry.seq, text=text))
    return found


def _untrue(run: str, start: ev.ToolStarted, event: ev.Event, happened: set[Attempt]) -> str:
    did = (run, start.call, start.attempt) in happened
    which = f"attempt {start.attempt} of {start.call}"
    counted = start.effect != "read" and start.recovery != "keyed"  # a known key does nothing anew
    if isinstance(event, ev.ToolCompleted) and counted and not did:
        return f"{which} is called completed, and nothing happened"
    if isinstance(event, ev.ToolFailed) and did and start.effect != "read":
        return f"{which} is called failed, and it happened"
    return ""
