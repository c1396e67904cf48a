"""What a lane learns of its provider: how much a minute, how many at once, when to rest.

Nothing in here waits, locks or reads a clock: times come in, and waits come out as seconds. What
may be concluded from refusals, and what not:

- A burst is on its way before its first refusal is back. All refusals of requests that had entered
  by then are one episode: they count once for the cool-down, and each corrects the estimate. The
  last of them leaves in flight what was accepted, so that is the new bound. Requests that entered
  after the last one that was refused do not count: they may not have arrived yet. Nor do those
  that entered later before it, or ended sooner after it, than the quickest refusal took there and
  back. And of more than are proven (below) one does not count.
- Accepted requests may end before late refusals are back, and then the bound comes out too low.
  But a request is with the provider from as long after its entry as the slowest refusal took there
  and back, until as long before its end. The most that were so at once, and all ended well, is
  the ceiling, up to which each success widens the bound by one. What takes no longer than a
  refusal therefore proves nothing: then the lane stays narrow, and opens by daring only.
- A refusal is no evidence about concurrency if nothing that was let by overlapped it (a request
  that was alone, or a burst refused as a whole): it speaks of a rate, or of others' traffic. Then
  the ceiling stays; a lane without a bound opens again one by one instead of all at once.
- A bound at its ceiling may be out of date. After a minute without refusals one more is dared. If
  that is refused, the next time comes after twice as long; if not, after half as long.
- Whoever had entered when a refusal came back is on the way and is not called back.

Only what `SIGNS` names says anything of a provider. The rest (cancelled, invalid, our own faults)
gives the place back and changes neither health nor bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate
from math import inf
from typing import Literal

from cairn.core.ladder import RETRY_AFTER_CAP_US
from cairn.errors import ErrorClass

MINUTE_S = 60.0
ASKED_CAP_S = RETRY_AFTER_CAP_US / 1e6
"""A provider's wish to wait is kept up to this long, by the lane as by the run."""
REFUSED_CAP_S = 60.0
"""The longest rest after refusals that did not say how long to wait."""
TROUBLE_CAP_S = 30.0
"""The longest rest of a provider that is out of order."""
IN_A_ROW = 3
"""So many troubles in a row, over all runs, put a provider to rest."""
QUIET_S = 60.0
"""So long nothing must have been refused before one request more is dared."""
QUIET_CAP_S = 3600.0
QUIET_LEAST_S = 7.5

REMEMBERED = 512
"""So many of the requests that ended well are looked at when one is refused."""

Moment = tuple[float, int]
"""Seconds, and which came first of what happened at the same time."""

Sign = Literal["refusal", "overload", "trouble", "nothing"]
SIGNS: dict[ErrorClass, Sign] = dict.fromkeys(ErrorClass, "nothing")
SIGNS |= {
    ErrorClass.RATE_LIMITED: "refusal",
    ErrorClass.OVERLOADED: "overload",  # a refusal that is also trouble
    ErrorClass.UNAVAILABLE: "trouble",
    ErrorClass.TIMEOUT: "trouble",
    ErrorClass.NETWORK: "trouble",
    ErrorClass.STREAM_INTERRUPTED: "trouble",
}
"""What each class of fault says of the provider; the only place that knows."""


# ---------------------------------------------------------------- per minute


class Part:
    """What one request took of a minute's allowance."""

    __slots__ = ("amount", "at", "gone")

    def __init__(self, at: float, amount: int) -> None:
        self.at = at
        self.amount = amount
        self.gone = False


class Minute:
    """A bucket whose content comes back a minute after it was taken, part by part.

    So no 60 seconds see more than the limit, which a bucket that refills evenly would not promise.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: deque[Part] = deque()
        self._sum = 0

    def wait(self, now: float, amount: int) -> float:
        """Seconds until this much may be taken. More than the limit needs an empty minute."""
        while self._parts and self._parts[0].at + MINUTE_S <= now:
            part = self._parts.popleft()
            part.gone = True
            self._sum -= part.amount
        over = self._sum + min(amount, self.limit) - self.limit
        if not self.limit or over <= 0:
            return 0.0
        due = now
        for part in self._parts:
            over -= part.amount
            due = part.at + MINUTE_S
            if over <= 0:
                break
        return due - now

    def take(self, now: float, amount: int) -> Part:
        part = Part(now, amount)
        if self.limit:
            self._parts.append(part)
            self._sum += amount
        else:
            part.gone = True
        return part

    def settle(self, part: Part, amount: int) -> None:
        if not part.gone:
            self._sum += amount - part.amount
            part.amount = amount


# ---------------------------------------------------------------- rest


class Rest:
    """How long a provider is left alone, and who may go first afterwards."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._asked_until = 0.0
        self._refusals = 0
        self._refused_to = 0
        self._in_row = 0
        self._troubles = 0
        self._troubled_to = 0
        self._troubled_until = 0.0
        self._one_first = False
        self._first = 0

    def wait(self, now: float) -> float:
        until = max(self._asked_until, self._troubled_until)
        if now < until:
            return until - now
        return inf if self._one_first and self._first else 0.0

    @property
    def until(self) -> float:
        return max(self._asked_until, self._troubled_until)

    def entered(self, seq: int) -> None:
        if self._one_first:
            self._first = seq

    def ended(self, seq: int) -> None:
        if seq == self._first:
            self._first = 0

    def well(self, seq: int) -> None:
        """A reply: the provider works. What it asked for is kept all the same."""
        self._in_row = self._troubles = 0
        self._troubled_until = 0.0
        self._one_first = False
        self._first = 0
        if seq > self._refused_to:
            self._refusals = 0

    def asked(self, now: float, seconds: float) -> None:
        self._asked_until = max(self._asked_until, now + min(seconds, ASKED_CAP_S))

    def refused(self, seq: int, last: int, now: float, asked_s: float) -> None:
        """`seq` was refused and `last` is the last that has entered."""
        anew = seq > self._refused_to
        if anew:
            self._refused_to = last
            self._refusals += 1
        if asked_s > 0:
            self.asked(now, asked_s)
        elif anew:
            self.asked(now, self._doubled(self._refusals, REFUSED_CAP_S))

    def troubled(self, seq: int, last: int, now: float) -> None:
        self._in_row += 1
        if self._in_row < IN_A_ROW or seq <= self._troubled_to:
            return
        self._troubled_to = last
        self._troubles += 1
        self._troubled_until = now + self._doubled(self._troubles, TROUBLE_CAP_S)
        self._one_first = True

    def _doubled(self, times: int, cap_s: float) -> float:
        return min(cap_s, 2.0 ** min(times - 1, 16)) * (0.75 + self._jitter() / 4)


