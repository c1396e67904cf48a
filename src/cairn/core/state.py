"""What a run is at some point of its journal, and the status that follows from it."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from cairn.core import events as ev
from cairn.core.feeding import Fed
from cairn.core.fingerprint import Fingerprint
from cairn.core.gist import Gist
from cairn.core.guard import Guard
from cairn.core.history import Growing, History
from cairn.core.lifecycle import CLOSED, PERSON, CallStatus, Status
from cairn.core.limits import Limits, Usage
from cairn.core.messages import (
    Message,
    Part,
    PlanItem,
    Principal,
    Record,
    ResultPart,
)
from cairn.core.sizes import tokens_of
from cairn.core.terms import ApprovalTerms, BoundFile
from cairn.core.view import WHOLE, View
from cairn.errors import ErrorClass


class Call(Record):
    """A tool call of the open turn, and how it stands."""

    id: str
    name: str
    """The tool the model asked for."""
    arguments: str
    step: int
    origin: str
    """The run that first requested it; with the id it makes the idempotency key."""
    after: tuple[str, ...] = ()
    status: CallStatus = CallStatus.REQUESTED
    tool: str = ""
    """The tool that runs: the asked one, or its fallback."""
    effect: ev.Effect = "dangerous"
    recovery: ev.Recovery = "once"
    attempt: int = 0
    tries: tuple[tuple[str, int], ...] = ()
    """How often each rung of the ladder was used, by `class:disposition`."""
    approval: int = 0
    granted: bool = False
    digest: str = ""
    expires_at: int = 0
    asked: int = 0
    """Seq of the event that asked for its approval."""
    terms: ApprovalTerms | None = None
    files: tuple[BoundFile, ...] = ()
    granted_by: str = ""
    granted_roles: tuple[str, ...] = ()
    voided: int = 0
    """How often what it was approved with had changed before it could start."""
    editor: str = ""
    """Who gave it its arguments, if a person did."""
    started_at: int = 0
    first_started_at: int = 0
    timeout_us: int = 0
    """The deadline its present attempt was started with."""
    taint: tuple[str, ...] = ()
    """Labels of the untrusted content that its outcome brings in."""
    redirects: tuple[str, ...] = ()
    """Rules that had another tool called in its place, in order."""
    retry_at: int = 0
    not_before: int = 0
    reason: str = ""
    """Why it is unknown, or what a probe said of it."""
    edited: bool = False
    """A person changed its arguments."""
    by_person: bool = False
    """A person wrote it, in the agent's place."""
    invalid: bool = False
    """It was rejected because it could not be understood."""
    kept: bool = False
    """The runtime made it beside the conversation, to keep a fact."""
    doubt: bool = False
    """An attempt that may have had its effect was never settled, though later ones may be."""
    result: str = ""
    """What the model is told, once it is closed."""
    brought: bytes = b""
    """Identity of what its tool gave: marks and numbers that the run adds are no news."""
    error_class: ErrorClass | None = None

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.status in CLOSED

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt, other for every call."""
        return sha256(f"{self.origin}\0{self.id}".encode()).hexdigest()[:32]


class Task(Record):
    """The task that is running, or was running when its process died."""

    name: str
    step: int
    recovery: ev.Recovery = "repeat"
    attempt: int = 1
    lost: bool = False


class End(Record):
    """How and why a run ended."""

    status: Status
    error_class: ErrorClass | None = None
    limit: str = ""
    message: str = ""
    answer: int = 0
    degraded: tuple[str, ...] = ()


class Spent(Record):
    """What the run has used so far, beside tokens and money."""

    steps: int = 0
    calls: int = 0
    running_us: int = 0


class Draft(Record):
    """What a model said that was asked beside the turns, as it came.

    Args:
        text: A summary of the messages before `cut`, or a kind of task.
        purpose: Which of the two.
        cut: Where the summary ends.
    """

    text: str
    purpose: str
    cut: int = 0


class Condensed(Record):
    """What was sent before a compaction, so that it can be taken back."""

    seq: int
    view: View
    summary: str
    by_model: bool
    gist: Gist
    condensed_in: str = ""


class RunState(Record, gc=True):
    """A run folded from its journal. Values only; `evolve` makes the next one."""

    run: str
    seq: int = 0
    at: int = 0
    status: Status = Status.QUEUED
    created: ev.RunCreated | None = None
    limits: Limits = Limits()
    alone: bool = False
    """It is folded without the conversation it goes on from: enough for how it stands."""
    parent: ev.RunRef | None = None
    fingerprint: Fingerprint | None = None
    """Of the version that went on last; None when that is not known."""
    paused: bool = False
    taken: str = ""
    """Who acts in the agent's place; empty while the agent does."""
    handled: bool = False
    """It was taken over at least once."""
    voices: Growing[str, int] = msgspec.field(default_factory=Growing)
    """Who has led to what the run does, and the seq at which they first did."""
    cancel: str | None = None
    end: End | None = None
    failing: End | None = None
    """An end that is due as soon as nothing is in flight."""

    excess: str = ""
    """A limit that a refused call would have passed; the run ends when its turn is closed."""

    messages: History[Message] = msgspec.field(default_factory=History)
    tokens: int = 0
    """Estimated size of the messages that are sent, corrected by what providers measured."""
    asked: History[int] = msgspec.field(default_factory=History)
    """Which of the messages are a person's requests."""
    tasks: History[int] = msgspec.field(default_factory=History)
    """Which of them a run began with; the others came into one while it was at work."""
    view: View = WHOLE
    """What of the messages is sent."""
    summary: str = ""
    """What stands for the messages before the view."""
    by_model: bool = False
    """A model wrote it."""
    gist: Gist = Gist()
    """What a rule can say of them."""
    draft: Draft | None = None
    """A model's summary that was not checked yet."""
    summary_tries: int = 0
    summary_misses: int = 0
    """Compactions in a row for which a model was asked, and none of its summaries was adopted."""
    condensed_in: str = ""
    """The run whose journal holds the event that the view names as its summary."""
    squeezes: int = 0
    """Compactions since the last reply."""
    overflowed: str = ""
    """What the provider said when it found the last request too large."""
    compactions: tuple[Condensed, ...] = ()
    """The last ones, and what they replaced."""
    keeping: tuple[str, ...] = ()
    """Facts of the last summary that are still to be kept."""
    kept: tuple[str, ...] = ()
    """The marks of those whose keeping was asked for, in this run and those before it."""
    kept_calls: int = 0
    """How many calls of this run were made for it."""
    fed: bool = False
    feeding: tuple[Fed, ...] = ()
    """The calls that feed context blocks, and what came of them."""
    own: int = 0
    """How many of the requests came from runs before this one."""
    opened: bool = False
    """What the run before left unread stands ahead of its own request: its task begins there."""
    classified: ev.TaskKind | None = None
    """What kind of task it was found to be, before work started."""
    offered: tuple[str, ...] = ()
    """Which of many tools are offered, beside those always there."""
    withheld: tuple[str, ...] = ()
    """Tools that hooks have taken from the last offer."""
    offered_for: int = -1
    """The request they were chosen for."""
    blocks: dict[str, ev.Block] = {}
    measured: bool = False
    """The blocks are those of the next request; else what it takes for them is not known yet."""
    tools: str = ""

    step: int = 0
    request: ev.ModelRequested | None = None
    model: int = 0
    """Index of the model in use: 0 the first choice, then its fallbacks."""
    replies: int = 0
    """Model outcomes that really came; what a scripted model picks its reply by."""
    tries: dict[str, int] = {}
    attempts: int = 0
    """Attempts already made for the present turn; 0 when the next request opens a new one."""
    retry_at: int = 0
    answer: int = 0
    """Seq of a reply that may be the final answer, 0 if there is none."""
    answer_text: str = ""
    given: int = 0
    """Seq of the last final answer that a person gave in the agent's place."""
    checked: tuple[str, ...] = ()
    task: Task | None = None

    calls: dict[str, Call] = {}
    last_call: int = 0
    requests: int = 0
    """Number of the last approval or question."""
    decided: dict[int, str] = {}
    """How the latest approvals were decided: granted, denied, expired or edited."""
    question: int = 0
    """A question of the runtime itself that is open."""
    queued: Growing[int, tuple[Part, ...]] = msgspec.field(default_factory=Growing)
    sent: Growing[int, tuple[str, ...] | None] = msgspec.field(default_factory=Growing)
    """The roles of who sent those of the queued that are messages; others are the runtime's."""

    usage: Usage = Usage()
    spent: Spent = Spent()
    errors_in_row: int = 0
    repairs: dict[str, int] = {}
    guard: Guard = Guard()
    plan: tuple[PlanItem, ...] = ()
    sources: int = 0
    taint: frozenset[str] = frozenset()
    """Labels of the untrusted content that has come in; what came in stays in."""
    artifacts: History[int] = msgspec.field(default_factory=History)
    """Seq of the event that made each artifact."""
    degraded: tuple[str, ...] = ()

    @property
    def agent(self) -> str:
        """Name of the agent that works on it."""
        return self.created.agent if self.created else ""

    @property
    def kind(self) -> ev.TaskKind:
        """What kind of task it works on."""
        if self.classified is not None:
            return self.classified
        return self.created.kind if self.created else "operate"

    @property
    def principal(self) -> Principal:
        """For whom it works."""
        return self.created.principal if self.created else Principal()

    @property
    def in_flight(self) -> bool:
        """Whether something was started that has no outcome yet."""
        if self.request is not None or (self.task is not None and not self.task.lost):
            return True
        return any(c.status is CallStatus.STARTED for c in self.calls.values())


