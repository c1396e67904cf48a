"""What a conversation is called if nobody gave it a name: its first words."""

from __future__ import annotations

import unicodedata

from cairn.core.messages import Blob, Part, Uri, clean, text_of

TITLE_COLUMNS = 60
"""How wide a title may be; Chinese, Japanese and Korean characters take two columns each."""
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_LEAST = 2 / 3
"""A cut goes back to the end of a word, if as much of the title is left."""


def title_of(parts: tuple[Part, ...]) -> str:
    """The first words of an input: one line, cut between words, or between wide characters.

    The same input always gives the same title. An input without text is called by its files.
    """
    line = " ".join(clean(text_of(parts)).split())
    if not line:
        names = [p.name or p.mime_type for p in parts if isinstance(p, Blob)]
        names += [p.uri for p in parts if isinstance(p, Uri)]
        line = " ".join(", ".join(names).split())
    return shortened(line)


def shortened(line: str, columns: int = TITLE_COLUMNS) -> str:
    """The line, or as much of it as fits, with `…` behind it."""
    if _width(line) <= columns:
        return line
    end = width = 0
    for at, char in enumerate(line):
        width += _columns(char)
        if width > columns - 1:
            break
        end = at + 1
    while end > 0 and _belongs_to_the_one_before(line, end):
        end -= 1
    word = line.rfind(" ", 0, end + 1)
    inside = _columns(line[end - 1]) == 1 and _columns(line[end]) == 1 and line[end] != " "
    if inside and word >= end * _LEAST:
        end = word
    return line[:end].rstrip() + "…"


def _belongs_to_the_one_before(line: str, at: int) -> bool:
    """Whether a cut here would take a mark from its letter, or an emoji apart."""
    here = line[at]
    return bool(unicodedata.combining(here)) or here in _JOINERS or line[at - 1] == "\u200d"


def _columns(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _width(line: str) -> int:
    return sum(map(_columns, line))
