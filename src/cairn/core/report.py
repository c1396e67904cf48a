"""What a finished or waiting run says of itself in plain words, whatever its status."""

from __future__ import annotations

from collections.abc import Iterable

from cairn.core import events as ev
from cairn.core.decide import CITATION
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import CallPart, Record, Source
from cairn.core.state import Call, RunState

SHOWN = 20
DONE: dict[type, str] = {
    ev.ToolCompleted: "done",
    ev.TakeoverResult: "done by hand",
    ev.ToolFailed: "failed",
    ev.ToolRejected: "not done",
    ev.ToolUnknown: "unknown",
}
SAID = {"happened": "done", "not_happened": "not done"}


class Citation(Record):
    """A source the answer cites, by the mark it is cited with."""

    mark: str
    source: Source


class ArtifactRef(Record):
    """A content the run made; read it with `Runtime.artifact`."""

    id: str
    name: str
    media_type: str
    size: int


def cited(text: str, sources: Iterable[Source]) -> tuple[Citation, ...]:
    """The sources that `text` cites, in the order it first names them."""
    numbered = list(sources)
    marks = dict.fromkeys(int(n) for n in CITATION.findall(text))
    return tuple(
        Citation(mark=f"s{n}", source=numbered[n - 1]) for n in marks if 1 <= n <= len(numbered)
    )


def summary(state: RunState, entries: Iterable[ev.Entry]) -> str:
    """What was done, what was not, and what nobody knows."""
    names: dict[str, str] = {}
    fates: dict[str, str] = {}
    asked: dict[int, str] = {}
    for entry in entries:
        match entry.event:
            case turn if isinstance(turn, ev.Turn):
                parts = turn.parts
                names.update({p.id: p.name for p in parts if isinstance(p, CallPart)})
            case ev.ToolRedirected() | ev.ToolStarted() as event if event.tool:
                names[event.call] = event.tool  # what is told of is the tool that ran
            case ev.ApprovalRequested(n=n, call=call_id):
                asked[n] = call_id
            case ev.ApprovalDenied(n=n) | ev.ApprovalExpired(n=n):
                fates[asked[n]] = "refused"
            case ev.ToolLate(call=call_id, ok=ok) if fates.get(call_id) == "unknown":
                fates[call_id] = "done" if ok else "failed"
            case ev.ToolResolved(call=call_id, verdict=verdict) if verdict in SAID:
                fates[call_id] = SAID[verdict]
            case event if type(event) in DONE:
                fates[event.call] = DONE[type(event)]
    for call in state.calls.values():
        if not call.closed:
            fates[call.id] = _open_fate(state, call)
        elif call.status is CallStatus.CANCELLED:
            fates[call.id] = "not done"
    lines = [f"Run {state.run}: {_status_line(state)}"]
    for fate in ("done", "done by hand", "failed", "refused", "at work", "not done", "unknown"):
        found = [f"{names.get(c, '?')} ({c})" for c, f in fates.items() if f == fate]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            lines.append(f"{fate.capitalize()}: {', '.join(found[:SHOWN])}{more}")
    return "\n".join(lines)


def _open_fate(state: RunState, call: Call) -> str:
    if call.status is CallStatus.STARTED and state.end is None:
        return "at work"
    doubtful = {CallStatus.TAKEOVER, CallStatus.UNKNOWN, CallStatus.STARTED}
    return "unknown" if call.status in doubtful else "not done"


def _status_line(state: RunState) -> str:
    end = state.end
    if end is None:
        held = f" {state.taken} acts in the agent's place." if state.taken else ""
        return f"{state.status.value}.{held}"
    if end.status is Status.STOPPED:
        return f"stopped. {end.message or end.limit}."
    if end.status is Status.FAILED:
        name = end.error_class.value if end.error_class else "internal"
        return f"failed ({name}). {end.message}"
    return f"{end.status.value}. {end.message}".strip()
