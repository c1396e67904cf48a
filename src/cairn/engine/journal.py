"""A run's journal, open for its owner: the state as it will be, and what is not written yet.

Outcomes and decisions are kept apart. When somebody else's event came in between (`Moved`), the
outcomes are appended again behind it, and the decisions are dropped: they must be taken anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cairn.core import events as ev
from cairn.core.budgets import Room
from cairn.core.evolve import evolve, fold
from cairn.core.index import index_of
from cairn.core.redaction import Redaction
from cairn.core.state import RunState
from cairn.engine.watchers import Watchers
from cairn.errors import (
    BudgetReached,
    BudgetUnknown,
    ErrorClass,
    IllegalTransition,
    Moved,
    StoreBusy,
)
from cairn.ports import Beside, Clock, Store

PATIENCE = 6
"""How often a busy store is tried again, 10 s each: an outcome once known is not given up."""
Steps = Iterable[tuple[int, ev.Event]]


class Outcome(NamedTuple):
    """What came back from outside."""

    step: int
    event: ev.Event
    attempt: int
    """The attempt of its call that a tool's outcome is of; 0 with anything else."""


class OpenJournal:
    """The owner's side of one run between claim and release.

    Attributes:
        state: The state with everything said so far, written or not.
    """

    def __init__(
        self,
        store: Store,
        state: RunState,
        epoch: int,
        clock: Clock,
        watchers: Watchers,
        redaction: Redaction,
    ) -> None:
        self.state = state
        self._store = store
        self._written = state
        self._epoch = epoch
        self._clock = clock
        self._watchers = watchers
        self._redaction = redaction
        self._entries: list[ev.Entry] = []
        self._outcomes: list[Outcome] = []
        self._beside: Beside | None = None
        self._released = False
        self._now = 0
        self.room: Room | None = None
        """What budgets over time have left, once one of them has refused a request."""

    @property
    def dirty(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._entries)

    @property
    def head(self) -> int:
        """The last seq that is known to be durable."""
        return self._written.seq

    def record(self, steps: Steps) -> None:
        """Take in what came back from outside; it is written come what may."""
        for step, event in steps:
            self._take(Outcome(step, self._redaction.value(event), _attempt(event, self.state)))

    def _take(self, outcome: Outcome) -> None:
        now = self._clock.now_us()
        try:
            self._add(outcome.step, outcome.event, now)
        except IllegalTransition:
            outcome = outcome._replace(event=_leftover(outcome))
            self._add(outcome.step, outcome.event, now)
        self._outcomes.append(outcome)

    def tick(self) -> int:
        """The instant that decisions are taken at from here on; their events say the same."""
        self._now = max(self._clock.now_us(), self.state.at)
        return self._now

    def decide(self, decisions: Steps, beside: Beside | None = None) -> None:
        """Take in what was decided; void if the journal has moved meanwhile.

        `beside` holds it to what the journal `store` says; it is written at once then.
        """
        self._beside = beside if beside is not None else self._beside
        for step, event in decisions:
            self._add(step, self._redaction.value(event), self._now)

    def _add(self, step: int, event: ev.Event, at: int) -> None:
        state = self.state
        entry = ev.Entry(seq=state.seq + 1, at=max(at, state.at), event=event, step=step)
        self.state = evolve(state, entry)
        self._entries.append(entry)

    async def flush(self, *, release: bool = False) -> bool:
        """Write what is not written; False when decisions were dropped on the way.

        `release` gives the claim up in the same write, unless there is news: then False, and
        the run is still ours, because something else may have to be done with it.

        Raises:
            Fenced: somebody else owns the run now.
            BudgetUnknown: decisions were dropped that cost something; what came back is written.
            StoreError: nothing of it was acknowledged.
        """
        intact = True
        unknown: BudgetUnknown | None = None
        busy = 0
        while self._entries or (release and not self._released):
            entries, state = self._entries, self.state
            # without events of our own the row stands as others left it: they may have news
            index = index_of(state) if entries else None
            try:
                await self._store.append(
                    state.run, self._epoch, entries, index, release=release, beside=self._beside
                )
            except Moved:
                intact = await self._catch_up() and intact
                if release:
                    return False
                continue
            except BudgetReached as reached:
                intact = release = False  # the end, or a smaller request, is to be decided
                self._give_way(reached)
                continue
            except BudgetUnknown as error:
                release, unknown = False, error
                self._drop_decisions()
                continue
            except StoreBusy:
                busy += 1
                if busy >= PATIENCE:
                    raise
                continue
            self._released = release
            asked = self.room is not None and any(
                type(e.event) is ev.ModelRequested for e in entries
            )
            if asked:
                self.room = None
            self._written = state
            self._entries = []
            self._outcomes = []
            self._beside = None
            self._show(entries)
        if unknown is not None:
            raise unknown
        return intact

    def _give_way(self, reached: BudgetReached) -> None:
        """A budget refused what was to begin: a smaller request may fit, anything else ends it."""
        calls = any(isinstance(e.event, ev.ToolStarted) for e in self._entries)
        self._drop_decisions()
        if not calls and reached.measure != "calls":
            self.room = reached.room
            return
        limit = ev.LimitReached(
            limit=f"budget:{reached.budget}",
            bound=reached.bound,
            value=reached.used,
            message=str(reached),
        )
        self.record([(0, limit)])

    def _drop_decisions(self) -> None:
        """Go back to what is written and what came back."""
        known = self._outcomes
        self.state = self._written
        self._entries, self._outcomes = [], []
        self._beside = None
        for outcome in known:
            self._take(outcome)

    async def close(self) -> None:
        """Write what came back and give the claim up, whatever news there is."""
        while not await self.flush(release=True):
            pass

    async def catch_up(self) -> bool:
        """Read what others wrote; False when decisions were dropped on the way."""
        return await self._catch_up()

    async def _catch_up(self) -> bool:
        tail = await self._store.read(self._written.run, after=self._written.seq)
        self.state = self._written = fold(self._written, tail)
        self._show(tail)
        decided = len(self._entries) - len(self._outcomes)
        self._drop_decisions()
        return decided == 0

    def _show(self, entries: list[ev.Entry]) -> None:
        run = self.state.run
        if self._watchers.watched(run):
            for entry in entries:
                self._watchers.observe(run, entry)

    def unwritten(self) -> list[Outcome]:
        """Outcomes that have no place in the journal yet."""
        return list(self._outcomes)


