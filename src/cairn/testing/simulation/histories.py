"""What runs of a simulated world were shown of what had been said before, and of skills.

A search shows passages of the run's own conversation and of nothing else, and finds a word that
stands in it. The conversation is read message by message, beside the search that is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.messages import CallPart, Message, ResultPart, Text, calls_of
from cairn.core.state import RunState
from cairn.core.view import WHOLE
from cairn.engine.load import start_of
from cairn.ports import Store
from cairn.testing.invariants import Violation
from cairn.testing.simulation.facts import ABOUT

SEARCH = "search_history"
SKILL = "load_skill"


async def check_histories(
    look: Store, journals: Mapping[str, Sequence[ev.Entry]], skill: str
) -> list[Violation]:
    """What does not hold of what runs were shown.

    Args:
        look: The store; it is only read.
        journals: All events of every run that can be read.
        skill: The text of the one skill there is.
    """
    found: list[Violation] = []
    for run, entries in journals.items():
        state = await start_of(look, run, list(entries))
        found += _of_run(run, state, entries, skill)
    return found


def _of_run(run: str, state: RunState, entries: Sequence[ev.Entry], skill: str) -> list[Violation]:
    found: list[Violation] = []
    calls: dict[str, CallPart] = {}
    before: dict[str, Sequence[Message]] = {}
    for entry in entries:
        state, event = evolve(state, entry), entry.event
        if isinstance(event, ev.ModelCompleted):
            for part in calls_of(event.parts):
                calls[part.id], before[part.id] = part, _left_out(state)
        if not isinstance(event, ev.ToolCompleted) or event.call not in calls:
            continue
        call, text = calls[event.call], ""
        if call.name == SEARCH:
            asked = msgspec.json.decode(call.arguments).get("query", "")
            text = _untrue(list(state.messages), before[call.id], asked, _shown(event))
        elif call.name == SKILL and _shown(event).get("text", "?") not in skill:
            text = f"{call.id} was shown what no skill says"
        if text:
            found.append(Violation(name="shown", run=run, seq=entry.seq, text=text))
    return found


def _left_out(state: RunState) -> list[Message]:
    """The messages that the request did not hold; all before the last, where it held everything."""
    view = state.view
    if view == WHOLE:
        return list(state.messages[:-1])
    return [m for n, m in enumerate(state.messages[: view.start]) if n != view.asked]


def _shown(event: ev.ToolCompleted) -> dict[str, Any]:
    shown = msgspec.json.decode(event.result) if event.result else {}
    return shown if isinstance(shown, dict) else {}


def _untrue(
    there: Sequence[Message], left: Sequence[Message], asked: str, shown: dict[str, Any]
) -> str:
    """What is wrong with what a search has shown; empty for nothing.

    Args:
        there: The whole conversation.
        left: What of it a search finds: what the model was not sent, or all of it.
        asked: What was looked for.
        shown: The answer.
    """
    said = [text for message in there for text in _texts(message)]
    for each in shown.get("found", ()):
        passage = each["text"].strip("\u2026")
        if not any(passage in text for text in said):
            return f"a search shows {passage[:60]!r}, which was never said here"
    about = asked.split(maxsplit=1)[0]
    if about in ABOUT and not shown.get("found"):
        earlier = [text for message in left for text in _texts(message)]
        if any(about in text.split() for text in earlier):
            return f"a search finds nothing about {about}, and it was spoken of"
    return ""


def _texts(message: Message) -> list[str]:
    """What a message says and asks for, and each result in it; not what it searches for."""
    said: list[str] = []
    results: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            said.append(part.content)
        elif isinstance(part, CallPart) and part.name != SEARCH:
            said.append(f"{part.name} {part.arguments}")
        elif isinstance(part, ResultPart):
            results.append(part.result)
    return ["\n".join(said), *results]
