"""A process dies at every point of its life, and once more in its recovery; nothing is repeated."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.kill.outside import WRITES
from tests.kill.scenes import SCENES
from tests.kill.sweep import Figures

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

SIDES = ("before", "after")
SQUARED = "fallback"
"""The scene whose recoveries are cut short as well; `make sweep` does it for all."""


def swept(bench, **task) -> Figures:
    """What two processes found who share the points."""
    parts = []
    for part in range(2):
        result = bench.folder / f"swept{part}"
        given = {**task, "share": (part, 2)}
        parts.append((bench.start("", sweep=given, result=str(result)), result))
    total = Figures()
    for started, result in parts:
        assert started.wait(220) == 0
        said = json.loads(Path(result).read_text())
        total.add(Figures(**{**said, "names": Counter(said["names"])}))
    return total


@pytest.mark.parametrize("scene", SCENES)
def test_a_process_that_dies_at_any_point_repeats_nothing_and_loses_nothing(bench, scene):
    figures = swept(bench, scene=scene)
    assert figures.violations == []
    assert figures.kills + figures.missed == figures.points >= 20
    assert figures.missed <= 2  # what overlaps may come in another order
    assert {f"{write}.{side}" for write in WRITES[:3] for side in SIDES} <= set(figures.names)
    assert {"model.before", "model.after"} <= set(figures.names)


def test_a_recovery_that_dies_at_any_of_its_points_repeats_nothing_either(bench):
    figures = swept(bench, scene=SQUARED, square=True)
    assert figures.violations == []
    assert figures.pairs > 200
    assert figures.kills + figures.missed == figures.points + figures.pairs