# ---------------------------------------------------------------- how many at once


class Entry:
    """One request that was let in, and what was so when it was."""

    __slots__ = ("at", "let_by", "requests", "seq", "tick", "tokens")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.at = 0.0
        self.tick = 0
        self.let_by = 0
        self.requests = self.tokens = Part(0.0, 0)


class Room:
    """How many requests at once the provider seems to take; the module says by what reasoning."""

    def __init__(self) -> None:
        self.bound = inf
        self._ceiling = inf
        self._before = (inf, inf)  # bound and ceiling as the present episode found them
        self._evident = False
        self._left: set[int] = set()  # what the last refusal left in flight
        self._refused_at = 0.0
        self._episode = 0  # the last that had entered when the episode began
        self._refused_to = 0
        self._let_by = 0  # ends that were no refusals
        self._let_by_before = 0
        self._tick = 0  # orders what happens at one time
        self._way = 0.0  # the longest way of a refusal, there and back
        self._quick = inf  # and the shortest
        self._well: deque[tuple[int, Moment, Moment]] = deque(maxlen=REMEMBERED)
        self._quiet_s = QUIET_S
        self._quiet_since = 0.0
        self._dared = 0

    def wait(self, in_flight: int, now: float) -> float:
        if in_flight < self.bound:
            return 0.0
        if in_flight > self.bound or self.bound < self._ceiling:
            return inf
        due = self._quiet_since + self._quiet_s
        return due - now if now < due else 0.0

    def entered(self, entry: Entry, in_flight: int, now: float) -> None:
        if in_flight > self.bound:
            self.bound = self._ceiling = in_flight
            self._dared, self._quiet_since = entry.seq, now
        self._tick += 1
        entry.at, entry.tick = now, self._tick
        entry.let_by = self._let_by

    def well(self, entry: Entry, now: float) -> None:
        self._let_by += 1
        self._tick += 1
        self._well.append((entry.seq, (entry.at, entry.tick), (now, self._tick)))
        if entry.seq <= self._episode:
            if entry.seq in self._left and now < self._refused_at + self._quick:
                self._left.remove(entry.seq)
                self._estimate()
            elif self._evident:
                carried = self._carried()
                self.bound = max(self.bound, min(max(1, len(self._left)), carried))
                self._ceiling = max(self._ceiling, carried)
        elif self.bound < self._ceiling:
            self.bound += 1
        if entry.seq == self._dared:
            self._dared = 0
            self._quiet_s = max(QUIET_LEAST_S, min(QUIET_S, self._quiet_s) / 2)

    def otherwise(self) -> None:
        """One ended in a way that says nothing here."""
        self._let_by += 1

    def refused(
        self, entry: Entry, last: int, others: Iterable[Entry], now: float, until: float
    ) -> None:
        """`others` are still in flight, `last` is the last that has entered; rest is `until`."""
        if entry.seq > self._episode:
            self._begin(entry, last)
        self._quiet_since = until
        self._refused_at = now
        self._way = max(self._way, now - entry.at)
        self._quick = min(self._quick, now - entry.at)
        self._refused_to = max(self._refused_to, entry.seq)
        self._let_by_before = min(self._let_by_before, entry.let_by)
        on = [e for e in others if e.seq < self._refused_to or e.seq > self._episode]
        self._evident = bool(on) or self._let_by > self._let_by_before
        self._left = {e.seq for e in on if e.at + self._quick <= now}
        self._estimate()

    def _estimate(self) -> None:
        bound, ceiling = self._before
        if not self._evident:
            self.bound = bound if bound < inf else 1
            self._ceiling = ceiling
            return
        left, carried = len(self._left), self._carried()
        doubtful = left > carried  # one of them may only be on its way, there or back
        self.bound = max(1, min(bound, left - doubtful), min(bound, left, carried))
        self._ceiling = max(self.bound, carried)

    def _begin(self, entry: Entry, last: int) -> None:
        if self._dared:
            self._quiet_s = min(max(QUIET_S, self._quiet_s) * 2, QUIET_CAP_S)
            self._dared = 0
        self._before = (self.bound, self._ceiling)
        since = [each for each in self._well if each[0] > self._episode]  # kept in order of ends
        self._well = deque(since, maxlen=REMEMBERED)
        self._let_by_before = entry.let_by
        self._refused_to = 0
        self._way, self._quick = 0.0, inf
        self._episode = last

    def _carried(self) -> int:
        """The most that were surely with the provider at once and ended well."""
        steps: list[tuple[Moment, int]] = []
        for seq, (came, came_tick), (went, went_tick) in self._well:
            there, back = (came + self._way, came_tick), (went - self._way, went_tick)
            if seq <= self._episode and there < back:
                steps += ((there, 1), (back, -1))
        steps.sort()
        return max(accumulate(step for _, step in steps), default=0)
