"""What happens before the power fails: two processes' worth of runs, tools, people and copies.

Everything is drawn from a seed but the order in which threads get their turn. What happened
outside (effects, and what callers were told) is kept in lists that only grow, so that a length
says what was known at some moment.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from cairn.agent import Agent
from cairn.core.commands import Command
from cairn.core.context import faults
from cairn.core.events import Entry
from cairn.core.index import Index, Pending
from cairn.core.policy import Policy
from cairn.core.state import RunState
from cairn.engine.client import Client
from cairn.errors import CairnError, ToolError
from cairn.models.scripted import Scripted, call
from cairn.ports import Beside, ModelRequest, NewRun, RunInfo
from cairn.runtime import Runtime
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.power_disk import STORE, Disk
from cairn.tools.context import Context
from cairn.tools.tool import Tool, tool
from cairn.tools.verdicts import NOT_HAPPENED, happened

Durability = Literal["full", "process"]
AGENT = "clerk"
COPY = "copy.db"
OVER = frozenset({"completed", "failed", "stopped", "cancelled"})
ONCE = frozenset({"post", "send", "refund"})
"""Tools whose effect must not happen twice, whatever fails."""

KINDS = ("look", "look", "pay", "post", "send", "refund")
ENDS = ("ok", "ok", "ok", "ok", "failed", "lost", "lost after")
POLICY = Policy(effects={"write": "allow"}, tools={"refund": "ask"})


class Hurried:
    """A clock of its own time: each look takes a millisecond, and waiting takes no real time."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now = now_us

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        self._now += 1_000
        return self._now

    def monotonic_us(self) -> int:
        """The same time."""
        return self.now_us()

    async def sleep(self, seconds: float) -> None:
        """Move on by this much."""
        self.turn(seconds)
        await asyncio.sleep(0)

    def turn(self, seconds: float) -> None:
        """Move on by this much at once."""
        self._now += round(seconds * 1e6)


class World:
    """What the runs are to do, and what really happened outside.

    Args:
        seed: Draws the scripts and the fates of tools.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = random.Random(f"world {seed}")  # noqa: S311 - a seed must give the same world
        self.scripts: dict[str, list[Any]] = {
            f"r{n}": _script(chance) for n in range(chance.randint(2, 4))
        }
        self.told: list[tuple[str, Entry]] = []
        """Every event that a caller was told is safe, in the order they were told."""
        self.effects: list[tuple[str, str, str]] = []
        """Run, call and tool of every effect, in order."""
        self.attempts: list[tuple[str, str, int, str]] = []
        """Run, call, number and key of every attempt."""
        self.copies: list[int] = []
        """Of every copy that was finished: how much had been told when it was begun."""
        self.malformed: list[str] = []
        """Runs whose model was sent a list of messages that is not well-formed."""

    def marks(self) -> tuple[int, ...]:
        """How much has happened. Effects first: each comes after what it was told to rest on."""
        return len(self.effects), len(self.attempts), len(self.told), len(self.copies)

    def at(self, marks: Sequence[int]) -> World:
        """The same world as it was at some moment."""
        past = World(self.seed)
        past.effects = self.effects[: marks[0]]
        past.attempts = self.attempts[: marks[1]]
        past.told = self.told[: marks[2]]
        past.copies = self.copies[: marks[3]]
        return past

    def answer(self, request: ModelRequest) -> Any:
        """The model."""
        if faults(request.messages):
            self.malformed.append(request.run)
        return self.scripts[request.run][request.turn]

    async def act(self, ctx: Context[Any], kind: str, number: int) -> str:
        """One attempt of a tool: whatever its end, at most one effect."""
        where = (ctx.run_id, ctx.call_id)
        chance = random.Random(f"{self.seed} {where} {ctx.attempt}")  # noqa: S311 - as above
        self.attempts.append((*where, ctx.attempt, ctx.key))
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        end = chance.choice(ENDS)
        if end in {"ok", "lost after"}:
            self.effects.append((*where, kind))
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if end == "failed":
            raise ToolError("it failed for certain")
        if end.startswith("lost"):
            raise ConnectionError("reset")
        return f"{kind} {number} done " + "." * chance.choice((0, 0, 700, 9_000))

    def took_effect(self, run: str, call_id: str) -> bool:
        """Whether a call has had its effect."""
        return any(effect[:2] == (run, call_id) for effect in self.effects)


def _script(chance: random.Random) -> list[Any]:
    turns: list[Any] = []
    for turn in range(chance.randint(1, 4)):
        calls = [
            call(chance.choice(KINDS), number=turn * 10 + k) for k in range(chance.randint(1, 3))
        ]
        turns.append(["x" * chance.choice((0, 40, 3_000)) or "so", *calls])
    return [*turns, "done"]


def _tools(world: World) -> list[Tool[..., Any]]:
    async def find(number: int, ctx: Context[Any]) -> object:
        return happened("found") if world.took_effect(ctx.run_id, ctx.call_id) else NOT_HAPPENED

    def making(name: str, **options: Any) -> Tool[..., Any]:
        @tool(name=name, conflict_key="number", **options)
        async def work(number: int, ctx: Context[Any]) -> str:
            return await world.act(ctx, name, number)

        return work

    return [
        making("look", effect="read"),
        making("pay", effect="write", recovery="keyed"),
        making("post", effect="write"),
        making("send", effect="write", recovery="probe", probe=find),
        making("refund", effect="write"),
    ]


class AttentiveStore(SqliteStore):
    """A store that notes what it has told its callers, and has a picture taken at once."""

    def __init__(self, settings: Settings, world: World, disk: Disk | None) -> None:
        super().__init__(settings)
        self._world = world
        self._disk = disk

    def _tell(self, run: str, entries: Sequence[Entry]) -> None:
        self._world.told.extend((run, entry) for entry in entries)
        if entries and self._disk is not None:
            self._disk.look("acknowledged")

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        """See `Store.create`."""
        found = await super().create(new, entries, index)
        if found is None:
            self._tell(new.run, entries)
        return found

    async def append(
        self,
        run: str,
        epoch: int,
        entries: Sequence[Entry],
        index: Index | None,
        *,
        release: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """See `Store.append`."""
        await super().append(run, epoch, entries, index, release=release, beside=beside)
        self._tell(run, entries)

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        """See `Store.submit`."""
        state, entry = await super().submit(run, seen, command, now, actor)
        self._tell(run, [] if entry is None else [entry])
        return state, entry

    async def backup(self, path: str) -> None:
        """See `Store.backup`."""
        known = len(self._world.told)
        await super().backup(path)
        self._world.copies.append(known)
        if self._disk is not None:
            self._disk.look("copied")


def open_attentive(
    folder: Path, durability: Durability, world: World, disk: Disk | None = None
) -> AttentiveStore:
    """Open the store of a folder."""
    settings = Settings(path=os.path.realpath(folder / STORE), durability=durability)
    return AttentiveStore(settings, world, disk)


def runtime_on(store: AttentiveStore, world: World, clock: Hurried) -> Runtime:
    """A runtime that can do what the world's scripts say."""
    agent = Agent(AGENT, Scripted(world.answer), tools=_tools(world))
    return Runtime(store, agents=[agent], policy=POLICY, clock=clock)


