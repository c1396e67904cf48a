"""Everything is bounded: reserved before the work, settled after, and the end names the bound."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.play import SECOND, Play, rules_of, tool, used

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import (
    MIN_OUTPUT_TOKENS,
    WORST_CASE,
    Limits,
    Price,
    Reservation,
    Tier,
    Usage,
    estimate_tokens,
    reserve,
)
from cairn.core.messages import Text
from cairn.core.outcomes import Called, Reply
from cairn.core.policy import Policy
from cairn.core.rules import ModelSpec
from cairn.errors import ConfigError, ErrorClass

USD = 1_000_000
PRICE = Price(input=2 * USD, output=10 * USD)


def room(**fields: Any) -> Reservation | str:
    given = {
        "input_tokens": 1_000,
        "max_output": 4_000,
        "price": PRICE,
        "tokens_left": 1_000_000,
        "micro_usd_left": 10 * USD,
        **fields,
    }
    return reserve(**given)


# ---------------------------------------------------------------- the formula


def test_the_defaults_are_those_the_design_promises() -> None:
    limits = Limits()
    assert (limits.steps, limits.calls, limits.calls_per_reply) == (50, 200, 16)
    assert (limits.running_s, limits.tokens, limits.micro_usd) == (1_800, 2_000_000, 5 * USD)
    assert (limits.errors_in_row, limits.no_progress) == (5, 3)
    assert (limits.depth, limits.fan_out) == (3, 8)


def test_a_request_reserves_its_input_with_a_margin_and_all_of_its_output() -> None:
    # price × (estimated input × 1.3 + max output): 1300 × 2 + 4000 × 10, per million tokens
    assert room() == Reservation(input_tokens=1_300, output_tokens=4_000, micro_usd=42_600)


CASES = {
    "tokens that suffice exactly": ({"tokens_left": 5_300}, (1_300, 4_000)),
    "one token too few lowers the output": ({"tokens_left": 5_299}, (1_300, 3_999)),
    "just enough for a short answer": ({"tokens_left": 1_556}, (1_300, 256)),
    "too few for a short answer": ({"tokens_left": 1_555}, "tokens"),
    "too few for the input": ({"tokens_left": 100}, "tokens"),
    "nothing left": ({"tokens_left": -5}, "tokens"),
    "money that suffices exactly": ({"micro_usd_left": 42_600}, (1_300, 4_000)),
    "less money lowers the output": ({"micro_usd_left": 42_599}, (1_300, 3_999)),
    "money for a short answer": ({"micro_usd_left": 5_160}, (1_300, 256)),
    "no money for a short answer": ({"micro_usd_left": 5_159}, "micro_usd"),
    "money already spent": ({"micro_usd_left": -1}, "micro_usd"),
    "tokens before money": ({"tokens_left": 0, "micro_usd_left": 0}, "tokens"),
    "a free model": ({"price": Price(), "micro_usd_left": 0}, (1_300, 4_000)),
    "only input is priced": (
        {"price": Price(input=2 * USD), "micro_usd_left": 2_600},
        (1_300, 4_000),
    ),
    "only input is priced, and too dear": (
        {"price": Price(input=2 * USD), "micro_usd_left": 2_599},
        "micro_usd",
    ),
    "an odd estimate is rounded up": ({"input_tokens": 1}, (2, 4_000)),
    "no input at all": ({"input_tokens": 0}, (0, 4_000)),
    "a model that only writes little": ({"max_output": 100}, (1_300, 100)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_output_is_lowered_to_what_is_left_and_under_256_the_limit_is_reached(
    name: str,
) -> None:
    fields, expected = CASES[name]
    found = room(**fields)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert isinstance(found, Reservation)
        assert (found.input_tokens, found.output_tokens) == expected


@given(
    input_tokens=st.integers(0, 10**6),
    max_output=st.integers(1, 10**5),
    prices=st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)),
    tokens_left=st.integers(-10, 10**7),
    micro_usd_left=st.integers(-10, 10**8),
)
def test_a_reservation_never_promises_more_than_is_left(
    input_tokens: int,
    max_output: int,
    prices: tuple[int, int],
    tokens_left: int,
    micro_usd_left: int,
) -> None:
    price = Price(input=prices[0], output=prices[1])
    found = reserve(
        input_tokens=input_tokens,
        max_output=max_output,
        price=price,
        tokens_left=tokens_left,
        micro_usd_left=micro_usd_left,
    )
    if isinstance(found, str):
        assert found in {"tokens", "micro_usd"}
        return
    assert found.tokens <= tokens_left
    assert found.micro_usd <= max(micro_usd_left, 0)
    assert found.output_tokens <= max_output
    assert found.output_tokens >= min(max_output, MIN_OUTPUT_TOKENS)
    assert found.input_tokens * 10 >= input_tokens * 13
    exact = Usage(input_tokens=found.input_tokens, output_tokens=found.output_tokens)
    assert price.cost(exact) <= found.micro_usd


def test_a_cost_is_rounded_up_and_counts_every_bucket_once() -> None:
    price = Price(input=3 * USD, output=15 * USD, cached=300_000, cache_write=3_750_000)
    assert price.cost(Usage(input_tokens=1)) == 3
    assert price.cost(Usage(cached_tokens=1)) == 1  # 0.3 of a millionth, rounded up
    cached = Usage(input_tokens=2_000, cached_tokens=8_000)
    assert price.cost(cached) == 6_000 + 2_400  # ten thousand prompt tokens, most of them cached
    assert price.cost(Usage(output_tokens=10, reasoning_tokens=10)) == 300
    assert cached.tokens == 10_000


def test_an_unknown_price_is_counted_at_the_worst_case() -> None:
    assert all(getattr(WORST_CASE, f) > 0 for f in ("input", "output", "cached", "cache_write"))


def test_narrowed_limits_are_the_stricter_of_the_two_field_by_field() -> None:
    narrowed = Limits(steps=10, tokens=500).narrowed(Limits(steps=20, calls=3))
    assert (narrowed.steps, narrowed.tokens, narrowed.calls) == (10, 500, 3)
    assert narrowed == Limits(steps=20, calls=3).narrowed(Limits(steps=10, tokens=500))


def test_a_mapping_narrows_or_changes_only_the_bounds_it_names() -> None:
    limits = Limits(steps=10, calls=5)
    assert limits.narrowed({"steps": 20, "calls": 2}) == Limits(steps=10, calls=2)
    assert limits.changed({"steps": 20}) == Limits(steps=20, calls=5)
    assert limits.changed(Limits()) == Limits()


@pytest.mark.parametrize("named", [{"step": 1}, {"steps": -1}, {"steps": 1.5}, {"steps": True}])
def test_a_bound_that_is_none_is_refused_by_its_name(named: Any) -> None:
    for narrow in (Limits().narrowed, Limits().changed):
        with pytest.raises(ConfigError, match=r"limits\.step"):
            narrow(named)
    if "steps" in named:
        with pytest.raises(ConfigError):
            Limits(**named)


@pytest.mark.parametrize(
    ("text", "at_least", "at_most"),
    [
        ("", 1, 1),
        ("one two three four", 4, 6),
        ("请把七号订单的四欧元退给客户。", 15, 16),
        ("こんにちは世界", 7, 8),
        ("안녕하세요", 5, 6),
        ("mixed 中文 text", 4, 8),
        ("Größenordnung", 4, 7),
        ("🙂" * 10, 10, 11),
    ],
)
def test_a_wide_letter_counts_as_a_token_and_a_latin_one_as_a_quarter(
    text: str, at_least: int, at_most: int
) -> None:
    assert at_least <= estimate_tokens(text) <= at_most


# ---------------------------------------------------------------- prices

LONG = Price(
    input=2 * USD,
    output=10 * USD,
    cached=USD // 2,
    cache_write=3 * USD,
    tiers=(
        Tier(above=2_000, input=8 * USD, output=40 * USD, cached=2 * USD, cache_write=12 * USD),
        Tier(above=1_000, input=4 * USD, output=15 * USD, cached=USD, cache_write=6 * USD),
    ),
)
BUCKETS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
RATE = st.integers(0, 10**9)
NO_RATE = st.none()
TIERS = st.lists(
    st.builds(
        Tier,
        above=st.integers(0, 3_000),
        input=RATE,
        output=RATE,
        cached=NO_RATE | RATE,
        cache_write=NO_RATE | RATE,
    ),
    max_size=3,
    unique_by=lambda tier: tier.above,
).map(tuple)
PRICES = st.builds(
    Price, input=RATE, output=RATE, cached=NO_RATE | RATE, cache_write=NO_RATE | RATE, tiers=TIERS
)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input_tokens=1_000, output_tokens=10), 2_000 + 100),
        (Usage(input_tokens=1_001, output_tokens=10), 4_004 + 150),
        (Usage(input_tokens=1, cached_tokens=1_000, output_tokens=10), 4 + 1_000 + 150),
        (Usage(cached_tokens=1_000, cache_write_tokens=1_001), 2_000 + 12_012),
        (Usage(input_tokens=2_001), 16_008),
        (Usage(input_tokens=1_000, output_tokens=5_000, reasoning_tokens=5_000), 102_000),
    ],
)
def test_all_input_decides_on_the_tier_and_the_tier_prices_the_whole_request(
    usage: Usage, cost: int
) -> None:
    assert LONG.cost(usage) == cost
    assert msgspec.structs.replace(LONG, tiers=LONG.tiers[::-1]).cost(usage) == cost


def test_cached_tokens_cost_as_much_as_others_unless_the_price_says_otherwise() -> None:
    usage = Usage(input_tokens=10, cached_tokens=20, cache_write_tokens=30)
    assert PRICE.cost(usage) == 60 * 2
    assert Price(input=2 * USD, cached=0, cache_write=0).cost(usage) == 20


def test_a_cost_is_rounded_up_once_for_the_whole_request() -> None:
    price = Price(input=1, output=1, cached=1)
    assert price.cost(Usage(input_tokens=1, cached_tokens=1, output_tokens=1)) == 1
    assert price.cost(Usage(input_tokens=500_000, output_tokens=500_000)) == 1
    assert price.cost(Usage(input_tokens=500_000, output_tokens=500_001)) == 2
    assert price.cost(Usage()) == 0


def test_a_price_is_free_only_if_no_tier_costs_anything() -> None:
    assert Price().free
    assert not Price(cache_write=1).free
    assert not Price(tiers=(Tier(above=10, input=0, output=1),)).free


@pytest.mark.parametrize(
    ("field", "build"),
    [
        ("price.input", lambda: Price(input=1.25)),  # type: ignore[arg-type]  # what users try
        ("price.output", lambda: Price(output=-1)),
        ("price.cached", lambda: Price(cached=True)),
        ("price.cache_write", lambda: Tier(above=1, input=1, output=1, cache_write=-1)),
        ("price.tiers.above", lambda: Tier(above=-1, input=1, output=1)),
        ("price.tiers", lambda: Price(tiers=(Tier(above=1, input=1, output=1),) * 2)),
    ],
)
def test_what_is_no_price_is_refused(field: str, build: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert refused.value.field == field


@given(price=PRICES, tokens=st.integers(0, 2_000), output=st.integers(256, 2_000), data=st.data())
def test_a_request_within_its_reserved_tokens_never_costs_more_than_the_money_reserved(
    price: Price, tokens: int, output: int, data: st.DataObject
) -> None:
    found = reserve(
        input_tokens=tokens,
        max_output=output,
        price=price,
        tokens_left=10**6,
        micro_usd_left=data.draw(st.integers(0, 10**6) | st.just(10**9)),
    )
    if isinstance(found, str):
        return
    fed = data.draw(st.integers(0, found.input_tokens) | st.just(found.input_tokens))
    cached = data.draw(st.integers(0, fed))
    written = data.draw(st.integers(0, fed - cached))
    said = data.draw(st.integers(0, found.output_tokens) | st.just(found.output_tokens))
    thought = data.draw(st.integers(0, said))
    used_up = Usage(
        input_tokens=fed - cached - written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=said - thought,
        reasoning_tokens=thought,
    )
    assert price.cost(used_up) <= found.micro_usd


@st.composite
def rising_prices(draw: st.DrawFn) -> Price:
    """Prices whose tiers are nowhere cheaper than what lies below them."""
    rates = [dict.fromkeys(("input", "output", "cached", "cache_write"), 0)]
    sizes = sorted(draw(st.sets(st.integers(0, 3_000), max_size=3)))
    for _ in range(len(sizes) + 1):
        rates.append({field: rate + draw(RATE) for field, rate in rates[-1].items()})
    tiers = [Tier(above=size, **r) for size, r in zip(sizes, rates[2:], strict=True)]
    return Price(**rates[1], tiers=tuple(draw(st.permutations(tiers))))


@given(
    price=rising_prices(),
    usage=st.builds(Usage, **dict.fromkeys(BUCKETS, st.integers(0, 2_000))),
    bucket=st.sampled_from((*BUCKETS, "reasoning_tokens")),
    more=st.integers(0, 2_000),
)
def test_more_tokens_never_cost_less_while_tiers_rise(
    price: Price, usage: Usage, bucket: str, more: int
) -> None:
    fuller = msgspec.structs.replace(usage, **{bucket: getattr(usage, bucket) + more})
    assert price.cost(usage) <= price.cost(fuller)


def test_a_cheaper_tier_makes_a_longer_request_cheaper_and_is_reserved_at_the_dearer_rate() -> None:
    odd = Price(input=4 * USD, output=USD, tiers=(Tier(above=1_000, input=2 * USD, output=USD),))
    assert odd.cost(Usage(input_tokens=1_001)) < odd.cost(Usage(input_tokens=1_000))
    found = room(price=odd, input_tokens=1_000)
    assert isinstance(found, Reservation)
    assert found.micro_usd == 1_300 * 4 + 4_000


@pytest.mark.parametrize(
    ("tokens", "micro_usd"),
    [
        (769, 1_000 * 3 + 4_000 * 10),  # guarded 1000: no tier is exceeded
        (770, 1_001 * 6 + 4_000 * 15),  # guarded 1001: input at what writing the cache costs
        (1_539, 2_001 * 12 + 4_000 * 40),
    ],
)
def test_a_reservation_takes_the_dearest_tier_and_bucket_its_input_can_reach(
    tokens: int, micro_usd: int
) -> None:
    found = room(price=LONG, input_tokens=tokens)
    assert isinstance(found, Reservation)
    assert found.micro_usd == micro_usd


# ---------------------------------------------------------------- in a run


def ended(play: Play) -> tuple[Status, str]:
    play.settle()
    assert play.state.end is not None, play.names
    reached = [e.limit for e in play.events if isinstance(e, ev.LimitReached)]
    assert play.state.end.limit in {"", *reached}
    return play.state.status, reached[0] if reached else ""


def test_a_run_stops_when_the_next_request_does_not_fit_and_says_which_limit() -> None:
    for limits, name in (
        (Limits(tokens=200), "tokens"),
        (Limits(micro_usd=100), "micro_usd"),
    ):
        play = Play(rules_of(models=(ModelSpec(name="m", price=PRICE),)), limits=limits)
        assert ended(play) == (Status.STOPPED, name)
        reached = play.last(ev.LimitReached)
        assert (reached.limit, reached.bound) == (name, getattr(limits, name))
        assert play.count(ev.ModelRequested) == 0


def test_the_last_request_gets_what_is_left_as_its_output_limit() -> None:
    play = Play(limits=Limits(tokens=1_000))
    reserved = play.ask().reserved
    assert reserved.tokens == 1_000
    assert reserved.output_tokens < 1_000


def test_overhead_of_instructions_and_tools_is_part_of_the_estimate() -> None:
    bare = Play(rules_of()).ask().reserved.input_tokens
    laden = Play(rules_of(overhead_tokens=1_000)).ask().reserved.input_tokens
    assert laden == bare + 1_300


def test_a_measured_input_corrects_the_estimate_upwards() -> None:
    play = Play(rules_of(tool("find")))
    before = play.state.tokens
    play.calls("find", usage=used(5_000))
    play.returns("c1")
    assert play.state.tokens > 5_000 > before
    assert play.ask().reserved.input_tokens >= 6_500


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_exactly_as_many_steps_are_taken_as_allowed(bound: int) -> None:
    play = Play(rules_of(tool("find")), limits=Limits(steps=bound, no_progress=50))
    for n in range(bound):
        play.one_turn("find", {"a": n}, n)
    assert ended(play) == (Status.STOPPED, "steps")
    assert play.count(ev.ModelRequested) == bound


def test_an_answer_on_the_last_step_completes_the_run() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(steps=2))
    play.one_turn("find", {})
    play.says("done")
    assert ended(play) == (Status.COMPLETED, "")


def test_retries_of_a_request_are_no_steps() -> None:
    play = Play(limits=Limits(steps=1))
    for _ in range(3):
        play.fails(ErrorClass.NETWORK)
        play.now += 60 * SECOND
    play.says("done")
    assert ended(play) == (Status.COMPLETED, "")
    assert play.state.spent.steps == 1


def test_a_completion_check_is_a_step_too() -> None:
    play = Play(rules_of(checks=("complete",)), limits=Limits(steps=1))
    play.says("done")
    assert ended(play) == (Status.STOPPED, "steps")


def test_of_five_calls_exactly_the_three_allowed_run_and_the_status_names_the_limit() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(calls=3))
    started = play.calls(*[("find", {"a": n}) for n in range(5)])
    assert started == ["c1", "c2", "c3"]
    refused = [e for e in play.events if isinstance(e, ev.ToolRejected)]
    assert [(e.call, e.kind, e.rule) for e in refused] == [
        ("c4", "limit", "calls"),
        ("c5", "limit", "calls"),
    ]
    for call in started:
        play.returns(call)
    assert ended(play) == (Status.STOPPED, "calls")
    assert play.state.spent.calls == 3
    assert play.last(ev.RunStopped).limit == "calls"


def test_the_same_bound_holds_for_calls_that_follow_each_other() -> None:
    play = Play(rules_of(tool("mail", "write")), limits=Limits(calls=2))
    for call in play.calls(*[("mail", {"a": n}) for n in range(3)]):
        play.returns(call)
    for call in play.start():
        play.returns(call)
    assert play.start() == []
    assert play.started() == ["c1", "c2"]
    assert ended(play) == (Status.STOPPED, "calls")


def test_calls_that_wait_for_approval_do_not_pass_the_bound_either() -> None:
    rules = rules_of(tool("find"), policy=Policy(tools={"find": "ask"}))
    play = Play(rules, limits=Limits(calls=1))
    play.calls(("find", {"a": 1}), ("find", {"a": 2}))
    play.submit(cmd.Approve(n=2))
    play.submit(cmd.Approve(n=1))
    for call in play.start():
        play.returns(call)
    assert play.state.spent.calls == 1
    assert ended(play) == (Status.STOPPED, "calls")


def test_exactly_reaching_the_call_limit_is_no_end() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(calls=1))
    play.one_turn("find", {})
    play.says("done")
    assert ended(play) == (Status.COMPLETED, "")


def test_attempts_of_one_call_count_as_one_call() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(calls=1))
    play.calls("find")
    play.raises("c1", ErrorClass.TOOL_UNAVAILABLE)
    play.now += 60 * SECOND
    assert play.start() == ["c1"]
    play.returns("c1")
    play.says("done")
    assert ended(play) == (Status.COMPLETED, "")


def test_running_time_is_the_sum_of_durations_and_waits_do_not_count() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(running_s=10))
    play.ask()
    play.outcome(Reply(calls=(Called(name="find", arguments="{}"),)), latency_us=9 * SECOND)
    (call,) = play.start()
    play.now += 3_600 * SECOND
    play.returns(call, duration_us=SECOND - 1)
    play.ask()
    play.outcome(Reply(calls=(Called(name="find", arguments="{}"),)), latency_us=1)
    assert play.start() == []
    assert ended(play) == (Status.STOPPED, "running_s")
    assert play.state.spent.running_us == 10 * SECOND


@pytest.mark.parametrize("by", ["model", "tool", "check"])
def test_when_the_running_time_is_used_up_no_further_request_is_made(by: str) -> None:
    play = Play(rules_of(tool("find"), checks=("complete",)), limits=Limits(running_s=5))
    play.ask()
    slow = 5 * SECOND if by == "model" else 1
    if by == "check":
        play.outcome(Reply(parts=(Text("done"),)), latency_us=1)
        play.step()
        play.refuses("a total is missing", duration_us=5 * SECOND)
    else:
        play.outcome(Reply(calls=(Called(name="find", arguments="{}"),)), latency_us=slow)
        for call in play.start():
            play.returns(call, duration_us=5 * SECOND)
    assert ended(play) == (Status.STOPPED, "running_s")
    assert play.count(ev.ModelRequested) == 1


def test_a_tool_that_costs_more_than_is_left_is_not_run() -> None:
    play = Play(rules_of(tool("rate", micro_usd=40)), limits=Limits(micro_usd=100))
    for call in play.calls(("rate", {"a": 1}), ("rate", {"a": 2}), ("rate", {"a": 3})):
        play.returns(call, micro_usd=40)
    assert play.started() == ["c1", "c2"]
    assert play.state.usage.micro_usd == 80
    assert ended(play) == (Status.STOPPED, "micro_usd")


def test_calls_at_work_are_counted_when_another_one_wants_to_start() -> None:
    rules = rules_of(
        tool("rate", micro_usd=60),
        tool("drop", "dangerous", micro_usd=60, conflict_key=lambda v: "d"),
        tool("set", "write", conflict_key=lambda v: "s"),
    )
    play = Play(rules, limits=Limits(micro_usd=100))
    play.calls(("drop", {}), ("set", {}))
    play.submit(cmd.Approve(n=1))
    play.start()
    play.returns("c2")
    play.returns("c1", micro_usd=60)
    assert play.calls("rate") == []
    assert play.last(ev.ToolRejected).rule == "micro_usd"


def test_an_excess_is_recorded_as_it_was_and_ends_the_run() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(tokens=2_000))
    play.calls("find", usage=used(9_000))
    play.returns("c1")
    assert ended(play) == (Status.STOPPED, "tokens")
    assert play.last(ev.LimitReached).value == 9_000


def test_a_model_call_without_outcome_is_charged_at_its_reservation() -> None:
    play = Play(rules_of(models=(ModelSpec(name="m", price=PRICE, max_output=1_000),)))
    reserved = play.ask().reserved
    play.crash()
    assert play.state.usage.tokens == reserved.tokens
    assert play.state.usage.micro_usd == reserved.micro_usd > 0
    assert play.last(ev.ModelFailed).lost


def test_a_reply_is_charged_at_what_it_used_even_when_it_is_unusable() -> None:
    play = Play(rules_of(models=(ModelSpec(name="m", price=PRICE),)))
    play.says("", usage=Usage(input_tokens=100, output_tokens=10))
    assert play.state.usage.micro_usd == 200 + 100


def test_errors_in_a_row_fail_the_run_and_a_success_between_them_starts_the_count_anew() -> None:
    play = Play(rules_of(tool("find")), limits=Limits(errors_in_row=2, no_progress=50))
    for n in range(3):
        play.calls(("find", {"a": n}))
        play.raises(f"c{2 * n + 1}")
        play.one_turn("find", {"b": n}, n)
    play.calls(("find", {}))
    play.raises("c7")
    play.calls(("find", {"x": 1}))
    play.raises("c8")
    assert ended(play) == (Status.FAILED, "errors_in_row")


@pytest.mark.parametrize("bound", [1, 3, 5])
def test_errors_are_counted_once_per_turn_and_not_per_call_or_retry(bound: int) -> None:
    play = Play(
        rules_of(tool("find")), limits=Limits(errors_in_row=bound, no_progress=50, calls=100)
    )
    for _ in range(bound):
        for call in play.calls(*["find"] * 3):
            play.raises(call, ErrorClass.TOOL_UNAVAILABLE)
            play.now += 60 * SECOND
            play.start()
            for _ in range(3):
                if call in play.state.calls and play.call(call).status is CallStatus.STARTED:
                    play.raises(call)
    assert play.state.errors_in_row == bound
    assert ended(play) == (Status.FAILED, "errors_in_row")


def test_a_refusal_by_a_person_is_no_error() -> None:
    play = Play(rules_of(tool("drop", "dangerous")), limits=Limits(errors_in_row=1))
    play.calls("drop")
    play.submit(cmd.Deny(n=1))
    assert play.state.errors_in_row == 0
    assert isinstance(play.settle(), AskModel)


def test_a_reply_that_must_be_repaired_counts_as_an_error() -> None:
    play = Play(limits=Limits(errors_in_row=2))
    play.says("")
    play.says("")
    assert ended(play) == (Status.FAILED, "errors_in_row")
