"""Text of models, tools and people made safe to show, and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from cairn.core.views.words import money, short, span

__all__ = [
    "WANTED",
    "count",
    "day",
    "json_line",
    "money",
    "offset",
    "reasons",
    "span",
    "visible",
    "visible_line",
]

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, escape among them; not \t and \n
    "\u200b\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"  # hiding, breaking, reordering
    "\ud800-\udfff]"
)
SECOND_US = 1_000_000
WANTED = {"in_doubt": "in doubt: did it happen?", "takeover": "do it yourself"}
"""What people are asked about a call that waits for them, where its kind alone does not say it."""


def count(number: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def reasons(waits: Iterable[str]) -> str:
    """What a run waits for, as people read it: `approval, in doubt`."""
    return ", ".join("in doubt" if each == "in_doubt" else each for each in waits)


def visible(text: str) -> str:
    """Text that shows what is in it and commands nothing: no escape reaches the terminal.

    Control characters become their pictures (`␛`), and marks that hide or reorder their numbers.
    """
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def visible_line(text: str, limit: int = 120) -> str:
    """As `visible`, on one line and cut at `limit` characters."""
    return short(visible(text[: limit * 8]), limit)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def json_line(value: Any) -> str:
    """One JSON object on a line of its own; what could act on a terminal is escaped in it."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def offset(us: int) -> str:
    """A moment, counted from the start of the run: `+0.012s`, `+3:07.1`, `+2:03:07`."""
    seconds = us / SECOND_US
    if seconds < 60:
        return f"+{seconds:.3f}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"+{int(minutes)}:{rest:04.1f}"
    hours, minutes = divmod(int(minutes), 60)
    return f"+{hours}:{minutes:02d}:{int(rest):02d}"


def day(us: int) -> str:
    """A moment in the zone of whoever reads it: `2026-03-01 14:05:09`."""
    return datetime.fromtimestamp(us / SECOND_US, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
