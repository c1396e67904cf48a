"""Characters that are not seen: who reads a text passes over them, so a comparison must as well.

The table is the property Default_Ignorable_Code_Point of the Unicode Character Database, as it
stands in DerivedCoreProperties.txt (4,174 code points, unassigned ones included; the same in
Unicode 14 to 16), and behind it what else is of the category Cf in Unicode 16.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

DEFAULT_IGNORABLE: tuple[tuple[int, int], ...] = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
FORMAT: tuple[tuple[int, int], ...] = (
    (0x0600, 0x0605),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0xFFF9, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
)
"""Of the category Cf and not ignorable by default: signs around numbers, controls of layout."""
DRAWN = FORMAT[:5] + FORMAT[6:8]
"""Those of them that have a shape of their own, as the sign before a year: they are seen."""

RANGES = DEFAULT_IGNORABLE + FORMAT


def set_of(ranges: Iterable[tuple[int, int]]) -> str:
    """The inside of a set of a regular expression."""
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


_UNSEEN = re.compile(f"[{set_of(RANGES)}]+")


@lru_cache(maxsize=65_536)
def unseen(character: str) -> bool:
    """Whether this one character is not seen."""
    return not character.isascii() and _UNSEEN.match(character) is not None


def as_seen(text: str) -> str:
    """The text as it reads: without what is not seen, letters of any width and style alike (NFKC).

    Characters are put together after what stood between them is gone, so that an accent finds
    its letter.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
