"""What events tell of tool calls: the part of `views` that knows a call's life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.evolve_calls import plain
from cairn.core.lifecycle import CallStatus
from cairn.core.views.fold import Timeline, fault_of, noted
from cairn.core.views.shapes import (
    Approval,
    CallAttempt,
    CallView,
    Edit,
    Question,
    Redirection,
    Settlement,
)
from cairn.core.views.words import words

replace = msgspec.structs.replace
_S = CallStatus


def _started(told: Timeline, entry: ev.Entry, event: ev.ToolStarted) -> None:
    known = told.calls[event.call]
    attempt = CallAttempt(
        seq=entry.seq,
        at=entry.at,
        n=event.attempt,
        tool=event.tool or (known.attempts[-1].tool if known.attempts else known.name),
        rule=event.rule,
        effect=event.effect,
        recovery=event.recovery,
    )
    told.call(
        event.call,
        entry,
        attempts=(*known.attempts, attempt),
        verdict=known.verdict or "allow",
        rule=known.rule or event.rule,
    )


def _tool_completed(told: Timeline, entry: ev.Entry, event: ev.ToolCompleted) -> None:
    told.attempt(
        event.call,
        entry,
        "completed",
        duration_us=event.duration_us,
        micro_usd=event.micro_usd,
    )
    told.call(
        event.call,
        entry,
        status=_S.COMPLETED,
        result="" if event.result == ev.EMPTY and event.sources else plain(event.result),
        artifact=event.artifact,
        sources=len(event.sources),
        ended_at=entry.at,
    )


def _tool_failed(told: Timeline, entry: ev.Entry, event: ev.ToolFailed) -> None:
    fault = fault_of(event)
    told.attempt(event.call, entry, "failed", duration_us=event.duration_us, fault=fault)
    if event.disposition in {"repair", "degrade", "end"}:
        told.call(event.call, entry, status=_S.FAILED, result=event.message, ended_at=entry.at)


def _rejected(told: Timeline, entry: ev.Entry, event: ev.ToolRejected) -> None:
    known = told.calls[event.call]
    told.call(
        event.call,
        entry,
        status=_S.REJECTED,
        verdict=known.verdict or "reject",
        rule=known.rule or event.rule or event.kind,
        fault=fault_of(event),
        ended_at=entry.at,
    )


def _unknown(told: Timeline, entry: ev.Entry, event: ev.ToolUnknown) -> None:
    doubt = f"{event.reason}: {event.message}" if event.message else event.reason
    told.attempt(event.call, entry, "unknown", duration_us=event.duration_us, doubt=doubt)


def _resolved(told: Timeline, entry: ev.Entry, event: ev.ToolResolved) -> None:
    told.settled(
        event.call,
        Settlement(
            seq=entry.seq,
            at=entry.at,
            verdict=event.verdict,
            by=event.by,
            actor=entry.actor,
            evidence=event.evidence,
        ),
    )
    if event.verdict == "happened":
        result = plain(event.result) if event.result != ev.EMPTY else ""
        told.call(event.call, entry, status=_S.COMPLETED, result=result, ended_at=entry.at)


def _late(told: Timeline, entry: ev.Entry, event: ev.ToolLate) -> None:
    known = told.calls.get(event.call)
    if known is None:
        noted(told, entry, event)
        return
    settlement = Settlement(
        seq=entry.seq, at=entry.at, verdict="late", by="tool", evidence=words(event)
    )
    told.settled(event.call, settlement)
    now = told.state.calls.get(event.call)
    if known.status in {_S.UNKNOWN, _S.TAKEOVER} and (now is None or now.closed):
        status = _S.COMPLETED if event.ok else _S.FAILED
        result = plain(event.result) if event.ok else event.message
        told.call(event.call, entry, status=status, result=result, ended_at=entry.at)


# ---------------------------------------------------------------- people


def _asks(told: Timeline, entry: ev.Entry, event: ev.ApprovalRequested) -> None:
    known = told.calls[event.call]
    told.asked[event.n] = event.call
    approval = Approval(
        n=event.n,
        at=entry.at,
        rule=event.rule,
        digest=event.digest,
        expires_at=event.expires_at,
        terms=event.terms,
        files=event.files,
        reason=event.reason,
    )
    told.call(
        event.call,
        entry,
        verdict=known.verdict or "ask",
        rule=known.rule or event.rule,
        approvals=(*known.approvals, approval),
    )


def _decided(
    told: Timeline,
    entry: ev.Entry,
    event: ev.ApprovalGranted | ev.ApprovalDenied | ev.ApprovalExpired,
) -> None:
    call = told.asked[event.n]
    *earlier, last = told.calls[call].approvals
    granted = isinstance(event, ev.ApprovalGranted)
    expired = isinstance(event, ev.ApprovalExpired)
    decided = replace(
        last,
        decision="granted" if granted else "expired" if expired else "denied",
        decided_at=entry.at,
        actor=entry.actor,
        message=event.message,
        roles=() if isinstance(event, ev.ApprovalExpired) else event.roles,
    )
    changed: dict[str, Any] = {} if granted else {"status": _S.DENIED, "ended_at": entry.at}
    if isinstance(event, ev.ApprovalGranted) and event.arguments:
        known = told.calls[call]
        edit = _edit(known, entry, event.arguments)
        changed = {"arguments": event.arguments, "edits": (*known.edits, edit)}
        decided = replace(decided, digest=event.digest, files=event.files)
    told.call(call, entry, approvals=(*earlier, decided), **changed)


def _edit(known: CallView, entry: ev.Entry, arguments: str, rule: str = "") -> Edit:
    return Edit(
        seq=entry.seq,
        at=entry.at,
        before=known.arguments,
        arguments=arguments,
        actor=entry.actor,
        rule=rule,
    )


def _voided(told: Timeline, entry: ev.Entry, event: ev.ApprovalVoided) -> None:
    """What was approved is not what would run: the yes holds no longer."""
    call = told.asked[event.n]
    *earlier, last = told.calls[call].approvals
    void = replace(last, decision="void", message=event.message)
    told.call(call, entry, approvals=(*earlier, void), verdict="", rule="")


def _by_hand(told: Timeline, entry: ev.Entry, event: ev.TakeoverResult) -> None:
    settlement = Settlement(
        seq=entry.seq,
        at=entry.at,
        verdict="by hand",
        by="person",
        actor=entry.actor,
        evidence=event.evidence,
    )
    told.settled(event.call, settlement)
    known = told.calls[event.call]
    approvals = known.approvals
    if approvals and approvals[-1].decision in {"open", "granted"}:
        approvals = (*approvals[:-1], replace(approvals[-1], decision="void"))
    result = plain(event.result) if event.result != ev.EMPTY else ""
    told.call(
        event.call,
        entry,
        status=_S.COMPLETED,
        result=result,
        approvals=approvals,
        ended_at=entry.at,
    )


def _edited(told: Timeline, entry: ev.Entry, event: ev.ToolEdited) -> None:
    """What was decided of the call before holds no longer: it is judged anew."""
    known = told.calls[event.call]
    edit = _edit(known, entry, event.arguments, event.rule)
    approvals = known.approvals
    if approvals and approvals[-1].decision in {"open", "granted"}:
        approvals = (*approvals[:-1], replace(approvals[-1], decision="void"))
    told.call(
        event.call,
        entry,
        arguments=event.arguments,
        edits=(*known.edits, edit),
        approvals=approvals,
        verdict="",
        rule="",
    )


def _redirected(told: Timeline, entry: ev.Entry, event: ev.ToolRedirected) -> None:
    """Another call stands in its place: what was decided before holds no longer."""
    known = told.calls[event.call]
    redirection = Redirection(
        seq=entry.seq,
        at=entry.at,
        tool=event.tool,
        arguments=event.arguments,
        rule=event.rule,
        reason=event.reason,
    )
    approvals = known.approvals
    if approvals and approvals[-1].decision in {"open", "granted"}:
        approvals = (*approvals[:-1], replace(approvals[-1], decision="void"))
    told.call(
        event.call,
        entry,
        arguments=event.arguments,
        redirects=(*known.redirects, redirection),
        approvals=approvals,
        verdict="redirect",
        rule=event.rule,
    )


def _question(told: Timeline, entry: ev.Entry, event: ev.InputRequested) -> None:
    if not event.call:
        noted(told, entry, event)
        return
    told.asked[event.n] = event.call
    question = Question(n=event.n, at=entry.at, text=event.question)
    told.call(event.call, entry, question=question)


def _answered(told: Timeline, entry: ev.Entry, event: ev.InputAnswered) -> None:
    call = told.asked.get(event.n, "")
    question = told.calls[call].question if call else None
    if question is None:
        noted(told, entry, event)  # the answer to a question of the runtime itself
        return
    answered = replace(question, answer=event.text, answered_at=entry.at, actor=entry.actor)
    told.call(
        call,
        entry,
        status=_S.COMPLETED,
        question=answered,
        result=event.text,
        ended_at=entry.at,
    )


CALL_TELLERS: dict[type[ev.Event], Callable[[Timeline, ev.Entry, Any], None]] = {
    ev.ToolStarted: _started,
    ev.ToolCompleted: _tool_completed,
    ev.ToolFailed: _tool_failed,
    ev.ToolRejected: _rejected,
    ev.ToolUnknown: _unknown,
    ev.ToolResolved: _resolved,
    ev.ToolLate: _late,
    ev.ToolEdited: _edited,
    ev.ToolRedirected: _redirected,
    ev.ApprovalRequested: _asks,
    ev.ApprovalGranted: _decided,
    ev.ApprovalDenied: _decided,
    ev.ApprovalExpired: _decided,
    ev.ApprovalVoided: _voided,
    ev.TakeoverResult: _by_hand,
    ev.InputRequested: _question,
    ev.InputAnswered: _answered,
}
