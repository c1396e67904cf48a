"""Every fact a journal may hold.

A fact is one frozen record with a type number that never changes its meaning. The numbers are
grouped: 1 run, 20 step, 30 model, 40 tool, 60 approval, 70 input, 80 takeover, 85 retry,
90 limit, 100 plan, 120 artifact, 130 sandbox, 140 context, 150 intake, 160 error, 200 store,
210 grant, 220 budget, 230 memory, 240 session. What can be folded from other facts is not an
event: the end of a turn, running and waiting, idempotency keys, argument hashes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cairn.core.events.context import (
    ContextCompacted,
    ContextRestored,
    ContextUpdated,
    TaskClassified,
    ToolsOffered,
    TurnFed,
    TurnKept,
)
from cairn.core.events.form import (
    EMPTY,
    Block,
    Disposition,
    Effect,
    Event,
    Recovery,
    RunRef,
    TaskKind,
)
from cairn.core.events.memory import (
    MemoryErased,
    MemoryForgotten,
    MemoryKept,
    MemoryRecalled,
    MemoryReviewed,
)
from cairn.core.events.model import (
    ModelCompleted,
    ModelFailed,
    ModelRejected,
    ModelRequested,
    Purpose,
)
from cairn.core.events.notes import (
    ArtifactCreated,
    ErrorRaised,
    LimitReached,
    LimitWarned,
    PlanUpdated,
    RetryScheduled,
    SandboxChosen,
)
from cairn.core.events.people import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    ApprovalVoided,
    InputAnswered,
    InputGiven,
    InputQueued,
    InputRequested,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRequested,
    TakeoverResult,
    TakeoverTurn,
)
from cairn.core.events.run import (
    RunCancelled,
    RunCancelRequested,
    RunCompleted,
    RunContinued,
    RunCreated,
    RunFailed,
    RunForked,
    RunPauseRequested,
    RunResumed,
    RunStopped,
    RunVersionChanged,
)
from cairn.core.events.sessions import (
    SessionForked,
    SessionRemoved,
    SessionRewound,
    SessionTitled,
)
from cairn.core.events.step import StepCompleted, StepFailed, StepLost, StepStarted
from cairn.core.events.store import (
    BudgetsSet,
    GrantMade,
    GrantRevoked,
    GrantUsed,
    PrincipalErased,
    StoreErased,
    StorePruned,
)
from cairn.core.events.tool import (
    ToolCompleted,
    ToolEdited,
    ToolFailed,
    ToolLate,
    ToolRedirected,
    ToolRejected,
    ToolResolved,
    ToolStarted,
    ToolUnknown,
)
from cairn.core.messages import Record

__all__ = [
    "EMPTY",
    "EVENTS",
    "OF_THE_STORE",
    "TERMINAL",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalGranted",
    "ApprovalRequested",
    "ApprovalVoided",
    "ArtifactCreated",
    "Block",
    "BudgetsSet",
    "ContextCompacted",
    "ContextRestored",
    "ContextUpdated",
    "Disposition",
    "Effect",
    "Entry",
    "ErasedFact",
    "ErrorRaised",
    "Event",
    "GrantMade",
    "GrantRevoked",
    "GrantUsed",
    "InputAnswered",
    "InputGiven",
    "InputQueued",
    "InputRequested",
    "LimitReached",
    "LimitWarned",
    "MemoryErased",
    "MemoryForgotten",
    "MemoryKept",
    "MemoryRecalled",
    "MemoryReviewed",
    "ModelCompleted",
    "ModelFailed",
    "ModelRejected",
    "ModelRequested",
    "PlanUpdated",
    "PrincipalErased",
    "Purpose",
    "Recovery",
    "RetryScheduled",
    "RunCancelRequested",
    "RunCancelled",
    "RunCompleted",
    "RunContinued",
    "RunCreated",
    "RunFailed",
    "RunForked",
    "RunPauseRequested",
    "RunRef",
    "RunResumed",
    "RunStopped",
    "RunVersionChanged",
    "SandboxChosen",
    "SessionForked",
    "SessionRemoved",
    "SessionRewound",
    "SessionTitled",
    "StepCompleted",
    "StepFailed",
    "StepLost",
    "StepStarted",
    "StoreErased",
    "StorePruned",
    "TakeoverBegun",
    "TakeoverEnded",
    "TakeoverRequested",
    "TakeoverResult",
    "TakeoverTurn",
    "TaskClassified",
    "TaskKind",
    "ToolCompleted",
    "ToolEdited",
    "ToolFailed",
    "ToolLate",
    "ToolRedirected",
    "ToolRejected",
    "ToolResolved",
    "ToolStarted",
    "ToolUnknown",
    "ToolsOffered",
    "TurnFed",
    "TurnKept",
]

OF_THE_STORE = (
    StorePruned,
    StoreErased,
    PrincipalErased,
    GrantMade,
    GrantRevoked,
    GrantUsed,
    BudgetsSet,
    SessionTitled,
    SessionRewound,
    SessionForked,
    SessionRemoved,
    MemoryKept,
    MemoryReviewed,
    MemoryForgotten,
    MemoryErased,
)
"""Facts that belong to no run; they stand in the journal named `store`."""
Turn = ModelCompleted | TakeoverTurn | TurnFed | TurnKept
"""What asks for calls in its parts: a model, a person in its place, or the runtime itself."""
TERMINAL = (RunCompleted, RunFailed, RunStopped, RunCancelled)
EVENTS: dict[int, type[Event]] = {cls.TYPE: cls for cls in Event.__subclasses__()}


class ErasedFact(Record):
    """What is read in the place of a fact of the journal `store` that was erased.

    It is never recorded itself, and says nothing but of which type the fact was.
    """

    TYPE: ClassVar[int] = 0
    NAME: ClassVar[str] = "erased"
    V: ClassVar[int] = 1
    type: int


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
