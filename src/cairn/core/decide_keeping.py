"""The part of `decide` that has the facts of a summary kept, before the next request is made.

The calls are the runtime's own and no part of the conversation: the model is not told of them,
and they push nothing out of its view. They pass the gate as any other, and whatever comes of them
neither ends the run nor counts against the model.
"""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.keeping import REMEMBER, keeps, mark_of
from cairn.core.messages import CallPart, ResultPart, calls_of, parse_object
from cairn.core.outcomes import Called, Reply, parts_of
from cairn.core.rules import SECOND_US, Rules
from cairn.core.state import RunState

SHORT = "too little is left of the limit {}"


def keeping(state: RunState, rules: Rules) -> ev.TurnKept:
    """The calls that keep what is still to be kept, or why there are none.

    They count towards the limits of the run, and so does their step. At most half of the calls that
    are left are taken, and never the last step: the turn after them keeps its own, with those of
    its checks.
    """
    of = state.compactions[-1].seq
    hindrance = _hindrance(state, rules)
    if hindrance:
        return ev.TurnKept(of=of, why=hindrance)
    known = _known(state)
    fresh = [fact for fact in state.keeping if mark_of(fact) not in known]
    room = max(state.limits.calls - state.spent.calls, 0) // 2
    calls = tuple(Called(name=REMEMBER, arguments=_arguments(fact)) for fact in fresh[:room])
    before, left = len(state.keeping) - len(fresh), len(fresh) - len(calls)
    why = [f"{before} asked for before in the same words"] if before else []
    why += [f"{left} left out: {SHORT.format('calls')}"] if left else []
    parts = calls_of(parts_of(state, rules, Reply(calls=calls)))
    return ev.TurnKept(of=of, parts=parts, why="; ".join(why))


def _hindrance(state: RunState, rules: Rules) -> str:
    """Why nothing is kept at all; empty if it can be."""
    limits, spent = state.limits, state.spent
    if not keeps(state, rules):
        return "the agent keeps no facts any more"
    if spent.steps + 2 + len(rules.checks) > limits.steps:
        return SHORT.format("steps")
    if spent.running_us >= limits.running_s * SECOND_US:
        return SHORT.format("running_s")
    return SHORT.format(state.excess) if state.excess else ""


def _arguments(fact: str) -> str:
    return msgspec.json.encode({"text": fact}).decode()


def _known(state: RunState) -> frozenset[str]:
    """The marks of what was asked to be kept in this conversation before, by whomever."""
    asked: dict[str, str] = {}
    done: set[str] = set()
    for message in state.messages:
        for part in message.parts:
            if isinstance(part, CallPart) and part.name == REMEMBER:
                text = (parse_object(part.arguments) or {}).get("text")
                asked[part.id] = text if isinstance(text, str) else ""
            elif isinstance(part, ResultPart) and part.ok:
                done.add(part.id)
    return frozenset({*state.kept, *(mark_of(t) for call, t in asked.items() if call in done)})
