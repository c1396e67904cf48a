"""A clock that counts in another unit dates nothing."""

import time
from typing import Any

import pytest
from tests.engine.kit import TurnedClock, runtime

from cairn import Runtime
from cairn.errors import ConfigError

WRONG: list[tuple[Any, str]] = [
    (time.time_ns(), "beyond the year 9999"),
    (253_402_300_800_000_000, "beyond the year 9999"),
    (-1, "before 1970"),
    (time.time(), "no whole number"),
    (True, "no whole number"),
    (None, "no whole number"),
]


@pytest.mark.parametrize(("now", "why"), WRONG)
def test_a_runtime_with_a_clock_of_another_unit_is_refused_and_makes_no_file(tmp_path, now, why):
    file = tmp_path / "cairn.db"
    with pytest.raises(ConfigError) as refused:
        Runtime(file, clock=TurnedClock(now))
    said = str(refused.value)
    assert refused.value.field == "Runtime.clock"
    assert why in said
    assert "TurnedClock.now_us()" in said
    assert "microseconds since 1970" in said
    assert not file.exists()


def test_a_clock_that_goes_wrong_later_begins_no_run_and_takes_no_command():
    clock = TurnedClock()
    with runtime(["one"], clock=clock) as rt:
        rt.enqueue("a", "go", id="r")
        clock.now *= 1_000
        with pytest.raises(ConfigError, match="beyond the year 9999"):
            rt.enqueue("a", "go", id="later")
        with pytest.raises(ConfigError, match="beyond the year 9999"):
            rt.pause("r")
        assert [info.run for info in rt.runs()] == ["r"]


@pytest.mark.parametrize("now", [0, 1, 253_402_300_799_999_999])
def test_any_moment_between_1970_and_the_year_9999_is_taken(now):
    with runtime(["one"], clock=TurnedClock(now)) as rt:
        rt.enqueue("a", "go", id="r")
        assert rt.get("r").status == "queued"
