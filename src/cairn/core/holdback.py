"""Text as it arrives, held back where it could be the beginning of what must not be shown.

What is shown, taken together, is the whole text redacted. A word is held until it ends, because no
secret in any form goes on beyond it, except where a secret has spaces itself, or is a private key,
or stands in rows of base64 or hex.
"""

from __future__ import annotations

import re
import unicodedata

from cairn.core.encoded import open_rows
from cairn.core.redaction import Redaction
from cairn.core.unseen import unseen

CONTEXT = 128
"""Characters shown before that say what follows: `password =`, `Bearer`."""
LEAST_HELD = 1_024
LONGEST_WORD = 4_096
LONGEST_KEY = 16_384
"""A private key that has not ended by then is shown as one, and its rest as what it is."""
MARKS = 4
"""Rows of dashes around a private key: two where it begins, two where it ends."""
_ROW = re.compile("-----")
STRETCH = 12
"""How many times longer a character may be when it is escaped twice."""


class HoldBack:
    """Shows a text piece by piece without its secrets.

    Args:
        redaction: Says what they are.
    """

    __slots__ = ("_before", "_held", "_redaction")

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._before = ""
        self._held = ""

    def take(self, text: str) -> str:
        """More of the text has come; what of all that is held can be shown now."""
        self._held += text
        return self._shown(self._cut())

    def rest(self) -> str:
        """The text has ended; what was held."""
        return self._shown(len(self._held))

    def _shown(self, upto: int) -> str:
        if not upto:
            return ""
        raw, self._held = self._held[:upto], self._held[upto:]
        shown = self._redaction.after(self._before, raw)
        self._before = (self._before + raw)[-CONTEXT:]
        return shown

    def _cut(self) -> int:
        """How much of what is held is decided."""
        held = self._held
        cut = open_rows(held, self._word())
        key = held.rfind("-----BEGIN ")
        rows = [row.end() for row in _ROW.finditer(held, key)] if key >= 0 else []
        open_key = key >= 0 and len(rows) < MARKS and len(held) - key < LONGEST_KEY
        if open_key or (len(rows) >= MARKS and key < cut < rows[MARKS - 1]):
            cut = min(cut, key)
        cut = min(cut, self._spaced())
        kept = max(LEAST_HELD, STRETCH * self._redaction.longest)
        if not open_key and len(held) - cut > max(LONGEST_WORD, kept):
            cut = len(held) - kept
        return self._redaction.apart(held, cut) if cut else 0

    def _word(self) -> int:
        """Where the last word begins, which may go on."""
        held = self._held
        for at in range(len(held), 0, -1):
            if self._ends(held[at - 1]):
                return at
        return 0

    def _ends(self, character: str) -> bool:
        if character.isascii():
            return character.isspace()
        if unicodedata.combining(character) or unseen(character):
            return False
        plain = unicodedata.normalize("NFKC", character)
        return not any(c.isascii() or self._redaction.in_a_secret(c) for c in plain)

    def _spaced(self) -> int:
        """Where a secret that has spaces in it may have begun."""
        held, redaction = self._held, self._redaction
        if not redaction.spaced:
            return len(held)
        if not held.isascii() or any(sign in held for sign in "\\%\0"):
            return max(0, len(held) - STRETCH * redaction.longest)
        first = max(0, len(held) - redaction.longest)
        return next(
            (at for at in range(first, len(held)) if redaction.begins(held[at:])), len(held)
        )
