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


class PrincipalErased(Event):
    """All that was kept of one principal is gone; who it was shows only to who knows the id.

    `whose` is SHA-256 of `salt` (hex, both), the id and the tenant, with a NUL between the two.
    """

    TYPE = 202
    NAME = "store.principal_erased"
    whose: str
    salt: str
    runs: int
    events: int
    sessions: int = 0
    facts: int = 0
    grants: int = 0
    notes: tuple[int, ...] = ()
    """Which events of the journal `store` hold no data any more."""
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


class SessionTitled(Event):
    """A person gave a session another title; an empty one gives it back its first words."""

    TYPE = 240
    NAME = "session.titled"
    session: str
    title: str


class SessionRewound(Event):
    """A session goes on from an earlier run; the later ones stay, and are superseded."""

    TYPE = 241
    NAME = "session.rewound"
    session: str
    run: str
    newest: str
    """Its newest run then: this one and all before it, but for what `run` goes on from."""


class SessionForked(Event):
    """A new session goes on from a run of another one."""

    TYPE = 242
    NAME = "session.forked"
    session: str
    run: str
    of: str
    """The session that the run is of."""


class MemoryReviewed(Event):
    """A person said what becomes of a fact: from here on it counts with this trust, or is gone."""

    TYPE = 230
    NAME = "memory.reviewed"
    fact: int
    hash: str
    verdict: Literal["accepted", "rejected"]
    trust: Literal["", "owner", "agent", "untrusted"] = ""  # of an accepted one
    supersedes: int = 0  # the fact that it replaces from here on
    reason: str = ""


class MemoryForgotten(Event):
    """A fact was removed; its hash stays, and says nothing of it without the salt that went too."""

    TYPE = 231
    NAME = "memory.forgotten"
    fact: int
    hash: str
    expired: bool = False  # its time was up, and nobody asked for it
    reason: str = ""


class MemoryErased(Event):
    """All facts kept for one principal were removed; who it was is not said."""

    TYPE = 232
    NAME = "memory.erased"
    facts: tuple[int, ...]
    reason: str = ""


class MemoryKept(Event):
    """A fact was kept: its hash, and how far it is trusted. What it says stands in no journal."""

    TYPE = 233
    NAME = "memory.kept"
    fact: int
    hash: str  # of salt and content
    trust: Literal["owner", "agent", "untrusted"]
    waits: bool = False  # for a review, and is recalled only after it
    key: str = ""  # of the call that kept it
    supersedes: int = 0  # the fact that it replaced


class MemoryRecalled(Event):
    """Which facts a call is told of, and the taint they bring; in one write with its outcome."""

    TYPE = 234
    NAME = "memory.recalled"
    call: str
    facts: tuple[int, ...] = ()
    taint: tuple[str, ...] = ()
    """In place of `memory:unchecked`, which says that nobody knows what came."""
    degraded: str = ""
