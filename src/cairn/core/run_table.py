"""Lines of the run table and of the sessions that its runs make up, and the right to write one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cairn.core.events import Entry
from cairn.core.messages import Record

ERASED = "erased"
"""The digest of a run whose events were erased."""


class RunInfo(Record):
    """A line of the run table.

    Args:
        run: Its id.
        agent, session, principal: As given at creation.
        head: Seq of its last event.
        status: As `lifecycle.Status` says it.
        waits: Reasons it waits for.
        wake_at: When time is news for it, 0 for never.
        leased: Whether a living owner drives it now.
        digest: Hash of agent, input and principal; what makes two creations equal. `erased` when
            what the run said was erased; session and principal are empty then.
        parent, parent_at: The journal whose prefix it shares, and how much of it.
        behind: The run of its session that must be over before it can begin; empty if none.
        unread: Messages it had not read when it ended.
        created_at, updated_at: Microseconds since 1970, UTC.
    """

    run: str
    agent: str = ""
    session: str = ""
    principal: str = ""
    head: int = 0
    status: str = "queued"
    waits: tuple[str, ...] = ()
    wake_at: int = 0
    leased: bool = False
    digest: str = ""
    parent: str = ""
    parent_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    steps: int = 0
    tokens: int = 0
    micro_usd: int = 0
    behind: str = ""
    unread: int = 0

    @property
    def erased(self) -> bool:
        """Whether what the run said was erased."""
        return self.digest == ERASED


class SessionInfo(Record):
    """A conversation, as lists show it.

    Args:
        session: Its id.
        title: What a person called it; empty if nobody did.
        head: The run it goes on from: the newest that has begun, or one it was put on.
        agent, principal, status: Those of that run.
        runs: How many runs of its own there are, superseded and waiting ones too.
        open: How many of them are not over.
        created_at, updated_at: Of its first run, and of its last write; microseconds since
            1970, UTC.
        first: Its first run; empty while it has none of its own, as right after a fork.
    """

    session: str
    title: str = ""
    head: str = ""
    agent: str = ""
    principal: str = ""
    status: str = ""
    runs: int = 0
    open: int = 0
    created_at: int = 0
    updated_at: int = 0
    first: str = ""


class NewRun(Record):
    """What a store needs to know of a run beside its first events.

    `previous` is the run its session's conversation is taken from, empty when it begins one;
    None when that does not matter, as for a fork. `behind` lets it wait until the session's runs
    before it are over; it begins with `run.continued`.
    """

    run: str
    agent: str
    digest: str
    session: str = ""
    previous: str | None = None
    principal: str = ""
    parent: str = ""
    parent_at: int = 0
    behind: bool = False


class RunFilter(Record):
    """Which runs to list; empty fields match all. Newest first.

    Args:
        previous: The run whose conversation they go on from, or that they retry.
    """

    status: tuple[str, ...] = ()
    agent: str = ""
    session: str = ""
    principal: str = ""
    limit: int = 100
    previous: str = ""


class Claim(Record):
    """The right to append to a run, until somebody claims it after us.

    Args:
        epoch: Goes up with every claim; appends name it.
        head: The run's last seq at the time of the claim.
        previous: How the claim before this one ended. `dead` is proven by the owner's lock;
            after `expired` an old owner may only be frozen and wake up again: the last one, or
            one before it after whom nothing was written.
    """

    epoch: int
    head: int
    previous: Literal["new", "released", "dead", "expired"]


class Beside(Record):
    """What an append has to do with the journal `store`.

    Args:
        head: Its last seq as the decision knew it; the append is refused when it has moved.
        entries: Facts for it, in the same write.
    """

    head: int
    entries: tuple[Entry, ...] = ()


class Pruned(list[str]):
    """The runs that went, or that would go, newest first.

    Args:
        runs: Their ids.
        forks: Conversations that were forked, without a run of their own, and that went as well.
        sessions: Those of whose runs the last one went; their names are free again.
    """

    def __init__(
        self,
        runs: Iterable[str] = (),
        forks: Iterable[str] = (),
        sessions: Iterable[str] = (),
    ) -> None:
        super().__init__(runs)
        self.forks = tuple(sorted(forks))
        self.sessions = tuple(sorted(sessions))
