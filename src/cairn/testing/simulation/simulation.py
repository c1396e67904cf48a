"""`Simulation`: one world from one seed, run to its end and examined."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Literal

import msgspec

from cairn.core import events as ev
from cairn.core.codec import encode
from cairn.core.messages import Record, calls_of
from cairn.errors import CairnError
from cairn.ports import RunFilter
from cairn.testing.invariants import Violation, check_acknowledged, check_effects, check_store
from cairn.testing.simulation.cast import RECOVERIES, rules
from cairn.testing.simulation.chance import Chance
from cairn.testing.simulation.condensing import check_sent
from cairn.testing.simulation.disks import Disk, File, Memory
from cairn.testing.simulation.facts import check_facts
from cairn.testing.simulation.histories import check_histories
from cairn.testing.simulation.loop import Stuck, VirtualLoop
from cairn.testing.simulation.people import ENDED, People
from cairn.testing.simulation.remembering import BESIDE, PROJECT, SKILL, the_last_wish
from cairn.testing.simulation.removals import check_keys, check_nothing_left, check_removed
from cairn.testing.simulation.truth import check_truth
from cairn.testing.simulation.world import World

StoreKind = Literal["memory", "sqlite"]
STILL_S = 60.0
"""How long the world is left alone after the last run has ended, so that what is late can come."""


class Stats(Record):
    """Figures of one simulation."""

    runs: int = 0
    events: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = {}
    ends: dict[str, int] = {}
    seen: dict[str, int] = {}


class Outcome(Record, gc=True):
    """What came of a simulation.

    Args:
        seed: Its seed.
        violations: What did not hold, empty if all did.
        trace: Every run's events, by run.
        incidents: What went wrong in the world, by name, in order.
        stats: Its figures.
    """

    seed: int
    violations: tuple[Violation, ...]
    trace: dict[str, list[ev.Entry]]
    incidents: tuple[str, ...]
    stats: Stats

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not self.violations

    def journals(self) -> bytes:
        """All journals as bytes: the same for the same seed.

        Salts and hashes are left out, and so is who drives, which names the real process.
        """
        return b"\n".join(
            msgspec.json.encode([run, e.seq, e.at, e.step, e.actor, e.event.TYPE])
            + encode(_by_nobody(e.event))
            for run, entries in self.trace.items()
            for e in entries
        )


def _by_nobody(event: Any) -> Any:
    if isinstance(event, ev.RunVersionChanged):
        return msgspec.structs.replace(event, driver="")
    return event


class Simulation(Record):
    """One simulated world: runs, workers, people, and everything that can go wrong.

    Args:
        seed: What everything follows from.
        store: `memory`, or `sqlite` for a real file.
        keep: The only incidents that may happen, by name; all by default.
        only: Numbers of the runs to hand over, from 1; all by default.
        turns: How many turns a run's script may have at most.
        theme: `approvals` for a world in which nearly all is about approvals, grants and
            takeovers, `context` for one whose models have small windows, `memory` for one in
            which runs remember, sessions are moved and people leave (needs PyYAML, for a skill);
            empty for one of all else.
    """

    seed: int
    store: StoreKind = "memory"
    keep: frozenset[str] | None = None
    only: frozenset[int] | None = None
    turns: int = 6
    theme: str = ""

    def run(self) -> Outcome:
        """Live through it and examine what is left."""
        begun = perf_counter()
        chance = Chance(self.seed, self.keep)
        made: Any = VirtualLoop  # what it leaves out, sockets and signals, nobody asks for
        loop: VirtualLoop = made(lambda n: chance.between("turn", 0, n - 1))
        disk: Disk = File() if self.store == "sqlite" else Memory()
        log = logging.getLogger("cairn")
        before, log.disabled = log.disabled, True  # what it says is in the journals
        try:
            story = _Story(World(chance, loop, disk, self.turns, self.theme), self.only)
            try:
                loop.run(story.tell())
            except Stuck as error:
                story.say("settled", str(error))
            story.world.over = True
            loop.finish()
        finally:
            log.disabled = before
            disk.close()
        return story.outcome(self.seed, perf_counter() - begun)


class _Story:
    def __init__(self, world: World, only: frozenset[int] | None) -> None:
        self.world = world
        chance = world.chance
        self.people = People(world, chance.between("runs", 1, 4), only)
        self.violations: list[Violation] = []
        self.trace: dict[str, list[ev.Entry]] = {}
        self.ends: Counter[str] = Counter()

    def say(self, name: str, text: str, run: str = "") -> None:
        self.violations.append(Violation(name=name, run=run, seq=0, text=text))

    async def tell(self) -> None:
        """The whole story: work, disturbance, healing, examination."""
        world, people, chance = self.world, self.people, self.world.chance
        world.wanted = chance.between("workers", 1, 3)
        for _ in range(world.wanted):
            world.spawn()
        horizon = 5 + chance.draw("horizon") * 60
        many = chance.between("disturbances", 0, 14)
        people.lay_out(many * 2 if world.theme else many, horizon)
        await world.loop.start(world.people, people.hand_over())
        await asyncio.sleep(horizon)
        settled = await people.heal()
        if settled:
            for process in world.processes:
                process.wake()
            await asyncio.sleep(STILL_S)
            await self._all_is_quiet()
        await self._examine(settled=settled)

    async def _all_is_quiet(self) -> None:
        """Whoever is left ends in good order, and nothing is left behind."""
        world = self.world
        world.wanted = 0
        here = [p for p in world.processes if p.condition == "alive" and p.main is not None]
        for process in here:
            process.drain()
        mains = {p.main for p in here if p.main is not None}
        if mains:
            _, late = await asyncio.wait(mains, timeout=120)
            if late:
                self.say("alive", f"{len(late)} processes do not end though all runs have")
        for process in here:
            for task in process.left:
                self.say("alive", f"{process.name} ended and left {task!r:.200} at work")
        for info in await world.look.runs(RunFilter(limit=1_000)):
            if info.leased:
                self.say("alive", "it has ended and is still claimed", info.run)
        for process in here:
            taken = process.rt.host.slots.taken
            at_work = sum(not t.over and t.process is process for t in world.threads)
            if taken != at_work:
                self.say("alive", f"{process.name} holds {taken} threads, and {at_work} work")

    async def _examine(self, *, settled: bool) -> None:
        world, look = self.world, self.world.look
        self.violations += await check_store(look, rules=rules(world.theme))
        own: dict[str, list[ev.Entry]] = {}
        for info in reversed(await look.runs(RunFilter(limit=1_000))):
            self.ends[info.status] += 1
            if info.erased:
                continue
            entries = await look.read(info.run)
            self.trace[info.run] = entries
            own[info.run] = entries[info.parent_at :]
            if not settled and info.status not in ENDED:
                said = f"it is {info.status} and waits for {', '.join(info.waits) or 'nobody'}"
                self.say("settled", said, info.run)
        witness = world.witness
        kept = [each for each in witness.kept if not witness.lines.is_gone(each.run)]
        self.violations += check_acknowledged(own, kept)
        self.violations += check_effects(self.trace, witness.effects, RECOVERIES)
        self.violations += check_truth(own, witness.effects)
        for run in own:
            sent = [each for each in witness.sent if each.run == run]
            self.violations += await check_sent(look, run, sent) if sent else []
        if world.theme == "memory":
            await self._remembered(own, settled=settled)
        self.violations += witness.found
        self.violations += witness.grants.found
        self.violations += witness.facts.found
        self.violations += witness.lines.found

    async def _remembered(self, own: Mapping[str, Sequence[ev.Entry]], *, settled: bool) -> None:
        """What is remembered, and what is left of who was erased; somebody more leaves last."""
        world, witness = self.world, self.world.witness
        self.violations += check_keys(witness.lines, witness.effects)
        self.violations += await check_facts(world.look, witness.facts, own, PROJECT)
        self.violations += await check_removed(world.look, witness.lines, self.trace)
        self.violations += await check_histories(world.look, self.trace, SKILL)
        if not settled:
            return
        try:
            who = await world.loop.start(world.people, the_last_wish(self.people))
        except CairnError as error:
            self.say("erased", f"all is over, and the last erasing is refused: {error}")
            return
        left = {r: e for r, e in self.trace.items() if not witness.lines.is_gone(r)}
        self.violations += await check_nothing_left(world.look, who)
        self.violations += await check_removed(world.look, witness.lines, left)
        self.violations += await check_facts(world.look, witness.facts, {}, PROJECT)

    def _seen(self) -> Counter[str]:
        """What came of it in a world of memory, so that it shows if something was never tried."""
        witness = self.world.witness
        seen = witness.facts.seen + witness.lines.seen
        names: dict[str, str] = {}
        for entry in (entry for entries in self.trace.values() for entry in entries):
            event = entry.event
            if isinstance(event, ev.ModelCompleted):
                names |= {part.id: part.name for part in calls_of(event.parts)}
            elif isinstance(event, ev.ToolCompleted) and names.get(event.call) in BESIDE:
                seen[f"{names[event.call]} done in a thread"] += 1
            elif isinstance(event, ev.ToolsOffered):
                seen["tools found"] += 1
            elif isinstance(event, ev.TurnKept):
                seen["fact of a summary asked to be kept"] += len(event.parts)
        return seen

    def outcome(self, seed: int, seconds: float) -> Outcome:
        chance = self.world.chance
        stats = Stats(
            runs=len(self.trace),
            events=sum(map(len, self.trace.values())),
            seconds=seconds,
            faults=dict(chance.counts),
            ends=dict(self.ends),
            seen=dict(self._seen()),
        )
        return Outcome(
            seed=seed,
            violations=tuple(self.violations),
            trace=self.trace,
            incidents=tuple(chance.incidents),
            stats=stats,
        )


def simulate(seed: int, **options: Any) -> Outcome:
    """Run one seed; the options are those of `Simulation`."""
    return Simulation(seed=seed, **options).run()
