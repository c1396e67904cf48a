"""What outcomes say is done about them: a decision inside a fact, taken anew for a replay."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.actions import (
    Action,
    Append,
    AskModel,
    Done,
    Halt,
    InFlight,
    ProbeCall,
    RunTask,
    StartCalls,
    Wait,
)
from cairn.core.gate import UNREADABLE, call_digest
from cairn.core.hooked import hook_of
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import CallPart, Record
from cairn.core.outcomes import Called, Fault, Reply, lost_model, model_outcome, tool_failed
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.errors import ErrorClass

MIDDLE = 0.5
"""Chance has no part in what is compared."""


class Inside(Record):
    """A decision that an outcome holds, as it was and as it would be.

    `leads` says that another one would take the run elsewhere, `kept` that it is shown even when
    it is the same.
    """

    what: str
    recorded: str
    now: str
    leads: bool = True
    kept: bool = True


def decided_inside(state: RunState, rules: Rules, entry: ev.Entry) -> Inside | None:
    """The decision inside an outcome; None for what holds none."""
    match entry.event:
        case ev.ModelCompleted():
            return _reply(state, rules, entry.event, entry.at)
        case ev.ModelFailed():
            return _model_failed(state, rules, entry.event, entry.at)
        case ev.ToolFailed():
            return _tool_failed(state, rules, entry.event, entry.at)
        case ev.StepFailed():
            return _step_failed(state, rules, entry.event)
        case ev.ToolResolved(by="probe"):
            return _probed(state, rules, entry.event)
        case _:
            return None


def _reply(state: RunState, rules: Rules, event: ev.ModelCompleted, now: int) -> Inside:
    """Whether the reply would be taken, and in which order its calls would run."""
    others = [part for part in event.parts if not isinstance(part, CallPart)]
    called: list[Called] = []
    place = 0
    for part in event.parts:
        if isinstance(part, CallPart):
            one = Called(name=part.name, arguments=part.arguments, alias=part.alias, place=place)
            called.append(one)
        else:
            place += 1
    reply = Reply(parts=tuple(others), calls=tuple(called), finish=event.finish, usage=event.usage)
    again = model_outcome(state, rules, reply, now, 0, MIDDLE)
    if isinstance(again, ev.ModelFailed):
        said = f"{again.error_class.value} → {again.disposition}: {again.message}"
        return Inside(what="the reply", recorded="it was taken", now=said, kept=False)
    return Inside(
        what="which calls wait for which",
        recorded=_order(event.parts),
        now=_order(again.parts),
        leads=False,
        kept=False,
    )


def _order(parts: tuple[Any, ...]) -> str:
    calls = [part for part in parts if isinstance(part, CallPart)]
    return "\n".join(f"{c.id} after {', '.join(c.after)}" for c in calls if c.after) or "none"


def _model_failed(state: RunState, rules: Rules, event: ev.ModelFailed, now: int) -> Inside | None:
    if event.lost:
        again = lost_model(state, rules)
        if event.message != again.message:
            return None  # its driver was stopped: that is no fault, and no ladder was asked
    else:
        fault = Fault(
            error_class=event.error_class, message=event.message, retry_after_us=event.asked_us
        )
        outcome = model_outcome(state, rules, fault, now, 0, MIDDLE)
        if not isinstance(outcome, ev.ModelFailed):
            return None
        again = outcome
    what = f"what is done about {event.error_class.value}"
    return Inside(what=what, recorded=event.disposition, now=again.disposition)


def _tool_failed(state: RunState, rules: Rules, event: ev.ToolFailed, now: int) -> Inside | None:
    call = state.calls.get(event.call)
    if call is None or call.status is not CallStatus.STARTED:
        return None
    if event.error_class is ErrorClass.IN_DOUBT and call.doubt:
        return None  # it was asked about another class of fault, which is not recorded
    spec = rules.tools.get(call.tool)
    if spec is not None and spec.sources and "is declared with sources=True" in event.message:
        return None  # a slip in the tool itself: no ladder is asked

    def again(*, not_done: bool) -> str:
        found = tool_failed(
            state,
            rules,
            call,
            error_class=event.error_class,
            message=event.message,
            not_done=not_done,
            now=now,
            duration_us=0,
            jitter=MIDDLE,
        )
        return f"{found.disposition} {found.switch_to}".rstrip()

    recorded = f"{event.disposition} {event.switch_to}".rstrip()
    # whether the tool said that nothing happened is not recorded: either may have been so
    possible = [again(not_done=False), again(not_done=True)]
    certain = event.disposition == "retry" and call.recovery not in {"repeat", "keyed"}
    found = recorded if recorded in possible else possible[certain]
    return Inside(
        what=f"what is done about {event.error_class.value} of {call.tool} ({call.id})",
        recorded=recorded,
        now=found,
    )


def _step_failed(state: RunState, rules: Rules, event: ev.StepFailed) -> Inside:
    name = state.task.name if state.task is not None else ""
    last = state.repairs.get(f"step:{name}", 0) >= rules.repairs
    what = f"what is done when {name} does not accept the answer"
    return Inside(what=what, recorded=event.disposition, now="end" if last else "repair")


def _probed(state: RunState, rules: Rules, event: ev.ToolResolved) -> Inside | None:
    call = state.calls.get(event.call)
    if call is None or call.tool in rules.tools:
        return None
    what = f"what came of {call.tool} ({call.id})"
    return Inside(what=what, recorded="its probe is asked", now="a person is asked", kept=False)


def refused_outside(event: ev.Event) -> bool:
    """Whether a call was rejected for what is in files or what a hook said, both from outside."""
    if not isinstance(event, ev.ToolRejected):
        return False
    return event.rule == UNREADABLE or bool(hook_of(event.rule))


def bound_as_recorded(now: ev.Event, recorded: ev.Event, state: RunState) -> ev.Event:
    """A request as it would be, bound to what was in the files then."""
    if not isinstance(now, ev.ApprovalRequested) or not isinstance(recorded, ev.ApprovalRequested):
        return now
    if not recorded.files or now.call not in state.calls:
        return now
    call = state.calls[now.call]
    digest = call_digest(call.tool, call.arguments, recorded.files)
    return msgspec.structs.replace(now, files=recorded.files, digest=digest)


def due_events(action: Action, state: RunState, rules: Rules) -> tuple[tuple[int, ev.Event], ...]:
    """The events that an action would be recorded by."""
    match action:
        case Append():
            return action.events
        case StartCalls():
            return action.starts
        case RunTask():
            return ((action.step, action.event),)
        case AskModel() if action.purpose != "turn":
            event = ev.ModelRequested(
                model=action.model,
                reserved=action.reserved,
                attempt=action.attempt,
                purpose=action.purpose,
                cut=action.cut,
            )
            return ((action.step, event),)
        case AskModel():
            event = ev.ModelRequested(
                model=action.model,
                reserved=action.reserved,
                attempt=action.attempt,
                messages=len(state.messages),
                tools=rules.offered,
                tool_choice=action.tool_choice,
                output_mode=action.output_mode,
                view=action.view,
                fallback=action.fallback,
            )
            return ((action.step, event),)
        case ProbeCall() | InFlight() | Halt() | Wait() | Done():
            return ()
