"""Every fact a journal may hold.

A fact is one frozen record with a type number that never changes its meaning. The numbers are
grouped: 1 run, 20 step, 30 model, 40 tool, 60 approval, 70 input, 80 takeover, 85 retry,
90 limit, 100 plan, 120 artifact, 160 error, 200 store. What can be folded from other facts is
not an event: the end of a turn, running and waiting, idempotency keys, argument hashes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from cairn.core.limits import Limits, Reservation, Usage
from cairn.core.messages import Part, PlanItem, Principal, Record, Source
from cairn.errors import ErrorClass

Disposition = Literal["retry", "repair", "switch", "degrade", "ask_user", "takeover", "end"]
Effect = Literal["read", "write", "dangerous"]
Recovery = Literal["repeat", "keyed", "probe", "once"]
TaskKind = Literal["query", "generate", "operate"]
EMPTY = msgspec.Raw(b"null")


class Event(Record, gc=False):
    """The base of all facts; never recorded itself."""

    TYPE: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    V: ClassVar[int] = 1


class RunRef(Record):
    """A place in another run's journal."""

    run: str
    seq: int


class Block(Record):
    """A named piece of the context whose text changed with this request; empty text removes it."""

    name: str
    text: str = ""


class RunCreated(Event):
    """Somebody handed a task over."""

    TYPE = 1
    NAME = "run.created"
    agent: str
    input: tuple[Part, ...]
    digest: str  # of agent name, input and principal; another one under the id is a conflict
    principal: Principal = Principal()
    session: str = ""
    previous: RunRef | None = None  # the session's run before, and its last seq
    consumes: tuple[int, ...] = ()  # messages queued in that run which the input takes over
    limits: Limits = Limits()
    kind: TaskKind = "operate"
    approvals: Literal["ask", "none"] = "ask"
    on_loop: Literal["stop", "ask"] = "stop"
    fingerprint: str = ""


class RunForked(Event):
    """This journal continues another one's prefix; what it has spent starts at zero."""

    TYPE = 2
    NAME = "run.forked"
    run: str  # the id of the new run
    parent: str
    at: int
    limits: Limits | None = None
    reason: str = ""


class RunPauseRequested(Event):
    """No new work from here on; calls in flight are waited for."""

    TYPE = 3
    NAME = "run.pause_requested"
    reason: str = ""


class RunResumed(Event):
    """The pause is over."""

    TYPE = 4
    NAME = "run.resumed"


class RunCancelRequested(Event):
    """Somebody wants the run to end; the owner ends it."""

    TYPE = 5
    NAME = "run.cancel_requested"
    reason: str = ""


class RunCompleted(Event):
    """A final answer passed its checks. `answer` is the seq of the reply that holds it."""

    TYPE = 6
    NAME = "run.completed"
    answer: int
    degraded: tuple[str, ...] = ()


class RunFailed(Event):
    """A ladder or repair budget is exhausted, or an unknown effect was given up."""

    TYPE = 7
    NAME = "run.failed"
    error_class: ErrorClass
    message: str


class RunStopped(Event):
    """A limit or the progress guard ended the run; `limit` names it."""

    TYPE = 8
    NAME = "run.stopped"
    limit: str
    message: str = ""


class RunCancelled(Event):
    """The run was cancelled; calls that never started are cancelled with it."""

    TYPE = 9
    NAME = "run.cancelled"
    reason: str = ""


class StepStarted(Event):
    """A task of the deployer's own code is about to run."""

    TYPE = 20
    NAME = "step.started"
    name: str
    recovery: Recovery = "repeat"
    attempt: int = 1


class StepCompleted(Event):
    """The task returned."""

    TYPE = 21
    NAME = "step.completed"
    output: msgspec.Raw = EMPTY
    duration_us: int = 0


class StepFailed(Event):
    """The task raised, or refused what it was shown; `message` says what was wrong."""

    TYPE = 22
    NAME = "step.failed"
    error_class: ErrorClass
    message: str
    disposition: Disposition = "repair"
    duration_us: int = 0


