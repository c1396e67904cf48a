"""What anybody but a run's owner may ask of it, and the one event each request becomes.

`accept` is a total function from state, command and time to an event, to nothing (the same was
decided before), or to a refusal. A store calls it inside the transaction that appends the event,
so a decision is always checked against the journal it lands in.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cairn.core import events as ev
from cairn.core.decisions import Approve, Deny, decide_request, ended
from cairn.core.edits import edit_event
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Part, PlanItem, Record
from cairn.core.names import listed
from cairn.core.state import Call, RunState, ending
from cairn.core.takeovers import by_hand_event, end_event, take_event, turn_event
from cairn.errors import IllegalTransition, Refused, UnknownRun

__all__ = [
    "MOST_UNREAD",
    "Answer",
    "Approve",
    "Cancel",
    "Command",
    "Deny",
    "DoneByHand",
    "EditCall",
    "HandBack",
    "Late",
    "Pause",
    "Queue",
    "Resolve",
    "Resume",
    "SetPlan",
    "TakeOver",
    "TakeTurn",
    "accept",
]


MOST_UNREAD = 1_000
"""So many messages of people may wait in a run until it reads them, and as many notes to it."""


class Answer(Record):
    """Answer question `n`."""

    n: int
    text: str


class Queue(Record):
    """Hand the run a message while it works; under the same id it is taken once.

    It answers a question that the runtime itself has open. `roles` are those of the principal who
    sends it, None for an operator: a run does nothing for a message with roles that it has not.
    """

    parts: tuple[Part, ...]
    id: str = ""
    roles: tuple[str, ...] | None = None


class Resolve(Record):
    """Say what came of a call whose outcome is unknown."""

    call: str
    verdict: Literal["happened", "not_happened", "given_up"]
    result: msgspec.Raw = ev.EMPTY
    evidence: str = ""


class Pause(Record):
    """Start nothing new."""

    reason: str = ""


class Resume(Record):
    """End the pause."""


class Cancel(Record):
    """End the run; gently: when what is in flight has landed."""

    reason: str = ""
    gently: bool = False


class Late(Record):
    """An outcome that missed its time."""

    call: str
    ok: bool
    result: msgspec.Raw = ev.EMPTY
    message: str = ""
    attempt: int = 0


class EditCall(Record):
    """Give a call that has not started other arguments, as JSON text."""

    call: str
    arguments: str


class SetPlan(Record):
    """Put another plan in the place of the agent's."""

    items: tuple[PlanItem, ...]


class Restore(Record):
    """Take the last compaction back."""


class TakeOver(Record):
    """Act in the agent's place from here on."""

    by: str
    reason: str


class TakeTurn(Record):
    """The turn of who has taken the run over: calls, each with JSON text, or a final answer."""

    by: str
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()


class DoneByHand(Record):
    """What came of a call that was never started and that a person did by hand."""

    by: str
    call: str
    result: msgspec.Raw = ev.EMPTY
    evidence: str = ""


class HandBack(Record):
    """The agent goes on, and reads the message; `by` must be who has taken the run over."""

    message: str = ""
    by: str = ""


Command = (
    Approve
    | Deny
    | Answer
    | Queue
    | Resolve
    | Pause
    | Resume
    | Cancel
    | Restore
    | Late
    | EditCall
    | SetPlan
    | TakeOver
    | TakeTurn
    | DoneByHand
    | HandBack
)


def accept(state: RunState, command: Command, now: int) -> ev.Event | None:
    """The event that `command` becomes, or None when it changes nothing.

    Raises:
        UnknownRun: the request or call it names does not exist.
        Refused: it is too late or too early for it, or it was decided otherwise.
        IllegalTransition: a run in this state does not take it.
    """
    match command:
        case Approve() | Deny():
            return decide_request(state, command, now)
        case Answer():
            return _answer(state, command)
        case Queue():
            _live(state, "take a message")
            if state.created is not None and state.created.behind:
                raise IllegalTransition(
                    f"run {state.run} waits behind {state.created.behind} and takes no message "
                    "before it begins; send it to the session"
                )
            _check_unread(state, len(state.sent), "unread messages", "this message")
            return _queued(state, command)
        case Resolve():
            return _resolve(state, command, now)
        case Pause():
            _live(state, "pause")
            return None if state.paused else ev.RunPauseRequested(reason=command.reason)
        case Resume():
            _live(state, "resume")
            return ev.RunResumed() if state.paused else None
        case Cancel():
            if state.end is not None or state.cancel is not None:
                return None
            if command.gently and state.failing is not None:
                return None
            return ev.RunCancelRequested(reason=command.reason, gently=command.gently)
        case Late():
            _known(state, command.call)
            return ev.ToolLate(
                call=command.call,
                ok=command.ok,
                result=command.result,
                message=command.message,
                attempt=command.attempt,
            )
        case EditCall() | SetPlan() | Restore():
            return _edited(state, command)
        case TakeOver() | TakeTurn() | DoneByHand() | HandBack():
            _live(state, "be taken over")
            return _in_its_place(state, command)


