"""A lane, a busy client and a provider that carries few, in a world with a clock of its own.

The client does one thing at a time, as an event loop does, and may be slow at it; the way there
and back takes its time; the provider refuses what it has no room for. All of it is drawn from a
seed. `python -m tests.models.narrow_world 3000` prints what was found.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cairn.errors import ErrorClass
from cairn.models.pace import QUIET_S
from cairn.models.traffic import TrafficLane

LOOK_S = 0.05


@dataclass
class Found:
    """What was seen of one world."""

    room: int
    done: int = 0
    runs: int = 0
    refused: int = 0
    most_after: int = 0
    """Most in flight at once since the first refusals were in."""
    seconds: float = 0.0
    bound: int = 0

    @property
    def kept(self) -> bool:
        """Whether the room was never exceeded, unless one more had been dared by then."""
        return self.done == self.runs and (self.most_after <= self.room or self.seconds > QUIET_S)


class OneAtATime:
    """Something that does its work in order: an event loop, or a server with one thread."""

    def __init__(self, world: NarrowWorld, stalls: float = 0.0) -> None:
        self._world, self._stalls = world, stalls
        self._line: deque[tuple[float, Callable[[], None]]] = deque()
        self._busy = False

    def do(self, seconds: float, what: Callable[[], None]) -> None:
        self._line.append((seconds, what))
        self._next()

    def _next(self) -> None:
        if self._busy or not self._line:
            return
        self._busy = True
        seconds, what = self._line.popleft()
        chance = self._world.chance
        seconds *= chance.uniform(0.5, 1.5)
        if chance.random() < self._stalls:
            seconds += chance.uniform(0.0, 0.3)

        def over() -> None:
            self._busy = False
            what()
            self._next()

        self._world.after(seconds, over)


class NarrowWorld:
    """Runs that each want one reply, and what is in their way."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.found = Found(room=chance.choice([1, 2, 5, 5, 5, 20]))
        self.found.runs = chance.choice([20, 60, 200])
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = itertools.count()
        self._lane = TrafficLane(clock=lambda: self.now, jitter=chance.random)
        self._client = OneAtATime(self, stalls=chance.choice([0.0, 0.0, 0.02]))
        self._server = OneAtATime(self)
        self._work_s = self._scale(0.001, 10.0)
        self._way_s = self._scale(0.0001, 0.1)
        self._prepare_s = self._scale(0.0001, 0.03)
        self._send_s, self._read_s, self._fail_s = (self._scale(0.0001, 0.02) for _ in range(3))
        self._serve_s = self._scale(0.00001, 0.003)
        self._work_varies = chance.choice([0.0, 0.5, 1.0])
        self._way_varies = chance.choice([0.0, 1.0])
        self._asked_s = chance.choice([0.0, 0.2, 1.0, 1.0])
        self._inside = 0
        self._burst = 0
        self._waiting = 0

    def _scale(self, least: float, most: float) -> float:
        return least * (most / least) ** self.chance.random()

    def _way(self) -> float:
        return self._way_s * (1 + self._way_varies * self.chance.expovariate(1))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Have this done so much later."""
        heapq.heappush(self._due, (self.now + seconds, next(self._ticket), what))

    def play(self) -> Found:
        """Until every run has its reply, or for an hour."""
        for _ in range(self.found.runs):
            self._client.do(self._prepare_s, self._want)
        self.after(LOOK_S, self._look)
        while self.found.done < self.found.runs and self.now < 3_600:
            self.now, _, what = heapq.heappop(self._due)
            what()
        self.found.seconds = self.now
        self.found.bound = self._lane.snapshot().bound
        return self.found

    def _look(self) -> None:
        self._enter()
        self.after(LOOK_S, self._look)

    def _want(self) -> None:
        self._waiting += 1
        self._enter()

    def _enter(self) -> None:
        while self._waiting and (permit := self._lane.try_enter(0)) is not None:
            self._waiting -= 1
            open_ = self._lane._open
            if self._burst and min(open_) > self._burst:
                self.found.most_after = max(self.found.most_after, len(open_))
            self._client.do(self._send_s, lambda permit=permit: self._send(permit))

    def _send(self, permit: Any) -> None:
        self.after(
            self._way(), lambda: self._server.do(self._serve_s, lambda: self._arrive(permit))
        )

    def _arrive(self, permit: Any) -> None:
        if self._inside >= self.found.room:
            self.after(
                self._way(), lambda: self._client.do(self._fail_s, lambda: self._refused(permit))
            )
            return
        self._inside += 1
        work = self._work_s * (1 + self._work_varies * self.chance.uniform(-1, 1))
        self.after(work, lambda: self._server.do(self._serve_s, lambda: self._leave(permit)))

    def _leave(self, permit: Any) -> None:
        self._inside -= 1
        self.after(self._way(), lambda: self._client.do(self._read_s, lambda: self._read(permit)))

    def _read(self, permit: Any) -> None:
        permit.close()
        self.found.done += 1
        self._enter()

    def _refused(self, permit: Any) -> None:
        permit.close(ErrorClass.RATE_LIMITED, retry_after_s=self._asked_s)
        self.found.refused += 1
        self._burst = self._burst or self._lane._last
        wait = max(self._asked_s, 0.001)
        self.after(wait, lambda: self._client.do(self._prepare_s, self._want))
        self._enter()


def main() -> int:
    """Print what was found; 1 if a room was exceeded."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    refused, shares, broken = 0, [], []
    for seed in range(worlds):
        found = NarrowWorld(seed).play()
        refused += found.refused
        if found.bound:
            shares.append(found.bound / found.room)
        if not found.kept:
            broken.append(seed)
            print(seed, found)
    shares.sort()
    middle, low = shares[len(shares) // 2], shares[len(shares) // 4]
    print(f"{worlds} worlds, {refused} refusals, {len(broken)} exceeded their room;", end=" ")
    print(f"learnt of the room: half of them {middle:.2f} or more, a quarter {low:.2f} or less")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
