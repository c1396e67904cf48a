"""Making a fork: a new run whose journal goes on from a point of another one's.

The prefix is shared, not copied: a fork costs one row and one or a few events, however long its
parent is. It is made whole, with its edits, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import evolve, fold
from cairn.core.forks import around, obstacle
from cairn.core.index import index_of
from cairn.core.limits import Limits
from cairn.core.messages import Record
from cairn.core.state import RunState
from cairn.engine.given import check_seq
from cairn.engine.load import fold_entries, start_of
from cairn.errors import IllegalTransition, Moved, Refused, RunConflict
from cairn.ports import Clock, NewRun, RunInfo, Store

replace = msgspec.structs.replace
Bounds = Limits | Mapping[str, int] | None
ENDED_BADLY = ("failed", "stopped", "cancelled")
ID_CHARS = 20
"""How long ids are that nobody chose."""
_KNOWN_LATE = (ev.ToolLate, ev.ToolResolved)


class Branch(Record, gc=True):
    """A fork that is to be made.

    Args:
        run: Its id.
        parent: The line of the run whose own rows hold the point.
        before: That run's state at the point.
        reason: What it is made for.
        later: What came out about unknown effects after the parent's end.
        session: The session whose newest run it becomes; empty to stand beside.
        edits: What is changed at once, in this order.
        actor: Who wants it.
    """

    run: str
    parent: RunInfo
    before: RunState
    reason: str
    limits: Limits | None = None
    later: tuple[ev.Entry, ...] = ()
    session: str = ""
    edits: tuple[cmd.Command, ...] = ()
    actor: str = ""


async def retry_run(store: Store, clock: Clock, run: str, new: str, limits: Bounds) -> str:
    """A fork from just before the end of a run; see `Client.retry`."""
    entries = await store.read(run)
    state = await fold_entries(store, run, entries)
    if state.end is None or state.end.status.value == "completed":
        raise IllegalTransition(
            f"run {run} is {state.status.value}; only a failed, stopped or cancelled run "
            "can be retried"
        )
    end = next(e for e in reversed(entries) if isinstance(e.event, ev.TERMINAL))
    last = end.seq
    before = await fold_entries(store, run, entries[: last - 1])
    info = await store.info(run)
    made = new or _retry_id(run, end)
    branch = Branch(
        run=made,
        parent=info,
        before=before,
        reason="retry",
        limits=before.limits.changed(limits) if limits is not None else None,
        later=tuple(entries[last:]),
        session=info.session,
    )
    try:
        found = await _create(store, clock, branch)
    except Moved:
        raise IllegalTransition(
            f"session {info.session!r} has gone on since run {run}; what came after would be "
            "forgotten. Send the session a new message instead"
        ) from None
    if found is not None:
        if (found.parent, found.parent_at) != (run, before.seq):
            raise RunConflict(f"run {made!r} exists and is no retry of {run!r}")
        if not new and found.status in ENDED_BADLY:
            raise IllegalTransition(
                f"run {run} was retried as {made}, which is {found.status}: retry that one, or "
                "what it did would be forgotten. An id makes another retry from this point"
            )
        await _same_limits(store, branch)
    return made


def _retry_id(run: str, end: ev.Entry) -> str:
    """The id of a retry that nobody named: the same one for everybody who asks for it.

    Two retries of one run know nothing of each other, and each might do the next write.
    """
    return sha256(f"retry {run} {end.seq} {end.at}".encode()).hexdigest()[:ID_CHARS]


async def fork_run(
    store: Store,
    clock: Clock,
    run: str,
    at: int,
    new: str,
    *,
    limits: Bounds = None,
    edits: Sequence[cmd.Command] = (),
    actor: str = "",
) -> str:
    """A fork from event `at` of a run; see `Client.fork`."""
    parent = await store.info(run)
    at = check_seq(run, at, parent.head)
    while at <= parent.parent_at:  # the event is its parent's: that one is gone on from
        parent = await store.info(parent.parent)
    before = await fold_entries(store, parent.run, await store.read(parent.run, upto=at))
    branch = Branch(
        run=new,
        parent=parent,
        before=before,
        reason="fork",
        limits=before.limits.changed(limits) if limits is not None else None,
        later=await _end_after(store, parent, at),
        edits=tuple(edits),
        actor=actor,
    )
    if not branch.later and (why := obstacle(before)):
        raise await _refused(store, run, at, why)
    found = await _create(store, clock, branch)
    if found is not None:
        await _same(store, branch, found)
    return new


async def _end_after(store: Store, parent: RunInfo, at: int) -> tuple[ev.Entry, ...]:
    """The run's end and what came after it, if event `at` is the last before the end.

    Nothing is in flight there, and what is unknown is settled as after a retry (law 4).
    """
    if at >= parent.head:
        return ()
    (following,) = await store.read(parent.run, after=at, upto=at + 1)
    if not isinstance(following.event, ev.TERMINAL):
        return ()
    return tuple(await store.read(parent.run, after=at))


async def _refused(store: Store, run: str, at: int, why: str) -> Refused:
    entries = await store.read(run)
    begin = await start_of(store, run, entries)
    before, after = around(begin, entries, at)
    nearest = " or ".join(str(seq) for seq in (before, after) if seq)
    fix = f"the nearest events that will do: {nearest}" if nearest else "no event of it will do yet"
    return Refused(f"run {run} cannot be forked at event {at}: {why} there; {fix}")


async def _create(store: Store, clock: Clock, branch: Branch) -> RunInfo | None:
    """Make the run; the existing one's line when the id is taken.

    Raises:
        Refused, UnknownRun: an edit does not fit; nothing was made.
        Moved, SessionBusy: as `Store.create`.
    """
    before, parent, new = branch.before, branch.parent, branch.run
    now = max(clock.now_us(), before.at)
    forked = ev.RunForked(
        run=new,
        parent=parent.run,
        at=before.seq,
        limits=branch.limits,
        reason=branch.reason,
        grants="void",
    )
    entry = ev.Entry(seq=before.seq + 1, at=now, event=forked, actor=branch.actor)
    state, entries = _with_what_is_known(evolve(before, entry), entry, branch.later)
    for command in branch.edits:
        event = _accepted(branch, state, command, now)
        if event is not None:
            made = ev.Entry(seq=state.seq + 1, at=state.at, event=event, actor=branch.actor)
            state = evolve(state, made)
            entries.append(made)
    created = NewRun(
        run=new,
        agent=before.agent,
        digest=parent.digest,
        session=branch.session,
        previous=parent.run if branch.session else None,
        principal=parent.principal,
        parent=parent.run,
        parent_at=before.seq,
    )
    return await store.create(created, entries, index_of(state))


def _accepted(branch: Branch, state: RunState, command: cmd.Command, now: int) -> ev.Event | None:
    """The event of an edit; where it does not fit, the words name the run that people know."""
    return cmd.accept(replace(state, run=branch.parent.run), command, now)


async def _same_limits(store: Store, branch: Branch) -> None:
    """A fork that exists was made with the limits that are asked for now, if any are.

    Raises:
        RunConflict: it was made with other ones.
    """
    if branch.limits is None:
        return
    at = branch.before.seq
    (forked,) = await store.read(branch.run, after=at, upto=at + 1)
    if evolve(branch.before, forked).limits != branch.limits:
        raise RunConflict(
            f"run {branch.run!r} exists and was made with other limits; take another id, or give "
            "none to go on with it as it is"
        )


def _with_what_is_known(
    state: RunState, forked: ev.Entry, later: Sequence[ev.Entry]
) -> tuple[RunState, list[ev.Entry]]:
    """A fork's first entries: with what came out about unknown effects after the parent's end."""
    entries = [forked]
    for entry in later:
        if isinstance(entry.event, _KNOWN_LATE):
            known = replace(entry, seq=state.seq + 1, at=max(entry.at, state.at))
            with suppress(IllegalTransition):  # it was about something the fork does anew
                state = evolve(state, known)
                entries.append(known)
    return state, entries


async def _same(store: Store, branch: Branch, found: RunInfo) -> None:
    """The id is taken: by this very fork, or it is a conflict."""
    at = branch.before.seq
    conflict = RunConflict(
        f"run {found.run!r} exists and is no such fork of {branch.parent.run!r} at event {at}; "
        "take another id"
    )
    if (found.parent, found.parent_at) != (branch.parent.run, at):
        raise conflict
    await _same_limits(store, branch)
    theirs = await store.read(found.run, after=at)
    state, entries = evolve(branch.before, theirs[0]), theirs[1:]
    while entries and isinstance(entries[0].event, _KNOWN_LATE):
        state, entries = evolve(state, entries[0]), entries[1:]
    for command in branch.edits:
        event = _accepted(branch, state, command, state.at)
        if event is None:
            continue
        if not entries or entries[0].event != event:
            raise conflict
        state, entries = fold(state, entries[:1]), entries[1:]
