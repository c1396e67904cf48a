"""The real clock. Time enters the house here and nowhere else."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time for the journal, monotonic time for durations."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never jumps."""
        return time.monotonic_ns() // 1_000