class StepLost(Event):
    """The process died inside the task."""

    TYPE = 23
    NAME = "step.lost"


class ModelRequested(Event):
    """A request is about to be sent: what it reserves, and what of the context changed."""

    TYPE = 30
    NAME = "model.requested"
    model: str
    reserved: Reservation
    attempt: int = 1
    blocks: tuple[Block, ...] = ()
    messages: int = 0  # how many of the folded history the request holds
    tools: str = ""  # hash of the tool schemas offered, when it changed
    tool_choice: str = "auto"
    output_mode: Literal["text", "schema", "action"] = "text"


class ModelCompleted(Event):
    """A whole, well-formed reply."""

    TYPE = 31
    NAME = "model.completed"
    parts: tuple[Part, ...]
    usage: Usage = Usage()
    finish: str = "stop"
    latency_us: int = 0
    first_token_us: int = 0
    request_id: str = ""
    price: str = ""
    model: str = ""  # which model answered, if not by the name it was asked under
    measured: bool = True  # whether the provider said what it used; else the reservation stands


class ModelFailed(Event):
    """No usable reply; `disposition` says what the ladder does, `note` what the model is told.

    A call whose process died is charged at its reservation, said by `usage`.
    """

    TYPE = 32
    NAME = "model.failed"
    error_class: ErrorClass
    message: str
    disposition: Disposition
    note: str = ""
    usage: Usage = Usage()
    latency_us: int = 0
    retry_at: int = 0
    request_id: str = ""
    lost: bool = False  # the process died inside the call; whether a reply came is not known


class ModelRejected(Event):
    """The reply was well-formed, but cannot be the final answer; the model is told `note`."""

    TYPE = 33
    NAME = "model.rejected"
    error_class: ErrorClass
    disposition: Disposition
    note: str


class ToolStarted(Event):
    """The intent: from here on the effect may have happened."""

    TYPE = 40
    NAME = "tool.started"
    call: str
    effect: Effect
    recovery: Recovery
    rule: str
    """The policy rule that allowed it; a grant is named by its request, as `approval 3`."""
    attempt: int = 1
    tool: str = ""  # only when a fallback runs in place of the tool that was asked for
    timeout_us: int = 0


class ToolCompleted(Event):
    """The tool returned. `result` is strict JSON; sources are numbered on in the run."""

    TYPE = 41
    NAME = "tool.completed"
    call: str
    result: msgspec.Raw = EMPTY
    sources: tuple[Source, ...] = ()
    artifact: str = ""
    """The artifact that holds the whole result, when `result` is only its head and tail."""
    duration_us: int = 0
    micro_usd: int = 0


class ToolFailed(Event):
    """The tool raised: a known failure."""

    TYPE = 42
    NAME = "tool.failed"
    call: str
    error_class: ErrorClass
    message: str
    disposition: Disposition
    switch_to: str = ""
    """The declared fallback tool, when the disposition is `switch`."""
    duration_us: int = 0
    retry_at: int = 0


class ToolRejected(Event):
    """The call was not run: it is malformed, forbidden, over a limit, or a loop."""

    TYPE = 43
    NAME = "tool.rejected"
    call: str
    kind: Literal["invalid", "denied", "limit", "loop"]
    error_class: ErrorClass
    message: str
    rule: str = ""
    disposition: Disposition = "repair"


class ToolUnknown(Event):
    """The effect may have happened. "It did not" may be said from `not_before` on."""

    TYPE = 44
    NAME = "tool.unknown"
    call: str
    reason: Literal["timeout", "cancelled", "lost", "unsure"]
    message: str = ""
    not_before: int = 0
    duration_us: int = 0
    micro_usd: int = 0  # what the call costs, for it may have happened


class ToolResolved(Event):
    """A person or a probe settled an unknown effect."""

    TYPE = 45
    NAME = "tool.resolved"
    call: str
    verdict: Literal["happened", "not_happened", "unknown", "given_up"]
    """`unknown` is a probe that could not tell: a person is asked next."""
    by: Literal["person", "probe"] = "person"
    result: msgspec.Raw = EMPTY
    evidence: str = ""


