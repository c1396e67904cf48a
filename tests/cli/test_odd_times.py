"""A row with a time that no calendar has keeps nobody from reading it, nor the rows beside it."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cairn
from tests.engine.kit import TurnedClock

from cairn import Agent, Runtime, Scripted
from cairn.cli.plain import day
from cairn.core.moments import in_utc

NANOSECONDS = 1_796_076_000_000_000_000


@pytest.fixture
def odd(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store as an earlier release left it under a clock that counted nanoseconds."""
    with monkeypatch.context() as patch:
        patch.setattr("cairn.runtime.check_clock", lambda clock: None)
        patch.setattr("cairn.engine.client.now_of", lambda clock: clock.now_us())
        for run, now in (("fine", 1_700_000_000_000_000), ("odd", NANOSECONDS)):
            clock = TurnedClock(now)
            with Runtime("desk.db", [Agent("desk", Scripted(["done"]))], clock=clock) as rt:
                rt.run("desk", "go", id=run, session=f"s-{run}")
                rt.remember(f"a fact of {run}", principal="ann")
    return desk


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    "words",
    [
        "runs",
        "runs --json",
        "trace odd",
        "trace odd --json",
        "sessions list",
        "sessions show s-odd",
        "sessions export s-odd out",
        "memory list --principal ann",
        "memory show m2",
        "memory export --principal ann",
        "audit",
        "audit --csv",
        "audit --json",
        "verify",
        "export odd",
        "inbox",
        "budgets",
    ],
)
def test_every_reading_command_reads_a_time_of_the_wrong_unit(cairn: Cairn, words: str) -> None:
    said = cairn(*words.split())
    assert said.code == 0, said
    if words in {"runs", "sessions list"}:
        assert "year 58885" in said.out
        assert "fine" in said.out


@pytest.mark.parametrize("us", [NANOSECONDS, -(10**18), 10**30, -1, 253_402_300_799_999_999])
def test_any_number_is_told_as_a_moment(us: int) -> None:
    assert day(us)
    assert in_utc(us, "%Y-%m-%d")


def test_a_moment_beyond_all_calendars_is_told_by_its_year() -> None:
    assert day(NANOSECONDS) == in_utc(NANOSECONDS, "%Y") == "year 58885"
