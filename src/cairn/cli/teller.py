"""One event as one line: for logs, for the live view, and for a store's own journal."""

from __future__ import annotations

from cairn.cli.plain import offset
from cairn.core.events import (
    Entry,
    ToolRedirected,
    ToolStarted,
    Turn,
)
from cairn.core.messages import calls_of
from cairn.core.views.words import words

NAME_WIDTH = 20


class LineTeller:
    """Events of one run as lines; it remembers when the run began and which tool a call is of."""

    def __init__(self) -> None:
        self.begun = 0
        self._tools: dict[str, str] = {}

    def tell(self, entry: Entry, *, since_begin: bool = True) -> str:
        """`+0.012s    3 model.completed      step 1 · "…"`."""
        event = entry.event
        self.begun = self.begun or entry.at
        match event:
            case turn if isinstance(turn, Turn):
                self._tools.update({part.id: part.name for part in calls_of(turn.parts)})
            case ToolRedirected() | ToolStarted() if event.tool:
                self._tools[event.call] = event.tool
        pieces = (
            f"step {entry.step}" if entry.step else "",
            self._tools.get(getattr(event, "call", ""), ""),
            words(event),
            f"by {entry.actor}" if entry.actor else "",
        )
        told = " · ".join(filter(None, pieces))
        time = f"{offset(entry.at - self.begun):>9} " if since_begin else ""
        return f"{time}{entry.seq:>4} {event.NAME.ljust(NAME_WIDTH)} {told}".rstrip()
