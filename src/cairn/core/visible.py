"""Texts as people are shown them: what hides, reorders or commands stands there by its number.

Else somebody would say yes to what they have not read.
"""

from __future__ import annotations

import re
import unicodedata

from cairn.core.unseen import DRAWN, RANGES, set_of

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Control characters, escape among them; a tab and a new line show themselves."""
HIDDEN = re.compile(
    f"[{_CONTROLS}\u2028\u2029\ud800-\udfff"
    + set_of(each for each in RANGES if each not in DRAWN)
    + "]"
)
"""One character that hides, reorders, breaks a line or commands a terminal."""
_JOINED = re.compile(
    "[\u0620-\u065f\u066e-\u06d5\u06fa-\u06ff\u0710-\u07ff\u0840-\u088f\u08a0-\u08e1\u08e3-\u0ddf"
    "\u0f00-\u109f\u1780-\u17b3\u17b6-\u17d3\u1820-\u18aa\u1900-\u1c4f\ua840-\ua877\ua8e0-\uaaff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff]"
)
"""Letters that change their shape beside each other: Arabic and its kin, those of India."""
_ESCAPED = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))",
    re.DOTALL,
)
"""An escape in a JSON string: of two halves of a character, of one, or another."""
_HAN = re.compile("[\u2e80-\u2fdf\u3001-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_MONGOLIAN = re.compile("[\u1820-\u18aa]")
_MYANMAR = re.compile("[\u1000-\u109f\uaa60-\uaa7f\ua840-\ua877]")
_PICTURES = frozenset(
    "\u203c\u2049\u2139\u2194\u25fb\u25fc\u25fd\u25fe\u2934\u2935\u3030"
    "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
)
"""What can be an emoji, or colours one, and is of another category than So."""
AHEAD = 16
"""Characters of a JSON text that are looked at for each one that is shown."""
_KEYS = "0123456789#*"
_JOINERS = "\u200c\u200d"
_STYLES = "\ufe0e\ufe0f"
_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
FEW_VARIANTS = 2
"""Variation selectors that any text may have."""
MOST_VARIANTS = 8
"""Those that a long one may have: a byte can be written with each, and nobody sees it."""
LETTERS_EACH = 8
"""Letters that a text has for each of them, if it has more than a few."""
_VIRAMA = 9
"""The combining class of the sign that takes a letter's vowel: a joiner may end a word there."""


def by_number(text: str) -> str:
    r"""The text with what hides, reorders or commands by its number, as `\x1b` or `\U000e0041`.

    A joiner between letters of a script that needs it or between emoji stays as it is, and so does
    a variation selector behind a letter or an emoji that has variants: one of them, not a row,
    and not where a text has so many that another one could be written with them.
    """
    if text.isascii() or not _SELECTORS.search(text):
        crowd: frozenset[int] = frozenset()
    else:
        crowd = _crowd(text)
    return HIDDEN.sub(
        lambda found: (
            found[0] if found.start() not in crowd and _at_work(found) else _number(found[0])
        ),
        text,
    )


def _crowd(text: str) -> frozenset[int]:
    """Where variation selectors stand that may say something; empty where they are rare.

    A few emoji that look the same wherever they stand in the text say nothing by how they look.
    """
    places = [found.start() for found in _SELECTORS.finditer(text)]
    if len(places) <= FEW_VARIANTS:
        return frozenset()
    styled = {_drawn(text, at - 1) for at in places if at and text[at] in _STYLES}
    looks: dict[str, set[str]] = {each: set() for each in styled}
    for at, character in enumerate(text):
        if character in looks or character in _KEYS:
            after = text[at + 1 : at + 2]
            if (drawn := _drawn(text, at)) in looks and not (after and after in _TONES):
                looks[drawn].add(after if after and after in _STYLES else "")
    steady = {drawn for drawn, ways in looks.items() if len(ways) == 1}
    if len(steady) > MOST_VARIANTS:
        steady = set()
    telling = [at for at in places if text[at] not in _STYLES or _drawn(text, at - 1) not in steady]
    allowed = min(MOST_VARIANTS, sum(map(str.isalpha, text)) // LETTERS_EACH)
    return frozenset(telling) if len(telling) > max(FEW_VARIANTS, allowed) else frozenset()


def _drawn(text: str, at: int) -> str:
    """What is drawn at a place; digits on a key are one thing, and others are none of it."""
    if at >= 0 and text[at] in _KEYS:
        return "key" if "\u20e3" in text[at + 1 : at + 3] else ""
    return text[at : at + 1] if at >= 0 else ""


def as_read(text: str) -> str:
    """JSON text with the letters that a reader of it gets, in place of their escapes.

    Only what a string must have escaped stays as it is; nothing else changes, so a number or a key
    that is there twice is shown as it was written.
    """
    return _ESCAPED.sub(_unescaped, text) if "\\" in text else text


def beginning_as_read(text: str, limit: int) -> str:
    """As `as_read`, of a text that is shown cut at `limit` characters; that it goes on is seen.

    Only its beginning is looked at. No escape is longer than the twelve characters of a pair.
    """
    most = limit * AHEAD
    return as_read(text[:most]) + ("…" if len(text) > most else "")


def _unescaped(found: re.Match[str]) -> str:
    high, low, code, other = found.groups()
    if high:
        return bytes.fromhex(high + low).decode("utf-16-be")
    if code is None:
        return "/" if other == "/" else found[0]
    letter = chr(int(code, 16))
    return found[0] if letter < " " or letter in '"\\' or "\ud800" <= letter < "\ue000" else letter


def in_json(text: str) -> str:
    """JSON text with the same characters escaped, all of them: read again it is the same value."""
    return HIDDEN.sub(lambda found: _escape(found[0]), text)


def _number(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape(character: str) -> str:
    pair = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[at : at + 2].hex()}" for at in range(0, len(pair), 2))


def _at_work(found: re.Match[str]) -> bool:
    """Whether the character does what it is for, where it stands."""
    text, at = found.string, found.start()
    before, sign, after = text[at - 1 : at], text[at], text[at + 1 : at + 2]
    if not before:
        return False
    if sign in _JOINERS:
        return _joins(text, at, before, after)
    if sign in _STYLES:
        return _picture(before) or (before in _KEYS and after == "\u20e3")
    if "\ufe00" <= sign <= "\ufe02":
        return _HAN.match(before) is not None or _MYANMAR.match(before) is not None
    if "\u180b" <= sign <= "\u180d" or sign == "\u180f":
        return _MONGOLIAN.match(before) is not None
    return "\U000e0100" <= sign <= "\U000e01ef" and _HAN.match(before) is not None


def _joins(text: str, at: int, before: str, after: str) -> bool:
    if _JOINED.match(before):
        return _JOINED.match(after) is not None or unicodedata.combining(before) == _VIRAMA
    if before == "\ufe0f":
        before = text[at - 2 : at - 1]
    return text[at] == "\u200d" and _picture(before) and _picture(after)


def _picture(character: str) -> bool:
    """Whether a character can be an emoji."""
    if not character or character.isascii():
        return False
    return character in _PICTURES or unicodedata.category(character) == "So"
