"""Who decided what, by which rule: one line for each decision of a journal.

A view like any other: folded from the events, one run after the other, holding no more than the
calls and requests of one run. It tells of what was allowed, asked, decided and stopped; what
came of it stands in the trace, under the same seq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.budgets import MEASURES
from cairn.core.codec import Row, open_row
from cairn.core.gate import call_digest
from cairn.core.messages import Part, Record, calls_of
from cairn.core.spending import amount
from cairn.core.takeovers import HAND_BACK
from cairn.core.terms import described
from cairn.core.views.words import measured, short, span
from cairn.errors import CorruptJournal

LONG = 300
BUDGET = "budget:"
MINUTE_US = 60_000_000


class AuditLine(Record):
    """One decision.

    Args:
        at: Microseconds since 1970, UTC.
        run, seq, hash: Where it is recorded, and that record's hash in hex.
        decision: What was decided, in one or two words: `allowed`, `asked`, `granted`, `denied`, …
        call, tool, digest: The tool call it is about; the digest is of tool and arguments.
        who: The person who decided, or who is held to it; empty for a rule alone.
        rule: The rule that decided, or the request or grant that answered it.
        detail: What was said with it.
        agent, principal, tenant: Whose run it is.
        instead_of: The tool that was asked for, where the policy has put another in its place.
    """

    at: int
    run: str
    seq: int
    decision: str
    call: str = ""
    tool: str = ""
    digest: str = ""
    who: str = ""
    rule: str = ""
    detail: str = ""
    agent: str = ""
    principal: str = ""
    tenant: str = ""
    hash: str = ""
    instead_of: str = ""


class Auditor:
    """Takes in the rows of one journal, in order, and tells of the decisions among them.

    Args:
        run: Its id, `store` for the facts that belong to no run.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self._agent = self._principal = self._tenant = ""
        self._calls: dict[str, tuple[str, str]] = {}
        """The tool and the digest of each call, by its id."""
        self._instead: dict[str, str] = {}
        """The tool that was asked for, of each call that was redirected."""
        self._asked: dict[int, str] = {}
        """The call that a request or question is about, empty for the run."""
        self._granted: dict[int, str] = {}
        """Who granted a request."""
        self._grants: dict[int, str] = {}
        """The tool of a standing grant."""

    def feed(self, row: Row) -> AuditLine | None:
        """The decision that a row records, None if it records none."""
        if row.data is None:
            return self._line(row, decision="erased", detail="what it said is gone")
        try:
            entry = open_row(row)
        except CorruptJournal as error:
            return self._line(row, decision="unreadable", detail=str(error))
        self._learn(entry)
        told = _TELLERS.get(type(entry.event))
        found = told(self, entry, entry.event) if told is not None else None
        return None if found is None else self._line(row, **{"who": entry.actor, **found})

    def _line(self, row: Row, **fields: Any) -> AuditLine:
        call = fields.get("call", "")
        tool, digest = self._calls.get(call, ("", ""))
        instead = self._instead.get(call, "")
        known = {"tool": tool, "digest": digest, "instead_of": instead, **fields}
        known["detail"] = short(known.get("detail", ""), LONG)
        return AuditLine(
            at=row.at,
            run=self.run,
            seq=row.seq,
            agent=self._agent,
            principal=self._principal,
            tenant=self._tenant,
            hash=row.hash.hex(),
            **known,
        )

    # ------------------------------------------------------------ what must be known

    def _learn(self, entry: ev.Entry) -> None:
        match entry.event:
            case ev.RunCreated(agent=agent, principal=principal):
                self._agent, self._principal = agent, principal.id
                self._tenant = principal.tenant
            case turn if isinstance(turn, ev.Turn):
                parts = turn.parts
                self._take_in(parts)
            case ev.ToolEdited(call=call, arguments=arguments):
                self._change(call, arguments=arguments)
            case ev.ToolRedirected(call=call, tool=tool, arguments=arguments):
                self._instead.setdefault(call, self._calls.get(call, ("", ""))[0])
                self._change(call, tool=tool, arguments=arguments)
            case ev.ToolStarted(call=call, tool=tool) if tool:
                self._change(call, tool=tool)
            case ev.GrantMade(n=n, tool=tool):
                self._grants[n] = tool
            case ev.ApprovalRequested(n=n, call=call, digest=digest):
                self._asked[n] = call
                self._calls[call] = (self._calls.get(call, ("", ""))[0], digest)
            case ev.InputRequested(n=n, call=call):
                self._asked[n] = call
            case ev.ApprovalGranted(n=n, digest=digest):
                self._granted[n] = entry.actor
                call = self._asked.get(n, "")
                if digest and call in self._calls:
                    self._calls[call] = (self._calls[call][0], digest)
            case _:
                pass

    def _take_in(self, parts: tuple[Part, ...]) -> None:
        for part in calls_of(parts):
            self._calls[part.id] = (part.name, call_digest(part.name, part.arguments))

    def _change(self, call: str, tool: str = "", arguments: str | None = None) -> None:
        name, digest = self._calls.get(call, ("", ""))
        name = tool or name
        if arguments is not None:
            digest = call_digest(name, arguments)
        self._calls[call] = (name, digest)

    def tool_of_grant(self, n: int) -> str:
        """The tool that a grant is for, empty when that is not known."""
        return self._grants.get(n, "")

    def call_of(self, n: int) -> str:
        """The call that request or question `n` is about."""
        return self._asked.get(n, "")

    def granter(self, rule: str) -> str:
        """Who granted the approval that a rule names."""
        number = rule.removeprefix("approval ")
        known = rule.startswith("approval ") and number.isdecimal()
        return self._granted.get(int(number), "") if known else ""