def _in_its_place(
    state: RunState, command: TakeOver | TakeTurn | DoneByHand | HandBack
) -> ev.Event | None:
    match command:
        case TakeOver():
            event = take_event(state, command.by, command.reason)
            if event is not None:  # handing it back leaves a note
                _check_notes(state, "this takeover")
            return event
        case TakeTurn():
            return turn_event(state, command.by, command.text, command.calls)
        case DoneByHand():
            call = _known(state, command.call)
            done = (command.result, command.evidence)
            return by_hand_event(state, command.by, command.call, call, *done)
        case HandBack():
            return end_event(state, command.by, command.message)


def _check_unread(state: RunState, unread: int, of_what: str, another: str) -> None:
    if unread >= MOST_UNREAD:
        how = f"resume it (cairn resume {state.run})" if state.paused else "let it go on"
        raise Refused(
            f"run {state.run} has {MOST_UNREAD:,} {of_what}, the most that may wait, and {another} "
            f"was not kept: {how}, and try again when it has read them"
        )


def _check_notes(state: RunState, another: str) -> None:
    notes = len(state.queued) - len(state.sent)
    _check_unread(state, notes, "unread notes of changed plans and takeovers", another)


def _queued(state: RunState, command: Queue) -> ev.InputQueued:
    """A message for a run, which is worked on with the run's roles: the sender has them all."""
    if command.roles is not None and (lacks := set(state.principal.roles) - set(command.roles)):
        raise Refused(
            f"run {state.run} works with the roles {listed(sorted(lacks))}, which the sender does "
            "not have; send it to the session, with the mode queue"
        )
    return ev.InputQueued(
        parts=command.parts, id=command.id, answers=state.question, roles=command.roles
    )


def _live(state: RunState, what: str) -> None:
    if over := ended(state):
        raise IllegalTransition(f"{over} and can no longer {what}")


def _answer(state: RunState, command: Answer) -> ev.Event | None:
    name = f"{state.run}/{command.n}"
    if not 1 <= command.n <= state.requests:
        raise UnknownRun(f"there is no question {name}")
    _live(state, "take an answer")
    if why := ending(state):
        raise Refused(f"run {state.run} {why}. Its questions need no answer any more")
    if state.question == command.n:
        return ev.InputAnswered(n=command.n, text=command.text)
    call = next((c for c in state.calls.values() if c.approval == command.n), None)
    if call is not None and call.status is CallStatus.ASKING:
        raise Refused(f"{name} asks for approval: approve or deny it")
    if not _questions(call):
        raise Refused(f"{name} was already answered")
    return ev.InputAnswered(n=command.n, text=command.text)


def _questions(call: Call | None) -> bool:
    return call is not None and call.status is CallStatus.QUESTION


def _resolve(state: RunState, command: Resolve, now: int) -> ev.Event | None:
    name = f"{state.run}/{command.call}"
    call = _known(state, command.call)
    if call is not None and call.status is CallStatus.STARTED:
        raise Refused(
            f"{name} is at work, as far as the journal knows. If its process has died, have the "
            f"run taken over first (cairn resume {state.run} --app ...): the call is unknown then"
        )
    if call is None or call.status not in {CallStatus.UNKNOWN, CallStatus.TAKEOVER}:
        raise Refused(f"{name} is not unknown; there is nothing to resolve")
    if command.verdict == "not_happened" and state.end is None and now < call.not_before:
        wait_s = -(-(call.not_before - now) // 1_000_000)
        raise Refused(
            f"{name} may still be at work: that it did not happen can be said in {wait_s} s"
        )
    if command.verdict == "given_up" and (state.end is not None or state.failing is not None):
        return None
    return ev.ToolResolved(
        call=command.call,
        verdict=command.verdict,
        result=command.result,
        evidence=command.evidence,
    )


def _edited(state: RunState, command: EditCall | SetPlan | Restore) -> ev.Event | None:
    if isinstance(command, Restore):
        return _restore(state)
    _live(state, "be edited")
    match command:
        case EditCall(call=call):
            return edit_event(state, call, _known(state, call), command.arguments)
        case SetPlan(items=items):
            if items == state.plan:
                return None
            _check_notes(state, "this plan")
            return ev.PlanUpdated(items=items, by="person")


def _restore(state: RunState) -> ev.ContextRestored:
    """Open calls are no hindrance: what is sent only begins earlier, and their turn stays in it."""
    if state.end is not None:
        raise IllegalTransition(
            f"run {state.run} is over ({state.status.value}): no request of it comes any more, so "
            "there is nothing to take a compaction back for"
        )
    if not state.compactions:
        raise Refused(
            f"nothing of run {state.run} was condensed, or it was taken back already; what was "
            "condensed in an earlier run of its session stays so"
        )
    if state.request is not None:
        raise Refused(
            f"run {state.run} waits for the reply of its model, which was sent the condensed "
            "conversation; try again when the reply is there"
        )
    return ev.ContextRestored(of=state.compactions[-1].seq)


def _known(state: RunState, call_id: str) -> Call | None:
    number = call_id[1:10]  # no run has a thousand million calls
    known = number.isdecimal() and 1 <= int(number) <= state.last_call
    if not known or call_id != f"c{int(number)}":
        raise UnknownRun(f"there is no call {state.run}/{call_id}")
    return state.calls.get(call_id)
