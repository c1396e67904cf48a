"""Lanes: what all runs of a process together ask of one provider at a time.

A lane lets requests in, first come, first served, within the limits it was given. What it learns
from how they end, and by which reasoning, stands in `pace`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from math import inf
from random import SystemRandom

from cairn.core.messages import Record
from cairn.core.outcomes import UNANSWERED
from cairn.errors import ConfigError, ErrorClass, safe_repr
from cairn.models.pace import SIGNS, Entry, Minute, Rest, Room

LOOK_S = 5.0
"""While somebody waits the lane is looked at this often, whatever happens."""
CHANCE = SystemRandom()
"""No application's seed makes processes act in step, and no draw of ours moves its chance."""


class TrafficLimits(Record):
    """What a lane lets through at most; 0 sets no limit.

    Args:
        in_flight: Requests at the same time.
        requests_per_minute: Requests in any 60 seconds.
        tokens_per_minute: Tokens in any 60 seconds; a request counts as what it reserves until
            it is known what it used.

    Raises:
        ConfigError: a limit is not a whole number, or negative.
    """

    in_flight: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(
                    f"limits.{name}",
                    f"{safe_repr(value)} is no limit",
                    "Give a whole number, 0 for none",
                )

    def narrowed(self, other: TrafficLimits) -> TrafficLimits:
        """The stricter of both, limit by limit."""
        return TrafficLimits(
            in_flight=_stricter(self.in_flight, other.in_flight),
            requests_per_minute=_stricter(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute=_stricter(self.tokens_per_minute, other.tokens_per_minute),
        )


class LaneState(Record):
    """How a lane stands at the moment, to be shown.

    Args:
        in_flight: Requests that are on their way.
        bound: How many may be at once, 0 when there is no bound.
        waiting: Requests that wait to be let in.
        rest_s: How long the provider is still left alone.
    """

    in_flight: int
    bound: int
    waiting: int
    rest_s: float


def _stricter(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other


# ---------------------------------------------------------------- the lane


class _Permit(Entry):
    """See `cairn.ports.Permit`."""

    __slots__ = ("_lane", "loop")

    def __init__(self, lane: TrafficLane, seq: int, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(seq)
        self._lane = lane
        self.loop = loop

    def close(
        self, fault: ErrorClass | None = None, *, retry_after_s: float = 0.0, tokens: int = 0
    ) -> None:
        """See `Permit.close`."""
        self._lane._close(self, fault, retry_after_s, tokens)  # noqa: SLF001 - its own lane


class _Waiter:
    """Somebody who waits to be let in."""

    __slots__ = ("loop", "tokens", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, tokens: int) -> None:
        self.loop = loop
        self.turn: asyncio.Future[_Permit] = loop.create_future()
        self.tokens = tokens


class TrafficLane:
    """See `cairn.ports.Lane`. Any thread and any event loop may use it.

    Args:
        limits: What is let through at most.
        clock: Seconds that never jump.
        jitter: A number in [0, 1) that spreads rests nobody asked for.
    """

    def __init__(
        self,
        limits: TrafficLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = CHANCE.random,
    ) -> None:
        self._limits = limits or TrafficLimits()
        self._clock = clock
        self._jitter = jitter
        self.forget()

    def forget(self) -> None:
        """Begin as a new lane, as a forked child must: what was on its way is the parent's."""
        self._lock = threading.Lock()
        self._requests = Minute(self._limits.requests_per_minute)
        self._tokens = Minute(self._limits.tokens_per_minute)
        self._rest = Rest(self._jitter)
        self._room = Room()
        self._last = 0
        self._open: dict[int, _Permit] = {}
        self._waiting: deque[_Waiter] = deque()
        self._timers: dict[asyncio.AbstractEventLoop, tuple[float, asyncio.TimerHandle | None]] = {}

    def narrow(self, limits: TrafficLimits) -> None:
        """Let no more through than these limits say as well."""
        with self._lock:
            self._limits = self._limits.narrowed(limits)
            self._requests.limit = self._limits.requests_per_minute
            self._tokens.limit = self._limits.tokens_per_minute

    def try_enter(self, tokens: int) -> _Permit | None:
        """See `Lane.try_enter`."""
        with self._lock:
            now = self._clock()
            if self._waiting or self._wait(now, tokens) > 0:
                return None
            try:
                loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
            except RuntimeError:  # entered from code without a loop: nothing to look after
                loop = None
            return self._admit(now, tokens, loop)

    async def enter(self, tokens: int) -> _Permit:
        """See `Lane.enter`."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, tokens)
        with self._lock:
            self._waiting.append(waiter)
            self._set_timer(loop, self._clock() + LOOK_S)
            self._let_in()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise

    def look(self) -> None:
        """Let in who may go in by now. Timers do this; with a clock of your own, do it yourself."""
        with self._lock:
            self._let_in()

    def snapshot(self) -> LaneState:
        """How the lane stands."""
        with self._lock:
            bound = min(self._limits.in_flight or inf, self._room.bound)
            return LaneState(
                in_flight=len(self._open),
                bound=0 if bound == inf else int(bound),
                waiting=len(self._waiting),
                rest_s=max(0.0, self._rest.until - self._clock()),
            )

    # ------------------------------------------------------------ in

    def _wait(self, now: float, tokens: int) -> float:
        """Seconds until one more may enter; endless while that takes the end of another."""
        wait = self._rest.wait(now)
        if wait > 0:
            return wait
        if 0 < self._limits.in_flight <= len(self._open):
            return inf
        wait = max(self._requests.wait(now, 1), self._tokens.wait(now, tokens))
        return wait if wait > 0 else self._room.wait(len(self._open), now)

    def _admit(self, now: float, tokens: int, loop: asyncio.AbstractEventLoop | None) -> _Permit:
        self._last += 1
        permit = _Permit(self, self._last, loop)
        permit.requests = self._requests.take(now, 1)
        permit.tokens = self._tokens.take(now, tokens)
        self._open[permit.seq] = permit
        self._rest.entered(permit.seq)
        self._room.entered(permit, len(self._open), now)
        return permit

    def _let_in(self) -> None:
        """Give permits to those who wait, in order, as far as that goes."""
        while self._waiting:
            waiter = self._waiting[0]
            if waiter.turn.cancelled() or waiter.loop.is_closed():
                self._waiting.popleft()
                continue
            now = self._clock()
            wait = self._wait(now, waiter.tokens)
            if wait > 0:
                if wait == inf and self._reap():
                    continue
                self._set_timer(waiter.loop, now + min(wait, LOOK_S))
                return
            self._waiting.popleft()
            permit = self._admit(now, waiter.tokens, waiter.loop)
            try:
                waiter.loop.call_soon_threadsafe(self._deliver, waiter, permit)
            except RuntimeError:  # that loop was closed just now: nobody waits there any more
                self._take_back(permit)

    def _deliver(self, waiter: _Waiter, permit: _Permit) -> None:
        if not waiter.turn.cancelled():
            waiter.turn.set_result(permit)
            return
        with self._lock:
            self._take_back(permit)
            self._let_in()

    def _withdraw(self, waiter: _Waiter) -> None:
        with self._lock:
            with suppress(ValueError):
                self._waiting.remove(waiter)
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._take_back(waiter.turn.result())
            self._let_in()

    # ------------------------------------------------------------ out

    def _close(
        self, permit: _Permit, fault: ErrorClass | None, asked_s: float, tokens: int
    ) -> None:
        with self._lock:
            if self._open.get(permit.seq) is not permit:
                return
            if tokens or (fault is not None and fault not in UNANSWERED):
                self._tokens.settle(permit.tokens, tokens)
            self._end(permit)
            self._conclude(permit, fault, asked_s)
            self._let_in()

    def _conclude(self, permit: _Permit, fault: ErrorClass | None, asked_s: float) -> None:
        rest, room, seq = self._rest, self._room, permit.seq
        if fault is None:
            rest.well(seq)
            room.well(permit, self._clock())
            return
        sign, now = SIGNS[fault], self._clock()
        if sign == "refusal":
            rest.refused(seq, self._last, now, asked_s)
        elif sign != "nothing" and asked_s > 0:
            rest.asked(now, asked_s)
        if sign in {"overload", "trouble"}:
            rest.troubled(seq, self._last, now)
        if sign in {"refusal", "overload"}:
            room.refused(permit, self._last, self._open.values(), now, max(now, rest.until))
        else:
            room.otherwise()

    def _end(self, permit: _Permit) -> None:
        del self._open[permit.seq]
        self._rest.ended(permit.seq)

    def _take_back(self, permit: _Permit) -> None:
        """A permit nobody could use: no request was made with it."""
        if self._open.get(permit.seq) is permit:
            self._requests.settle(permit.requests, 0)
            self._tokens.settle(permit.tokens, 0)
            self._end(permit)
            self._room.otherwise()

    def _reap(self) -> bool:
        """Take back what can never be closed, because the loop of who holds it is."""
        lost = [p for p in self._open.values() if p.loop is not None and p.loop.is_closed()]
        for permit in lost:
            self._end(permit)
            self._room.otherwise()
        return bool(lost)

    # ------------------------------------------------------------ time

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Have `loop` look at the lane by `due`. From any thread."""
        set_to, handle = self._timers.get(loop, (inf, None))
        if set_to <= due:
            return
        for each in [each for each in self._timers if each.is_closed()]:
            del self._timers[each]
        self._timers[loop] = (due, handle)
        with suppress(RuntimeError):  # closed: whoever waited there is dropped when seen next
            loop.call_soon_threadsafe(self._start_timer, loop)

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            due, handle = self._timers.get(loop, (inf, None))
            if handle is not None:
                handle.cancel()
            if due < inf:
                delay = max(due - self._clock(), 0.0)
                self._timers[loop] = (due, loop.call_later(delay, self._tick, loop))

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._timers.pop(loop, None)
            self._let_in()
            if any(waiter.loop is loop for waiter in self._waiting):
                self._set_timer(loop, self._clock() + LOOK_S)


# ---------------------------------------------------------------- one lane per account

_lanes: dict[str, TrafficLane] = {}
_lanes_lock = threading.Lock()


def lane_key(provider: str, base_url: str, api_key: str) -> str:
    """What names a lane: who is asked, where, and on whose account (a hash, never the key)."""
    return f"{provider} {base_url} {sha256(api_key.encode()).hexdigest()[:16]}"


def lane_for(key: str, limits: TrafficLimits | None = None) -> TrafficLane:
    """The lane of this name, one per process; limits given later only narrow it."""
    limits = limits or TrafficLimits()
    with _lanes_lock:
        lane = _lanes.get(key)
        if lane is None:
            lane = _lanes[key] = TrafficLane(limits)
        else:
            lane.narrow(limits)
        return lane


def lanes() -> dict[str, LaneState]:
    """How all lanes of the process stand, by name."""
    with _lanes_lock:
        return {key: lane.snapshot() for key, lane in _lanes.items()}


def _empty_after_fork() -> None:
    global _lanes_lock  # noqa: PLW0603 - another thread may have held it when the process forked
    _lanes_lock = threading.Lock()
    for lane in _lanes.values():
        lane.forget()


os.register_at_fork(after_in_child=_empty_after_fork)