class ToolLate(Event):
    """An outcome that came after time-out, lost claim or the run's end."""

    TYPE = 46
    NAME = "tool.late"
    call: str
    ok: bool
    result: msgspec.Raw = EMPTY
    message: str = ""


class ApprovalRequested(Event):
    """A call waits for a person; `digest` binds tool and arguments."""

    TYPE = 60
    NAME = "approval.requested"
    n: int
    call: str
    digest: str
    expires_at: int
    rule: str = ""


class ApprovalGranted(Event):
    """A person said yes, to exactly this call, once."""

    TYPE = 61
    NAME = "approval.granted"
    n: int
    message: str = ""


class ApprovalDenied(Event):
    """A person said no; the model reads the reason as typed."""

    TYPE = 62
    NAME = "approval.denied"
    n: int
    message: str = ""


class ApprovalExpired(Event):
    """Nobody answered in time, or the run was started with approvals="none"."""

    TYPE = 63
    NAME = "approval.expired"
    n: int
    message: str = ""


class InputQueued(Event):
    """A message that came during the run; consumed once."""

    TYPE = 70
    NAME = "input.queued"
    parts: tuple[Part, ...]


class InputGiven(Event):
    """Queued messages that the next request will hold, named by their seqs."""

    TYPE = 71
    NAME = "input.given"
    seqs: tuple[int, ...]


class InputRequested(Event):
    """A person is asked a question; `call` is empty when the runtime itself asks."""

    TYPE = 72
    NAME = "input.requested"
    n: int
    question: str
    call: str = ""


class InputAnswered(Event):
    """The answer, as typed."""

    TYPE = 73
    NAME = "input.answered"
    n: int
    text: str


class TakeoverRequested(Event):
    """A person must say what came of a call, or do it in the agent's place."""

    TYPE = 80
    NAME = "takeover.requested"
    call: str
    message: str = ""


class RetryScheduled(Event):
    """The next attempt may start at `at`; `subject` is `model` or a call id."""

    TYPE = 85
    NAME = "retry.scheduled"
    subject: str
    at: int


class LimitReached(Event):
    """A bound is reached; the run ends when nothing is in flight any more."""

    TYPE = 90
    NAME = "limit.reached"
    limit: str
    bound: int
    value: int


class LimitWarned(Event):
    """The progress guard speaks: first a hint to the model, then repeats are blocked."""

    TYPE = 91
    NAME = "limit.warned"
    limit: str
    level: Literal["hint", "block"]
    note: str


class PlanUpdated(Event):
    """The agent's intentions, whole."""

    TYPE = 100
    NAME = "plan.updated"
    items: tuple[PlanItem, ...]


class ArtifactCreated(Event):
    """A named content the run made; text as it is, other bytes in base64."""

    TYPE = 120
    NAME = "artifact.created"
    id: str
    name: str
    media_type: str
    size: int
    content: str
    base64: bool = False


class ErrorRaised(Event):
    """A fault that has no event of its own; it changes nothing in the run."""

    TYPE = 160
    NAME = "error.raised"
    error_class: ErrorClass
    message: str
    where: str = ""


class StorePruned(Event):
    """A whole run was removed by retention; its last hash stays."""

    TYPE = 200
    NAME = "store.pruned"
    run: str
    head: int
    hash: str
    status: str = ""


TERMINAL = (RunCompleted, RunFailed, RunStopped, RunCancelled)
EVENTS: dict[int, type[Event]] = {cls.TYPE: cls for cls in Event.__subclasses__()}


class Entry(Record, gc=False):
    """An event where it stands: its number in the run, its time and its step.

    Args:
        seq: 1 for the first, gapless.
        at: Microseconds since 1970, UTC; never falls within a run.
        step: Number of the step it belongs to, 0 for none.
        actor: Pseudonymous id of the person who caused it, empty for the runtime.
    """

    seq: int
    at: int
    event: Any
    step: int = 0
    actor: str = ""
