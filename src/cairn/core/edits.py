"""What a person may change of a run that goes on: the arguments of a call, and the plan.

A hook of the deployment may change arguments too, and is named as the rule then.

History is never rewritten (law 8): the conversation keeps what the model wrote, and the result
it reads says that a person changed the call and what ran.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.guard import canonical
from cairn.core.hooked import still_asked
from cairn.core.lifecycle import CALL_MOVES, CallStatus
from cairn.core.messages import PlanItem, parse_object
from cairn.core.quoting import one_line
from cairn.core.state import Call, RunState, keep_decision
from cairn.errors import IllegalTransition, Refused

replace = msgspec.structs.replace
_S = CallStatus
EDITED = "edited"
"""How a request was decided whose call has been changed since."""
EDITABLE = frozenset({_S.REQUESTED, *(s for s in _S if _S.REQUESTED in CALL_MOVES[s])})
ASKED_FOR_NOTHING: dict[str, Any] = {
    "status": _S.REQUESTED,
    "approval": 0,
    "granted": False,
    "digest": "",
    "expires_at": 0,
    "asked": 0,
    "terms": None,
    "files": (),
    "voided": 0,
}
"""How a call stands that is judged as if it had just been requested."""
MARKS = {"open": " ", "doing": ">", "done": "x", "dropped": "-"}


# ---------------------------------------------------------------- arguments


def edit_event(
    state: RunState, name: str, call: Call | None, arguments: str
) -> ev.ToolEdited | None:
    """The event that other arguments for a call become; None when they are what it has.

    Raises:
        Refused: it has started, it has ended, or it will never start.
    """
    name = f"{state.run}/{name}"
    if call is None or call.closed:
        raise Refused(f"{name} has ended; its arguments can no longer be changed")
    if call.attempt:
        raise Refused(f"{name} has been started; its arguments can no longer be changed")
    if call.status is _S.QUESTION:
        raise Refused(f"{name} is a question: answer it")
    if state.cancel is not None or state.failing is not None:
        raise Refused(f"{name} will not be started: run {state.run} is ending")
    if parse_object(arguments) is None:
        raise Refused(f"the new arguments of {name} are no JSON object: {arguments[:80]!r}")
    if canonical(arguments) == canonical(call.arguments):
        return None
    return ev.ToolEdited(call=call.id, arguments=arguments)


def edited(state: RunState, entry: ev.Entry, event: ev.ToolEdited) -> RunState:
    """The state after `event`: the call is judged as if it had been requested just now."""
    call = state.calls.get(event.call)
    if call is None or call.attempt or call.status not in EDITABLE:
        raise IllegalTransition(f"{state.run}: {event.call} can no longer be edited")
    if call.status is not _S.REQUESTED:
        state = keep_decision(state, call.approval, EDITED)
    changed = replace(
        call,
        arguments=event.arguments,
        edited=call.edited or not event.rule,
        origin=state.run,  # another request than the one a fork's parent may have made
        editor=event.rule or entry.actor,
        **{**ASKED_FOR_NOTHING, "terms": event.terms},
    )
    return replace(state, calls=in_line(state.calls, changed))


def redirected(state: RunState, entry: ev.Entry, event: ev.ToolRedirected) -> RunState:
    """The state after `event`: a call of the other tool, judged as if it had just been requested.

    It gets a key of its own, and no yes that was given before holds for it.
    """
    call = state.calls.get(event.call)
    if call is None or call.attempt or call.status not in EDITABLE:
        raise IllegalTransition(f"{state.run}: {event.call} can no longer be redirected")
    if call.status is not _S.REQUESTED:
        state = keep_decision(state, call.approval, EDITED)
    changed = replace(
        call,
        tool=event.tool,
        arguments=event.arguments,
        redirects=(*call.redirects, event.rule),
        origin=state.run,
        **{**ASKED_FOR_NOTHING, "terms": still_asked(call)},
    )
    return replace(state, calls=in_line(state.calls, changed))


def in_line(calls: dict[str, Call], changed: Call) -> dict[str, Call]:
    """The calls with the order kept that holds whatever the changed one touches now (law 8).

    Which calls it may overlap was told from its old arguments. So it waits for all that were
    written before it or have been started, and all others that come after it wait for it.
    """
    found: dict[str, Call] = {}
    before: list[str] = []
    passed = False
    for call in calls.values():
        if call.id == changed.id:
            passed = True
        elif not passed or call.attempt or call.closed:
            before.append(call.id)
        elif changed.id not in call.after:
            found[call.id] = replace(call, after=(*call.after, changed.id))
    return {**calls, **found, changed.id: replace(changed, after=tuple(before))}


# ---------------------------------------------------------------- the plan


def plan_lines(items: tuple[PlanItem, ...]) -> str:
    """A plan as text, one line for each intention, whatever is in it: `[x] look it up`."""
    return "\n".join(f"[{MARKS[item.status]}] {one_line(item.text)}" for item in items)


def plan_note(items: tuple[PlanItem, ...]) -> str:
    """What the model is told of a plan that a person has made."""
    if not items:
        return "[runtime] A person has dropped your plan."
    return f"[runtime] A person has replaced your plan. It is now:\n{plan_lines(items)}"
