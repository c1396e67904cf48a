"""The events that asked people and those that answered, found from the end of a journal.

What waits was asked in a run's last turn. So the end of a journal is read first, and more of it
only while something is not found: a list of what waits folds no journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cairn.core import events as ev
from cairn.core.decisions import ALREADY, Approve, Deny
from cairn.core.index import Pending
from cairn.core.messages import calls_of
from cairn.core.moments import in_utc
from cairn.core.requests import Request, number_of, requests_of
from cairn.core.state import RunState
from cairn.core.terms import unmet
from cairn.engine.load import load
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
    numbers = {number_of(item) for item in items} - {0}
    calls = {item.call for item in items if number_of(item)} - {""}

    def tells(entry: ev.Entry) -> bool:
        """Whether it asked, redirected one of the calls, or is the turn that made one."""
        match entry.event:
            case ev.ApprovalRequested(n=n) | ev.InputRequested(n=n):
                return n in numbers
            case ev.ToolRedirected(call=call):
                return call in calls
            case turn if isinstance(turn, ev.Turn):
                return any(part.id in calls for part in calls_of(turn.parts))
        return False

    def whole(found: Sequence[ev.Entry]) -> bool:
        asked = {getattr(entry.event, "n", 0) for entry in found}
        made = {p.id for e in found for p in calls_of(getattr(e.event, "parts", ()))}
        return numbers <= asked and calls <= made

    told = reversed(await _from_the_end(store, run, tells, whole))
    return requests_of(items, first if isinstance(first, ev.RunCreated) else None, told)


async def _from_the_end(
    store: Store,
    run: str,
    wanted: Callable[[ev.Entry], bool],
    enough: Callable[[Sequence[ev.Entry]], bool],
) -> list[ev.Entry]:
    """The last entries that are wanted, latest first, until it is enough or there are no more."""
    found: list[ev.Entry] = []
    upto, step = (await store.info(run)).head, TAIL
    while upto > 0 and not enough(found):
        after = max(upto - step, 0)
        entries = await store.read(run, after=after, upto=upto)
        found += [entry for entry in reversed(entries) if wanted(entry)]
        upto, step = after, step * 4
    return found


async def decision(store: Store, run: str, n: int) -> tuple[ev.Entry | None, ev.Entry | None]:
    """The event that asked request `n`, and the yes or no it was given; None if there is none."""

    def about(entry: ev.Entry) -> bool:
        event = entry.event
        asks = isinstance(event, ev.ApprovalRequested | ev.ApprovalGranted | ev.ApprovalDenied)
        return asks and event.n == n

    asked: ev.Entry | None = None
    decided: ev.Entry | None = None
    both = await _from_the_end(store, run, about, lambda found: len(found) > 1)
    for entry in both[:2]:
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
    return f"was already {how} {by_whom(decided, who)}"


def by_whom(decided: ev.Entry, who: str) -> str:
    """Whose decision it is and since when, in words: `by ann at 2026-11-30 12:19:02 UTC`."""
    by = "you" if decided.actor and decided.actor == who else decided.actor
    at = in_utc(decided.at, "%Y-%m-%d %H:%M:%S UTC")
    return f"{f'by {by} ' if by else ''}at {at}"


async def otherwise(store: Store, run: str, wanted: Approve | Deny, why: str) -> str:
    """Why a decision was refused, and of one that was taken before: by whom, when, what is left."""
    _, decided = await decision(store, run, wanted.n)
    if decided is None or ALREADY not in why:
        return why
    state = await load(store, run)
    return f"{why}: {by_whom(decided, wanted.by)}. {_instead(state, wanted.n, type(wanted))}"


def _instead(state: RunState, n: int, wanted: type[Approve | Deny]) -> str:
    """What can still be done where request `n` was decided otherwise than is wanted now."""
    call = next((each for each in state.calls.values() if each.approval == n), None)
    if state.end is not None or call is None or call.closed:
        return "What it asked about is over"
    if wanted is Approve:
        return f"Calls that have not started are changed by cairn edit {state.run}"
    stop = f"cairn cancel {state.run} ends the run"
    if call.attempt:
        return f"It has been started: {stop}"
    return f"It has not been started: cairn takeover {state.run} -m WHY stops the agent, {stop}"
