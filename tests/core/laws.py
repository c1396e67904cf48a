"""The promises of DESIGN section 1, told from the events alone: a second opinion on the core.

`Laws.see` is shown every event of a run and keeps its own small books. It shares no decision
with the core: what it reads of the state is only compared with what it expects.
"""

from dataclasses import dataclass, field

from cairn.core import events as ev
from cairn.core.codec import open_row, seal
from cairn.core.context import faults
from cairn.core.guard import STOP
from cairn.core.index import pending_of
from cairn.core.lifecycle import MOVES, Status
from cairn.core.limits import Limits, Usage
from cairn.core.messages import CallPart, parse_object
from cairn.core.rules import Problem, Rules, ToolSpec
from cairn.core.state import RunState
from cairn.errors import ErrorClass

WORK = (ev.ToolStarted, ev.ModelRequested, ev.StepStarted)
TOLD = (ev.ModelFailed, ev.ModelRejected, ev.StepFailed)
SALT = b"0123456789abcdef"


@dataclass
class Seen:
    """What the events said of one call."""

    id: str
    name: str
    tool: str
    arguments: str
    before: tuple[str, ...]
    """Calls of the same reply that must be over before this one may start."""
    attempts: int = 0
    open: bool = False
    over: bool = False
    doubt: bool = False
    """The last attempt may have happened, and nobody has said whether."""
    shadow: bool = False
    """Some attempt of a write may have happened, and nobody has said whether."""
    wavering: bool = False
    """As `shadow`, but a later attempt that failed for certain does not count as an answer."""
    person: bool = False
    not_done: bool = False
    recovery: str = ""
    effect: str = "dangerous"
    asked: int = 0
    granted: bool = False
    spent_grant: bool = False
    expires_at: int = 0
    first_start: int = 0
    ok: bool = False
    erred: bool = False
    redirects: int = 0


