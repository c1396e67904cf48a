"""What happens to a run as a whole, and to its tasks."""

from __future__ import annotations

from typing import Literal

from cairn.core.events.form import Event, RunRef, TaskKind
from cairn.core.fingerprint import Fingerprint, PartChange
from cairn.core.limits import Limits
from cairn.core.messages import Part, Principal
from cairn.core.policy.layers import Policy
from cairn.errors import ErrorClass


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
    fingerprint: Fingerprint | str = ""  # of the agent it was handed to; text says nothing
    policy: Policy | None = None  # what narrows this run, beside what holds for all
    behind: str = ""  # the run of its session that was active: it begins when that one is over
    interrupts: bool = False  # that one was to be ended for it
    kind_by: Literal["", "rule"] = ""  # who narrowed the kind: the intake's rule
    project: str = ""  # whose facts it shares; empty for what the deployment says


class RunForked(Event):
    """This journal continues another one's prefix; what it has spent starts at zero."""

    TYPE = 2
    NAME = "run.forked"
    run: str  # the id of the new run
    parent: str
    at: int
    limits: Limits | None = None
    reason: str = ""
    grants: Literal["kept", "void"] = "kept"
    """What becomes of approvals that were given and not used up: an old journal kept them."""


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
    gently: bool = False  # what is in flight is waited for first


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


class RunVersionChanged(Event):
    """Another version of the agent goes on, or refuses to; written before it does anything."""

    TYPE = 10
    NAME = "run.version_changed"
    changes: tuple[PartChange, ...] = ()
    decision: Literal["continue", "refuse"] = "continue"
    calls: tuple[str, ...] = ()
    """Open calls that pass the gate anew; an approval they had, or wait for, is void."""
    driver: str = ""
    """The process that goes on: host, process id and version of Cairn."""
    unread: tuple[str, ...] = ()  # functions whose source could not be read


class RunContinued(Event):
    """A run that waited behind another of its session begins, and goes on from where that ended.

    It stands in the place of `previous` and `consumes` of `run.created`, which could not know.
    """

    TYPE = 11
    NAME = "run.continued"
    previous: RunRef
    consumes: tuple[int, ...] = ()  # messages queued in that run which nobody had read
    note: str = ""  # what the model is told if that run was cut off
    roles: tuple[str, ...] | None = None  # all it has from here on, if what it reads has fewer
