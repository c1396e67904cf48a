"""The events that asked people and those that answered, found from the end of a journal.

What waits was asked in a run's last turn. So the end of a journal is read first, and more of it
only while something is not found: a list of what waits folds no journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from cairn.core import events as ev
from cairn.core.index import Pending
from cairn.core.requests import Request, number_of, requests_of
from cairn.core.state import RunState
from cairn.core.terms import unmet
from cairn.errors import CorruptJournal, UnknownRun
from cairn.ports import Store

TAIL = 64
"""How many events at the end of a journal are looked at first."""
HOW: dict[type[ev.Event], str] = {
    ev.ApprovalGranted: "granted",
    ev.ApprovalDenied: "denied",
}


async def requests(store: Store, found: Sequence[Pending]) -> list[Request]:
    """What waits, each with who asks, why, and on what terms; settled ones are left out.

    A run whose journal cannot be read is listed with what its index row says.
    """
    by_run: dict[str, list[Pending]] = {}
    for item in found:
        by_run.setdefault(item.id.rpartition("/")[0], []).append(item)
    told: dict[str, Request] = {}
    for run, items in by_run.items():
        try:
            made = await _of_run(store, run, items)
        except UnknownRun:  # it was removed meanwhile
            continue
        except CorruptJournal as error:
            why = f"its journal cannot be read: {error}"
            bare = requests_of(items, None, ())
            made = tuple(msgspec.structs.replace(each, reason=why) for each in bare)
        told.update({each.id: each for each in made})
    return [told[item.id] for item in found if item.id in told]


async def _of_run(store: Store, run: str, items: Sequence[Pending]) -> tuple[Request, ...]:
    first = (await store.read(run, upto=1))[0].event
    wanted = {number_of(item) for item in items} - {0}

    def asks(entry: ev.Entry) -> bool:
        event = entry.event
        return isinstance(event, ev.ApprovalRequested | ev.InputRequested) and event.n in wanted

    asked = await _from_the_end(store, run, asks, len(wanted))
    return requests_of(items, first if isinstance(first, ev.RunCreated) else None, asked)


async def _from_the_end(
    store: Store, run: str, wanted: Callable[[ev.Entry], bool], many: int
) -> list[ev.Entry]:
    """The last `many` entries that are wanted, latest first; fewer if there are no more."""
    found: list[ev.Entry] = []
    upto, step = (await store.info(run)).head, TAIL
    while upto > 0 and len(found) < many:
        after = max(upto - step, 0)
        entries = await store.read(run, after=after, upto=upto)
        found += [entry for entry in reversed(entries) if wanted(entry)]
        upto, step = after, step * 4
    return found[:many]


async def decision(store: Store, run: str, n: int) -> tuple[ev.Entry | None, ev.Entry | None]:
    """The event that asked request `n`, and the yes or no it was given; None if there is none."""

    def about(entry: ev.Entry) -> bool:
        event = entry.event
        asks = isinstance(event, ev.ApprovalRequested | ev.ApprovalGranted | ev.ApprovalDenied)
        return asks and event.n == n

    asked: ev.Entry | None = None
    decided: ev.Entry | None = None
    for entry in await _from_the_end(store, run, about, 2):
        if isinstance(entry.event, ev.ApprovalRequested):
            asked = entry
        else:
            decided = entry
    return asked, decided


def missing(state: RunState, asked: ev.Entry | None, who: str, roles: Sequence[str]) -> str:
    """What a person lacks who would decide what `asked` asks for; empty for nothing."""
    if asked is None or not isinstance(asked.event, ev.ApprovalRequested):
        return ""
    spoke = {each for each, seq in state.voices.items() if seq < asked.seq}
    return unmet(asked.event.terms, who, roles, (spoke | {state.principal.id}) - {""})


def standing(decided: ev.Entry | None, who: str) -> str:
    """A decision that stands, in words: `was already granted by ann at 2026-11-30 12:19:02 UTC`."""
    if decided is None:
        return "was decided like this before"
    how = HOW.get(type(decided.event), "decided")
    by = "you" if decided.actor and decided.actor == who else decided.actor
    said = f" by {by}" if by else ""
    at = datetime.fromtimestamp(decided.at // 1_000_000, UTC)
    return f"was already {how}{said} at {at:%Y-%m-%d %H:%M:%S} UTC"
