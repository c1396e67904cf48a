"""What the events of a run charge to budgets: reserved before, settled after.

A model request is charged at its reservation until its outcome, a priced tool call at its price.
Both are settled in the window they were reserved in, however late the outcome comes: that window
had room for them, and the next one never promised any. A call is counted when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cairn.core import events as ev
from cairn.core.budgets import (
    MEASURES,
    Cap,
    Measure,
    Rest,
    Room,
    RowKey,
    Spend,
    end_of,
    scoped,
    shown,
    start_of,
)
from cairn.core.messages import Record
from cairn.core.moments import in_utc
from cairn.errors import BudgetReached, BudgetUnknown

MODEL = "model"
"""The key of the open model request's hold; calls have theirs under their id."""
RESERVING: frozenset[type[ev.Event]] = frozenset({ev.ModelRequested, ev.ToolStarted})
SPENDING: frozenset[type[ev.Event]] = frozenset(
    {
        *RESERVING,
        ev.ModelCompleted,
        ev.ModelFailed,
        ev.ToolCompleted,
        ev.ToolFailed,
        ev.ToolUnknown,
    }
)
"""The only kinds of event that charge anything."""
SPENDING_TYPES = tuple(sorted(kind.TYPE for kind in SPENDING))
RECOUNT = "Run `cairn budgets --rebuild`: it counts anew from the journals"


class Hold(Record):
    """Something reserved and not settled, and when it was reserved."""

    at: int
    tokens: int = 0
    micro_usd: int = 0


class Ledger(Record):
    """For whom a run is charged, and what it has reserved."""

    agent: str = ""
    principal: str = ""
    tenant: str = ""
    holds: dict[str, Hold] = {}


class Charge(Record):
    """A change of what stands in the window of `at`."""

    at: int
    spend: Spend
    reserves: bool = False


def ledger_of(created: ev.RunCreated) -> Ledger:
    """Whose run it is."""
    who = created.principal
    return Ledger(agent=created.agent, principal=who.id, tenant=who.tenant)


def spending_of(entries: Iterable[ev.Entry]) -> tuple[ev.Entry, ...]:
    """Those of the entries that charge something."""
    return tuple(entry for entry in entries if type(entry.event) in SPENDING)


def reserves(entries: Iterable[ev.Entry]) -> bool:
    """Whether one of the entries begins something that costs."""
    return any(type(entry.event) in RESERVING for entry in entries)


def charge(ledger: Ledger, entry: ev.Entry) -> tuple[Ledger, tuple[Charge, ...]]:
    """The ledger after an entry, and what it charges."""
    event = entry.event
    match event:
        case ev.ModelRequested(reserved=room):
            hold = Hold(at=entry.at, tokens=room.tokens, micro_usd=room.micro_usd)
            return _taken(ledger, MODEL, hold, calls=0)
        case ev.ModelCompleted(usage=usage) | ev.ModelFailed(usage=usage):
            return _settled(ledger, MODEL, entry.at, usage.tokens, usage.micro_usd)
        case ev.ToolStarted(call=call):
            hold = Hold(at=entry.at, micro_usd=event.micro_usd)
            return _taken(ledger, call, hold, calls=int(event.attempt == 1))
        case ev.ToolCompleted(call=call) | ev.ToolUnknown(call=call):
            return _settled(ledger, call, entry.at, 0, event.micro_usd)
        case ev.ToolFailed(call=call):
            return _settled(ledger, call, entry.at, 0, 0)
        case _:
            return ledger, ()


def _taken(ledger: Ledger, what: str, hold: Hold, calls: int) -> tuple[Ledger, tuple[Charge, ...]]:
    spend = Spend(calls=calls, held_tokens=hold.tokens, held_micro_usd=hold.micro_usd)
    if hold.tokens or hold.micro_usd:
        ledger = _with(ledger, {**ledger.holds, what: hold})
    return ledger, (Charge(at=hold.at, spend=spend, reserves=True),)


