"""Making, listing and revoking standing grants: facts of the journal `store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from cairn.core import events as ev
from cairn.core.grants import NO_GRANTS as NONE_KNOWN
from cairn.core.grants import (
    Grants,
    PastAnswers,
    Read,
    asked_in,
    described,
    fold_grants,
    grant_of,
    made,
    revoked,
)
from cairn.core.messages import Record, clean
from cairn.errors import CorruptJournal, Moved, Refused, RunErased
from cairn.ports import Clock, RunFilter, Store

STORE = "store"
"""The journal of facts that belong to no run."""
TRIES = 50
"""How often a decision is taken anew that others were faster with."""
RUNS_LOOKED_AT = 200


class GrantShown(Record):
    """A grant as it would be, before anybody has made it.

    Args:
        scope: The grant.
        allows: Exactly what it allows, a line for each condition.
        past: What it would have answered of what people were asked in the newest runs.
        runs: How many runs were looked at.
        warnings: Where it would answer nothing, though it looks so.
    """

    scope: ev.GrantMade
    allows: tuple[str, ...]
    past: PastAnswers = PastAnswers()
    runs: int = 0
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        past = self.past
        answered = (
            f"of {past.asked} requests in the last {self.runs} runs it would have answered "
            f"{past.answered} (people granted {past.granted} and denied {past.denied} of them)"
        )
        return "\n".join([*self.allows, answered, *(f"warning: {w}" for w in self.warnings)])


async def grants_of(store: Store) -> Grants:
    """All grants ever made in a store, as they are now.

    Raises:
        StoreError: they cannot be read.
    """
    return fold_grants(NONE_KNOWN, await store.read(STORE))


async def uses_of(store: Store) -> tuple[Counter[int], int]:
    """How many calls each grant has answered in the newest runs, and how many runs these are.

    Raises:
        StoreError: they cannot be read.
    """
    used: set[tuple[int, str, str]] = set()
    runs = await store.runs(RunFilter(limit=RUNS_LOOKED_AT))
    for info in runs:
        try:
            entries = await store.read(info.run)
        except (CorruptJournal, RunErased):
            continue  # it says nothing that could be counted
        for event in (entry.event for entry in entries):
            if isinstance(event, ev.ToolStarted) and (n := grant_of(event.rule)):
                used.add((n, info.run, event.call))
    return Counter(n for n, _, _ in used), len(runs)


async def show_grant(
    store: Store,
    wanted: ev.GrantMade,
    now: int,
    warnings: tuple[str, ...] = (),
    read: Read | None = None,
) -> GrantShown:
    """A grant as it would be, with these warnings; nothing is written.

    Args:
        read: Validates the arguments of calls that were asked about, as is done before they start.

    Raises:
        Refused: it would be for dangerous calls. ConfigError: a part of it is not usable.
    """
    scope = made(NONE_KNOWN, wanted, now)
    past, runs = PastAnswers(), await store.runs(RunFilter(limit=RUNS_LOOKED_AT))
    for info in runs:
        try:
            entries = await store.read(info.run)
        except (CorruptJournal, RunErased):
            continue  # it says nothing that could be counted
        past = past.plus(asked_in(info.run, entries), scope, read)
    allows = tuple(described(scope))
    return GrantShown(scope=scope, allows=allows, past=past, runs=len(runs), warnings=warnings)


async def make_grant(store: Store, clock: Clock, wanted: ev.GrantMade, actor: str) -> int:
    """Let a grant stand from here on; its number.

    Raises:
        Refused: it would be for dangerous calls. ConfigError: a part of it is not usable.
    """
    event = await _written(store, clock, actor, lambda known, now: made(known, wanted, now))
    if not isinstance(event, ev.GrantMade):
        raise Refused("the grant could not be made")
    return event.n


async def revoke_grant(store: Store, clock: Clock, n: int, reason: str, actor: str) -> bool:
    """Let a grant answer nothing from here on; False when it had ended already.

    Raises:
        UnknownGrant: there is no such grant.
    """
    event = await _written(store, clock, actor, lambda known, _: revoked(known, n, clean(reason)))
    return event is not None


async def _written(
    store: Store,
    clock: Clock,
    actor: str,
    decide: Callable[[Grants, int], ev.Event | None],
) -> ev.Event | None:
    """Decide by the present journal, and write it if nobody was faster."""
    known = NONE_KNOWN
    for _ in range(TRIES):
        known = fold_grants(known, await store.read(STORE, after=known.head))
        event = decide(known, clock.now_us())
        if event is None:
            return None
        at = max(clock.now_us(), known.at)
        entry = ev.Entry(seq=known.head + 1, at=at, event=event, actor=clean(actor))
        try:
            await store.keep(known.head, [entry])
        except Moved:
            continue
        return event
    raise Moved(f"the journal {STORE!r} moves on all the time; try again")
