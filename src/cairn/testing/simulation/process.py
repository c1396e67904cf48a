"""A process of a simulated world: it works on runs until it ends, crashes, or freezes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError
from cairn.runtime import Runtime
from cairn.testing.simulation.cast import POLICY, agents
from cairn.testing.simulation.loop import Place
from cairn.testing.simulation.remembering import RULES, in_a_thread
from cairn.testing.simulation.stores import FaultyStore
from cairn.tools.slots import Slots

if TYPE_CHECKING:
    from cairn.testing.simulation.world import World

SLOTS = 3
"""How many threads a process may have at once."""
LEASE_S = 30.0
"""After how much silence the others may take its runs over."""


class SimulatedClock:
    """Time as a process sees it: the loop's, and a wall clock that can be set."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_us(self) -> int:
        """Microseconds since 1970, as whoever set the clock last would have it."""
        return self._world.now_us()

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never jumps."""
        return round(self._world.loop.time() * 1e6)

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await asyncio.sleep(seconds)


class Process(Place):
    """A process. As a `Place` it has its turn in the loop.

    Args:
        run: The one run it drives; a worker for all of them by default.
        is_people: It only asks and decides.
    """

    def __init__(self, world: World, name: str, run: str = "", *, is_people: bool = False) -> None:
        super().__init__(name)
        self.world = world
        self.run = run
        self.is_people = is_people
        self.store: Any = FaultyStore(self, world.disk.open())
        self.rt = Runtime(
            self.store,
            agents=[] if is_people else agents(world.theme),
            policy=POLICY,
            deps=self,
            memory=RULES if world.theme == "memory" else None,
            clock=SimulatedClock(world),
        )
        self.rt.host.threads = partial(in_a_thread, self)
        self.rt.host.slots = Slots(SLOTS)
        self.rt.host.new_id = world.new_id
        self.rt.host.jitter = lambda: world.chance.draw("jitter")
        self.main: asyncio.Task[Any] | None = None
        self.troubled = False
        """Whether its disk failed or it was frozen, so that it may have lost something."""
        self.left: list[asyncio.Task[Any]] = []
        """What was still at work when it ended in good order."""

    @property
    def gone(self) -> bool:
        """Whether it is dead."""
        return self.condition == "dead" or self.world.over

    def begin(self) -> None:
        """Set it to work."""
        self.main = self.world.loop.start(self, self._work())

    async def _work(self) -> None:
        with suppress(CairnError):  # it ends, and is replaced by the world
            if self.run:
                await self.rt.resume_async(self.run)
            else:
                await self.rt.work_async()
        with suppress(CairnError):
            await self.store.close()
        self.left = [task for task in self.world.loop.alive(self) if task is not self.main]
        self.world.later(0.0, self.die)

    # ---------------------------------------------------------------- what may become of it

    async def crash(self) -> None:
        """It is gone in this very moment; nothing of it runs any more."""
        self.die()
        await self.world.loop.create_future()

    def die(self) -> None:
        """It is gone, and its claims are free; another one takes its place later."""
        if self.condition == "dead":
            return
        self.world.loop.kill(self)
        self.world.disk.die(self.store.inner)
        self.world.replace(self)

    def replace_soon(self) -> None:
        """It is of no use any more: somebody ends it and starts another one."""
        self.world.later(self.world.chance.draw("replace") * 5, self.die)

    async def freeze_now(self) -> None:
        """It stands still in this very moment, for longer than its lease."""
        self.freeze(31 + self.world.chance.draw("freeze") * 60)
        await asyncio.sleep(0)

    def freeze(self, seconds: float) -> None:
        """It is not served for so long; past its lease the others may take over."""
        if self.condition != "alive":
            return
        self.troubled = True
        self.world.loop.freeze(self)
        if seconds > LEASE_S:
            self.world.later(LEASE_S, self._expire)
        self.world.later(seconds, self.wake)

    def _expire(self) -> None:
        if self.condition == "frozen":
            self.world.disk.freeze(self.store.inner)

    def wake(self) -> None:
        """It goes on, and knows of nothing."""
        if self.condition == "frozen":
            self.world.disk.wake(self.store.inner)
            self.world.loop.wake(self)

    def drain(self) -> None:
        """It is asked to end: nothing new is started, what is at work lands."""
        self.rt.host.draining = True

    def cancel(self) -> None:
        """It is told to end now."""
        if self.main is not None:
            self.main.cancel()
