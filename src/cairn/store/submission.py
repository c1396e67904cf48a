"""What a command becomes, decided against the journal it lands in; the same for every store."""

from __future__ import annotations

from cairn.core.commands import (
    Answer,
    Approve,
    Command,
    Deny,
    DoneByHand,
    Late,
    Resolve,
    TakeTurn,
    accept,
)
from cairn.core.events import Entry
from cairn.core.evolve import evolve
from cairn.core.state import RunState
from cairn.errors import Moved

_OF_A_STEP = (Approve, Deny, Answer, Resolve, Late, DoneByHand)
"""Commands about something the open turn asked for or did."""


def respond(
    state: RunState, command: Command, now: int, actor: str
) -> tuple[RunState, Entry | None]:
    """The state after the command, and the entry to append, None when it changes nothing.

    Raises: whatever `accept` and `evolve` raise.
    """
    now = max(now, state.at)  # time never falls within a run, whoever's clock it is
    event = accept(state, command, now)
    if event is None:
        return state, None
    entry = Entry(
        seq=state.seq + 1,
        at=now,
        event=event,
        step=_step(state, command),
        actor=getattr(command, "by", "") or actor,  # who may decide is who is said to
    )
    return evolve(state, entry), entry


def _step(state: RunState, command: Command) -> int:
    if isinstance(command, TakeTurn):
        return state.step + 1
    return state.step if isinstance(command, _OF_A_STEP) else 0


def session_moved(session: str) -> Moved:
    """Somebody else has had a turn in the session since its last run was looked up."""
    return Moved(f"session {session!r} has gone on; look at its newest run again")
