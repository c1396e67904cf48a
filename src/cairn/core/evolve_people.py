"""What people do to a run: the part of `evolve` that knows approvals, questions and takeovers."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.edits import in_line
from cairn.core.evolve_calls import close, move, open_call, plain
from cairn.core.evolve_context import add_calls
from cairn.core.guard import canonical
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Text, text_of
from cairn.core.state import Call, RunState, keep_decision
from cairn.errors import ErrorClass, IllegalTransition

replace = msgspec.structs.replace
_S = CallStatus
GRANTED = "granted"
VOID = "void"
BY_PERSON = "done by hand"
"""How requests were decided; behind `granted` stands the fingerprint of changed arguments."""
BY_HAND = frozenset({_S.REQUESTED, _S.ASKING, _S.APPROVED})
"""In which states a person may do in the agent's place what a call asks for."""
DONE_NOTE = "[runtime] A person did this by hand, in your place."


# ---------------------------------------------------------------- approvals and questions


def _approval_requested(state: RunState, entry: ev.Entry, event: ev.ApprovalRequested) -> RunState:
    call = open_call(state, event.call)
    _next_request(state, event.n)
    state = replace(state, requests=event.n)
    return move(
        state,
        call,
        _S.ASKING,
        approval=event.n,
        granted=False,
        digest=event.digest,
        expires_at=event.expires_at,
        asked=entry.seq,
        terms=event.terms,
        files=event.files,
    )


def _granted(state: RunState, entry: ev.Entry, event: ev.ApprovalGranted) -> RunState:
    call = _asking(state, event.n)
    if entry.at >= call.expires_at:
        raise IllegalTransition(f"{state.run}: approval {event.n} has expired")
    who = {"granted": True, "granted_by": entry.actor, "granted_roles": event.roles}
    if not event.arguments:
        return move(keep_decision(state, event.n, GRANTED), call, _S.APPROVED, **who)
    if call.attempt:
        raise IllegalTransition(f"{state.run}: {call.id} was started and cannot be changed")
    state = move(
        keep_decision(state, event.n, f"{GRANTED} {fingerprint(event.arguments)}"),
        call,
        _S.APPROVED,
        arguments=event.arguments,
        edited=True,
        editor=entry.actor,
        origin=state.run,
        digest=event.digest,
        files=event.files,
        **who,
    )
    return replace(state, calls=in_line(state.calls, state.calls[call.id]))


def fingerprint(arguments: str) -> str:
    """What a changed call is known by, when the same decision comes twice."""
    return sha256(canonical(arguments)).hexdigest()[:16]


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


def _voided(state: RunState, entry: ev.Entry, event: ev.ApprovalVoided) -> RunState:
    """The yes holds no longer: the call is judged anew, as if nobody had been asked."""
    call = next((c for c in state.calls.values() if c.approval == event.n), None)
    if call is None or call.status not in {_S.APPROVED, _S.RETRYING} or not call.granted:
        raise IllegalTransition(f"{state.run}: approval {event.n} is not in force")
    fields = {
        "approval": 0,
        "granted": False,
        "digest": "",
        "expires_at": 0,
        "asked": 0,
        "files": (),
        "voided": call.voided + 1,
    }
    status = _S.RETRYING if call.attempt else _S.REQUESTED
    return move(keep_decision(state, event.n, VOID), call, status, **fields)


def _done_by_hand(state: RunState, entry: ev.Entry, event: ev.TakeoverResult) -> RunState:
    call = open_call(state, event.call)
    if not state.taken or call.attempt or call.status not in BY_HAND:
        raise IllegalTransition(f"{state.run}: {call.id} cannot be done by hand any more")
    if entry.actor != state.taken:
        raise IllegalTransition(f"{state.run}: {entry.actor or 'nobody'} has not taken it over")
    if call.status is not _S.REQUESTED:
        state = keep_decision(state, call.approval, BY_PERSON)
    text = DONE_NOTE
    if event.result != ev.EMPTY:
        text = f"{DONE_NOTE} It brought:\n{plain(event.result)}"
    return close(state, replace(call, effect="read"), _S.COMPLETED, text)


def _refused(state: RunState, call: Call, error_class: ErrorClass, text: str) -> RunState:
    return close(state, replace(call, error_class=error_class), _S.DENIED, text)


