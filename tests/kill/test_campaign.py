"""A share of the kill campaign: many runs, one file, and processes that do not live long."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


def test_after_a_hundred_kills_every_run_is_settled_and_every_effect_is_as_the_journal_says(bench):
    result = bench.folder / "campaign"
    job = {"kills": 100, "seed": 4, "seconds": 30, "place": str(bench.folder)}
    started = bench.start("", campaign=job, result=str(result))
    assert started.wait(200) == 0
    report = json.loads(Path(result).read_text())
    assert report["violations"] == []
    assert report["kills"] > 50
    assert report["stops"] > 5
    assert report["runs"] > 20
    assert sum(report["judged"]["ends"].values()) == report["runs"]
    assert report["damaged"]["named"] == 20
