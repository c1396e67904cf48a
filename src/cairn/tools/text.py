"""Text that is cut: bounded, never cut inside a character."""

from __future__ import annotations

import msgspec

from cairn.core.messages import clean

HEAD_SHARE = 0.6
"""How much of a clipped text is its beginning; the rest is its end."""


def shorten(text: str, limit: int) -> str:
    """The cleaned text, cut to `limit` characters with an ellipsis if it is longer."""
    text = clean(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def preview(value: object, limit: int = 80) -> str:
    """A value as short JSON, for messages; `limit` is in characters."""
    try:
        text = msgspec.json.encode(value[:limit] if type(value) is str else value).decode()
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    if type(value) is str and len(value) > limit:
        text += "…"
    return shorten(text, limit)


def clip(text: str, max_bytes: int, artifact: str = "") -> tuple[str, bool]:
    """Bound a text by its size in UTF-8: keep its head (60 %) and its tail (40 %).

    Args:
        text: What may be too long.
        max_bytes: Size of what is returned, at most; a note alone may be larger than a tiny bound.
        artifact: Id under which the whole can be read, named in the note.

    Returns:
        The text (cleaned, with a note where it was cut) and whether it was cut.
    """
    text = clean(text)
    if len(text) * 4 <= max_bytes or (text.isascii() and len(text) <= max_bytes):
        return text, False
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text, False
    room = max(0, max_bytes - len(_note(len(text), artifact).encode()))
    head = raw[: int(room * HEAD_SHARE)].decode(errors="ignore")
    tail_from = len(raw) - (room - int(room * HEAD_SHARE))
    tail = raw[tail_from:].decode(errors="ignore")
    left_out = len(text) - len(head) - len(tail)
    return f"{head}{_note(left_out, artifact)}{tail}", True


def _note(left_out: int, artifact: str) -> str:
    more = f'; read_artifact("{artifact}") shows all of it' if artifact else ""
    return f"\n[… {left_out} characters left out{more} …]\n"
