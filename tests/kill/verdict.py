"""What must be true of a run that was killed on its way, told from its journal and from outside.

`faults_of` compares three witnesses that know nothing of each other: the journal, the file of
effects, and the file of what the store acknowledged. It returns sentences; none is good.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.kill.outside import Effect, World
from tests.kill.scenes import LADDER, POLICY, all_agents

from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.evolve import evolve
from cairn.core.lifecycle import CLOSED, ENDED, CallStatus
from cairn.core.messages import CallPart
from cairn.core.state import RunState, transcript
from cairn.crew import prepare
from cairn.memory.facts import FactFilter
from cairn.memory.port import Memory
from cairn.ports import Store
from cairn.testing.invariants import Effect as Witnessed
from cairn.testing.invariants import check_effects, check_store

AFTER_THE_END = (ev.ToolLate, ev.ToolResolved)
FINAL = (ev.ToolCompleted, ev.ToolFailed, ev.ToolRejected)


@dataclass
class Told:
    """What the journal says of one call."""

    name: str
    arguments: str = "{}"
    recovery: str = ""
    starts: int = 0
    tools: set[str] = field(default_factory=set)
    completed: int = 0
    happened: bool = False
    not_happened: bool = False
    unknown: bool = False
    late: bool = False

    @property
    def fact(self) -> str:
        """The fact that it names, if it names one."""
        named = json.loads(self.arguments).get("id", "")
        return named if isinstance(named, str) else ""


class Books:
    """One run's journal, read event by event."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.faults: list[str] = []
        self.calls: dict[str, Told] = {}
        self.requests = 0
        self.ends = 0
        self.queued: list[int] = []
        self.given: Counter[int] = Counter()
        self.state = RunState(run=run)

    def read(self, entries: Iterable[ev.Entry]) -> None:
        for entry in entries:
            self._place(entry)
            self.state = evolve(self.state, entry)
            self._take(entry)
        state = self.state
        self.faults += [f"a request would be refused: {f}" for f in faults(transcript(state))]
        if self.ends != 1:
            self.faults.append(f"{self.ends} ends")
        if state.in_flight:
            self.faults.append("something is in flight after the end")
        for call in state.calls.values():
            settled = call.status in CLOSED
            open_for_ever = call.status in {CallStatus.UNKNOWN, CallStatus.TAKEOVER}
            if not settled and not open_for_ever:
                self.faults.append(f"{call.id} ended as {call.status.value}")
            if open_for_ever and state.status.value == "completed":
                self.faults.append(f"completed with {call.id} unknown")
        twice = [seq for seq, times in self.given.items() if times > 1]
        if twice:
            self.faults.append(f"messages {twice} were given twice")
        lost = set(self.queued) - set(self.given)
        if lost and state.status.value == "completed":
            self.faults.append(f"messages {sorted(lost)} were never given")

    def _place(self, entry: ev.Entry) -> None:
        state = self.state
        if entry.seq != state.seq + 1:
            self.faults.append(f"seq {entry.seq} after {state.seq}")
        if entry.at < state.at:
            self.faults.append(f"time falls at {entry.seq}")
        ended = state.status in ENDED and not isinstance(entry.event, ev.RunForked)
        if ended and not isinstance(entry.event, AFTER_THE_END):
            self.faults.append(f"{entry.event.NAME} after the end")
        if isinstance(entry.event, ev.ModelRequested) and faults(state.messages):
            self.faults.append(f"an ill-formed request at {entry.seq}")

    def _take(self, entry: ev.Entry) -> None:
        match entry.event:
            case ev.ModelRequested():
                self.requests += 1
            case ev.ModelCompleted() | ev.TakeoverTurn() | ev.TurnFed() | ev.TurnKept() as said:
                parts = said.parts
                for part in parts:
                    if isinstance(part, CallPart):
                        self.calls[part.id] = Told(part.name, part.arguments)
            case ev.InputQueued():
                self.queued.append(entry.seq)
            case ev.InputGiven(seqs=seqs):
                self.given.update(seqs)
            case ev.RunForked():
                self.ends = 0
            case ev.ErrorRaised(message=message):
                self.faults.append(f"error.raised: {message}")
            case event if isinstance(event, ev.TERMINAL):
                self.ends += 1
            case event if getattr(event, "call", "") in self.calls:
                self._of_call(self.calls[event.call], event)

    def _of_call(self, told: Told, event: ev.Event) -> None:
        match event:
            case ev.ToolStarted(call=call, recovery=recovery, tool=tool, rule=rule):
                if told.completed or told.happened:
                    self.faults.append(f"{call} was started after it had finished")
                if told.unknown and told.recovery == "once" and not told.not_happened:
                    self.faults.append(f"{call} was repeated while it was unknown")
                if not rule:
                    self.faults.append(f"{call} was started without a verdict")
                told.starts += 1
                told.recovery = recovery
                told.tools.add(tool or told.name)
                told.unknown = told.not_happened = False
            case ev.ToolCompleted(call=call):
                told.completed += 1
                if told.completed > 1:
                    self.faults.append(f"{call} completed twice")
            case ev.ToolUnknown():
                told.unknown = True
            case ev.ToolResolved(verdict="happened"):
                told.happened, told.unknown = True, False
            case ev.ToolResolved(verdict="not_happened"):
                told.not_happened, told.unknown = True, False
            case ev.ToolLate(ok=ok):
                told.late = True
                if ok:
                    told.unknown = False
            case ev.ToolFailed():
                told.unknown = False


