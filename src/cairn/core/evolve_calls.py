"""What events do to tool calls: the part of `evolve` that knows a call's life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.fence import fenced
from cairn.core.guard import call_key, result_key
from cairn.core.hooked import told_of_change
from cairn.core.lifecycle import CALL_MOVES, CallStatus, Status
from cairn.core.messages import Source
from cairn.core.quoting import one_line
from cairn.core.state import (
    FAILED_NOTE,
    NO_TOOL,
    OPEN_NOTE,
    Call,
    End,
    RunState,
    add_message,
    is_open,
    mended_before,
    repair_subject,
    results_message,
)
from cairn.errors import ErrorClass, IllegalTransition

replace = msgspec.structs.replace
_S = CallStatus
REPEATABLE = frozenset({"repeat", "keyed"})
SPEAKING = frozenset({_S.COMPLETED, _S.FAILED})
"""In which ends the model reads what the tool said."""
REREADS = frozenset({"read_artifact", "search_history"})
"""The tools that bring back what others have brought in."""
UNCHECKED = "memory:unchecked"
"""What a call that recalls is tainted with until it is known what it recalls."""
WHY_CHARS = 300
"""How much is kept of why a block could not be fed."""
ENDING = frozenset({_S.STARTED, _S.RETRYING})
"""In which states a failure is known."""


def _started(state: RunState, entry: ev.Entry, event: ev.ToolStarted) -> RunState:
    call = open_call(state, event.call)
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
    started = move(
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
        taint=tuple(dict.fromkeys((*call.taint, *event.taint))),
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
    if event.why:
        state = _fed(state, call, why=event.why, out=event.why.startswith("out"))
    state = replace(
        state,
        sources=state.sources + len(event.sources),
        spent=replace(state.spent, running_us=state.spent.running_us + event.duration_us),
        usage=replace(state.usage, micro_usd=state.usage.micro_usd + event.micro_usd),
    )
    # numbers of sources and artifacts are the run's own: the tool has brought the same without
    brought = call.brought if event.artifact else result_key(call.tool, result_text(event, 0))
    return close(state, replace(call, brought=brought), _S.COMPLETED, text)


def kept_whole(state: RunState, event: ev.ArtifactCreated) -> RunState:
    """A call whose result is kept as an artifact, before the part of it that the model is sent."""
    for call in state.calls.values():
        if event.name == f"{call.tool}-{call.id}":
            told = replace(call, brought=result_key(call.tool, event.content))
            return replace(state, calls={**state.calls, call.id: told})
    return state


def _recalled(state: RunState, entry: ev.Entry, event: ev.MemoryRecalled) -> RunState:
    """What a call brings out of memory is now known; before it counted as the worst of it."""
    call = _running(state, event.call)
    labels = [label for label in call.taint if label != UNCHECKED]
    told = replace(call, taint=tuple(dict.fromkeys((*labels, *event.taint))))
    return replace(state, calls={**state.calls, call.id: told})


def _failed(state: RunState, entry: ev.Entry, event: ev.ToolFailed) -> RunState:
    call = open_call(state, event.call)
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
            return move(state, call, _S.RETRYING, retry_at=event.retry_at, reason="")
        case "switch":
            return move(state, call, _S.RETRYING, tool=event.switch_to, retry_at=0, reason="")
        case "takeover" | "ask_user":
            return move(state, call, _S.TAKEOVER, reason=event.message)
        case "degrade" if call.name not in state.degraded:
            state = replace(state, degraded=(*state.degraded, call.name))
        case "end":
            end = End(status=Status.FAILED, error_class=event.error_class, message=event.message)
            state = replace(state, failing=state.failing or end)
        case "repair" | "degrade":
            pass
    return close(state, call, _S.FAILED, fault_text(event.error_class, event.message))


def _unknown_read(call: Call) -> bool:
    return call.status is _S.UNKNOWN and call.effect == "read"


def _rejected(state: RunState, entry: ev.Entry, event: ev.ToolRejected) -> RunState:
    call = open_call(state, event.call)
    if call.status is _S.UNKNOWN and call.effect != "read":
        raise IllegalTransition(f"{state.run}: whether {call.id} was executed is unknown")
    # a person's mistake is not the model's, and what the runtime wrote is not either
    by_model = not (call.edited or call.by_person or call.kept)
    if event.kind == "invalid" and by_model:
        subject = repair_subject(call, event.error_class)
        repairs = {**state.repairs, subject: mended_before(state, subject) + 1}
        state = replace(state, repairs=repairs)
        call = replace(call, invalid=True)
    if event.kind == "limit" and not call.kept:
        state = replace(state, excess=state.excess or event.rule)
    if event.disposition == "end":
        end = End(status=Status.FAILED, error_class=event.error_class, message=event.message)
        state = replace(state, failing=state.failing or end)
    # a refusal may repeat what the model was led to write; in a clean run it is the house's own
    message = one_line(event.message) if state.taint else event.message
    text = f"Not executed. {fault_text(event.error_class, message)}"
    return close(state, replace(call, error_class=event.error_class), _S.REJECTED, text)


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
    return move(
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
        state = move(state, call, _S.UNKNOWN)
        call = state.calls[call.id]
    return move(
        state,
        call,
        _S.TAKEOVER,
        reason=message or reason,
        not_before=not_before,
        error_class=ErrorClass.IN_DOUBT,
    )


def _takeover(state: RunState, entry: ev.Entry, event: ev.TakeoverRequested) -> RunState:
    call = open_call(state, event.call)
    if call.status is not _S.UNKNOWN:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not unknown")
    return _in_doubt(state, call, call.reason, event.message, call.not_before)


def _resolved(state: RunState, entry: ev.Entry, event: ev.ToolResolved) -> RunState:
    call = open_call(state, event.call)
    if call.status not in {_S.UNKNOWN, _S.TAKEOVER}:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not unknown")
    match event.verdict:
        case "happened":
            text = "Settled: it did happen."
            if event.result != ev.EMPTY:
                text = plain(event.result)
            elif event.evidence:
                text = f"Settled: it did happen. {event.evidence}"
            return close(state, call, _S.COMPLETED, text)
        case "not_happened" if state.end is not None:
            return close(state, call, _S.FAILED, "Settled: it did not happen.")
        case "not_happened":
            if entry.at < call.not_before:
                raise IllegalTransition(f"{state.run}: call {call.id} may still be at work")
            tries = call.tries if event.by == "probe" else ()  # a person starts the ladder anew
            return move(
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
    if not _settles(event, call):
        return state
    if event.ok:
        return close(state, call, _S.COMPLETED, plain(event.result))
    text = fault_text(ErrorClass.TOOL_ERROR, event.message)
    return close(state, call, _S.FAILED, text)


def _settles(event: ev.ToolLate, call: Call) -> bool:
    """Whether what came late says anything of the attempt that is open.

    An earlier attempt of another tool, or of one that runs once, was another effect.
    """
    if not event.attempt or event.attempt == call.attempt:
        return True
    return call.tool == call.name and call.recovery in REPEATABLE


# ---------------------------------------------------------------- moving and closing


def open_call(state: RunState, call_id: str) -> Call:
    """A call of the open turn. Raises `IllegalTransition`."""
    call = state.calls.get(call_id)
    if call is None:
        raise IllegalTransition(f"{state.run}: there is no open call {call_id}")
    return call


def _running(state: RunState, call_id: str) -> Call:
    call = open_call(state, call_id)
    if call.status is not _S.STARTED:
        raise IllegalTransition(f"{state.run}: call {call.id} is {call.status.value}, not started")
    return call


def move(state: RunState, call: Call, status: CallStatus, **fields: Any) -> RunState:
    """A call goes to another status, if the table has that. Raises `IllegalTransition`."""
    if status not in CALL_MOVES[call.status]:
        raise IllegalTransition(
            f"{state.run}: call {call.id} cannot go from {call.status.value} to {status.value}"
        )
    moved = replace(call, status=status, **fields)
    return replace(state, calls={**state.calls, call.id: moved})


def close(state: RunState, call: Call, status: CallStatus, text: str) -> RunState:
    """A call ends, and with the last one its turn; what it brought in is fenced and taints."""
    if call.taint and not state.taint.issuperset(call.taint):
        state = replace(state, taint=state.taint.union(call.taint))
    labels = tuple(sorted(state.taint)) if call.tool in REREADS else call.taint
    said = text
    if labels and call.attempt and status in SPEAKING:
        text = fenced(text, labels, call.key)
    brought = call.brought or result_key(call.tool, said)
    state = move(state, call, status, result=told_of_change(call, text), brought=brought)
    if status is not _S.COMPLETED and any(fed.call == call.id for fed in state.feeding):
        state = _unfed(state, call, said)
    if state.end is not None or not all(c.closed for c in state.calls.values()):
        return state
    return _turn_closed(state)


def _fed(state: RunState, call: Call, **fields: Any) -> RunState:
    """What came of a call that feeds a context block."""
    feeding = tuple(replace(f, **fields) if f.call == call.id else f for f in state.feeding)
    return replace(state, feeding=feeding)


def _unfed(state: RunState, call: Call, text: str) -> RunState:
    """The block stays without what was to feed it, and the run goes on without the block."""
    fault = call.error_class or ErrorClass.DEPENDENCY_FAILED
    state = _fed(state, call, why=text[:WHY_CHARS], fault=fault, out=True)
    names = [f"block:{fed.block}" for fed in state.feeding if fed.call == call.id]
    return replace(state, degraded=tuple(dict.fromkeys((*state.degraded, *names))))


def close_at_end(state: RunState) -> RunState:
    """The end of a run is the end of its calls: only what is unknown stays open (law 9)."""
    for call in state.calls.values():
        if call.closed:
            continue
        if not call.attempt:
            state = move(state, call, _S.CANCELLED, result=OPEN_NOTE)
        elif not _in_question(call):
            state = move(state, call, _S.FAILED, result=FAILED_NOTE)
        elif call.status is not _S.TAKEOVER:
            state = move(state, call, _S.TAKEOVER, error_class=ErrorClass.IN_DOUBT)
    return state


def _in_question(call: Call) -> bool:
    """Whether its effect may have happened and nobody has settled it; a read has none."""
    if call.status is _S.TAKEOVER:
        return call.error_class is ErrorClass.IN_DOUBT
    return call.effect != "read" and (call.doubt or call.status is _S.UNKNOWN)


def _turn_closed(state: RunState) -> RunState:
    """The last call of a turn has ended: its answers become one message.

    Those that keep facts are no turn of the model: it is not told of them, and they tell nothing
    of whether it gets anywhere.
    """
    calls = state.calls
    if any(call.kept for call in calls.values()):
        return replace(state, calls={})
    made: set[bytes] = set()
    asked: set[bytes] = set()
    succeeded = erred = False
    for call in calls.values():
        key = call_key(call.tool, call.arguments)
        asked.add(key)
        if call.status is _S.COMPLETED:
            succeeded = True
            made.add(call.brought if call.effect == "read" else key)
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
    ev.MemoryRecalled: _recalled,
    ev.ToolFailed: _failed,
    ev.ToolRejected: _rejected,
    ev.ToolUnknown: _unknown,
    ev.ToolResolved: _resolved,
    ev.ToolLate: _late,
    ev.TakeoverRequested: _takeover,
}