def outcomes(steps: Steps, state: RunState) -> list[Outcome]:
    """What came back, with the attempts it is of; `state` knows of nothing that began since."""
    return [Outcome(step, event, _attempt(event, state)) for step, event in steps]


def _ask(entries: list[ev.Entry]) -> bool:
    return any(isinstance(entry.event, ev.ModelRequested) for entry in entries)


_OF_ATTEMPTS = (ev.ToolCompleted, ev.ToolFailed)


def _attempt(event: ev.Event, state: RunState) -> int:
    """Which attempt an outcome is of, while its call stands as it was when it came back.

    Later the state may know of a next attempt: decided and never begun, or somebody else's.
    """
    if not isinstance(event, _OF_ATTEMPTS):
        return 0
    call = state.calls.get(event.call)
    return call.attempt if call is not None else 0


def _leftover(outcome: Outcome) -> ev.Event:
    """An outcome that news from elsewhere has made illegal, kept for the record all the same."""
    event = outcome.event
    if isinstance(event, ev.ToolCompleted):
        return ev.ToolLate(call=event.call, ok=True, result=event.result, attempt=outcome.attempt)
    if isinstance(event, ev.ToolFailed):
        return ev.ToolLate(
            call=event.call, ok=False, message=event.message, attempt=outcome.attempt
        )
    return ev.ErrorRaised(
        error_class=ErrorClass.INTERNAL,
        message=f"{event.NAME} came when it was no longer allowed",
        where="journal",
    )
