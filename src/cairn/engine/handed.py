"""What is handed over to become a run, on which terms, and with whose roles and which project."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from cairn.core import events as ev
from cairn.core.fingerprint import Fingerprint
from cairn.core.intake import narrower
from cairn.core.limits import Limits
from cairn.core.messages import Part, Principal, Record
from cairn.core.policy import Policy
from cairn.core.state import RunState
from cairn.engine.load import load
from cairn.errors import ConfigError, RunConflict
from cairn.ports import RunInfo, Store

SHOWN = 160
"""Characters of a value that a refusal shows."""


class Said(Record):
    """What the caller has named, and not left to the agent.

    Args:
        kind: The kind of the task, before a rule narrowed it; empty for none.
        limits: Bounds by name.
    """

    kind: Literal["", "query", "generate", "operate"] = ""
    limits: dict[str, int] = {}


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
    said: Said = Said()
    """What the caller has named of its kind and its bounds."""

    @property
    def digest(self) -> str:
        """Hash of what makes two tasks the same: agent, input, principal and a named project."""
        parts = [self.agent, self.input, self.principal]
        same = msgspec.json.encode([*parts, *filter(None, [self.project])], order="sorted")
        return sha256(same).hexdigest()[:32]


def names_terms(task: Task) -> bool:
    """Whether a task names anything that a run under its id could have been started without."""
    return bool(task.session or task.policy or task.approvals == "none" or task.said != Said())


def check_as_started(task: Task, state: RunState) -> None:
    """Refuse to take a run for a task that names another session, or what would narrow it more.

    What is not named is as it was when the run was started: so a run is gone on with.

    Args:
        task: What is handed over, under the id of a run of the same input.
        state: That run.

    Raises:
        RunConflict: names the field, what stands and what was asked for.
    """
    created = state.created
    if created is None:
        return
    if task.session not in {"", created.session}:
        raise _conflict(state.run, "session", repr(created.session), repr(task.session))
    kind, said = created.kind, task.said.kind
    by_rule = created.kind_by == "rule" and said and narrower(kind, said) == kind
    if said and task.kind != kind and not by_rule:
        raise _conflict(state.run, "kind", kind, task.kind)
    if task.approvals == "none" and created.approvals != "none":
        raise _conflict(state.run, "approvals", created.approvals, task.approvals)
    if task.policy is not None:
        old, new = _written(created.policy), _written(task.policy)
        if old != new:
            raise _conflict(state.run, "policy", old, new)
    for name, bound in task.said.limits.items():
        stands = getattr(created.limits, name)
        if state.parent is None and bound < stands:
            raise _conflict(state.run, f"limits.{name}", str(stands), str(bound))


def _written(policy: Policy | None) -> str:
    if policy is None:
        return "none"
    return msgspec.json.encode(policy, order="sorted").decode()


def _conflict(run: str, field: str, stands: str, asked: str) -> RunConflict:
    old, new = (each if len(each) <= SHOWN else f"{each[:SHOWN]}…" for each in (stands, asked))
    return RunConflict(
        f"run {run!r} was started with another {field}: {old}, and not {new}; take another id, "
        "or leave it out"
    )


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


def has_roles(who: Principal, run: Principal) -> bool:
    """Whether a message of the one may be worked on by a run of the other: it lends no role."""
    return set(run.roles) <= set(who.roles)


def common_roles(
    roles: tuple[str, ...], before: RunState, consumes: Sequence[int]
) -> tuple[str, ...]:
    """Those of a run's roles that all have who sent what it takes over.

    Of a message without a word on roles, as an earlier version kept it, nobody knows any.

    Args:
        roles: The run's own.
        before: The ended run that had not read them.
        consumes: The messages there.
    """
    for seq in consumes:
        if seq in before.sent:
            roles = tuple(role for role in roles if role in (before.sent[seq] or ()))
    return roles


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
