"""Who reads a message that the run it was sent to has ended without reading."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.lifecycle import Status
from cairn.engine.load import load
from cairn.ports import RunFilter, Store

ALL = 1_000_000
"""As many runs as go on from none."""


async def was_read(store: Store, run: str, seq: int) -> bool:
    """Whether nobody else is to read a message of an ended run.

    Args:
        store: Where it is.
        run: The run that was to read it.
        seq: Its event there. What a run began with (1) is still to be read if the run was
            interrupted before it asked the model.
    """
    state = await load(store, run)
    if seq > 1:
        return seq not in state.queued
    if state.end is None or state.end.status is not Status.CANCELLED or state.cancel is not None:
        return True  # it came to an end of its own, or somebody wanted no answer
    asked = (entry.event for entry in await store.read(run))
    return any(isinstance(e, ev.ModelRequested) and e.purpose == "turn" for e in asked)


async def reader_after(
    store: Store, session: str, run: str, seq: int
) -> tuple[str, str, int] | None:
    """Who has taken over an unread message of a run: session, run, and its event there.

    None if nobody has yet.
    """
    following = await store.runs(RunFilter(previous=run, limit=ALL))
    for line in reversed(following):  # the first one has read it
        if line.parent == run:
            if line.parent_at >= seq:
                return line.session, line.run, seq
        elif seq == 1:
            if line.session == session:
                return line.session, line.run, 1
        elif line.session and seq in await _taken_over(store, line.run):
            return line.session, line.run, 1
    return None


async def _taken_over(store: Store, run: str) -> tuple[int, ...]:
    """Which messages of the run before a run has taken over."""
    for entry in await store.read(run):
        if isinstance(entry.event, ev.RunContinued) or (
            isinstance(entry.event, ev.RunCreated) and not entry.event.behind
        ):
            return entry.event.consumes
    return ()


async def first_in_line(store: Store, session: str, run: str) -> str:
    """The run that waits to go on from this one; empty if the session stands elsewhere."""
    line = await store.session_open(session)
    head = await store.session_head(session)
    stands = head is not None and head.run == run
    return line[0].run if stands and line else ""
