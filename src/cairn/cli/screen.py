"""What is shown while a run moves: a live view on a terminal, else one line for each event."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from cairn.cli.say import complain, print_line
from cairn.cli.teller import LineTeller
from cairn.core.events import Entry
from cairn.ports import Observed


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


def screen_for(run: str, known: int, only: tuple[str, ...], *, quiet: bool) -> Screen:
    """The screen that fits where standard output goes."""
    if quiet:
        return Silent()
    if not sys.stdout.isatty():
        return Lines(known, only)
    from cairn.cli.live import Live

    return Live(run, known, only)
