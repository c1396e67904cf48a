"""From what came back to the event that records it, with the ladder's choice inside.

The shell performs, measures and hands the bare outcome in; what it means is decided here, once,
so that the journal says what is done about every fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from cairn.core import events as ev
from cairn.core.ladder import RETRY_AFTER_CAP_US, backoff_us
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Usage
from cairn.core.messages import CallPart, Part, Reasoning, Record, Text, clean
from cairn.core.quoting import one_line, with_words
from cairn.core.remaining import larger
from cairn.core.rules import GRACE_US, ModelSpec, Problem, Rules, ToolSpec
from cairn.core.state import Call, RunState
from cairn.errors import ErrorClass

EXCERPT = 2_000
LONG_WAIT_US = 60_000_000
"""A provider that asks for more than this is not waited for while another model could answer."""
CUT = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
UNANSWERED = frozenset({ErrorClass.CANCELLED, ErrorClass.TIMEOUT, ErrorClass.STREAM_INTERRUPTED})
"""Ends of a request that say nothing of what it used, so that its reservation is charged."""
REFUSED = frozenset({"content_filter", "refusal", "safety", "blocked"})


class Fault(Record):
    """A failed model attempt, as the adapter saw it; `usage` if it is known what it used."""

    error_class: ErrorClass
    message: str
    retry_after_us: int = 0
    request_id: str = ""
    usage: Usage | None = None
    status: int = 0


class Called(Record):
    """A tool call as the adapter saw it; `alias` is the provider's id of it.

    `place` is how many parts of the reply came before it; negative for all of them. `key` names
    what it touches if that was asked for beforehand, None if nobody could tell; in bytes, for it
    is compared and never kept, so nothing is taken out of it.
    """

    name: str
    arguments: str = "{}"
    alias: str = ""
    opaque: str = ""
    place: int = -1
    key: bytes | UnsetType | None = UNSET


class Reply(Record):
    """A whole reply, as the adapter saw it; no usage means that nobody said what it used."""

    parts: tuple[Part, ...] = ()
    calls: tuple[Called, ...] = ()
    finish: str = "stop"
    usage: Usage | None = Usage()
    request_id: str = ""
    first_token_us: int = 0
    model: str = ""


# ---------------------------------------------------------------- model


def model_outcome(
    state: RunState, rules: Rules, outcome: Reply | Fault, now: int, latency_us: int, jitter: float
) -> ev.ModelCompleted | ev.ModelFailed:
    """The event for what a model request brought."""
    spec = spec_of_request(state, rules)
    if isinstance(outcome, Fault):
        return _fault(state, rules, outcome, now, latency_us, jitter)
    measured = outcome.usage is not None
    usage = _reserved(state) if outcome.usage is None else _priced(outcome.usage, spec)
    wrong = _wrong(state, outcome)
    if wrong is None:
        return ev.ModelCompleted(
            parts=parts_of(state, rules, outcome),
            usage=usage,
            finish=outcome.finish,
            latency_us=latency_us,
            first_token_us=outcome.first_token_us,
            request_id=outcome.request_id,
            price=spec.price.version,
            model=clean(outcome.model) if outcome.model != spec.name else "",
            measured=measured,
        )
    error_class, note = wrong
    failed = _fault(
        state, rules, Fault(error_class=error_class, message=note), now, latency_us, jitter
    )
    return ev.ModelFailed(
        error_class=error_class,
        message=f"{note} {_excerpt(outcome)}".strip(),
        disposition=failed.disposition,
        note=f"[runtime] {note}" if failed.disposition == "repair" else "",
        usage=usage,
        latency_us=latency_us,
        retry_at=failed.retry_at,
        request_id=outcome.request_id,
        measured=measured,
    )


def spec_of_request(state: RunState, rules: Rules) -> ModelSpec:
    """The model that the open request was made to."""
    purpose = state.request.purpose if state.request is not None else "turn"
    if purpose == "summary" and rules.summary is not None:
        return rules.summary
    if purpose == "classify" and rules.intake.model is not None:
        return rules.intake.model
    return rules.models[min(state.model, len(rules.models) - 1)]


def lost_model(state: RunState, rules: Rules) -> ev.ModelFailed:
    """The event for a request whose process died: charged at its reservation."""
    beside = state.request is not None and state.request.purpose != "turn"
    again: ev.Disposition = "degrade" if state.summary_tries else "retry"
    rung = rules.ladder.choose(
        ErrorClass.STREAM_INTERRUPTED, state.tries, frozenset({"retry", "end"})
    )
    return ev.ModelFailed(
        error_class=ErrorClass.STREAM_INTERRUPTED,
        message="the process died before the reply came",
        disposition=again if beside else rung.disposition,
        lost=True,
        usage=_reserved(state),
        measured=False,
    )


def _reserved(state: RunState) -> Usage:
    """All that the open request may have used: what is charged when nobody knows."""
    if state.request is None:
        return Usage()
    reserved = state.request.reserved
    return Usage(
        input_tokens=reserved.input_tokens,
        output_tokens=reserved.output_tokens,
        micro_usd=reserved.micro_usd,
    )


def _priced(usage: Usage, spec: ModelSpec) -> Usage:
    if spec.price.free:
        return usage
    return Usage(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        micro_usd=spec.price.cost(usage),
    )


def _wrong(state: RunState, reply: Reply) -> tuple[ErrorClass, str] | None:
    """What makes a reply unusable, whatever else it holds; nothing of it is executed then."""
    if reply.finish in REFUSED:
        return ErrorClass.CONTENT_FILTERED, "The provider refused to answer."
    if reply.finish in CUT:
        return (
            ErrorClass.TRUNCATED_OUTPUT,
            (
                "Your last reply was cut off at the output limit and nothing of it was executed. "
                "Send less at once: shorter text, smaller arguments, fewer calls."
            ),
        )
    if reply.calls and state.request is not None and state.request.purpose != "turn":
        return ErrorClass.MALFORMED_OUTPUT, f"A request to {state.request.purpose} takes no calls."
    cap = state.limits.calls_per_reply
    if len(reply.calls) > cap:
        return (
            ErrorClass.MALFORMED_OUTPUT,
            (
                f"Your last reply held {len(reply.calls)} tool calls; at most {cap} are allowed "
                "in one reply. None was executed."
            ),
        )
    if any(not call.name.strip() for call in reply.calls):
        return ErrorClass.MALFORMED_OUTPUT, "Your last reply held a tool call without a name."
    if not reply.calls and not any(isinstance(p, Text) and p.content.strip() for p in reply.parts):
        return (
            ErrorClass.EMPTY_OUTPUT,
            "Your last reply was empty. Call a tool or give your final answer.",
        )
    return None


def _fault(
    state: RunState, rules: Rules, fault: Fault, now: int, latency_us: int, jitter: float
) -> ev.ModelFailed:
    if state.request is not None and state.request.purpose != "turn":
        return _beside(state, rules, fault, now, latency_us, jitter)
    possible = {"retry", "repair", "end"}
    wider = larger(rules.models, state.model)
    overflow = fault.error_class is ErrorClass.CONTEXT_OVERFLOW
    if wider if overflow else state.model + 1 < len(rules.models):
        possible.add("switch")
        row = rules.ladder.row(fault.error_class)
        if fault.retry_after_us > LONG_WAIT_US and any(r.disposition == "switch" for r in row):
            possible.discard("retry")
    rung = rules.ladder.choose(fault.error_class, state.tries, frozenset(possible))
    retry_at = 0
    if rung.disposition == "retry" and not overflow:
        used = state.tries.get(f"{fault.error_class.value}:retry", 0)
        wait = backoff_us(rung.backoff_us, used, jitter)
        retry_at = now + max(wait, min(fault.retry_after_us, RETRY_AFTER_CAP_US))
    return ev.ModelFailed(
        error_class=fault.error_class,
        message=clean(fault.message)[:EXCERPT],
        disposition=rung.disposition,
        note=_repair_note(state, fault) if rung.disposition == "repair" else "",
        usage=_used(state, rules, fault),
        latency_us=latency_us,
        retry_at=retry_at,
        request_id=fault.request_id,
        status=fault.status,
        asked_us=fault.retry_after_us,
        measured=fault.usage is not None or fault.error_class not in UNANSWERED,
        fallback=wider[0] if overflow and rung.disposition == "switch" else 0,
    )


def _repair_note(state: RunState, fault: Fault) -> str:
    """What the model is told of a reply that could not be used; a provider's words may be in it."""
    said = clean(fault.message)[:EXCERPT]
    if not state.taint:
        return f"[runtime] {one_line(said)}"
    lead = f"[runtime] Your last reply could not be used ({fault.error_class.value}):"
    return with_words(lead, said, state.taint, f"{state.run}/{state.step}/{state.attempts}")


