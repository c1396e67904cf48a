"""What events tell of a run, its steps and its model attempts, and the two folds themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

import msgspec

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.evolve_calls import plain
from cairn.core.messages import CallPart, Reasoning, calls_of, text_of
from cairn.core.state import RunState
from cairn.core.views.calls import CALL_TELLERS
from cairn.core.views.fold import Timeline, change_of, fault_of, noted
from cairn.core.views.shapes import (
    CallView,
    Change,
    Fault,
    ModelAttempt,
    RunView,
    StepView,
    TaskAttempt,
)

replace = msgspec.structs.replace


def timeline(entries: Iterable[ev.Entry], run: str = "") -> RunView:
    """The run that `entries`, from the first on, tell of; `run` is its id.

    Raises:
        CorruptJournal: they do not start with `run.created`.
        IllegalTransition: they are no legal history.
    """
    told = Timeline(run)
    for entry in entries:
        told.move(entry)
        _TELLERS.get(type(entry.event), noted)(told, entry, entry.event)
        told.agree(entry)
    return told.view()


def changes(entries: Iterable[ev.Entry], run: str = "") -> tuple[Change, ...]:
    """Every move of the run's status, the first one into existence."""
    state, before = RunState(run=run, alone=True), None
    found: list[Change] = []
    for entry in entries:
        state = evolve(state, entry)
        if state.status is not before:
            found.append(change_of(before, state, entry))
            before = state.status
    return tuple(found)


# ---------------------------------------------------------------- run and step


def _created(told: Timeline, entry: ev.Entry, event: ev.RunCreated) -> None:
    told.first_at = entry.at


def _forked(told: Timeline, entry: ev.Entry, event: ev.RunForked) -> None:
    """What was open in the parent goes on here; its end, if any, is not ours."""
    told.ended_at = 0
    noted(told, entry, event)


def _ended(told: Timeline, entry: ev.Entry, event: ev.Event) -> None:
    """Nothing waits for people any more: what was asked and never decided is void."""
    told.ended_at = entry.at
    why = f"the run ended: {told.state.status.value}"
    for call in told.calls.values():
        if call.approvals and call.approvals[-1].decision == "open":
            *earlier, last = call.approvals
            void = replace(last, decision="void", message=why)
            told.calls[call.id] = replace(call, approvals=(*earlier, void))


def _task_started(told: Timeline, entry: ev.Entry, event: ev.StepStarted) -> None:
    step = told.step(entry.step, entry.at, kind="task", name=event.name)
    attempt = TaskAttempt(seq=entry.seq, at=entry.at, n=event.attempt)
    told.step(step.number, entry.at, tasks=(*step.tasks, attempt))


def _task_ended(
    told: Timeline, entry: ev.Entry, event: ev.StepCompleted | ev.StepFailed | ev.StepLost
) -> None:
    step = told.steps[told.latest]  # nothing else can have begun meanwhile
    last = replace(step.tasks[-1], ended_at=entry.at)
    match event:
        case ev.StepCompleted():
            output = "" if event.output == ev.EMPTY else plain(event.output)
            last = replace(last, fate="completed", duration_us=event.duration_us, output=output)
        case ev.StepFailed():
            last = replace(
                last, fate="failed", duration_us=event.duration_us, fault=fault_of(event)
            )
        case ev.StepLost():
            last = replace(last, fate="lost")
        case _:
            assert_never(event)
    told.step(step.number, entry.at, tasks=(*step.tasks[:-1], last))


# ---------------------------------------------------------------- model


def _requested(told: Timeline, entry: ev.Entry, event: ev.ModelRequested) -> None:
    step = told.step(entry.step, entry.at)
    told.turn = step.number
    attempt = ModelAttempt(
        seq=entry.seq,
        at=entry.at,
        n=event.attempt,
        model=event.model,
        reserved=event.reserved,
        purpose=event.purpose,
    )
    told.step(step.number, entry.at, attempts=(*step.attempts, attempt))


