"""Legal journals in the making: what a runtime would append, without a runtime."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.events import Entry, RunRef
from cairn.core.evolve import evolve
from cairn.core.index import Index, index_of
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import CallPart, Principal, Text
from cairn.core.state import RunState
from cairn.errors import ErrorClass
from cairn.ports import NewRun, Store

START = 1_700_000_000_000_000
"""When stories begin, microseconds since 1970."""

TICK = 1_000
LATER = START + 3_600_000_000
"""An hour after: when a story's requests expire."""


class Story:
    """A run as it unfolds; every event is checked by `evolve` before it is told.

    Args:
        run: Its id.
        agent, session, previous: As a creation names them.
        behind: The run of its session that it waits behind; empty if it begins at once.
        after: The story of the run that its conversation goes on from; its first event says so.
        parent, at: The story it is forked from, and where.
    """

    def __init__(
        self,
        run: str,
        *,
        agent: str = "shop",
        session: str = "",
        previous: str | None = None,
        behind: str = "",
        after: Story | None = None,
        parent: Story | None = None,
        at: int = 0,
    ) -> None:
        self.new: NewRun = NewRun(
            run=run,
            agent=agent,
            digest=f"digest of {run}",
            session=session,
            previous=previous if after is None else after.run,
            principal="ann",
            parent=parent.new.run if parent else "",
            parent_at=at,
            behind=bool(behind),
        )
        self.behind = behind
        self.principal = Principal()
        self.state = RunState(run=run)
        self.entries: list[Entry] = []
        self.previous = RunRef(run=after.run, seq=after.state.seq) if after is not None else None
        if parent is not None:
            self.follow(parent.entries[:at])

    @property
    def run(self) -> str:
        """Its id."""
        return self.new.run

    @property
    def index(self) -> Index:
        """The index row as it stands."""
        return index_of(self.state)

    def follow(self, entries: list[Entry]) -> None:
        """Take over what others have written."""
        for entry in entries:
            self.state = evolve(self.state, entry)
            self.entries.append(entry)

    def tell(
        self, *events: ev.Event, step: int | None = None, at: int | None = None
    ) -> list[Entry]:
        """The next entries."""
        told = []
        for event in events:
            seq = self.state.seq + 1
            entry = Entry(
                seq=seq,
                at=max(self.state.at, START + seq * TICK) if at is None else at,
                event=event,
                step=self.state.step if step is None else step,
            )
            self.follow([entry])
            told.append(entry)
        return told

    # ------------------------------------------------------------ scenes

    def begin(self) -> list[Entry]:
        """The run is created, or forked."""
        if self.new.parent:
            return self.tell(
                ev.RunForked(run=self.run, parent=self.new.parent, at=self.new.parent_at)
            )
        return self.tell(
            ev.RunCreated(
                agent=self.new.agent,
                input=(Text("refund order 7"),),
                digest=self.new.digest,
                session=self.new.session,
                behind=self.behind,
                previous=self.previous,
                principal=self.principal,
            )
        )

    def go_on(self, before: Story) -> list[Entry]:
        """Its turn has come, after that run's end."""
        where = ev.RunRef(run=before.run, seq=before.state.seq)
        unread = tuple(before.state.queued)
        return self.tell(ev.RunContinued(previous=where, consumes=unread))

    def reply(self, *parts: Text | CallPart) -> list[Entry]:
        """A turn: a request and what came back."""
        request = ev.ModelRequested(
            model="scripted", reserved=Reservation(input_tokens=9, output_tokens=9)
        )
        reply = ev.ModelCompleted(parts=parts, usage=Usage(input_tokens=7, output_tokens=2))
        return self.tell(request, step=self.state.step + 1) + self.tell(reply)

    def call(self) -> list[Entry]:
        """A turn that wants a refund."""
        name = f"c{self.state.last_call + 1}"
        return self.reply(CallPart(id=name, name="refund", arguments='{"order":"7"}'))

    def ask(self) -> list[Entry]:
        """A turn that wants a refund, for which a person must be asked."""
        told = self.call()
        request = ev.ApprovalRequested(
            n=self.state.requests + 1,
            call=f"c{self.state.last_call}",
            digest="shown",
            expires_at=LATER,
        )
        return told + self.tell(request)

    def doubt(self) -> list[Entry]:
        """A refund was started, and nobody knows what came of it."""
        told = self.call()
        name = f"c{self.state.last_call}"
        started = ev.ToolStarted(call=name, effect="write", recovery="once", rule="test")
        return told + self.tell(started, ev.ToolUnknown(call=name, reason="lost"))

    def finish(self) -> list[Entry]:
        """A turn with the final answer, and the end."""
        told = self.reply(Text("done"))
        return told + self.tell(ev.RunCompleted(answer=self.state.answer))

    def fail(self) -> list[Entry]:
        """The end, whatever is open."""
        return self.tell(ev.RunFailed(error_class=ErrorClass.INTERNAL, message="given up"))

    def late(self) -> ev.Event:
        """An outcome that missed its time."""
        name = f"c{self.state.last_call}"
        return ev.ToolLate(call=name, ok=True, result=msgspec.Raw(b'"refunded"'))


async def create(store: Store, story: Story) -> Any:
    """Begin the story in a store."""
    return await store.create(story.new, story.begin(), story.index)


async def drive(store: Store, story: Story, *scenes: list[Entry], release: bool = False) -> int:
    """Claim the run and append scenes that were told already; returns the epoch."""
    claim = await store.claim(story.run)
    assert claim is not None, f"{story.run} is not free"  # noqa: S101 - a contract's own check
    entries = [entry for scene in scenes for entry in scene]
    await store.append(story.run, claim.epoch, entries, story.index, release=release)
    return claim.epoch
