"""A policy against recorded runs: which calls it would decide in another way than was done.

Each call is judged in the state its run had when it was decided, so taint, spend and principal are
as they were. Nothing is written and no tool is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.gate import intent_of
from cairn.core.messages import Record, calls_of, parse_object
from cairn.core.policy import Opinion, Policy, Verdict, opinions, strictest
from cairn.core.rules import Problem, ToolSpec
from cairn.core.state import Call, RunState

WAS = ("allow", "ask", "redirect", "deny")
Specs = Callable[[str], "Mapping[str, ToolSpec] | None"]
"""The tools of an agent by its name, as they are declared now; None when it is not known."""


class Judged(Record, gc=True):
    """One decision about a call, as it was and as it would be.

    Args:
        run, seq, call: Where it stands; `seq` is of the event that decided.
        tool: The tool that would have run.
        arguments: As they stood.
        was: allow, ask, redirect or deny.
        was_rule: The rule that is recorded.
        now: The verdict of the policy under test.
        becomes: What comes of that verdict; in a run that asks nobody, an ask is a deny.
        layers: What each of its layers says.
        effect: By which the call was judged.
        assumed: What had to be assumed, empty for nothing.
    """

    run: str
    seq: int
    call: str
    tool: str
    arguments: str
    was: str
    was_rule: str
    now: Verdict
    becomes: str
    layers: tuple[Opinion, ...] = ()
    effect: ev.Effect = "dangerous"
    assumed: str = ""

    @property
    def changed(self) -> bool:
        """Whether the policy would decide in another way."""
        return self.was != self.becomes


def backtest(
    run: str,
    start: RunState,
    entries: Sequence[ev.Entry],
    policy: Policy,
    specs: Specs,
    agent: Policy | None = None,
) -> list[Judged]:
    """Every decision that a run's journal holds, judged again.

    Args:
        run: Its id.
        start: The state before its first event.
        entries: The journal.
        policy: The deployment's policy under test.
        specs: The tools as they are declared now.
        agent: The agent's own policy.
    """
    effects = _effects(entries)
    state = start
    found: list[Judged] = []
    for entry in entries:
        if isinstance(entry.event, ev.RunForked):
            found = []  # what came before is the parent's
        decided = _decided(state, entry.event)
        if decided is not None:
            call, was, rule = decided
            judged = _judged(run, state, call, policy, specs(state.agent), effects, agent)
            seq = entry.seq
            found.append(_with(judged, seq, was, rule))
        state = evolve(state, entry)
    return found


def _decided(state: RunState, event: ev.Event) -> tuple[Call, str, str] | None:
    """The call that an event decides, how, and by which rule; the first attempt counts."""
    match event:
        case ev.ToolStarted(attempt=1):
            call = state.calls.get(event.call)
            if call is None or call.granted:
                return None  # the question that was answered counts
            return call, "ask" if event.rule.startswith("grant ") else "allow", event.rule
        case ev.ApprovalRequested():
            was = "ask"
        case ev.ToolRedirected():
            was = "redirect"
        case ev.ToolRejected(kind="denied"):
            was = "deny"
        case _:
            return None
    call = state.calls.get(event.call)
    return None if call is None else (call, was, event.rule)


def _judged(
    run: str,
    state: RunState,
    call: Call,
    policy: Policy,
    specs: Mapping[str, ToolSpec] | None,
    effects: Mapping[str, ev.Effect],
    agent: Policy | None,
) -> Judged:
    spec = (specs or {}).get(call.tool)
    assumed = ""
    arguments = parse_object(call.arguments) or {}
    if spec is None:
        effect = effects.get(call.tool, "dangerous")
        known = f"{effect} as recorded" if call.tool in effects else effect
        assumed = f"its tool is not known here: {known}, and its arguments as they were written"
        spec = ToolSpec(name=call.tool, check=lambda _: {}, effect=effect)
    else:
        checked = spec.check(call.arguments)
        if isinstance(checked, Problem):
            assumed = "its arguments no longer fit the tool"
        else:
            arguments = checked
    created = state.created
    layers = opinions(
        policy, intent_of(state, spec, arguments), agent, created.policy if created else None
    )
    verdict = strictest(layers)
    nobody = created is not None and created.approvals == "none"
    asks = verdict.decision == "ask" or (verdict.decision == "allow" and spec.kind == "question")
    return Judged(
        run=run,
        seq=0,
        call=call.id,
        tool=call.tool,
        arguments=call.arguments,
        was="",
        was_rule="",
        now=verdict,
        becomes="deny" if nobody and asks else verdict.decision,
        layers=layers,
        effect=spec.effect,
        assumed=assumed,
    )


def _with(judged: Judged, seq: int, was: str, rule: str) -> Judged:
    fields = {name: getattr(judged, name) for name in judged.__struct_fields__}
    return Judged(**{**fields, "seq": seq, "was": was, "was_rule": rule})


def _effects(entries: Iterable[ev.Entry]) -> dict[str, ev.Effect]:
    """The effects of tools as a journal tells them: of those that were started."""
    names: dict[str, str] = {}
    found: dict[str, ev.Effect] = {}
    for entry in entries:
        match entry.event:
            case turn if isinstance(turn, ev.Turn):
                parts = turn.parts
                names |= {part.id: part.name for part in calls_of(parts)}
            case ev.ToolRedirected(call=call, tool=tool):
                names[call] = tool
            case ev.ToolStarted(call=call, effect=effect, tool=tool):
                found[tool or names.get(call, "")] = effect
    return found


def counted(found: Iterable[Judged]) -> dict[str, dict[str, int]]:
    """How many decisions were one thing and would be another: `{"allow": {"deny": 2}}`."""
    table = {was: dict.fromkeys(WAS, 0) for was in WAS}
    for each in found:
        table[each.was][each.becomes] += 1
    return table
