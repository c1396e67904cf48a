"""What was found of texts a short while ago, by the texts themselves."""

from __future__ import annotations

from typing import Literal

How = Literal["text", "json", "id"]
"""What a text was read as."""
MOST_REMEMBERED = 256
MOST_CHARS = 1_000_000
"""Of all texts that are remembered; a longer one is not."""

Known = dict[str, str]


class Remembered:
    """What texts became, by the texts; bounded, and empty until something is kept.

    What lands is redacted, and again when it is recorded: the second time finds it here. Two
    generations, so that what was just seen is never forgotten to make room.

    Attributes:
        text, json, id: What texts that were read so became, those seen last; for a quick look.
    """

    __slots__ = ("_chars", "_count", "_old", "id", "json", "text")

    def __init__(self) -> None:
        self._old: dict[How, Known] | None = None
        self._chars = self._count = 0
        self.text: Known = {}
        self.json: Known = {}
        self.id: Known = {}

    def get(self, text: str, how: How) -> str | None:
        """What the text became; None when that is not known any more."""
        known: str | None = getattr(self, how).get(text)
        if known is None and self._old is not None:
            known = self._old[how].get(text)
        return known

    def keep(self, text: str, how: How, known: str) -> None:
        """Remember what the text became; what it became is looked for as well, and stays so."""
        if self._chars >= MOST_CHARS or self._count >= MOST_REMEMBERED:
            self._old = {"text": self.text, "json": self.json, "id": self.id}
            self.text, self.json, self.id = {}, {}, {}
            self._chars = self._count = 0
        new: Known = getattr(self, how)
        new[text] = known
        self._chars += len(text)
        self._count += 1
        if known is not text:
            new[known] = known
            self._chars += len(known)
            self._count += 1
