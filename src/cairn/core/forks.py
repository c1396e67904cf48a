"""Where a run can be forked: the points of its journal at which nothing is in the air.

A fork shares all that came before its point and does the rest anew. So a point will do only if
it is known of everything that was started what came of it. A yes that lies unused there is void in
the fork: the parent may use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Record, calls_of
from cairn.core.state import Call, RunState
from cairn.errors import ErrorClass

_S = CallStatus


def obstacle(state: RunState) -> str:
    """Why a run cannot be forked where it stands; empty if it can."""
    if state.end is not None:
        return "the run had ended"
    if state.request is not None:
        return "a model request was in flight"
    if state.task is not None:
        return f"task {state.task.name} was not done"
    return next(filter(None, map(_in_the_way, state.calls.values())), "")


def _in_the_way(call: Call) -> str:
    if call.closed:
        return ""
    if call.status is _S.STARTED:
        return f"call {call.id} was at work"
    doubtful = call.status is _S.TAKEOVER and call.error_class is ErrorClass.IN_DOUBT
    if call.doubt or doubtful or call.status is _S.UNKNOWN:
        return f"it was not known whether call {call.id} had taken effect"
    return ""


def around(state: RunState, entries: Iterable[ev.Entry], at: int) -> tuple[int, int]:
    """The nearest points before and after `at` that will do, 0 for none.

    `state` is the one before the first of `entries`, which are the whole journal.
    """
    before = after = 0
    for entry in entries:
        state = evolve(state, entry)
        if obstacle(state):
            continue
        if entry.seq < at:
            before = entry.seq
        elif entry.seq > at:
            after = entry.seq
            break
    return before, after


class Effect(Record):
    """Something that a run did, or began to do, to the world: a call that was no read.

    Args:
        seq: Of the call's start.
        fate: `done`, `failed`, `unknown` (nobody knows whether it happened) or `at work`.
    """

    seq: int
    call: str
    tool: str
    arguments: str
    fate: str = "at work"


_FATES: dict[type, str] = {
    ev.ToolCompleted: "done",
    ev.ToolFailed: "failed",
    ev.ToolUnknown: "unknown",
}
_SAID = {"happened": "done", "not_happened": "failed"}


def effects_after(entries: Sequence[ev.Entry], at: int) -> list[Effect]:
    """What a run did to the world after event `at`; `entries` are its whole journal."""
    asked: dict[str, tuple[str, str]] = {}
    requests: dict[int, str] = {}
    found: dict[tuple[str, int], Effect] = {}
    last: dict[str, tuple[str, int]] = {}
    for entry in entries:
        event = entry.event
        match event:
            case turn if isinstance(turn, ev.Turn):
                parts = turn.parts
                asked |= {p.id: (p.name, p.arguments) for p in calls_of(parts)}
            case ev.ToolEdited(call=call, arguments=arguments):
                asked[call] = (asked[call][0], arguments)
            case ev.ToolRedirected(call=call, tool=tool, arguments=arguments):
                asked[call] = (tool, arguments)
            case ev.ApprovalGranted(n=n, arguments=arguments) if arguments and n in requests:
                asked[requests[n]] = (asked[requests[n]][0], arguments)
            case ev.ApprovalRequested(n=n, call=call):
                requests[n] = call
            case ev.ToolStarted(call=call) if entry.seq > at and event.effect != "read":
                name, arguments = asked[call]
                last[call] = key = (call, event.attempt)
                found[key] = Effect(
                    seq=entry.seq, call=call, tool=event.tool or name, arguments=arguments
                )
            case ev.ToolResolved(call=call, verdict=verdict) if verdict in _SAID and call in last:
                _came_of(found, last[call], _SAID[verdict])
            case ev.ToolLate(call=call, ok=ok, attempt=attempt) if call in last:
                key = (call, attempt or last[call][1])
                if key in found and found[key].fate == "unknown":
                    _came_of(found, key, "done" if ok else "failed")
            case event if type(event) in _FATES and event.call in last:
                _came_of(found, last[event.call], _FATES[type(event)])
    return list(found.values())


def _came_of(found: dict[tuple[str, int], Effect], key: tuple[str, int], fate: str) -> None:
    old = found[key]
    found[key] = Effect(
        seq=old.seq, call=old.call, tool=old.tool, arguments=old.arguments, fate=fate
    )
