"""What can be said of a part of a transcript without a model: the facts that a rule can collect.

A gist grows with the transcript and stays small: it is what a compaction keeps when no model can
summarise, and what a model's summary is held to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from cairn.core.messages import CallPart, Message, Record, ResultPart, Text, parse_object, text_of
from cairn.core.standing import NOTE, instructions_in, with_more

ASKED_KEPT, ASKED_CHARS = 6, 400
EARLY_KEPT = 3
"""So many of the requests behind the first are kept in their words, whatever comes later."""
CALLS_KEPT, CALL_CHARS = 16, 160
LAST_CHARS = 80
MARKS_KEPT = 24
OLDEST_KEPT = 8
"""So many of the identifiers of persons are the first that were named; the others are the last."""
SHORT_KEPT, SHORT_FIRST = 8, 2
"""So many of the identifiers may be as short as `K-1`: a pasted table is full of what looks so."""
SAID_CHARS = 400
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
LOOKED_AT = 4_000
"""Characters of a result, or of what the agent said, in which identifiers are looked for."""
READ = 20_000
"""Characters of a message, from its end, in which they are looked for."""
_PART = r"[\w.+@%\u00c0-\u04ff-]"
"""What a part of a path is made of, spaces and scripts without them aside."""
_LETTER = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of scripts whose words stand without spaces: they belong to a part that begins with one,
and else to the sentence around it."""
_WIDE = rf"[{_LETTER}][\w+@%\u00c0-\u04ff{_LETTER}-]{{0,128}}+(?:\.[\w+@%-]{{1,32}}+)*+"
_URL = rf"[^\s<>\"'`\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]|(?<=[/=?&#])[{_LETTER}]++"
_SHORT = r"(?<![\w-])[A-Z]{1,3}-?\d{1,2}(?!\w|[-.]\w)"
"""A capital letter or a few, and a number: `K-1`, and no `B2B`."""
_CODE = rf"\b(?=[\w-]{{0,127}}\d)[A-Za-z0-9][\w-]{{3,128}}\b|(?=[A-Z]){_SHORT}"
_GAP = r"[ .\u00a0/-]"
_IBAN = (
    r"(?<![\w-])[A-Z]{2}\d{2}[ \u00a0][A-Z0-9]{4}[ \u00a0]\d{4}(?:[ \u00a0][A-Z0-9]{4}){0,6}"
    r"(?:[ \u00a0](?=[A-Z0-9]{0,2}\d)[A-Z0-9]{1,3})?(?![\w-])"
)
_TELEPHONE = (
    r"(?<![\w+.-])(?=(?:[^\w\n]{0,2}+\d){7})(?:"
    rf"\+\d{{1,15}}+(?:{_GAP}?\(\d{{1,5}}+\) ?\d{{0,12}}+)?+(?:{_GAP}\d{{1,12}}+)?+"
    rf"(?:{_GAP}\d{{2,12}}+){{0,5}}"
    rf"|\((?:0\d{{1,5}}+|\d{{3}})\) ?\d{{2,12}}+(?:{_GAP}\d{{2,12}}+){{0,4}}"
    rf"|0\d{{1,5}}+(?:{_GAP}\d{{2,12}}+){{1,5}}"
    rf"|\d{{3}}[ .]\d{{3}}[ .-]\d{{4}}|1[3-9]\d[ -]\d{{4}}[ -]\d{{4}})(?![\w/@\\-]|\.\w)"
)
"""With the signs that stand between its numbers; a list of numbers is none."""
_NUMBER = rf"(?=[+(\dA-Z])(?:{_IBAN}|{_TELEPHONE})"
MARK = re.compile(
    rf"{_NUMBER}|\b[A-Za-z][A-Za-z0-9+]{{1,15}}://(?:{_URL}){{2,2048}}"
    r"|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}"
    rf"|(?<!\w)[A-Za-z]:[\\/](?:{_PART}{{1,128}}+[\\/]){{0,40}}(?:{_PART}{{1,128}}+)?"
    rf"|(?:~[\w.-]{{0,32}}+)?/(?:{_PART}{{1,128}}+/){{1,20}}{_WIDE}"
    rf"(?:/(?:{_WIDE}|{_PART}{{1,128}}+)){{0,40}}"
    rf"|(?:~[\w.-]{{0,32}}+)?/{_WIDE}(?:/(?:{_WIDE}|{_PART}{{1,128}}+)){{1,40}}"
    rf"|(?:~[\w.-]{{0,32}}+)?/(?:{_PART}{{1,128}}+/){{0,40}}{_PART}{{1,128}}+/?"
    rf"|(?:{_PART}{{1,128}}+/){{1,40}}(?:{_PART}{{1,128}}+)?"
    rf"|(?:\.{{1,2}}|\\)\\(?:{_PART}{{1,128}}+\\){{0,40}}{_PART}{{1,128}}+"
    rf"|{_CODE}",
    re.ASCII,
)
"""Addresses, paths and codes: what is of no use unless it is exact.

Parts of a path are taken whole or not at all, so that no text makes it try again and again."""

