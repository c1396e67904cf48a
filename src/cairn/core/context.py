"""From a state to the message list a model is sent, and the proof that it is well-formed.

The list is a derived view. Before every request what is new in it is checked; the whole list is
checked when the view has changed, and in tests (law 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cairn.core.messages import CallPart, Message, Reasoning, ResultPart, Text, parse_object, user
from cairn.core.state import RunState
from cairn.core.view import sent

END_NOTE = "[runtime] What follows is context of this request, not a message of a person."


def system_text(state: RunState) -> str:
    """The blocks at the head, joined in the order they were first given."""
    return "\n\n".join(b.text for b in state.blocks.values() if b.place == "head" and b.text)


def messages_of(state: RunState) -> Sequence[Message]:
    """The messages of the next request, and behind them the blocks at the end."""
    found = sent(state.messages, state.view, state.summary)
    end = "\n\n".join(b.text for b in state.blocks.values() if b.place == "end" and b.text)
    return [*found, user(f"{END_NOTE}\n\n{end}")] if end else found


def faults(messages: Iterable[Message]) -> list[str]:
    """What a provider would refuse: empty for a well-formed list.

    Every call is answered exactly once and before the next assistant message, no answer comes
    without its call, ids are unique, arguments are JSON objects, text is strict UTF-8.
    """
    found: list[str] = []
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in messages:
        if open_calls and message.role != "tool":
            found.append(f"calls {', '.join(open_calls)} have no answer")
            open_calls = []
        for part in message.parts:
            if isinstance(part, CallPart):
                if part.id in seen:
                    found.append(f"call id {part.id} is used twice")
                seen.add(part.id)
                open_calls.append(part.id)
                if part.arguments[:1] != "{" or parse_object(part.arguments) is None:
                    found.append(f"the arguments of {part.id} are no JSON object")
                found.extend(_encoding(part.id, part.name + part.arguments))
            elif isinstance(part, ResultPart):
                if part.id in open_calls:
                    open_calls.remove(part.id)
                else:
                    found.append(f"answer {part.id} has no open call")
                found.extend(_encoding(part.id, part.result))
            elif isinstance(part, Text | Reasoning):
                found.extend(_encoding(message.role, part.content))
    if open_calls:
        found.append(f"calls {', '.join(open_calls)} have no answer")
    return found


def _encoding(where: str, text: str) -> list[str]:
    if text.isascii():
        return []
    try:
        text.encode()
    except UnicodeEncodeError:
        return [f"{where} holds text that is no UTF-8"]
    return []
