"""Chaos from a seed: processes crash, freeze and give up, people decide, tools end in every way.

Whatever happens, the laws hold: no attempt is made twice, an effect that must happen once happens
once at most, every conversation is well-formed, and in the end every run is over.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress

import pytest
from tests.engine.kit import TurnedClock, events, runtime

from cairn import NOT_HAPPENED, Context, NotDone, Policy, Runtime, ToolError, call, happened, tool
from cairn.core import events as ev
from cairn.core.commands import Resume
from cairn.core.context import faults
from cairn.core.evolve import fold
from cairn.core.state import RunState
from cairn.errors import CairnError
from cairn.store.inmemory import InMemoryStore

SEEDS = int(os.environ.get("CAIRN_CHAOS_SEEDS", "60"))
KINDS = ("look", "pay", "post", "send", "refund")
ENDS = ("ok", "ok", "ok", "failed", "not done", "lost", "lost after", "hangs")
POLICY = Policy(effects={"write": "allow"}, tools={"refund": "ask"})
OVER = {"completed", "failed", "stopped", "cancelled"}


class World:
    """What really happened outside, and the fate of everything, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = TurnedClock()
        self.journals = InMemoryStore()
        self.made: Counter[tuple[str, int]] = Counter()
        self.happened: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}
        self.conversations_ok = True
        turns = [
            [
                call(self.chance.choice(KINDS), n=t * 10 + k)
                for k in range(self.chance.randint(1, 4))
            ]
            for t in range(self.chance.randint(1, 3))
        ]
        self.script = [*turns, "done"]

    def model(self, request):
        self.conversations_ok &= faults(request.messages) == []
        return self.script[request.turn]

    async def act(self, ctx: Context, name: str) -> str:
        """One attempt of a tool: whatever its end, at most one effect."""
        process = ctx.deps
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if process.dead:
            await asyncio.Event().wait()
        self.made[ctx.call_id, ctx.attempt] += 1
        self.keys.setdefault(ctx.call_id, set()).add(ctx.key)
        end = self.chance.choice(ENDS)
        if end in {"ok", "lost after"}:
            self.happened[ctx.call_id] += 1
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        match end:
            case "failed":
                raise ToolError("it failed for certain")
            case "not done":
                raise NotDone("nothing was sent")
            case "lost" | "lost after":
                raise ConnectionError("reset")
            case "hangs":
                await asyncio.sleep(60)
        return f"{name} done"


def make_tools(world: World):
    async def find(n: int, ctx: Context) -> object:
        return happened("found") if world.happened[ctx.call_id] else NOT_HAPPENED

    def making(name, **options):
        @tool(name=name, timeout=0.02, conflict_key="n", **options)
        async def work(n: int, ctx: Context) -> str:
            return await world.act(ctx, name)

        return work

    return [
        making("look", effect="read"),
        making("pay", effect="write", recovery="keyed"),
        making("post", effect="write"),
        making("send", effect="write", recovery="probe", probe=find),
        making("refund", effect="write"),
    ]


class Process:
    """One process that drives the run; it may crash, freeze, or be given up by its caller."""

    def __init__(self, world: World) -> None:
        self.dead = False
        self.store = world.journals.beside()
        self.rt = runtime(
            world.model,
            make_tools(world),
            store=self.store,
            policy=POLICY,
            clock=world.clock,
            deps=lambda: self,
        )
        self.task = asyncio.create_task(self.rt.run_async("a", "task", id="r"))

    def crash(self) -> None:
        self.dead = True
        self.store.crash()
        self.task.cancel()


async def decide(world: World, rt: Runtime) -> None:
    """A person looks at what waits and says what is true, or refuses."""
    for pending in await rt.pending_async():
        try:
            if pending.kind == "approval":
                grant = world.chance.random() < 0.8
                await (rt.client.approve if grant else rt.client.deny)(pending.id)
            elif world.happened[pending.call]:
                await rt.client.resolve(pending.id, "happened")
            else:
                await rt.client.resolve(pending.id, "not_happened")
        except CairnError:
            world.clock.turn(100)  # too early to say, or somebody was faster


async def disturb(world: World, processes: list[Process], rt: Runtime) -> None:
    """One thing happens."""
    alive = [p for p in processes if not p.dead]
    match world.chance.randrange(10):
        case 0 | 1 if len(alive) < 3:
            processes.append(Process(world))
        case 2 if alive:
            world.chance.choice(alive).crash()
        case 3 if alive:
            world.chance.choice(alive).store.freeze()
        case 4 if alive:
            world.chance.choice(alive).task.cancel()
        case 5:
            await rt.pause_async("r")
        case 6:
            await rt.client.submit("r", Resume())
        case _:
            await decide(world, rt)


async def story(seed: int) -> tuple[World, list]:
    world, processes = World(seed), []
    processes.append(Process(world))
    person = Runtime(world.journals.beside(), clock=world.clock)
    await asyncio.sleep(0)
    for _ in range(world.chance.randrange(5, 40)):
        with suppress(CairnError):  # it is over already, or was decided otherwise
            await disturb(world, processes, person)
        for _ in range(world.chance.randrange(8)):
            await asyncio.sleep(0)
    for process in processes:  # who froze wakes up; then nobody disturbs any more
        if process.store.condition == "frozen":
            process.store.condition = "alive"
    last = Process(world)
    for _ in range(200):
        run = await last.rt.resume_async("r")
        if run.status in OVER:
            break
        world.clock.turn(100)
        await decide(world, person)
    for process in (*processes, last):
        process.task.cancel()
    await asyncio.gather(*(p.task for p in (*processes, last)), return_exceptions=True)
    await asyncio.sleep(0.03)
    return world, await world.journals.beside().read("r")


def check(world: World, trace: list) -> None:
    state = fold(RunState(run="r"), trace)
    assert state.status in OVER
    assert world.conversations_ok
    assert max(world.made.values(), default=1) == 1, "an attempt was made twice"
    kinds = {
        part.id: part.name
        for e in events(trace, ev.ModelCompleted)
        for part in e.parts
        if hasattr(part, "name")
    }
    for call_id, times in world.happened.items():
        if kinds[call_id] in {"post", "send", "refund"}:
            assert times == 1, f"{kinds[call_id]} {call_id} happened {times} times"
    assert all(len(keys) == 1 for keys in world.keys.values())
    finished: set[str] = set()
    for event in (e.event for e in trace):
        if isinstance(event, ev.ToolStarted):
            assert event.call not in finished
        if isinstance(event, ev.ToolCompleted):
            finished.add(event.call)
    assert not events(trace, ev.ErrorRaised)
    assert not [e for e in events(trace, ev.RunFailed) if e.error_class == "internal"]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_laws_hold(seed, caplog):
    world, trace = asyncio.run(story(seed))
    check(world, trace)
    assert "failed inside the runtime" not in caplog.text
