"""Prices of providers' models, from the data inside the genai-prices package; never the network.

The data says what a token of text costs. It does not know that a deployment pays for priority
service, a region or a provider's own tools (web search), and neither does a price found here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from cairn.core.limits import Price, Tier
from cairn.core.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

SAME_DATA = {
    "bedrock": "aws",
    "gemini": "google",
    "google-vertex": "google",
    "grok": "x-ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "vertex": "google",
    "xai": "x-ai",
}
"""Our provider prefix → the id in the data, where the two differ."""
BUCKETS = {
    "input": ("input_mtok",),
    "output": ("output_mtok",),
    "cached": ("cache_read_mtok", "input_mtok"),
    "cache_write": ("cache_write_mtok", "input_mtok"),
}
"""Our bucket → the keys of the data that price it: the first one the model has."""


def find_price(
    provider: str, model: str, base_url: str = "", *, now: datetime | None = None
) -> Price | None:
    """What a model costs today, or None when the data does not know.

    The first call of a process loads the data: 0.2 s of CPU, over 1 s where Python has not
    compiled it before. Call it off the event loop.
    A price that depends on the time of day is given at its dearest.

    Args:
        provider: Provider prefix, as in `openai:gpt-4o`.
        model: The model's name as the provider takes it, dated or not.
        base_url: Where requests go, when not to the provider's own address. It decides whose
            prices hold: an address the data does not know has none.
        now: The day the price is for; today by default.
    """
    found = _look_up(provider, model, base_url, now or datetime.now(UTC))
    return found if isinstance(found, Price) else None


def why_unknown(
    provider: str, model: str, base_url: str = "", *, now: datetime | None = None
) -> str:
    """Why `find_price` has no price, in a sentence; empty when it has one.

    Args:
        provider: As in `find_price`.
        model: As in `find_price`.
        base_url: As in `find_price`.
        now: As in `find_price`.
    """
    found = _look_up(provider, model, base_url, now or datetime.now(UTC))
    return found if isinstance(found, str) else ""


def near_models(provider: str, model: str) -> tuple[str, ...]:
    """Models of this provider in the data that are named nearly so, where it knows none so named.

    Args:
        provider: As in `find_price`.
        model: As in `find_price`.
    """
    if not isinstance(_entry(provider, model, ""), str):
        return ()
    try:
        from genai_prices import data_snapshot
    except ImportError:
        return ()
    providers = data_snapshot.get_snapshot().providers
    seller = _seller(providers, SAME_DATA.get(provider, provider), "")
    return () if seller is None else nearest(model, (each.id for each in seller.models))


def find_window(provider: str, model: str, base_url: str = "") -> int:
    """How many tokens a model takes, as the same data says; 0 when it does not.

    Args:
        provider: As in `find_price`.
        model: As in `find_price`.
        base_url: As in `find_price`.
    """
    entry = _entry(provider, model, base_url)
    return 0 if isinstance(entry, str) else entry.model.context_window or 0


class _Entry(NamedTuple):
    """A model of the data, who sells it, and which data it is."""

    model: Any
    seller: str
    version: str


def _entry(provider: str, model: str, base_url: str) -> _Entry | str:
    try:
        from genai_prices import __version__, data_snapshot
    except ImportError:
        return "the package genai-prices is not installed"
    version = f"genai-prices {__version__}"
    snapshot = data_snapshot.get_snapshot()
    if snapshot.from_auto_update:
        version += f" updated {snapshot.timestamp:%Y-%m-%d}"
    seller = _seller(snapshot.providers, SAME_DATA.get(provider, provider), base_url)
    if seller is None:
        where = f"at {_host(base_url) or 'such an address'}" if base_url else repr(provider)
        return f"{version} knows no provider {where}"
    found = seller.find_model(model, all_providers=snapshot.providers)
    if found is None:
        return f"{version} knows no model {model!r} of {seller.id}"
    return _Entry(found, seller.id, version)


def _look_up(provider: str, model: str, base_url: str, now: datetime) -> Price | str:
    entry = _entry(provider, model, base_url)
    if isinstance(entry, str):
        return entry
    prices = _of_the_day(entry.model, now)
    unfit = _unfit(entry.model.id, prices)
    if unfit:
        return f"{entry.version} has {model!r} of {entry.seller}, but {unfit}"
    return _dearest(prices, entry.version)


# ---------------------------------------------------------------- whose price


def _seller(providers: Iterable[Any], wanted: str, base_url: str) -> Any:
    """The provider of the data that is paid. Its own matching by words finds too many."""
    if base_url:
        return next((p for p in providers if _serves(p.api_pattern, base_url)), None)
    return next((p for p in providers if p.id == wanted), None)


def _serves(pattern: str, base_url: str) -> bool:
    """Whether a pattern of the data means this address and not only its beginning.

    Most patterns end with the host, and taken as prefixes they would let
    `api.openai.com.example.net` pass for OpenAI. A pattern with a path ends the host itself.
    """
    host = _host(base_url)
    if not host:
        return False
    if "/" in pattern.partition("://")[2]:
        return re.match(pattern, f"https://{host}{urlsplit(base_url).path}") is not None
    any_country = "[a-z]+" if pattern.endswith(r"\.") else ""
    return re.fullmatch(pattern + any_country, f"https://{host}") is not None


def _host(base_url: str) -> str:
    """The host of an https address, without user, password and port; empty for any other."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return ""
    return parts.hostname or "" if parts.scheme == "https" else ""


