"""What is handed over to become a run, what becomes of a command, and the project of a run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from cairn.core import events as ev
from cairn.core.fingerprint import Fingerprint
from cairn.core.limits import Limits
from cairn.core.messages import Part, Principal, Record
from cairn.core.policy import Policy
from cairn.core.state import RunState
from cairn.engine.load import load
from cairn.errors import ConfigError
from cairn.ports import RunInfo, Store


class Task(Record, gc=True):
    """What is handed over: the input, for whom, under which bounds."""

    agent: str
    input: tuple[Part, ...]
    principal: Principal = Principal()
    session: str = ""
    limits: Limits = Limits()
    kind: ev.TaskKind = "operate"
    approvals: Literal["ask", "none"] = "ask"
    on_loop: Literal["stop", "ask"] = "stop"
    fingerprint: Fingerprint | str = ""
    policy: Policy | None = None
    kind_by: Literal["", "rule"] = ""
    """Who narrowed the kind when it was handed over."""
    actor: str = ""
    """Who sent it, where that is not the principal."""
    mode: Literal["", "queue", "interrupt"] = ""
    """What becomes of it while its session has an active run; empty is refused."""
    project: str = ""
    """Whose facts it shares; empty for those of the run before, or what the deployment says."""

    @property
    def digest(self) -> str:
        """Hash of what makes two tasks the same: agent, input, principal and a named project."""
        parts = [self.agent, self.input, self.principal]
        same = msgspec.json.encode([*parts, *filter(None, [self.project])], order="sorted")
        return sha256(same).hexdigest()[:32]


class Submitted(Record, gc=True):
    """What became of a command.

    Args:
        state: The run after it.
        entry: The fact that was written; None when nothing was, for it was so before.
        note: Where nothing was written, what stands, in words; empty otherwise.
    """

    state: RunState
    entry: ev.Entry | None = None
    note: str = ""


def project_of(state: RunState) -> str:
    """The project a run was handed over for; empty where none was said."""
    return state.created.project if state.created is not None else ""


async def inherited(store: Store, task: Task, waiting: Sequence[RunInfo], before: RunState) -> str:
    """The project of a run that goes on in a session: as said, else that of the run before it.

    Args:
        store: Where the runs are.
        task: The new run.
        waiting: The runs of the session that are not over, in order.
        before: The first of them, or else the run that the session stands at.

    Raises:
        ConfigError: the conversation is about another project: what was said there would be read.
    """
    if len(waiting) > 1:
        before = await load(store, waiting[-1].run)
    old = project_of(before)
    check_same(task.session, old, task.project)
    return task.project or old


def check_same(session: str, old: str, new: str) -> None:
    """Refuse another project than the one that a session is about.

    Raises:
        ConfigError: it is another one.
    """
    if old and new and old != new:
        problem = f"session {session!r} is about the project {old!r}, and not {new!r}"
        raise ConfigError("project", problem, "Leave it out, or begin another session")


def check_active(session: str, active: RunState, new: str) -> None:
    """Refuse to tell a run at work something that is about another project than it is.

    Raises:
        ConfigError: it is.
    """
    old = project_of(active)
    check_same(session, old, new)
    if new and not old:
        problem = f"run {active.run!r} of session {session!r} is at work without a project"
        raise ConfigError("project", problem, "Leave it out, or wait until that run is over")
