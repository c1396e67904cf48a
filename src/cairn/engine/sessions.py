"""Sessions as they are read and moved: their runs in order, titles, rewinds and forks."""

from __future__ import annotations

from hashlib import sha256

from cairn.core import events as ev
from cairn.core.lifecycle import ENDED
from cairn.core.messages import Principal, Record, clean
from cairn.core.titles import shortened, title_of
from cairn.engine.client import same_person
from cairn.engine.conversation import previous_of
from cairn.engine.given import check_session
from cairn.engine.load import load
from cairn.errors import (
    ConfigError,
    CorruptJournal,
    IllegalTransition,
    Moved,
    SessionBusy,
    UnknownRun,
)
from cairn.ports import Clock, RunFilter, RunInfo, SessionInfo, Store

OVER = frozenset(status.value for status in ENDED)
ANYBODY = Principal()
"""For whom an operator acts who names nobody."""
STORE = "store"
ALL = 1_000_000
"""As many runs as no session has."""
TITLE_COLUMNS = 200
TRIES = 50
"""How often a fact is written anew when others were faster."""


class Conversation(Record):
    """A session with its runs.

    Args:
        info: Its line in lists.
        title: What a person called it, or its first words.
        chain: The runs it consists of, oldest first: what its next run goes on from. A session
            that was forked begins with runs of the one it was forked from.
        superseded: Runs of it that a rewind has left behind, or that were cancelled before their
            turn, oldest first.
        waiting: Runs that wait for their turn, in order.
    """

    info: SessionInfo
    title: str
    chain: tuple[RunInfo, ...] = ()
    superseded: tuple[RunInfo, ...] = ()
    waiting: tuple[RunInfo, ...] = ()


def message_id(session: str, id: str) -> str:
    """The run id that stands for a sender's own id of a message in a session."""
    both = f"{session}\0{id}"
    return f"m-{sha256(both.encode()).hexdigest()[:24]}"


async def conversation(store: Store, session: str) -> Conversation:
    """A session with its runs.

    Raises:
        UnknownRun: there is no such session.
    """
    info = await store.session(check_session(session))
    own = await _own(store, session)
    waiting = [run for run in own if run.behind or (run.status == "queued" and _begins(run, info))]
    chain = await _chain(store, info.head)
    first = info.first or (chain[0].run if chain else "")
    named = {run.run for run in chain} | {run.run for run in waiting}
    return Conversation(
        info=info,
        title=info.title or await first_words(store, first),
        chain=tuple(chain),
        superseded=tuple(run for run in own if run.run not in named),
        waiting=tuple(run for run in waiting if run.run not in {c.run for c in chain}),
    )


async def _own(store: Store, session: str) -> list[RunInfo]:
    """The runs of a session, oldest first; no filter without a name may ask for them."""
    if not session.strip():
        return []
    return (await store.runs(RunFilter(session=session, limit=ALL)))[::-1]


def _begins(run: RunInfo, info: SessionInfo) -> bool:
    """Whether a run is the next: nothing is before it any more, and nobody has begun it."""
    return run.run != info.head


async def _chain(store: Store, head: str) -> list[RunInfo]:
    found: list[RunInfo] = []
    last: str = head
    while last:
        try:
            found.append(await store.info(last))
            entries = await store.read(last, upto=1)
            created = entries[0].event
            if isinstance(created, ev.RunCreated) and created.behind:
                entries = await store.read(last)
            previous = previous_of(entries)
        except (UnknownRun, CorruptJournal):  # removed, or damaged: it is told as far as it goes
            break
        last = previous.run if previous is not None else ""
    return found[::-1]


async def first_words(store: Store, first: str) -> str:
    """What a session is called if nobody gave it a title; empty if that cannot be read.

    Args:
        first: The run that it begins with; empty if that is gone.
    """
    if not first:
        return ""
    try:
        (entry,) = await store.read(first, upto=1)
    except (UnknownRun, CorruptJournal):  # removed meanwhile, or damaged
        return ""
    event = entry.event
    return title_of(event.input) if isinstance(event, ev.RunCreated) else ""


async def titled(store: Store, infos: list[SessionInfo]) -> list[tuple[SessionInfo, str]]:
    """Each session with its title, or its first words."""
    found = []
    for info in infos:
        title = info.title
        if not title:
            chain = [] if info.first else await _chain(store, info.head)
            title = await first_words(store, info.first or (chain[0].run if chain else ""))
        found.append((info, title))
    return found


