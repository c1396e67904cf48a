"""What a simulated world sees of sessions that are moved and of runs that go for good.

A session stands at one run: what goes on in it goes on from there, wherever people put it. Of a run
that was erased nothing can be read any more, and one that was pruned is gone: both only when it was
over, and only those that were meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cairn.core import events as ev
from cairn.core.codec import encode
from cairn.core.erasing import Erasure
from cairn.core.lifecycle import ENDED
from cairn.core.messages import Principal
from cairn.errors import RunErased
from cairn.ports import NewRun, RunFilter, Store
from cairn.testing.invariants import Violation
from cairn.testing.invariants.effects import Effect

OVER = frozenset(status.value for status in ENDED)
ALL = 1_000_000_000
ELSEWHERE = "?"
"""Where a session stands whose newest runs were pruned: at an older one, or at none."""


class LineBook:
    """Every run that was made, whose it is, where sessions stand, and what was removed."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.seen: Counter[str] = Counter()
        self.erased: dict[str, str] = {}
        """Runs that hold nothing any more, and whose they were."""
        self.pruned: set[str] = set()
        self._whose: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._session: dict[str, str] = {}
        self._heads: dict[str, str] = {}
        self._over: set[str] = set()
        self._moved: set[str] = set()

    def say(self, name: str, text: str, run: str = "") -> None:
        """Note a broken promise."""
        self.found.append(Violation(name=name, run=run, seq=0, text=text))

    def is_gone(self, run: str) -> bool:
        """Whether nothing of it can be read any more."""
        return run in self.erased or run in self.pruned

    # ------------------------------------------------------------ as it becomes durable

    def created(self, new: NewRun, entries: Sequence[ev.Entry]) -> None:
        """A run was made."""
        self._whose[new.run] = new.principal
        self._parents[new.run] = new.parent
        if new.session:
            self._session[new.run] = new.session
            if not new.behind:
                self._goes_on(new.run, new.previous or "")
        self.appended(new.run, entries)

    def appended(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Somebody has written into a run."""
        if self.is_gone(run):
            self.say("erased", "it is written to, and was removed before", run)
        for entry in entries:
            if isinstance(entry.event, ev.RunContinued):
                self._goes_on(run, entry.event.previous.run)
            elif isinstance(entry.event, ev.TERMINAL):
                self._over.add(run)

    def _goes_on(self, run: str, previous: str) -> None:
        session = self._session.get(run, "")
        stands = self._heads.get(session, "")
        self.seen["run after a move"] += session in self._moved
        self._moved.discard(session)
        if previous != stands != ELSEWHERE:
            said = f"it goes on from {previous or 'nothing'}, and {session} stood at {stands}"
            self.say("rewound", said, run)
        self._heads[session] = run

    def kept(self, entries: Sequence[ev.Entry]) -> None:
        """Facts of the journal `store` are durable."""
        for entry in entries:
            event = entry.event
            if not isinstance(event, ev.SessionRewound | ev.SessionForked):
                continue
            moved = isinstance(event, ev.SessionRewound)
            self.seen["session put back" if moved else "session forked"] += 1
            if event.run not in self._over or self.is_gone(event.run):
                self.say("rewound", f"{event.session} is put on it, and it is not over", event.run)
            self._heads[event.session] = event.run
            self._moved.add(event.session)

    def removed(self, runs: Sequence[str], forks: Sequence[str] = ()) -> None:
        """Old runs were pruned, and forked conversations that had no run of their own."""
        self.seen["run pruned"] += len(runs)
        for run in runs:
            if run not in self._over:
                self.say("erased", "it is pruned, and was not over", run)
            self.pruned.add(run)
            self.erased.pop(run, None)
        left = {name for run, name in self._session.items() if not self.is_gone(run)}
        ended = {self._session[run] for run in runs if run in self._session} - left
        for session, head in self._heads.items():
            if head in self.pruned or session in ended or session in forks:
                self._heads[session] = ELSEWHERE

    def principal_erased(self, principal: Principal, erasure: Erasure) -> None:
        """All runs of somebody hold nothing any more."""
        self.seen["principal erased"] += bool(erasure.runs)
        self.seen["run erased"] += len(erasure.runs)
        theirs = {r for r, who in self._whose.items() if who == principal.id}
        theirs -= {*self.erased, *self.pruned}
        if theirs != set(erasure.runs):
            said = f"{sorted(erasure.runs)} are erased for {principal.id}, of {sorted(theirs)}"
            self.say("erased", said)
        for run in erasure.runs:
            if run not in self._over:
                self.say("erased", "it is erased, and was not over", run)
            self.erased[run] = principal.id
        stood = {session for session, head in self._heads.items() if head in self.erased}
        for session in stood:
            del self._heads[session]

    # ------------------------------------------------------------ in the end

    def whose(self, run: str) -> str:
        """For whom a run worked."""
        return self._whose.get(run, "")

    def root(self, run: str) -> str:
        """The run that the first events of this one were written in."""
        while parent := self._parents.get(run, ""):
            run = parent
        return run


async def check_removed(
    look: Store, book: LineBook, journals: Mapping[str, Sequence[ev.Entry]]
) -> list[Violation]:
    """What of removed runs is still there, and what is gone that nobody removed.

    Args:
        look: The store; it is only read.
        book: What the world saw.
        journals: All events of every run that can be read.
    """
    end = LineBook()
    lines = {info.run: info for info in await look.runs(RunFilter(limit=ALL))}
    for run in book.erased:
        if run not in lines or not lines[run].erased:
            end.say("erased", "it was erased, and its line says nothing of it", run)
            continue
        line = lines[run]
        if line.session or line.principal or line.leased or line.waits:
            end.say("erased", f"its line still says {line}", run)
        await _unreadable(look, run, end)
        await look.verify(run)
    for run in book.pruned & lines.keys():
        end.say("erased", "it was pruned, and is there", run)
    gone = [p.id for p in await look.pending(ALL) if book.is_gone(p.id.rpartition("/")[0])]
    if gone:
        end.say("erased", f"people are still asked for {gone}")
    for info in await look.sessions(limit=ALL):
        if book.is_gone(info.head):
            end.say("erased", f"session {info.session} stands at a run that is gone", info.head)
    said = {run: f'"task of {run}"'.encode() for run in book.erased}
    texts = {run: b"".join(encode(e.event) for e in entries) for run, entries in journals.items()}
    for run, words in said.items():
        for other in (name for name, text in texts.items() if words in text):
            end.say("erased", f"what it was asked is still read in {other}", run)
    return end.found


async def _unreadable(look: Store, run: str, end: LineBook) -> None:
    try:
        await look.read(run)
    except RunErased:
        pass
    else:
        end.say("erased", "it was erased, and can be read", run)
    if any(row.data is not None for row in await look.rows(run)):
        end.say("erased", "it was erased, and its rows hold something", run)


async def check_nothing_left(look: Store, principal: Principal) -> list[Violation]:
    """What the store still holds of somebody about whom everything was just erased."""
    held = await look.holdings(principal)
    left = [name for name in ("runs", "sessions", "facts", "grants") if getattr(held, name)]
    said = f"{', '.join(left)} of {principal.id} are left"
    return [Violation(name="erased", run="", seq=0, text=said)] if left else []


def check_keys(book: LineBook, effects: Sequence[Effect]) -> list[Violation]:
    """Effects under one key in runs that do not descend from one another.

    What a rewind leaves behind stays done: who goes on from an earlier run makes calls of its own.
    """
    roots: dict[str, set[str]] = {}
    for effect in effects:
        roots.setdefault(effect.key, set()).add(book.root(effect.run))
    return [
        Violation(name="rewound", run=min(runs), seq=0, text=f"{sorted(runs)} share {key}")
        for key, runs in roots.items()
        if len(runs) > 1
    ]
