"""The book of tool calls: from the request to the one end of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cairn.core import events as ev
from cairn.core.gate import call_digest
from cairn.core.messages import CallPart
from cairn.core.rules import Problem, Rules, ToolSpec
from cairn.core.terms import ApprovalTerms
from cairn.errors import ErrorClass
from cairn.testing.invariants.case import Case

REPEATABLE = {"repeat", "keyed"}
LEADING = (ev.InputQueued, ev.InputAnswered, ev.PlanUpdated, ev.ToolEdited, ev.TakeoverTurn)
"""Facts by which a person leads to what a run does next."""


@dataclass
class Seen:
    """What the events said of one call."""

    id: str
    tool: str
    arguments: str
    after: tuple[str, ...] = ()
    attempts: int = 0
    open: bool = False
    over: bool = False
    doubt: bool = False
    """The last attempt may have happened, and nobody has said whether."""
    shadow: bool = False
    """Some attempt may have happened, and nobody has said whether."""
    person: bool = False
    effect: str = "dangerous"
    recovery: str = "once"
    asked: int = 0
    granted: bool = False
    used: bool = False
    expires_at: int = 0
    retry_at: int = 0
    not_before: int = 0
    ok: bool = False
    erred: bool = False
    name: str = ""
    """The tool that was asked for."""


class CallBook:
    """Follows every call of a run.

    Attributes:
        calls: By id, closed ones included.
        starts: First attempts so far, which the limit on calls counts.
        errors: Turns in a row that ended in nothing but errors; replies add to it as well.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.calls: dict[str, Seen] = {}
        self.turn: list[str] = []
        self.keeps = False
        self.used: dict[int, str] = {}
        self.voices: set[str] = set()
        self.terms: dict[int, tuple[ApprovalTerms | None, frozenset[str]]] = {}
        self.taken = ""
        self.starts = 0
        self.errors = 0

    @property
    def all_over(self) -> bool:
        """Whether no call of the open turn is left."""
        return not self.turn

    def see(self, entry: ev.Entry) -> None:
        """Take one event in."""
        if isinstance(entry.event, ev.RunCreated):
            self.voices = {entry.event.principal.id}
        elif isinstance(entry.event, LEADING) and entry.actor:
            self.voices.add(entry.actor)
        handler = HANDLERS.get(type(entry.event))
        if handler is not None:
            handler(self, entry, entry.event)
            self._close_turn()

    def _close_turn(self) -> None:
        calls = [self.calls[c] for c in self.turn]
        if not calls or not all(c.over for c in calls):
            return
        self.turn = []
        if self.keeps:
            return  # no turn of the model
        if any(c.ok for c in calls):
            self.errors = 0
        else:
            self.errors += any(c.erred for c in calls)

    def _call(self, call_id: str) -> Seen:
        call = self.calls.get(call_id)
        if call is None:
            self.case.say("intent", f"call {call_id} was never requested")
            call = self.calls[call_id] = Seen(call_id, "", "{}")
        return call

    def _close(self, call: Seen, *, ok: bool = False, erred: bool = False) -> None:
        self.case.expect(not call.over, "final", f"call {call.id} ends a second time")
        call.over, call.ok, call.erred = True, ok, erred
        call.open = call.doubt = call.person = call.shadow = False

    # ---------------------------------------------------------------- from request to start

    def replied(self, entry: ev.Entry, event: ev.Turn) -> None:
        parts = [p for p in event.parts if isinstance(p, CallPart)]
        case = self.case
        most = case.limits.calls_per_reply
        over = len(parts) > most and not isinstance(event, ev.TurnFed | ev.TurnKept)
        case.expect(not over, "limits", f"a reply holds {len(parts)} calls of {most}")
        self.turn, self.keeps = [], isinstance(event, ev.TurnKept)
        for part in parts:
            case.expect(part.id not in self.calls, "messages", f"call id {part.id} is used twice")
            if case.rules is not None:
                wanted = {c for c in self.turn if ordered(case.rules, part, self.calls[c])}
                case.expect(
                    wanted <= set(part.after),
                    "order",
                    f"{part.id} is not held back until {', '.join(sorted(wanted))} ended",
                )
            self.calls[part.id] = Seen(
                part.id, part.name, part.arguments, part.after, name=part.name
            )
            self.turn.append(part.id)

    def started(self, entry: ev.Entry, event: ev.ToolStarted) -> None:
        call, case = self._call(event.call), self.case
        case.expect(not call.over, "final", f"call {call.id} ended and is started again")
        case.expect(not call.open, "once", f"call {call.id} is started while it is at work")
        case.expect(not call.person, "once", f"call {call.id} is started while a person has it")
        waits = [c for c in call.after if c in self.calls and not self.calls[c].over]
        case.expect(not waits, "order", f"{call.id} overtakes {', '.join(waits)}")
        attempt = call.attempts + 1
        case.expect(
            event.attempt == attempt, "once", f"attempt {event.attempt} of {call.id} is {attempt}"
        )
        if call.doubt and call.effect != "read":
            case.expect(
                {call.recovery, event.recovery} <= REPEATABLE,
                "once",
                f"{call.id} may have happened, is {call.recovery}, and is started again",
            )
        case.expect(
            entry.at >= call.retry_at, "patience", f"{call.id} is tried again before its time"
        )
        tool = event.tool or call.tool
        self._authorised(entry, event, call, tool)
        if not call.attempts:
            self.starts += 1
            most = case.limits.calls
            case.expect(self.starts <= most, "limits", f"call {self.starts} of {most} is started")
        call.attempts, call.open, call.doubt = event.attempt, True, False
        call.tool, call.effect, call.recovery = tool, event.effect, event.recovery
        call.retry_at = 0

    def _authorised(self, entry: ev.Entry, event: ev.ToolStarted, call: Seen, tool: str) -> None:
        case = self.case
        case.expect(event.rule, "verdict", f"call {call.id} starts without a rule")
        needs = event.effect == "dangerous" or event.rule.startswith("approval ")
        if case.rules is not None and tool in case.rules.tools:
            spec = case.rules.tools[tool]
            declared = (event.effect, event.recovery) == (spec.effect, spec.recovery)
            case.expect(declared, "verdict", f"{call.id} is not started as {tool} is declared")
            checked = spec.check(call.arguments)
            case.expect(not isinstance(checked, Problem), "verdict", f"{call.id} has bad arguments")
            if getattr(case.rules.policy, "plain", True):  # rules also go by what is not seen here
                decision = case.rules.policy.judge(
                    spec.name, spec.effect, {} if isinstance(checked, Problem) else checked
                ).decision
                case.expect(decision != "deny", "verdict", f"{call.id} is denied and starts")
                needs = needs or decision == "ask"
        case.expect(
            case.kind != "query" or event.effect == "read",
            "verdict",
            f"{call.id} is no read, and the run is a query",
        )
        case.expect(
            call.granted or not call.asked,
            "approval",
            f"{call.id} starts while request {call.asked} is open",
        )
        if not needs:
            return
        if event.rule.startswith("grant "):
            harmless = event.effect != "dangerous"
            case.expect(harmless, "approval", f"{call.id} is dangerous and starts by {event.rule}")
            return
        granted = call.granted and event.rule == f"approval {call.asked}"
        case.expect(
            granted, "approval", f"{call.id} ({event.effect}) starts by {event.rule!r} unapproved"
        )
        case.expect(
            call.used or entry.at < call.expires_at,
            "approval",
            f"{call.id} starts on approval {call.asked}, which has expired",
        )
        call.used = True
        user = self.used.setdefault(call.asked, call.id)
        case.expect(user == call.id, "approval", f"{call.id} starts on the approval of {user}")

    # ---------------------------------------------------------------- outcomes

    def _outcome(self, call_id: str) -> Seen:
        call = self._call(call_id)
        self.case.expect(call.open, "intent", f"an outcome of {call_id}, which is not at work")
        call.open = False
        return call

    def completed(self, entry: ev.Entry, event: ev.ToolCompleted) -> None:
        self._close(self._outcome(event.call), ok=True)

    def failed(self, entry: ev.Entry, event: ev.ToolFailed) -> None:
        call, case = self._call(event.call), self.case
        case.expect(call.attempts, "intent", f"{call.id} fails and was never started")
        if call.doubt:
            case.expect(
                call.effect == "read", "once", f"{call.id} may have happened and is called failed"
            )
        call.open = call.doubt = False
        call.retry_at = event.retry_at
        if event.disposition == "switch":
            call.tool = event.switch_to
        elif event.disposition in {"takeover", "ask_user"}:
            call.person = True
            call.shadow |= event.error_class is ErrorClass.IN_DOUBT
        elif event.disposition != "retry":
            self._close(call, erred=True)
        case.ending |= event.disposition == "end"

    def rejected(self, entry: ev.Entry, event: ev.ToolRejected) -> None:
        call, case = self._call(event.call), self.case
        case.expect(not call.open, "final", f"{call.id} is at work and is called not executed")
        case.expect(
            not call.doubt or call.effect == "read",
            "once",
            f"{call.id} may have happened and is called not executed",
        )
        self._close(call, erred=True)
        case.ending |= event.disposition == "end"

    def unknown(self, entry: ev.Entry, event: ev.ToolUnknown) -> None:
        call = self._outcome(event.call)
        call.doubt = True
        call.not_before = event.not_before
        call.shadow |= call.effect != "read"
        call.person = call.recovery == "once"
        call.retry_at = 0

    def takeover(self, entry: ev.Entry, event: ev.TakeoverRequested) -> None:
        call = self._call(event.call)
        self.case.expect(call.doubt, "legal", f"{call.id} is not unknown and is handed over")
        call.person = call.shadow = True

    def resolved(self, entry: ev.Entry, event: ev.ToolResolved) -> None:
        call, case = self._call(event.call), self.case
        known = not (call.doubt or call.person)
        case.expect(not known, "legal", f"{call.id} is not unknown and is resolved")
        if event.verdict == "happened":
            self._close(call, ok=True)
        elif event.verdict == "not_happened" and case.over:
            self._close(call, erred=True)
        elif event.verdict == "not_happened":
            soon = entry.at < call.not_before
            case.expect(not soon, "patience", f"{call.id} may still be at work and is called not")
            call.doubt = call.person = call.shadow = False
        elif event.verdict == "unknown":
            call.person = True
        else:
            case.ending = True

    def late(self, entry: ev.Entry, event: ev.ToolLate) -> None:
        call = self._call(event.call)
        self.case.expect(call.attempts, "intent", f"a late outcome of {call.id}, never started")
        of_last = event.attempt in {0, call.attempts}
        alike = call.tool == call.name and call.recovery in REPEATABLE
        if not of_last and not alike:
            return  # another effect than the one that is open
        if call.doubt or (call.shadow and call.person):
            self._close(call, ok=event.ok, erred=not event.ok)

    # ---------------------------------------------------------------- people

    def edited(self, entry: ev.Entry, event: ev.ToolEdited) -> None:
        call, case = self._call(event.call), self.case
        begun = call.attempts or call.over
        case.expect(not begun, "approval", f"{call.id} has begun and its arguments are changed")
        self._changed(call, event.arguments)

    def redirected(self, entry: ev.Entry, event: ev.ToolRedirected) -> None:
        call, case = self._call(event.call), self.case
        begun = call.attempts or call.over
        case.expect(not begun, "verdict", f"{call.id} has begun and is redirected")
        case.expect(event.rule, "verdict", f"call {call.id} is redirected without a rule")
        call.tool = event.tool
        self._changed(call, event.arguments)

    def _changed(self, call: Seen, arguments: str) -> None:
        """Nothing that was said of it before holds, and it overlaps nothing written before it."""
        call.arguments, call.asked, call.granted, call.used = arguments, 0, False, False
        before: list[str] = []
        passed = False
        for other in (self.calls[c] for c in self.turn):
            if other is call:
                passed = True
            elif not passed or other.attempts or other.over:
                before.append(other.id)
            elif call.id not in other.after:
                other.after = (*other.after, call.id)
        call.after = tuple(before)

    def asked(self, entry: ev.Entry, event: ev.ApprovalRequested) -> None:
        call, case = self._call(event.call), self.case
        case.expect(not (call.over or call.open), "approval", f"{call.id} needs none any more")
        case.expect(case.approvals == "ask", "approval", "the run asks nobody, and asks")
        case.expect(
            event.digest == call_digest(call.tool, call.arguments, event.files),
            "approval",
            f"request {event.n} is not bound to {call.id} as it is",
        )
        call.asked, call.expires_at = event.n, event.expires_at
        call.granted = call.used = False
        self.terms[event.n] = (event.terms, frozenset(self.voices))

    def _may_decide(self, entry: ev.Entry, event: ev.ApprovalGranted | ev.ApprovalDenied) -> None:
        """Whether who decided has the roles that were asked for, and led to nothing."""
        terms, led = self.terms.get(event.n, (None, frozenset()))
        if terms is None:
            return
        who, case = entry.actor, self.case
        for needed in terms.needed:
            fits = bool(who) and not set(needed).isdisjoint(event.roles)
            case.expect(fits, "approval", f"{who or 'nobody'} decides {event.n} without a role")
        if terms.other_person:
            fits = bool(who) and who not in led
            case.expect(fits, "approval", f"{who or 'nobody'} decides {event.n} and led to it")

    def _of(self, n: int) -> Seen | None:
        return next((c for c in reversed(self.calls.values()) if c.asked == n), None)

    def granted(self, entry: ev.Entry, event: ev.ApprovalGranted) -> None:
        call, case = self._of(event.n), self.case
        if call is None:
            case.say("approval", f"request {event.n} was never made and is granted")
            return
        case.expect(not call.granted, "approval", f"request {event.n} is granted twice")
        case.expect(
            entry.at < call.expires_at, "approval", f"request {event.n} is granted too late"
        )
        self._may_decide(entry, event)
        if event.arguments:
            begun = call.attempts or call.over
            case.expect(not begun, "approval", f"{call.id} has begun and is approved otherwise")
            case.expect(
                event.digest == call_digest(call.tool, event.arguments, event.files),
                "approval",
                f"request {event.n} is granted for something else than it says",
            )
            self._changed(call, event.arguments)
            call.asked = event.n
        call.granted = True

    def voided(self, entry: ev.Entry, event: ev.ApprovalVoided) -> None:
        call, case = self._of(event.n), self.case
        if call is None or not call.granted or call.open or call.over:
            case.say("approval", f"request {event.n} is not in force and is void")
            return
        call.asked, call.granted, call.used = 0, False, False

    # ---------------------------------------------------------------- in the agent's place

    def begun(self, entry: ev.Entry, event: ev.TakeoverBegun) -> None:
        self.case.expect(entry.actor, "legal", "nobody in particular takes the run over")
        self.taken = entry.actor

    def turn_taken(self, entry: ev.Entry, event: ev.TakeoverTurn) -> None:
        theirs = bool(self.taken) and entry.actor == self.taken
        self.case.expect(theirs, "legal", f"{entry.actor or 'nobody'} makes a turn of another")
        self.replied(entry, event)

    def by_hand(self, entry: ev.Entry, event: ev.TakeoverResult) -> None:
        call, case = self._call(event.call), self.case
        theirs = bool(self.taken) and entry.actor == self.taken
        case.expect(theirs, "legal", f"{entry.actor or 'nobody'} acts in another's place")
        case.expect(not call.attempts, "once", f"{call.id} was started and is done by hand")
        self._close(call, ok=True)

    def handed_back(self, entry: ev.Entry, event: ev.TakeoverEnded) -> None:
        self.taken = ""
        self.errors = 0

    def refused(self, entry: ev.Entry, event: ev.ApprovalDenied | ev.ApprovalExpired) -> None:
        call, case = self._of(event.n), self.case
        if call is None:
            case.say("approval", f"request {event.n} was never made and is refused")
            return
        case.expect(not call.open, "approval", f"{call.id} is at work and is refused")
        if isinstance(event, ev.ApprovalDenied):
            self._may_decide(entry, event)
        if isinstance(event, ev.ApprovalExpired):
            case.expect(
                entry.at >= call.expires_at, "approval", f"request {event.n} expires too early"
            )
        self._close(call)

    def questioned(self, entry: ev.Entry, event: ev.InputRequested) -> None:
        if event.call:
            call = self._call(event.call)
            call.asked, call.person = event.n, True

    def answered(self, entry: ev.Entry, event: ev.InputAnswered) -> None:
        call = self._of(event.n)
        if call is not None:
            self._close(call, ok=True)

    def forked(self, entry: ev.Entry, event: ev.RunForked) -> None:
        self.taken = ""
        for call in self.calls.values():
            begun = call.doubt and call.recovery != "probe"  # and is repeated under its own key
            if event.grants == "void" and call.granted and not begun:
                call.asked, call.granted, call.used = 0, False, False