CODE = re.compile(f"{_NUMBER}|{_CODE}", re.ASCII)
"""Codes and numbers: all that can be found where no sign of an address or a path stands."""
SHORT = re.compile(_SHORT, re.ASCII)


class Gist(Record):
    """What was asked, done and named so far.

    Args:
        first: The first request of a person.
        early: The few that followed it.
        asked: The last requests, in few words each.
        done: How often each tool came to an end, well and otherwise.
        last: The last call of each tool, and what came of it.
        calls: The last calls and what came of them.
        said: The last words of the agent.
        marks: Addresses, paths and codes that persons and calls have named, the last ones last.
        own: Those that persons have named: the first ones, and the last ones last.
        found: Those that only results and the agent itself have named.
        standing: What persons have said that reads as a rule for all that follows, the last last.
        upto: How many messages of the transcript it is of.
    """

    first: str = ""
    early: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    done: dict[str, tuple[int, int]] = {}
    last: dict[str, str] = {}
    calls: tuple[str, ...] = ()
    said: str = ""
    marks: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    upto: int = 0


def extended(gist: Gist, messages: Sequence[Message], asked_at: Sequence[int], upto: int) -> Gist:
    """The gist of so many of the messages; `asked_at` says which are a person's requests."""
    requests = set(asked_at)
    first, said, done = gist.first, gist.said, dict(gist.done)
    asked, calls = list(gist.asked), list(gist.calls)
    early, last = list(gist.early), dict(gist.last)
    marks, own, read = list(gist.marks), list(gist.own), list[str]()
    standing = gist.standing
    open_calls: dict[str, CallPart] = {}
    for n, message in enumerate(messages[gist.upto : upto], gist.upto):
        text = text_of(message.parts)
        said_by_a_person = n in requests or not text.startswith(NOTE)
        if message.role == "user" and said_by_a_person:
            words = short(text, ASKED_CHARS)
            if not first:
                first = words
            elif len(early) < EARLY_KEPT:
                early.append(words)
            asked.append(words)
            named = marks_of_a_person(text)
            marks += named
            own += named
            standing = with_more(standing, _laid_down(message, whole=n in requests))
        elif message.role == "assistant":
            said = short(text, SAID_CHARS) or said
            read.append(text[:LOOKED_AT])
        for part in message.parts:
            if type(part) is CallPart:
                open_calls[part.id] = part
                marks += marks_in(_values(part.arguments))
            elif type(part) is ResultPart:
                made = open_calls.pop(part.id, None)
                name = made.name if made is not None else "?"
                well, badly = done.get(name, (0, 0))
                done[name] = (well + part.ok, badly + (not part.ok))
                arguments = short(made.arguments, CALL_CHARS // 2) if made is not None else ""
                came = f"{'' if part.ok else 'failed: '}{short(part.result, CALL_CHARS)}"
                read.append(part.result[:LOOKED_AT])
                calls.append(f"{part.id} {name} {arguments}: {came}")
                last[name] = short(f"{part.id}: {came}", LAST_CHARS)
        del asked[:-ASKED_KEPT], calls[:-CALLS_KEPT]
    kept, of_persons = _last(marks), both_ends(own)
    return Gist(
        first=first,
        early=tuple(early),
        asked=tuple(asked),
        done=done,
        last=last,
        calls=tuple(calls),
        said=said,
        marks=kept,
        own=of_persons,
        found=_last_read(read, gist.found, (*of_persons, *kept)),
        standing=standing,
        upto=max(gist.upto, upto),
    )


def _laid_down(message: Message, *, whole: bool) -> Iterator[str]:
    """Standing instructions of a person; a note of the runtime may stand behind what was said."""
    for part in message.parts:
        if type(part) is Text and (whole or not part.content.startswith(NOTE)):
            yield from instructions_in(part.content)


def _last(marks: list[str]) -> tuple[str, ...]:
    """The last different ones."""
    return tuple(dict.fromkeys(reversed(_few_short(marks))))[:MARKS_KEPT][::-1]


def both_ends(marks: Sequence[str]) -> tuple[str, ...]:
    """The first different ones, and the last different ones of the others."""
    marks = _few_short(marks, SHORT_FIRST)
    oldest = tuple(dict.fromkeys(marks))[:OLDEST_KEPT]
    newest = dict.fromkeys(mark for mark in reversed(marks) if mark not in oldest)
    return (*oldest, *tuple(newest)[: MARKS_KEPT - OLDEST_KEPT][::-1])


def _few_short(marks: Sequence[str], first: int = 0) -> list[str]:
    """Without the short ones that are too many: so many of the first stay, and the last."""
    brief = dict.fromkeys(mark for mark in reversed(marks) if SHORT.fullmatch(mark))
    if len(brief) <= SHORT_KEPT:
        return list(marks)
    oldest = tuple(dict.fromkeys(mark for mark in marks if mark in brief))[:first]
    newest = [mark for mark in brief if mark not in oldest][: SHORT_KEPT - first]
    return [mark for mark in marks if mark not in brief or mark in {*oldest, *newest}]


def _last_read(
    texts: list[str], before: tuple[str, ...], named: tuple[str, ...]
) -> tuple[str, ...]:
    """The last different marks of texts, and of those known before; read only as far as needed."""
    kept: dict[str, None] = {}
    for text in reversed(texts):
        told = _few_short(marks_in(text))
        kept |= dict.fromkeys(mark for mark in reversed(told) if mark not in named)
        if len(kept) >= MARKS_KEPT:
            return tuple(kept)[:MARKS_KEPT][::-1]
    kept |= dict.fromkeys(mark for mark in reversed(before) if mark not in named)
    return tuple(kept)[:MARKS_KEPT][::-1]


def marks_in(text: str) -> list[str]:
    """Addresses, paths and codes in a text, at most as many as are kept, the last ones."""
    found = _form_for(text).findall(text[-READ:])[-MARKS_KEPT:]
    return [bare for each in found if (bare := _bare(each))]


def marks_of_a_person(text: str) -> list[str]:
    """Addresses, paths and codes in what a person says, also before a long text that is pasted."""
    form = _form_for(text)
    found = form.findall(text[-READ:])
    if len(text) > READ:  # what the cut goes through is not exact
        found[:0] = (m[0] for m in form.finditer(text[:LOOKED_AT]) if m.end() < LOOKED_AT)
    return [bare for each in found if (bare := _bare(each))]


def _form_for(text: str) -> re.Pattern[str]:
    """Without these signs only codes can stand in it, and to look for one form costs far less."""
    return MARK if "/" in text or "@" in text or "\\" in text else CODE


def _bare(mark: str) -> str:
    """Without the signs of the sentence that it stood in."""
    while mark:
        last = mark[-1]
        alone = any(last == b and mark.count(b) > mark.count(a) for a, b in BRACKETS)
        if last not in ".,;:!?" and not alone:
            break
        mark = mark[:-1]
    return mark


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


def short(text: str, chars: int) -> str:
    """A text on one line, of so many characters at most."""
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
