"""Every token is counted once, whichever way the provider counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import Price, Usage
from cairn.models.usage import disjoint

PRICE = Price(input=2_000_000, cached=200_000, cache_write=2_500_000, output=10_000_000)
COUNT = st.integers(-5, 10_000)


def test_cached_tokens_cost_the_same_inside_the_input_or_on_top_of_it() -> None:
    inside = disjoint(10_000, 8_000, 0, 100, 0, cached_inside=True)
    on_top = disjoint(2_000, 8_000, 0, 100, 0, cached_inside=False)
    assert inside == on_top
    assert inside == Usage(input_tokens=2_000, cached_tokens=8_000, output_tokens=100)
    assert PRICE.cost(inside) == 2_000 * 2 + 8_000 // 5 + 100 * 10


def test_tokens_written_to_the_cache_leave_the_input_bucket_as_cached_ones_do() -> None:
    inside = disjoint(10_000, 6_000, 3_000, 0, 0, cached_inside=True)
    assert inside == disjoint(1_000, 6_000, 3_000, 0, 0, cached_inside=False)
    assert (inside.input_tokens, inside.cache_write_tokens) == (1_000, 3_000)


def test_reasoning_is_taken_out_of_the_output_unless_it_comes_on_top() -> None:
    inside = disjoint(1, 0, 0, 100, 90, cached_inside=True)
    on_top = disjoint(1, 0, 0, 10, 90, cached_inside=True, reasoning_inside=False)
    assert inside == on_top == Usage(input_tokens=1, output_tokens=10, reasoning_tokens=90)


CONTRADICTIONS = {
    "more cached than there was input": ((100, 8_000, 0, 0, 0), (100, 8_000, 0, 0, 0)),
    "more cached and written than input": ((100, 60, 60, 0, 0), (100, 60, 60, 0, 0)),
    "more reasoning than output": ((0, 0, 0, 10, 90), (0, 0, 0, 10, 90)),
    "a negative cached": ((100, -8, 0, 0, 0), (100, 0, 0, 0, 0)),
    "negative everywhere": ((-1, -1, -1, -1, -1), (0, 0, 0, 0, 0)),
    "cached input but no input": ((0, 80, 0, 0, 0), (0, 80, 0, 0, 0)),
    "all of it cached": ((80, 80, 0, 0, 0), (0, 80, 0, 0, 0)),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_numbers_that_contradict_each_other_are_counted_at_their_most(name: str) -> None:
    stated, buckets = CONTRADICTIONS[name]
    found = disjoint(*stated, cached_inside=True)
    assert (
        found.input_tokens,
        found.cached_tokens,
        found.cache_write_tokens,
        found.output_tokens,
        found.reasoning_tokens,
    ) == buckets


@given(COUNT, COUNT, COUNT, COUNT, COUNT, st.booleans(), st.booleans())
def test_no_bucket_is_negative_and_no_stated_token_is_lost(
    fed: int, cached: int, written: int, said: int, thought: int, inside: bool, thought_inside: bool
) -> None:
    found = disjoint(
        fed, cached, written, said, thought, cached_inside=inside, reasoning_inside=thought_inside
    )
    buckets = (
        found.input_tokens,
        found.cached_tokens,
        found.cache_write_tokens,
        found.output_tokens,
        found.reasoning_tokens,
    )
    assert min(buckets) >= 0
    all_input, all_output = sum(buckets[:3]), sum(buckets[3:])
    assert all_input >= max(fed, cached, written)
    assert all_output >= max(said, thought)
    if inside and max(cached, 0) + max(written, 0) <= fed:
        assert all_input == fed
    if not inside:
        assert found.input_tokens == max(fed, 0)
    if thought_inside and max(thought, 0) <= said:
        assert all_output == said


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_contradiction_never_costs_less_than_either_reading_of_it(fed: int, cached: int) -> None:
    found = PRICE.cost(disjoint(fed, cached, 0, 0, 0, cached_inside=True))
    held = min(cached, fed)
    assert found >= PRICE.cost(Usage(input_tokens=fed - held, cached_tokens=held))
    if cached > fed:
        assert found == PRICE.cost(Usage(input_tokens=fed, cached_tokens=cached))
