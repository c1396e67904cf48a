"""The real clock. Time enters the house here and nowhere else."""

from __future__ import annotations

import asyncio
import time


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
