"""SIGKILL anywhere in the hand-over of a session: no message is lost, and none is read twice."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.kill.sweep import Figures

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]


def test_a_message_that_was_acknowledged_is_read_exactly_once_wherever_processes_die(bench):
    parts = []
    for part in range(2):
        result = bench.folder / f"swept{part}"
        job = {"handover": {"share": (part, 2)}, "result": str(result)}
        parts.append((bench.start("", **job), result))
    total = Figures()
    for started, result in parts:
        assert started.wait(220) == 0
        said = json.loads(Path(result).read_text())
        total.add(Figures(**{**said, "names": Counter(said["names"])}))
    assert total.violations == []
    assert total.kills + total.missed == total.points >= 100
    assert total.kills > total.missed
    for write in ("create", "append", "submit", "claim"):
        assert {f"{write}.before", f"{write}.after"} <= set(total.names)
