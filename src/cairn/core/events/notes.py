"""What else a run notes, and what belongs to the store alone."""

from __future__ import annotations

from typing import Literal

from cairn.core.budgets import Cap
from cairn.core.events.form import Effect, Event
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


class StoreErased(Event):
    """What a run's events said is gone, salts and all; their headers, digests and hashes stay."""

    TYPE = 201
    NAME = "store.erased"
    run: str
    head: int
    hash: str
    reason: str = ""


class GrantMade(Event):
    """A standing grant: calls in its scope need no approval of their own.

    Where the deployment asks, and nowhere else: it is no layer of the policy, and a dangerous
    call is never answered by it.
    """

    TYPE = 210
    NAME = "grant.made"
    n: int
    tool: str
    effect: Effect
    arguments: str = ""
    """JSON object of arguments that must be equal, type and all; empty for any."""
    exact: bool = False  # whether no other argument may stand beside these
    agent: str = ""  # empty for any
    principal: str = ""  # empty for any
    tenant: str = ""  # of the principal
    until: int = 0  # microseconds since 1970, 0 for as long as it is not revoked
    uses: int = 0  # how many calls it answers, 0 for any number
    roles: tuple[str, ...] = ()  # of who made it
    reason: str = ""


class GrantRevoked(Event):
    """From here on the grant answers nothing."""

    TYPE = 211
    NAME = "grant.revoked"
    n: int
    reason: str = ""


class GrantUsed(Event):
    """A call was started on a grant that holds for so many; in the same write as its start."""

    TYPE = 212
    NAME = "grant.used"
    n: int
    run: str
    call: str


class BudgetsSet(Event):
    """These budgets stand in the store from here on, and no others."""

    TYPE = 220
    NAME = "budgets.set"
    budgets: tuple[Cap, ...] = ()
    by: str = ""  # the process that was configured with them