def authors(state: RunState, call: Call) -> frozenset[str]:
    """Ids of those who led to a call: its principal, and whose words came before its request."""
    before = call.asked or state.seq + 1
    spoke = {who for who, seq in state.voices.items() if seq < before}
    return frozenset(spoke | {state.principal.id, call.editor}) - {""}


def persons_turn(state: RunState) -> bool:
    """Whether nothing goes on before the person who has taken the run over makes a turn."""
    if not state.taken or state.calls or state.request is not None or state.task is not None:
        return False
    return not (state.queued or state.answer or state.question)


def ending(state: RunState) -> str:
    """Why a run that is not over does nothing new any more, in words; empty if it goes on."""
    if state.end is not None:
        return ""
    if state.cancel is not None:
        return f"is ending: {state.cancel}"
    if state.failing is not None:
        return f"is ending: {state.failing.message or state.failing.status.value}"
    return ""


def is_open(state: RunState, call: Call) -> bool:
    """Whether every call that must end before this one has ended."""
    return not call.after or all(state.calls[a].closed for a in call.after if a in state.calls)


def waits(state: RunState) -> frozenset[str]:
    """What news the run would need: approval, input, takeover, in_doubt, retry_at."""
    found: set[str] = set()
    for call in state.calls.values():
        if call.status is CallStatus.ASKING:
            found.add("approval")
        elif call.status is CallStatus.QUESTION:
            found.add("input")
        elif call.status is CallStatus.TAKEOVER:
            found.add("in_doubt" if call.error_class is ErrorClass.IN_DOUBT else "takeover")
        elif _times(call):
            found.add("retry_at")
    if state.question:
        found.add("input")
    if persons_turn(state):
        found.add("takeover")
    if state.retry_at and not found:
        found.add("retry_at")
    return frozenset(found)


