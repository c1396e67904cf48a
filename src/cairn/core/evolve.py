"""`evolve(state, entry)`: one more fact, the next state. Nothing else ever makes a state.

An event that the tables of `lifecycle` forbid raises `IllegalTransition`; since states are
values, nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.edits import edited, plan_note, redirected
from cairn.core.events.model import NO_TOOLS
from cairn.core.evolve_calls import CALL_HANDLERS, close_at_end, kept_whole
from cairn.core.evolve_context import CONTEXT_HANDLERS, add_calls, drafted, seen, undrafted
from cairn.core.evolve_people import PEOPLE_HANDLERS, answered
from cairn.core.fingerprint import Fingerprint
from cairn.core.guard import Guard
from cairn.core.lifecycle import LEGAL, MOVES, CallStatus, Status
from cairn.core.limits import Usage
from cairn.core.messages import Message, Text, text_of, user
from cairn.core.newer import version_changed, without_grants
from cairn.core.quoting import of_check
from cairn.core.state import End, RunState, Spent, Task, add_message, add_request, status_of
from cairn.errors import ErrorClass, IllegalTransition

replace = msgspec.structs.replace


def evolve(state: RunState, entry: ev.Entry) -> RunState:
    """The state after `entry`.

    Raises:
        IllegalTransition: the event is out of order or not allowed in this state.
    """
    event = entry.event
    kind = type(event)
    if entry.seq != state.seq + 1:
        raise IllegalTransition(
            f"{state.run}: event {entry.seq} cannot follow {state.seq}; the journal has a gap"
        )
    if entry.at < state.at:
        raise IllegalTransition(f"{state.run}: time falls at event {entry.seq}")
    if state.created is None:
        if kind is not ev.RunCreated:
            raise IllegalTransition(f"{state.run}: a journal starts with run.created")
    elif state.status not in LEGAL[kind]:
        raise IllegalTransition(
            f"{event.NAME} is not allowed while run {state.run} is {state.status.value}"
        )
    changed: RunState = HANDLERS[kind](state, entry, event)
    if kind in _SPOKEN and entry.actor and entry.actor not in changed.voices:
        changed = replace(changed, voices=changed.voices.added(entry.actor, entry.seq))
    status = status_of(changed)
    illegal = status is not state.status and (state.status, status) not in MOVES
    if illegal and kind not in _RESTARTS:
        raise IllegalTransition(
            f"{event.NAME} would take run {state.run} from {state.status.value} to {status.value}"
        )
    return replace(changed, seq=entry.seq, at=entry.at, status=status)


def fold(state: RunState, entries: Iterable[ev.Entry]) -> RunState:
    """`evolve` over all of `entries`, in order."""
    for entry in entries:
        state = evolve(state, entry)
    return state


_SPOKEN = frozenset(
    {
        ev.RunCreated,
        ev.RunForked,
        ev.InputQueued,
        ev.InputAnswered,
        ev.PlanUpdated,
        ev.ToolEdited,
        ev.ToolResolved,
        ev.ApprovalDenied,
        ev.TakeoverTurn,
        ev.TakeoverResult,
        ev.TakeoverEnded,
    }
)
"""Facts by which a person leads to what the run does from there on."""
_RESTARTS = frozenset({ev.RunForked, ev.RunCreated})


# ---------------------------------------------------------------- run


def _created(state: RunState, entry: ev.Entry, event: ev.RunCreated) -> RunState:
    return add_request(
        replace(
            state,
            created=event,
            own=state.own if state.opened else len(state.asked),
            limits=event.limits,
            fingerprint=event.fingerprint if isinstance(event.fingerprint, Fingerprint) else None,
        ),
        Message(role="user", parts=event.input),
        begins=not state.opened,
    )


def _forked(state: RunState, entry: ev.Entry, event: ev.RunForked) -> RunState:
    if event.grants == "void":
        state = without_grants(state, entry.at)
    created = state.created
    if created is not None and created.behind:  # it stands beside the session, in no line
        created = replace(created, behind="")
    return replace(
        state,
        run=event.run,
        created=created,
        parent=ev.RunRef(run=event.parent, seq=event.at),
        limits=event.limits or state.limits,
        paused=False,
        taken="",
        cancel=None,
        end=None,
        failing=None,
        usage=Usage(),
        spent=Spent(),
        errors_in_row=0,
        excess="",
        repairs={},
        tries={},
        attempts=0,
        retry_at=0,
        summary_misses=0,
        guard=Guard(),
        model=0,
        task=replace(state.task, attempt=1) if state.task is not None else None,
    )


def _continued(state: RunState, entry: ev.Entry, event: ev.RunContinued) -> RunState:
    """It waits no more. What it goes on from was there before its first event: see `load`."""
    if state.created is None or not state.created.behind:
        raise IllegalTransition(f"{state.run}: it waits behind no other run")
    created = replace(state.created, previous=event.previous, behind="")
    if event.roles is not None:
        created = replace(created, principal=replace(created.principal, roles=event.roles))
    return replace(state, created=created)


def _paused(state: RunState, entry: ev.Entry, event: ev.RunPauseRequested) -> RunState:
    return replace(state, paused=True)


def _resumed(state: RunState, entry: ev.Entry, event: ev.RunResumed) -> RunState:
    return replace(state, paused=False)


def _cancel_requested(state: RunState, entry: ev.Entry, event: ev.RunCancelRequested) -> RunState:
    if event.gently:
        end = End(status=Status.CANCELLED, message=event.reason)
        return replace(state, failing=state.failing or end, paused=False)
    return replace(state, cancel=event.reason or "cancelled on request")


def _completed(state: RunState, entry: ev.Entry, event: ev.RunCompleted) -> RunState:
    if state.calls or not event.answer or event.answer != state.answer:
        raise IllegalTransition(f"{state.run}: success needs a final answer and no open call")
    end = End(status=Status.COMPLETED, answer=event.answer, degraded=event.degraded)
    return _ended(state, end)


def _failed(state: RunState, entry: ev.Entry, event: ev.RunFailed) -> RunState:
    end = End(status=Status.FAILED, error_class=event.error_class, message=event.message)
    return _ended(state, end)


def _stopped(state: RunState, entry: ev.Entry, event: ev.RunStopped) -> RunState:
    end = End(status=Status.STOPPED, limit=event.limit, message=event.message)
    return _ended(state, end)


def _cancelled(state: RunState, entry: ev.Entry, event: ev.RunCancelled) -> RunState:
    return _ended(state, End(status=Status.CANCELLED, message=event.reason))


def _ended(state: RunState, end: End) -> RunState:
    if state.in_flight:
        raise IllegalTransition(f"{state.run}: it cannot end while something is at work")
    return replace(close_at_end(state), end=end)


# ---------------------------------------------------------------- step


def _step_started(state: RunState, entry: ev.Entry, event: ev.StepStarted) -> RunState:
    again = state.task is not None and state.task.lost and state.task.step == entry.step
    if not again and (state.task is not None or entry.step != state.step + 1):
        raise IllegalTransition(f"{state.run}: step {entry.step} cannot start now")
    if _working(state) or _ending(state):
        raise IllegalTransition(f"{state.run}: step {entry.step} cannot start now")
    task = Task(name=event.name, step=entry.step, recovery=event.recovery, attempt=event.attempt)
    spent = state.spent if again else replace(state.spent, steps=state.spent.steps + 1)
    return replace(state, task=task, step=entry.step, spent=spent)


def _step_completed(state: RunState, entry: ev.Entry, event: ev.StepCompleted) -> RunState:
    task = _open_task(state)
    return replace(
        state,
        task=None,
        checked=(*state.checked, task.name),
        spent=_ran(state, event.duration_us),
    )


def _step_failed(state: RunState, entry: ev.Entry, event: ev.StepFailed) -> RunState:
    task = _open_task(state)
    state = replace(state, task=None, spent=_ran(state, event.duration_us))
    if event.disposition == "end":
        return _fail(state, event.error_class, event.message)
    seed = f"{state.run}/{entry.seq}"
    return _told(state, f"step:{task.name}", of_check(task.name, event.message, state.taint, seed))


def _step_lost(state: RunState, entry: ev.Entry, event: ev.StepLost) -> RunState:
    return replace(state, task=replace(_open_task(state), lost=True))


def _open_task(state: RunState) -> Task:
    if state.task is None or state.task.lost:
        raise IllegalTransition(f"{state.run}: no task is running")
    return state.task


# ---------------------------------------------------------------- model


def _working(state: RunState) -> bool:
    """Whether a turn is open: a request that may bring calls, or calls not all answered yet."""
    return state.request is not None or bool(state.calls)


def _ending(state: RunState) -> bool:
    return state.cancel is not None or state.failing is not None


def _requested(state: RunState, entry: ev.Entry, event: ev.ModelRequested) -> RunState:
    if _working(state) or state.task is not None or _ending(state):
        raise IllegalTransition(f"{state.run}: a model request needs every call to be answered")
    before = state.attempts if event.purpose == "turn" else 0  # what is beside opens a step
    if event.attempt != before + 1:
        raise IllegalTransition(f"{state.run}: attempt {event.attempt} of a request out of order")
    if entry.step != state.step + (event.attempt == 1):
        raise IllegalTransition(f"{state.run}: a request of step {entry.step} cannot come now")
    spent = state.spent
    if event.attempt == 1:
        spent = replace(spent, steps=spent.steps + 1)
    if event.purpose != "turn":
        return replace(state, request=event, step=entry.step, spent=spent, attempts=0, retry_at=0)
    if event.fallback:  # the ladder is per model
        state = replace(state, model=event.fallback, tries={}, overflowed="")
    return replace(
        seen(state, event),
        request=event,
        step=entry.step,
        spent=spent,
        tools="" if event.tools == NO_TOOLS else event.tools or state.tools,
        retry_at=0,
        answer=0,
        answer_text="",
        checked=(),
    )


def _replied(state: RunState, entry: ev.Entry, event: ev.ModelCompleted) -> RunState:
    if state.request is None:
        raise IllegalTransition(f"{state.run}: a reply without a request")
    used = replace(
        state,
        usage=add_usage(state.usage, event.usage),
        spent=_ran(state, event.latency_us),
    )
    if state.request.purpose != "turn":
        return drafted(used, event)
    state = add_calls(used, entry, event.parts)
    measured = event.usage.tokens
    return replace(
        state,
        request=None,
        tokens=max(measured, state.tokens) if measured else state.tokens,
        replies=state.replies + 1,
        tries={},
        attempts=0,
        squeezes=0,
        overflowed="",
        answer=0 if state.calls else entry.seq,
        answer_text="" if state.calls else text_of(event.parts),
    )


def _model_failed(state: RunState, entry: ev.Entry, event: ev.ModelFailed) -> RunState:
    if state.request is None:
        raise IllegalTransition(f"{state.run}: a failure without a request")
    rung = f"{event.error_class.value}:{event.disposition}"
    if state.request.purpose != "turn":
        used = replace(
            state,
            usage=add_usage(state.usage, event.usage),
            spent=_ran(state, event.latency_us),
        )
        return undrafted(used, event.retry_at)
    too_large = event.error_class is ErrorClass.CONTEXT_OVERFLOW and event.disposition == "retry"
    state = replace(
        state,
        request=None,
        overflowed=event.message or "too large" if too_large else "",
        attempts=state.request.attempt if event.disposition in {"retry", "switch"} else 0,
        replies=state.replies + (0 if event.lost else 1),
        tries={**state.tries, rung: state.tries.get(rung, 0) + 1},
        retry_at=event.retry_at,
        usage=add_usage(state.usage, event.usage),
        spent=_ran(state, event.latency_us),
    )
    if event.disposition == "end":
        return _fail(state, event.error_class, event.message)
    if event.disposition == "switch":
        model = event.fallback or state.model + 1
        return replace(state, model=model, tries={})  # the ladder is per model
    if event.disposition == "repair":
        return _told(state, "model", event.note)
    return state


def _model_rejected(state: RunState, entry: ev.Entry, event: ev.ModelRejected) -> RunState:
    if state.draft is not None and event.error_class is ErrorClass.COMPACTION_FAILED:
        return undrafted(state)
    if not state.answer:
        raise IllegalTransition(f"{state.run}: there is no answer to reject")
    if event.disposition == "end":
        return _fail(state, event.error_class, event.note)
    return _told(state, "answer", event.note)


def _told(state: RunState, subject: str, note: str) -> RunState:
    """The model is told that something was wrong: it counts, and it is asked again."""
    repairs = {**state.repairs, subject: state.repairs.get(subject, 0) + 1}
    state = replace(
        state,
        repairs=repairs,
        errors_in_row=state.errors_in_row + 1,
        answer=0,
        answer_text="",
        checked=(),
    )
    return add_message(state, user(note))


# ---------------------------------------------------------------- people and the rest


def _queued(state: RunState, entry: ev.Entry, event: ev.InputQueued) -> RunState:
    if event.answers:
        state = answered(state, event.answers)
    queued = state.queued.added(entry.seq, event.parts)
    return replace(state, queued=queued, sent=state.sent.added(entry.seq, event.roles))


def _given(state: RunState, entry: ev.Entry, event: ev.InputGiven) -> RunState:
    if _working(state):
        raise IllegalTransition(f"{state.run}: messages are given between turns")
    given = frozenset(event.seqs)
    if len(given) < len(event.seqs) or not given <= state.queued.keys():
        raise IllegalTransition(f"{state.run}: one of messages {event.seqs} was given before")
    queued, sent = state.queued.without(given), state.sent.without(given)
    for seq in event.seqs:
        message = Message(role="user", parts=state.queued[seq])
        state = add_request(state, message, begins=False)
    return replace(state, queued=queued, sent=sent, answer=0, answer_text="", checked=())


def _retry_scheduled(state: RunState, entry: ev.Entry, event: ev.RetryScheduled) -> RunState:
    if event.subject == "model" and not _working(state):
        return replace(state, retry_at=event.at)
    call = state.calls.get(event.subject)
    if call is None or call.status is not CallStatus.RETRYING:
        raise IllegalTransition(f"{state.run}: {event.subject} waits for no retry")
    return replace(state, calls={**state.calls, call.id: replace(call, retry_at=event.at)})


def _limit_reached(state: RunState, entry: ev.Entry, event: ev.LimitReached) -> RunState:
    message = event.message or f"{event.limit} limit reached: {event.value} of {event.bound}"
    if event.limit in {"tokens", "micro_usd"} and event.value < event.bound:
        message += " are used, and the next request may need more than the rest"
    end = End(status=Status.STOPPED, limit=event.limit, message=message)
    if event.limit == "errors_in_row":
        end = End(
            status=Status.FAILED,
            error_class=state.failing.error_class if state.failing else ErrorClass.LIMIT_REACHED,
            message=f"{event.value} turns in a row ended in errors",
            limit=event.limit,
        )
    return replace(state, failing=state.failing or end)


def _limit_warned(state: RunState, entry: ev.Entry, event: ev.LimitWarned) -> RunState:
    if _working(state):
        raise IllegalTransition(f"{state.run}: the guard speaks between turns")
    rung = 0 if event.level == "hint" else 1
    state = replace(state, guard=replace(state.guard, rung=rung))
    return add_message(state, user(event.note))


def _plan_updated(state: RunState, entry: ev.Entry, event: ev.PlanUpdated) -> RunState:
    state = replace(state, plan=event.items)
    if event.by == "agent":
        return state
    note = (Text(plan_note(event.items)),)
    return replace(state, queued=state.queued.added(entry.seq, note))


def _artifact_created(state: RunState, entry: ev.Entry, event: ev.ArtifactCreated) -> RunState:
    return kept_whole(replace(state, artifacts=state.artifacts.added(entry.seq)), event)


def _noted(state: RunState, entry: ev.Entry, event: ev.Event) -> RunState:
    return state


def _raised(state: RunState, entry: ev.Entry, event: ev.ErrorRaised) -> RunState:
    """A fault changes nothing but what the result says was left out: a server, or a block."""
    server = event.error_class is ErrorClass.MCP_DISCONNECTED and event.where
    absent = server or event.where.startswith("block:")
    if not absent or event.where in state.degraded:
        return state
    return replace(state, degraded=(*state.degraded, event.where))


def _fail(state: RunState, error_class: ErrorClass, message: str) -> RunState:
    end = End(status=Status.FAILED, error_class=error_class, message=message)
    return replace(state, failing=state.failing or end)


def _ran(state: RunState, duration_us: int) -> Spent:
    return replace(state.spent, running_us=state.spent.running_us + duration_us)


def add_usage(a: Usage, b: Usage) -> Usage:
    """The sum, bucket by bucket."""
    return Usage(
        input_tokens=a.input_tokens + b.input_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        cache_write_tokens=a.cache_write_tokens + b.cache_write_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        reasoning_tokens=a.reasoning_tokens + b.reasoning_tokens,
        micro_usd=a.micro_usd + b.micro_usd,
    )


HANDLERS: dict[type[ev.Event], Callable[[RunState, ev.Entry, Any], RunState]] = {
    ev.RunCreated: _created,
    ev.RunForked: _forked,
    ev.RunContinued: _continued,
    ev.RunPauseRequested: _paused,
    ev.RunResumed: _resumed,
    ev.RunCancelRequested: _cancel_requested,
    ev.RunCompleted: _completed,
    ev.RunFailed: _failed,
    ev.RunStopped: _stopped,
    ev.RunCancelled: _cancelled,
    ev.RunVersionChanged: version_changed,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.StepLost: _step_lost,
    ev.ModelRequested: _requested,
    ev.ModelCompleted: _replied,
    ev.ModelFailed: _model_failed,
    ev.ModelRejected: _model_rejected,
    ev.InputQueued: _queued,
    ev.InputGiven: _given,
    ev.RetryScheduled: _retry_scheduled,
    ev.LimitReached: _limit_reached,
    ev.LimitWarned: _limit_warned,
    ev.PlanUpdated: _plan_updated,
    ev.ArtifactCreated: _artifact_created,
    ev.SandboxChosen: _noted,
    ev.ErrorRaised: _raised,
    ev.ToolEdited: edited,
    ev.ToolRedirected: redirected,
    **CALL_HANDLERS,
    **CONTEXT_HANDLERS,
    **PEOPLE_HANDLERS,
}
