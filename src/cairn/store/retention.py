"""Which ended runs may go, decided over lines of the run table; the same for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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


def why_kept(
    newest_first: Iterable[RunInfo], session: str, before: int, begun: Mapping[str, str]
) -> dict[str, str]:
    """Why each run of a session was not removed, newest first.

    Args:
        newest_first: The runs that are there.
        session: Whose.
        before: Only what nobody wrote to since was to go.
        begun: Sessions that were forked from a run, by the run.
    """
    lines = list(newest_first)
    forks = {line.parent: line.run for line in reversed(lines) if line.parent}
    kept: dict[str, str] = {}
    later = ""
    for line in lines:
        if line.session != session:
            continue
        kept[line.run] = _why_kept(line, before, later, forks, begun)
        later = line.run
    return kept


def _why_kept(
    line: RunInfo, before: int, later: str, forks: Mapping[str, str], begun: Mapping[str, str]
) -> str:
    if line.status not in ENDED_VALUES:
        return f"it is {line.status}"
    if line.leased:
        return "it is being driven"
    if line.updated_at >= before:
        return "it was written to since"
    if line.unread:
        return "it has messages that nobody has read"
    if line.run in forks:
        return f"run {forks[line.run]} was forked from it"
    if begun.get(line.run, line.session) != line.session:
        return f"session {begun[line.run]} was forked from it"
    if later:
        return f"run {later} of the session stays, and goes on from it"
    return "nobody knows what came of one of its calls, or its journal cannot be read"
