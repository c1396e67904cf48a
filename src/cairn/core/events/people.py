"""What people are asked, and what they decide."""

from __future__ import annotations

from cairn.core.events.form import Event
from cairn.core.messages import Part


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
