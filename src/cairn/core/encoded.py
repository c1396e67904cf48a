"""Runs of base64 and of hex in a text, and what is written in them.

A run is read at each place where its first character may stand: a prefix that belongs to the same
alphabet hides nothing. It costs the same however many values are looked for, and next to nothing
where no run is long enough.
"""

from __future__ import annotations

import base64
import re
import string
from binascii import a2b_base64, a2b_hex
from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_BROKEN = 16
"""Places where bytes are no UTF-8; where there are more, only the ASCII of them is read."""
BROKEN = "\1"
"""Stands for a byte that is none of a text."""
ROW = 48
"""Characters that make a row of base64 or hex, which may go on in the next one: more than names
and ids have, and fewer than what breaks lines by rule makes (xxd 60, PEM 64, MIME 76)."""
WIDEST_GAP = 32
"""White space between two rows: the end of a line and how far the next one is set in."""
_BASE64 = (string.ascii_letters + string.digits + "+/-_").encode()
_READABLE = (string.printable[:95] + "\t\n\r").encode()


_WHITE = string.whitespace.encode()


def _table(kept: bytes, white: bytes = b"") -> bytes:
    """A table for `bytes.translate` that writes `a` for what is kept and `w` for white space."""
    return bytes(ord("a" if byte in kept else "w" if byte in white else " ") for byte in range(256))


_IN_BASE64 = _table(_BASE64, _WHITE)
_IN_HEX, _IS_READABLE = map(_table, (string.hexdigits.encode(), _READABLE))
_IN_WORDS = _table(bytes(byte for byte in range(256) if byte not in _WHITE))
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BROKEN = BROKEN.encode()
_ONLY_ASCII = bytes(byte if byte < 128 else _BROKEN[0] for byte in range(256))
_WHOLE_ROW = b"a" * ROW
_GAP = re.compile(b"w+")
_ROWS = re.compile(
    b"%b(?:w{1,%d}%b)*(?:w{1,%d}a+)?"
    % (_WHOLE_ROW + b"a*", WIDEST_GAP, _WHOLE_ROW + b"a*", WIDEST_GAP)
)