def _settled(
    ledger: Ledger, what: str, at: int, tokens: int, micro_usd: int
) -> tuple[Ledger, tuple[Charge, ...]]:
    holds = dict(ledger.holds)
    hold = holds.pop(what, None)
    if hold is None:
        if not tokens and not micro_usd:
            return ledger, ()
        return ledger, (Charge(at=at, spend=Spend(tokens=tokens, micro_usd=micro_usd)),)
    spend = Spend(
        tokens=tokens,
        micro_usd=micro_usd,
        held_tokens=-hold.tokens,
        held_micro_usd=-hold.micro_usd,
    )
    return _with(ledger, holds), (Charge(at=hold.at, spend=spend),)


def _with(ledger: Ledger, holds: dict[str, Hold]) -> Ledger:
    return Ledger(agent=ledger.agent, principal=ledger.principal, tenant=ledger.tenant, holds=holds)


# ---------------------------------------------------------------- against the caps


def key_of(cap: Cap, ledger: Ledger) -> str | None:
    """Under which key a run counts for a cap; None when it does not count at all."""
    for only in cap.only:
        if getattr(ledger, only.scope) not in only.names:
            return None
    match cap.per:
        case "principal":
            return scoped(ledger.principal, ledger.tenant)
        case "agent":
            return ledger.agent
        case "tenant":
            return ledger.tenant
        case "store":
            return ""


def weigh(
    caps: Sequence[Cap],
    ledger: Ledger,
    entries: Iterable[ev.Entry],
    row: Callable[[RowKey], Spend],
) -> tuple[Ledger, dict[RowKey, Spend]]:
    """What entries that are about to be appended change: the ledger, and the counters.

    Args:
        row: The counter of this key as it stands.

    Raises:
        BudgetReached: they begin something that a cap has no room for. An outcome is never
            refused: what was begun is charged, even beyond the cap.
        BudgetUnknown: a counter that must have room cannot be right.
    """
    counted = [(cap, key) for cap in caps if (key := key_of(cap, ledger)) is not None]
    changed: dict[RowKey, Spend] = {}
    for entry in entries:
        ledger, charges = charge(ledger, entry)
        for each in charges:
            places = [(cap, (cap.name, key, start_of(cap.window, each.at))) for cap, key in counted]
            for _, at in places:
                changed[at] = (changed[at] if at in changed else row(at)) + each.spend
            if each.reserves:
                _admit(each.spend, [(cap, at, changed[at]) for cap, at in places])
    return ledger, changed


def _admit(wanted: Spend, places: Sequence[tuple[Cap, RowKey, Spend]]) -> None:
    """Look whether every counter, with what is wanted in it, is still within its cap."""
    over: tuple[Measure, Rest] | None = None
    room: dict[Measure, Rest] = {}
    for cap, at, after in places:
        if not after.sound:
            raise BudgetUnknown(f"the counter of budget {cap.name} is damaged. {RECOUNT}")
        for measure in MEASURES:
            bound, more = cap.bound(measure), wanted.total(measure)
            if bound is None or more <= 0:
                continue
            rest = _rest(cap, at, measure, bound, after.total(measure) - more)
            if rest.left < more and over is None:
                over = measure, rest
            if measure not in room or rest.left < room[measure].left:
                room[measure] = rest
    if over is not None:
        measure, rest = over
        raise BudgetReached(
            rest.message,
            budget=rest.budget,
            measure=measure,
            bound=rest.bound,
            used=rest.used,
            room=Room(tokens=room.get("tokens"), micro_usd=room.get("micro_usd")),
        )


def _rest(cap: Cap, at: RowKey, measure: Measure, bound: int, used: int) -> Rest:
    _, key, start = at
    whose = f" of {shown(key)}" if key else ""
    resets = in_utc(end_of(cap.window, start), "%Y-%m-%d %H:%M UTC")
    return Rest(
        budget=cap.name,
        left=bound - used,
        bound=bound,
        used=used,
        message=(
            f"budget {cap.name}{whose}: {amount(measure, used)} of {amount(measure, bound)} "
            f"are used or reserved in this {cap.window}, and what comes next may need more than "
            f"the rest; it begins anew at {resets}"
        ),
    )


def amount(measure: Measure, value: int) -> str:
    """A number with its unit: `4.2 USD`, `1,200 tokens`, `7 calls`."""
    if measure != "micro_usd":
        return f"{value:,} {measure[:-1] if value == 1 else measure}"
    whole, part = divmod(abs(value), 1_000_000)
    sign = "-" if value < 0 else ""
    cents = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole:,}.{cents} USD"
