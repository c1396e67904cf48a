"""What must hold of conversations: one run at a time, each message read once, none forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cairn.core import events as ev
from cairn.core.lifecycle import ENDED
from cairn.ports import RunFilter, RunInfo, Store
from cairn.testing.invariants.case import Violation

ALL = 1_000_000_000
OVER = frozenset(status.value for status in ENDED)
Message = tuple[str, int]
"""A queued message: the run whose own event it is, and which."""


async def check_sessions(store: Store) -> list[Violation]:
    """What does not hold in a store's sessions."""
    found: list[Violation] = []
    for info in await store.sessions(limit=ALL):
        runs = (await store.runs(RunFilter(session=info.session, limit=ALL)))[::-1]
        found += await _Talk(store, runs).check()
    return found


class _Talk:
    """One session, read run by run."""

    def __init__(self, store: Store, runs: Sequence[RunInfo]) -> None:
        self._store = store
        self._runs = runs
        self._sent: dict[Message, str] = {}
        self._read: Counter[Message] = Counter()
        self._ids: Counter[str] = Counter()
        self._found: list[Violation] = []

    def _say(self, run: str, seq: int, text: str) -> None:
        self._found.append(Violation(name="session", run=run, seq=seq, text=text))

    async def check(self) -> list[Violation]:
        begun = [run for run in self._runs if run.status not in OVER and not run.behind]
        for run in begun[1:]:
            self._say(run.run, 0, f"it is active while {begun[0].run} is")
        for run in self._runs:
            entries = await self._store.read(run.run, after=run.parent_at)
            for entry in entries:
                await self._take(run.run, entry)
        for (name, seq), times in self._read.items():
            if times > 1:
                self._say(name, seq, f"the message was read {times} times")
        for id_, times in self._ids.items():
            if times > 1:
                self._say("", 0, f"the message {id_} was queued {times} times")
        await self._forgotten()
        return self._found

    async def _take(self, run: str, entry: ev.Entry) -> None:
        previous = getattr(entry.event, "previous", None)
        if previous is not None:
            told = await self._store.read(previous.run, upto=previous.seq)
            if not any(isinstance(e.event, ev.TERMINAL) for e in told):
                self._say(
                    run, entry.seq, f"it goes on from {previous.run}, which is not over there"
                )
        match entry.event:
            case ev.InputQueued(id=id_):
                self._sent[run, entry.seq] = id_
                self._ids.update([id_] if id_ else [])
            case ev.InputGiven(seqs=seqs):
                self._read.update([await self._origin(run, seq) for seq in seqs])
            case ev.RunCreated(previous=ev.RunRef(run=before), consumes=seqs):
                self._read.update([await self._origin(before, seq) for seq in seqs])
            case ev.RunContinued(previous=ev.RunRef(run=before), consumes=seqs):
                self._read.update([await self._origin(before, seq) for seq in seqs])

    async def _origin(self, run: str, seq: int) -> Message:
        """The run whose own event it is: a retry shares those before its point."""
        while (info := await self._store.info(run)).parent and seq <= info.parent_at:
            run = info.parent
        return run, seq

    async def _forgotten(self) -> None:
        """Nobody has read a message, and its run is over: then it must still be known of."""
        if not self._runs or any(run.status not in OVER for run in self._runs):
            return
        unread = {message for message in self._sent if not self._read[message]}
        if not unread:
            return
        agents = sorted({run.agent for run in self._runs})
        named = set(await self._store.unread(agents, ALL))
        pruned = any(isinstance(e.event, ev.StorePruned) for e in await self._store.read("store"))
        for run, seq in sorted(unread):
            if pruned and not (await self._store.info(run)).unread:
                continue  # read by a run that was removed since; only the row knows of it
            if not [name for name in named if await self._holds(name, run, seq)]:
                self._say(run, seq, "the message was never read, and nobody is told of it")

    async def _holds(self, name: str, run: str, seq: int) -> bool:
        """Whether a run's journal has the message in it, as its own or before its point."""
        info = await self._store.info(name)
        return seq <= info.head and await self._origin(name, seq) == (run, seq)