def wake_at(state: RunState) -> int:
    """When time itself is news: the earliest retry or expiry, 0 for never."""
    if state.end is not None:
        return 0
    times = [_times(c) for c in state.calls.values()]
    times += [c.expires_at for c in state.calls.values() if c.status is CallStatus.ASKING]
    times.append(0 if state.taken else state.retry_at)
    return min((t for t in times if t), default=0)


def status_of(state: RunState) -> Status:
    """The status that follows from everything else in the state."""
    if state.end is not None:
        return state.end.status
    if state.paused:
        return Status.PAUSED
    begun = state.step or state.handled or state.requests
    if not begun and state.cancel is None and state.failing is None:
        return Status.QUEUED
    return Status.RUNNING if _performable(state) else Status.WAITING


def _performable(state: RunState) -> bool:
    if state.request is not None or state.cancel is not None or state.failing is not None:
        return True
    if state.task is not None:
        return True
    for call in state.calls.values():
        if _moves(state, call):
            return True
    if state.taken:
        return not state.calls and not state.question and not persons_turn(state)
    return not state.calls and not state.question and not state.retry_at


def _moves(state: RunState, call: Call) -> bool:
    if call.status is CallStatus.STARTED:
        return True
    if call.status in CLOSED or call.status in PERSON:
        return False
    return not _times(call) and is_open(state, call)


