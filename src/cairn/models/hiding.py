"""What others say, without the keys that they repeat: whole, in part, or with stars in the middle.

Providers quote the key they refuse, in any of these ways, and what they say is kept in journals.
The shapes of keys are those of the cassette's redaction; here is only what it leaves alone, since a
tape must stay what was said: pieces of one known key, and keys inside addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from cairn.models.cassette.redaction import SHORTEST_SECRET, Redactor

HIDDEN = "«key»"
SHORTEST_END = 4
"""Characters of a key's end that are hidden when they stand alone, as in "ending in wxyz"."""
SHORTEST_BEGINNING = 6
SHORTEST_MASKED = 2
"""The same beside stars or dots, which say that there was more."""

_MASKED = re.compile(r"[^\s\"'`]*\*{3,}[^\s\"'`]*")
_WORD = re.compile(r"[^\s\"'`<>(){}\[\],;:«»]+")
_DOTS = re.compile(r"\*{2,}|\.{2,}|…|•+")
_IN_ADDRESS = re.compile(
    r"([?&;](?:[\w-]*(?:key|token|secret|password|signature)|sig|auth)=)[^&\s\"'<>#]+",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/\s@\"']+@")


class Hider:
    """Hides keys in a text.

    Args:
        secrets: What must not be shown, not even in part. Shorter ones than 8 characters are too
            likely to be plain words, and are left alone.
        environ: Where other known secrets are looked for, by the ends of their names.
    """

    def __init__(
        self, secrets: Iterable[str] = (), environ: Mapping[str, str] = os.environ
    ) -> None:
        self._secrets = [each for each in secrets if len(each) >= SHORTEST_SECRET]
        self._redactor = Redactor(environ, self._secrets)
        self._pieces = {
            secret[at : at + SHORTEST_SECRET]
            for secret in self._secrets
            for at in range(len(secret) - SHORTEST_SECRET + 1)
        }

    def text(self, text: str) -> str:
        """The text without keys."""
        text = _LOGIN.sub(f"{HIDDEN}@", _IN_ADDRESS.sub(rf"\g<1>{HIDDEN}", text))
        text = _MASKED.sub(HIDDEN, self._redactor.text(text))
        return _WORD.sub(lambda word: self._word(word[0]), text) if self._secrets else text

    def _word(self, word: str) -> str:
        spans = [
            at
            for at in range(len(word) - SHORTEST_SECRET + 1)
            if word[at : at + SHORTEST_SECRET] in self._pieces
        ]
        if spans:
            return f"{word[: spans[0]]}{HIDDEN}{word[spans[-1] + SHORTEST_SECRET :]}"
        left, *others = _DOTS.split(word)
        right = others[-1] if others else ""
        if others and (self._begins(left, SHORTEST_MASKED) or self._ends(right, SHORTEST_MASKED)):
            return HIDDEN
        bare = word.strip(".!?")
        shown = self._begins(bare, SHORTEST_BEGINNING) or self._ends(bare, SHORTEST_END)
        return word.replace(bare, HIDDEN) if shown else word

    def _begins(self, text: str, least: int) -> bool:
        return len(text) >= least and any(each.startswith(text) for each in self._secrets)

    def _ends(self, text: str, least: int) -> bool:
        return len(text) >= least and any(each.endswith(text) for each in self._secrets)


def secrets_of(key: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What of a model's options must not be shown: its key, and what its headers authorise with."""
    named = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
    return (key, *(value.rpartition(" ")[2] for value in named))


_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
