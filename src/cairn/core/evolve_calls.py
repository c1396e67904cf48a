"""What events do to tool calls: the part of `evolve` that knows a call's life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.guard import call_key, result_key
from cairn.core.lifecycle import CALL_MOVES, CallStatus, Status
from cairn.core.messages import Source, Text
from cairn.core.state import (
    FAILED_NOTE,
    NO_TOOL,
    OPEN_NOTE,
    Call,
    End,
    RunState,
    add_message,
    is_open,
    keep_decision,
    mended_before,
    repair_subject,
    results_message,
)
from cairn.errors import ErrorClass, IllegalTransition

replace = msgspec.structs.replace
_S = CallStatus
REPEATABLE = frozenset({"repeat", "keyed"})
ENDING = frozenset({_S.STARTED, _S.RETRYING})
"""In which states a failure is known."""


def _started(state: RunState, entry: ev.Entry, event: ev.ToolStarted) -> RunState:
    call = _call(state, event.call)
    if not event.rule:
        raise IllegalTransition(f"{state.run}: call {call.id} has no verdict")
    if not is_open(state, call):
        raise IllegalTransition(f"{state.run}: call {call.id} must wait for {call.after}")
    if event.attempt != call.attempt + 1:
        raise IllegalTransition(f"{state.run}: attempt {event.attempt} of {call.id} out of order")
    if call.status is _S.UNKNOWN and not repeatable(call, event.recovery):
        raise IllegalTransition(f"{state.run}: {call.id} is unknown and must not be repeated")
    if call.status is _S.APPROVED and entry.at >= call.expires_at:
        raise IllegalTransition(f"{state.run}: approval {call.approval} has expired")
    spent = state.spent
    if call.attempt == 0:
        spent = replace(spent, calls=spent.calls + 1)
    started = _moved(
        state,
        call,
        _S.STARTED,
        tool=event.tool or call.tool,
        effect=event.effect,
        recovery=event.recovery,
        attempt=event.attempt,
        started_at=entry.at,
        first_started_at=call.first_started_at or entry.at,
        timeout_us=event.timeout_us,
        retry_at=0,
        reason="",
    )
    repairs, mended = state.repairs, {NO_TOOL, f"tool:{call.name}"}
    if not mended.isdisjoint(repairs):
        repairs = {subject: n for subject, n in repairs.items() if subject not in mended}
    return replace(started, spent=spent, repairs=repairs)


def repeatable(call: Call, recovery: ev.Recovery) -> bool:
    """Whether an attempt nobody knows the outcome of may be made again (law 4).

    What was declared at its start and what is declared now must both say so.
    """
    return call.effect == "read" or {call.recovery, recovery} <= REPEATABLE


def _completed(state: RunState, entry: ev.Entry, event: ev.ToolCompleted) -> RunState:
    call = _running(state, event.call)
    text = result_text(event, state.sources)
    state = replace(
        state,
        sources=state.sources + len(event.sources),
        spent=replace(state.spent, running_us=state.spent.running_us + event.duration_us),
        usage=replace(state.usage, micro_usd=state.usage.micro_usd + event.micro_usd),
    )
    return _closed(state, call, _S.COMPLETED, text)


def _failed(state: RunState, entry: ev.Entry, event: ev.ToolFailed) -> RunState:
    call = _call(state, event.call)
    if call.status not in ENDING and not _unknown_read(call):
        raise IllegalTransition(
            f"{state.run}: call {call.id} is {call.status.value}; that it failed is not known"
        )
    rung = f"{event.error_class.value}:{event.disposition}"
    tries = dict(call.tries)
    tries[rung] = tries.get(rung, 0) + 1
    state = replace(
        state, spent=replace(state.spent, running_us=state.spent.running_us + event.duration_us)
    )
    call = replace(call, tries=tuple(tries.items()), error_class=event.error_class)
    match event.disposition:
        case "retry":
            return _moved(state, call, _S.RETRYING, retry_at=event.retry_at, reason="")
        case "switch":
            return _moved(state, call, _S.RETRYING, tool=event.switch_to, retry_at=0, reason="")
        case "takeover" | "ask_user":
            return _moved(state, call, _S.TAKEOVER, reason=event.message)
        case "degrade" if call.name not in state.degraded:
            state = replace(state, degraded=(*state.degraded, call.name))
        case "end":
            end = End(status=Status.FAILED, error_class=event.error_class, message=event.message)
            state = replace(state, failing=state.failing or end)
        case "repair" | "degrade":
            pass
    return _closed(state, call, _S.FAILED, fault_text(event.error_class, event.message))


def _unknown_read(call: Call) -> bool:
    return call.status is _S.UNKNOWN and call.effect == "read"


def _rejected(state: RunState, entry: ev.Entry, event: ev.ToolRejected) -> RunState:
    call = _call(state, event.call)
    if call.status is _S.UNKNOWN and call.effect != "read":
        raise IllegalTransition(f"{state.run}: whether {call.id} was executed is unknown")
    if event.kind == "invalid" and not call.edited:  # a person's mistake is not the model's
        subject = repair_subject(call, event.error_class)
        repairs = {**state.repairs, subject: mended_before(state, subject) + 1}
        state = replace(state, repairs=repairs)
        call = replace(call, invalid=True)
    if event.kind == "limit":
        state = replace(state, excess=state.excess or event.rule)
    if event.disposition == "end":
        end = End(status=Status.FAILED, error_class=event.error_class, message=event.message)
        state = replace(state, failing=state.failing or end)
    text = f"Not executed. {fault_text(event.error_class, event.message)}"
    return _closed(state, replace(call, error_class=event.error_class), _S.REJECTED, text)


def _unknown(state: RunState, entry: ev.Entry, event: ev.ToolUnknown) -> RunState:
    call = _running(state, event.call)
    state = replace(
        state,
        spent=replace(state.spent, running_us=state.spent.running_us + event.duration_us),
        usage=replace(state.usage, micro_usd=state.usage.micro_usd + event.micro_usd),
    )
    if call.recovery == "once":
        return _in_doubt(state, call, event.reason, event.message, event.not_before)
    error_class = ErrorClass.TOOL_TIMEOUT if event.reason == "timeout" else ErrorClass.IN_DOUBT
    rung = f"{error_class.value}:retry"
    tries = dict(call.tries)
    tries[rung] = tries.get(rung, 0) + 1
    return _moved(
        state,
        call,
        _S.UNKNOWN,
        reason=event.reason,
        not_before=event.not_before,
        tries=tuple(tries.items()),
        error_class=error_class,
        doubt=call.effect != "read",
    )


def _in_doubt(state: RunState, call: Call, reason: str, message: str, not_before: int) -> RunState:
    if call.status is _S.STARTED:
        state = _moved(state, call, _S.UNKNOWN)
        call = state.calls[call.id]
    return _moved(
        state,
        call,
        _S.TAKEOVER,
        reason=message or reason,
        not_before=not_before,
        error_class=ErrorClass.IN_DOUBT,
    )


def _takeover(state: RunState, entry: ev.Entry, event: ev.TakeoverRequested) -> RunState:
    call = _call(state, event.call)
    if call.status is not _S.UNKNOWN:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not unknown")
    return _in_doubt(state, call, call.reason, event.message, call.not_before)


def _resolved(state: RunState, entry: ev.Entry, event: ev.ToolResolved) -> RunState:
    call = _call(state, event.call)
    if call.status not in {_S.UNKNOWN, _S.TAKEOVER}:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not unknown")
    match event.verdict:
        case "happened":
            text = "Settled: it did happen."
            if event.result != ev.EMPTY:
                text = plain(event.result)
            elif event.evidence:
                text = f"Settled: it did happen. {event.evidence}"
            return _closed(state, call, _S.COMPLETED, text)
        case "not_happened" if state.end is not None:
            return _closed(state, call, _S.FAILED, "Settled: it did not happen.")
        case "not_happened":
            if entry.at < call.not_before:
                raise IllegalTransition(f"{state.run}: call {call.id} may still be at work")
            tries = call.tries if event.by == "probe" else ()  # a person starts the ladder anew
            return _moved(
                state,
                call,
                _S.RETRYING,
                retry_at=0,
                reason="not_happened",
                tries=tries,
                doubt=False,
            )
        case "unknown":
            return _in_doubt(state, call, "the probe could not tell", event.evidence, 0)
        case "given_up":
            end = End(
                status=Status.FAILED,
                error_class=ErrorClass.IN_DOUBT,
                message=f"given up: whether {call.tool} ({call.id}) took effect is unknown",
            )
            return replace(state, failing=state.failing or end)


def _late(state: RunState, entry: ev.Entry, event: ev.ToolLate) -> RunState:
    call = state.calls.get(event.call)
    if call is None or call.status not in {_S.UNKNOWN, _S.TAKEOVER}:
        return state
    if call.status is _S.TAKEOVER and call.error_class is not ErrorClass.IN_DOUBT:
        return state
    if event.ok:
        return _closed(state, call, _S.COMPLETED, plain(event.result))
    text = fault_text(ErrorClass.TOOL_ERROR, event.message)
    return _closed(state, call, _S.FAILED, text)


# ---------------------------------------------------------------- approvals and questions


def _approval_requested(state: RunState, entry: ev.Entry, event: ev.ApprovalRequested) -> RunState:
    call = _call(state, event.call)
    _next_request(state, event.n)
    state = replace(state, requests=event.n)
    return _moved(
        state,
        call,
        _S.ASKING,
        approval=event.n,
        granted=False,
        digest=event.digest,
        expires_at=event.expires_at,
    )


def _granted(state: RunState, entry: ev.Entry, event: ev.ApprovalGranted) -> RunState:
    call = _asking(state, event.n)
    if entry.at >= call.expires_at:
        raise IllegalTransition(f"{state.run}: approval {event.n} has expired")
    return _moved(keep_decision(state, event.n, "granted"), call, _S.APPROVED, granted=True)


def _denied(state: RunState, entry: ev.Entry, event: ev.ApprovalDenied) -> RunState:
    reason = f" Reason: {event.message}" if event.message else " No reason was given."
    return _refused(
        keep_decision(state, event.n, "denied"),
        _asking(state, event.n),
        ErrorClass.APPROVAL_DENIED,
        f"Not executed: a person refused this call.{reason}",
    )


def _expired(state: RunState, entry: ev.Entry, event: ev.ApprovalExpired) -> RunState:
    call = next((c for c in state.calls.values() if c.approval == event.n), None)
    if call is None or call.status not in {_S.ASKING, _S.APPROVED}:
        raise IllegalTransition(f"{state.run}: request {event.n} is not open")
    reason = event.message or "nobody approved it in time"
    state = keep_decision(state, event.n, "expired")
    return _refused(state, call, ErrorClass.APPROVAL_EXPIRED, f"Not executed: {reason}.")


def _refused(state: RunState, call: Call, error_class: ErrorClass, text: str) -> RunState:
    return _closed(state, replace(call, error_class=error_class), _S.DENIED, text)


def _input_requested(state: RunState, entry: ev.Entry, event: ev.InputRequested) -> RunState:
    _next_request(state, event.n)
    state = replace(state, requests=event.n)
    if not event.call:
        return replace(state, question=event.n)
    return _moved(state, _call(state, event.call), _S.QUESTION, approval=event.n)


def _input_answered(state: RunState, entry: ev.Entry, event: ev.InputAnswered) -> RunState:
    if state.question and state.question == event.n:
        guard = replace(state.guard, stale=0, rung=-1)
        state = replace(state, question=0, guard=guard)
        return replace(state, queued={**state.queued, entry.seq: (Text(event.text),)})
    call = next((c for c in state.calls.values() if c.approval == event.n), None)
    if call is None or call.status is not _S.QUESTION:
        raise IllegalTransition(f"{state.run}: question {event.n} is not open")
    return _closed(state, replace(call, effect="read"), _S.COMPLETED, event.text)


def _next_request(state: RunState, n: int) -> None:
    if n != state.requests + 1:
        raise IllegalTransition(f"{state.run}: request {n} should be {state.requests + 1}")


def _asking(state: RunState, n: int) -> Call:
    for call in state.calls.values():
        if call.approval == n and call.status is _S.ASKING:
            return call
    raise IllegalTransition(f"{state.run}: request {n} is not open")


# ---------------------------------------------------------------- moving and closing


def _call(state: RunState, call_id: str) -> Call:
    call = state.calls.get(call_id)
    if call is None:
        raise IllegalTransition(f"{state.run}: there is no open call {call_id}")
    return call


def _running(state: RunState, call_id: str) -> Call:
    call = _call(state, call_id)
    if call.status is not _S.STARTED:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not started")
    return call


def _moved(state: RunState, call: Call, status: CallStatus, **fields: Any) -> RunState:
    if status not in CALL_MOVES[call.status]:
        raise IllegalTransition(
            f"{state.run}: call {call.id} cannot go from {call.status.value} to {status.value}"
        )
    moved = replace(call, status=status, **fields)
    return replace(state, calls={**state.calls, call.id: moved})


def _closed(state: RunState, call: Call, status: CallStatus, text: str) -> RunState:
    state = _moved(state, call, status, result=text)
    if state.end is not None or not all(c.closed for c in state.calls.values()):
        return state
    return _turn_closed(state)


def close_at_end(state: RunState) -> RunState:
    """The end of a run is the end of its calls: only what is unknown stays open (law 9)."""
    for call in state.calls.values():
        if call.closed:
            continue
        if not call.attempt:
            state = _moved(state, call, _S.CANCELLED, result=OPEN_NOTE)
        elif not _in_question(call):
            state = _moved(state, call, _S.FAILED, result=FAILED_NOTE)
        elif call.status is not _S.TAKEOVER:
            state = _moved(state, call, _S.TAKEOVER, error_class=ErrorClass.IN_DOUBT)
    return state


def _in_question(call: Call) -> bool:
    """Whether its effect may have happened and nobody has settled it; a read has none."""
    if call.status is _S.TAKEOVER:
        return call.error_class is ErrorClass.IN_DOUBT
    return call.effect != "read" and (call.doubt or call.status is _S.UNKNOWN)


def _turn_closed(state: RunState) -> RunState:
    """The last call of a turn has ended: its answers become one message."""
    calls = state.calls
    made: set[bytes] = set()
    asked: set[bytes] = set()
    succeeded = erred = False
    for call in calls.values():
        key = call_key(call.tool, call.arguments)
        asked.add(key)
        if call.status is _S.COMPLETED:
            succeeded = True
            made.add(result_key(call.tool, call.result) if call.effect == "read" else key)
        elif call.status in {_S.FAILED, _S.REJECTED}:
            erred = True
    state = add_message(state, results_message(calls))
    return replace(
        state,
        calls={},
        guard=state.guard.closed(frozenset(made), frozenset(asked)),
        errors_in_row=0 if succeeded else state.errors_in_row + erred,
    )


# ---------------------------------------------------------------- what the model reads


def result_text(event: ev.ToolCompleted, numbered: int) -> str:
    """What the model reads of a result; sources get their numbers, `[s1]` and on."""
    if not event.sources:
        return plain(event.result)
    lines = [] if event.result == ev.EMPTY else [plain(event.result)]
    for n, source in enumerate(event.sources, numbered + 1):
        lines.append(f"[s{n}] {_heading(source)}\n{source.text}")
    return "\n\n".join(lines)


def _heading(source: Source) -> str:
    return f"{source.uri}#{source.span}" if source.span else source.uri


def plain(result: msgspec.Raw) -> str:
    """A JSON value as the model reads it: a string as itself, all else as JSON."""
    raw = bytes(result)
    if raw[:1] == b'"':
        text: str = msgspec.json.decode(raw)
        return text
    return raw.decode()


def fault_text(error_class: ErrorClass, message: str) -> str:
    """What the model reads of a fault."""
    return f"Error ({error_class.value}): {message}"


CALL_HANDLERS: dict[type[ev.Event], Callable[[RunState, ev.Entry, Any], RunState]] = {
    ev.ToolStarted: _started,
    ev.ToolCompleted: _completed,
    ev.ToolFailed: _failed,
    ev.ToolRejected: _rejected,
    ev.ToolUnknown: _unknown,
    ev.ToolResolved: _resolved,
    ev.ToolLate: _late,
    ev.TakeoverRequested: _takeover,
    ev.ApprovalRequested: _approval_requested,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: _denied,
    ev.ApprovalExpired: _expired,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
}