Found = dict[str, Any] | None
Teller = Callable[[Auditor, ev.Entry, Any], Found]


def _started(told: Auditor, entry: ev.Entry, e: ev.ToolStarted) -> Found:
    again = f"attempt {e.attempt}" if e.attempt > 1 else ""
    return {
        "decision": "allowed",
        "call": e.call,
        "rule": e.rule,
        "who": told.granter(e.rule),
        "detail": again,
    }


def _rejected(told: Auditor, entry: ev.Entry, e: ev.ToolRejected) -> Found:
    failed = e.rule.startswith("policy failed")
    decision = {"invalid": "invalid", "limit": "limit stop", "loop": "loop stop"}.get(e.kind)
    return {
        "decision": "policy failed" if failed else decision or "denied",
        "call": e.call,
        "rule": e.rule,
        "detail": e.message,
    }


def _asks(told: Auditor, entry: ev.Entry, e: ev.ApprovalRequested) -> Found:
    needs = described(e.terms)
    said = (f"request {e.n}", f"needs {needs}" if needs else "", e.reason)
    detail = "; ".join(filter(None, said))
    return {"decision": "asked", "call": e.call, "rule": e.rule, "detail": detail}


def _granted(told: Auditor, entry: ev.Entry, e: ev.ApprovalGranted) -> Found:
    decision = "granted edited" if e.arguments else "granted"
    return _of_request(told, e.n, decision, e.message)


def _of_request(told: Auditor, n: int, decision: str, message: str) -> Found:
    return {
        "decision": decision,
        "call": told.call_of(n),
        "rule": f"request {n}",
        "detail": message,
    }


def _resolved(told: Auditor, entry: ev.Entry, e: ev.ToolResolved) -> Found:
    found = {"decision": f"resolved {e.verdict.replace('_', ' ')}", "call": e.call}
    if e.by == "probe":
        found["rule"] = "probe"
    return {**found, "detail": e.evidence}


def _limit(told: Auditor, entry: ev.Entry, e: ev.LimitReached) -> Found:
    budget = e.limit.startswith(BUDGET)
    return {
        "decision": "budget stop" if budget else "limit stop",
        "rule": e.limit,
        "detail": e.message or f"{measured(e.limit, e.value)} of {measured(e.limit, e.bound)}",
    }


def _version(told: Auditor, entry: ev.Entry, e: ev.RunVersionChanged) -> Found:
    decision = "version refused" if e.decision == "refuse" else "version changed"
    changed = ", ".join(change.part for change in e.changes)
    anew = f"judged anew: {', '.join(e.calls)}" if e.calls else ""
    return {"decision": decision, "detail": "; ".join(filter(None, (changed, anew, e.driver)))}


def _grant(told: Auditor, entry: ev.Entry, e: ev.GrantMade) -> Found:
    scope = msgspec.structs.asdict(e)
    for field in ("n", "tool", "reason", "roles", "until", "uses"):
        scope.pop(field, None)
    parts = [f"{name} {value}" for name, value in scope.items() if value]
    parts += [amount("calls", e.uses)] if e.uses else []
    held = round((e.until - entry.at) / MINUTE_US) * MINUTE_US  # it was written a moment later
    parts += [f"for {span(max(held, 0))}"] if e.until else []
    said = ", ".join(parts)
    return {
        "decision": "grant made",
        "tool": e.tool,
        "rule": f"grant {e.n}",
        "detail": "; ".join(filter(None, (said, e.reason))),
    }


