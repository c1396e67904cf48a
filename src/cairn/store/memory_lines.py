"""A run's line and its own entries, as the store in memory keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairn.core.codec import Row
from cairn.core.events import Entry, RunCancelRequested, RunContinued
from cairn.core.index import Index
from cairn.ports import NewRun, RunFilter, RunInfo
from cairn.store.retention import ENDED_VALUES, previous_in

if TYPE_CHECKING:
    from cairn.store.inmemory import InMemoryStore


class Journal:
    """A run's line and its own entries."""

    __slots__ = (
        "behind",
        "cancel",
        "created_at",
        "doubt",
        "entries",
        "epoch",
        "head",
        "index",
        "new",
        "no",
        "owner",
        "previous",
        "sealed",
        "updated_at",
    )

    def __init__(self, new: NewRun, index: Index, no: int = 0) -> None:
        self.new = new
        self.no = no
        """Goes up with every run that is made."""
        self.behind = new.behind
        """It has not begun, and goes on from where the run before it ends."""
        self.index = index
        self.entries: list[Entry] = []
        self.head = new.parent_at
        self.epoch = 0
        self.owner: InMemoryStore | None = None
        self.cancel = False
        self.doubt = False
        """Somebody it was claimed from was only frozen, and nothing was written since."""
        self.previous = ""
        """The run it goes on from, in its session or in the one that was forked."""
        self.created_at = 0
        self.updated_at = 0
        self.sealed: list[Row] = []

    def extend(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self.entries += entries
        self.head = entries[-1].seq
        self.updated_at = entries[-1].at
        previous = previous_in(entries)
        self.previous = self.previous if previous is None else previous
        for entry in entries:
            event = entry.event
            if type(event) is RunCancelRequested:
                self.cancel = self.cancel or not event.gently
            elif type(event) is RunContinued:
                self.behind = False


def drivable(journal: Journal, agents: frozenset[str], now: int) -> bool:
    index = journal.index
    if index.status in ENDED_VALUES:
        return False
    if journal.cancel:
        return True
    if journal.new.agent not in agents:
        return False
    if index.status in {"queued", "running"}:
        return True
    return index.status == "waiting" and 0 < index.wake_at <= now


def matches(journal: Journal, where: RunFilter) -> bool:
    new = journal.new
    return (
        (not where.status or journal.index.status in where.status)
        and where.agent in {"", new.agent}
        and where.session in {"", new.session}
        and where.principal in {"", new.principal}
        and (not where.previous or goes_on_from(journal, where.previous))
    )


def goes_on_from(journal: Journal, run: str) -> bool:
    """Whether a run goes on from another one's conversation, or is a retry of it."""
    retried = journal.new.parent if journal.new.session else ""
    return journal.new.run != run and run in {journal.previous, retried}


def info_of(journal: Journal, *, leased: bool, behind: str) -> RunInfo:
    new, index = journal.new, journal.index
    return RunInfo(
        run=new.run,
        agent=new.agent,
        session=new.session,
        principal=new.principal,
        head=journal.head,
        status=index.status,
        waits=index.waits,
        wake_at=index.wake_at,
        leased=leased,
        digest=new.digest,
        parent=new.parent,
        parent_at=new.parent_at,
        created_at=journal.created_at,
        updated_at=journal.updated_at,
        steps=index.steps,
        tokens=index.tokens,
        micro_usd=index.micro_usd,
        behind=behind,
        unread=index.unread,
    )
