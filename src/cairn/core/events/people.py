"""What people are asked, and what they decide."""

from __future__ import annotations

import msgspec

from cairn.core.events.form import EMPTY, Event
from cairn.core.messages import Part
from cairn.core.terms import ApprovalTerms, BoundFile


class ApprovalRequested(Event):
    """A call waits for a person; `digest` binds tool, arguments and the content of `files`."""

    TYPE = 60
    NAME = "approval.requested"
    n: int
    call: str
    digest: str
    expires_at: int
    rule: str = ""
    reason: str = ""  # why it is asked, as the rule says
    terms: ApprovalTerms | None = None  # who may decide it; None for anybody
    files: tuple[BoundFile, ...] = ()


class ApprovalGranted(Event):
    """A person said yes, to exactly this call, once; with `arguments` to the call changed so."""

    TYPE = 61
    NAME = "approval.granted"
    n: int
    message: str = ""
    roles: tuple[str, ...] = ()  # of the person, where they were said
    arguments: str = ""  # in place of those that were shown
    digest: str = ""  # of what was approved, if it was changed
    files: tuple[BoundFile, ...] = ()  # which the changed call names


class ApprovalDenied(Event):
    """A person said no; the model reads the reason as typed."""

    TYPE = 62
    NAME = "approval.denied"
    n: int
    message: str = ""
    roles: tuple[str, ...] = ()


class ApprovalExpired(Event):
    """Nobody answered in time, or the run was started with approvals="none"."""

    TYPE = 63
    NAME = "approval.expired"
    n: int
    message: str = ""


class ApprovalVoided(Event):
    """What was approved is no longer what would run: a file it is bound to has changed."""

    TYPE = 64
    NAME = "approval.voided"
    n: int
    message: str


class InputQueued(Event):
    """A message that came during the run; consumed once."""

    TYPE = 70
    NAME = "input.queued"
    parts: tuple[Part, ...]
    id: str = ""  # of the run it would have started; a message comes once under it
    answers: int = 0  # the question of the runtime itself that was open, and is answered by it
    roles: tuple[str, ...] | None = None  # for which it is worked on; None where nobody said it


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


class TakeoverBegun(Event):
    """A person acts in the agent's place from here on: the model is not asked any more."""

    TYPE = 81
    NAME = "takeover.begun"
    reason: str


class TakeoverTurn(Event):
    """A turn that a person wrote: calls to be made, or without any the final answer."""

    TYPE = 82
    NAME = "takeover.turn"
    parts: tuple[Part, ...]


class TakeoverResult(Event):
    """A person did by hand what a call that was never started should have done."""

    TYPE = 83
    NAME = "takeover.result"
    call: str
    result: msgspec.Raw = EMPTY
    evidence: str = ""


class TakeoverEnded(Event):
    """The agent goes on; it is told `note` before its next turn."""

    TYPE = 84
    NAME = "takeover.ended"
    note: str = ""
