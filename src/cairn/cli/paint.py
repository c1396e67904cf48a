"""Rich consoles and colours: what a status looks like, and text that cannot act as markup."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cairn.cli.plain import visible
from cairn.cli.say import silence

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

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
    from rich.console import Console

    class Patient(Console):
        """A reader that has gone away ends the output, not the command and its exit code."""

        def on_broken_pipe(self) -> None:
            silence(sys.stdout)

    plain = not sys.stdout.isatty()
    made = Patient(highlight=False, markup=False, emoji=False)
    if plain and table:
        made.width = UNCUT
    elif made.width > WIDEST:
        made.width = WIDEST
    return made


def styled(status: str) -> Text:
    """A status in its colour."""
    from rich.text import Text

    return Text(status, style=STYLES.get(status, ""))


def line(*pieces: str | Text, style: str = "") -> Text:
    """Pieces with dots between them, made safe; empty ones are left out."""
    from rich.text import Text

    text = Text()
    for piece in pieces:
        if not piece:
            continue
        if text:
            text.append(" · ", style="dim")
        text.append_text(piece if isinstance(piece, Text) else Text(visible(piece)))
    if style:
        text.stylize(style)
    return text
