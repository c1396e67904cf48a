"""Finding a passage of a run's own history again, also where it is no longer sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from math import log
from unicodedata import category

from cairn.core.messages import CallPart, Message, Part, Record, ResultPart, Text
from cairn.core.rules import SEARCH
from cairn.core.view import WHOLE, View, shortened
from cairn.core.words import MOST_TERMS, asked, normal, words

SNIPPET = 400
"""Characters shown of a message, around what was found."""
LOOKED_AT = 40_000
"""Characters of a message that are looked at."""


class Found(Record):
    """A message of the history, and the passage in it.

    Args:
        id: What `read_artifact` reads it by: `m12`, or a call's id for its result.
        role: Who said it.
        text: The passage.
        score: How well it fits; only to be compared within one search.
    """

    id: str
    role: str
    text: str
    score: float


def search(
    messages: Sequence[Message], query: str, limit: int, view: View | None = None
) -> list[Found]:
    """The messages that fit a question best; of equal ones the later first.

    Args:
        messages: The history.
        query: What is looked for.
        limit: How many are found at most.
        view: What of the history is sent anyway, and not searched: whoever asks reads it. None
            to search all of it, as is done where nothing is left out.
    """
    view = None if view == WHOLE else view
    wanted = asked(query)
    if not wanted:
        return []
    looked_at = passages(messages, view)
    read = [(id_, role, text, counts(text, wanted)) for id_, role, text in looked_at]
    holding = Counter(word for *_, there in read for word in there)
    found: list[tuple[float, int, str, str, str]] = []
    for n, (id_, role, text, there) in enumerate(read):
        score = 0.0
        for word, weight in wanted.items():
            times = there.get(word, 0)
            if times:
                rare = log(1 + len(read) / holding[word])
                score += weight * rare * times / (times + 1.2)
        if score:
            found.append((score, n, id_, role, text))
    found.sort(key=lambda each: (-each[0], -each[1]))
    return [
        Found(id=id_, role=role, text=_around(text, list(wanted)), score=round(score, 3))
        for score, _, id_, role, text in found[:limit]
    ]


@lru_cache(MOST_TERMS)
def _is_run(word: str) -> bool:
    """Whether it is of a script without spaces, whose words are letters and pairs of letters."""
    return not word.isascii() and word[0] in words(word[0] * 2)


def counts(text: str, wanted: Iterable[str]) -> dict[str, int]:
    """How often each of the words stands in a text: `words(text)`, of these only.

    A history may be long: a text without them is not taken apart, and nothing else of one is kept.
    """
    plain = normal(text)
    if not plain.isascii():  # what is not seen joins what stands beside it
        unseen = {ord(sign) for sign in set(plain) if category(sign) == "Cf"}
        plain = plain.translate(dict.fromkeys(unseen)) if unseen else plain
    # of the others an ending is taken off, or put in place of the last letter
    maybe = [word for word in wanted if (word[:-1] or word) in plain]
    there = {word: _count(plain, word) for word in maybe if word in plain and _is_run(word)}
    spaced = [word for word in maybe if not _is_run(word)]
    if spaced:
        found = words(text)
        there |= {word: found[word] for word in spaced if word in found}
    return there


def _count(plain: str, word: str) -> int:
    """How often it stands there, also where two of them overlap."""
    if len(set(word)) == len(word):
        return plain.count(word)
    return sum(plain.startswith(word, at) for at in range(len(plain)))


def passages(messages: Sequence[Message], view: View | None = None) -> list[tuple[str, str, str]]:
    """Each message's text and each call's result, as far as it is not sent whole: id, role, text.

    Earlier searches are left out: they hold the words that are looked for, and nothing new.
    """
    found: list[tuple[str, str, str]] = []
    searches: set[str] = set()
    for n, message in enumerate(messages, 1):
        made = {p.id for p in message.parts if type(p) is CallPart and p.name == SEARCH}
        searches |= made
        is_sent = view is not None and (n > view.start or n == view.asked + 1)
        text = "" if is_sent else spelled(message, made)
        if text:
            found.append((f"m{n}", message.role, text[:LOOKED_AT]))
        parts = _not_whole(message, n - 1, view) if is_sent and view is not None else message.parts
        results = [part for part in parts if type(part) is ResultPart]
        found += [(p.id, "tool", p.result[:LOOKED_AT]) for p in results if p.id not in searches]
    return found


def _not_whole(message: Message, at: int, view: View) -> list[Part]:
    """The parts of a message that are sent shortened."""
    if at >= view.whole:
        return []
    pairs = zip(message.parts, shortened(message, view.kept).parts, strict=True)
    return [part for part, held in pairs if held is not part]


def passage(messages: Sequence[Message], id_: str) -> str | None:
    """The whole text behind an id of the history; None when there is none."""
    number = id_[1:]
    if id_[:1] == "m" and number.isdecimal() and 1 <= int(number[:9]) <= len(messages):
        return spelled(messages[int(number) - 1])
    for message in messages:
        for part in message.parts:
            if type(part) is ResultPart and part.id == id_:
                return part.result
    return None


def spelled(message: Message, without: Collection[str] = ()) -> str:
    """What a message says and calls, without results, and without some of the calls."""
    said = []
    for part in message.parts:
        if type(part) is Text:
            said.append(part.content)
        elif type(part) is CallPart and part.id not in without:
            said.append(f"{part.name} {part.arguments}")
    return "\n".join(said)


def _around(text: str, wanted: list[str]) -> str:
    if len(text) <= SNIPPET:
        return text
    plain = text.casefold()
    places = [plain.find(word) for word in wanted]
    first = min((place for place in places if place >= 0), default=0)
    begin = max(0, min(first - SNIPPET // 4, len(text) - SNIPPET))
    end = begin + SNIPPET
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
