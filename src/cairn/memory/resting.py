"""How long an embedder that fails is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable

LONGEST_REST_S = 300.0
Clock = Callable[[], float]


class Rest:
    """How long somebody who fails is left alone: longer each time, until an answer comes.

    When the time is up one call finds out how it is; the others do not wait for that.
    """

    def __init__(self, first_s: float, clock: Clock) -> None:
        self._first_s = first_s
        self._clock = clock
        self._failures = 0
        self._since = self._until = -math.inf
        self._probing = False
        self.why = ""

    def begin(self) -> bool:
        """Whether a call may be made now; `end` says what came of it."""
        if not self._failures:
            return True
        if self._probing or self._clock() < self._until:
            return False
        self._probing = True
        return True

    def end(self, begun: float, why: str) -> None:
        """A call that was begun at this time is over; why it failed, or nothing."""
        self._probing = False
        if not why:
            self._failures, self.why = 0, ""
            return
        self.why = why
        if begun <= self._since:  # others have failed since: it is one and the same failure
            return
        self._failures += 1
        self._since = self._clock()
        rest = min(self._first_s * 2 ** min(self._failures - 1, 30), LONGEST_REST_S)
        self._until = self._since + rest

    def leave(self) -> None:
        """A call ended without saying anything, as it was cancelled."""
        self._probing = False