def _times(call: Call) -> int:
    """When a call may go on, if it waits for time: a retry, or a probe that must not be early."""
    if call.status is CallStatus.RETRYING:
        return call.retry_at
    if call.status is CallStatus.UNKNOWN and call.recovery == "probe":
        return max(call.not_before, 1)
    return 0


KEPT_DECISIONS = 64
"""How many decided requests a state remembers; an older one is only known to be settled."""


def keep_decision(state: RunState, n: int, how: str) -> RunState:
    """Remember how a request was decided, so that the same decision can come twice."""
    kept = dict(list(state.decided.items())[1 - KEPT_DECISIONS :])
    return msgspec.structs.replace(state, decided={**kept, n: how})


NO_TOOL = "no such tool"


def repair_subject(call: Call, error_class: ErrorClass | None) -> str:
    """Under which name the mending of a call is counted in `RunState.repairs`."""
    return NO_TOOL if error_class is ErrorClass.UNKNOWN_TOOL else f"tool:{call.name}"


def mended_before(state: RunState, subject: str) -> int:
    """How often it was mended in the turns before this one: a reply is told of once."""
    now = any(
        call.invalid and repair_subject(call, call.error_class) == subject
        for call in state.calls.values()
    )
    return max(state.repairs.get(subject, 0) - now, 0)


def transcript(state: RunState) -> tuple[Message, ...]:
    """The folded messages with every open call answered, so that a later run can go on."""
    done = tuple(state.messages)
    calls = {call.id: call for call in state.calls.values() if not call.kept}
    return (*done, results_message(calls)) if calls else done


def results_message(calls: dict[str, Call]) -> Message:
    """One message that answers each call once, in the order they were written."""
    parts = tuple(
        ResultPart(id=c.id, result=_told(c, c.result), ok=c.status is CallStatus.COMPLETED)
        if c.closed
        else ResultPart(id=c.id, result=_told(c, OPEN_NOTES.get(c.status, OPEN_NOTE)), ok=False)
        for c in calls.values()
    )
    return Message(role="tool", parts=parts)


def _told(call: Call, text: str) -> str:
    """What the model reads of a call: of one that was changed also that, and what ran."""
    if call.redirects:
        by = ", ".join(call.redirects)
        text = f"{REDIRECTED_NOTE.format(tool=call.tool, by=by)}{call.arguments}\n\n{text}"
    elif call.edited:
        text = f"{EDITED_NOTE}{call.arguments}\n\n{text}"
    return text


EDITED_NOTE = (
    "[runtime] A person changed the arguments of this call before it was started. "
    "What follows came of these: "
)

REDIRECTED_NOTE = (
    "[runtime] The policy has redirected this call to {tool} ({by}). What follows came of these "
    "arguments: "
)

OPEN_NOTE = "Not executed: the run ended before this call was started."
FAILED_NOTE = "It failed or did not happen, and the run ended before it was tried again."
OPEN_NOTES = {
    CallStatus.TAKEOVER: "Unknown: the call was started and its effect may have happened.",
    CallStatus.UNKNOWN: "Unknown: the call was started and its effect may have happened.",
    CallStatus.STARTED: "Unknown: the call was started and its effect may have happened.",
}


def add_request(state: RunState, message: Message, *, begins: bool = True) -> RunState:
    """A person's message at the end of the history; a run begins with it, or it came into one."""
    at = len(state.messages)
    tasks = state.tasks.added(at) if begins else state.tasks
    state = msgspec.structs.replace(state, asked=state.asked.added(at), tasks=tasks)
    return add_message(state, message)


def add_message(state: RunState, message: Message) -> RunState:
    """One more message at the end of the history."""
    return msgspec.structs.replace(
        state,
        messages=state.messages.added(message),
        tokens=state.tokens + tokens_of(message),
    )