# ---------------------------------------------------------------- before the power fails


async def live(folder: Path, world: World, disk: Disk, durability: Durability) -> None:
    """Several sittings on one file: two stores drive runs, a third thread decides."""
    chance = random.Random(f"life {world.seed}")  # noqa: S311 - as above
    clock = Hurried()
    for sitting in range(chance.randint(1, 3)):
        rest = chance.randrange(5, 60) if sitting == 0 else 1_000_000
        await _sit(folder, world, disk, durability, clock, rest)
        if all(over for over in await _how_far(folder, world, durability)):
            return


async def _sit(
    folder: Path, world: World, disk: Disk, durability: Durability, clock: Hurried, rest: int
) -> None:
    stores = [open_attentive(folder, durability, world, disk) for _ in range(2)]
    runtimes = [runtime_on(store, world, clock) for store in stores]
    left = threading.Event()
    person = asyncio.ensure_future(
        asyncio.to_thread(lambda: asyncio.run(_person(stores[1], world, clock, left)))
    )
    driving = [
        asyncio.ensure_future(_drive(runtimes[n % 2], run, left))
        for n, run in enumerate(world.scripts)
    ]
    copying = asyncio.ensure_future(_copy(folder, stores[0], world))
    until = len(world.told) + rest
    at_work = set(driving)
    try:
        while at_work and len(world.told) < until:
            _, at_work = await asyncio.wait(at_work, timeout=0.002)
    finally:
        left.set()
    await asyncio.gather(*driving, copying, person)
    for runtime in runtimes:
        await runtime.close_async()


async def _drive(runtime: Runtime, run: str, left: threading.Event) -> None:
    """Go on with a run until it is over or the sitting ends."""
    while not left.is_set():
        result = await runtime.run_async(AGENT, f"the task of {run}", id=run)
        if result.status in OVER:
            return
        seen = (await runtime.store.info(run)).head
        await runtime.store.changed(run, seen, 0.02)


async def _copy(folder: Path, store: AttentiveStore, world: World) -> None:
    """Make one copy in the middle of the first sitting."""
    if not (folder / COPY).exists():
        await asyncio.sleep(0.02)
        await store.backup(str(folder / COPY))


async def _person(
    store: AttentiveStore, world: World, clock: Hurried, left: threading.Event
) -> None:
    client, seen = Client(store, clock), 0
    while not left.is_set():
        await decide(client, world, clock, "live")
        seen = await store.news(seen, 0.02)


async def decide(client: Client, world: World, clock: Hurried, salt: str) -> None:
    """Look at what waits and say what is true, or refuse."""
    for pending in await client.store.pending():
        with suppress(CairnError):  # it is too early to say, or somebody was faster
            await _decide(client, world, pending, salt)
    clock.turn(10)


async def _decide(client: Client, world: World, pending: Pending, salt: str) -> None:
    chance = random.Random(f"{world.seed} {pending.id} {salt}")  # noqa: S311 - as above
    run, _, _ = pending.id.rpartition("/")
    if pending.kind == "approval":
        granted = chance.random() < 0.8
        await (client.approve if granted else client.deny)(pending.id)
    elif world.took_effect(run, pending.call):
        await client.resolve(pending.id, "happened")
    else:
        await client.resolve(pending.id, "not_happened")


async def _how_far(folder: Path, world: World, durability: Durability) -> list[bool]:
    store = open_attentive(folder, durability, world)
    try:
        return [(await store.info(run)).status in OVER for run in world.scripts]
    except CairnError:
        return [False]
    finally:
        await store.close()


# ---------------------------------------------------------------- after it


async def go_on(store: AttentiveStore, world: World, tries: int = 60) -> list[str]:
    """A fresh runtime finishes every run; returns those that it could not."""
    clock = Hurried(1_700_100_000_000_000)
    runtime = runtime_on(store, world, clock)
    open_runs = list(world.scripts)
    for attempt in range(tries):
        results = [
            await runtime.run_async(AGENT, f"the task of {run}", id=run) for run in open_runs
        ]
        open_runs = [result.id for result in results if result.status not in OVER]
        if not open_runs:
            break
        await decide(runtime.client, world, clock, f"after {attempt}")
    return open_runs