HANDLERS: dict[type[ev.Event], Any] = {
    ev.RunForked: CallBook.forked,
    ev.ModelCompleted: CallBook.replied,
    ev.TurnFed: CallBook.replied,
    ev.TurnKept: CallBook.replied,
    ev.ToolStarted: CallBook.started,
    ev.ToolCompleted: CallBook.completed,
    ev.ToolFailed: CallBook.failed,
    ev.ToolRejected: CallBook.rejected,
    ev.ToolUnknown: CallBook.unknown,
    ev.ToolResolved: CallBook.resolved,
    ev.ToolLate: CallBook.late,
    ev.TakeoverRequested: CallBook.takeover,
    ev.ToolEdited: CallBook.edited,
    ev.ToolRedirected: CallBook.redirected,
    ev.ApprovalRequested: CallBook.asked,
    ev.ApprovalGranted: CallBook.granted,
    ev.ApprovalVoided: CallBook.voided,
    ev.TakeoverBegun: CallBook.begun,
    ev.TakeoverTurn: CallBook.turn_taken,
    ev.TakeoverResult: CallBook.by_hand,
    ev.TakeoverEnded: CallBook.handed_back,
    ev.ApprovalDenied: CallBook.refused,
    ev.ApprovalExpired: CallBook.refused,
    ev.InputRequested: CallBook.questioned,
    ev.InputAnswered: CallBook.answered,
}


def ordered(rules: Rules, part: CallPart, other: Seen) -> bool:
    """Whether a call must wait for an earlier one: one is a write, and their keys may be one."""
    mine, its = rules.tools.get(part.name), rules.tools.get(other.tool)
    if mine is None or its is None or {mine.effect, its.effect} == {"read"}:
        return False
    keys = (_key(mine, part.arguments), _key(its, other.arguments))
    return None in keys or keys[0] == keys[1]


def _key(spec: ToolSpec, arguments: str) -> str | None:
    values = spec.check(arguments)
    if spec.conflict_key is None or isinstance(values, Problem):
        return None
    try:
        return str(spec.conflict_key(values))
    except Exception:  # a key that cannot be told is none
        return None
