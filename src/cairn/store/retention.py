"""Which ended runs may go, decided over lines of the run table; the same for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cairn.core.events import Entry
from cairn.core.evolve import fold
from cairn.core.lifecycle import ENDED, CallStatus
from cairn.core.state import RunState
from cairn.errors import CairnError, RunErased
from cairn.ports import RunInfo

ENDED_VALUES = frozenset(status.value for status in ENDED)
_UNSETTLED = frozenset({CallStatus.STARTED, CallStatus.UNKNOWN, CallStatus.TAKEOVER})


def settled(run: str, entries: Callable[[], Iterable[Entry]]) -> bool:
    """Whether it is known of every effect of a run what came of it.

    Not of a journal that cannot be read or folded: it is kept for whoever wants to find out why.
    """
    try:
        state = fold(RunState(run=run, alone=True), entries())
    except RunErased:
        return True  # nobody can say anything of it any more
    except CairnError:
        return False
    return not any(call.status in _UNSETTLED for call in state.calls.values())


def prunable(
    newest_first: Iterable[RunInfo],
    before: int,
    is_settled: Callable[[str], bool],
    session: str = "",
    held: frozenset[str] = frozenset(),
) -> list[str]:
    """The runs that may be removed, newest first, so that no step leaves a dangling reference.

    A run stays while it is driven, while it has messages that nobody has read, while a fork of it
    stays (its prefix is read from it), and while a later run of its session, or another session
    that was forked from it, stays (those name it and go on from it).

    Args:
        session: Only runs of this one; empty for all.
        held: Runs that other sessions were forked from.
    """
    chosen: list[str] = []
    parents: set[str] = set()
    sessions: set[str] = set()
    for line in newest_first:
        at_rest = line.status in ENDED_VALUES and line.updated_at < before and not line.leased
        if (
            at_rest
            and session in {"", line.session}
            and line.run not in held
            and not (line.unread and line.session)  # nobody has read them yet
            and line.run not in parents
            and line.session not in sessions
            and is_settled(line.run)
        ):
            chosen.append(line.run)
            continue
        if line.parent:
            parents.add(line.parent)
        if line.session:
            sessions.add(line.session)
    return chosen
