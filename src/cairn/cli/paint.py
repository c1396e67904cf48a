"""Rich consoles and colours: what a status looks like, and text that cannot act as markup."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from cairn.cli.plain import visible

WIDEST = 120
UNCUT = 400
"""Columns of a table that goes into a file or a pipe: nothing in it is cut off."""

STYLES = {
    "completed": "green",
    "granted": "green",
    "allow": "green",
    "running": "cyan",
    "started": "cyan",
    "queued": "cyan",
    "open": "cyan",
    "waiting": "yellow",
    "asking": "yellow",
    "question": "yellow",
    "retrying": "yellow",
    "ask": "yellow",
    "paused": "yellow",
    "takeover": "bold magenta",
    "unknown": "bold magenta",
    "lost": "bold magenta",
    "failed": "red",
    "denied": "red",
    "rejected": "red",
    "reject": "red",
    "expired": "red",
    "stopped": "red",
    "cancelled": "red",
}


def console(*, table: bool = False) -> Console:
    """A console on standard output, at most 120 columns wide; tables in a pipe are not cut."""
    plain = not sys.stdout.isatty()
    made = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    if plain and table:
        made.width = UNCUT
    elif made.width > WIDEST:
        made.width = WIDEST
    return made


def styled(status: str) -> Text:
    """A status in its colour."""
    return Text(status, style=STYLES.get(status, ""))


def line(*pieces: str | Text, style: str = "") -> Text:
    """Pieces with dots between them, made safe; empty ones are left out."""
    shown = [p if isinstance(p, Text) else Text(visible(p)) for p in pieces if p]
    return Text(" · ", style="dim").join(shown) if not style else _all(shown, style)


def _all(shown: list[Text], style: str) -> Text:
    text = Text(" · ").join(shown)
    text.stylize(style)
    return text
