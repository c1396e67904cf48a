"""The real clock. Time enters the house here and nowhere else."""

from __future__ import annotations

import asyncio
import time

from cairn.core.moments import LAST_US
from cairn.errors import ConfigError, safe_repr
from cairn.ports import Clock


class SystemClock:
    """Wall time for the journal, monotonic time for durations."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never jumps."""
        return time.monotonic_ns() // 1_000

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await asyncio.sleep(seconds)


def now_of(clock: Clock) -> int:
    """The time a clock gives, in microseconds since 1970, once it is plausible.

    What is recorded is dated with it for good, so a clock of another unit must not date anything.

    Raises:
        ConfigError: it gives no whole number, or none between 1970 and the year 9999.
    """
    now: object = clock.now_us()
    if isinstance(now, int) and not isinstance(now, bool) and 0 <= now <= LAST_US:
        return now
    given = safe_repr(now)
    if not isinstance(now, int) or isinstance(now, bool):
        why = "which is no whole number"
    else:
        why = "which is before 1970" if now < 0 else "which is beyond the year 9999"
    raise ConfigError(
        "Runtime.clock",
        f"{type(clock).__name__}.now_us() gave {given}, {why}",
        "It counts microseconds since 1970, UTC, as time.time_ns() // 1_000 does",
    )


def check_clock(clock: Clock | None) -> None:
    """Ask a clock once, if there is one: a wrong unit shows before it has dated anything.

    Raises:
        ConfigError: it is none; or as `now_of`.
    """
    if clock is None:
        return
    verbs = ("now_us", "monotonic_us", "sleep")
    if isinstance(clock, type) or not all(callable(getattr(clock, v, None)) for v in verbs):
        fix = "Give an object with now_us(), monotonic_us() and an async sleep(seconds)"
        raise ConfigError("Runtime.clock", f"{safe_repr(clock)} is no clock", fix)
    now_of(clock)
