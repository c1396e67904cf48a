"""Which ended runs may go, decided over lines of the run table; the same for every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cairn.core.events import Entry, RunContinued, RunCreated
from cairn.core.evolve import fold
from cairn.core.lifecycle import ENDED, CallStatus
from cairn.core.state import RunState
from cairn.errors import CairnError, RunErased
from cairn.ports import RunInfo

ENDED_VALUES = frozenset(status.value for status in ENDED)
_UNSETTLED = frozenset({CallStatus.STARTED, CallStatus.UNKNOWN, CallStatus.TAKEOVER})


class Ties:
    """What holds a run beside the later runs of its own session.

    Args:
        previous: The run that a run goes on from, by its own id; itself is none.
        places: The run that a session was put on, by the session, if another session's.
        sizes: How many runs of its own each of those sessions has.
    """

    def __init__(
        self, previous: Mapping[str, str], places: Mapping[str, str], sizes: Mapping[str, int]
    ) -> None:
        self._previous = previous
        self._places = places
        self._sizes = Counter(sizes)
        self._held = Counter(before for run, before in previous.items() if run != before)
        self._held.update(places.values())

    def hold(self, run: str) -> bool:
        """Whether a run, or a session that was put on it, goes on from this one and stays."""
        return self._held[run] > 0

    def gone(self, run: str, session: str) -> None:
        """A run goes, and with the last one of its session the place that this was put on."""
        before = self._previous.get(run, run)
        self._held[before] -= before != run
        if session in self._places:
            self._sizes[session] -= 1
            self._held[self._places[session]] -= not self._sizes[session]


def previous_in(entries: Iterable[Entry]) -> str | None:
    """The run that a run goes on from, as these entries of it say; None if they say nothing."""
    found = None
    for entry in entries:
        if isinstance(entry.event, RunCreated | RunContinued):
            previous = entry.event.previous
            found = previous.run if previous is not None else ""
    return found


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
    ties: Ties | None = None,
) -> list[str]:
    """The runs that may be removed, newest first, so that no step leaves a dangling reference.

    A run stays while it is driven, while it has messages that nobody has read, while a fork of it
    stays (its prefix is read from it), and while a later run of its session, a run of another
    session that goes on from it, or a session that was forked from it, stays.

    Args:
        session: Only runs of this one; empty for all.
        ties: Who goes on from whom; it is used up.
    """
    ties = ties or Ties({}, {}, {})
    chosen: list[str] = []
    parents: set[str] = set()
    sessions: set[str] = set()
    for line in newest_first:
        at_rest = line.status in ENDED_VALUES and line.updated_at < before and not line.leased
        if (
            at_rest
            and session in {"", line.session}
            and not ties.hold(line.run)
            and not (line.unread and line.session)  # nobody has read them yet
            and line.run not in parents
            and line.session not in sessions
            and is_settled(line.run)
        ):
            chosen.append(line.run)
            ties.gone(line.run, line.session)
            continue
        if line.parent:
            parents.add(line.parent)
        if line.session:
            sessions.add(line.session)
    return chosen