def _input_requested(state: RunState, entry: ev.Entry, event: ev.InputRequested) -> RunState:
    _next_request(state, event.n)
    state = replace(state, requests=event.n)
    if not event.call:
        return replace(state, question=event.n)
    return move(state, open_call(state, event.call), _S.QUESTION, approval=event.n)


def _input_answered(state: RunState, entry: ev.Entry, event: ev.InputAnswered) -> RunState:
    if state.question and state.question == event.n:
        state = answered(state, event.n)
        return replace(state, queued=state.queued.added(entry.seq, (Text(event.text),)))
    call = next((c for c in state.calls.values() if c.approval == event.n), None)
    if call is None or call.status is not _S.QUESTION:
        raise IllegalTransition(f"{state.run}: question {event.n} is not open")
    return close(state, replace(call, effect="read"), _S.COMPLETED, event.text)


def answered(state: RunState, n: int) -> RunState:
    """The runtime's own question is open no more.

    Raises:
        IllegalTransition: it is not open.
    """
    if state.question != n:
        raise IllegalTransition(f"{state.run}: question {n} is not open")
    return replace(state, question=0, guard=replace(state.guard, stale=0, rung=-1))


def _next_request(state: RunState, n: int) -> None:
    if n != state.requests + 1:
        raise IllegalTransition(f"{state.run}: request {n} should be {state.requests + 1}")


def _asking(state: RunState, n: int) -> Call:
    for call in state.calls.values():
        if call.approval == n and call.status is _S.ASKING:
            return call
    raise IllegalTransition(f"{state.run}: request {n} is not open")


# ---------------------------------------------------------------- in the agent's place


def _begun(state: RunState, entry: ev.Entry, event: ev.TakeoverBegun) -> RunState:
    if not entry.actor:
        raise IllegalTransition(f"{state.run}: nobody in particular can take it over")
    return replace(state, taken=entry.actor, handled=True)


def _handed_back(state: RunState, entry: ev.Entry, event: ev.TakeoverEnded) -> RunState:
    if not state.taken:
        raise IllegalTransition(f"{state.run}: nobody has taken it over")
    # `accept` asks who hands it back; journals written before it did so must still fold
    state = replace(state, taken="", errors_in_row=0)  # who had it in hand starts the row anew
    if not event.note:
        return state
    return replace(state, queued=state.queued.added(entry.seq, (Text(event.note),)))


def _turn(state: RunState, entry: ev.Entry, event: ev.TakeoverTurn) -> RunState:
    """A person's turn stands where the model's would: its calls pass the same gate."""
    if why := no_turn(state):
        raise IllegalTransition(f"{state.run}: {why}")
    if entry.actor != state.taken or entry.step != state.step + 1:
        raise IllegalTransition(f"{state.run}: it is not {entry.actor or 'anybody'}'s turn")
    state = add_calls(state, entry, event.parts, by_person=True, editor=entry.actor)
    text = text_of(event.parts)
    if not state.calls and not text.strip():
        raise IllegalTransition(f"{state.run}: a turn makes calls or gives an answer")
    return replace(
        state,
        step=entry.step,
        spent=replace(state.spent, steps=state.spent.steps + 1),
        tries={},
        attempts=0,
        retry_at=0,
        answer=0 if state.calls else entry.seq,
        answer_text="" if state.calls else text,
        given=state.given if state.calls else entry.seq,
        checked=(),
    )


def no_turn(state: RunState) -> str:
    """Why no person can make a turn now, empty if one can."""
    if not state.taken:
        return "nobody has taken it over"
    if state.cancel is not None or state.failing is not None:
        return "it is ending"
    if state.request is not None or state.task is not None:
        return "something is still at work"
    if state.calls:
        return f"{', '.join(c.id for c in state.calls.values() if not c.closed)} must end first"
    if state.question:
        return f"question {state.question} must be answered first"
    if state.queued:
        return "a message is about to be read first"
    return ""


PEOPLE_HANDLERS: dict[type[ev.Event], Callable[[RunState, ev.Entry, Any], RunState]] = {
    ev.ApprovalRequested: _approval_requested,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: _denied,
    ev.ApprovalExpired: _expired,
    ev.ApprovalVoided: _voided,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
    ev.TakeoverBegun: _begun,
    ev.TakeoverTurn: _turn,
    ev.TakeoverResult: _done_by_hand,
    ev.TakeoverEnded: _handed_back,
}
