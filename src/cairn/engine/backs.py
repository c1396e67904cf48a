"""What comes back from outside, bare; and the events that record it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from cairn.core import events as ev
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Record, Source, clean
from cairn.core.outcomes import Fault, Reply, model_outcome, tool_failed, tool_unknown
from cairn.core.rules import ToolSpec
from cairn.core.state import Call, RunState
from cairn.crew import Crew
from cairn.engine.feeding import feed_of, fitted
from cairn.errors import ErrorClass
from cairn.tools.results import UnserialisableResult, clip, to_json

ARTIFACT_BYTES = 16 * 1024 * 1024
"""A result larger than this is not kept whole."""


class ModelBack(Record, gc=True):
    """A model request has ended."""

    outcome: Reply | Fault
    latency_us: int
    discard: Callable[[], None] | None = None
    """Says that what was shown of the reply is void, if it turns out to be no whole reply."""


class ToolBack(Record, gc=True):
    """A tool call has ended: it returned, it raised something known, or nobody knows."""

    call: str
    attempt: int
    kind: Literal["returned", "failed", "unknown"]
    value: Any = None
    error_class: ErrorClass = ErrorClass.TOOL_ERROR
    message: str = ""
    not_done: bool = False
    reason: Literal["timeout", "cancelled", "lost", "unsure"] = "unsure"
    duration_us: int = 0
    facts: tuple[ev.Event, ...] = ()


class ProbeBack(Record, gc=True):
    """A probe has answered."""

    call: str
    verdict: Literal["happened", "not_happened", "unknown"]
    value: Any = None
    message: str = ""
    cut: bool = False
    """It was ended early: it can be asked again."""


class TaskBack(Record, gc=True):
    """A task has ended."""

    step: int
    ok: bool
    message: str = ""
    duration_us: int = 0
    cut: bool = False
    """It was ended early: it has not judged anything."""


UNKNOWN_CALL = Call(id="", name="", arguments="", step=0, origin="")
RESULT_BYTES = 16_384
"""How large a result may be whose tool is not known here."""

Back = ModelBack | ToolBack | ProbeBack | TaskBack
Steps = list[tuple[int, ev.Event]]


def events_for(back: Back, state: RunState, crew: Crew, now: int, jitter: float) -> Steps:
    """The events that record what came back."""
    match back:
        case ModelBack():
            return [(state.step, _model(back, state, crew, now, jitter))]
        case ToolBack():
            call = state.calls.get(back.call, UNKNOWN_CALL)
            if call.status is not CallStatus.STARTED or call.attempt != back.attempt:
                return _overtaken(back, call, crew)
            return [(call.step, event) for event in _tool(back, call, state, crew, now, jitter)]
        case ProbeBack():
            call = state.calls.get(back.call, UNKNOWN_CALL)
            if call.status is not CallStatus.UNKNOWN:
                return []  # a person, or the tool itself, was faster
            limit = _limit(crew.rules.tools.get(call.tool))
            resolved = ev.ToolResolved(
                call=back.call,
                verdict=back.verdict,
                by="probe",
                result=capped(_json(back.value), limit) if back.verdict == "happened" else ev.EMPTY,
                evidence=back.message,
            )
            return [(call.step, resolved)]
        case TaskBack() if back.ok:
            return [(back.step, ev.StepCompleted(duration_us=back.duration_us))]
        case TaskBack():
            subject = f"step:{state.task.name if state.task is not None else ''}"
            last = state.repairs.get(subject, 0) >= crew.rules.repairs
            failed = ev.StepFailed(
                error_class=ErrorClass.MALFORMED_OUTPUT,
                message=clean(back.message)[:2000],
                disposition="end" if last else "repair",
                duration_us=back.duration_us,
            )
            return [(back.step, failed)]


def _model(
    back: ModelBack, state: RunState, crew: Crew, now: int, jitter: float
) -> ev.ModelCompleted | ev.ModelFailed:
    event = model_outcome(state, crew.rules, back.outcome, now, back.latency_us, jitter)
    if back.discard is not None and isinstance(event, ev.ModelFailed):
        back.discard()
    return event


def _tool(
    back: ToolBack, call: Call, state: RunState, crew: Crew, now: int, jitter: float
) -> list[ev.Event]:
    spec = crew.rules.tools.get(call.tool)
    if back.kind == "unknown":
        return [
            tool_unknown(
                call,
                spec,
                reason=back.reason,
                now=now,
                gone=False,
                message=back.message,
                duration_us=back.duration_us,
            )
        ]
    if back.kind == "failed":
        return [
            tool_failed(
                state,
                crew.rules,
                call,
                error_class=back.error_class,
                message=back.message,
                not_done=back.not_done,
                now=now,
                duration_us=back.duration_us,
                jitter=jitter,
            )
        ]
    facts = _numbered(back.facts, len(state.artifacts))
    made = sum(isinstance(fact, ev.ArtifactCreated) for fact in facts)
    events = _returned(back, call, spec, state, made)
    feed = feed_of(state, crew.rules, call)
    return [*facts, *(events if feed is None else fitted(events, feed, state, made))]


def _numbered(facts: tuple[ev.Event, ...], known: int) -> list[ev.Event]:
    """The facts; artifacts among them get their ids here, where it is known how many there are."""
    numbered: list[ev.Event] = []
    for fact in facts:
        if isinstance(fact, ev.ArtifactCreated):
            known += 1
            numbered.append(msgspec.structs.replace(fact, id=f"a{known}"))
        else:
            numbered.append(fact)
    return numbered


def _overtaken(back: ToolBack, call: Call, crew: Crew) -> Steps:
    """An outcome whose call the journal says more of: somebody else owns the run by now."""
    if back.kind == "unknown":
        return []
    result = ev.EMPTY
    if back.kind == "returned":
        result = capped(_json(back.value), _limit(crew.rules.tools.get(call.tool)))
    late = ev.ToolLate(
        call=back.call,
        ok=back.kind == "returned",
        result=result,
        message=back.message,
        attempt=back.attempt,
    )
    return [(call.step, late)]


def _returned(
    back: ToolBack, call: Call, spec: ToolSpec | None, state: RunState, made: int
) -> list[ev.Event]:
    cost = spec.micro_usd if spec is not None else 0
    if spec is not None and spec.sources:
        return [_sourced(back, call, spec, cost)]
    result: msgspec.Raw = back.value
    limit = _limit(spec)
    size = len(bytes(result))
    if size <= limit:
        return [
            ev.ToolCompleted(
                call=call.id, result=result, duration_us=back.duration_us, micro_usd=cost
            )
        ]
    return _large(back, call, bytes(result), limit, cost, len(state.artifacts) + made + 1)


def _limit(spec: ToolSpec | None) -> int:
    return spec.result_bytes if spec is not None else RESULT_BYTES


def capped(result: msgspec.Raw, limit: int = RESULT_BYTES) -> msgspec.Raw:
    """A result that comes by another way than its call's own end, small enough for the context."""
    raw = bytes(result)
    if len(raw) <= limit:
        return result
    text = msgspec.json.decode(raw) if raw[:1] == b'"' else raw.decode()
    return to_json(clip(text, limit, "")[0])


