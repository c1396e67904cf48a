"""What bytes are: text in UTF-8 with its marks and line endings, or something else, by name."""

from __future__ import annotations

import codecs
from typing import Literal

from cairn.core.messages import Record
from cairn.workspace.refusals import NotText

BOM = "\ufeff"
HEAD = 4_096
"""Bytes that are looked at to say what a file is."""
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "a program for Linux"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old office document"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
)
MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32 LE"),
    (codecs.BOM_UTF32_BE, "UTF-32 BE"),
    (codecs.BOM_UTF16_LE, "UTF-16 LE"),
    (codecs.BOM_UTF16_BE, "UTF-16 BE"),
)
OLD_ENCODINGS = ("gb18030", "shift_jis", "euc_kr", "big5", "cp1252")
"""Tried on what is text but no UTF-8; several may fit, all that do are named."""

Endings = Literal["none", "LF", "CRLF", "mixed"]


class TextFile(Record):
    """A text file as it was read.

    Args:
        text: All of it, without its byte-order mark, line endings as they are.
        bom: Whether a byte-order mark stands in front; it is kept when the file is edited.
    """

    text: str
    bom: bool = False

    def encoded(self, text: str | None = None) -> bytes:
        """The bytes of this file, or of another text in its place."""
        body = self.text if text is None else text
        return f"{BOM}{body}".encode() if self.bom else body.encode()


def decode(data: bytes, told: str) -> TextFile:
    """The text of a file.

    Args:
        told: The file's path, for the message.

    Raises:
        NotText: it is no UTF-8, or holds NUL; says what it may be, and its size.
    """
    if (text := as_text(data)) is None:
        said = f"{told} holds no UTF-8 text: it is {what_it_is(data)}, {len(data):,} bytes"
        raise NotText(f"{said}. It was left as it is")
    return TextFile(text=text.removeprefix(BOM), bom=text.startswith(BOM))


def as_text(data: bytes) -> str | None:
    """The text, if it is UTF-8 without NUL, with its byte-order mark; else None."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def what_it_is(data: bytes) -> str:
    """In words: an encoding it may be in, a file type, or binary data."""
    for magic, name in MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] in {b"WEBP", b"WAVE", b"AVI "}:
        return f"{data[8:12].decode().strip()} media"
    for mark, name in MARKS:
        if data.startswith(mark):
            return f"text in {name}"
    head = data[:HEAD]
    if b"\0" in data:
        return _by_zeros(head)
    if sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head) > len(head) // 50:
        return "binary data"
    fitting = [name for name in OLD_ENCODINGS if _fits(data, name)]
    if sum(byte < 128 for byte in head) * 2 > len(head):  # few accents among plain letters
        fitting.reverse()
    return f"text that may be in {' or '.join(fitting or ['latin-1'])}"


def _by_zeros(head: bytes) -> str:
    """UTF-16 without a mark has its zeros in every second place."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if len(head) >= 4 and max(even, odd) > len(head) // 4 and min(even, odd) <= len(head) // 50:
        return f"text that may be in UTF-16 {'LE' if odd > even else 'BE'} without a mark"
    return "binary data"


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


# ---------------------------------------------------------------- lines


def lines_of(text: str) -> list[tuple[str, str]]:
    r"""Lines and their endings, `\n` or `\r\n`; only the last may have none. No other breaks."""
    found: list[tuple[str, str]] = []
    pieces = text.split("\n")
    for piece in pieces[:-1]:
        body = piece.removesuffix("\r")
        found.append((body, "\r\n" if len(body) < len(piece) else "\n"))
    if pieces[-1]:
        found.append((pieces[-1], ""))
    return found


def endings_of(text: str) -> Endings:
    """Which line endings a text has."""
    crlf = text.count("\r\n")
    plain = text.count("\n") - crlf
    if crlf and plain:
        return "mixed"
    return "CRLF" if crlf else "LF" if plain else "none"
