"""Text of models, tools and people made safe to show, and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from cairn.core.moments import NO_MOMENT, SECOND_US, year_of
from cairn.core.views.words import money, short, span
from cairn.core.visible import beginning_as_read, by_number, in_json

__all__ = [
    "WANTED",
    "arguments_line",
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

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
WANTED = {"in_doubt": "in doubt: did it happen?", "takeover": "do it yourself"}
"""What people are asked about a call that waits for them, where its kind alone does not say it."""


def count(number: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def reasons(waits: Iterable[str]) -> str:
    """What a run waits for, as people read it: `approval, in doubt`."""
    return ", ".join("in doubt" if each == "in_doubt" else each for each in waits)


def visible(text: str) -> str:
    r"""Text that shows what is in it and commands nothing: no escape reaches the terminal.

    Control characters become their pictures (`␛`), and what nobody sees, hides or reorders its
    number (`\u200f`, `\U000e0041`).
    """
    return by_number(_COMMANDS.sub(_picture, text.replace("\r\n", "\n")))


def visible_line(text: str, limit: int = 120) -> str:
    """As `visible`, on one line and cut at `limit` characters; that it was cut is always seen."""
    more = "…" if len(text) > limit * 8 else ""  # what is cut off anyway is not looked at
    return short(visible(text[: limit * 8]) + more, limit)


def arguments_line(text: str, limit: int = 120) -> str:
    """A call's arguments as `visible_line` shows them, with the letters that the tool gets."""
    return visible_line(beginning_as_read(text, limit), limit)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "\u2421" if code == 0x7F else chr(0x2400 + code)


def json_line(value: Any) -> str:
    """One JSON object on a line of its own; what could act on a terminal is escaped in it."""
    return in_json(msgspec.json.encode(value, enc_hook=str).decode()) + "\n"


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
    """A moment in the zone of whoever reads it: `2026-03-01 14:05:09`; or only `year 58885`."""
    try:
        moment = datetime.fromtimestamp(us // SECOND_US, UTC).astimezone()
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    except NO_MOMENT:  # some clock gave it, and nothing that was recorded is kept from its reader
        return year_of(us)
