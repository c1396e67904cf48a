"""The shapes that people look at: a run as steps, model attempts and calls, with nothing lost."""

from __future__ import annotations

from typing import Literal

from cairn.core import events as ev
from cairn.core.index import Pending
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Limits, Reservation, Usage
from cairn.core.messages import PlanItem, Record
from cairn.core.state import End
from cairn.core.terms import ApprovalTerms, BoundFile
from cairn.errors import ErrorClass

Fate = Literal["open", "completed", "failed", "lost", "unknown"]
StepStatus = Literal["running", "waiting", "completed", "failed"]


class Fault(Record):
    """What went wrong, and what was done about it."""

    error_class: ErrorClass
    message: str
    disposition: ev.Disposition
    retry_at: int = 0
    status: int = 0
    asked_us: int = 0


class ModelAttempt(Record):
    """One request to a model and what came back; `rejection` says why it was no final answer.

    `purpose` is `summary` for a request to condense the conversation.
    """

    seq: int
    at: int
    n: int
    model: str
    reserved: Reservation
    purpose: str = "turn"
    fate: Fate = "open"
    ended_at: int = 0
    latency_us: int = 0
    first_token_us: int = 0
    usage: Usage = Usage()
    measured: bool = True
    finish: str = ""
    request_id: str = ""
    text: str = ""
    reasoning: str = ""
    fault: Fault | None = None
    rejection: Fault | None = None


class CallAttempt(Record):
    """One start of a tool and what is known of it; `rule` is what allowed it."""

    seq: int
    at: int
    n: int
    tool: str
    rule: str
    effect: ev.Effect
    recovery: ev.Recovery
    fate: Fate = "open"
    ended_at: int = 0
    duration_us: int = 0
    micro_usd: int = 0
    fault: Fault | None = None
    doubt: str = ""
    """Why nobody knows whether it happened."""


class TaskAttempt(Record):
    """One run of a task of the deployer's own code."""

    seq: int
    at: int
    n: int
    fate: Fate = "open"
    ended_at: int = 0
    duration_us: int = 0
    output: str = ""
    fault: Fault | None = None


class Approval(Record):
    """A request for approval and what people made of it."""

    n: int
    at: int
    rule: str
    digest: str
    expires_at: int
    decision: Literal["open", "granted", "denied", "expired", "void"] = "open"
    decided_at: int = 0
    actor: str = ""
    message: str = ""
    roles: tuple[str, ...] = ()
    """Of the person, as far as they were said."""
    terms: ApprovalTerms | None = None
    files: tuple[BoundFile, ...] = ()
    reason: str = ""
    """Why it was asked, as the rule says."""


class Question(Record):
    """A question to people; `answer` is None while it is open."""

    n: int
    at: int
    text: str
    answer: str | None = None
    answered_at: int = 0
    actor: str = ""


class Settlement(Record):
    """What a person, a probe or a late outcome said of an unknown effect."""

    seq: int
    at: int
    verdict: Literal["happened", "not_happened", "unknown", "given_up", "late", "by hand"]
    by: Literal["person", "probe", "tool"]
    actor: str = ""
    evidence: str = ""


class Edit(Record):
    """What a person, or the hook that `rule` names, changed of a call before it was started."""

    seq: int
    at: int
    before: str
    """Its arguments until then."""
    arguments: str
    actor: str = ""
    rule: str = ""


class Redirection(Record):
    """What a rule put in a call's place before it was started."""

    seq: int
    at: int
    tool: str
    arguments: str
    rule: str
    reason: str = ""


class CallView(Record):
    """A tool call with all that happened to it, over every attempt, wait and decision.

    Args:
        arguments: As they stand now; `edits` holds the earlier ones.
        verdict: What the policy said first; `reject` when the call was not fit to be judged.
        rule: The rule that said so.
        result: What came of it, as the model or a person would read it.
        fault: Why it was rejected.
    """

    id: str
    name: str
    arguments: str
    step: int
    at: int
    status: CallStatus = CallStatus.REQUESTED
    by: str = ""
    """Who wrote it, if a person did in the agent's place."""
    verdict: Literal["", "allow", "ask", "redirect", "reject"] = ""
    rule: str = ""
    approvals: tuple[Approval, ...] = ()
    edits: tuple[Edit, ...] = ()
    redirects: tuple[Redirection, ...] = ()
    question: Question | None = None
    attempts: tuple[CallAttempt, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    result: str = ""
    artifact: str = ""
    sources: int = 0
    fault: Fault | None = None
    ended_at: int = 0

    @property
    def tool(self) -> str:
        """The tool that it is of now; `name` is the one that was asked for."""
        return self.redirects[-1].tool if self.redirects else self.name

    @property
    def duration_us(self) -> int:
        """How long it was at work, all attempts together."""
        return sum(a.duration_us for a in self.attempts)


class Note(Record):
    """Any other event, in plain words, where it stands."""

    seq: int
    at: int
    name: str
    text: str
    actor: str = ""


class StepView(Record):
    """One step: a turn with its model attempts and calls, or a task."""

    number: int
    kind: Literal["turn", "task"]
    at: int
    ended_at: int = 0
    name: str = ""
    by: str = ""
    """Who made this turn, if a person did in the agent's place."""
    text: str = ""
    """What they wrote."""
    fed: tuple[str, ...] = ()
    """The context blocks that its calls feed, or the tools; no model was asked for them."""
    keeps: int = 0
    """Whose facts its calls keep: the event that condensed the conversation; 0 for no such step."""
    rejection: Fault | None = None
    """Why that was no final answer."""
    status: StepStatus = "running"
    attempts: tuple[ModelAttempt, ...] = ()
    calls: tuple[CallView, ...] = ()
    tasks: tuple[TaskAttempt, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def duration_us(self) -> int:
        """From its first event to its last."""
        return max(self.ended_at - self.at, 0)


class Change(Record):
    """A move of the run's status, and the event that caused it."""

    seq: int
    at: int
    before: Status | None
    after: Status
    event: str
    waits: tuple[str, ...] = ()
    actor: str = ""


class Totals(Record):
    """What a run has used, and where its time went.

    Args:
        steps, calls, running_us, usage: As its limits count them.
        requests: Model requests, retries included.
        attempts: Starts of tools, retries included.
        waited_us: Time spent waiting or paused.
        elapsed_us: From its first event to its last.
    """

    steps: int = 0
    calls: int = 0
    requests: int = 0
    attempts: int = 0
    usage: Usage = Usage()
    running_us: int = 0
    waited_us: int = 0
    elapsed_us: int = 0


class RunView(Record, gc=True):
    """A whole run for people.

    Args:
        at, last_at: Time of its first and last event.
        parent: Where it was forked from, None if it was not.
        notes: Events before the first step.
        ended_at: Time of its end, 0 while it lives.
    """

    run: str
    created: ev.RunCreated
    at: int
    last_at: int
    head: int
    status: Status
    limits: Limits
    steps: tuple[StepView, ...]
    notes: tuple[Note, ...]
    changes: tuple[Change, ...]
    totals: Totals
    pending: tuple[Pending, ...]
    plan: tuple[PlanItem, ...] = ()
    answer: str = ""
    degraded: tuple[str, ...] = ()
    end: End | None = None
    ended_at: int = 0
    parent: ev.RunRef | None = None
