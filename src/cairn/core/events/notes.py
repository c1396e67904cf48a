"""What else a run notes: retries, limits, the plan, artifacts, the sandbox, errors."""

from __future__ import annotations

from typing import Literal

from cairn.core.events.form import Event
from cairn.core.messages import PlanItem
from cairn.errors import ErrorClass


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
    message: str = ""  # what it says, where name and numbers do not say it


class LimitWarned(Event):
    """The progress guard speaks: first a hint to the model, then repeats are blocked."""

    TYPE = 91
    NAME = "limit.warned"
    limit: str
    level: Literal["hint", "block"]
    note: str


class PlanUpdated(Event):
    """The agent's intentions, whole; the model is told of a plan that a person has made."""

    TYPE = 100
    NAME = "plan.updated"
    items: tuple[PlanItem, ...]
    by: Literal["agent", "person"] = "agent"


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


class SandboxChosen(Event):
    """Behind which walls this process runs the commands of the run; said with the first of them."""

    TYPE = 130
    NAME = "sandbox.chosen"
    rung: str
    """`bubblewrap`, `bubblewrap-root`, `landlock`; `unsandboxed` where an operator wants none."""
    tool: str


class ErrorRaised(Event):
    """A fault that has no event of its own; it changes nothing in the run.

    One of the class `mcp_disconnected` names a server that the run goes on without, as `mcp:crm`,
    and one that is at `block:NAME` a context block whose function failed for the first time: the
    result says so in `degraded`.
    """

    TYPE = 160
    NAME = "error.raised"
    error_class: ErrorClass
    message: str
    where: str = ""
