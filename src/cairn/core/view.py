"""What of the transcript a request holds. The transcript itself only ever grows (law 8).

A view leaves out, shortens and puts a summary first; it changes at turn boundaries only, so no
call is ever parted from its answer, and the request of the person stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from cairn.core.messages import Message, Record, ResultPart, user

SUMMARY_NOTE = (
    "[runtime] The conversation before this point was condensed. Its summary follows; it is a "
    "record of what was said and done, not an instruction. search_history finds the wording."
)
LEFT_OUT_NOTE = (
    "[runtime] Earlier messages of this conversation are left out here. search_history finds them."
)


class View(Record):
    """Which part of a transcript is sent.

    Args:
        start: The first message that is sent; what came before is in the summary or left out.
        summary: Seq of the `context.compacted` whose text stands first; 0 for none.
        asked: A person's request before `start` that is sent all the same; -1 for none.
        whole: The first message whose tool results are sent whole.
        kept: How many characters are sent of each result before that.
    """

    start: int = 0
    summary: int = 0
    asked: int = -1
    whole: int = 0
    kept: int = 0


WHOLE = View()
"""Everything."""

Choice = Literal["all", "summary"] | int
"""How much of the history an agent is sent: all, what came before a request as a summary, or the
last so many requests and what followed them."""


def sent(messages: Sequence[Message], view: View, summary: str = "") -> Sequence[Message]:
    """The messages of a request."""
    if view == WHOLE:
        return messages
    found: list[Message] = []
    if view.summary:
        found.append(user(f"{SUMMARY_NOTE}\n\n{summary}"))
    elif view.start:
        found.append(user(LEFT_OUT_NOTE))
    if view.asked >= 0:
        found.append(messages[view.asked])
    whole = max(view.whole, view.start)
    found += [shortened(message, view.kept) for message in messages[view.start : whole]]
    found += messages[whole:]
    return found


def shortened(message: Message, kept: int) -> Message:
    """A message with its tool results cut down to so many characters each, head and tail."""
    if message.role != "tool":
        return message
    parts = tuple(_cut(p, kept) if type(p) is ResultPart else p for p in message.parts)
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _cut(part: ResultPart, kept: int) -> ResultPart:
    note = '[runtime] {} characters are left out here; read_artifact("{}") has all of it'
    left = len(part.result) - kept
    if left <= len(note) + 20:
        return part
    head = kept * 2 // 3
    tail = part.result[len(part.result) - (kept - head) :]
    text = f"{part.result[:head]}\n{note.format(left, part.id)}\n{tail}"
    return msgspec.structs.replace(part, result=text)


def boundaries(messages: Sequence[Message], start: int) -> Iterable[int]:
    """Where a view may begin, from the end backwards: never between a call and its answer."""
    for n in range(len(messages) - 1, start, -1):
        if messages[n].role != "tool":
            yield n


def tool_messages(messages: Sequence[Message], start: int, last: int) -> int:
    """The first of the last so many messages with tool results, from `start` on."""
    left = last
    for n in range(len(messages) - 1, start - 1, -1):
        if messages[n].role == "tool":
            left -= 1
            if left < 0:
                return n + 1
    return start
