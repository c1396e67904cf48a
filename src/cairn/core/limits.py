"""Bounds on a run, what it has used, and what a request reserves before it is made."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr

SAFETY_TENTHS = 13
"""Estimated input is reserved at 1.3 times (law 7), written in tenths to stay in integers."""
MIN_OUTPUT_TOKENS = 256
"""A request that could answer in fewer tokens than this is not worth making."""

GREATEST = (1 << 63) - 1
"""The most that a bound may say: the greatest whole number that every store keeps."""


class Limits(Record):
    """The bounds of one run; every one has a default.

    Args:
        steps: Turns and tasks.
        calls: Tool calls started.
        calls_per_reply: Tool calls in one reply; a reply with more runs nothing.
        running_s: Running time in seconds, waits excluded.
        tokens: Input and output tokens, cached ones included.
        micro_usd: Money in millionths of a US dollar.
        errors_in_row: Turns in a row whose errors the model was told.
        no_progress: Turns without progress before the guard's first hint.
        depth: How deep runs may start child runs.
        fan_out: How many children may work at the same time.
    """

    steps: int = 50
    calls: int = 200
    calls_per_reply: int = 16
    running_s: int = 1800
    tokens: int = 2_000_000
    micro_usd: int = 5_000_000
    errors_in_row: int = 5
    no_progress: int = 3
    depth: int = 3
    fan_out: int = 8

    def __post_init__(self) -> None:
        for field in FIELDS:
            _check(field, getattr(self, field))

    def narrowed(self, other: Limits | Mapping[str, int]) -> Limits:
        """The stricter of the two, field by field; a mapping names only the fields to narrow.

        Raises:
            ConfigError: a name is no limit, or its value is no whole number of 0 or more.
        """
        named = {f: getattr(other, f) for f in FIELDS} if isinstance(other, Limits) else other
        _check_named(named)
        for field, bound in named.items():
            _check(field, bound)
        stricter = {f: min(getattr(self, f), bound) for f, bound in named.items()}
        return msgspec.structs.replace(self, **stricter)

    def changed(self, other: Limits | Mapping[str, int]) -> Limits:
        """The other bounds, or these with the fields a mapping names; they may be wider.

        Raises:
            ConfigError: as `narrowed`.
        """
        if isinstance(other, Limits):
            return other
        _check_named(other)
        for field, bound in other.items():
            _check(field, bound)
        return msgspec.structs.replace(self, **other)


FIELDS = Limits.__struct_fields__


def _check_named(limits: object) -> None:
    if not isinstance(limits, Mapping):
        fix = 'Give cairn.Limits, or a mapping as {"steps": 10}'
        raise ConfigError("limits", f"{safe_repr(limits)} are none", fix)


def _check(field: str, bound: object) -> None:
    if field not in FIELDS:
        raise ConfigError(f"limits.{field}", "there is no such limit", f"Use {', '.join(FIELDS)}")
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
        raise ConfigError(
            f"limits.{field}", f"{safe_repr(bound)} is no bound", "Give a whole number, 0 or more"
        )
    if bound > GREATEST:
        fix = f"Give a smaller one: it holds up to {GREATEST:,}"
        raise ConfigError(f"limits.{field}", "no journal keeps so large a number", fix)


class Usage(Record):
    """Tokens in disjoint buckets, and their cost in millionths of a US dollar."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    micro_usd: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, whatever their bucket."""
        return (
            self.input_tokens
            + self.cached_tokens
            + self.cache_write_tokens
            + self.output_tokens
            + self.reasoning_tokens
        )


class Rates(Record):
    """Price per million tokens, in millionths of a US dollar (so 1 USD is 1_000_000).

    Args:
        input: Tokens that were neither read from the provider's cache nor written to it.
        output: Tokens of the reply, reasoning included.
        cached: Tokens read from the cache; None prices them as `input`.
        cache_write: Tokens written to the cache; None prices them as `input`.

    Raises:
        ConfigError: a price is no whole number of 0 or more.
    """

    input: int = 0
    output: int = 0
    cached: int | None = None
    cache_write: int | None = None

    def __post_init__(self) -> None:
        for field in ("input", "output", "cached", "cache_write"):
            value = getattr(self, field)
            if value is not None:
                _check_rate(field, value)

    @property
    def dearest_input(self) -> int:
        """The most that a token of input can cost, whatever its bucket."""
        return max(self.input, self.cached or 0, self.cache_write or 0)

    def exact(self, usage: Usage) -> int:
        """What `usage` costs, in millionths of a micro-USD, so that nothing is rounded yet."""
        cached = self.input if self.cached is None else self.cached
        cache_write = self.input if self.cache_write is None else self.cache_write
        return (
            usage.input_tokens * self.input
            + usage.cached_tokens * cached
            + usage.cache_write_tokens * cache_write
            + (usage.output_tokens + usage.reasoning_tokens) * self.output
        )


