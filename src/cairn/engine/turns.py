"""Whose turn it is in a session: a run that waited begins, and unread messages get a run."""

from __future__ import annotations

from contextlib import suppress

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.index import index_of
from cairn.core.lifecycle import Status
from cairn.core.quoting import one_line
from cairn.core.state import RunState
from cairn.engine.client import Client, Task, left_unread
from cairn.engine.handed import common_roles
from cairn.engine.host import Host
from cairn.engine.load import load
from cairn.errors import CorruptJournal, ErrorClass, Moved
from cairn.ports import Claim, Store

CUT_OFF = {
    Status.CANCELLED: "was interrupted",
    Status.STOPPED: "was stopped",
    Status.FAILED: "failed",
}
NAME_CHARS = 80
"""Characters of a name that the next run is told at most."""
UNFED = frozenset({ErrorClass.DEPENDENCY_FAILED, ErrorClass.PERMISSION_DENIED})
"""The classes of fault by which a run ends whose needed block could not be fed."""


async def begin_turn(store: Store, claim: Claim, state: RunState, host: Host) -> RunState:
    """The state of a run that was claimed; of one that waited behind others, as it begins.

    It begins with the fact where it goes on from, which could not be known before. That fact is
    written once, and with it what the run before left unread is taken over.

    Raises:
        Fenced, StoreError: as `Store.append`.
    """
    while _waits(state):
        created = state.created
        assert created is not None  # noqa: S101 - it says that the run waited
        head = await store.session_head(created.session)
        if head is None:
            raise CorruptJournal(
                f"{state.run} waited in session {created.session!r}, which is gone"
            )
        before = await load(store, head.run)
        consumes = left_unread(before, head, created.session)
        roles = common_roles(state.principal.roles, before, consumes)
        continued = ev.RunContinued(
            previous=ev.RunRef(run=head.run, seq=before.seq),
            consumes=consumes,
            note=_note(before),
            roles=roles if roles != state.principal.roles else None,
        )
        at = max(host.clock.now_us(), state.at)
        entry = ev.Entry(seq=state.seq + 1, at=at, event=continued)
        index = index_of(evolve(state, entry))
        with suppress(Moved):  # somebody said something to it, or about it: once more
            await store.append(state.run, claim.epoch, [entry], index)
        state = await load(store, state.run)
    return state


def _waits(state: RunState) -> bool:
    """Whether a run waited behind others and has not said yet where it goes on from."""
    if state.created is None or not state.created.behind:
        return False
    return state.end is None and state.cancel is None  # else it never begins


def _note(before: RunState) -> str:
    """What the model is told of a run that did not come to its own end; empty for one that did.

    Only what the runtime knows of itself: how it ended, by which class of fault or which limit, and
    which blocks had nothing. The message of an end may hold anybody's words, a tool's among them,
    and this line is believed; people read the message in the trace.
    """
    end = before.end
    if end is None or end.status not in CUT_OFF:
        return ""
    reasons = [end.error_class.value] if end.error_class is not None else []
    reasons += [f"limit {_name(end.limit)}"] if end.limit else []
    why = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"[runtime] The work on what was asked before {CUT_OFF[end.status]}{why}. {_unfed(before)}"
        "What it had done stays done; calls without a result were not carried out."
    )


def _unfed(before: RunState) -> str:
    """Which context blocks of a run that failed had nothing, and which tools were to feed them."""
    if before.end is None or before.end.error_class not in UNFED:
        return ""
    return "".join(
        f"The tool {_name(fed.tool)} could not feed the context block {_name(fed.block)}. "
        for fed in before.feeding
        if fed.fault is not None
    )


def _name(given: str) -> str:
    return one_line(given)[:NAME_CHARS]


async def take_over(store: Store, run: str, host: Host) -> str:
    """Start the run that goes on with messages which an ended run left unread; its id.

    It works for the same principal, with the roles that all senders of these messages have, under
    the bounds and the policy of the ended run. Empty when there is nothing to be started any more.

    Raises:
        UnknownRun: there is no such run.
        UnknownAgent: this process does not know its agent.
    """
    state = await load(store, run)
    created = state.created
    if state.end is None or not state.sent or created is None or not created.session:
        return ""
    await host.ready(state.agent)
    task = Task(
        agent=state.agent,
        input=(),
        principal=state.principal,
        session=created.session,
        limits=created.limits,
        kind=created.kind,
        kind_by=created.kind_by,
        approvals=created.approvals,
        on_loop=created.on_loop,
        fingerprint=host.crew(state.agent).fingerprint,
        policy=created.policy,
    )
    return await Client(store, host.clock, host.secrets).take_over(task, run, host.new_id())
