"""Events in plain words: one line for each, for logs, traces and lists.

What models and tools wrote stands in these lines as it is; who prints them makes it safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.edits import plan_lines
from cairn.core.limits import Usage
from cairn.core.messages import Part, calls_of, text_of
from cairn.core.terms import described
from cairn.core.visible import beginning_as_read

LONG = 120
"""Characters of somebody's text that a line shows unless asked for more."""
SECOND_US = 1_000_000


def words(event: ev.Event, long: int = LONG) -> str:
    """What an event says, in one line; texts in it are cut at `long` characters."""
    told = _WORDS.get(type(event))
    if told is not None:
        return told(event, long)
    fact = _FACTS.get(type(event))
    if fact is not None:
        return fact(event)
    fields = msgspec.structs.asdict(event)
    return short(", ".join(f"{k} {v}" for k, v in fields.items() if v), long)


def short(text: str, limit: int = LONG) -> str:
    """A text on one line, cut at `limit` characters; that it was cut is always seen."""
    if len(text) > limit * 8:  # do not split what is cut off anyway
        text = text[: limit * 8] + "…"
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: max(limit - 1, 0)] + "…"


def _args(arguments: str, limit: int) -> str:
    """A call's arguments on one line, with the letters that the tool gets."""
    return short(beginning_as_read(arguments, limit), limit)


def span(us: int) -> str:
    """A length of time: `7 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `6 d 4 h`."""
    if us < SECOND_US:
        return f"{us / 1000:.0f} ms" if us >= 1000 or not us else "under 1 ms"
    seconds = us / SECOND_US
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def money(micro_usd: int) -> str:
    """An amount: `$0`, `$0.0042`, `$1.25`."""
    if not micro_usd:
        return "$0"
    dollars = micro_usd / 1_000_000
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.6f}".rstrip("0")


def measured(limit: str, value: int) -> str:
    """A value of a limit in its unit: money as `$1.25`, running time as `3 min 20 s`."""
    if limit == "micro_usd":
        return money(value)
    return span(value * SECOND_US) if limit == "running_s" else f"{value:,}"


def tokens(usage: Usage) -> str:
    """What a reply used: `812 in (700 cached), 40 out`."""
    read = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    thought = f" ({usage.reasoning_tokens:,} thinking)" if usage.reasoning_tokens else ""
    return f"{read:,} in{cached}, {usage.output_tokens + usage.reasoning_tokens:,} out{thought}"


def charged(used: str, cost: str, *, measured: bool) -> str:
    """What a request used and cost, or at what it is charged when nobody knows what it used."""
    if measured:
        return joined(used, cost)
    return f"use unknown, charged at its reservation: {', '.join(filter(None, (used, cost)))}"


def asked(us: int) -> str:
    """How long a provider asked to wait, empty if it did not."""
    return f"the provider asked for {span(us)}" if us else ""


def said(parts: tuple[Part, ...], long: int = LONG) -> str:
    """What a message holds: its text, and the calls it makes."""
    calls = [f"{c.id} {c.name}({_args(c.arguments, long)})" for c in calls_of(parts)]
    text = short(text_of(parts), long)
    return " · ".join(filter(None, [f'"{text}"' if text else "", *calls]))


def joined(*pieces: str) -> str:
    """The pieces that hold something, with dots between them."""
    return " · ".join(filter(None, pieces))


# ---------------------------------------------------------------- run and step


def _created(e: ev.RunCreated, long: int) -> str:
    bounds = "" if e.approvals == "ask" else "approvals none"
    session = f"session {e.session}" if e.session else ""
    behind = f"{'interrupts' if e.interrupts else 'behind'} {e.behind}" if e.behind else ""
    text = short(text_of(e.input), long)
    who = f"{e.agent} for {e.principal.id}"
    kind = f"{e.kind} by the intake's rule" if e.kind_by else e.kind
    project = f"project {e.project}" if e.project else ""
    return joined(who, kind, session, project, behind, bounds, f'"{text}"')


def _forked(e: ev.RunForked, long: int) -> str:
    return joined(f"from {e.parent} at event {e.at}", short(e.reason, long))


def _continued(e: ev.RunContinued, long: int) -> str:
    taken = f"takes over {len(e.consumes)} unread" if e.consumes else ""
    return joined(f"from {e.previous.run} at event {e.previous.seq}", taken, short(e.note, long))


def _version(e: ev.RunVersionChanged, long: int) -> str:
    if any(change.before for change in e.changes):
        told = ", ".join(f"{c.part} {_hash(c.before)} → {_hash(c.after)}" for c in e.changes)
    else:
        told = "what came before is not known"
    anew = f"judged anew: {', '.join(e.calls)}" if e.calls else ""
    return joined("refused" if e.decision == "refuse" else "", told, anew, e.driver)