def _beside(
    state: RunState, rules: Rules, fault: Fault, now: int, latency_us: int, jitter: float
) -> ev.ModelFailed:
    """What did not come beside the turns is asked for once more; then a rule decides."""
    first = state.summary_tries == 0
    rung = rules.ladder.choose(fault.error_class, {}, frozenset({"retry", "end"}))
    wait = backoff_us(rung.backoff_us, 0, jitter) if first else 0
    return ev.ModelFailed(
        error_class=fault.error_class,
        message=clean(fault.message)[:EXCERPT],
        disposition="retry" if first else "degrade",
        usage=_used(state, rules, fault),
        latency_us=latency_us,
        retry_at=now + max(wait, min(fault.retry_after_us, RETRY_AFTER_CAP_US)) if first else 0,
        request_id=fault.request_id,
        status=fault.status,
        asked_us=fault.retry_after_us,
        measured=fault.usage is not None or fault.error_class not in UNANSWERED,
    )


def _used(state: RunState, rules: Rules, fault: Fault) -> Usage:
    if fault.usage is not None:
        return _priced(fault.usage, spec_of_request(state, rules))
    return _reserved(state) if fault.error_class in UNANSWERED else Usage()


def _excerpt(reply: Reply) -> str:
    text = "".join(p.content for p in reply.parts if isinstance(p, Text))
    names = ", ".join(call.name for call in reply.calls[:5])
    shown = clean(" ".join(filter(None, (text, names))))[:200]
    return f"It began: {shown!r}" if shown else ""