def _reply(told: Timeline, at: int, **fields: Any) -> None:
    *earlier, last = told.steps[told.turn].attempts
    told.step(told.turn, at, attempts=(*earlier, replace(last, **fields)))


def _replied(told: Timeline, entry: ev.Entry, event: ev.ModelCompleted) -> None:
    _reply(
        told,
        entry.at,
        fate="completed",
        ended_at=entry.at,
        latency_us=event.latency_us,
        first_token_us=event.first_token_us,
        usage=event.usage,
        measured=event.measured,
        finish=event.finish,
        request_id=event.request_id,
        text=text_of(event.parts),
        reasoning="".join(p.content for p in event.parts if isinstance(p, Reasoning)),
    )
    for part in calls_of(event.parts):
        told.calls[part.id] = CallView(
            id=part.id, name=part.name, arguments=part.arguments, step=told.turn, at=entry.at
        )


def _model_failed(told: Timeline, entry: ev.Entry, event: ev.ModelFailed) -> None:
    _reply(
        told,
        entry.at,
        fate="lost" if event.lost else "failed",
        ended_at=entry.at,
        latency_us=event.latency_us,
        usage=event.usage,
        measured=event.measured,
        request_id=event.request_id,
        fault=fault_of(event),
    )


def _model_rejected(told: Timeline, entry: ev.Entry, event: ev.ModelRejected) -> None:
    """The answer is refused: it is the last reply's, whatever checks ran after it."""
    fault = Fault(error_class=event.error_class, message=event.note, disposition=event.disposition)
    step = told.steps[told.turn]
    if step.by:
        told.step(step.number, entry.at, rejection=fault)
        return
    _reply(told, entry.at, rejection=fault)


def _by_person(told: Timeline, entry: ev.Entry, event: ev.TakeoverTurn) -> None:
    """A turn that a person made in the agent's place."""
    step = told.step(entry.step, entry.at, by=entry.actor, text=text_of(event.parts))
    told.turn = step.number
    for part in calls_of(event.parts):
        told.calls[part.id] = CallView(
            id=part.id,
            name=part.name,
            arguments=part.arguments,
            step=step.number,
            at=entry.at,
            by=entry.actor,
        )


def _fed(told: Timeline, entry: ev.Entry, event: ev.TurnFed) -> None:
    """Calls that the runtime made before the model was asked."""
    fed = event.blocks or tuple(part.name for part in event.parts)
    _own_calls(told, entry, told.step(entry.step, entry.at, fed=fed), event.parts)


def _kept(told: Timeline, entry: ev.Entry, event: ev.TurnKept) -> None:
    """Calls that the runtime made to keep the facts of a summary; or why it made none."""
    if event.parts:
        step = told.step(entry.step, entry.at, keeps=event.of)
        _own_calls(told, entry, step, event.parts)
    if event.why:
        noted(told, entry, event)


def _own_calls(
    told: Timeline, entry: ev.Entry, step: StepView, parts: tuple[CallPart, ...]
) -> None:
    """Calls of the runtime itself are those of a step of their own."""
    told.turn = step.number
    for part in parts:
        told.calls[part.id] = CallView(
            id=part.id, name=part.name, arguments=part.arguments, step=step.number, at=entry.at
        )


_TELLERS: dict[type[ev.Event], Callable[[Timeline, ev.Entry, Any], None]] = {
    ev.RunCreated: _created,
    ev.RunForked: _forked,
    **dict.fromkeys(ev.TERMINAL, _ended),
    ev.StepStarted: _task_started,
    ev.StepCompleted: _task_ended,
    ev.StepFailed: _task_ended,
    ev.StepLost: _task_ended,
    ev.ModelRequested: _requested,
    ev.TurnFed: _fed,
    ev.TurnKept: _kept,
    ev.ModelCompleted: _replied,
    ev.ModelFailed: _model_failed,
    ev.ModelRejected: _model_rejected,
    ev.TakeoverTurn: _by_person,
    **CALL_TELLERS,
}