def _hash(found: str) -> str:
    return found or "none"


def _failed_run(e: ev.RunFailed, long: int) -> str:
    return f"{e.error_class.value}: {short(e.message, long)}"


def _completed_run(e: ev.RunCompleted, long: int) -> str:
    degraded = f"degraded: {', '.join(e.degraded)}" if e.degraded else ""
    return joined(f"the answer is event {e.answer}", degraded)


def _step_started(e: ev.StepStarted, long: int) -> str:
    return joined(f"task {e.name}", _again(e.attempt))


def _step_failed(e: ev.StepFailed, long: int) -> str:
    return joined(_fault(e.error_class.value, e.message, e.disposition, long), span(e.duration_us))


# ---------------------------------------------------------------- model


def _requested(e: ev.ModelRequested, long: int) -> str:
    room = f"up to {e.reserved.tokens:,} tokens"
    cost = f"and {money(e.reserved.micro_usd)}" if e.reserved.micro_usd else ""
    changed = f"changed: {', '.join(b.name for b in e.blocks)}" if e.blocks else ""
    why = f"to summarise the messages before {e.cut + 1}" if e.purpose == "summary" else ""
    seen = f"messages from {e.view.start + 1} on" if e.view is not None else ""
    larger = "for its larger window" if e.fallback else ""
    spent = f"{room} {cost}".strip()
    return joined(e.model, larger, _again(e.attempt), why, spent, changed, seen)


def _replied(e: ev.ModelCompleted, long: int) -> str:
    cost = money(e.usage.micro_usd) if e.usage.micro_usd else ""
    used = charged(tokens(e.usage), cost, measured=e.measured)
    return joined(said(e.parts, long), used, span(e.latency_us))


def _model_failed(e: ev.ModelFailed, long: int) -> str:
    cost = money(e.usage.micro_usd) if e.usage.micro_usd else ""
    return joined(
        f"HTTP {e.status}" if e.status else "",
        _fault(e.error_class.value, e.message, e.disposition, long),
        asked(e.asked_us),
        charged(tokens(e.usage), cost, measured=e.measured) if e.usage.tokens else cost,
        f"failed after {span(e.latency_us)}",
    )


def _model_rejected(e: ev.ModelRejected, long: int) -> str:
    return _fault(e.error_class.value, e.note, e.disposition, long)


def _compacted(e: ev.ContextCompacted, long: int) -> str:
    who = "by a model" if e.by == "model" else "by rule"
    who = f"{who} ({e.why})" if e.why else who
    size = f"{e.before:,} → {e.after:,} tokens"
    keep = f"to be remembered: {short(' / '.join(e.keep), long)}" if e.keep else ""
    return joined(f"messages 1 to {e.start}", who, size, short(e.text, long), keep)


def _restored(e: ev.ContextRestored, long: int) -> str:
    return f"event {e.of} is taken back"


def _updated(e: ev.ContextUpdated, long: int) -> str:
    said = "what is sent beside these blocks has less room"
    return joined(short(", ".join(f"{b.name}: {b.tokens:,} tokens" for b in e.blocks), long), said)


def _fed(e: ev.TurnFed, long: int) -> str:
    return joined(", ".join(e.blocks), said(e.parts, long))


def _kept(e: ev.TurnKept, long: int) -> str:
    why = f"not kept: {e.why}" if e.why else ""
    return joined(f"facts of event {e.of}", said(e.parts, long) if e.parts else "", why)


# ---------------------------------------------------------------- tool


def _started(e: ev.ToolStarted, long: int) -> str:
    instead = f"by {e.tool}" if e.tool else ""
    taint = f"taints with {', '.join(e.taint)}" if e.taint else ""
    how = f"{e.effect}, {e.recovery}"
    return joined(e.call, instead, _again(e.attempt), how, f"by {e.rule}", taint)


def _tool_completed(e: ev.ToolCompleted, long: int) -> str:
    cost = money(e.micro_usd) if e.micro_usd else ""
    kept = f"artifact {e.artifact}" if e.artifact else ""
    sources = f"{len(e.sources)} sources" if e.sources else ""
    result = short(_raw(e.result), long)
    return joined(e.call, result, kept, sources, cost, span(e.duration_us))


def _tool_failed(e: ev.ToolFailed, long: int) -> str:
    other = f"to {e.switch_to}" if e.switch_to else ""
    fault = _fault(e.error_class.value, e.message, e.disposition, long)
    return joined(e.call, fault, other, span(e.duration_us))


