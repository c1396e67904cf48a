"""What is shown while a run moves: a live view on a terminal, else one line for each event."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from cairn.cli.plain import offset
from cairn.cli.say import complain, print_line
from cairn.core.events import Entry, ModelCompleted
from cairn.core.messages import calls_of
from cairn.core.views_words import words
from cairn.ports import Observed

NAME_WIDTH = 20


class Screen(Protocol):
    """Shows what happens in one run. It is told everything, in order."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, what: Observed) -> None:
        """Take in what happened; events up to the number given at the start are known."""
        ...

    def say(self, text: str) -> None:
        """A word of the command itself."""
        ...


class Silent:
    """Shows nothing but the command's own words, and those on standard error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, what: Observed) -> None:
        """Nothing is shown."""

    def say(self, text: str) -> None:
        """On standard error, so that the result stays alone."""
        complain(text)


class Lines(Silent):
    """One line for each new event.

    Args:
        known: Events up to this number are not shown again.
        only: Beginnings of the names of events that are shown.
    """

    def __init__(self, known: int = 0, only: tuple[str, ...] = ("",)) -> None:
        self._known = known
        self._only = only
        self._teller = LineTeller()

    def show(self, what: Observed) -> None:
        """A line for an event; text that only streams by is not for a log."""
        if not isinstance(what, Entry):
            return
        told = self._teller.tell(what)
        if what.seq > self._known and what.event.NAME.startswith(self._only):
            print_line(told)

    def say(self, text: str) -> None:
        """In its place among the events."""
        print_line(f"-- {text}")


class LineTeller:
    """Events of one run as lines; it remembers when the run began and which tool a call is of."""

    def __init__(self) -> None:
        self.begun = 0
        self._tools: dict[str, str] = {}

    def tell(self, entry: Entry, *, since_begin: bool = True) -> str:
        """`+0.012s    3 model.completed      step 1 · "…"`."""
        event = entry.event
        self.begun = self.begun or entry.at
        if isinstance(event, ModelCompleted):
            self._tools.update({part.id: part.name for part in calls_of(event.parts)})
        pieces = (
            f"step {entry.step}" if entry.step else "",
            self._tools.get(getattr(event, "call", ""), ""),
            words(event),
            f"by {entry.actor}" if entry.actor else "",
        )
        told = " · ".join(filter(None, pieces))
        time = f"{offset(entry.at - self.begun):>9} " if since_begin else ""
        return f"{time}{entry.seq:>4} {event.NAME.ljust(NAME_WIDTH)} {told}".rstrip()


def screen_for(run: str, known: int, only: tuple[str, ...], *, quiet: bool) -> Screen:
    """The screen that fits where standard output goes."""
    if quiet:
        return Silent()
    if not sys.stdout.isatty():
        return Lines(known, only)
    from cairn.cli.live import Live

    return Live(run, known, only)
