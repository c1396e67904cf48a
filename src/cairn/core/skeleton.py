"""The skeleton of a text: what it is read as, whatever signs it is written with.

Letters of any width, style or script that look like a Latin one become that letter, small; signs
that nobody sees and accents are left out; blanks become spaces; brackets of any form become `[`
or `]`. It follows Unicode's own properties (NFKD, categories, names, mirroring); only what looks
alike across scripts is a list, as the confusables of UTS 39 have it for the letters that are asked
for here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from cairn.core.unseen import unseen

LIKE = {
    "a": "13aa 15c5 16f40 237a 251 252 391 3b1",
    "d": "13a0 13e7 146f 15de 15ea 501 a4d2 a4d3 f0 d0",
    "e": "10286 118a6 118ae 13ac 212e 22ff 2d39 395 3b5 415 435 454 404 4bd 25b 259 1dd",
    "f": "10287 102a5 10525 118a2 118c2 15b4 1d213 3dc 3dd 584 a4dd ab35 17f 1e9d 493 492",
    "n": "10513 2c9a 39d 3bd 3b7 43f 578 57c a4e0",
    "o": "101d 10292 10404 1042c 10ff 118b5 118c8 118d7 12d0 1d11 2d54 3007 39f 3bf 3c3 555 585"
    " 5e1 647 665 6be 6c1 6d5 6f5 b20 c02 c82 d02 d20 d82 4e9 275 25cb",
    "t": "102b1 10315 118bc 13a2 16f0a 1f768 22a4 27d9 2ca6 3a4 3c4 422 442 a4d4",
}
"""Letters of the words a fence is made of, and what looks like them in other scripts."""
_LETTERS = {chr(int(code, 16)): letter for letter, row in LIKE.items() for code in row.split()}
_NAMED = re.compile(r"(?:LETTER|CAPITAL|SMALL) ([A-Z])(?: WITH .*)?$")
_SHAPED = re.compile(r"BRACKET|PARENTHESIS|CORNER|CEILING|FLOOR")
_SQUARE = frozenset("\u531a\u5338\u3108")  # written like a square bracket, though letters
_QUOTES = frozenset("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u301d\u301e\u301f")
_BLANKS = frozenset("\u2800\u3164\uffa0\u115f\u1160")
_LINES = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_PLAIN = re.compile(r"[^\x00-\x08\x0e-\x1b\x1f\x7f\r\v\f\x1c-\x1e]*")
TAGS = re.compile("[\U000e0020-\U000e007e]")
"""An invisible twin of each ASCII character; some programs read them."""
MAYBE = "\0"
"""In a skeleton: a letter without ink. Some programs leave its place empty, others show nothing."""
KNOWN = 65_536
"""Of how many characters it is remembered what they are read as."""


def skeleton(text: str, *, tags: bool = False) -> tuple[str, Sequence[int]]:
    """What a text is read as, and for each character of that where in the text it stands.

    Args:
        text: Any text.
        tags: Whether tag characters are read as what they are a twin of; else they are nothing.
    """
    if text.isascii() and _PLAIN.fullmatch(text):
        return text.lower(), range(len(text))
    if tags:
        text = TAGS.sub(lambda tag: chr(ord(tag[0]) - 0xE0000), text)
    pieces = list(map(_read, text))
    return "".join(pieces), [at for at, piece in enumerate(pieces) for _ in piece]


@lru_cache(maxsize=KNOWN)
def _read(character: str) -> str:
    """What one character is read as: mostly one, for ligatures several, for invisible ones none."""
    if character in _LINES:
        return "\n"
    if character in _BLANKS:
        return MAYBE
    if character.isspace():
        return " "
    if unseen(character) or unicodedata.category(character) in {"Cc", "Cf", "Mn", "Me"}:
        return ""
    if character.isascii():
        return character.lower()
    if character in _LETTERS:
        return _LETTERS[character]
    if named := _NAMED.search(unicodedata.name(character, "")):
        return named[1].lower()
    if unicodedata.decimal(character, None) == 0:
        return "o"
    flat = unicodedata.normalize("NFKD", character)
    if flat != character:
        return "".join(map(_read, flat.casefold()))
    small = character.casefold()
    return _LETTERS.get(small, "") or _bracket(character) or small


def _bracket(character: str) -> str:
    """`[` for what opens, `]` for what closes, quotes, or is mirrored like one; else nothing."""
    if character in _QUOTES:
        return ""
    category = unicodedata.category(character)
    if category == "Ps" or character in _SQUARE:
        return "["
    if category in {"Pe", "Pi", "Pf"}:
        return "]"
    if category[0] in "SP" and _SHAPED.search(unicodedata.name(character, "")):
        return "["
    return "]" if category == "Sm" and unicodedata.mirrored(character) else ""