def compare(
    books: Books, effects: list[Effect], asked: int, acknowledged: int, gone: frozenset[str]
) -> list[str]:
    """What the journal says against what happened; `gone` are the facts that were removed."""
    found = []
    if asked > books.requests:
        found.append(f"a model was asked {asked} times and {books.requests} requests stand")
    if acknowledged > books.state.seq:
        found.append(f"seq {acknowledged} was acknowledged and {books.state.seq} is the last")
    by_call: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_call[effect.call].append(effect)
    strange = set(by_call) - set(books.calls)
    found += [f"{call} had an effect and is not in the journal" for call in sorted(strange)]
    for call, told in books.calls.items():
        found += [f"{call} ({told.name}) {fault}" for fault in _of_call(told, by_call[call], gone)]
    return found


def _of_call(told: Told, effects: list[Effect], gone: frozenset[str]) -> list[str]:
    found = []
    times = len(effects)
    if times > told.starts:
        found.append(f"happened {times} times in {told.starts} attempts")
    if told.recovery in {"once", "probe"} and times > 1:
        found.append(f"runs once and happened {times} times")
    if len({effect.key for effect in effects}) > 1:
        found.append("was repeated with another key")
    if {effect.tool for effect in effects} - told.tools:
        found.append("was done by a tool that the journal does not name")
    certain = told.recovery in {"once", "probe", "keyed"} and told.tools
    # nobody can count what another run removed, or who died between the removal and the counting
    certain = certain and not (told.name == "forget" and told.fact in gone)
    if certain and (told.completed or told.happened) and not times:
        found.append("is said to have happened and did not")
    if told.recovery in {"once", "probe"} and told.not_happened and times:
        found.append("is said not to have happened and did")
    return found


async def faults_of(store: Store, world: World, runs: Sequence[str]) -> list[str]:
    """What is wrong with these runs. All of them must be over."""
    found: list[str] = []
    keys: dict[str, tuple[str, str]] = {}
    effects: dict[str, list[Effect]] = defaultdict(list)
    for effect in world.effects():
        effects[effect.run].append(effect)
        owner = keys.setdefault(effect.key, (effect.run, effect.call))
        if owner != (effect.run, effect.call):
            found.append(f"{effect.run}/{effect.call} has the key of {'/'.join(owner)}")
    asked, acknowledged = world.asked(), world.acknowledged()
    gone = frozenset(
        f"m{entry.event.fact}"
        for entry in await store.read("store")
        if isinstance(entry.event, ev.MemoryForgotten)
    )
    for run in runs:
        books = Books(run)
        entries = await store.read(run)
        verified = await store.verify(run)
        if verified != len(entries):
            books.faults.append(f"{verified} events verified, {len(entries)} read")
        books.read(entries)
        parent = books.state.parent.run if books.state.parent else ""
        past = effects.get(parent, []), asked.get(parent, 0)
        books.faults += compare(
            books, past[0] + effects[run], past[1] + asked[run], acknowledged.get(run, 0), gone
        )
        info = await store.info(run)
        if info.leased:
            books.faults.append("its lease is still held")
        if (info.head, info.status) != (books.state.seq, books.state.status.value):
            books.faults.append(f"its line says {info.head} {info.status}")
        found += [f"{run}: {fault}" for fault in books.faults]
    return found + await laws_of(store, world, list(runs))


async def laws_of(store: Store, world: World, runs: list[str]) -> list[str]:
    """What the published invariants say, which share nothing with the books above."""
    rules = {agent.name: prepare(agent, POLICY, LADDER).rules for agent in all_agents()}
    found = await check_store(store, rules=rules, runs=runs)
    tools = {name: spec for each in rules.values() for name, spec in each.tools.items()}
    recoveries = {t.name: "read" if t.effect == "read" else t.recovery for t in tools.values()}
    effects = [Witnessed(e.run, e.call, e.attempt, e.tool, e.key) for e in world.effects()]
    journals = {run: await store.read(run) for run in runs}
    return [str(violation) for violation in (*found, *check_effects(journals, effects, recoveries))]


async def faults_of_facts(store: Store, world: World, wanted: dict[str, str]) -> list[str]:
    """What is wrong with what is remembered: every fact that was acknowledged was kept once.

    Args:
        wanted: What is remembered in the end, and how far it is trusted.
    """
    entries = await store.read("store")
    kept = [e.event for e in entries if isinstance(e.event, ev.MemoryKept)]
    gone = [e.event.fact for e in entries if isinstance(e.event, ev.MemoryForgotten)]
    memory: Memory = store.memory()
    there = await memory.facts(FactFilter(limit=0))
    found = []
    if Counter(e.fact for e in kept) != Counter({fact.n for fact in there} | {*gone}):
        found.append(f"{[e.fact for e in kept]} were kept, {gone} went, and {there} are there")
    keys = [e.key for e in kept if e.key]
    if len(set(keys)) != len(keys):
        found.append(f"a call has kept more than one fact: {keys}")
    lost = world.remembered() - {e.fact for e in kept}
    found += [f"m{n} was acknowledged and was never kept" for n in sorted(lost)]
    said = {fact.text: fact.trust for fact in there if fact.state == "live"}
    if said != wanted or len(there) != len(wanted):
        found.append(f"{there} are remembered, and it should be {wanted}")
    return found


def faults_of_recalls(entries: Iterable[ev.Entry], told: list[tuple[int, ...]]) -> list[str]:
    """Whether a run was told just these facts, once each."""
    found = [e.event.facts for e in entries if isinstance(e.event, ev.MemoryRecalled)]
    return [] if found == told else [f"it was told of {found}, not of {told}"]


def faults_of_undoing(entries: Iterable[ev.Entry]) -> list[str]:
    """Whether a run was condensed once, and that was taken back once, for good."""
    moved = (ev.ContextCompacted, ev.ContextRestored)
    found = [e.event.NAME for e in entries if isinstance(e.event, moved)]
    wanted = ["context.compacted", "context.restored"]
    return [] if found == wanted else [f"its context went {found}, not {wanted}"]