# ---------------------------------------------------------------- which price


def _of_the_day(model: Any, now: datetime) -> list[dict[str, Any]]:
    """All prices of a model that hold at some hour of the day, by the keys of the data.

    The data lists them from general to special, and the last one whose condition is met holds.
    """
    from genai_prices.types import TimeOfDateConstraint

    if not isinstance(model.prices, list):
        return [vars(model.prices)]
    found = []
    for conditional in reversed(model.prices):
        constraint = conditional.constraint
        by_hour = isinstance(constraint, TimeOfDateConstraint)
        if by_hour or constraint is None or constraint.active(now):
            found.append(vars(conditional.prices))
            if not by_hour:
                return found
    return [*found, vars(model.prices[0].prices)]


def _unfit(name: str, prices: list[dict[str, Any]]) -> str:
    """Why these prices cannot be said in tokens of text; empty when they can.

    An entry without any price is one that costs nothing or one whose price nobody entered. Only
    a name that ends in `:free` tells the two apart.
    """
    for price in prices:
        stated = {key for key, value in price.items() if value is not None}
        if not stated and not name.endswith(":free"):
            return "no price for it"
        if stated and not {"input_mtok", "output_mtok"} <= stated:
            return "no price for both its input and its output tokens"
        if "requests_kcount" in stated:
            return "each request has a price beside its tokens"
    return ""


def _dearest(prices: list[dict[str, Any]], version: str) -> Price:
    starts = {
        tier.start
        for price in prices
        for keys in BUCKETS.values()
        for key in keys
        for tier in getattr(price.get(key), "tiers", ())
    }
    return Price(
        **_rates(prices, -1),
        tiers=tuple(Tier(above=start, **_rates(prices, start)) for start in sorted(starts)),
        version=version,
    )


def _rates(prices: list[dict[str, Any]], above: int) -> dict[str, int]:
    """Micro-USD per million tokens in requests with just over `above` tokens of input."""
    return {
        bucket: max(_rate(price, keys, above) for price in prices)
        for bucket, keys in BUCKETS.items()
    }


def _rate(price: dict[str, Any], keys: tuple[str, ...], above: int) -> int:
    stated = next((v for key in keys if (v := price.get(key)) is not None), Decimal(0))
    usd = getattr(stated, "base", stated)
    for tier in getattr(stated, "tiers", ()):
        if tier.start <= above:
            usd = tier.price
    # Some rates of the data are finer than a micro-USD: rounded up, they are never too low.
    return int((usd * 1_000_000).to_integral_value(ROUND_CEILING))
