"""The world around the runs: time, processes, what really happened, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context as Surroundings
from dataclasses import dataclass, field
from typing import Any

from cairn.agent import Answer
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.messages import Text
from cairn.errors import NotDone, ToolError, Unsure
from cairn.ports import ModelReply, ModelRequest, OnDelta, ReplyCall
from cairn.testing.invariants import Acknowledged, Effect, Violation, fingerprint
from cairn.testing.simulation import cast, condensing, deciding, remembering
from cairn.testing.simulation.chance import Chance
from cairn.testing.simulation.disks import Disk
from cairn.testing.simulation.facts import FactBook
from cairn.testing.simulation.loop import VirtualLoop
from cairn.testing.simulation.process import Process
from cairn.testing.simulation.removals import LineBook
from cairn.tools.context import Context
from cairn.tools.verdicts import NOT_HAPPENED, UNKNOWN, happened

START_US = 1_800_000_000_000_000
LARGE = "a long result " * 2_000

TOOL_FAULTS = {
    "tool: raises": 0.05,
    "tool: says not done": 0.04,
    "tool: unsure before the effect": 0.02,
    "tool: unsure after the effect": 0.03,
    "tool: hangs before the effect": 0.02,
    "tool: hangs after the effect": 0.02,
    "tool: crash before the effect": 0.015,
    "tool: crash after the effect": 0.02,
    "tool: late result": 0.02,
    "tool: late effect": 0.015,
    "tool: delivered twice": 0.02,
    "tool: large result": 0.01,
    "tool: slow": 0.05,
    "process: frozen before the effect": 0.01,
    "process: frozen after the effect": 0.015,
}
"""How likely each way of a tool to end badly is, per attempt."""
PROBE_FAULTS = {"probe: cannot tell": 0.1, "probe: hangs": 0.05, "probe: raises": 0.05}
CHECK_FAULTS = {"check: refuses": 0.1, "check: raises": 0.05, "check: slow": 0.05}


WRITTEN_S = 5.0
"""After how long an outcome must be written, however slow the disk is."""


def _is_written(entries: Sequence[ev.Entry], call: str, attempt: int) -> bool:
    """Whether the journal has an outcome of this attempt."""
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, ev.ToolStarted) and (event.call, event.attempt) == (call, attempt):
            return False
        known = isinstance(event, ev.ToolCompleted | ev.ToolLate | ev.ToolResolved)
        if known and event.call == call:
            return True
    return False


@dataclass
class Witness:
    """What is known outside the runtime."""

    effects: list[Effect] = field(default_factory=list)
    kept: list[Acknowledged] = field(default_factory=list)
    made: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    keys: set[tuple[str, str]] = field(default_factory=set)
    found: list[Violation] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    sent: list[condensing.Sent] = field(default_factory=list)
    grants: deciding.GrantBook = field(default_factory=deciding.GrantBook)
    facts: FactBook = field(default_factory=FactBook)
    lines: LineBook = field(default_factory=LineBook)

    def claimed(self, run: str, epoch: int) -> None:
        """Somebody was given the right to write."""
        if epoch <= self.epochs.get(run, 0):
            self.say("fenced", run, f"a claim has epoch {epoch}, as one before it")
        self.epochs[run] = epoch

    def wrote(self, run: str, epoch: int) -> None:
        """An owner has written."""
        if epoch != self.epochs.get(run):
            self.say("fenced", run, f"an owner of epoch {epoch} wrote in {self.epochs.get(run)}")

    def acknowledged(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """The store said that these are durable."""
        for entry in entries:
            self.kept.append(Acknowledged(run=run, seq=entry.seq, print_=fingerprint(run, entry)))

    def say(self, name: str, run: str, text: str) -> None:
        """Note a broken promise that only the world can see."""
        self.found.append(Violation(name=name, run=run, seq=0, text=text))


class World:
    """One simulated world."""

    def __init__(
        self, chance: Chance, loop: VirtualLoop, disk: Disk, turns: int = 6, theme: str = ""
    ) -> None:
        self.chance = chance
        self.theme = theme
        self.loop = loop
        self.disk = disk
        self.turns = turns
        self.witness = Witness()
        self.processes: list[Process] = []
        self.wanted = 1
        self.over = False
        self.threads: list[remembering.Thread] = []
        """All that were begun, over or not."""
        self.offset_us = 0
        self._born = 0
        self._named = 0
        self._lines: dict[tuple[str, int], ModelReply] = {}
        self._lengths: dict[str, int] = {}
        self.people = Process(self, "people", is_people=True)
        self.look = disk.open()

    # ---------------------------------------------------------------- time

    def now_us(self) -> int:
        """What the wall clock says."""
        return START_US + self.offset_us + round(self.loop.time() * 1e6)

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Have the world itself do something."""
        self.loop.call_later(seconds, what, context=Surroundings())

    def new_id(self) -> str:
        """The id of a run that the runtime itself begins."""
        self._named += 1
        return f"u{self._named}"

    # ---------------------------------------------------------------- processes

    def spawn(self, run: str = "") -> Process:
        """A new process, at work."""
        self._born += 1
        name = f"{'driver' if run else 'worker'} {self._born}"
        process = Process(self, name, run)
        self.processes.append(process)
        process.begin()
        return process

    def replace(self, gone: Process) -> None:
        """A process has ended; a worker's place is filled after a while."""
        if gone.run or self.over:
            return
        self.later(self.chance.draw("replace") * 8, self._fill)

    def _fill(self) -> None:
        if len(self.workers()) < self.wanted and not self.over:
            self.spawn()

    def workers(self) -> list[Process]:
        """The workers that are there and have not been told to end."""
        return [
            p
            for p in self.processes
            if p.condition == "alive"
            and not p.run
            and p.main is not None
            and not p.main.done()
            and not p.rt.host.draining
        ]

    # ---------------------------------------------------------------- the model

    async def reply(self, window: int, request: ModelRequest, show: OnDelta | None) -> ModelReply:
        """What a model says to a request."""
        chance, run = self.chance, request.run
        for fault in faults(request.messages):
            self.witness.say("messages", run, fault)
        intent = await self._intended(
            run,
            lambda e: (
                isinstance(e.event, ev.ModelRequested)
                and (e.step, e.event.attempt) == (request.step, request.attempt)
            ),
            f"the request of step {request.step}",
        )
        asked = intent.event if intent is not None else None
        purpose = asked.purpose if isinstance(asked, ev.ModelRequested) else "turn"
        for fault in condensing.faults_of(request, purpose, window):
            self.witness.say("context", run, fault)
        await asyncio.sleep(0.05 + chance.draw(f"pace {run}") * 1.5)
        if purpose != "turn":
            return await condensing.aside(chance, request, purpose)
        self.witness.sent.append(condensing.sent_of(request))
        table = cast.MODEL_FAULTS if window > cast.SMALL else cast.OF_SMALL
        kind = chance.incident(f"model {run}", table)
        reply = self._line(run, request, small=window <= cast.SMALL)
        if kind.startswith("model: "):
            bad = await cast.misbehave(kind, lambda: chance.draw(f"pace {run}"))
            if bad is not None:
                return bad
        elif kind:
            return cast.skewed(kind, reply)
        return reply

    def _line(self, run: str, request: ModelRequest, *, small: bool) -> ModelReply:
        line = self._lines.get((run, request.turn))
        if line is None:
            line = self._lines[run, request.turn] = self._written(run, request.turn, small=small)
        return line

    def _written(self, run: str, turn: int, *, small: bool) -> ModelReply:
        """The script of a run: some turns with calls, then an answer."""
        chance, place = self.chance, f"script {run} {turn}"
        if run not in self._lengths:
            most = self.turns * 2 if small else self.turns
            self._lengths[run] = chance.between(f"length {run}", 0, most)
        if turn >= self._lengths[run]:
            return ModelReply(parts=(Text(f"done after {turn}"),), usage=cast.USED)
        calls: list[ReplyCall] = []
        for n in range(chance.between(place, 1, 4)):
            if small and self.theme != "memory" and chance.draw(place) < 0.94:
                calls.append(condensing.call_of(chance, place))
                continue
            if self.theme == "memory":
                calls.append(remembering.call_of(chance, run, f"{place}.{n}"))
                continue
            tool = chance.pick(place, deciding.KINDS if self.theme == "approvals" else cast.KINDS)
            arguments = f'{{"n":{chance.between(place, 0, 3)}}}'
            if chance.draw(place) < 0.06:
                tool, arguments = "ask_user", '{"question":"which one?"}'
            calls.append(ReplyCall(name=tool, arguments=arguments, id=f"call_{n}"))
        return ModelReply(calls=tuple(calls), finish="tool_calls", usage=cast.USED)

    # ---------------------------------------------------------------- tools

    async def act(self, ctx: Context[Any], tool: str) -> str:
        """One attempt of a tool, with whatever end it takes."""
        process = ctx.deps
        result = await self._acted(ctx, tool)
        written = self._must_be_written(process, ctx.run_id, ctx.call_id, ctx.attempt)
        self.loop.create_task(written, context=Surroundings())
        return result

    async def _acted(self, ctx: Context[Any], tool: str) -> str:
        chance, process = self.chance, ctx.deps
        place = f"tool {ctx.run_id} {ctx.call_id}"
        await self._begins(ctx, tool)
        await asyncio.sleep(0.02 + chance.draw(f"pace {ctx.run_id}"))
        kind = chance.incident(place, TOOL_FAULTS)
        match kind:
            case "tool: raises":
                raise ToolError("it failed for certain")
            case "tool: says not done":
                raise NotDone("nothing was sent")
            case "tool: unsure before the effect":
                raise ConnectionError("reset")
            case "tool: hangs before the effect":
                await asyncio.sleep(1_000)
            case "tool: crash before the effect":
                await process.crash()
            case "process: frozen before the effect":
                await process.freeze_now()
            case "tool: late effect":
                await self._outlast(chance.draw(place) * 20)
            case "tool: slow":
                await asyncio.sleep(cast.TIMEOUT_S * 0.75)
        self._happens(ctx, tool)
        if kind == "tool: delivered twice" and cast.RECOVERIES[tool] == "keyed":
            self._happens(ctx, tool)
        return await self._after(ctx, kind, place)

    async def _after(self, ctx: Context[Any], kind: str, place: str) -> str:
        match kind:
            case "tool: unsure after the effect":
                raise Unsure("the line went dead")
            case "tool: hangs after the effect":
                await asyncio.sleep(1_000)
            case "process: frozen after the effect":
                await ctx.deps.freeze_now()
            case "tool: crash after the effect":
                await ctx.deps.crash()
            case "tool: late result":
                await self._outlast(self.chance.draw(place) * 20)
            case "tool: large result":
                return LARGE
        return f"{ctx.tool} done"

    async def _outlast(self, seconds: float) -> None:
        """Go on although one's time is up."""
        try:
            await asyncio.sleep(cast.TIMEOUT_S + 0.1)
        except asyncio.CancelledError:
            if self.over:
                raise
            await asyncio.sleep(seconds)

    async def _begins(self, ctx: Context[Any], tool: str) -> None:
        run, call, attempt = ctx.run_id, ctx.call_id, ctx.attempt
        self.witness.made[run, call, attempt] += 1
        if self.witness.made[run, call, attempt] > 1:
            self.witness.say("once", run, f"attempt {attempt} of {call} is made again")
        await self._intended(
            run,
            lambda e: (
                isinstance(e.event, ev.ToolStarted)
                and (e.event.call, e.event.attempt) == (call, attempt)
            ),
            f"attempt {attempt} of {call}",
        )

    async def _must_be_written(self, process: Process, run: str, call: str, attempt: int) -> None:
        """What a tool returned in a living, healthy process is soon in the journal."""
        await asyncio.sleep(WRITTEN_S)
        if process.troubled or process.gone:
            return
        if not _is_written(await self._journal(run), call, attempt) and not self.lost(run):
            said = f"attempt {attempt} of {call} returned {WRITTEN_S:g} s ago"
            self.witness.say("known", run, f"{said} and nothing says so")

    async def _intended(
        self, run: str, is_it: Callable[[ev.Entry], bool], what: str
    ) -> ev.Entry | None:
        """The intent of what happens now, which must be durable."""
        if self.over:
            raise asyncio.CancelledError
        found = next(filter(is_it, reversed(await self._journal(run))), None)
        if found is None and not self.lost(run):
            self.witness.say("intent", run, f"{what} is made and its intent is not durable")
        return found

    async def _journal(self, run: str) -> list[ev.Entry]:
        return [] if self.lost(run) else await self.look.read(run)

    def lost(self, run: str) -> bool:
        """Whether somebody has removed it, so that nothing can be said of it any more."""
        return self.witness.lines.is_gone(run)

    def _happens(self, ctx: Context[Any], tool: str) -> None:
        if self.over:
            raise asyncio.CancelledError
        key = (ctx.key, tool)
        if cast.RECOVERIES[tool] == "keyed" and key in self.witness.keys:
            return
        self.witness.keys.add(key)
        self.witness.effects.append(
            Effect(run=ctx.run_id, call=ctx.call_id, attempt=ctx.attempt, tool=tool, key=ctx.key)
        )

    def words(self, ctx: Context[Any]) -> str:
        """How much a tool has to say beside what it did."""
        return condensing.words(self.chance, ctx.run_id, ctx.call_id)

    async def probe(self, ctx: Context[Any], tool: str) -> Any:
        """What a probe finds out."""
        await asyncio.sleep(0.05)
        match self.chance.incident(f"probe {ctx.run_id} {ctx.call_id}", PROBE_FAULTS):
            case "probe: cannot tell":
                return UNKNOWN
            case "probe: hangs":
                await asyncio.sleep(1_000)
            case "probe: raises":
                raise ToolError("the probe is broken")
        return happened("found") if (ctx.key, tool) in self.witness.keys else NOT_HAPPENED

    async def check(self, answer: Answer) -> str | None:
        """What a completion check says."""
        await asyncio.sleep(0.05)
        match self.chance.incident(f"check {answer.run}", CHECK_FAULTS):
            case "check: refuses":
                return "say more"
            case "check: raises":
                raise RuntimeError("the check is broken")
            case "check: slow":
                await asyncio.sleep(20)
        return None
