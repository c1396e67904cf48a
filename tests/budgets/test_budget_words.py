"""A budget says what it bounds, for whom and how long; nonsense is refused where it is written."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import Runtime
from cairn.core.budgets import (
    Budget,
    Cap,
    Only,
    Spend,
    caps_of,
    end_of,
    scoped,
    shown,
    start_of,
)
from cairn.core.spending import amount
from cairn.errors import ConfigError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - UTC is added


def us(moment):
    return (moment - EPOCH) // timedelta(microseconds=1)


def test_a_budget_becomes_whole_numbers_and_a_name():
    budget = Budget(per="principal", usd=0.1, only={"agent": ["shop", "desk"]})
    assert budget.cap() == Cap(
        name="principal-day",
        per="principal",
        window="day",
        micro_usd=100_000,
        only=(Only(scope="agent", names=("desk", "shop")),),
    )
    for usd in (5, 5.0, "5", Decimal(5)):
        assert Budget(usd=usd).cap().micro_usd == 5_000_000
    assert Budget(usd="0.000001").cap().micro_usd == 1
    assert Budget(usd=0).cap().micro_usd == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({}, "budgets.store-day"),
        ({"per": "planet", "usd": 1}, "budgets.per"),
        ({"window": "week", "usd": 1}, "budgets.window"),
        ({"usd": -1}, "budgets.usd"),
        ({"usd": float("nan")}, "budgets.usd"),
        ({"usd": float("inf")}, "budgets.usd"),
        ({"usd": "1e99"}, "budgets.usd"),
        ({"usd": "0.0000001"}, "budgets.usd"),
        ({"usd": True}, "budgets.usd"),
        ({"usd": "five"}, "budgets.usd"),
        ({"usd": [5]}, "budgets.usd"),
        ({"tokens": 1.5}, "budgets.tokens"),
        ({"tokens": -1}, "budgets.tokens"),
        ({"calls": True}, "budgets.calls"),
        ({"calls": 1 << 63}, "budgets.calls"),
        ({"calls": 1, "name": "a b"}, "budgets.name"),
        ({"calls": 1, "name": "x" * 65}, "budgets.name"),
        ({"calls": 1, "only": {"role": "admin"}}, "budgets.only"),
        ({"calls": 1, "only": {"agent": []}}, "budgets.only"),
        ({"calls": 1, "only": {"agent": [7]}}, "budgets.only"),
        ({"calls": 1, "only": "shop"}, "budgets.only"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_with_the_field_it_is_about(wrong, field):
    with pytest.raises(ConfigError) as caught:
        Budget(**wrong)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "wrong",
    [Budget(calls=1), [Cap(name="x", calls=1)], "none", [Budget(calls=1), Budget(usd=1)], 7],
)
def test_a_runtime_refuses_what_is_no_list_of_budgets_with_names_of_their_own(wrong):
    with pytest.raises(ConfigError, match=r"Runtime\.budgets"):
        Runtime(":memory:", budgets=wrong)


def test_two_budgets_of_one_kind_need_names():
    caps = caps_of([Budget(calls=1), Budget(calls=9, name="loose")])
    assert [cap.name for cap in caps] == ["store-day", "loose"]


@given(MOMENTS)
def test_windows_are_those_of_the_calendar_in_utc(moment):
    moment = moment.replace(tzinfo=UTC)
    hour = moment.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    month = day.replace(day=1)
    after = (month + timedelta(days=32)).replace(day=1)
    expected = {
        "hour": (hour, hour + timedelta(hours=1)),
        "day": (day, day + timedelta(days=1)),
        "month": (month, after),
    }
    for window, (start, end) in expected.items():
        assert start_of(window, us(moment)) == us(start)
        assert end_of(window, us(moment)) == us(end)
        assert start_of(window, us(end)) == us(end)
        assert start_of(window, us(end) - 1) == us(start)


def test_nobody_can_take_a_name_that_is_counted_as_somebody_of_another_tenant():
    names = ("ann", "acme/ann", '["acme","ann"]', "[", "", "\x1f")
    keys = [scoped(name, tenant) for name in names for tenant in ("", "acme", "x/acme")]
    assert len(set(keys)) == len(keys)
    assert shown(scoped("ann", "acme")) == "acme/ann"
    assert shown(scoped("ann", "")) == "ann"
    assert shown(scoped("[x", "")) == "[x"


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("micro_usd", 5_000_000, "5.00 USD"),
        ("micro_usd", 1_234_567_890, "1,234.56789 USD"),
        ("micro_usd", 1, "0.000001 USD"),
        ("micro_usd", -1_500_000, "-1.50 USD"),
        ("tokens", 1_200, "1,200 tokens"),
        ("calls", 0, "0 calls"),
    ],
)
def test_amounts_are_told_exactly(measure, value, text):
    assert amount(measure, value) == text


def test_a_counter_below_zero_is_not_sound():
    assert Spend().sound
    assert not (Spend(tokens=1) + Spend(held_tokens=-1)).sound
