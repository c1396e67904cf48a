"""What a store promises; `cairn.testing` has the suite that every store passes whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from cairn.core.budgets import Cap, Standing
from cairn.core.codec import Row
from cairn.core.commands import Command
from cairn.core.erasing import Erasure, Holdings
from cairn.core.events import Entry, RunRef
from cairn.core.index import Index, Pending
from cairn.core.messages import Principal
from cairn.core.run_table import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo, SessionInfo
from cairn.core.state import RunState


class SessionLists(Protocol):
    """What a store says of sessions; the facts that move one are kept with `Store.keep`."""

    async def session_head(self, session: str) -> RunInfo | None:
        """The run a session stands at: its newest begun, or one it was put on since; None: none."""
        ...

    async def session_open(self, session: str) -> list[RunInfo]:
        """The runs of a session that are not over, oldest first: the active one, those behind."""
        ...

    async def sessions(
        self, principal: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[SessionInfo]:
        """Sessions, the newest run's first; all, or one principal's by id and, if given, tenant."""
        ...

    async def session(self, session: str) -> SessionInfo:
        """One session. Raises `UnknownRun`."""
        ...

    async def unread(self, agents: Sequence[str], limit: int = 100) -> list[str]:
        """Ended runs of these agents with messages nobody has read, oldest first.

        Only those that their session stands at, and none while a run of it is not over.
        """
        ...

    async def message(self, id: str) -> RunRef | None:
        """Where a message went: event 1 of the run it started, or where it was queued."""
        ...


class Store(SessionLists, Protocol):
    """Where journals live.

    It must never: acknowledge what a crash can lose (beyond its stated durability), let two
    owners append with the same right, leave a gap, change or reorder an event, let another
    store's or driver's exception out, or block the event loop.
    """

    async def create(self, new: NewRun, entries: Sequence[Entry], index: Index) -> RunInfo | None:
        """Start a journal. None when it was made; the existing run's line when the id is taken.

        Of an id under which a message was queued, that is the run it was queued in. A fork's
        first entry has seq `parent_at + 1`; its prefix is read from the parent.

        Raises:
            SessionBusy: a run of the session is not over, and this one is not to wait behind it.
            Moved: the session does not stand at `new.previous`, or has nothing to wait behind.
            UnknownRun: the parent does not exist.
        """
        ...

    async def info(self, run: str) -> RunInfo:
        """The run's line. Raises `UnknownRun`."""
        ...

    async def read(self, run: str, after: int = 0, upto: int = 0) -> list[Entry]:
        """Entries with `after < seq` (and `seq <= upto` unless that is 0), a fork's prefix too.

        Raises:
            UnknownRun: there is no such run.
            CorruptJournal: an entry cannot be read.
        """
        ...

    async def rows(self, run: str) -> list[Row]:
        """The run's own rows as stored, without a fork's prefix, for export and verification."""
        ...

    async def verify(self, run: str) -> int:
        """Check the run's hash chain, its prefix included; returns the number of events.

        Raises:
            CorruptJournal: names the first row that was changed, removed or reordered.
        """
        ...

    async def claim(self, run: str) -> Claim | None:
        """Take the run over, or None while a living owner (or this process) drives it.

        None as well while it waits behind another of its session, unless it is to be cancelled.
        """
        ...

    async def append(
        self,
        run: str,
        epoch: int,
        entries: Sequence[Entry],
        index: Index | None,
        *,
        release: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """The owner's write: all entries or none; durable when it returns.

        `entries[0].seq - 1` is the head it was decided at. `index` None leaves the row as it is.
        `release` gives the claim up in the same write (entries may then be empty). `beside`
        holds it to what the journal `store` says, and writes there too.

        Raises:
            Fenced: the epoch is not current; the owner must drop everything.
            Moved: only the head moved, the run's or that of the journal `store`.
            BudgetReached: a budget that stands has no room for what the entries begin.
            BudgetUnknown: they begin something, and it cannot be told what budgets have left.
            StoreBusy, StoreFailed, StoreClosed: nothing of it was acknowledged.
        """
        ...

    async def submit(
        self, run: str, seen: RunState, command: Command, now: int, actor: str = ""
    ) -> tuple[RunState, Entry | None]:
        """Everybody else's write: fold the tail after `seen`, `accept`, append one event.

        All in one transaction; the claim and its epoch are left alone. Returns the state after
        it, and the new entry (None when the command changed nothing, or when its id is that of a
        run, or of a message that was queued before).

        Raises: whatever `accept` raises, with nothing written.
        """
        ...

    async def keep(self, head: int, entries: Sequence[Entry]) -> None:
        """Write facts that belong to no run: all or none, durable when it returns.

        They go to the journal named `store`, which is read like a run's. `entries[0].seq - 1` is
        the head they were decided at. A rewound or forked session stands at the run it names.

        Raises:
            Moved: its head is not `head`: read its tail and decide anew; a session to be rewound
                has another newest run, or one to be made exists.
            SessionBusy: a run of a session to be rewound is not over.
            UnknownRun: a run it names does not exist.
        """
        ...

    async def set_budgets(self, caps: Sequence[Cap], now: int, actor: str = "") -> bool:
        """Let these budgets stand from here on, and no others; a fact of the journal `store`.

        What counts against them is counted from the journals, and from then on in the
        transaction of each append, whoever makes it. False when they stood already.

        Raises:
            BudgetUnknown: what was spent cannot be read; nothing has changed.
        """
        ...

    async def budgets(self, now: int) -> list[Standing]:
        """How each budget stands in the window that holds `now`, for everybody it counts."""
        ...

    async def recount(self, now: int) -> list[str]:
        """Count anew, from the journals, what was spent; says which counters were not right.

        Raises:
            BudgetUnknown: a journal that matters cannot be read; nothing has changed.
        """
        ...

    async def runs(self, where: RunFilter) -> list[RunInfo]:
        """The run table, newest first."""
        ...

    async def runnable(self, agents: Sequence[str], now: int, limit: int = 100) -> list[str]:
        """Runs of these agents that could be driven: queued, running or woken, and unclaimed.

        A run with a cancel requested is named whatever its agent, one that waits behind others
        when those are over. Oldest first.
        """
        ...

    async def pending(self, limit: int = 100) -> list[Pending]:
        """What waits for people, over all runs, oldest first."""
        ...

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        """Wait until the run's head is past `seq`, whoever wrote; False after the time-out."""
        ...

    async def news(self, seen: int, timeout_s: float) -> int:
        """Wait until anything was written after the token `seen` (0 at first); the new token."""
        ...

    def lock_path(self, run: str, call: str) -> str:
        """Where the lock file of a call's child processes goes; empty if nothing is on disk."""
        ...

    def call_alive(self, run: str, call: str) -> bool:
        """Whether a child process of this call still holds its lock file."""
        ...

    async def prune(
        self, before: int, dry_run: bool = False, session: str = "", now: int = 0
    ) -> Pruned:
        """Remove whole ended runs last written before this time; a tombstone keeps each hash.

        Runs stay that others go on from, before a later one of their session, with living forks,
        an unknown effect or unread messages. With its last run, or as a fork without one of which
        nothing was said since, goes what is said of a session, as `session.removed` says; what
        comes back names the runs, such forks in its `forks`, and in its `sessions` those that have
        no run any more. With `session` only that one goes. `now` is for the records: 0 for this
        machine's clock.
        """
        ...

    async def holdings(
        self, principal: Principal, facts: Collection[int] | None = None
    ) -> Holdings:
        """What there is of a principal: of this id in this tenant, whatever their roles.

        Args:
            facts: Numbers of their facts, where facts are kept outside of this store: which runs
                of others were told of them is looked for. None for the facts that are kept here,
                and those of theirs that were erased here before; for none at all, nothing is
                looked for.
        """
        ...

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erasure:
        """Erase all that is kept of a principal, in one write; once more does no harm.

        Whole runs, forks and retries with them: each event loses its data and its salt and keeps
        header, digest and hash, so that the chain still verifies; the run's line keeps id, agent,
        status, times and sums. Facts, sessions, messages, grants, inbox rows and counters go
        whole, and so do the facts of the journal `store` about them. A record for each run, and
        one that counts and names nobody, say so there. Nothing goes on from an erased run.

        Args:
            principal: Whose; roles do not matter.
            now: When it is, microseconds since 1970, UTC.
            actor, reason: By whom and why; kept.

        Raises:
            Refused: one of the runs is not over, or another principal's run goes on from one of
                them; it names them, and nothing has changed.
            ConfigError: no principal is named.
            CorruptJournal: what is to be erased cannot be read; nothing has changed.
        """
        ...

    async def backup(self, path: str) -> None:
        """An online copy of the whole store."""
        ...

    async def close(self) -> None:
        """Finish what is queued, give the owner's lock back."""
        ...
