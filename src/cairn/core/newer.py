"""Another version, or another run, goes on with a journal: what that does to its state."""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.fingerprint import changed
from cairn.core.hooked import still_asked
from cairn.core.lifecycle import CALL_MOVES, CallStatus, Status
from cairn.core.state import End, RunState, keep_decision
from cairn.errors import ErrorClass, IllegalTransition

replace = msgspec.structs.replace
WITHDRAWN = "withdrawn"
"""How a request was decided whose call has to pass another version's gate first."""


def version_changed(state: RunState, entry: ev.Entry, event: ev.RunVersionChanged) -> RunState:
    """The state after `event`: the version is known, and what was granted under it no longer is."""
    known = changed(state.fingerprint, event.changes, event.unread)
    state = replace(state, fingerprint=known)
    for name in event.calls:
        state = _judged_anew(state, name)
    if event.decision == "continue":
        return state
    parts = ", ".join(change.part for change in event.changes)
    message = f"it was begun by another version of its agent, and this one refuses it ({parts})"
    end = End(status=Status.FAILED, error_class=ErrorClass.PERMISSION_DENIED, message=message)
    return replace(state, failing=state.failing or end)


def without_grants(state: RunState, at: int) -> RunState:
    """The state as a fork made at this time takes it over: no approval goes with it (law 5).

    An approval holds once, and the parent and each of its forks could use it. So whoever was
    approved asks anew in the fork, and so does who waits on a request that nobody answered in
    time. Only an attempt that may have had its effect and is repeated under its own key goes on
    under its approval: it is no second effect.
    """
    for call in state.calls.values():
        if call.closed:
            continue
        stale = call.status is CallStatus.ASKING and call.expires_at <= at
        begun = call.status is CallStatus.UNKNOWN and call.recovery != "probe"
        if stale or (call.granted and not begun):
            state = _judged_anew(state, call.id)
    return state


def _judged_anew(state: RunState, name: str) -> RunState:
    """A call must pass the gate again, as if nobody had been asked yet."""
    call = state.calls.get(name)
    if call is None or call.closed:
        raise IllegalTransition(f"{state.run}: there is no open call {name}")
    status = call.status
    if status in {CallStatus.ASKING, CallStatus.APPROVED}:
        status = CallStatus.RETRYING if call.attempt else CallStatus.REQUESTED
        if status not in CALL_MOVES[call.status]:
            raise IllegalTransition(f"{state.run}: {name} is {call.status.value}")
        state = keep_decision(state, call.approval, WITHDRAWN)
        call = replace(call, approval=0, asked=0, terms=still_asked(call), files=())
    call = replace(call, status=status, granted=False, digest="", expires_at=0)
    return replace(state, calls={**state.calls, name: call})
