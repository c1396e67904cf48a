"""A person in the agent's place: what they may ask for, and the one event each wish becomes.

They hold the run by a takeover: the model is not asked while it lasts. What they want done passes
the gate like anything a model wants; what they have done themselves is said, with who and why.
"""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.evolve_people import BY_HAND, no_turn
from cairn.core.index import persons_answer
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import CallPart, Part, Text, parse_object
from cairn.core.state import Call, RunState
from cairn.errors import Refused

NAME_CHARS = 64
HAND_BACK = "[runtime] A person acted in your place until here. Go on from there."


def take_event(state: RunState, by: str, reason: str) -> ev.TakeoverBegun | None:
    """The event that a person's wish to act becomes; None when they do already.

    Raises:
        Refused: nobody in particular wants it, it is not said why, or the run is ending.
    """
    if not by:
        raise Refused(f"run {state.run} can only be taken over by somebody: say by whom")
    if not reason.strip():
        whose = f" from {state.taken}, who has it" if state.taken else ""
        raise Refused(f"say why run {state.run} is taken over{whose}: it is kept in its journal")
    if state.cancel is not None or state.failing is not None:
        raise Refused(f"run {state.run} is ending")
    return None if state.taken == by else ev.TakeoverBegun(reason=reason)


def end_event(state: RunState, by: str, message: str) -> ev.TakeoverEnded | None:
    """The event by which the agent goes on; None when nobody has taken the run over.

    Raises:
        Refused: it is somebody else's, or nobody in particular hands it back. Who must help in
            their absence takes the run over first, and says why. Nor is a run handed back whose
            final answer was just given: the agent would answer in its place.
    """
    if not state.taken:
        return None
    _theirs(state, by)
    if persons_answer(state):
        raise Refused(
            f"run {state.run} is about to end with the final answer that {state.taken} has given, "
            "and an agent that goes on would give its own instead: let the run end (cairn resume "
            f"{state.run}), or make calls instead of the answer, and hand the run back then"
        )
    says = f" They say: {message}" if message.strip() else ""
    return ev.TakeoverEnded(note=f"{HAND_BACK}{says}")


def turn_event(
    state: RunState, by: str, text: str, calls: tuple[tuple[str, str], ...]
) -> ev.TakeoverTurn:
    """The event that a person's turn becomes.

    Raises:
        Refused: it is not theirs, not possible now, or over a limit of the run.
    """
    _theirs(state, by)
    if why := no_turn(state):
        raise Refused(f"run {state.run} takes no turn now: {why}")
    if not calls and not text.strip():
        raise Refused("a turn makes calls or gives an answer; this one holds neither")
    if state.spent.steps >= state.limits.steps:
        raise Refused(f"run {state.run} has used its {state.limits.steps} steps")
    most = state.limits.calls_per_reply
    if len(calls) > most:
        raise Refused(f"{len(calls)} calls are too many: one turn may hold {most}")
    parts: list[Part] = [Text(text)] if text.strip() else []
    ids: list[str] = []
    for n, (name, arguments) in enumerate(calls, state.last_call + 1):
        if not 0 < len(name.strip()) <= NAME_CHARS:
            raise Refused(f"{name!r:.80} is no name of a tool")
        if parse_object(arguments) is None:
            raise Refused(f"the arguments of {name} are no JSON object: {arguments[:80]!r}")
        # what may overlap is told from the agent's tools, which nobody here knows: one by one
        parts.append(CallPart(id=f"c{n}", name=name, arguments=arguments, after=tuple(ids)))
        ids.append(f"c{n}")
    return ev.TakeoverTurn(parts=tuple(parts))


def by_hand_event(
    state: RunState, by: str, name: str, call: Call | None, result: msgspec.Raw, evidence: str
) -> ev.TakeoverResult:
    """The event that says what came of a call that a person did by hand.

    Raises:
        Refused: it has been started, has ended, or is a question.
    """
    _theirs(state, by)
    name = f"{state.run}/{name}"
    if call is None or call.closed:
        raise Refused(f"{name} has ended")
    if call.status is CallStatus.QUESTION:
        raise Refused(f"{name} is a question: answer it")
    if call.attempt or call.status not in BY_HAND:
        raise Refused(f"{name} has been started: say what came of it (cairn resolve {name})")
    if state.cancel is not None or state.failing is not None:
        raise Refused(f"{name} is not needed any more: run {state.run} is ending")
    return ev.TakeoverResult(call=call.id, result=result, evidence=evidence)


def _theirs(state: RunState, by: str) -> None:
    if not state.taken:
        raise Refused(f"run {state.run} is the agent's: take it over first")
    if by != state.taken:
        raise Refused(
            f"run {state.run} was taken over by {state.taken}, not by {by or 'nobody'}: "
            "only who has it acts or hands it back; somebody else takes it over first"
        )
