"""The book of requests, tasks, messages and bounds: what a run was allowed and what it used."""

from __future__ import annotations

from typing import Any

from cairn.core import events as ev
from cairn.core.limits import Usage
from cairn.errors import ErrorClass
from cairn.testing.invariants.calls import CallBook
from cairn.testing.invariants.case import Case

WORK = (ev.ToolStarted, ev.ModelRequested, ev.StepStarted)
TOLD = (ev.ModelFailed, ev.ModelRejected, ev.StepFailed)
BUCKETS = Usage.__struct_fields__


class RunBook:
    """Follows requests, tasks, messages and sums of a run."""

    def __init__(self, case: Case, calls: CallBook) -> None:
        self.case = case
        self.calls = calls
        self.queued: set[int] = set()
        self.given: set[int] = set()
        self._reset()
        self.answer = 0

    def _reset(self) -> None:
        self.request: ev.ModelRequested | None = None
        self.task = ""
        self.steps = 0
        self.running_us = 0
        self.retry_at = 0
        self.used = dict.fromkeys(BUCKETS, 0)
        self.excess_tokens = 0
        self.excess_usd = 0

    @property
    def tokens(self) -> int:
        """All tokens so far."""
        return sum(n for name, n in self.used.items() if name != "micro_usd")

    def see(self, entry: ev.Entry) -> None:
        """Take one event in."""
        event, case = entry.event, self.case
        if isinstance(event, WORK):
            name = event.NAME
            case.expect(not case.paused, "stopped", f"{name} although the run is paused")
            case.expect(not case.ending, "stopped", f"{name} although the run is ending")
            if getattr(event, "attempt", 0) == 1 and not isinstance(event, ev.StepStarted):
                bound = case.limits.running_s * 1_000_000
                case.expect(self.running_us < bound, "limits", f"{name} past the running time")
        self.running_us += getattr(event, "latency_us", 0) + getattr(event, "duration_us", 0)
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, entry, event)
        if isinstance(event, TOLD) and event.disposition == "repair":
            self.calls.errors += 1
        self._bounded()

    def _bounded(self) -> None:
        limits, case = self.case.limits, self.case
        case.expect(self.steps <= limits.steps, "limits", f"step {self.steps} of {limits.steps}")
        tokens, usd = self.tokens, self.used["micro_usd"]
        if tokens > limits.tokens + self.excess_tokens:
            case.say("limits", f"{tokens} tokens of {limits.tokens} are used")
        if usd > limits.micro_usd + self.excess_usd:
            case.say("limits", f"{usd} micro-USD of {limits.micro_usd} are used")

    # ---------------------------------------------------------------- run

    def created(self, entry: ev.Entry, event: ev.RunCreated) -> None:
        case = self.case
        case.limits, case.kind, case.approvals = event.limits, event.kind, event.approvals

    def forked(self, entry: ev.Entry, event: ev.RunForked) -> None:
        case = self.case
        case.limits = event.limits or case.limits
        case.paused = case.ending = case.over = False
        task = self.task
        self._reset()
        self.task = task
        self.calls.starts = self.calls.errors = 0

    def paused(self, entry: ev.Entry, event: ev.Event) -> None:
        self.case.paused = True

    def resumed(self, entry: ev.Entry, event: ev.Event) -> None:
        self.case.paused = False

    def ending(self, entry: ev.Entry, event: ev.Event) -> None:
        self.case.ending = True

    def ended(self, entry: ev.Entry, event: ev.Event) -> None:
        case, calls = self.case, self.calls.calls
        case.expect(self.request is None, "alive", "it ended with a model request at work")
        case.expect(not self.task, "alive", "it ended with a task at work")
        working = [c.id for c in calls.values() if c.open]
        case.expect(not working, "alive", f"it ended with {', '.join(working)} at work")
        case.over = True
        for call in calls.values():
            call.person |= call.shadow and not call.over  # what may have happened stays listed
        if isinstance(event, ev.RunCompleted):
            left = [c.id for c in calls.values() if not c.over]
            case.expect(not left, "final", f"it completed with {', '.join(left)} not ended")
            unread = sorted(self.queued)
            case.expect(not unread, "input", f"it completed with messages {unread} unread")
            case.expect(
                event.answer == self.answer > 0, "legal", f"event {event.answer} is no answer"
            )

    # ---------------------------------------------------------------- model and tasks

    def requested(self, entry: ev.Entry, event: ev.ModelRequested) -> None:
        case, limits, reserved = self.case, self.case.limits, event.reserved
        case.expect(self.request is None, "intent", "a request while another one is open")
        case.expect(not self.task, "intent", "a request while a task is at work")
        case.expect(not self.queued, "input", "messages wait, and a request is made without them")
        case.expect(self.calls.all_over, "messages", "a request before every call was answered")
        case.expect(entry.at >= self.retry_at, "patience", "a request before its back-off is over")
        left = limits.tokens - self.tokens
        case.expect(
            reserved.tokens <= left, "limits", f"{reserved.tokens} tokens reserved of {left}"
        )
        left = limits.micro_usd - self.used["micro_usd"]
        case.expect(
            reserved.micro_usd <= left,
            "limits",
            f"{reserved.micro_usd} micro-USD reserved of {left}",
        )
        case.expect(not self.calls.taken, "legal", "the model is asked and a person has the run")
        if event.attempt == 1:
            self.steps += 1
            most = limits.errors_in_row
            case.expect(
                self.calls.errors < most, "limits", f"a turn after {self.calls.errors} errors"
            )
        self.request = event
        self.answer = self.retry_at = 0

    def _charge(self, usage: Usage) -> None:
        if self.request is None:
            self.case.say("intent", "an outcome of a model without a request")
            return
        reserved = self.request.reserved
        for name in BUCKETS:
            self.used[name] += getattr(usage, name)
        self.excess_tokens += max(0, usage.tokens - reserved.tokens)
        self.excess_usd += max(0, usage.micro_usd - reserved.micro_usd)
        self.request = None

    def replied(self, entry: ev.Entry, event: ev.ModelCompleted) -> None:
        beside = self.request is not None and self.request.purpose != "turn"
        self._charge(event.usage)
        if not beside:  # what was asked beside the turns is no answer
            self.answer = 0 if self.calls.turn else entry.seq

    def turn_taken(self, entry: ev.Entry, event: ev.TakeoverTurn) -> None:
        self.case.expect(self.request is None, "intent", "a person's turn while a request is open")
        self.case.expect(not self.queued, "input", "a person's turn before an unread message")
        self.steps += 1
        self.retry_at = 0
        self.answer = 0 if self.calls.turn else entry.seq

    def handed_back(self, entry: ev.Entry, event: ev.TakeoverEnded) -> None:
        if event.note:
            self.queued.add(entry.seq)

    def request_failed(self, entry: ev.Entry, event: ev.ModelFailed) -> None:
        if event.lost and self.request is not None:
            reserved = self.request.reserved
            whole = (reserved.tokens, reserved.micro_usd)
            case = self.case
            case.expect(
                (event.usage.tokens, event.usage.micro_usd) == whole,
                "usage",
                "a lost request is not charged at its reservation",
            )
        self._charge(event.usage)
        self.retry_at = event.retry_at
        self.case.ending |= event.disposition == "end"

    def fed(self, entry: ev.Entry, event: ev.TurnFed) -> None:
        self.steps += 1

    def kept(self, entry: ev.Entry, event: ev.TurnKept) -> None:
        self.steps += bool(event.parts)

    def rejected(self, entry: ev.Entry, event: ev.ModelRejected) -> None:
        if event.error_class is ErrorClass.COMPACTION_FAILED:
            return  # a summary: the book of the context knows
        self.case.expect(self.answer, "intent", "an answer is rejected and there is none")
        self._refused(event.disposition)

    def _refused(self, disposition: str) -> None:
        if disposition == "end":
            self.case.ending = True
        else:
            self.answer = 0

    def step_started(self, entry: ev.Entry, event: ev.StepStarted) -> None:
        case = self.case
        case.expect(not self.task, "intent", "a task while another one is at work")
        case.expect(self.request is None, "intent", "a task while a request is open")
        self.task = event.name
        self.steps += event.attempt == 1

    def step_ended(self, entry: ev.Entry, event: ev.Event) -> None:
        self.case.expect(self.task, "intent", f"{event.NAME} and no task is at work")
        self.task = ""
        if isinstance(event, ev.StepFailed):
            self._refused(event.disposition)

    # ---------------------------------------------------------------- money of tools, messages

    def tool_paid(self, entry: ev.Entry, event: ev.ToolCompleted | ev.ToolUnknown) -> None:
        call = self.calls.calls.get(event.call)
        self.used["micro_usd"] += event.micro_usd
        if call is None or call.attempts > 1 or isinstance(event, ev.ToolUnknown):
            self.excess_usd += event.micro_usd  # what may be repeated is not held back by money

    def queue(self, entry: ev.Entry, event: ev.InputQueued) -> None:
        self.queued.add(entry.seq)

    def planned(self, entry: ev.Entry, event: ev.PlanUpdated) -> None:
        if event.by == "person":
            self.queued.add(entry.seq)  # the model is told of it as of a message

    def answered(self, entry: ev.Entry, event: ev.InputAnswered) -> None:
        if not any(c.asked == event.n for c in self.calls.calls.values()):
            self.queued.add(entry.seq)

    def give(self, entry: ev.Entry, event: ev.InputGiven) -> None:
        case, seqs = self.case, set(event.seqs)
        twice = sorted(seqs & self.given) or sorted(seqs - self.queued)
        case.expect(seqs <= self.queued, "input", f"messages {twice} are given twice")
        case.expect(len(seqs) == len(event.seqs), "input", "a message is given twice at once")
        self.queued -= seqs
        self.given |= seqs
        self.answer = 0


