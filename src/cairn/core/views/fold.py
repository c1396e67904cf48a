"""What a timeline is made of while it is told: one event after the other, then the whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.index import pending_of
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.state import RunState, waits
from cairn.core.views.shapes import (
    CallView,
    Change,
    Fate,
    Fault,
    Note,
    RunView,
    Settlement,
    StepStatus,
    StepView,
    Totals,
)
from cairn.core.views.words import words
from cairn.errors import CorruptJournal

replace = msgspec.structs.replace
_S = CallStatus
_STANDING_STILL = frozenset({Status.WAITING, Status.PAUSED})
_FOR_PEOPLE = frozenset({_S.ASKING, _S.QUESTION, _S.TAKEOVER})
_GOING_ON = frozenset({_S.REQUESTED, _S.APPROVED, _S.RETRYING, _S.STARTED, _S.UNKNOWN})


class Timeline:
    """What has been told so far. Filled event by event, then made into a `RunView`."""

    def __init__(self, run: str) -> None:
        self.state = RunState(run=run, alone=True)
        self.changes: list[Change] = []
        self.steps: dict[int, StepView] = {}
        self.calls: dict[str, CallView] = {}
        self.asked: dict[int, str] = {}
        self.notes: list[Note] = []
        self.latest = 0
        """The newest step."""
        self.turn = 0
        """The step of the newest model request."""
        self.first_at = 0
        self.ended_at = 0

    def move(self, entry: ev.Entry) -> None:
        """Evolve the state, and keep a move of the status."""
        before = self.state.status if self.changes else None
        if not self.changes and not isinstance(entry.event, ev.RunCreated):
            raise CorruptJournal("the journal does not start with run.created")
        self.state = evolve(self.state, entry)
        if self.state.status is not before:
            self.changes.append(change_of(before, self.state, entry))

    def agree(self, entry: ev.Entry) -> None:
        """Calls of the open turn stand as the state says, whatever an event meant for them."""
        for call in self.state.calls.values():
            known = self.calls.get(call.id)
            if known is not None and known.status is not call.status:
                ended = entry.at if call.closed else 0
                self.calls[call.id] = replace(known, status=call.status, ended_at=ended)

    # ------------------------------------------------------------ places

    def step(self, number: int, at: int, **fields: Any) -> StepView:
        """The step of this number, made when it is new, with its end moved here."""
        step = self.steps.get(number) or StepView(number=number, kind="turn", at=at)
        self.latest = max(self.latest, number)
        self.steps[number] = step = replace(step, ended_at=at, **fields)
        return step

    def call(self, call: str, entry: ev.Entry, **fields: Any) -> None:
        """Change what is told of a call. Only how it ends need be said: `agree` does the rest."""
        known = self.calls[call] = replace(self.calls[call], **fields)
        self.step(known.step, entry.at)

    def attempt(self, call: str, entry: ev.Entry, fate: Fate, **fields: Any) -> None:
        """Say what came of a call's last start."""
        known = self.calls[call]
        last = replace(known.attempts[-1], fate=fate, ended_at=entry.at, **fields)
        self.call(call, entry, attempts=(*known.attempts[:-1], last))

    def settled(self, call: str, settlement: Settlement) -> None:
        """Keep what was said of an unknown effect."""
        known = self.calls[call]
        self.calls[call] = replace(known, settlements=(*known.settlements, settlement))

    # ------------------------------------------------------------ the whole

    def view(self) -> RunView:
        """The run as it was told."""
        state = self.state
        if state.created is None:
            raise CorruptJournal("the journal is empty")
        steps = tuple(self._finished())
        return RunView(
            run=state.run,
            created=state.created,
            at=self.first_at,
            last_at=state.at,
            head=state.seq,
            status=state.status,
            limits=state.limits,
            steps=steps,
            notes=tuple(self.notes),
            changes=tuple(self.changes),
            totals=self._totals(steps),
            pending=pending_of(state),
            plan=state.plan,
            answer=state.answer_text if state.end is not None else "",
            degraded=state.degraded,
            end=state.end,
            ended_at=self.ended_at,
            parent=state.parent,
        )

    def _finished(self) -> Iterator[StepView]:
        of_step: dict[int, list[CallView]] = {}
        for call in self.calls.values():
            of_step.setdefault(call.step, []).append(call)
        for step in self.steps.values():
            calls = tuple(of_step.get(step.number, ()))
            status = _step_status(step, calls, over=self.ended_at > 0)
            yield replace(step, calls=calls, status=status)

    def _totals(self, steps: tuple[StepView, ...]) -> Totals:
        state = self.state
        moves = [(c.after, c.at) for c in self.changes] + [(state.status, state.at)]
        waited = sum(
            until - at for (status, at), (_, until) in pairwise(moves) if status in _STANDING_STILL
        )
        return Totals(
            steps=state.spent.steps,
            calls=state.spent.calls,
            requests=sum(len(s.attempts) for s in steps),
            attempts=sum(len(c.attempts) for c in self.calls.values()),
            usage=state.usage,
            running_us=state.spent.running_us,
            waited_us=waited,
            elapsed_us=state.at - self.first_at,
        )


def _step_status(step: StepView, calls: tuple[CallView, ...], *, over: bool) -> StepStatus:
    """Where a step stands; what is still open when the run is over has failed."""
    statuses = {c.status for c in calls}
    last: Any = (*step.attempts[-1:], *step.tasks[-1:])[-1:]
    fate = last[0].fate if last else "open"
    if step.by or step.fed or step.keeps:  # a turn of a person or of the runtime stands by itself
        fate = "completed"
    waits = bool(statuses & _FOR_PEOPLE)
    if fate in {"open", "lost"} or statuses & _GOING_ON or waits:
        if over:
            return "failed"
        return "waiting" if waits else "running"
    if fate == "failed":
        waiting = not over and last[0].fault is not None and last[0].fault.disposition == "retry"
        return "waiting" if waiting else "failed"
    rejected = bool(step.attempts) and step.attempts[-1].rejection is not None
    rejected |= step.rejection is not None
    return "failed" if rejected or _S.CANCELLED in statuses else "completed"


def noted(told: Timeline, entry: ev.Entry, event: ev.Event) -> None:
    """Keep an event as a note of the step it fell into."""
    note = Note(seq=entry.seq, at=entry.at, name=event.NAME, text=words(event), actor=entry.actor)
    number = entry.step if entry.step in told.steps else told.latest
    if not number:
        told.notes.append(note)
        return
    step = told.steps[number]
    told.steps[number] = replace(step, notes=(*step.notes, note))


def fault_of(event: ev.ModelFailed | ev.ToolFailed | ev.ToolRejected | ev.StepFailed) -> Fault:
    """What a failure says went wrong."""
    return Fault(
        error_class=event.error_class,
        message=event.message,
        disposition=event.disposition,
        retry_at=getattr(event, "retry_at", 0),
        status=getattr(event, "status", 0),
        asked_us=getattr(event, "asked_us", 0),
    )


def change_of(before: Status | None, state: RunState, entry: ev.Entry) -> Change:
    """The move from `before` to the status that `entry` brought about."""
    return Change(
        seq=entry.seq,
        at=entry.at,
        before=before,
        after=state.status,
        event=entry.event.NAME,
        waits=tuple(sorted(waits(state))),
        actor=entry.actor,
    )
