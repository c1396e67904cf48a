"""Would the same be decided today? A journal is walked again, and every decision taken anew.

What came from outside (replies, results, people, time) is taken as it was recorded. Wherever the
journal holds a decision of the core, `decide` is asked again, with the rules of today, the state
of then and the time of then. Nothing is called, and nothing is written.

A difference that leaves the path as it was (another prompt, another reservation) is noted, and
the walk goes on. At the first one that leads elsewhere (another call, another verdict, another
end) it stops: what came after in the journal would never have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import unified_diff
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.actions import Action, Done, Halt, InFlight, ProbeCall, Wait
from cairn.core.decide import decide
from cairn.core.events.model import NO_TOOLS
from cairn.core.evolve import evolve
from cairn.core.evolve_context import with_blocks
from cairn.core.grants import recorded_in
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Limits
from cairn.core.messages import Record
from cairn.core.replay_outcomes import (
    bound_as_recorded,
    decided_inside,
    due_events,
    refused_outside,
)
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.core.views.words import words
from cairn.errors import ConfigError, ErrorClass, safe_repr

replace = msgspec.structs.replace

PATH: dict[type[ev.Event], tuple[str, ...]] = {
    ev.ModelRequested: ("attempt", "model", "tool_choice", "output_mode", "purpose"),
    ev.ModelRejected: ("error_class", "disposition"),
    ev.ToolStarted: ("call", "attempt", "tool"),
    ev.ToolRejected: ("call", "kind", "error_class", "disposition"),
    ev.ToolRedirected: ("call", "tool", "arguments"),
    ev.ToolFailed: ("call", "error_class", "disposition", "switch_to"),
    ev.ApprovalRequested: ("n", "call", "digest"),
    ev.ApprovalExpired: ("n",),
    ev.InputGiven: ("seqs",),
    ev.InputRequested: ("n", "call"),
    ev.TakeoverRequested: ("call",),
    ev.LimitReached: ("limit",),
    ev.LimitWarned: ("limit", "level"),
    ev.StepStarted: ("name", "attempt"),
    ev.RunCompleted: ("answer",),
    ev.RunFailed: ("error_class",),
    ev.RunStopped: ("limit",),
    ev.RunCancelled: (),
}
"""The decisions of the core, and which of their fields say where the run goes."""
IGNORABLE: dict[str, tuple[type[ev.Event], str]] = {"model": (ev.ModelRequested, "model")}
"""What of a decision can be overlooked, by name: the event and its field."""
_KINDS = {
    "reserved": "reservation",
    "rule": "rule",
    "message": "told",
    "note": "told",
    "question": "told",
    "effect": "handling",
    "recovery": "handling",
    "timeout_us": "handling",
}
_APART = frozenset({"blocks", "tools", "messages", "duration_us", "retry_at"})
"""Fields that are compared in another way, or that chance has a part in."""


class Difference(Record):
    """Something is not as it was.

    Args:
        seq, step: Where in the journal; the first place, if there are several.
        kind: `path` when the run would have gone elsewhere; else what differs: `prompt`, `tools`,
            `reservation`, `rule`, `handling`, `told` or `detail`; `ignored` for what would have
            led elsewhere and was overlooked, as was asked.
        what: What it is about, in words.
        recorded: As it was.
        now: As it would be.
        times: In how many places the same differs.
    """

    seq: int
    step: int
    kind: str
    what: str
    recorded: str
    now: str
    times: int = 1

    @property
    def diff(self) -> str:
        """From what was to what would be, as a unified diff."""
        lines = unified_diff(
            self.recorded.splitlines(), self.now.splitlines(), "recorded", "now", lineterm="", n=2
        )
        return "\n".join(lines)


class Decision(Record):
    """One decision of the journal beside the one that would be taken now.

    `now` is empty behind the divergence, where nothing can be said any more.
    """

    seq: int
    step: int
    recorded: str
    now: str = ""

    @property
    def same(self) -> bool:
        """Whether the path goes on as it did."""
        return self.recorded == self.now


class Replay(Record, gc=True):
    """What became of a run's decisions under other rules.

    Args:
        run: Its id.
        events: How many events the journal holds.
        divergence: The first decision that leads elsewhere; None when all are taken again.
        changes: What differs and leaves the path as it was, each once.
        steps: Every decision, as recorded and as it would be taken.
    """

    run: str
    events: int
    divergence: Difference | None
    changes: tuple[Difference, ...]
    steps: tuple[Decision, ...]

    @property
    def same(self) -> bool:
        """Whether the run would have taken the same path."""
        return self.divergence is None

    @property
    def first(self) -> Difference | None:
        """The first difference of any kind."""
        found = [*self.changes, *([self.divergence] if self.divergence is not None else [])]
        return min(found, key=lambda each: each.seq, default=None)


class Replayer:
    """Walks one journal, event by event.

    Args:
        state: The state before the first event that is fed.
        rules: What is decided by.
        limits: Bounds in place of the recorded ones.
        ignore: Which of `IGNORABLE` lead nowhere else.

    Raises:
        ConfigError: one of `ignore` cannot be overlooked.
    """

    def __init__(
        self,
        state: RunState,
        rules: Rules,
        limits: Limits | None = None,
        ignore: Sequence[str] = (),
    ) -> None:
        self._ignored = _ignored(ignore)
        self.state = state
        self.divergence: Difference | None = None
        self._rules = rules
        self._limits = limits
        self._batch: list[tuple[int, ev.Event]] = []
        self._changes: dict[tuple[str, ...], Difference] = {}
        self._steps: list[Decision] = []
        self._bound()

    @property
    def diverged(self) -> bool:
        """Whether the run would have gone elsewhere by now."""
        return self.divergence is not None

    def feed(self, entry: ev.Entry, prompt: str | None = None) -> None:
        """Take in the next entry.

        Args:
            entry: As recorded.
            prompt: The instructions that the request would hold now, None if that is not asked.
        """
        if self.diverged:
            if type(entry.event) in PATH:
                self._steps.append(_row(entry, ""))
            return
        if isinstance(entry.event, ev.ModelRequested):
            self._request(entry, entry.event, prompt)
        if self._is_decision(entry.event):
            self._decision(entry)
        else:
            self._batch = []
            self._inside(entry)
        self._go_on(entry)

    def _go_on(self, entry: ev.Entry) -> None:
        if self.diverged:
            return
        self.state = evolve(self.state, entry)
        if isinstance(entry.event, ev.RunCreated | ev.RunForked):
            self._bound()

    def result(self, run: str, events: int) -> Replay:
        """What has been found."""
        return Replay(
            run=run,
            events=events,
            divergence=self.divergence,
            changes=tuple(self._changes.values()),
            steps=tuple(self._steps),
        )

    def _bound(self) -> None:
        if self._limits is not None:
            self.state = replace(self.state, limits=self._limits)

    def _is_decision(self, event: ev.Event) -> bool:
        if isinstance(event, ev.ToolFailed):  # of a call at work it is an outcome
            call = self.state.calls.get(event.call)
            return call is not None and call.status is not CallStatus.STARTED
        if isinstance(event, ev.LimitReached) and event.limit.startswith("budget:"):
            return False  # what others had spent by then came from outside
        if refused_outside(event):
            return False
        return type(event) in PATH

    # ------------------------------------------------------------ decisions

    def _decision(self, entry: ev.Entry) -> None:
        action: Action | None = None
        if not self._batch:
            action = decide(_made_for(self.state, entry.event), self._rules, entry.at)
            self._batch = list(due_events(action, self.state, self._rules))
        step, event = self._taken(entry.event)
        if event is None:
            if not _fault_of_ours(entry.event):
                self._leads_elsewhere(entry, _instead(action))
            return
        event = bound_as_recorded(event, entry.event, self.state)
        same = step == entry.step and type(event) is type(entry.event)
        if not same or not self._same_path(entry.event, event):
            if _fault_of_ours(entry.event):
                self._batch = []
                return
            self._leads_elsewhere(entry, _told(event, step, entry), event)
            return
        self._steps.append(_row(entry, _told(entry.event)))
        self._details(entry, event)

    def _same_path(self, recorded: ev.Event, now: ev.Event) -> bool:
        kind = type(recorded)
        counts = (field for field in PATH[kind] if (kind, field) not in self._ignored)
        return all(getattr(recorded, field) == getattr(now, field) for field in counts)

    def _taken(self, recorded: ev.Event) -> tuple[int, ev.Event | None]:
        """The decision that stands in this place; calls to start may be started in part."""
        starts = self._batch and isinstance(self._batch[0][1], ev.ToolStarted)
        if starts and isinstance(recorded, ev.ToolStarted):
            due = [each for each in self._batch if _call(each[1]) == recorded.call]
            found = (due or self._batch)[0]
            self._batch = []  # who started only some of them decides anew about the rest
            return found
        return self._batch.pop(0) if self._batch else (0, None)

    def _leads_elsewhere(self, entry: ev.Entry, now: str, instead: ev.Event | None = None) -> None:
        recorded = _told(entry.event)
        what = f"recorded: {recorded}; now: {now}"
        if instead is not None and type(instead) is type(entry.event):
            what = f"{entry.event.NAME}: {_changed(entry.event, instead)}"
        self._steps.append(_row(entry, now))
        self.divergence = Difference(
            seq=entry.seq,
            step=entry.step,
            kind="path",
            what=what,
            recorded=_spelled(entry.event),
            now=now if instead is None else _spelled(instead),
        )

    def _details(self, entry: ev.Entry, now: ev.Event) -> None:
        recorded = entry.event
        for field in recorded.__struct_fields__:
            ignored = (type(recorded), field) in self._ignored
            if field in _APART or (field in PATH[type(recorded)] and not ignored):
                continue
            before, after = getattr(recorded, field), getattr(now, field)
            if before != after:
                kind = "ignored" if ignored else _KINDS.get(field, "detail")
                what = f"{recorded.NAME}: {field.removesuffix('_us')}"
                self._note(entry, kind, what, _plain(before), _plain(after))

    def _request(self, entry: ev.Entry, event: ev.ModelRequested, prompt: str | None) -> None:
        if event.purpose != "turn":
            return  # beside the turns no tools are offered and no blocks are sent
        offered = event.tools or self.state.tools or NO_TOOLS
        known = {h or NO_TOOLS for h in (self._rules.offered, *self._rules.offers)}
        if offered not in known and not self._rules.catalogue and not event.withheld:
            self._note(
                entry,
                "tools",
                "the tools on offer",
                offered,
                self._rules.offered or NO_TOOLS,
            )
        if prompt is None:
            return
        sent = next((b.text for b in event.blocks if b.name == "instructions"), None)
        before = self._instructions() if sent is None else sent
        if before != prompt:
            self._note(entry, "prompt", "the instructions", before, prompt)

    def _instructions(self) -> str:
        block = self.state.blocks.get("instructions")
        return block.text if block is not None else ""

    def _note(self, entry: ev.Entry, kind: str, what: str, recorded: str, now: str) -> None:
        """Keep a difference once; how much is reserved differs in every request anew."""
        key = (kind, what) if kind == "reservation" else (kind, what, recorded, now)
        known = self._changes.get(key)
        if known is not None:
            self._changes[key] = replace(known, times=known.times + 1)
            return
        self._changes[key] = Difference(
            seq=entry.seq, step=entry.step, kind=kind, what=what, recorded=recorded, now=now
        )

    # ------------------------------------------------------------ outcomes

    def _inside(self, entry: ev.Entry) -> None:
        """What an outcome says is done about it was decided, too."""
        found = decided_inside(self.state, self._rules, entry)
        if found is None:
            return
        if found.recorded == found.now:
            if found.kept:
                self._steps.append(_row(entry, _told(entry.event)))
            return
        if not found.leads:
            self._note(entry, "order", found.what, found.recorded, found.now)
            return
        now = f"{found.what}: {found.now}"
        self._steps.append(_row(entry, now))
        self.divergence = Difference(
            seq=entry.seq,
            step=entry.step,
            kind="path",
            what=f"{found.what}, recorded: {found.recorded}; now: {found.now}",
            recorded=found.recorded,
            now=found.now,
        )


def replay(
    state: RunState,
    entries: Iterable[ev.Entry],
    rules: Rules,
    *,
    limits: Limits | None = None,
    prompt: str | None = None,
    ignore: Sequence[str] = (),
) -> Replay:
    """Take every decision in `entries` anew.

    Args:
        state: The state before the first of them.
        entries: As recorded, in order.
        rules: What is decided by.
        limits: Bounds in place of the recorded ones.
        prompt: The instructions that would be sent now, None to leave them out.
        ignore: Which of `IGNORABLE` lead nowhere else.

    Raises:
        ConfigError: one of `ignore` cannot be overlooked.
    """
    walked = list(entries)
    walk = Replayer(state, replace(rules, grants=recorded_in(walked)), limits, ignore)
    for entry in walked:
        walk.feed(entry, prompt)
    return walk.result(walk.state.run, len(walked))


def _made_for(state: RunState, event: ev.Event) -> RunState:
    """The state that a decision was taken on: of a request for a turn, with its blocks."""
    if isinstance(event, ev.ModelRequested) and event.purpose == "turn":
        return with_blocks(state, event.blocks)
    return state


def _instead(action: Action | None) -> str:
    """What would be done where the journal has a decision, when that is no decision."""
    match action:
        case Wait():
            return f"wait for {' and '.join(sorted(action.reasons))}"
        case ProbeCall():
            return f"ask the probe of {action.call}"
        case InFlight():
            return "wait for what is at work"
        case Halt():
            return "stop what is at work"
        case Done():
            return "nothing: the run is over"
        case _:
            return "nothing more"


def _ignored(names: Sequence[str]) -> frozenset[tuple[type[ev.Event], str]]:
    names = (names,) if isinstance(names, str) else names
    for name in names:
        if name not in IGNORABLE:
            known = ", ".join(IGNORABLE)
            raise ConfigError(
                "ignore", f"{safe_repr(name)} cannot be overlooked", f"Use one of: {known}"
            )
    return frozenset(IGNORABLE[name] for name in names)


def _changed(recorded: ev.Event, now: ev.Event) -> str:
    """Which fields lead elsewhere: `tool_choice was auto and would be none`."""
    found = [
        f"{field} was {_plain(getattr(recorded, field)) or 'none'} "
        f"and would be {_plain(getattr(now, field)) or 'none'}"
        for field in PATH[type(recorded)]
        if getattr(recorded, field) != getattr(now, field)
    ]
    return ", ".join(found) or "it would belong to another step"


def _fault_of_ours(event: ev.Event) -> bool:
    """An end that no rule decided: the runtime failed, and said so."""
    return isinstance(event, ev.RunFailed) and event.error_class is ErrorClass.INTERNAL


def _call(event: Any) -> str:
    call: str = event.call
    return call


# ---------------------------------------------------------------- words


def _row(entry: ev.Entry, now: str) -> Decision:
    return Decision(seq=entry.seq, step=entry.step, recorded=_told(entry.event), now=now)


def _told(event: ev.Event, step: int = 0, beside: ev.Entry | None = None) -> str:
    other = f"step {step} · " if beside is not None and step != beside.step else ""
    return f"{other}{event.NAME} {words(event)}".rstrip()


def _spelled(event: ev.Event) -> str:
    """An event with each field on a line of its own, so that a diff shows which one differs."""
    fields = msgspec.to_builtins(event)
    return "\n".join([event.NAME, *(f"{name}: {_plain(value)}" for name, value in fields.items())])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
