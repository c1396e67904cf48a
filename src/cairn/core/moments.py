"""Moments as people read them, whatever number a clock has given."""

from __future__ import annotations

from datetime import UTC, datetime

SECOND_US = 1_000_000
YEAR_US = 31_556_952 * SECOND_US
"""The mean year of the Gregorian calendar."""
LAST_US = 253_402_300_800 * SECOND_US - 1
"""The last microsecond of the year 9999, behind which no calendar goes."""

NO_MOMENT = (ValueError, OverflowError, OSError)
"""What `datetime` raises of a number that is no moment of any calendar."""


def in_utc(us: int, form: str) -> str:
    """A moment in UTC as `form` has it; of one that no calendar has, the year alone.

    Args:
        us: Microseconds since 1970, UTC.
        form: As for `datetime.strftime`.
    """
    try:
        return datetime.fromtimestamp(us // SECOND_US, UTC).strftime(form)
    except NO_MOMENT:
        return year_of(us)


def year_of(us: int) -> str:
    """About which year a moment is in that no calendar has: `year 58885`."""
    return f"year {1970 + us // YEAR_US}"
