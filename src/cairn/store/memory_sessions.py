"""Sessions in memory: who stands where, who waits behind whom, where messages went."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from cairn.core.codec import Row
from cairn.core.events import (
    Entry,
    InputQueued,
    RunCreated,
    RunRef,
    SessionForked,
    SessionRemoved,
    SessionRewound,
    SessionTitled,
)
from cairn.core.run_table import ERASED
from cairn.errors import Moved, RunErased, SessionBusy, UnknownRun
from cairn.ports import NewRun, RunInfo, SessionInfo
from cairn.store.erasing import empty
from cairn.store.memory_lines import Journal
from cairn.store.retention import ENDED_VALUES, Ties
from cairn.store.submission import session_moved


class Place:
    """What the journal `store` says of a session."""

    __slots__ = ("after", "run", "title")

    def __init__(self) -> None:
        self.title = ""
        self.run = ""
        """The run it was put on; empty if it was never."""
        self.after = 0
        """Number of the newest run that no longer counts then."""


class Sessions:
    """Index over journals that somebody else keeps, and guards with his lock."""

    def __init__(self, runs: Mapping[str, Journal]) -> None:
        self._runs = runs
        self.places: dict[str, Place] = {}
        self.messages: dict[str, RunRef] = {}

    def of(self, session: str) -> list[Journal]:
        """The runs of a session, oldest first."""
        return [j for j in self._runs.values() if session and j.new.session == session]

    def open(self, session: str) -> list[Journal]:
        """Those that are not over."""
        return [j for j in self.of(session) if j.index.status not in ENDED_VALUES]

    def head(self, session: str) -> Journal | None:
        """The run a session stands at."""
        place = self.places.get(session)
        after = place.after if place is not None else 0
        for journal in reversed(self.of(session)):
            if journal.no > after and not journal.behind:
                return journal
        return self._runs.get(place.run) if place is not None else None

    def before(self, journal: Journal) -> str:
        """The run that must be over before this one begins; empty if none."""
        if not journal.behind or journal.index.status in ENDED_VALUES:
            return ""
        ahead = (j for j in self.open(journal.new.session) if j.no < journal.no)
        return next((j.new.run for j in ahead), "")

    def check(self, new: NewRun) -> None:
        """Refuse a run that its session does not take now."""
        going_on = self.open(new.session)
        if new.behind:
            if not going_on:
                raise session_moved(new.session)
            return
        if going_on:
            raise SessionBusy(new.session, going_on[0].new.run)
        head = self.head(new.session)
        if new.previous is not None and new.previous != (head.new.run if head else ""):
            raise session_moved(new.session)

    def unread(self, agents: frozenset[str]) -> Iterator[str]:
        """See `Store.unread`."""
        for journal in self._runs.values():
            session = journal.new.session
            if not journal.index.unread or journal.new.agent not in agents or not session:
                continue
            if self.head(session) is journal and not self.open(session):
                yield journal.new.run

    def read_by_another(self, journal: Journal | None, session: str) -> None:
        """What a run left unread has been taken over by the one of its session that goes on."""
        if journal is not None and journal.new.session == session and journal.index.unread:
            journal.index = msgspec.structs.replace(journal.index, unread=0)

    # ------------------------------------------------------------ messages

    def taken(self, id_: str) -> str:
        """The run that a message of this id went to; empty if there is none."""
        found = self.messages.get(id_)
        return id_ if id_ in self._runs else found.run if found is not None else ""

    def queued(self, run: str, entries: Iterable[Entry]) -> None:
        """Remember where messages went."""
        for entry in entries:
            if isinstance(entry.event, InputQueued) and entry.event.id:
                self.messages[entry.event.id] = RunRef(run=run, seq=entry.seq)

    def removed(self, run: str) -> None:
        """A run is gone."""
        self.messages = {id_: at for id_, at in self.messages.items() if at.run != run}

    # ------------------------------------------------------------ facts

    def check_facts(self, entries: Sequence[Entry]) -> None:
        """Refuse facts that do not fit the runs as they are."""
        for entry in entries:
            match entry.event:
                case SessionTitled() as event:
                    if not self.of(event.session) and self.head(event.session) is None:
                        raise UnknownRun(f"there is no session {event.session!r}")
                case SessionRewound() as event:
                    self._check_run(event.run)
                    for journal in self.open(event.session):
                        raise SessionBusy(event.session, journal.new.run)
                    if self.of(event.session)[-1:] != [self._runs.get(event.newest)]:
                        raise session_moved(event.session)
                case SessionForked() as event:
                    self._check_run(event.run)
                    place = self.places.get(event.session)
                    if self.of(event.session) or (place is not None and place.run):
                        raise Moved(f"there is a session {event.session!r} already")
                case _:
                    pass

    def _check_run(self, run: str) -> None:
        if run not in self._runs:
            raise UnknownRun(f"there is no run {run!r} in this store")
        if self._runs[run].new.digest == ERASED:
            raise RunErased(run)

    def keep(self, entries: Sequence[Entry]) -> None:
        """Take facts in."""
        for entry in entries:
            event = entry.event
            if isinstance(event, SessionTitled | SessionRewound | SessionForked):
                place = self.places.setdefault(event.session, Place())
                if isinstance(event, SessionTitled):
                    place.title = event.title
                else:
                    place.run = event.run
                    newest = event.newest if isinstance(event, SessionRewound) else ""
                    place.after = self._runs[newest].no if newest else 0

    def ties(self, without: Collection[str]) -> Ties:
        """Who goes on from whom, but for the places of these sessions."""
        runs = self._runs
        places = {
            session: place.run
            for session, place in self.places.items()
            if session not in without
            and place.run in runs
            and runs[place.run].new.session != session
        }
        previous = {run: journal.previous for run, journal in runs.items() if journal.previous}
        return Ties(previous, places, {session: len(self.of(session)) for session in places})

    def forget(self, session: str) -> bool:
        """Take out what is known of a session without a run; whether there was anything."""
        if not session or self.of(session):
            return False
        return self.places.pop(session, None) is not None

    def unbegun(self, said: Iterable[Entry], before: int, session: str = "") -> set[str]:
        """Sessions that were forked, have no run yet, and of which nothing was said since.

        Args:
            said: The journal `store`.
            before: Since when; microseconds.
            session: Only this one; empty for all.
        """
        last: dict[str, int] = {}
        for entry in said:
            if isinstance(entry.event, SessionTitled | SessionRewound | SessionForked):
                name = entry.event.session
                last[name] = max(entry.at, last.get(name, 0))
        begun = {journal.new.session for journal in self._runs.values()}
        return {
            name
            for name in self.places
            if session in {"", name} and name not in begun and last.get(name, 0) < before
        }

    # ------------------------------------------------------------ lists

    def listed(self, info: Callable[[Journal], RunInfo]) -> Iterator[SessionInfo]:
        """All sessions: forked ones without a run of their own, then by their newest run."""
        names = dict.fromkeys(
            j.new.session for j in reversed(list(self._runs.values())) if j.new.session
        )
        bare = [s for s, p in reversed(self.places.items()) if p.run in self._runs]
        for session in [*(s for s in bare if s not in names), *names]:
            yield self.line(session, info)

    def tenant(self, run: str) -> str:
        """Of the principal that a run, or the one that it was forked from, was started for."""
        root = self._runs[run]
        while root.new.parent:
            root = self._runs[root.new.parent]
        created = root.entries[0].event
        return created.principal.tenant if isinstance(created, RunCreated) else ""

    def line(self, session: str, info: Callable[[Journal], RunInfo]) -> SessionInfo:
        """One of them. Raises `UnknownRun`."""
        runs, head, place = self.of(session), self.head(session), self.places.get(session)
        if not runs and head is None:
            raise UnknownRun(f"there is no session {session!r}")
        shown = info(head if head is not None else runs[-1])
        return SessionInfo(
            session=session,
            title=place.title if place is not None else "",
            head=shown.run,
            agent=shown.agent,
            principal=shown.principal,
            status=shown.status,
            runs=len(runs),
            open=len(self.open(session)),
            created_at=min((j.created_at for j in runs), default=shown.updated_at),
            updated_at=max((j.updated_at for j in runs), default=shown.updated_at),
            first=runs[0].new.run if runs else "",
        )


def silence(store: Journal, rows: list[Row], sessions: Collection[str], now: int) -> None:
    """Empty all that the journal `store` says of these sessions, and say so there.

    Args:
        rows: Those of the journal, as it keeps them.
        now: When it is, microseconds.
    """
    notes = tuple(
        entry.seq
        for entry in store.entries
        if isinstance(entry.event, SessionTitled | SessionRewound | SessionForked)
        and entry.event.session in sessions
    )
    if notes:
        empty(store, rows, notes)
        at = max(now, store.updated_at)
        store.extend((Entry(seq=store.head + 1, at=at, event=SessionRemoved(notes=notes)),))


class Indexed(Protocol):
    """What a store in memory keeps for all its users."""

    lock: threading.Lock
    runs: dict[str, Journal]
    sessions: Sessions


class SessionReads(ABC):
    """The part of a store in memory that is asked about sessions."""

    @abstractmethod
    def _shared(self) -> Indexed:
        """What it keeps, if it is open."""

    @abstractmethod
    def _info(self, journal: Journal) -> RunInfo: ...

    async def session_head(self, session: str) -> RunInfo | None:
        """See `Store.session_head`."""
        index = self._shared()
        with index.lock:
            found = index.sessions.head(session)
            return self._info(found) if found is not None else None

    async def session_open(self, session: str) -> list[RunInfo]:
        """See `Store.session_open`."""
        index = self._shared()
        with index.lock:
            return [self._info(journal) for journal in index.sessions.open(session)]

    async def sessions(
        self, principal: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[SessionInfo]:
        """See `Store.sessions`."""
        index = self._shared()
        with index.lock:
            lines = index.sessions.listed(self._info)
            mine = (
                line
                for line in lines
                if principal in {"", line.principal}
                and tenant in {None, index.sessions.tenant(line.head)}
            )
            return list(islice(mine, limit))

    async def session(self, session: str) -> SessionInfo:
        """See `Store.session`."""
        index = self._shared()
        with index.lock:
            return index.sessions.line(session, self._info)

    async def unread(self, agents: Sequence[str], limit: int = 100) -> list[str]:
        """See `Store.unread`."""
        index = self._shared()
        with index.lock:
            return list(islice(index.sessions.unread(frozenset(agents)), limit))

    async def message(self, id: str) -> RunRef | None:
        """See `Store.message`."""
        index = self._shared()
        with index.lock:
            if id in index.runs:
                return RunRef(run=id, seq=1)
            return index.sessions.messages.get(id)