def _rejected(e: ev.ToolRejected, long: int) -> str:
    rule = f"by {e.rule}" if e.rule else ""
    fault = _fault(e.error_class.value, e.message, e.disposition, long)
    return joined(e.call, e.kind, fault, rule)


def _redirected(e: ev.ToolRedirected, long: int) -> str:
    now = f"now {e.tool}({_args(e.arguments, long)})"
    return joined(e.call, now, f"by {e.rule}", short(e.reason, long))


def _unknown(e: ev.ToolUnknown, long: int) -> str:
    return joined(e.call, f"unknown ({e.reason})", short(e.message, long))


def _resolved(e: ev.ToolResolved, long: int) -> str:
    result = short(_raw(e.result), long) if e.result != ev.EMPTY else ""
    return joined(
        e.call, e.verdict.replace("_", " "), f"says a {e.by}", result, short(e.evidence, long)
    )


def _late(e: ev.ToolLate, long: int) -> str:
    came = short(_raw(e.result), long) if e.ok else short(e.message, long)
    return joined(e.call, "came too late", came)


# ---------------------------------------------------------------- people and the rest


def _asked(e: ev.ApprovalRequested, long: int) -> str:
    files = ", ".join(file.path for file in e.files)
    return joined(
        f"request {e.n} for {e.call}",
        f"by {e.rule}" if e.rule else "",
        short(e.reason, long),
        f"needs {described(e.terms)}" if described(e.terms) else "",
        f"bound to {short(files, long)}" if files else "",
    )


def _granted(e: ev.ApprovalGranted, long: int) -> str:
    changed = f"now with {_args(e.arguments, long)}" if e.arguments else ""
    return joined(_decided(e, long), changed)


def _decided(e: Any, long: int) -> str:
    roles = f"as {', '.join(e.roles)}" if getattr(e, "roles", ()) else ""
    return joined(f"request {e.n}", roles, short(e.message, long))


def _grant(e: ev.GrantMade, long: int) -> str:
    with_ = _args(e.arguments, long) if e.arguments else "any arguments"
    whose = f"for {e.principal}" if e.principal else ""
    only = f"{e.uses} calls" if e.uses else ""
    agent = f"agent {e.agent}" if e.agent else ""
    return joined(f"grant {e.n}", f"{e.tool}({with_})", agent, whose, only, short(e.reason, long))


def _question(e: ev.InputRequested, long: int) -> str:
    return joined(f"question {e.n}", e.call, short(e.question, long))


def _reached(e: ev.LimitReached, long: int) -> str:
    said = f"{e.limit}: {measured(e.limit, e.value)} of {measured(e.limit, e.bound)}"
    return short(e.message, long) or said


def _plan(e: ev.PlanUpdated, long: int) -> str:
    lines = plan_lines(e.items).replace("\n", "; ")
    return joined("by a person" if e.by == "person" else "", short(lines, long))


def _fault(error_class: str, message: str, disposition: str, long: int) -> str:
    return f"{error_class}: {short(message, long)} → {disposition}"


def _again(attempt: int) -> str:
    return f"attempt {attempt}" if attempt > 1 else ""


def _raw(value: msgspec.Raw) -> str:
    raw = bytes(value)
    return str(msgspec.json.decode(raw)) if raw[:1] == b'"' else raw.decode()


