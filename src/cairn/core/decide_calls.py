"""The part of `decide` that knows tool calls: which may start, ask, be repeated, or must wait."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.actions import Action, Append, InFlight, ProbeCall, StartCalls, Wait
from cairn.core.evolve_calls import repeatable
from cairn.core.gate import Ask, Go, call_digest, judge, probe_hindrance
from cairn.core.grants import grant_of
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import parse_object
from cairn.core.rules import Rules, ToolSpec
from cairn.core.state import Call, RunState, is_open, waits, wake_at
from cairn.errors import ErrorClass

_S = CallStatus
_READY = frozenset({_S.REQUESTED, _S.APPROVED, _S.RETRYING})


def next_for_calls(state: RunState, rules: Rules, now: int) -> Action:
    """What to do while calls of the present turn are open."""
    facts: list[tuple[int, ev.Event]] = []
    starts: list[tuple[int, ev.ToolStarted]] = []
    requests = state.requests
    for call in state.calls.values():
        if call.closed or call.status is _S.STARTED:
            continue
        if _expired(call, now):
            facts.append((call.step, ev.ApprovalExpired(n=call.approval)))
            continue
        if call.status is _S.UNKNOWN:
            step = _recover(state, call, rules, now)
            if isinstance(step, ProbeCall):
                return step
            if isinstance(step, ev.ToolStarted):
                starts.append((call.step, step))
            elif step is not None:
                facts.append((call.step, step))
            continue
        if call.status not in _READY or call.retry_at > now or not is_open(state, call):
            continue
        fact = _ready(state, call, rules, now, starts, requests + 1)
        if isinstance(fact, ev.ToolStarted):
            if not _twice_counted(state, rules, starts, fact):
                starts.append((call.step, fact))
        else:
            requests += isinstance(fact, ev.ApprovalRequested | ev.InputRequested)
            facts.append((call.step, fact))
    if facts:
        return Append(events=tuple(facts))
    if starts:
        return StartCalls(starts=tuple(starts))
    if state.in_flight:
        return InFlight()
    return Wait(reasons=waits(state), until=wake_at(state))


def _twice_counted(
    state: RunState, rules: Rules, starts: list[tuple[int, ev.ToolStarted]], fact: ev.ToolStarted
) -> bool:
    """Whether a start would use up, beside another one, a grant that may hold for one only."""
    n = grant_of(fact.rule)
    if not n or not rules.grants.is_counted(n, state.run, fact.call):
        return False
    return any(
        grant_of(start.rule) == n and rules.grants.is_counted(n, state.run, start.call)
        for _, start in starts
    )


def _expired(call: Call, now: int) -> bool:
    return call.status in {_S.ASKING, _S.APPROVED} and 0 < call.expires_at <= now


def _ready(
    state: RunState,
    call: Call,
    rules: Rules,
    now: int,
    starts: list[tuple[int, ev.ToolStarted]],
    n: int,
) -> ev.Event:
    if call.reason == "not_happened" and (failed := _tried_out(call, rules)) is not None:
        return failed
    verdict = judge(state, call, rules, now, sum(s.attempt == 1 for _, s in starts))
    if call.doubt and not isinstance(verdict, Go):
        return _still_in_doubt(call, verdict)
    if isinstance(verdict, ev.ToolRejected | ev.ToolRedirected):
        return verdict
    limit = _over(state, rules, [s for _, s in starts], verdict.spec)
    if limit and call.attempt == 0:
        return ev.ToolRejected(
            call=call.id,
            kind="limit",
            error_class=ErrorClass.LIMIT_REACHED,
            message=f"the run's {limit} limit is reached",
            rule=limit,
        )
    if verdict.spec.kind == "question":
        question = (parse_object(call.arguments) or {}).get("question", "")
        return ev.InputRequested(n=n, question=str(question), call=call.id)
    if isinstance(verdict, Ask):
        return ev.ApprovalRequested(
            n=n,
            call=call.id,
            digest=call_digest(call.tool, call.arguments),
            expires_at=now + _open_for(verdict, rules),
            rule=verdict.rule,
            reason=verdict.reason,
            terms=verdict.terms,
        )
    return _start(call, verdict)


def _open_for(asks: Ask, rules: Rules) -> int:
    """How long a request stays open, in microseconds: as its terms and its agent say."""
    asked = asks.terms.expires_us if asks.terms is not None else 0
    return min(asked, rules.approval_ttl_us) if asked else rules.approval_ttl_us


def _still_in_doubt(
    call: Call, verdict: Ask | ev.ToolRejected | ev.ToolRedirected
) -> ev.ToolFailed:
    """It may not be tried again, but an earlier attempt may have had its effect (law 4)."""
    return ev.ToolFailed(
        call=call.id,
        error_class=ErrorClass.IN_DOUBT,
        message="an earlier attempt may have had its effect, and it may not be repeated: "
        f"{_hindrance(verdict)}",
        disposition="takeover",
    )


def refused(call: Call, refusal: ev.ToolRejected) -> ev.Event:
    """What a refusal becomes for a call as it stands: what is in doubt is not simply called off."""
    if call.status is _S.UNKNOWN and call.effect != "read":
        said = f"it may not be repeated any more: {refusal.message}"
        return ev.TakeoverRequested(call=call.id, message=said)
    return _still_in_doubt(call, refusal) if call.doubt else refusal


def _hindrance(verdict: Ask | ev.ToolRejected | ev.ToolRedirected) -> str:
    """Why a call may not be tried again, with the rule that says so."""
    if isinstance(verdict, ev.ToolRejected):
        return verdict.message
    what = "it needs approval" if isinstance(verdict, Ask) else "another tool would be called"
    return f"{what} now ({verdict.rule})"


def _start(call: Call, verdict: Go) -> ev.ToolStarted:
    spec = verdict.spec
    return ev.ToolStarted(
        call=call.id,
        effect=spec.effect,
        recovery=spec.recovery,
        rule=verdict.rule,
        attempt=call.attempt + 1,
        tool=call.tool if call.tool != call.name else "",
        timeout_us=spec.timeout_us,
        micro_usd=spec.micro_usd,
        taint=spec.taint,
    )


def _over(state: RunState, rules: Rules, starting: list[ev.ToolStarted], spec: ToolSpec) -> str:
    """The limit that one more call would pass, counting those about to start beside it."""
    limits, spent = state.limits, state.spent
    first = sum(1 for s in starting if s.attempt == 1)
    if spent.calls + first >= limits.calls:
        return "calls"
    if spent.running_us >= limits.running_s * 1_000_000:
        return "running_s"
    priced = spec.micro_usd + sum(_cost(state, rules, s) for s in starting)
    running = sum(
        rules.tools[c.tool].micro_usd
        for c in state.calls.values()
        if c.status is _S.STARTED and c.tool in rules.tools
    )
    if spec.micro_usd and state.usage.micro_usd + priced + running > limits.micro_usd:
        return "micro_usd"
    return ""


def _cost(state: RunState, rules: Rules, start: ev.ToolStarted) -> int:
    name = start.tool or state.calls[start.call].tool
    return rules.tools[name].micro_usd if name in rules.tools else 0


# ---------------------------------------------------------------- unknown effects


def _recover(state: RunState, call: Call, rules: Rules, now: int) -> ev.Event | ProbeCall | None:
    """What its `recovery` allows for a call whose outcome is not known."""
    spec = rules.tools.get(call.tool)
    if call.recovery == "probe":
        if now < call.not_before:
            return None
        if spec is None:
            return ev.TakeoverRequested(call=call.id)
        hindered = probe_hindrance(state, call, rules)
        if hindered:
            return ev.TakeoverRequested(call=call.id, message=hindered)
        return ProbeCall(call=call.id)
    ttl = spec.key_ttl_us if spec is not None and call.recovery == "keyed" else 0
    if ttl and now >= call.first_started_at + ttl:
        return ev.TakeoverRequested(
            call=call.id, message="its idempotency key is no longer honoured"
        )
    message = f"no answer from {call.tool} in {call.attempt} attempts ({call.reason})"
    failed = _tried_out(call, rules, message)
    if failed is None:
        return _repeat(state, call, rules, now)
    if call.effect != "read":
        return ev.TakeoverRequested(call=call.id, message="every attempt ended without an answer")
    return failed


def _tried_out(call: Call, rules: Rules, message: str = "") -> ev.ToolFailed | None:
    """The failure of a call whose attempts came to nothing; None while it may be tried again."""
    error_class = call.error_class or ErrorClass.IN_DOUBT
    tries = dict(call.tries)
    unanswered = tries.get(f"{error_class.value}:retry", 0)
    if not unanswered:
        return None  # a person said that it did not happen: the ladder starts anew
    tries[f"{error_class.value}:retry"] = unanswered - 1  # the first attempt was no retry
    spec = rules.tools.get(call.tool)
    possible = {"retry"}
    if call.effect == "read" or call.status is _S.RETRYING:
        possible |= {"repair", "degrade", "end"}
        if spec is not None and spec.fallback in rules.tools and spec.fallback != call.tool:
            possible.add("switch")
    rung = rules.ladder.choose(error_class, tries, frozenset(possible))
    if rung.disposition == "retry":
        return None
    # what keeps a fact never ends a run
    listed = not call.kept and any(rung is row for row in rules.ladder.row(error_class))
    return ev.ToolFailed(
        call=call.id,
        error_class=error_class,
        message=message or f"{call.tool} did not take effect in {call.attempt} attempts",
        disposition=rung.disposition if listed else "repair",
        switch_to=spec.fallback if spec is not None and rung.disposition == "switch" else "",
    )


def _repeat(state: RunState, call: Call, rules: Rules, now: int) -> ev.Event:
    verdict = judge(state, call, rules, now)
    if isinstance(verdict, Go) and repeatable(call, verdict.spec.recovery):
        return _start(call, verdict)
    if call.effect != "read":
        why = "" if isinstance(verdict, Go) else f": {_hindrance(verdict)}"
        said = f"it may not be repeated any more{why}"
        return ev.TakeoverRequested(call=call.id, message=said)
    if isinstance(verdict, ev.ToolRejected):
        return verdict
    return ev.ToolRejected(
        call=call.id,
        kind="denied",
        error_class=ErrorClass.PERMISSION_DENIED,
        message="it was interrupted, and repeating it would need approval now",
        rule=verdict.rule,
    )