HANDLERS: dict[type[ev.Event], Any] = {
    ev.RunCreated: RunBook.created,
    ev.RunForked: RunBook.forked,
    ev.RunPauseRequested: RunBook.paused,
    ev.RunResumed: RunBook.resumed,
    ev.RunCancelRequested: RunBook.ending,
    ev.LimitReached: RunBook.ending,
    **dict.fromkeys(ev.TERMINAL, RunBook.ended),
    ev.ModelRequested: RunBook.requested,
    ev.ModelCompleted: RunBook.replied,
    ev.ModelFailed: RunBook.request_failed,
    ev.TurnFed: RunBook.fed,
    ev.TurnKept: RunBook.kept,
    ev.TakeoverTurn: RunBook.turn_taken,
    ev.TakeoverEnded: RunBook.handed_back,
    ev.ModelRejected: RunBook.rejected,
    ev.StepStarted: RunBook.step_started,
    ev.StepCompleted: RunBook.step_ended,
    ev.StepFailed: RunBook.step_ended,
    ev.StepLost: RunBook.step_ended,
    ev.ToolCompleted: RunBook.tool_paid,
    ev.ToolUnknown: RunBook.tool_paid,
    ev.InputQueued: RunBook.queue,
    ev.PlanUpdated: RunBook.planned,
    ev.InputAnswered: RunBook.answered,
    ev.InputGiven: RunBook.give,
}