_WORDS: dict[type[ev.Event], Callable[[Any, int], str]] = {
    ev.RunCreated: _created,
    ev.RunForked: _forked,
    ev.RunContinued: _continued,
    ev.RunPauseRequested: lambda e, long: short(e.reason, long),
    ev.RunCancelRequested: lambda e, long: short(e.reason, long),
    ev.RunCompleted: _completed_run,
    ev.RunVersionChanged: _version,
    ev.RunFailed: _failed_run,
    ev.RunStopped: lambda e, long: joined(e.limit, short(e.message, long)),
    ev.RunCancelled: lambda e, long: short(e.reason, long),
    ev.StepStarted: _step_started,
    ev.StepCompleted: lambda e, long: joined(short(_raw(e.output), long), span(e.duration_us)),
    ev.StepFailed: _step_failed,
    ev.ModelRequested: _requested,
    ev.ContextCompacted: _compacted,
    ev.ContextRestored: _restored,
    ev.ContextUpdated: _updated,
    ev.TurnFed: _fed,
    ev.TurnKept: _kept,
    ev.TaskClassified: lambda e, long: joined(
        e.kind, f"says {short(e.by, long)}", short(e.why, long)
    ),
    ev.ToolsOffered: lambda e, long: joined(short(", ".join(e.names), long), f"for the {e.why}"),
    ev.ModelCompleted: _replied,
    ev.ModelFailed: _model_failed,
    ev.ModelRejected: _model_rejected,
    ev.ToolStarted: _started,
    ev.ToolCompleted: _tool_completed,
    ev.ToolFailed: _tool_failed,
    ev.ToolRejected: _rejected,
    ev.ToolUnknown: _unknown,
    ev.ToolResolved: _resolved,
    ev.ToolLate: _late,
    ev.ToolRedirected: _redirected,
    ev.ToolEdited: lambda e, long: joined(
        e.call, f"now with {_args(e.arguments, long)}", f"({e.rule})" if e.rule else ""
    ),
    ev.ApprovalRequested: _asked,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: _decided,
    ev.ApprovalExpired: _decided,
    ev.ApprovalVoided: _decided,
    ev.InputQueued: lambda e, long: short(text_of(e.parts), long),
    ev.InputRequested: _question,
    ev.InputAnswered: lambda e, long: joined(f"question {e.n}", short(e.text, long)),
    ev.TakeoverRequested: lambda e, long: joined(e.call, short(e.message, long)),
    ev.TakeoverBegun: lambda e, long: short(e.reason, long),
    ev.TakeoverTurn: lambda e, long: said(e.parts, long),
    ev.TakeoverResult: lambda e, long: joined(
        e.call,
        "done by hand",
        short(_raw(e.result), long) if e.result != ev.EMPTY else "",
        short(e.evidence, long),
    ),
    ev.TakeoverEnded: lambda e, long: short(e.note, long),
    ev.SessionTitled: lambda e, long: joined(e.session, f'"{short(e.title, long)}"'),
    ev.GrantMade: _grant,
    ev.GrantRevoked: lambda e, long: joined(f"grant {e.n}", short(e.reason, long)),
    ev.LimitReached: _reached,
    ev.LimitWarned: lambda e, long: joined(e.limit, e.level, short(e.note, long)),
    ev.PlanUpdated: _plan,
    ev.MemoryReviewed: lambda e, long: joined(
        f"m{e.fact} {e.verdict}",
        f"as {e.trust}" if e.trust else "",
        f"confirms m{e.confirms}" if e.confirms else "",
        short(e.reason, long),
    ),
    ev.MemoryForgotten: lambda e, long: joined(
        f"m{e.fact}", "expired" if e.expired else "", short(e.reason, long)
    ),
    ev.MemoryErased: lambda e, long: joined(f"{len(e.facts)} facts", short(e.reason, long)),
    ev.MemoryRecalled: lambda e, long: joined(
        e.call, ", ".join(f"m{n}" for n in e.facts) or "nothing", short(e.degraded, long)
    ),
    ev.ErrorRaised: lambda e, long: joined(
        f"{e.error_class.value}: {short(e.message, long)}", e.where
    ),
}
_FACTS: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.RunResumed: lambda _: "",
    ev.StepLost: lambda _: "the process died inside it",
    ev.InputGiven: lambda e: f"events {', '.join(map(str, e.seqs))}",
    ev.RetryScheduled: lambda e: e.subject,
    ev.ArtifactCreated: lambda e: joined(e.id, e.name, e.media_type, f"{e.size:,} bytes"),
    ev.GrantUsed: lambda e: joined(f"grant {e.n}", f"{e.run}/{e.call}"),
    ev.MemoryKept: lambda e: joined(f"m{e.fact}", e.trust, "waits for a review" if e.waits else ""),
    ev.SandboxChosen: lambda e: joined(e.rung, f"for {e.tool}"),
    ev.StorePruned: lambda e: joined(e.run, e.status, f"{e.head} events"),
    ev.StoreErased: lambda e: joined(e.run, f"{e.head} events", e.reason),
    ev.PrincipalErased: lambda e: joined(
        f"{e.runs} runs, {e.events} events, {e.sessions} sessions, {e.facts} facts, "
        f"{e.grants} grants",
        e.reason,
    ),
    ev.SessionRewound: lambda e: joined(e.session, f"to {e.run}", f"from {e.newest}"),
    ev.SessionForked: lambda e: joined(e.session, f"from {e.run} of {e.of}"),
    ev.SessionRemoved: lambda e: f"events {', '.join(map(str, e.notes))} emptied",
    ev.BudgetsSet: lambda e: joined(", ".join(cap.name for cap in e.budgets) or "none", e.by),
}
"""Events that hold nobody's text, and so are never cut."""