class Inner(NamedTuple):
    """What a run says when it is read from one place on.

    Attributes:
        text: What is written in it; what is no text in it is `BROKEN`.
        outer: The text that the run stands in.
        start: Where in `outer` its first byte begins.
        bits: How many a character of it holds.
    """

    text: str
    outer: str
    start: int
    bits: int

    def back(self, start: int, end: int) -> tuple[int, int, str]:
        """The characters of `outer` that depend on this part alone, and how they are written.

        How is `h` or `hu` for hex in small or capital letters, `b` or `bu` for base64 or its
        URL-safe alphabet, with how many bytes of the first three stand before.
        """
        if not self.text.isascii():
            size = len(self.text[start:end].encode())
            start = len(self.text[:start].encode())
            end = start + size
        first = self.start + -(-start * 8 // self.bits)
        last = self.start + end * 8 // self.bits
        core = self.outer[first:last]
        if self.bits == 4:
            return first, last, "hu" if core.isupper() else "h"
        return first, last, f"{'bu' if '-' in core or '_' in core else 'b'}{start % 3}"


def encodings(how: str) -> Callable[[bytes], str] | None:
    """What writes bytes as `Inner.back` says they were written."""
    if how in {"h", "hu"}:
        return bytes.hex if how == "h" else lambda raw: raw.hex().upper()
    if how[:-1] in {"b", "bu"} and how[-1] in "012":
        encode = base64.b64encode if how[:-1] == "b" else base64.urlsafe_b64encode
        return lambda raw: core(encode, raw, int(how[-1]))
    return None


def core(encode: Callable[[bytes], bytes], raw: bytes, shift: int) -> str:
    """The base64 characters that depend on `raw` alone when `shift` bytes stand before."""
    text = encode(bytes(shift) + raw).decode().rstrip("=")
    whole = (shift + len(raw)) * 8 // 6
    return text[-(-shift * 8 // 6) : whole]


def has_word(text: str, least: int) -> bool:
    """Whether so many characters stand together without white space (of ASCII)."""
    return b"a" * least in text.encode("ascii", "replace").translate(_IN_WORDS)


def has_run(text: str, least: int) -> bool:
    """Whether so many characters of base64 or its URL-safe alphabet stand together."""
    return b"a" * least in text.encode("ascii", "replace").translate(_IN_BASE64)


def _classes(text: str, table: bytes = _IN_BASE64) -> tuple[bytes, bytes]:
    """A text as bytes, and the class of each of them, as the table has it."""
    raw = text.encode("ascii", "replace")
    return raw, raw.translate(table)


def breaks(text: str) -> list[tuple[int, int]]:
    """The white space between rows of base64 or of hex, from and to.

    Only the last row may have fewer than 48 characters.
    """
    raw, classes = _classes(text)
    if b"w" not in classes:
        return []
    return [
        gap.span()
        for rows in _ROWS.finditer(classes)
        for gap in _GAP.finditer(classes, rows.start(), rows.end())
        if raw[gap.start() - ROW : gap.start()].strip(b"-_")  # else it is a line that was drawn
    ]


def open_rows(text: str, word: int) -> int:
    """Where the rows begin that the last word of a text, which begins at `word`, may go on.

    Returns:
        Where the word begins in which their first one stands; `word` where there are none.
    """
    _, classes = _classes(text)
    first = word
    while first and classes[first : first + 1] in {b"", b"a"}:
        upto = len(classes[:first].rstrip(b"w"))
        if not 0 < first - upto <= WIDEST_GAP or not classes.endswith(_WHOLE_ROW, 0, upto):
            break
        first = classes.rfind(b"w", 0, upto) + 1
    return first


class Runs:
    """Finds runs that hold at least so many bytes.

    Args:
        least: Bytes; shorter texts are not read.
    """

    __slots__ = ("_base64", "_hex", "_least", "_needed", "_readable")

    def __init__(self, least: int) -> None:
        self._readable = b"a" * least
        self._least = -(-least * 8 // 6)
        self._needed = min(self._least, ROW)
        self._base64 = re.compile(b"a" * self._least + b"a*")
        self._hex = re.compile(b"a" * least * 2 + b"a*")

    def near(self, text: str) -> bool:
        """Whether a text has a run or rows that may be long enough; cheap."""
        return len(text) >= self._least and has_run(text, self._needed)

    def read(self, text: str, but: str = "") -> Iterator[Inner]:
        """What the runs of a text say, from each place on, where it can be read at all.

        Args:
            text: The text.
            but: Another one whose runs were read before: the same ones are passed over.
        """
        raw, classes = _classes(text)
        known = frozenset(self._of(self._base64, *_classes(but))) if but else frozenset()
        for run in self._base64.finditer(classes):
            whole = raw[run.start() : run.end()]
            if whole in known:
                continue
            standard = whole.translate(_STANDARD)
            for shift in range(4):
                found = self._readable_part(_bytes_of(standard[shift:]))
                if found:
                    yield Inner(found, text, run.start() + shift, 6)
        if not self._hex.search(classes):
            return
        known = frozenset(self._of(self._hex, *_classes(but, _IN_HEX))) if but else frozenset()
        for run in self._hex.finditer(raw.translate(_IN_HEX)):
            if raw[run.start() : run.end()] in known:
                continue
            for shift in range(2):
                size = (run.end() - run.start() - shift) & ~1
                start = run.start() + shift
                found = self._readable_part(a2b_hex(raw[start : start + size]))
                if found:
                    yield Inner(found, text, start, 4)

    @staticmethod
    def _of(kind: re.Pattern[bytes], raw: bytes, classes: bytes) -> Iterator[bytes]:
        return (raw[run.start() : run.end()] for run in kind.finditer(classes))

    def _readable_part(self, data: bytes) -> str:
        """The bytes as text; empty where too few that are a text stand together."""
        if data.isascii():
            return data.decode() if self._is_readable(data) else ""
        text = _unbroken(data)
        if not text and self._is_readable(data):
            return data.translate(_ONLY_ASCII).decode()
        return text

    def _is_readable(self, data: bytes) -> bool:
        """Whether enough that is a text stands together, or with only NUL between (UTF-16)."""
        if b"\0" not in data:
            return self._readable in data.translate(_IS_READABLE)
        # what is UTF-16 may be a value with nothing else encoded: that is one character less
        return self._readable[1:] in data.translate(_IS_READABLE, b"\0")


def _unbroken(data: bytes) -> str:
    """UTF-8, `BROKEN` where a few bytes are none, as before and behind a text; else empty."""
    if len(data.decode("utf-8", "ignore").encode()) * 4 < len(data) * 3:
        return ""  # of what is none about a half is left: it need not be tried
    mended = bytearray(data)
    for _ in range(MOST_BROKEN):
        try:
            return mended.decode()
        except UnicodeDecodeError as error:
            mended[error.start : error.end] = _BROKEN * (error.end - error.start)
    return ""


def _bytes_of(run: bytes) -> bytes:
    over = len(run) % 4
    if over == 1:
        return a2b_base64(run[:-1])
    return a2b_base64(run + b"==="[over - 1 :] if over else run)
