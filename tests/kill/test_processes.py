"""The machinery of the kill tests does not mistake one process for another."""

import signal
import sys

import pytest
from tests.kill.conftest import Zygote

REUSING = """
import json, sys
for number, _ in enumerate(sys.stdin):
    print(json.dumps({"job": number, "started": 4194305}), flush=True)
    if number == 0:
        print(json.dumps({"job": 0, "ended": 0}), flush=True)
    if number == 2:
        print(json.dumps({"job": 1, "ended": 3}), flush=True)
        print(json.dumps({"job": 2, "ended": 0}), flush=True)
"""
"""Gives every process the same id, one no system has, as one does once it has given out all."""


@pytest.fixture
def reusing():
    made = Zygote(sys.executable, "-c", REUSING)
    yield made
    made.close()


def test_a_process_whose_id_was_used_before_is_waited_for_to_its_own_end(reusing, tmp_path):
    """One that had ended with 0 under the same id made a job at work look done."""
    job = {"result": str(tmp_path / "result")}
    first = reusing.start(job)
    assert first.wait() == 0
    second = reusing.start(job)
    assert second.pid == first.pid
    with pytest.raises(AssertionError, match="does not end"):
        second.wait(0.1)
    reusing.start(job)
    assert second.wait() == 3
    assert first.wait() == 0


def test_a_process_that_has_ended_is_not_killed_under_an_id_of_another(reusing, tmp_path):
    first = reusing.start({"result": str(tmp_path / "result")})
    first.wait()
    with pytest.raises(ProcessLookupError, match="has ended with 0"):
        first.signal(signal.SIGKILL)
