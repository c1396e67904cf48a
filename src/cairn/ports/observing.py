"""What a clock and an observer promise, and what is shown without being kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cairn.core.events import Entry
from cairn.core.messages import Record


class Clock(Protocol):
    """Where time comes from."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never jumps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass; back-off is waited for with it."""
        ...


class Delta(Record):
    """Text as it arrives: shown, never kept."""

    run: str
    step: int
    attempt: int
    text: str


class Discard(Record):
    """What was shown of this attempt is void."""

    run: str
    step: int
    attempt: int


class Progress(Record):
    """A tool reports how far it is: shown, never kept."""

    run: str
    call: str
    message: str
    fraction: float | None = None


Observed = Entry | Delta | Discard | Progress
Observer = Callable[[str, Observed], None]
"""Called with the run id and what happened; must return at once and not raise."""
