"""What the core can want done: the closed list that the shell matches exhaustively."""

from __future__ import annotations

from typing import Literal

from cairn.core import events as ev
from cairn.core.lifecycle import Status
from cairn.core.limits import Reservation
from cairn.core.messages import Record
from cairn.core.view import View


class Append(Record):
    """Record these facts; nothing outside happens."""

    events: tuple[tuple[int, ev.Event], ...]
    """Each with the step it belongs to, 0 for none."""


class AskModel(Record):
    """Make a model request with this reservation."""

    step: int
    attempt: int
    model: str
    reserved: Reservation
    tool_choice: str = "auto"
    output_mode: Literal["text", "schema", "action"] = "text"
    view: View | None = None
    """What of the history is sent, when that changes."""
    purpose: Literal["turn", "summary", "classify"] = "turn"
    cut: int = 0
    """A summary: of the messages before this one."""
    fallback: int = 0
    """Which of the models it is made to, where those before have no room for it; 0 for no other."""


class StartCalls(Record):
    """Start these calls; they may overlap."""

    starts: tuple[tuple[int, ev.ToolStarted], ...]


class ProbeCall(Record):
    """Ask the tool's probe whether this call took effect."""

    call: str


class RunTask(Record):
    """Run a task of the deployer's own code."""

    step: int
    event: ev.StepStarted


class InFlight(Record):
    """Something is at work: wait for its outcome."""


class Halt(Record):
    """The run is being cancelled: stop what is at work and record what came of it."""


class Wait(Record):
    """Nothing can be done without news; time itself is news at `until`, if that is not 0."""

    reasons: frozenset[str]
    until: int = 0


class Done(Record):
    """The run is over."""

    status: Status


Action = Append | AskModel | StartCalls | ProbeCall | RunTask | InFlight | Halt | Wait | Done


def append(*events: ev.Event, step: int = 0) -> Append:
    """An `Append` of events that belong to the same step."""
    return Append(events=tuple((step, event) for event in events))