def parts_of(state: RunState, rules: Rules, reply: Reply) -> tuple[Part, ...]:
    """The parts of a reply, its calls numbered and each behind those it must wait for."""
    said: list[Part] = [_cleaned(p) for p in reply.parts]
    placed: list[tuple[CallPart, ToolSpec | None, bytes | None]] = []
    several = needs_keys(rules, reply.calls)
    for n, called in enumerate(reply.calls, state.last_call + 1):
        text = clean(called.arguments)
        spec = rules.tools.get(called.name)
        key = None
        if several:
            key = conflict_key(spec, text) if called.key is UNSET else called.key
        call = CallPart(
            id=f"c{n}",
            name=clean(called.name),
            arguments=text,
            alias=called.alias,
            after=tuple(part.id for part, other, k in placed if _ordered(spec, key, other, k)),
            opaque=called.opaque,
        )
        placed.append((call, spec, key))
    return _merged(said, reply.calls, [part for part, _, _ in placed])


def _merged(
    said: list[Part], called: tuple[Called, ...], calls: list[CallPart]
) -> tuple[Part, ...]:
    """Calls among the other parts where the model wrote them; they keep their own order."""
    merged: list[Part] = []
    taken = 0
    for one, call in zip(called, calls, strict=True):
        upto = one.place if 0 <= one.place <= len(said) else len(said)
        merged += said[taken:upto]
        merged.append(call)
        taken = max(taken, upto)
    return (*merged, *said[taken:])


def _cleaned(part: Part) -> Part:
    if isinstance(part, Text):
        return Text(clean(part.content), opaque=part.opaque)
    if isinstance(part, Reasoning):
        return Reasoning(content=clean(part.content), opaque=part.opaque)
    return part


def needs_keys(rules: Rules, calls: Sequence[Called]) -> bool:
    """Whether it matters what calls of a reply touch: there are several, not all of them reads."""
    if len(calls) < 2:
        return False
    specs = [rules.tools.get(called.name) for called in calls]
    return any(spec is not None and spec.effect != "read" for spec in specs)


def conflict_key(spec: ToolSpec | None, arguments: str) -> bytes | None:
    """What a call touches; None where that cannot be told."""
    try:
        return None if spec is None else told_key(spec, arguments)
    except BaseException:  # even of SystemExit: a key that cannot be told only costs overlap
        return None


def told_key(spec: ToolSpec, arguments: str) -> bytes | None:
    """What a call touches; None where nothing tells it. Raises what the tool's function raises."""
    if spec.conflict_key is None:
        return None
    values = spec.check(arguments)
    if isinstance(values, Problem):
        return None
    return str(spec.conflict_key(values)).encode("utf-8", "surrogatepass")