@dataclass
class Laws:
    """One run's books."""

    calls: dict[str, Seen] = field(default_factory=dict)
    turn: list[str] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    created: ev.RunCreated | None = None
    request: ev.ModelRequested | None = None
    task: str = ""
    answer: int = 0
    taken: str = ""
    paused: bool = False
    ending: bool = False
    over: bool = False
    steps: int = 0
    first_starts: int = 0
    tokens: int = 0
    micro_usd: int = 0
    over_tokens: int = 0
    over_usd: int = 0
    errors: int = 0
    running_us: int = 0
    stale: int = 0
    queued: set[int] = field(default_factory=set)
    replies: int = 0
    fed: bool = False
    kind: str = "operate"
    start: int = 0
    starts: list[int] = field(default_factory=list)
    """From which message on it was sent before each compaction that stands."""
    keep: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """What is still to be kept, by the event that said so."""
    counts: bool = True
    """The open turn is one of the model, of a person or of blocks, and its errors count."""

    def see(self, entry: ev.Entry, before: RunState, after: RunState, rules: Rules) -> None:
        event = entry.event
        assert open_row(seal("r1", entry, SALT, bytes(32))) == entry, "the codec changed it"
        if before.created is not None and not isinstance(event, ev.RunForked):
            assert before.status is after.status or (before.status, after.status) in MOVES
        if self.over:
            late = (ev.ToolLate, ev.ToolResolved, ev.RunForked)
            assert isinstance(event, late), f"{event.NAME} after the end"
        for duration in ("latency_us", "duration_us"):
            self.running_us += getattr(event, duration, 0)
        if isinstance(event, ev.ModelRequested) or getattr(event, "attempt", 0) == 1:
            bound = self.limits.running_s * 1_000_000
            assert self.running_us < bound or isinstance(event, ev.StepStarted)
        if isinstance(event, WORK):
            assert not self.paused, f"{event.NAME} while paused"
            assert not self.ending, f"{event.NAME} although the run is ending"
        handler = getattr(self, "_" + event.NAME.replace(".", "_"), None)
        if handler is not None:
            handler(entry, event, rules)
        if isinstance(event, TOLD) and event.disposition == "repair":
            self.errors += 1
        if isinstance(event, ev.ModelRequested):
            assert not faults(list(after.messages))
        self.stale = after.guard.stale
        if isinstance(event, ev.TERMINAL):
            self._ended(event, after)
        self._turn_over()
        assert self.first_starts <= self.limits.calls
        assert self.steps <= self.limits.steps
        assert self.tokens <= self.limits.tokens + self.over_tokens
        assert self.micro_usd <= self.limits.micro_usd + self.over_usd
        assert (after.status is Status.PAUSED) == (self.paused and not self.over)

    # ---------------------------------------------------------------- run

    def _run_created(self, entry: ev.Entry, event: ev.RunCreated, rules: Rules) -> None:
        self.created, self.limits, self.kind = event, event.limits, event.kind

    def _run_forked(self, entry: ev.Entry, event: ev.RunForked, rules: Rules) -> None:
        self.limits = event.limits or self.limits
        self.taken = ""
        self.paused = self.ending = self.over = False
        self.steps = self.first_starts = self.tokens = self.micro_usd = self.errors = 0
        self.over_tokens = self.over_usd = self.running_us = 0

    def _run_pause_requested(self, entry: ev.Entry, event: ev.Event, rules: Rules) -> None:
        self.paused = True

    def _run_resumed(self, entry: ev.Entry, event: ev.Event, rules: Rules) -> None:
        self.paused = False

    def _run_cancel_requested(self, entry: ev.Entry, event: ev.Event, rules: Rules) -> None:
        self.ending = True

    def _limit_reached(self, entry: ev.Entry, event: ev.LimitReached, rules: Rules) -> None:
        self.ending = True

    def _ended(self, event: ev.Event, after: RunState) -> None:
        assert self.request is None, "ended with a model request in flight"
        assert not self.task, "ended with a task in flight"
        assert not any(c.open for c in self.calls.values()), "ended with a call in flight"
        self.over = True
        listed = {p.call for p in pending_of(after)}
        assert listed >= {c.id for c in self.calls.values() if c.shadow and not c.over}
        assert listed <= {c.id for c in self.calls.values() if c.wavering and not c.over}
        for call in self.calls.values():
            if not call.over and call.id not in listed:
                assert after.calls[call.id].closed, f"{call.id} has no final state"
        if isinstance(event, ev.RunCompleted):
            assert event.answer == self.answer > 0
            assert all(c.over for c in self.calls.values())
            assert not self.queued, "a message was left unread by a run that completed"

    # ---------------------------------------------------------------- model and tasks

    def _model_requested(self, entry: ev.Entry, event: ev.ModelRequested, rules: Rules) -> None:
        assert not self.taken, "the model is asked while a person acts in its place"
        assert self.request is None
        assert not self.task
        assert not self.queued, "queued messages come before the next request"
        assert not any(self.keep.values()), "what is to be remembered was not asked to be kept"
        assert all(c.over for c in self.calls.values()), "a call is not answered"
        assert self.tokens + event.reserved.tokens <= self.limits.tokens
        assert self.micro_usd + event.reserved.micro_usd <= self.limits.micro_usd
        if event.purpose == "turn":
            assert event.reserved.output_tokens >= min(256, *(m.max_output for m in rules.models))
        else:
            assert event.attempt == 1, "what is asked beside the turns is a step of its own"
        if event.attempt == 1:
            self.steps += 1
            assert self.errors < self.limits.errors_in_row
            assert self.stale < self.limits.no_progress + STOP, "it goes round in circles"
        self.request = event
        self.answer = 0 if event.purpose == "turn" else self.answer

    def _charge(self, usage: Usage) -> None:
        assert self.request is not None, "a model outcome without a request"
        reserved = self.request.reserved
        self.tokens += usage.tokens
        self.micro_usd += usage.micro_usd
        self.over_tokens += max(0, usage.tokens - reserved.tokens)
        self.over_usd += max(0, usage.micro_usd - reserved.micro_usd)
        self.request = None

    def _model_failed(self, entry: ev.Entry, event: ev.ModelFailed, rules: Rules) -> None:
        if event.lost and self.request is not None:
            assert event.usage.tokens == self.request.reserved.tokens
            assert event.usage.micro_usd == self.request.reserved.micro_usd
        self._charge(event.usage)
        self.ending |= event.disposition == "end"

    def _model_rejected(self, entry: ev.Entry, event: ev.ModelRejected, rules: Rules) -> None:
        if event.error_class is ErrorClass.COMPACTION_FAILED:
            return
        assert self.answer
        self._refused(event.disposition)

    def _model_completed(self, entry: ev.Entry, event: ev.ModelCompleted, rules: Rules) -> None:
        assert self.request is not None
        turn = self.request.purpose == "turn"
        self._charge(event.usage)
        if turn:
            self.replies += 1
            self._reply(entry, event.parts, rules)
        else:
            assert not any(isinstance(p, CallPart) for p in event.parts)

    # ---------------------------------------------------------------- context

    def _nothing_at_work(self) -> None:
        assert self.request is None
        assert not self.task
        assert all(c.over for c in self.calls.values()), "a call is not answered"

    def _context_compacted(self, entry: ev.Entry, event: ev.ContextCompacted, rules: Rules) -> None:
        self._nothing_at_work()
        assert event.start > self.start, "what is condensed is condensed again"
        assert event.after < event.before, "a compaction makes the request larger"
        self.starts.append(self.start)
        self.start = event.start
        assert event.by == "model" or not event.keep, "a rule says what is to be remembered"
        self.keep = {entry.seq: event.keep}

    def _context_restored(self, entry: ev.Entry, event: ev.ContextRestored, rules: Rules) -> None:
        self._nothing_at_work()
        self.start = self.starts.pop()
        self.keep = {}

    def _turn_fed(self, entry: ev.Entry, event: ev.TurnFed, rules: Rules) -> None:
        self._nothing_at_work()
        assert not self.fed, "it is fed twice"
        assert not self.replies, "it is fed after the model was asked"
        self.fed = True
        self.steps += 1
        self._reply(entry, event.parts, rules)
        self.answer = 0

    def _turn_kept(self, entry: ev.Entry, event: ev.TurnKept, rules: Rules) -> None:
        self._nothing_at_work()
        assert self.keep.get(event.of), "nothing of it is to be kept, or it was asked for before"
        wanted = self.keep.pop(event.of)
        said = [parse_object(part.arguments) for part in event.parts]
        assert len(said) <= len(wanted) <= 8
        assert all(each in [{"text": fact} for fact in wanted] for each in said)
        if event.parts:
            answer = self.answer
            self.steps += 1
            self._reply(entry, event.parts, rules, bounded=False)
            self.answer, self.counts = answer, False
        else:
            assert event.why, "nothing is kept and nobody says why"

    def _task_classified(self, entry: ev.Entry, event: ev.TaskClassified, rules: Rules) -> None:
        assert not self.replies, "work has started"
        order = ("query", "generate", "operate")
        assert order.index(event.kind) <= order.index(self.kind), "the kind is widened"
        self.kind = event.kind

    def _reply(
        self, entry: ev.Entry, given: tuple[object, ...], rules: Rules, *, bounded: bool = True
    ) -> None:
        parts = [p for p in given if isinstance(p, CallPart)]
        assert len(parts) <= self.limits.calls_per_reply or not bounded
        self.turn, self.counts = [], True
        for part in parts:
            assert part.id == f"c{len(self.calls) + 1}", "call ids are the runtime's, in order"
            before = tuple(
                other
                for other in self.turn
                if _ordered(rules, part, self.calls[other].name, self.calls[other].arguments)
            )
            if not self.taken:
                assert set(part.after) == set(before), f"{part.id} should follow {before}"
            assert set(part.after) >= set(before), f"{part.id} should follow {before}"
            held = part.after if self.taken else before
            self.calls[part.id] = Seen(part.id, part.name, part.name, part.arguments, held)
            self.turn.append(part.id)
        self.answer = 0 if parts else entry.seq

    def _step_started(self, entry: ev.Entry, event: ev.StepStarted, rules: Rules) -> None:
        assert not self.task
        assert self.request is None
        assert all(c.over for c in self.calls.values())
        self.task = event.name
        self.steps += event.attempt == 1

    def _step_completed(self, entry: ev.Entry, event: ev.StepCompleted, rules: Rules) -> None:
        assert self.task
        self.task = ""

    def _step_failed(self, entry: ev.Entry, event: ev.StepFailed, rules: Rules) -> None:
        assert self.task
        self.task = ""
        self._refused(event.disposition)

    def _refused(self, disposition: str) -> None:
        """An answer was not accepted; after an end it stands, so that a retry looks at it anew."""
        if disposition == "end":
            self.ending = True
        else:
            self.answer = 0

    def _step_lost(self, entry: ev.Entry, event: ev.StepLost, rules: Rules) -> None:
        assert self.task
        self.task = ""

    # ---------------------------------------------------------------- tools

    def known(self, call: str, *, not_done: bool) -> None:
        """What a test knows and the event does not say: whether the tool raised NotDone."""
        self.calls[call].not_done = not_done

    def _tool_started(self, entry: ev.Entry, event: ev.ToolStarted, rules: Rules) -> None:
        call = self.calls[event.call]
        assert not call.over, "a call that ended is started again"
        assert not call.open, "a call is started while it runs"
        assert not call.person, "a call is started that waits for a person"
        assert all(self.calls[c].over for c in call.before), f"{call.id} overtakes {call.before}"
        for other in map(self.calls.__getitem__, self.turn):
            if other is not call and other.open:
                mine, theirs = (call.name, call.arguments), (other.name, other.arguments)
                assert not _conflict(rules, mine, theirs), f"{call.id} overlaps {other.id}"
        assert event.attempt == call.attempts + 1
        assert event.rule, "no verdict"
        tool = event.tool or call.tool
        spec = rules.tools[tool]
        assert (spec.effect, spec.recovery) == (event.effect, event.recovery)
        assert not isinstance(spec.check(call.arguments), Problem), "arguments were not validated"
        self._authorised(entry, event, call, rules, spec)
        if call.attempts and call.doubt and call.effect != "read":
            assert call.recovery in {"repeat", "keyed"}, "an unknown effect is repeated"
            ttl = rules.tools[call.tool].key_ttl_us if call.recovery == "keyed" else 0
            assert not ttl or entry.at < call.first_start + ttl, "its key has expired"
        if not call.attempts:
            self.first_starts += 1
            call.first_start = entry.at
        call.attempts, call.open, call.tool, call.doubt = event.attempt, True, tool, False
        call.recovery, call.effect = event.recovery, event.effect

    def _authorised(
        self, entry: ev.Entry, event: ev.ToolStarted, call: Seen, rules: Rules, spec: ToolSpec
    ) -> None:
        policy = rules.policy
        plain = getattr(policy, "plain", True)  # rules also go by what is not seen here
        decision = policy.judge(spec.name, spec.effect, {}).decision if plain else "allow"
        assert decision != "deny", "a denied call is started"
        assert self.created is not None
        assert self.created.kind != "query" or spec.effect == "read"
        assert call.asked == 0 or call.granted, "started while its approval is open"
        if spec.effect == "dangerous" or decision == "ask":
            grant = self.by_grant(event, spec)
            assert grant or call.granted, "a call that needs approval is started without it"
            assert grant or event.rule == f"approval {call.asked}"
        if call.granted and not call.spent_grant:
            assert entry.at < call.expires_at, "started on an approval that has expired"
        call.spent_grant = call.granted

    @staticmethod
    def by_grant(event: ev.ToolStarted, spec: ToolSpec) -> bool:
        """Whether it starts on a standing grant, which no dangerous call may."""
        if not event.rule.startswith("grant "):
            return False
        assert spec.effect != "dangerous", "a standing grant answers for a dangerous call"
        assert spec.binds is None, "a standing grant answers where files are bound"
        return True

    def _tool_edited(self, entry: ev.Entry, event: ev.ToolEdited, rules: Rules) -> None:
        call = self.calls[event.call]
        assert not call.attempts, "a call is changed that was started"
        assert not call.over, "a call is changed that has ended"
        assert not call.person, "a question to a person is changed"
        self._changed(call, event.arguments, rules)

    def _tool_redirected(self, entry: ev.Entry, event: ev.ToolRedirected, rules: Rules) -> None:
        call = self.calls[event.call]
        assert not call.attempts, "a call is redirected that was started"
        assert not call.over, "a call is redirected that has ended"
        assert event.rule, "a call is redirected without a rule"
        call.tool = call.name = event.tool
        call.redirects += 1
        assert call.redirects <= 3, "a call is sent round"
        self._changed(call, event.arguments, rules)

    def _changed(self, call: Seen, arguments: str, rules: Rules) -> None:
        call.arguments = arguments
        call.asked, call.granted, call.spent_grant = 0, False, False
        for other in self.turn:
            if other != call.id:
                self._reorder(call, self.calls[other], rules)

    def _reorder(self, call: Seen, other: Seen, rules: Rules) -> None:
        """What a changed call touches decides anew what it may overlap."""
        mine, theirs = (call.name, call.arguments), (other.name, other.arguments)
        if not _conflict(rules, mine, theirs) or other.over:
            return
        turn = self.turn
        if other.attempts or turn.index(other.id) < turn.index(call.id):
            call.before = tuple({*call.before, other.id})
        else:
            other.before = tuple({*other.before, call.id})

    def _outcome(self, call_id: str) -> Seen:
        call = self.calls[call_id]
        assert call.open, f"an outcome of {call_id}, which does not run"
        call.open = False
        return call

    def _close(self, call: Seen, *, ok: bool = False, erred: bool = False) -> None:
        assert not call.over, f"{call.id} ends twice"
        call.over, call.ok, call.erred = True, ok, erred
        call.open = call.doubt = call.person = call.shadow = False

    def _tool_completed(self, entry: ev.Entry, event: ev.ToolCompleted, rules: Rules) -> None:
        call = self._outcome(event.call)
        priced = rules.tools[call.tool].micro_usd if call.tool in rules.tools else 0
        self.micro_usd += event.micro_usd
        self.over_usd += max(0, event.micro_usd - priced)
        self._close(call, ok=True)

    def _tool_failed(self, entry: ev.Entry, event: ev.ToolFailed, rules: Rules) -> None:
        call = self.calls[event.call]
        if call.doubt:
            assert call.effect == "read", "an unknown effect is called a failure"
        elif call.attempts and not call.open:
            assert not call.person, "a call a person has in hand is called a failure"
        call.open = call.doubt = False
        call.shadow &= call.not_done  # that an attempt was not made says nothing of another
        if event.disposition == "retry" and call.recovery in {"once", "probe"}:
            assert call.not_done, "a call that may run once is retried"
        call.wavering |= call.shadow
        if call.shadow:
            assert event.disposition in {"retry", "takeover"}, "an effect in doubt is forgotten"
        if event.disposition == "switch":
            call.tool = event.switch_to
        elif event.disposition in {"takeover", "ask_user"}:
            call.person = True
            call.shadow |= event.error_class is ErrorClass.IN_DOUBT
            call.wavering |= call.shadow
        elif event.disposition != "retry":
            self._close(call, erred=True)
        self.ending |= event.disposition == "end"

    def _tool_rejected(self, entry: ev.Entry, event: ev.ToolRejected, rules: Rules) -> None:
        call = self.calls[event.call]
        assert not call.open
        assert not call.doubt or call.effect == "read", "an unknown effect is called not executed"
        self._close(call, erred=True)
        self.ending |= event.disposition == "end"

    def _tool_unknown(self, entry: ev.Entry, event: ev.ToolUnknown, rules: Rules) -> None:
        call = self._outcome(event.call)
        call.doubt = True
        call.shadow |= call.effect != "read"
        call.wavering |= call.shadow
        call.person = call.recovery == "once"

    def _takeover_requested(
        self, entry: ev.Entry, event: ev.TakeoverRequested, rules: Rules
    ) -> None:
        call = self.calls[event.call]
        assert call.doubt
        call.person = True
        call.shadow = call.wavering = True

    def _tool_resolved(self, entry: ev.Entry, event: ev.ToolResolved, rules: Rules) -> None:
        call = self.calls[event.call]
        left = self.over and call.wavering and not call.over  # the end left it to a person
        assert call.doubt or call.person or left, "something known is resolved"
        match event.verdict:
            case "happened":
                self._close(call, ok=True)
            case "not_happened" if self.over:
                self._close(call, erred=True)
            case "not_happened":
                call.doubt = call.person = call.shadow = call.wavering = False
            case "unknown":
                call.person = True
            case "given_up":
                self.ending = True

    def _tool_late(self, entry: ev.Entry, event: ev.ToolLate, rules: Rules) -> None:
        call = self.calls.get(event.call)
        if call is not None and (call.doubt or (call.shadow and call.person)):
            self._close(call, ok=event.ok, erred=not event.ok)

    # ---------------------------------------------------------------- people

    def _approval_requested(
        self, entry: ev.Entry, event: ev.ApprovalRequested, rules: Rules
    ) -> None:
        call = self.calls[event.call]
        assert not call.over
        assert not call.open
        assert not call.doubt
        assert self.created is not None
        assert self.created.approvals == "ask"
        call.asked, call.expires_at = event.n, event.expires_at
        call.granted = call.spent_grant = False

    def _asked(self, n: int) -> Seen:
        return next(c for c in self.calls.values() if c.asked == n)

    def _approval_granted(self, entry: ev.Entry, event: ev.ApprovalGranted, rules: Rules) -> None:
        call = self._asked(event.n)
        assert entry.at < call.expires_at
        assert not call.granted
        if event.arguments:
            assert not call.attempts, "a call is changed that was started"
            self._changed(call, event.arguments, rules)
            call.asked = event.n
        call.granted = True

    def _approval_voided(self, entry: ev.Entry, event: ev.ApprovalVoided, rules: Rules) -> None:
        call = self._asked(event.n)
        assert call.granted
        assert not call.open
        assert not call.over
        call.asked, call.granted, call.spent_grant = 0, False, False

    # ---------------------------------------------------------------- in the agent's place

    def _takeover_begun(self, entry: ev.Entry, event: ev.TakeoverBegun, rules: Rules) -> None:
        assert entry.actor, "nobody in particular acts in the agent's place"
        self.taken = entry.actor

    def _takeover_ended(self, entry: ev.Entry, event: ev.TakeoverEnded, rules: Rules) -> None:
        assert self.taken
        self.taken = ""
        self.errors = 0
        if event.note:
            self.queued.add(entry.seq)

    def _takeover_turn(self, entry: ev.Entry, event: ev.TakeoverTurn, rules: Rules) -> None:
        assert entry.actor == self.taken != "", "a turn of somebody else"
        assert self.request is None
        assert not self.task
        assert not self.queued, "queued messages come before the next turn"
        assert all(c.over for c in self.calls.values()), "a call is not answered"
        self.steps += 1
        self._reply(entry, event.parts, rules)

    def _takeover_result(self, entry: ev.Entry, event: ev.TakeoverResult, rules: Rules) -> None:
        assert entry.actor == self.taken != "", "done by hand by somebody else"
        call = self.calls[event.call]
        assert not call.attempts, "a call that was started is done by hand"
        assert not call.person, "a question is done by hand"
        self._close(call, ok=True)

    def _approval_denied(self, entry: ev.Entry, event: ev.ApprovalDenied, rules: Rules) -> None:
        self._close(self._asked(event.n))

    def _approval_expired(self, entry: ev.Entry, event: ev.ApprovalExpired, rules: Rules) -> None:
        call = self._asked(event.n)
        assert entry.at >= call.expires_at
        assert not call.open
        self._close(call)

    def _input_requested(self, entry: ev.Entry, event: ev.InputRequested, rules: Rules) -> None:
        if event.call:
            self.calls[event.call].asked = event.n
            self.calls[event.call].person = True

    def _input_answered(self, entry: ev.Entry, event: ev.InputAnswered, rules: Rules) -> None:
        found = [c for c in self.calls.values() if c.asked == event.n]
        if found:
            self._close(found[0], ok=True)
        else:
            self.queued.add(entry.seq)

    def _input_queued(self, entry: ev.Entry, event: ev.InputQueued, rules: Rules) -> None:
        self.queued.add(entry.seq)

    def _plan_updated(self, entry: ev.Entry, event: ev.PlanUpdated, rules: Rules) -> None:
        if event.by == "person":
            self.queued.add(entry.seq)

    def _input_given(self, entry: ev.Entry, event: ev.InputGiven, rules: Rules) -> None:
        assert set(event.seqs) <= self.queued, "a message is given twice"
        assert self.request is None
        assert all(c.over for c in self.calls.values())
        self.queued -= set(event.seqs)
        self.answer = 0

    # ---------------------------------------------------------------- turns

    def _turn_over(self) -> None:
        calls = [self.calls[c] for c in self.turn]
        if not calls or not all(c.over for c in calls):
            return
        self.turn = []
        if not self.counts:
            return  # they keep facts: no turn of the model
        if any(c.ok for c in calls):
            self.errors = 0
        else:
            self.errors += any(c.erred for c in calls)


def _ordered(rules: Rules, part: CallPart, name: str, arguments: str) -> bool:
    """Law: order is kept when one is a write, unless both name different conflict keys."""
    return _conflict(rules, (part.name, part.arguments), (name, arguments))


def _conflict(rules: Rules, one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two calls, each a name and its arguments, must not overlap."""
    mine, theirs = rules.tools.get(one[0]), rules.tools.get(other[0])
    if mine is None or theirs is None or {mine.effect, theirs.effect} == {"read"}:
        return False
    keys = [_key(mine, one[1]), _key(theirs, other[1])]
    return None in keys or keys[0] == keys[1]


def _key(spec: ToolSpec, arguments: str) -> str | None:
    values = spec.check(arguments)
    if spec.conflict_key is None or isinstance(values, Problem):
        return None
    try:
        return spec.conflict_key(values)
    except Exception:  # a key that cannot be told is none
        return None