def _budgets(told: Auditor, entry: ev.Entry, e: ev.BudgetsSet) -> Found:
    said = "; ".join(
        f"{cap.name}: per {cap.per} and {cap.window}"
        + "".join(
            f", {amount(measure, bound)}"
            for measure in MEASURES
            if (bound := cap.bound(measure)) is not None
        )
        for cap in e.budgets
    )
    return {"decision": "budgets set", "who": entry.actor or e.by, "detail": said or "none"}


def _kept(told: Auditor, entry: ev.Entry, e: ev.MemoryKept) -> Found:
    return {"decision": "fact added", "rule": f"fact m{e.fact}"} if entry.actor else None


def _reviewed(told: Auditor, entry: ev.Entry, e: ev.MemoryReviewed) -> Found:
    trust = f"as {e.trust}" if e.trust else ""
    confirms = f"confirms m{e.confirms}" if e.confirms else ""
    detail = "; ".join(filter(None, (trust, confirms, e.reason)))
    return {"decision": f"fact {e.verdict}", "rule": f"fact m{e.fact}", "detail": detail}


def _forgotten(told: Auditor, entry: ev.Entry, e: ev.MemoryForgotten) -> Found:
    if e.expired:
        return None
    return {"decision": "fact forgotten", "rule": f"fact m{e.fact}", "detail": e.reason}