def _ordered(
    spec: ToolSpec | None, key: bytes | None, other: ToolSpec | None, other_key: bytes | None
) -> bool:
    """Whether a call must wait for an earlier one of the same reply."""
    if spec is None or other is None:
        return False
    if spec.effect == "read" and other.effect == "read":
        return False
    return key is None or other_key is None or key == other_key


# ---------------------------------------------------------------- tool


def tool_failed(  # noqa: PLR0913 - one outcome, each fact by its name
    state: RunState,
    rules: Rules,
    call: Call,
    *,
    error_class: ErrorClass,
    message: str,
    not_done: bool,
    now: int,
    duration_us: int,
    jitter: float,
) -> ev.ToolFailed:
    """The event for a known failure: the tool raised, and the effect is certain not to be open.

    `not_done` says that nothing happened, so that it may be tried again whatever its recovery.
    """
    spec = rules.tools.get(call.tool)
    possible = {"repair", "degrade", "ask_user", "takeover", "end"}
    again = not_done or call.recovery in {"repeat", "keyed"}
    if again:
        possible.add("retry")
    fallback = spec.fallback if spec is not None else ""
    if fallback and fallback in rules.tools and fallback != call.tool:
        possible.add("switch")
    tries = dict(call.tries)
    used = tries.get(f"{error_class.value}:retry", 0)
    if again and spec is not None and used < spec.retries:
        disposition, base = "retry", spec.backoff_us
    else:
        tries[f"{error_class.value}:retry"] = used - spec.retries if spec is not None else used
        rung = rules.ladder.choose(error_class, tries, frozenset(possible))
        disposition, base = rung.disposition, rung.backoff_us
    if call.kept and disposition == "end":
        disposition = "repair"  # no fact is worth a run
    if not_done and call.doubt and disposition != "retry":
        # this attempt did nothing, but an earlier one may have: that is no known failure (law 4)
        error_class, disposition = ErrorClass.IN_DOUBT, "takeover"
        message = f"an earlier attempt may have had its effect; the last one said: {message}"
    return ev.ToolFailed(
        call=call.id,
        error_class=error_class,
        message=clean(message)[:EXCERPT],
        disposition=disposition,  # type: ignore[arg-type]  # rungs hold the same literals
        switch_to=fallback if disposition == "switch" else "",
        duration_us=duration_us,
        retry_at=now + backoff_us(base, used, jitter) if disposition == "retry" else 0,
    )


def tool_unknown(
    call: Call,
    spec: ToolSpec | None,
    *,
    reason: Any,
    now: int,
    gone: bool,
    message: str = "",
    duration_us: int = 0,
) -> ev.ToolUnknown:
    """The event for a call whose effect may have happened.

    `gone` says that its executor and child processes are proven dead: then "it did not happen"
    may be said as soon as the tool has settled, else only after its time-out and a grace (law 4).
    """
    settle = spec.settle_us if spec is not None else 0
    # what the attempt was started with, whatever the tool has been declared as since
    timeout = call.timeout_us or (spec.timeout_us if spec is not None else 0)
    opens = now if gone else call.started_at + timeout + GRACE_US
    return ev.ToolUnknown(
        call=call.id,
        reason=reason,
        message=clean(message)[:EXCERPT],
        not_before=opens + settle,
        duration_us=duration_us,
        micro_usd=spec.micro_usd if spec is not None else 0,
    )


def lost_events(
    state: RunState, rules: Rules, now: int, gone: dict[str, bool]
) -> list[tuple[int, ev.Event]]:
    """Outcomes for all that the journal calls in flight, said by an owner who took over.

    The predecessor is dead or was given up; `gone` tells per call whether that is proven.
    """
    found: list[tuple[int, ev.Event]] = []
    if state.request is not None:
        found.append((state.step, lost_model(state, rules)))
    if state.task is not None and not state.task.lost:
        found.append((state.task.step, ev.StepLost()))
    for call in state.calls.values():
        if call.status is CallStatus.STARTED:
            fact = tool_unknown(
                call,
                rules.tools.get(call.tool),
                reason="lost",
                now=now,
                gone=gone.get(call.id, False),
                message="the process died while the tool was at work",
            )
            found.append((call.step, fact))
    return found
