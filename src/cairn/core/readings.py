"""A text as it reads with an encoding taken off, and the way back to where it stood.

Taken off are escapes of URLs and of JSON, letters of other widths, what is not seen, NUL between
characters (a text of UTF-16), and what breaks base64 or hex into rows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from cairn.core.encoded import breaks
from cairn.core.unseen import as_seen, unseen

MOST_LAYERS = 3
"""How many encodings one over the other are looked through."""

Piece = tuple[int, int, str]
"""Where something stands, from and to, and what is read there."""

_ESCAPED = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|x(?P<two>[0-9a-fA-F]{2})|(?P<one>[\"'\\/bfnrt]))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SECOND = frozenset(
    "\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u102e"
    "\u1b35\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930"
)
"""What composes with the letter before it though it is no accent (combining class 0)."""
_NUL = re.compile("\0+")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*")


class View:
    """A text with one encoding taken off, and the way back to where it stood."""

    __slots__ = ("_before", "_marks", "text")

    def __init__(self, before: View | None, pieces: list[Piece], text: str) -> None:
        """`pieces` are start, end and what is read there; the rest stays as it is."""
        marks: list[tuple[int, int, int, int]] = []  # here from and to, there from and to
        out: list[str] = []
        here = there = 0
        for start, end, read in pieces:
            out.append(text[there:start])
            here += start - there
            marks.append((here, here + len(read), start, end))
            out.append(read)
            here += len(read)
            there = end
        out.append(text[there:])
        self.text = "".join(out)
        self._marks = marks
        self._before = before

    def back(self, start: int, end: int) -> tuple[int, int]:
        """The place in the first text that this one stands for."""
        first, last = self._place(start, False), self._place(end - 1, True)
        return (first, last) if self._before is None else self._before.back(first, last)

    def _place(self, at: int, after: bool) -> int:
        low, high = 0, len(self._marks)
        while low < high:
            middle = (low + high) // 2
            if self._marks[middle][0] <= at:
                low = middle + 1
            else:
                high = middle
        if not low:
            return at + after
        _, upto, there, end = self._marks[low - 1]
        if at < upto:
            return end if after else there
        return end + (at - upto) + after


def views(text: str, alphabet: frozenset[str], layers: int = MOST_LAYERS) -> Iterator[View]:
    """The text as it reads with up to three encodings taken off, in every order.

    NUL is taken out of every one of them, which counts as none: between the characters of a text
    it says that they are UTF-16, and no value holds one.
    """
    level: list[tuple[View | None, str]] = [(None, text)]
    if "\0" in text:
        bare = _without_nul(None, text)
        yield bare
        level = [(bare, bare.text)]
    seen = [text]
    for _ in range(layers):
        following: list[tuple[View | None, str]] = []
        for before, each in level:
            for pieces in (_percent(each), _backslash(each), _wide(each, alphabet)):
                if pieces:
                    view = View(before, pieces, each)
                    if "\0" in view.text:
                        view = _without_nul(view, view.text)
                    if view.text in seen:
                        continue  # in another order it comes to the same
                    seen.append(view.text)
                    following.append((view, view.text))
                    yield view
        level = following


def _without_nul(before: View | None, text: str) -> View:
    return View(before, [(m.start(), m.end(), "") for m in _NUL.finditer(text)], text)


def in_one_row(text: str) -> View | None:
    """The text with rows of base64 or hex put together; None where there are none."""
    pieces = [(start, end, "") for start, end in breaks(text)]
    return View(None, pieces, text) if pieces else None


def _percent(text: str) -> list[Piece]:
    if "%" not in text:
        return []
    pieces = []
    for match in _PERCENT.finditer(text):
        raw = bytes.fromhex(match[0].replace("%", ""))
        if raw.isascii():
            at = match.start()
            pieces += [(at + 3 * n, at + 3 * n + 3, chr(byte)) for n, byte in enumerate(raw)]
        else:
            pieces.append((match.start(), match.end(), raw.decode("utf-8", "replace")))
    return pieces


def _backslash(text: str) -> list[Piece]:
    if "\\" not in text:
        return []
    return [(m.start(), m.end(), _read(m)) for m in _ESCAPED.finditer(text)]


def _read(escaped: re.Match[str]) -> str:
    if escaped.lastgroup == "one":
        return _SHORT.get(escaped["one"], escaped["one"])
    if escaped["high"]:
        high, low = int(escaped["high"], 16), int(escaped["low"], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    return chr(int(escaped["four"] or escaped["two"], 16))


def _wide(text: str, alphabet: frozenset[str]) -> list[Piece]:
    """Letters in another width or style, accents apart from their letter, and what is not seen.

    Only what reads as a letter of the alphabet is looked at: of a text in Chinese next to nothing.
    """
    wanted = that_matter(text, alphabet)
    if not wanted:
        return []
    pieces: list[Piece] = []
    done = 0
    for at, character in enumerate(text):
        if at < done or character not in wanted:
            continue
        done = at + 1
        while done < len(text) and (joins(text[done]) or unseen(text[done])):
            done += 1
        start, read = at, as_seen(text[at:done])
        if at and any(map(joins, text[at:done])) and (joins(character) or unseen(character)):
            whole = as_seen(text[at - 1 : done])
            if whole != text[at - 1] + read:  # it is read together with what stands before it
                start, read = at - 1, whole
        if read != text[start:done]:
            pieces.append((start, done, read))
    return pieces


def that_matter(text: str, alphabet: frozenset[str]) -> set[str]:
    """The characters that may make a value of what is not written as one."""
    if text.isascii():
        return set()
    return {c for c in set(text) if not c.isascii() and _matters(c, alphabet)}


def _matters(character: str, alphabet: frozenset[str]) -> bool:
    return _odd(character) and (
        joins(character)
        or unseen(character)
        or not alphabet.isdisjoint(unicodedata.normalize("NFKC", character))
    )


@lru_cache(maxsize=65_536)
def _odd(character: str) -> bool:
    return (
        unicodedata.normalize("NFKC", character) != character
        or joins(character)
        or unseen(character)
    )


def joins(character: str) -> bool:
    """Whether it is read together with what stands before it: an accent, a part of a syllable."""
    if unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff":
        return True
    return character in _SECOND
