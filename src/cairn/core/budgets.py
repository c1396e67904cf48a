"""Budgets over time: what all runs of a principal, an agent, a tenant or a store may use together.

A budget is a cap on money, tokens or tool calls within an hour, a day or a month of UTC. What
counts against it is folded from the journals (`core.spending`); this module holds the words and
the calendar. Money is whole millionths of a US dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

import msgspec

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr

Per = Literal["principal", "agent", "tenant", "store"]
Window = Literal["hour", "day", "month"]
Measure = Literal["calls", "tokens", "micro_usd"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
SCOPES = ("principal", "agent", "tenant")
"""What `only` can name."""

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
MOST = 1 << 60
"""No cap is higher, so that no sum leaves the integers of any store."""
NAME_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
NAME_LENGTH = 64
_EPOCH = date(1970, 1, 1).toordinal()

RowKey = tuple[str, str, int]
"""A counter: name of the budget, whose it is, and when its window begins."""


# ---------------------------------------------------------------- what is declared


class Only(Record):
    """Whose runs a budget counts, by one scope: any of these names."""

    scope: str
    names: tuple[str, ...]


class Cap(Record):
    """A budget as it stands in a store; None bounds nothing.

    Args:
        name: Unique in its store.
        per: Whose use is added up: each principal's, agent's or tenant's by itself, or all.
        window: How long until it begins anew, in UTC.
        micro_usd, tokens, calls: The most that may be used or reserved in one window.
        only: Counts only runs of these principals, agents or tenants.
    """

    name: str
    per: Per = "store"
    window: Window = "day"
    micro_usd: int | None = None
    tokens: int | None = None
    calls: int | None = None
    only: tuple[Only, ...] = ()

    def bound(self, measure: Measure) -> int | None:
        """The cap on one measure."""
        found: int | None = getattr(self, measure)
        return found


class Budget(Record):
    """What all runs together may use in a window of time.

    Args:
        per: `principal`, `agent` or `tenant`: each has this much for itself; `store`: all runs
            of the store share it.
        window: `hour`, `day` or `month`, in UTC.
        usd: US dollars at most, exact to a millionth.
        tokens: Input and output tokens at most, cached ones included.
        calls: Tool calls started at most.
        name: How it is called in lists and stops; by default `principal-day` and the like.
        only: Counts only some runs: `{"principal": "ann"}`, `{"agent": ["shop", "desk"]}`.

    Raises:
        ConfigError: a value is not usable, or nothing is bounded.
    """

    per: Per = "store"
    window: Window = "day"
    usd: Any = None
    tokens: int | None = None
    calls: int | None = None
    name: str = ""
    only: Mapping[str, str | Sequence[str]] = {}

    def __post_init__(self) -> None:
        self.cap()

    def cap(self) -> Cap:
        """The same, checked, as a store keeps it."""
        _one_of("per", self.per, get_args(Per))
        _one_of("window", self.window, get_args(Window))
        name = self.name or f"{self.per}-{self.window}"
        text = isinstance(name, str)
        if not text or not NAME_CHARS.issuperset(name) or len(name) > NAME_LENGTH:
            raise ConfigError(
                "budgets.name",
                f"{safe_repr(name)} is no name",
                "Use letters, digits, '.', '_' and '-'",
            )
        cap = Cap(
            name=name,
            per=self.per,
            window=self.window,
            micro_usd=None if self.usd is None else _micro_usd(self.usd),
            tokens=_whole("tokens", self.tokens),
            calls=_whole("calls", self.calls),
            only=_only(self.only),
        )
        if all(cap.bound(measure) is None for measure in MEASURES):
            raise ConfigError(f"budgets.{name}", "it bounds nothing", "Give usd, tokens or calls")
        return cap


def agents_in(caps: Iterable[Cap]) -> list[tuple[str, str]]:
    """The agents that budgets count alone: each with the name of the budget."""
    return [
        (cap.name, agent)
        for cap in caps
        for only in cap.only
        if only.scope == "agent"
        for agent in only.names
    ]


def caps_of(budgets: object) -> tuple[Cap, ...]:
    """The caps that budgets stand for, in their order.

    Raises:
        ConfigError: one is no `Budget`, or two have one name.
    """
    if isinstance(budgets, str | Budget) or not isinstance(budgets, Sequence):
        raise ConfigError(
            "Runtime.budgets", f"{safe_repr(budgets)} is no list", "Give a list of Budget"
        )
    caps: list[Cap] = []
    for budget in budgets:
        if not isinstance(budget, Budget):
            raise ConfigError(
                "Runtime.budgets", f"{safe_repr(budget)} is none", "Give cairn.Budget values"
            )
        cap = budget.cap()
        if any(other.name == cap.name for other in caps):
            raise ConfigError(
                "Runtime.budgets", f"two are called {cap.name!r}", "Give each a name= of its own"
            )
        caps.append(cap)
    return tuple(caps)


def _one_of(field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        fix = f"Use one of {', '.join(known)}"
        raise ConfigError(f"budgets.{field}", f"{safe_repr(value)} is unknown", fix)


def _whole(field: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ConfigError(
            f"budgets.{field}", f"{safe_repr(value)} is no bound", "Give a whole number, 0 or more"
        )
    return value


def _micro_usd(value: object) -> int:
    wrong = ConfigError(
        "budgets.usd",
        f"{safe_repr(value)} is no amount",
        "Give US dollars, 0 or more, as 5 or '0.25'",
    )
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise wrong
    try:
        amount = Decimal(str(value)) * 1_000_000
        whole = int(amount)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise wrong from error
    if whole != amount or not 0 <= whole <= MOST:
        raise wrong
    return whole


def _only(given: object) -> tuple[Only, ...]:
    if not isinstance(given, Mapping):
        raise ConfigError(
            "budgets.only", f"{safe_repr(given)} is no mapping", "Write {'agent': 'shop'}"
        )
    found: list[Only] = []
    for scope, names in given.items():
        _one_of("only", scope, SCOPES)
        several = names if isinstance(names, list | tuple | set | frozenset) else ()
        listed = (names,) if isinstance(names, str) else tuple(several)
        if not listed or not all(isinstance(each, str) for each in listed):
            raise ConfigError(
                "budgets.only", f"{safe_repr(names)} names nobody", "Give names as text"
            )
        found.append(Only(scope=scope, names=tuple(sorted(set(listed)))))
    return tuple(sorted(found, key=lambda only: only.scope))


# ---------------------------------------------------------------- the calendar


def start_of(window: Window, at: int) -> int:
    """When the window that holds the instant `at` began; all in microseconds since 1970, UTC."""
    if window == "hour":
        return at - at % HOUR_US
    if window == "day":
        return at - at % DAY_US
    day = date.fromordinal(_EPOCH + at // DAY_US)
    return (day.replace(day=1).toordinal() - _EPOCH) * DAY_US


def end_of(window: Window, at: int) -> int:
    """When the window that holds the instant `at` ends and the next one begins."""
    start = start_of(window, at)
    if window == "hour":
        return start + HOUR_US
    if window == "day":
        return start + DAY_US
    return start_of("month", start + 31 * DAY_US)


def counted_alike(before: Sequence[Cap], after: Sequence[Cap]) -> frozenset[str]:
    """Names of the budgets whose counters mean the same, whatever their bounds are."""
    known = {cap.name: (cap.per, cap.window, cap.only) for cap in before}
    same = (cap for cap in after if known.get(cap.name) == (cap.per, cap.window, cap.only))
    return frozenset(cap.name for cap in same)


def told_from(caps: Sequence[Cap], now: int) -> int:
    """From when on counters are kept exactly: the window before the present one of each cap."""
    return min((start_of(c.window, start_of(c.window, now) - 1) for c in caps), default=now)


# ---------------------------------------------------------------- what is counted


class Spend(Record):
    """What was used in a window, and what is reserved beside it and not settled yet."""

    micro_usd: int = 0
    tokens: int = 0
    calls: int = 0
    held_micro_usd: int = 0
    held_tokens: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            micro_usd=self.micro_usd + other.micro_usd,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
            held_micro_usd=self.held_micro_usd + other.held_micro_usd,
            held_tokens=self.held_tokens + other.held_tokens,
        )

    def at_least(self, other: Spend) -> Spend:
        """The same, with no less used than another says."""
        return Spend(
            micro_usd=max(self.micro_usd, other.micro_usd),
            tokens=max(self.tokens, other.tokens),
            calls=max(self.calls, other.calls),
            held_micro_usd=self.held_micro_usd,
            held_tokens=self.held_tokens,
        )

    def total(self, measure: Measure) -> int:
        """Used and reserved together: what a cap bounds."""
        held: int = 0 if measure == "calls" else getattr(self, f"held_{measure}")
        used: int = getattr(self, measure)
        return used + held

    @property
    def sound(self) -> bool:
        """Whether the numbers can be: none of them is below zero."""
        numbers: tuple[int, ...] = msgspec.structs.astuple(self)
        return min(numbers) >= 0


class Standing(Record):
    """How a budget stands now, for one of those it is counted for.

    Args:
        cap: The budget.
        key: Whose use it is, empty for all runs or when nobody has used anything yet.
        start, resets_at: When its window began, and when the next one begins.
        spend: What was used and what is reserved in it.
    """

    cap: Cap
    key: str
    start: int
    resets_at: int
    spend: Spend = Spend()


class Rest(Record):
    """What a budget has left in one measure, and the words for when that is not enough."""

    budget: str
    left: int
    bound: int
    used: int
    message: str


class Room(Record):
    """What budgets leave a request, as a hint to whoever decides; the store has the last word."""

    tokens: Rest | None = None
    micro_usd: Rest | None = None


def scoped(name: str, tenant: str) -> str:
    """The key of a principal, apart from anybody of the same id in another tenant."""
    if not tenant and not name.startswith("["):
        return name
    parts = [tenant, name] if tenant else [name]
    return msgspec.json.encode(parts).decode()


def shown(key: str) -> str:
    """A key as people read it: `acme/ann`."""
    if not key.startswith("["):
        return key
    try:
        return "/".join(msgspec.json.decode(key, type=list[str]))
    except msgspec.DecodeError:
        return key
