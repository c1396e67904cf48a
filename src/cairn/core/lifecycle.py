"""The life of a run and of a call: every legal move stands in the tables of this file.

A run's status is folded from its journal, never stored in it. `MOVES` says which changes of
status an event may cause, `LEGAL` in which status each event may be appended, and `CALL_MOVES`
what a tool call may go through. The diagram in the docs is drawn from these tables.
"""

from __future__ import annotations

from enum import StrEnum

from cairn.core import events as ev


class Status(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the run is over."""
        return self in ENDED


class CallStatus(StrEnum):
    """Where a tool call stands; the last six are how it can end."""

    REQUESTED = "requested"
    ASKING = "asking"
    QUESTION = "question"
    APPROVED = "approved"
    RETRYING = "retrying"
    STARTED = "started"
    TAKEOVER = "takeover"
    UNKNOWN = "unknown"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    DENIED = "denied"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.STOPPED, Status.CANCELLED})
LIVE = frozenset(Status) - ENDED
WORKING = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING})
CLOSED = frozenset(
    {
        CallStatus.COMPLETED,
        CallStatus.FAILED,
        CallStatus.REJECTED,
        CallStatus.DENIED,
        CallStatus.CANCELLED,
    }
)
PERSON = frozenset({CallStatus.ASKING, CallStatus.QUESTION, CallStatus.TAKEOVER})

_S = Status
MOVES: frozenset[tuple[Status, Status]] = frozenset(
    {
        (_S.QUEUED, _S.RUNNING),
        (_S.QUEUED, _S.WAITING),
        (_S.RUNNING, _S.WAITING),
        (_S.WAITING, _S.RUNNING),
        (_S.RUNNING, _S.COMPLETED),
        *((live, _S.PAUSED) for live in WORKING),
        *((_S.PAUSED, live) for live in WORKING),
        *((live, end) for live in LIVE for end in (_S.FAILED, _S.STOPPED, _S.CANCELLED)),
    }
)
"""Changes of status an event may cause; staying is always allowed."""

_OUTCOMES = (
    ev.StepCompleted,
    ev.StepFailed,
    ev.StepLost,
    ev.ModelCompleted,
    ev.ModelFailed,
    ev.ToolCompleted,
    ev.ToolFailed,
    ev.ToolUnknown,
    ev.ArtifactCreated,
    ev.PlanUpdated,
    ev.ToolsOffered,
    ev.MemoryRecalled,
)
_NEWS = (
    ev.RunCancelRequested,
    ev.ApprovalGranted,
    ev.ApprovalDenied,
    ev.ApprovalExpired,
    ev.InputQueued,
    ev.InputAnswered,
    ev.ContextRestored,
    ev.ToolEdited,
    ev.TakeoverBegun,
    ev.TakeoverTurn,
    ev.TakeoverResult,
    ev.TakeoverEnded,
    ev.RetryScheduled,
    ev.SandboxChosen,
    ev.ErrorRaised,
    ev.RunFailed,
    ev.RunStopped,
    ev.RunCancelled,
    ev.LimitReached,
)
_WORK = (
    ev.StepStarted,
    ev.ModelRequested,
    ev.ModelRejected,
    ev.ToolStarted,
    ev.ToolRejected,
    ev.ToolRedirected,
    ev.ApprovalRequested,
    ev.ApprovalVoided,
    ev.InputGiven,
    ev.InputRequested,
    ev.TakeoverRequested,
    ev.LimitWarned,
    ev.RunPauseRequested,
    ev.RunVersionChanged,
    ev.ContextCompacted,
    ev.ContextUpdated,
    ev.TurnFed,
    ev.TurnKept,
    ev.TaskClassified,
)

LEGAL: dict[type[ev.Event], frozenset[Status]] = {
    **dict.fromkeys(_OUTCOMES, LIVE),
    **dict.fromkeys(_NEWS, LIVE),
    **dict.fromkeys(_WORK, WORKING),
    ev.RunCreated: frozenset(),
    ev.RunContinued: LIVE,
    ev.RunForked: frozenset(Status),
    ev.RunResumed: frozenset({_S.PAUSED}),
    ev.RunCompleted: frozenset({_S.RUNNING}),
    ev.ToolResolved: frozenset(Status),
    ev.ToolLate: frozenset(Status),
    **dict.fromkeys(ev.OF_THE_STORE, frozenset()),
}
"""In which status each event may be appended (an empty set: only as the first of its kind)."""

_C = CallStatus
CALL_MOVES: dict[CallStatus, frozenset[CallStatus]] = {
    _C.REQUESTED: frozenset(
        {_C.STARTED, _C.ASKING, _C.QUESTION, _C.COMPLETED, _C.REJECTED, _C.CANCELLED}
    ),
    _C.ASKING: frozenset(
        {_C.REQUESTED, _C.RETRYING, _C.APPROVED, _C.COMPLETED, _C.DENIED, _C.CANCELLED}
        | {_C.FAILED, _C.TAKEOVER}
    ),
    _C.QUESTION: frozenset({_C.COMPLETED, _C.CANCELLED, _C.FAILED}),
    _C.APPROVED: frozenset(
        {_C.REQUESTED, _C.STARTED, _C.QUESTION, _C.ASKING, _C.COMPLETED, _C.REJECTED, _C.DENIED}
        | {_C.RETRYING, _C.CANCELLED, _C.FAILED, _C.TAKEOVER}
    ),
    _C.RETRYING: frozenset(
        {_C.STARTED, _C.RETRYING, _C.ASKING, _C.QUESTION, _C.REJECTED, _C.FAILED, _C.TAKEOVER}
    ),
    _C.STARTED: frozenset(
        {_C.COMPLETED, _C.FAILED, _C.UNKNOWN, _C.RETRYING, _C.TAKEOVER, _C.QUESTION}
    ),
    _C.TAKEOVER: frozenset({_C.COMPLETED, _C.FAILED, _C.RETRYING}),
    _C.UNKNOWN: frozenset(
        {_C.STARTED, _C.TAKEOVER, _C.COMPLETED, _C.FAILED, _C.RETRYING, _C.REJECTED}
    ),
    **dict.fromkeys(CLOSED, frozenset()),
}
"""What may become of a call; a closed call never changes again."""
