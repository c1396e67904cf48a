"""What is shown while a run moves: a live view on a terminal, else one line for each event."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from cairn.cli.plain import offset
from cairn.cli.say import complain, print_line
from cairn.core.events import Entry
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
        self._begun = 0

    def show(self, what: Observed) -> None:
        """A line for an event; text that only streams by is not for a log."""
        if not isinstance(what, Entry):
            return
        self._begun = self._begun or what.at
        if what.seq > self._known and what.event.NAME.startswith(self._only):
            print_line(event_line(what, self._begun))

    def say(self, text: str) -> None:
        """In its place among the events."""
        print_line(f"-- {text}")


def event_line(entry: Entry, begun: int = 0, long: int = 120) -> str:
    """`+0.012s    3 model.completed      step 1 · "…"`, without the time when `begun` is 0."""
    step = f"step {entry.step}" if entry.step else ""
    actor = f"by {entry.actor}" if entry.actor else ""
    told = " · ".join(filter(None, (step, words(entry.event, long), actor)))
    name = entry.event.NAME.ljust(NAME_WIDTH)
    time = f"{offset(entry.at - begun):>9} " if begun else ""
    return f"{time}{entry.seq:>4} {name} {told}".rstrip()


def screen_for(run: str, known: int, only: tuple[str, ...], *, quiet: bool) -> Screen:
    """The screen that fits where standard output goes."""
    if quiet:
        return Silent()
    if not sys.stdout.isatty():
        return Lines(known, only)
    from cairn.cli.live import Live

    return Live(run, known, only)
