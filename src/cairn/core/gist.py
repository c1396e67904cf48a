"""What can be said of a part of a transcript without a model: the facts that a rule can collect.

A gist grows with the transcript and stays small: it is what a compaction keeps when no model can
summarise, and what a model's summary is held to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from cairn.core.messages import CallPart, Message, Record, ResultPart, parse_object, text_of

ASKED_KEPT, ASKED_CHARS = 6, 400
CALLS_KEPT, CALL_CHARS = 16, 160
MARKS_KEPT = 24
SAID_CHARS = 400
_PART = r"[\w.+@%\u00c0-\u04ff-]"
"""What a part of a path is made of, spaces and scripts without them aside."""
MARK = re.compile(
    r"\b[A-Za-z][A-Za-z0-9+]{1,15}://[^\s<>\"'`]{2,200}"
    r"|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}"
    rf"|(?<!\w)[A-Za-z]:[\\/](?:{_PART}{{1,128}}+[\\/]){{0,40}}(?:{_PART}{{1,128}}+)?"
    rf"|(?:~[\w.-]{{0,32}}+)?/(?:{_PART}{{1,128}}+/){{0,40}}{_PART}{{1,128}}+/?"
    rf"|(?:{_PART}{{1,128}}+/){{1,40}}(?:{_PART}{{1,128}}+)?"
    rf"|(?:\.{{1,2}}|\\)\\(?:{_PART}{{1,128}}+\\){{0,40}}{_PART}{{1,128}}+"
    r"|\b(?=[\w-]{0,39}\d)[A-Za-z0-9][\w-]{3,40}\b",
    re.ASCII,
)
"""Addresses, paths and codes: what is of no use unless it is exact.

Parts of a path are taken whole or not at all, so that no text makes it try again and again."""


class Gist(Record):
    """What was asked, done and named so far.

    Args:
        first: The first request of a person.
        asked: The last requests, in few words each.
        done: How often each tool came to an end, well and otherwise.
        calls: The last calls and what came of them.
        said: The last words of the agent.
        marks: Addresses, paths and codes, the last ones last.
        upto: How many messages of the transcript it is of.
    """

    first: str = ""
    asked: tuple[str, ...] = ()
    done: dict[str, tuple[int, int]] = {}
    calls: tuple[str, ...] = ()
    said: str = ""
    marks: tuple[str, ...] = ()
    upto: int = 0


def extended(gist: Gist, messages: Sequence[Message], asked_at: Sequence[int], upto: int) -> Gist:
    """The gist of so many of the messages; `asked_at` says which are a person's requests."""
    requests = set(asked_at)
    first, said, done = gist.first, gist.said, dict(gist.done)
    asked, calls, marks = list(gist.asked), list(gist.calls), list(gist.marks)
    open_calls: dict[str, CallPart] = {}
    for n, message in enumerate(messages[gist.upto : upto], gist.upto):
        text = text_of(message.parts)
        said_by_a_person = n in requests or not text.startswith("[runtime]")
        if message.role == "user" and said_by_a_person:
            first = first or _short(text, ASKED_CHARS)
            asked.append(_short(text, ASKED_CHARS))
            marks += marks_in(text)
        elif message.role == "assistant":
            said = _short(text, SAID_CHARS) or said
        for part in message.parts:
            if type(part) is CallPart:
                open_calls[part.id] = part
                marks += marks_in(_values(part.arguments))
            elif type(part) is ResultPart:
                made = open_calls.pop(part.id, None)
                name = made.name if made is not None else "?"
                well, badly = done.get(name, (0, 0))
                done[name] = (well + part.ok, badly + (not part.ok))
                arguments = _short(made.arguments, CALL_CHARS // 2) if made is not None else ""
                fate = "" if part.ok else "failed: "
                calls.append(
                    f"{part.id} {name} {arguments}: {fate}{_short(part.result, CALL_CHARS)}"
                )
        del asked[:-ASKED_KEPT], calls[:-CALLS_KEPT]
    return Gist(
        first=first,
        asked=tuple(asked),
        done=done,
        calls=tuple(calls),
        said=said,
        marks=tuple(dict.fromkeys(reversed(marks)))[:MARKS_KEPT][::-1],
        upto=max(gist.upto, upto),
    )


def marks_in(text: str) -> list[str]:
    """Addresses, paths and codes in a text, at most as many as are kept, the last ones."""
    return [found.rstrip(".,;:") for found in MARK.findall(text[-20_000:])][-MARKS_KEPT:]


def _values(arguments: str) -> str:
    """The values of a call's arguments, as they are without the escapes of JSON."""
    value = parse_object(arguments)
    return arguments if value is None else "\n".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += reversed(one.values())
        elif isinstance(one, list):
            rest += reversed(one)
        else:
            yield str(one)


def _short(text: str, chars: int) -> str:
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