def _large(
    back: ToolBack, call: Call, result: bytes, limit: int, cost: int, number: int
) -> list[ev.Event]:
    """A result too large for the context: an artifact, and its head and tail."""
    text = msgspec.json.decode(result) if result[:1] == b'"' else result.decode()
    kept = len(result) <= ARTIFACT_BYTES
    artifact = f"a{number}" if kept else ""
    shown, _ = clip(text, limit, artifact)
    completed = ev.ToolCompleted(
        call=call.id,
        result=to_json(shown),
        artifact=artifact,
        duration_us=back.duration_us,
        micro_usd=cost,
    )
    if not kept:
        return [completed]
    created = ev.ArtifactCreated(
        id=artifact,
        name=f"{call.tool}-{call.id}",
        media_type="text/plain" if result[:1] == b'"' else "application/json",
        size=len(text.encode()),
        content=text,
    )
    return [created, completed]


def _sourced(back: ToolBack, call: Call, spec: ToolSpec, cost: int) -> ev.Event:
    """A result that answers can cite."""
    items = list(back.value) if isinstance(back.value, list | tuple) else [back.value]
    if not all(isinstance(item, Source) for item in items):
        said = f"{spec.name} is declared with sources=True and must return a list of Source"
        return ev.ToolFailed(
            call=call.id,
            error_class=ErrorClass.TOOL_ERROR,
            message=said,
            disposition="repair",
            duration_us=back.duration_us,
        )
    return ev.ToolCompleted(
        call=call.id,
        result=ev.EMPTY if items else to_json("Nothing was found."),
        sources=_sources(items, spec),
        duration_us=back.duration_us,
        micro_usd=cost,
    )


def _sources(items: list[Source], spec: ToolSpec) -> tuple[Source, ...]:
    share = max(spec.result_bytes // max(len(items), 1), 256)
    return tuple(
        msgspec.structs.replace(
            item, uri=clean(item.uri), text=clip(clean(item.text), share, "")[0]
        )
        for item in items
    )


def _json(value: Any) -> msgspec.Raw:
    try:
        return to_json(value)
    except UnserialisableResult as error:
        return to_json(str(error))