async def check_owner(store: Store, session: str, who: Principal | None) -> SessionInfo:
    """The session's line, if it is this principal's; None asks nobody, as an operator does.

    Raises:
        UnknownRun: there is no such session, or it is another principal's.
    """
    info = await store.session(check_session(session))
    if who is not None:
        state = await load(store, info.head)
        if not same_person(state.principal, who):
            raise UnknownRun(f"there is no session {session!r}")
    return info


# ---------------------------------------------------------------- facts


async def set_title(store: Store, clock: Clock, session: str, title: str, actor: str) -> bool:
    """Give a session a title, an empty one to take it away; False when it has it already."""
    check_session(session)
    title = " ".join(clean(title).split())
    if shortened(title, TITLE_COLUMNS) != title:
        raise ConfigError(
            "title", f"it is wider than {TITLE_COLUMNS} columns", "Give a shorter one"
        )
    if (await store.session(session)).title == title:
        return False
    await _keep(store, clock, ev.SessionTitled(session=session, title=title), actor)
    return True


async def rewind(store: Store, clock: Clock, session: str, to: str, actor: str) -> bool:
    """Let a session go on from an earlier run; False when it stands there already.

    Raises:
        UnknownRun: there is no such session, or it has no such run.
        IllegalTransition: the run is not over, or it never began.
        SessionBusy: a run of the session is not over.
    """
    for _ in range(TRIES):
        talk = await conversation(store, session)
        known = {run.run: run for run in (*talk.chain, *talk.superseded)}
        if to not in known:
            raise UnknownRun(f"session {session!r} has no run {to!r}")
        busy = [run for run in (*talk.chain, *talk.waiting) if run.status not in OVER]
        if busy:
            raise SessionBusy(session, busy[0].run)
        await _check_point(store, to)
        if talk.info.head == to:
            return False
        own = await store.runs(RunFilter(session=session, limit=1))
        if not own:
            raise UnknownRun(f"session {session!r} has no run of its own to be rewound")
        fact = ev.SessionRewound(session=session, run=to, newest=own[0].run)
        try:
            await _keep(store, clock, fact, actor)
        except Moved:
            continue  # it has gone on meanwhile: look again
        return True
    raise SessionBusy(session, "")


async def fork(store: Store, clock: Clock, session: str, new: str, at: str, actor: str) -> str:
    """Begin a session that goes on from a run of another one; the run's id.

    Raises:
        UnknownRun: there is no such session, or it has no such run.
        IllegalTransition: the run is not over.
        ConfigError: there is a session of the new name, or it is empty or blank.
    """
    check_session(new, "new")
    talk = await conversation(store, session)
    run = at or talk.info.head
    if run not in {each.run for each in (*talk.chain, *talk.superseded)}:
        raise UnknownRun(f"session {session!r} has no run {run!r}")
    await _check_point(store, run)
    fact = ev.SessionForked(session=new, run=run, of=session)
    for _ in range(TRIES):
        try:
            await store.session(new)
        except UnknownRun:
            pass
        else:
            raise ConfigError("new", f"there is a session {new!r}", "Take another name")
        try:
            await _keep(store, clock, fact, actor)
        except Moved:
            continue
        return run
    raise SessionBusy(new, "")


async def _check_point(store: Store, run: str) -> None:
    state = await load(store, run)
    if state.end is None:
        raise IllegalTransition(f"run {run} is not over; wait until it is, or take an earlier one")


async def _keep(store: Store, clock: Clock, fact: ev.Event, actor: str) -> None:
    """Write a fact to the journal `store`.

    Raises:
        Moved: the store says that the session is not as the fact has it.
    """
    for _ in range(TRIES):
        head = (await store.info(STORE)).head
        last = await store.read(STORE, after=head - 1) if head else []
        at = max(clock.now_us(), last[-1].at if last else 0)
        entry = ev.Entry(seq=head + 1, at=at, event=fact, actor=clean(actor))
        try:
            await store.keep(head, [entry])
        except Moved:
            if (await store.info(STORE)).head != head:
                continue
            raise
        return
    raise Moved(f"the journal {STORE!r} moves too fast")
