"""What a request costs is what the price data says, to the micro-USD, and never a guess."""

import contextlib
import functools
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any

import genai_prices
import pytest
from genai_prices import data_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)
from hypothesis import given
from hypothesis import strategies as st

from cairn import Price, Usage
from cairn.core.limits import WORST_CASE
from cairn.models.prices import find_price, find_window, why_unknown

USD = 1_000_000
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
VERSION = f"genai-prices {genai_prices.__version__}"
OURS = {"openai", "anthropic", "google", "deepseek", "groq", "mistral", "openrouter"}
OURS |= {"together", "fireworks", "x-ai", "azure", "cohere"}


def data() -> Iterator[tuple[str, ModelInfo]]:
    for provider in data_snapshot.get_snapshot().providers:
        for model in provider.models:
            yield provider.id, model


def conditional(model: ModelInfo) -> list[tuple[Any, ModelPrice]]:
    if isinstance(model.prices, ModelPrice):
        return [(None, model.prices)]
    return [(c.constraint, c.prices) for c in model.prices]


def by_the_hour(model: ModelInfo) -> bool:
    return any(isinstance(c, TimeOfDateConstraint) for c, _ in conditional(model))


def sold_as(provider: str, model: ModelInfo) -> str:
    """A name that finds the model: its id, or the first one that the data matches it by."""
    names = [model.id, *re.findall(r"(?:equals|starts_with|contains)='([^']+)'", str(model.match))]
    return next((n for n in names if "no model" not in why_unknown(provider, n)), model.id)


@functools.cache
def priced() -> tuple[tuple[str, str, Price], ...]:
    """Every model of the data that has one price all day, as we know it."""
    named = [(p, sold_as(p, model)) for p, model in data() if not by_the_hour(model)]
    found = [(provider, name, find_price(provider, name, now=NOON)) for provider, name in named]
    return tuple((provider, name, price) for provider, name, price in found if price is not None)


def theirs(provider: str, name: str, usage: Usage, at: datetime = NOON) -> Decimal:
    """What the library itself makes of it, in micro-USD; its input includes the cached tokens."""
    given = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens + usage.reasoning_tokens,
    )
    found = genai_prices.calc_price(given, name, provider_id=provider, genai_request_timestamp=at)
    return found.total_price * USD


def rounded_up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


def usage(fresh: int, cached: int, written: int, said: int, thought: int = 0) -> Usage:
    return Usage(
        input_tokens=fresh,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=said,
        reasoning_tokens=thought,
    )


# ---------------------------------------------------------------- the same as the library

USAGES = (
    usage(1_000, 0, 0, 100),
    usage(500, 500, 0, 60, 40),
    usage(2_000, 180_000, 18_001, 3_000),
    usage(1, 0, 0, 0),
)


@pytest.mark.parametrize("spent", USAGES, ids=repr)
def test_every_model_of_the_data_costs_what_the_library_says_to_the_micro_usd(
    spent: Usage,
) -> None:
    off = [
        (provider, name)
        for provider, name, price in priced()
        if price.cost(spent) != rounded_up(theirs(provider, name, spent))
    ]
    assert off == []
    assert len(priced()) > 2_000
    assert {provider for provider, _, _ in priced()} >= OURS


COUNT = st.integers(0, 400_000)
FINER = 1
"""A few rates have digits below a micro-USD per million tokens; they are rounded up beforehand."""


@given(
    model=st.integers(0, 10**6),
    spent=st.builds(usage, COUNT, COUNT, COUNT, COUNT, COUNT),
    longer=st.integers(-1, 1),
)
def test_whatever_was_used_costs_what_the_library_says(
    model: int, spent: Usage, longer: int
) -> None:
    tiered = [entry for entry in priced() if entry[2].tiers]
    some = tiered if model % 2 else priced()
    provider, name, price = some[model % len(some)]
    edges = [usage(max(tier.above + longer, 0), 0, 0, 10) for tier in price.tiers]
    for each in (spent, *edges):
        assert 0 <= price.cost(each) - rounded_up(theirs(provider, name, each)) <= FINER


LONG = {
    ("google", "gemini-2.5-pro"): (200_000, (1_250_000, 10_000_000), (2_500_000, 15_000_000)),
    ("anthropic", "claude-sonnet-4-5"): (200_000, (3_000_000, 15_000_000), (6_000_000, 22_500_000)),
    ("openrouter", "qwen/qwen-plus"): (256_000, (260_000, 780_000), (780_000, 2_340_000)),
}


