"""People: they hand tasks over, decide, interrupt, come late, come twice; and in the end they help.

What disturbs a world is laid out beforehand, each at its own time; afterwards the world heals:
processes are there, nobody is cruel, and everything that waits for people is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from cairn.agent import Agent
from cairn.core.commands import HandBack, Queue, Resume
from cairn.core.index import Pending
from cairn.core.messages import Principal, Text
from cairn.core.policy.form import TaskKind
from cairn.engine.client import Task
from cairn.engine.load import load
from cairn.errors import CairnError, SessionBusy, StoreError, UnknownRun
from cairn.ports import RunFilter, RunInfo
from cairn.testing.simulation import condensing, deciding, remembering
from cairn.testing.simulation.cast import agents, cast_for
from cairn.testing.simulation.world import World

ENDED = {"completed", "failed", "stopped", "cancelled"}
DISTURBANCES = {
    "people: decide": 0.22,
    "people: decide twice at once": 0.06,
    "people: pause": 0.05,
    "people: resume": 0.06,
    "people: cancel": 0.03,
    "people: message": 0.06,
    "people: session message": 0.05,
    "people: retry an ended run": 0.05,
    "people: run it again": 0.04,
    "people: take a compaction back": 0.04,
    "process: crash": 0.06,
    "process: short freeze": 0.05,
    "process: freeze past the lease": 0.07,
    "process: drained": 0.03,
    "process: cancelled": 0.03,
    "process: one more worker": 0.03,
    "clock: set forward": 0.03,
    "clock: set back": 0.04,
}
"""How likely each is, per disturbance laid out."""
OF_THEMES = {
    "approvals": deciding.DISTURBANCES,
    "context": condensing.DISTURBANCES,
    "memory": remembering.DISTURBANCES,
}
LIMITS = {
    "steps": 2,
    "calls": 3,
    "calls_per_reply": 2,
    "tokens": 4_000,
    "micro_usd": 6_000,
    "errors_in_row": 2,
    "no_progress": 1,
    "running_s": 8,
}
"""The narrow bounds that some runs get."""
MODES: tuple[Literal["", "queue", "interrupt"], ...] = ("", "queue", "queue", "interrupt")
"""What a task is that comes to a session at work; the empty one becomes a message to its run."""
SHORT_OF_ROOM = ("condensed", "fed", "brief")
BACK = {"people: take a compaction back": 0.25}
"""How likely it is that somebody who handed a task over takes back what was condensed of it."""
DECIDER = "cas"
"""Who decides in the end: somebody who has led to nothing and may decide everything."""
ROUNDS = 400
"""How often people look after the runs until they give up hope."""


class People:
    """Everybody outside.

    Args:
        runs: How many tasks are handed over at the beginning.
        only: Numbers of the tasks to hand over, all by default.
    """

    def __init__(self, world: World, runs: int, only: frozenset[int] | None = None) -> None:
        self.world = world
        self.chance = world.chance
        self.client = world.people.rt.client
        self.clock = world.people.rt.host.clock
        self.made = 0
        self._wanted = [n for n in range(1, runs + 1) if only is None or n in only]
        self._unfinished: list[asyncio.Task[Any]] = []

    # ---------------------------------------------------------------- handing over

    async def hand_over(self) -> None:
        """The tasks of the beginning; who is told of a fault tries again."""
        for n in self._wanted:
            session = f"s{self.chance.between(f'session {n}', 1, 2)}" if self._often(n) else ""
            await self._start(f"r{n}", session, spread=n)

    def _often(self, n: int) -> bool:
        return self.chance.draw(f"session {n}") < (0.8 if self.world.theme == "memory" else 0.4)

    async def say_more(self, session: str, who: str) -> None:
        """One more task for a session, of whom it belongs to."""
        self.made += 1
        await self._start(f"m{self.made}", session, who=who)

    async def _start(self, run: str, session: str = "", spread: int = 0, who: str = "") -> None:
        chance, place = self.chance, f"task {run}"
        await asyncio.sleep(chance.draw(place) * spread)
        agent = chance.pick(place, cast_for(self.world.theme, chance.draw(f"room {run}")))
        limits = agent.limits
        if chance.incident(f"limits {run}", {"limits: narrow": 0.35}):
            names = chance.some(place, tuple(LIMITS), 2)
            limits = limits.narrowed({name: LIMITS[name] for name in names})
        whose = Principal()
        if self.world.theme == "memory":
            whose = Principal(id=who) if who else remembering.whose(chance, run)
            session = f"{whose.id}-s" if session and not who else session
        task = Task(
            agent=agent.name,
            input=(Text(f"task of {run}"),),
            principal=whose,
            session=session,
            limits=limits,
            kind=self._kind(run, agent, chance.draw(place)),
            approvals="none" if chance.draw(place) < 0.1 else "ask",
            on_loop=agent.on_loop,
            mode=chance.pick(f"mode {run}", MODES) if session else "",
        )
        if agent.name in SHORT_OF_ROOM and chance.incident(f"back {run}", BACK):
            work = self._try(partial(condensing.take_back, self, run, f"back {run}"))
            self._unfinished.append(self.world.loop.start(self.world.people, work))
        for _ in range(4):
            try:
                await self.client.start(task, run)
            except StoreError:
                await asyncio.sleep(0.5)  # whether it was made is not known: the same call again
            except SessionBusy as busy:
                await self._try(partial(self._tell, busy.run, run))
                return
            except UnknownRun:
                return  # it, or what it would have gone on from, was erased meanwhile
            else:
                return

    def _kind(self, run: str, agent: Agent, draw: float) -> TaskKind:
        intake = agent.intake
        classified = intake is not None and intake.model is not None
        if classified and self.chance.draw(f"kind of {run}") < 0.4:
            return "generate"
        return "query" if draw < 0.08 else "operate"

    async def _tell(self, run: str, id: str = "") -> None:
        """Say something to a run; who gives an id may say it again, and it is one message."""
        self.made += 1
        message = Queue(parts=(Text(f"message {id or self.made}"),), id=id)
        for _ in range(1 + 3 * bool(id)):
            try:
                await self.client.submit(run, message)
            except StoreError:
                await asyncio.sleep(0.5)
            else:
                return

    # ---------------------------------------------------------------- disturbing

    def lay_out(self, count: int, horizon: float) -> None:
        """Have so many things happen within so many seconds."""
        world = self.world
        for n in range(count):
            place = f"disturbance {n}"
            when = self.chance.draw(f"{place} when") * horizon
            kinds = OF_THEMES.get(world.theme, DISTURBANCES)
            kind = self.chance.incident(place, kinds)
            if kind:
                world.later(when, partial(self._happen, kind, place))

    def _happen(self, kind: str, place: str) -> None:
        who, _, what = kind.partition(": ")
        if who == "clock":
            seconds = 1 + self.chance.draw(place) * 90
            self.world.offset_us += round(seconds * (1e6 if what == "set forward" else -1e6))
        elif who == "process":
            self._to_a_process(what, place)
        else:
            work = self._try(partial(self._act, what, place))
            self._unfinished.append(self.world.loop.start(self.world.people, work))

    def _to_a_process(self, what: str, place: str) -> None:
        world = self.world
        here = [p for p in world.processes if p.condition == "alive" and not p.gone]
        if what == "one more worker":
            world.spawn()
            return
        if not here:
            return
        process = self.chance.pick(place, here)
        match what:
            case "crash":
                process.die()
            case "short freeze":
                process.freeze(self.chance.draw(place) * 20)
            case "freeze past the lease":
                process.freeze(31 + self.chance.draw(place) * 60)
            case "drained":
                process.drain()
            case "cancelled":
                process.cancel()

    async def _try(self, work: Callable[[], Awaitable[Any]]) -> None:
        with suppress(CairnError):  # too late, too early, decided otherwise, or the disk failed
            await work()

    async def _act(self, what: str, place: str) -> None:
        chance = self.chance
        if what.startswith("decide"):
            await self._decide(place, twice=what != "decide")
            return
        if what in deciding.ACTS:
            await deciding.act(self, what, place)
            return
        if what in remembering.ACTS:
            await remembering.act(self, what, place)
            return
        runs = await self.client.runs(RunFilter())
        if what == "session message":
            self.made += 1
            await self._start(f"m{self.made}", f"s{chance.between(place, 1, 2)}")
            return
        if not runs:
            return
        run = chance.pick(place, runs)
        match what:
            case "pause":
                await self.world.people.rt.pause_async(run.run)
            case "resume":
                await self.client.submit(run.run, Resume())
            case "cancel":
                await self.world.people.rt.cancel_async(run.run, "enough")
            case "message":
                await self._tell(run.run)
            case "take a compaction back":
                await condensing.take_back(self, run.run, place)
            case "retry an ended run":
                await self._retry(runs, place)
            case "run it again":
                self.world.spawn(run.run)

    async def _retry(self, runs: list[RunInfo], place: str) -> None:
        over = [r for r in runs if r.status in ENDED - {"completed"}]
        if over:
            self.made += 1
            limits = {"steps": 50, "calls": 200, "tokens": 500_000, "micro_usd": 5_000_000}
            run = self.chance.pick(place, over).run
            own = f"f{self.made}" if self.chance.draw(place) < 0.7 else ""
            await self.client.retry(run, own, limits=limits)

    async def _decide(self, place: str, *, twice: bool) -> None:
        waiting = await self.client.pending()
        if not waiting:
            return
        pending = self.chance.pick(place, waiting)
        if not twice:
            await self._settle(pending, place)
            return
        both = [self._try(partial(self._settle, pending, place)) for _ in range(2)]
        await asyncio.gather(*both)

    async def _settle(self, pending: Pending, place: str) -> None:
        if self.world.theme == "approvals" and pending.kind == "approval" and not self.chance.quiet:
            await deciding.decide(self, pending, place)
            return
        draw = self.chance.draw(place)
        if pending.id.endswith("/takeover"):
            run = pending.id.removesuffix("/takeover")
            await self.client.submit(run, HandBack(by=pending.detail))
            return
        match pending.kind:
            case "approval" if draw < 0.75:
                await self.client.approve(
                    pending.id, actor=DECIDER, digest=pending.digest, roles=("lead",)
                )
            case "approval":
                await self.client.deny(pending.id, "not now", DECIDER, roles=("lead",))
            case "input":
                await self.client.answer(pending.id, "the second one")
            case "takeover":
                await self.client.resolve(pending.id, "happened")
            case "in_doubt" if draw < 0.05:
                await self.client.resolve(pending.id, "given_up")
            case "in_doubt":
                done = await self._happened(pending)
                await self.client.resolve(pending.id, "happened" if done else "not_happened")

    async def open_runs(self) -> list[str]:
        """The runs that are not over."""
        runs = await self.client.runs(RunFilter())
        return [run.run for run in runs if run.status not in ENDED]

    async def _happened(self, pending: Pending) -> bool:
        """The truth about a call, as far as the world knows it by now."""
        run = pending.id.rpartition("/")[0]
        state = await load(self.client.store, run)
        call = state.calls.get(pending.call)
        return call is not None and (call.key, call.tool) in self.world.witness.keys

    # ---------------------------------------------------------------- healing

    async def heal(self) -> bool:
        """Help every run to its end; False when some never comes to one."""
        world, chance = self.world, self.chance
        chance.quiet = True  # who is frozen wakes up in its own time
        calm = 0
        for n in range(ROUNDS):
            if not world.workers():
                world.spawn()
            owed = await world.look.unread([agent.name for agent in agents(world.theme)], 1_000)
            runs = await world.look.runs(RunFilter(limit=1_000))
            going_on = [r for r in runs if r.status not in ENDED or r.run in owed]
            # the two looks are not one: a run may end between them, and leave something unread
            calm = calm + 1 if not going_on and all(t.done() for t in self._unfinished) else 0
            if calm == 2:
                return True
            for run in going_on:
                if run.status == "paused":
                    await self._try(partial(self.client.submit, run.run, Resume()))
            for pending in await world.look.pending(1_000):
                if pending.id.rpartition("/")[0] in {r.run for r in going_on}:
                    await self._try(partial(self._settle, pending, f"heal {n}"))
            await asyncio.sleep(3 + n / 10)
        return False