_TELLERS: dict[type[ev.Event], Teller] = {
    ev.ToolStarted: _started,
    ev.ToolRejected: _rejected,
    ev.ToolRedirected: lambda _, __, e: {
        "decision": "redirected",
        "call": e.call,
        "rule": e.rule,
        "detail": e.reason,
    },
    ev.ToolEdited: lambda _, __, e: {"decision": "edited", "call": e.call, "rule": e.rule},
    ev.ToolResolved: _resolved,
    ev.ApprovalRequested: _asks,
    ev.ApprovalGranted: _granted,
    ev.ApprovalDenied: lambda t, _, e: _of_request(t, e.n, "denied", e.message),
    ev.ApprovalExpired: lambda t, _, e: _of_request(t, e.n, "expired", e.message),
    ev.ApprovalVoided: lambda t, _, e: _of_request(t, e.n, "voided", e.message),
    ev.InputAnswered: lambda t, _, e: {
        "decision": "answered",
        "call": t.call_of(e.n),
        "rule": f"question {e.n}",
    },
    ev.InputQueued: lambda *_: {"decision": "message"},
    ev.ContextRestored: lambda _, __, e: {
        "decision": "context restored",
        "detail": f"event {e.of}",
    },
    ev.TaskClassified: lambda _, __, e: {
        "decision": "task classified",
        "rule": e.by,
        "detail": e.kind,
    },
    ev.PlanUpdated: lambda _, __, e: {"decision": "plan set"} if e.by == "person" else None,
    ev.TakeoverRequested: lambda _, __, e: {
        "decision": "takeover asked",
        "call": e.call,
        "detail": e.message,
    },
    ev.TakeoverBegun: lambda _, __, e: {"decision": "taken over", "detail": e.reason},
    ev.TakeoverTurn: lambda _, __, e: {
        "decision": "acted for the agent",
        "detail": ", ".join(f"{c.id} {c.name}" for c in calls_of(e.parts)),
    },
    ev.TakeoverResult: lambda _, __, e: {
        "decision": "done by hand",
        "call": e.call,
        "detail": e.evidence,
    },
    ev.TakeoverEnded: lambda _, __, e: {
        "decision": "handed back",
        "detail": e.note.removeprefix(HAND_BACK).strip().removeprefix("They say: "),
    },
    ev.RunPauseRequested: lambda _, __, e: {"decision": "paused", "detail": e.reason},
    ev.RunResumed: lambda *_: {"decision": "resumed"},
    ev.RunCancelRequested: lambda _, __, e: {"decision": "cancelled", "detail": e.reason},
    ev.RunForked: lambda _, __, e: {
        "decision": "forked",
        "detail": f"from {e.parent} at event {e.at}",
    },
    ev.RunVersionChanged: _version,
    ev.SandboxChosen: lambda _, __, e: {
        "decision": "sandbox chosen",
        "tool": e.tool,
        "detail": e.rung,
    },
    ev.LimitReached: _limit,
    ev.GrantMade: _grant,
    ev.GrantRevoked: lambda t, _, e: {
        "decision": "grant revoked",
        "tool": t.tool_of_grant(e.n),
        "rule": f"grant {e.n}",
        "detail": e.reason,
    },
    ev.GrantUsed: lambda t, _, e: {
        "decision": "grant used",
        "tool": t.tool_of_grant(e.n),
        "rule": f"grant {e.n}",
        "detail": f"{e.run}/{e.call}",
    },
    ev.BudgetsSet: _budgets,
    ev.SessionTitled: lambda _, __, e: {
        "decision": "session titled",
        "detail": f"{e.session}: {e.title}",
    },
    ev.SessionRewound: lambda _, __, e: {
        "decision": "session rewound",
        "detail": f"{e.session} to {e.run}, from {e.newest}",
    },
    ev.SessionForked: lambda _, __, e: {
        "decision": "session forked",
        "detail": f"{e.session} from {e.run} of {e.of}",
    },
    ev.SessionRemoved: lambda _, __, e: {
        "decision": "session pruned",
        "detail": f"{len(e.notes)} facts about it emptied",
    },
    ev.MemoryKept: _kept,
    ev.MemoryReviewed: _reviewed,
    ev.MemoryForgotten: _forgotten,
    ev.MemoryErased: lambda _, __, e: {
        "decision": "facts erased",
        "detail": "; ".join(filter(None, (f"{len(e.facts)} facts", e.reason))),
    },
    ev.StorePruned: lambda _, __, e: {"decision": "pruned", "detail": f"{e.run}, {e.status}"},
    ev.StoreErased: lambda _, __, e: {"decision": "erased", "detail": f"{e.run}; {e.reason}"},
    ev.PrincipalErased: lambda _, __, e: {
        "decision": "principal erased",
        "detail": f"{e.runs} runs, {e.facts} facts; {e.reason}",
    },
}
"""The events that record a decision of a rule or of a person."""
NO_DECISION: frozenset[type[ev.Event]] = frozenset(
    {
        *(ev.RunCreated, ev.RunCompleted, ev.RunFailed, ev.RunStopped, ev.RunCancelled),
        *(ev.StepStarted, ev.StepCompleted, ev.StepFailed, ev.StepLost),
        *(ev.ModelRequested, ev.ModelCompleted, ev.ModelFailed, ev.ModelRejected),
        *(ev.ToolCompleted, ev.ToolFailed, ev.ToolUnknown, ev.ToolLate),
        *(ev.InputGiven, ev.InputRequested, ev.RetryScheduled, ev.LimitWarned),
        *(ev.ArtifactCreated, ev.MemoryRecalled, ev.ErrorRaised),
        *(ev.ContextCompacted, ev.ContextUpdated, ev.TurnFed, ev.TurnKept),
        *(ev.ToolsOffered, ev.RunContinued),
    }
)
"""All others: what was done, what came of it, and ends that follow from what is told above."""
TOLD = frozenset(_TELLERS)
DECISIONS = (
    *("allowed", "asked", "granted", "granted edited", "denied", "expired", "voided", "edited"),
    *("redirected", "invalid", "policy failed", "loop stop", "limit stop", "budget stop"),
    *("resolved happened", "resolved not happened", "resolved unknown", "resolved given up"),
    *(
        "takeover asked",
        "taken over",
        "acted for the agent",
        "done by hand",
        "handed back",
        "answered",
        "message",
    ),
    *("paused", "resumed", "cancelled", "forked", "version changed", "version refused"),
    *("sandbox chosen", "task classified", "plan set", "context restored"),
    *("grant made", "grant revoked", "grant used", "budgets set"),
    *("session titled", "session rewound", "session forked", "session pruned"),
    *("fact added", "fact accepted", "fact rejected", "fact forgotten", "facts erased"),
    *("pruned", "erased", "principal erased", "unreadable"),
)
"""All that `AuditLine.decision` can be."""


def audit(run: str, rows: Iterator[Row], after: int = 0) -> Iterator[AuditLine]:
    """The decisions among a journal's rows, which are given from the first one on.

    Args:
        after: Rows up to this seq are read only to know what later ones are about.
    """
    told = Auditor(run)
    for row in rows:
        line = told.feed(row)
        if line is not None and row.seq > after:
            yield line