@pytest.mark.parametrize("named", LONG, ids=":".join)
def test_a_long_request_pays_the_dearer_rate_for_all_of_its_tokens(named: tuple[str, str]) -> None:
    above, below, beyond = LONG[named]
    price = find_price(*named, now=NOON)
    assert price is not None
    short, long = usage(above, 0, 0, USD), usage(above + 1, 0, 0, USD)
    assert price.cost(short) == -(-(above * below[0] + USD * below[1]) // USD)
    assert price.cost(long) == -(-((above + 1) * beyond[0] + USD * beyond[1]) // USD)
    mostly_cached = usage(1, above, 0, USD)
    assert price.cost(mostly_cached) == rounded_up(theirs(*named, mostly_cached))
    assert price.rates(above + 1) == price.tiers[-1]


def test_no_tier_of_the_data_is_cheaper_than_what_lies_below_it() -> None:
    steps = [
        (lower, upper)
        for _, _, price in priced()
        for lower, upper in itertools.pairwise((price, *price.tiers))
    ]
    assert steps
    for lower, upper in steps:
        for bucket in ("input", "output", "cached", "cache_write"):
            assert getattr(lower, bucket) <= getattr(upper, bucket)


def test_thinking_is_never_dearer_than_the_output_it_is_priced_as() -> None:
    for _, model in data():
        for _, price in conditional(model):
            if price.output_reasoning_mtok is not None:
                assert price.output_reasoning_mtok <= price.output_mtok


def test_cached_tokens_cost_the_input_rate_where_the_data_has_none_for_them() -> None:
    price = find_price("openai", "o1-pro")
    assert price is not None
    assert price.cached == price.cache_write == price.input == 150 * USD


# ---------------------------------------------------------------- the worst case


def every_rate(model: ModelInfo, *keys: str) -> Iterator[Decimal]:
    """Whatever a model ever cost or will, at every tier and hour."""
    for _, price in conditional(model):
        if price.input_mtok is None or price.output_mtok is None:
            continue
        stated = [found for key in keys if (found := getattr(price, key)) is not None]
        for rate in stated[:1]:
            if isinstance(rate, TieredPrices):
                yield from (rate.base, *(tier.price for tier in rate.tiers))
            else:
                yield rate


BUCKETS = {
    "input": ("input_mtok",),
    "output": ("output_mtok",),
    "cached": ("cache_read_mtok", "input_mtok"),
    "cache_write": ("cache_write_1h_mtok", "cache_write_mtok", "input_mtok"),
}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_unknown_price_is_counted_at_no_less_than_the_dearest_model_of_the_data(
    bucket: str,
) -> None:
    rates = {
        (rate * USD, provider, model.id)
        for provider, model in data()
        for rate in every_rate(model, *BUCKETS[bucket])
        if not model.id.endswith("o1-pro")  # known to the data, so never counted as unknown
    }
    assert len(rates) > 1_000
    assert max(rates)[0] <= getattr(WORST_CASE, bucket), max(rates)
    assert WORST_CASE.tiers == ()


# ---------------------------------------------------------------- names


def test_a_dated_name_costs_what_its_model_costs_and_the_version_is_kept() -> None:
    assert find_price("openai", "gpt-4o-2024-08-06", now=NOON) == Price(
        input=2_500_000, output=10_000_000, cached=1_250_000, cache_write=2_500_000, version=VERSION
    )
    assert find_price("openai", "gpt-4o", now=NOON) == find_price(
        "openai", "gpt-4o-2024-08-06", now=NOON
    )
    assert find_price("anthropic", "claude-sonnet-4-5-20250929") == find_price(
        "anthropic", "claude-sonnet-4-5"
    )


SAME = (("openai-responses", "openai", "gpt-4o"), ("xai", "x-ai", "grok-4"))


@pytest.mark.parametrize(("prefix", "provider", "model"), SAME)
def test_our_prefixes_find_the_provider_they_stand_for(
    prefix: str, provider: str, model: str
) -> None:
    price = find_price(prefix, model)
    assert price is not None
    assert price == find_price(provider, model)


def test_a_reseller_is_priced_by_its_own_list() -> None:
    at_home = find_price("anthropic", "claude-sonnet-4-5", now=NOON)
    resold = find_price("openrouter", "anthropic/claude-sonnet-4.5", now=NOON)
    assert at_home is not None
    assert resold is not None
    assert (resold.input, resold.output) == (at_home.input, at_home.output)
    assert find_price("anthropic", "anthropic/claude-sonnet-4.5:batch") is None


def test_a_model_sold_for_nothing_has_a_price_of_nothing() -> None:
    price = find_price("openrouter", "meta-llama/llama-3.3-70b-instruct:free")
    assert price == Price(cached=0, cache_write=0, version=VERSION)
    assert price is not None
    assert price.free


UNKNOWN = {
    "a model": ("openai", "gpt-99", "", "no model 'gpt-99' of openai"),
    "no model": ("openai", "", "", "no model '' of openai"),
    "a longer name": ("openai", "gpt-4o-of-mine", "", "no model 'gpt-4o-of-mine'"),
    "a fine-tune": ("openai", "ft:gpt-4o:org::id", "", "no model 'ft:gpt-4o:org::id'"),
    "a provider": ("acme", "gpt-4o", "", "no provider 'acme'"),
    "a name like a provider's": ("my-openai", "gpt-4o", "", "no provider 'my-openai'"),
    "one's own server": ("ollama", "llama3", "http://127.0.0.1:11434/v1", "no provider at"),
    "a server without address": ("vllm", "qwen3", "", "no provider 'vllm'"),
    "a local file": ("local", "models/tiny.gguf", "", "no provider 'local'"),
    "an address": ("openai", "gpt-4o", "https://llm.example.net/v1", "at llm.example.net"),
    "half an address": ("openai", "gpt-4o", "https://[", "at such an address"),
    "a model that only reads": ("openai", "text-embedding-3-small", "", "input and its output"),
    "a fee for each request": ("perplexity", "sonar", "", "each request"),
    "an entry without a price": ("google", "gemma-3", "", "no price for it"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_data_does_not_know_is_unknown_with_a_reason_and_never_free(name: str) -> None:
    provider, model, base_url, reason = UNKNOWN[name]
    assert find_price(provider, model, base_url) is None
    assert reason in why_unknown(provider, model, base_url)


def test_what_is_known_needs_no_reason() -> None:
    assert why_unknown("openai", "gpt-4o") == ""


def test_a_fine_tune_that_the_data_knows_has_its_own_price() -> None:
    tuned = find_price("openai", "ft:gpt-4o-mini-2024-07-18:org::id")
    plain = find_price("openai", "gpt-4o-mini")
    assert tuned is not None
    assert plain is not None
    assert tuned.input > plain.input


def test_the_window_of_a_model_comes_from_the_same_data_and_is_0_where_it_says_none() -> None:
    assert find_window("openai", "gpt-4o") == 128_000
    assert find_window("openai", "openai/gpt-4o", "https://openrouter.ai/api/v1") == 128_000
    assert find_window("openai", "gpt-99") == find_window("acme", "gpt-4o") == 0
    silent = next(m.id for p, m in data() if p == "openai" and m.context_window is None)
    assert find_window("openai", silent) == 0


# ---------------------------------------------------------------- addresses

SERVED = {
    "https://api.openai.com/v1": ("openai", "gpt-4o", "openai", "gpt-4o"),
    "https://API.openai.com:443/v1/": ("openai", "gpt-4o", "openai", "gpt-4o"),
    "https://res.openai.azure.com/openai": ("openai", "gpt-4o", "azure", "gpt-4o"),
    "https://openrouter.ai/api/v1": ("openai", "openai/gpt-4o", "openrouter", "openai/gpt-4o"),
    "https://generativelanguage.googleapis.com/v1beta": (
        ("google", "gemini-2.5-pro", "google", "gemini-2.5-pro")
    ),
    "https://api.moonshot.cn/v1": ("openai", "kimi-k2", "moonshotai", "kimi-k2"),
    "https://router.huggingface.co/groq/v1": (
        ("openai", "openai/gpt-oss-120b", "huggingface_groq", "openai/gpt-oss-120b")
    ),
    "https://api.deepseek.com": ("openai", "deepseek-v4-pro", "deepseek", "deepseek-v4-pro"),
}


@pytest.mark.parametrize("base_url", SERVED)
def test_the_address_decides_whose_prices_hold(base_url: str) -> None:
    provider, model, seller, sold_as = SERVED[base_url]
    price = find_price(provider, model, base_url, now=NOON)
    assert price is not None
    assert price == find_price(seller, sold_as, now=NOON)


FALSE_FRIENDS = (
    "https://api.openai.com.example.net/v1",
    "https://api.openai.community/v1",
    "https://api.openai.com@example.net/v1",
    "https://example.net/?x=.googleapis.com",
    "https://example.net/https://api.openai.com",
    "https://api.moonshot.example.net/v1",
    "https://example.net/router.huggingface.co/groq",
    "http://api.openai.com/v1",
    "api.openai.com",
)


@pytest.mark.parametrize("base_url", FALSE_FRIENDS)
def test_an_address_that_only_looks_like_a_providers_has_no_price(base_url: str) -> None:
    for model in ("gpt-4o", "gemini-2.5-pro", "kimi-k2", "openai/gpt-oss-120b"):
        assert find_price("openai", model, base_url) is None


def test_a_reason_never_repeats_a_secret_of_the_address() -> None:
    reason = why_unknown("openai", "gpt-4o", "https://me:hunter2@llm.example.net/v1?key=hunter2")
    assert "llm.example.net" in reason
    assert "hunter2" not in reason


# ---------------------------------------------------------------- times


def test_a_price_by_the_hour_is_known_at_its_dearest_hour() -> None:
    hours = [NOON.replace(hour=0) + timedelta(minutes=30 * n) for n in range(48)]
    seen = 0
    for provider, model in data():
        price = find_price(provider, model.id, now=NOON)
        if not by_the_hour(model) or price is None:
            continue
        seen += 1
        for spent in USAGES:
            dearest = max(rounded_up(theirs(provider, model.id, spent, at)) for at in hours)
            assert price.cost(spent) == dearest
    assert seen >= 3


def test_a_new_price_holds_from_its_first_day() -> None:
    before = find_price("x-ai", "grok-4.20", now=datetime(2026, 4, 29, 23, 59, tzinfo=UTC))
    after = find_price("x-ai", "grok-4.20", now=datetime(2026, 4, 30, 0, 0, tzinfo=UTC))
    assert before is not None
    assert after is not None
    assert (before.input, before.output) == (2_000_000, 6_000_000)
    assert (after.input, after.output) == (1_250_000, 2_500_000)


@contextlib.contextmanager
def data_of(*models: ModelInfo, **fields: Any) -> Iterator[None]:
    """The application's own data in place of the library's."""
    sold = Provider(id="acme", name="Acme", api_pattern="https://acme", models=list(models))
    fields = {"providers": [sold], "from_auto_update": False, **fields}
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot(**fields))
    try:
        yield
    finally:
        data_snapshot.set_custom_snapshot(None)


def a_model(*prices: tuple[Any, ModelPrice]) -> ModelInfo:
    listed = [ConditionalPrice(constraint, prices=price) for constraint, price in prices]
    return ModelInfo(id="m", match=ClauseEquals("m"), prices=listed)


def usd(fed: int, said: int) -> ModelPrice:
    return ModelPrice(input_mtok=Decimal(fed), output_mtok=Decimal(said))


NIGHT = TimeOfDateConstraint(start_time=time(0), end_time=time(6))
EVENING = TimeOfDateConstraint(start_time=time(18), end_time=time(22))
TOMORROW = StartDateConstraint(start_date=date(2026, 12, 1))
YESTERDAY = StartDateConstraint(start_date=date(2026, 11, 29))
DAYS = {
    "cheap nights": (((None, usd(5, 9)), (NIGHT, usd(1, 2))), (5, 9)),
    "each side at another hour": (((None, usd(5, 1)), (NIGHT, usd(1, 9))), (5, 9)),
    "two times of the day": (((None, usd(5, 5)), (NIGHT, usd(7, 1)), (EVENING, usd(1, 8))), (7, 8)),
    "what was replaced": (((None, usd(9, 9)), (YESTERDAY, usd(4, 4)), (NIGHT, usd(1, 1))), (4, 4)),
    "what is to come": (((None, usd(4, 4)), (TOMORROW, usd(9, 9))), (4, 4)),
    "no general one": (((TOMORROW, usd(6, 6)), (NIGHT, usd(1, 1))), (6, 6)),
}


@pytest.mark.parametrize("name", DAYS)
def test_of_all_prices_that_hold_during_the_day_the_dearest_is_taken(name: str) -> None:
    prices, (fed, said) = DAYS[name]
    with data_of(a_model(*prices)):
        found = find_price("acme", "m", now=NOON)
    assert found is not None
    assert (found.input, found.output) == (fed * USD, said * USD)


# ---------------------------------------------------------------- the package


def test_without_the_package_every_price_is_unknown_and_the_reason_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert find_price("openai", "gpt-4o") is None
    assert "genai-prices is not installed" in why_unknown("openai", "gpt-4o")


def test_data_updated_by_the_application_is_used_and_named() -> None:
    with data_of(a_model((None, usd(1, 2))), from_auto_update=True, timestamp=NOON):
        price = find_price("acme", "m")
    assert price is not None
    assert price.version == f"{VERSION} updated 2026-11-30"


ALONE = """
import sys

def no_network(event, args):
    if event.startswith("socket."):
        raise PermissionError(event)

sys.addaudithook(no_network)
import cairn
from cairn.models.prices import find_price
assert cairn.Price and "genai_prices" not in sys.modules
assert find_price("openai", "gpt-4o").input == 2_500_000
assert "genai_prices" in sys.modules
"""


def test_prices_are_found_without_a_network_and_loaded_on_first_use_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