class Tier(Rates, kw_only=True):
    """What a whole request costs, its output too, when its input has more than `above` tokens.

    All input counts towards `above`: fresh, cached and written to the cache.
    """

    above: int
    input: int
    output: int

    def __post_init__(self) -> None:
        super().__post_init__()
        above: object = self.above
        if isinstance(above, bool) or not isinstance(above, int) or above < 0:
            problem = f"{safe_repr(above)} is no size"
            raise ConfigError("price.tiers.above", problem, "Give a whole number of 0 or more")


class Price(Rates):
    """What a model costs: rates per million tokens, and dearer ones for long requests.

    Args:
        tiers: Rates that replace the others in requests with more input, in any order; the one
            with the highest `above` that a request exceeds prices all of it.
        version: Where the price comes from; it is recorded with each reply.

    Raises:
        ConfigError: a price is no whole number of 0 or more, or two tiers begin at one size.
    """

    tiers: tuple[Tier, ...] = ()
    version: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        tiers: object = self.tiers
        if not isinstance(tiers, list | tuple) or not all(isinstance(t, Tier) for t in tiers):
            fix = "Give a tuple of them, as (Tier(above=200_000, input=..., output=...),)"
            raise ConfigError("price.tiers", f"{safe_repr(tiers)} are no tiers", fix)
        if len({tier.above for tier in self.tiers}) < len(self.tiers):
            raise ConfigError("price.tiers", "two of them begin at one size", "Keep one of them")

    @property
    def free(self) -> bool:
        """Whether no token costs anything, whatever the request."""
        return not any(rates.dearest_input or rates.output for rates in (self, *self.tiers))

    def rates(self, input_tokens: int) -> Rates:
        """The rates of a request with this much input, counted over all input buckets."""
        exceeded = [tier for tier in self.tiers if tier.above < input_tokens]
        return max(exceeded, key=lambda tier: tier.above) if exceeded else self

    def dearest(self, input_tokens: int) -> tuple[int, int]:
        """The most an input and an output token can cost in a request of at most this input.

        A tier need not be dearer than what lies below it, so all that can apply are compared.
        """
        if not self.tiers:
            return self.dearest_input, self.output
        possible = (self, *(tier for tier in self.tiers if tier.above < input_tokens))
        return max(r.dearest_input for r in possible), max(r.output for r in possible)

    def cost(self, usage: Usage) -> int:
        """What one request with this `usage` costs, in millionths of a US dollar, rounded up once.

        More tokens never cost less as long as no tier is cheaper than what lies below it.
        """
        fed = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
        return -(-self.rates(fed).exact(usage) // 1_000_000)


def _check_rate(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(
            f"price.{field}",
            f"{safe_repr(value)} is no whole number of 0 or more",
            "Prices are micro-USD per million tokens: 1.25 USD is 1_250_000",
        )


FREE = Price()
WORST_CASE = Price(
    input=75_000_000,
    output=270_000_000,
    cached=75_000_000,
    cache_write=75_000_000,
    version="worst-case",
)
"""What an unknown price is counted at unless the deployment sets another (law 7).

No model that reads and writes text has a dearer rate in genai-prices, but for o1-pro, which costs
twice as much as the next; a test keeps it so.
"""


class Reservation(Record):
    """What a request may use at most, set aside before it is made."""

    input_tokens: int
    output_tokens: int
    micro_usd: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def reserve(
    *, input_tokens: int, max_output: int, price: Price, tokens_left: int, micro_usd_left: int
) -> Reservation | str:
    """Set aside what a request may use, or name the limit that is reached.

    Input is reserved at its dearest bucket, and both sides at the dearest tier that the guarded
    input can reach: a request that stays within the tokens reserved never costs more than the
    money reserved. The output limit is lowered until the reservation fits the rest; under
    `MIN_OUTPUT_TOKENS` the limit counts as reached.
    """
    guarded = -(-input_tokens * SAFETY_TENTHS // 10)
    room = tokens_left - guarded
    if room < MIN_OUTPUT_TOKENS:
        return "tokens"
    output = min(max_output, room)
    input_price, output_price = price.dearest(guarded)
    input_cost = -(-guarded * input_price // 1_000_000)
    if output_price > 0:
        affordable = (micro_usd_left - input_cost) * 1_000_000 // output_price
        if affordable < MIN_OUTPUT_TOKENS:
            return "micro_usd"
        output = min(output, affordable)
    elif input_cost > micro_usd_left:
        return "micro_usd"
    cost = input_cost + -(-output * output_price // 1_000_000)
    return Reservation(input_tokens=guarded, output_tokens=output, micro_usd=cost)


def estimate_tokens(text: str) -> int:
    """A careful guess of how many tokens a text is: four Latin letters or one wide letter each."""
    if text.isascii():
        return len(text) // 4 + 1
    wide = sum(1 for ch in text if ch > "\u2e7f")
    return wide + (len(text) - wide) // 3 + 1
