"""`check`: one pass over a run's events."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.evolve import evolve
from cairn.core.index import pending_of
from cairn.core.lifecycle import LEGAL, MOVES
from cairn.core.messages import CallPart
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.errors import ErrorClass, IllegalTransition
from cairn.testing.invariants.bounds import BUCKETS, RunBook
from cairn.testing.invariants.calls import CallBook
from cairn.testing.invariants.case import Case, Violation
from cairn.testing.invariants.context import ContextBook

AFTER_THE_END = (ev.ToolLate, ev.ToolResolved)


def check(
    entries: Sequence[ev.Entry],
    *,
    rules: Rules | None = None,
    first: RunState | None = None,
) -> list[Violation]:
    """What does not hold in a run's journal, empty for a good one.

    Args:
        entries: All of the run's events, a fork's prefix included.
        rules: The agent's rules (`prepare(agent, policy).rules`), to know what needed a person
            and which calls had to keep their order. They must be those the run was driven by.
        first: The state after the first event, for a run that continues a session's
            conversation; without it the conversation starts with the run.
    """
    found, _ = examine(entries, rules, first)
    return found


def examine(
    entries: Sequence[ev.Entry], rules: Rules | None = None, first: RunState | None = None
) -> tuple[list[Violation], RunState | None]:
    """As `check`; and the state at the end, None when the events cannot be folded."""
    pass_ = _Pass(Case(run=_run_of(entries), rules=rules), first)
    for entry in entries:
        pass_.see(entry)
    pass_.close()
    return pass_.case.found, pass_.state


def origin_of(entries: Sequence[ev.Entry], run: str) -> str:
    """The run that a journal's first events were written in: a fork's is its oldest ancestor."""
    forks = (e.event.parent for e in entries if isinstance(e.event, ev.RunForked))
    return next(forks, run)


def _run_of(entries: Sequence[ev.Entry]) -> str:
    forks = [e.event.run for e in entries if isinstance(e.event, ev.RunForked)]
    return forks[-1] if forks else ""


class _Pass:
    def __init__(self, case: Case, first: RunState | None) -> None:
        self.case = case
        self.calls = CallBook(case)
        self.runs = RunBook(case, self.calls)
        self.context = ContextBook(case, self.calls, first)
        self._first = first
        self.state: RunState | None = RunState(run=case.run or "run")
        self._at = 0
        self._checked = 0
        self._ids: set[str] = set()

    def see(self, entry: ev.Entry) -> None:
        case, event = self.case, entry.event
        in_place = entry.seq == case.seq + 1 and entry.at >= self._at
        expected, case.seq = case.seq + 1, entry.seq
        case.expect(entry.seq == expected, "gapless", f"event {expected} is missing before it")
        case.expect(entry.at >= self._at, "time", f"its time is {self._at - entry.at} µs too early")
        self._at = entry.at
        if case.over and not isinstance(event, (*AFTER_THE_END, ev.RunForked)):
            case.say("end", f"{event.NAME} after the end")
        self._fold(entry, told=not in_place)
        self.calls.see(entry)
        self.runs.see(entry)
        self.context.see(entry)
        if isinstance(event, ev.ModelRequested) and self.state is not None:
            self._well_formed(self.state)
        if isinstance(event, ev.ContextCompacted | ev.ContextRestored) and self.state is not None:
            self.context.agrees(self.state)
        if isinstance(event, ev.RunForked):
            self._sums_agree(self.state)
        if isinstance(event, ev.ErrorRaised | ev.RunFailed):
            ours = not event.message.startswith("the model adapter failed")
            if event.error_class is ErrorClass.INTERNAL and ours:
                case.say("inside", event.message)

    def _fold(self, entry: ev.Entry, *, told: bool) -> None:
        state, case, kind = self.state, self.case, type(entry.event)
        if state is None:
            return
        if entry.seq == 1 and self._first is not None:
            self.state = self._first
            return
        try:
            after = evolve(state, entry)
        except IllegalTransition as error:
            if not told:
                case.say("legal", str(error))
            self.state = None  # from here on only the books know
            return
        if state.created is not None and kind is not ev.RunForked:
            case.expect(
                state.status in LEGAL[kind], "legal", f"{kind.NAME} while {state.status.value}"
            )
            moved = (state.status, after.status)
            case.expect(
                state.status is after.status or moved in MOVES,
                "legal",
                f"{kind.NAME} took it from {state.status.value} to {after.status.value}",
            )
        self.state = after

    def _well_formed(self, state: RunState) -> None:
        fresh = list(state.messages[self._checked :])
        self._checked = len(state.messages)
        for fault in faults(fresh):
            self.case.say("messages", fault)
        for message in fresh:
            for part in message.parts:
                if isinstance(part, CallPart):
                    known = part.id in self._ids
                    self.case.expect(not known, "messages", f"call id {part.id} is used twice")
                    self._ids.add(part.id)

    def _sums_agree(self, state: RunState | None) -> None:
        if state is None:
            return
        wrong = [
            f"{name} is {getattr(state.usage, name)}, its events say {self.runs.used[name]}"
            for name in BUCKETS
            if getattr(state.usage, name) != self.runs.used[name]
        ]
        spent = (state.spent.steps, state.spent.calls, state.spent.running_us)
        said = (self.runs.steps, self.calls.starts, self.runs.running_us)
        if spent != said:
            wrong.append(f"steps, calls and time are {spent}, its events say {said}")
        if wrong:
            self.case.say("usage", "; ".join(wrong))

    def close(self) -> None:
        """What can only be said of the whole."""
        case, state = self.case, self.state
        self._sums_agree(state)
        self.context.close(state)
        if state is None or state.end is None:
            return
        listed = {p.call for p in pending_of(state)}
        for call in self.calls.calls.values():
            if call.over or call.id in listed:
                continue
            left = state.calls.get(call.id)
            case.expect(left is None or left.closed, "final", f"{call.id} has no final state")
            case.expect(not call.shadow, "final", f"{call.id} is unknown and not listed as such")
