"""SIGKILL inside a tool, a model call, a probe or a check; another process goes on at once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kill.conftest import ROOT
from tests.kill.table import ROWS

from cairn import Refused, Runtime

pytestmark = pytest.mark.kill


def verify(bench) -> int:
    async def look():
        async with Runtime(bench.store) as rt:
            return await rt.store.verify("r")

    return asyncio.run(look())


def shown(lines: list[str]) -> str:
    return " ".join(line.split()[0] for line in lines)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_our_row_of_the_table_of_peers(bench, row):
    """What happened before the kill and after the resume, counted outside."""
    bench.dies(row.script, die={"tool": row.dies_in})
    before = bench.marks()
    assert shown(bench.lines) == row.before
    run = bench.run(row.script)
    if row.asks:
        assert (run["status"], run["reason"]) == ("waiting", "in_doubt")
        assert shown(bench.lines[before:]) == ""
        bench.run(row.script, verb="settle")
        run = bench.run(row.script)
    assert run["status"] == "completed"
    assert shown(bench.lines[before:]) == row.after
    again = bench.run(row.script)
    assert again == run
    assert shown(bench.lines[before:]) == row.after
    assert verify(bench) > 0


def test_a_killed_keyed_write_is_repeated_with_the_same_key(bench):
    bench.dies("keyed", die={"tool": "pay"})
    assert bench.run("keyed")["status"] == "completed"
    keys = [line for line in bench.lines if line.startswith("pay")]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_killed_write_that_did_not_happen_runs_again_when_a_person_says_so(bench):
    bench.dies("once", die={"tool": "post"})
    run = bench.run("once")
    assert run["pending"] == ["r/c2"]
    assert "Unknown: post (c2)" in run["text"]

    async def say():
        async with Runtime(bench.store) as rt:  # at once: the owner's lock proves that it is gone
            await rt.resolve_async("r/c2", happened=False, by="ann")

    asyncio.run(say())
    run = bench.run("once")
    assert run["status"] == "completed"
    assert bench.counts() == {"m": 3, "fast": 1, "post": 2}


def test_a_killed_write_that_is_given_up_fails_the_run_and_stays_listed(bench):
    bench.dies("once", die={"tool": "post"})

    async def say():
        async with Runtime(bench.store) as rt:
            with pytest.raises(Refused, match="is at work, as far as the journal knows"):
                await rt.resolve_async("r/c2", give_up=True)  # nobody has taken it over yet

    asyncio.run(say())
    bench.run("once")

    async def give_up():
        async with Runtime(bench.store) as rt:
            await rt.resolve_async("r/c2", give_up=True)

    asyncio.run(give_up())
    run = bench.run("once")
    assert (run["status"], run["pending"]) == ("failed", ["r/c2"])
    assert bench.counts()["post"] == 1


def test_a_process_killed_in_a_model_call_asks_again_and_pays_for_both(bench):
    bench.dies("once", die={"model": 1})
    assert shown(bench.lines) == "m fast m"
    run = bench.run("once")
    assert run["status"] == "completed"
    assert shown(bench.lines) == "m fast m m post m"
    assert run["output_tokens"] == 4096  # the lost call is charged at its reservation


def test_a_process_killed_in_a_probe_asks_it_again(bench):
    bench.dies("probe", die={"tool": "send"})
    bench.dies("probe", die={"probe": 1})
    run = bench.run("probe")
    assert run["status"] == "completed"
    assert shown(bench.lines) == "m fast m send probe probe m"


def test_a_process_killed_in_a_completion_check_runs_it_again(bench):
    bench.dies("answer", die={"check": 1})
    run = bench.run("answer")
    assert (run["status"], run["text"]) == ("completed", "done")
    assert shown(bench.lines) == "m check check"


def test_a_run_that_kills_its_process_again_and_again_does_not_go_on_for_ever(bench):
    """A read that takes its process along is repeated a bounded number of times, then told."""
    for _ in range(4):
        bench.dies("read", die={"tool": "look"})
    run = bench.run("read")
    assert run["status"] == "completed"
    assert bench.counts() == {"m": 3, "fast": 1, "look": 4}


def test_an_approval_is_used_up_by_the_call_that_died(bench):
    """Approved, killed inside, loaded twice: the refund has happened once."""
    assert bench.run("refund")["status"] == "waiting"
    bench.run("refund", verb="approve")
    bench.dies("refund", die={"tool": "refund"})
    first, second = bench.start("refund"), bench.start("refund")
    for run in (first.result(), second.result()):
        assert (run["status"], run["reason"]) == ("waiting", "in_doubt")
    bench.run("refund", verb="settle")
    assert bench.run("refund")["status"] == "completed"
    assert shown(bench.lines) == "m refund m"


def test_a_worker_finds_an_unfinished_run_without_its_caller(bench):
    bench.dies("read", die={"tool": "look"})
    run = bench.run("read", verb="work")
    assert run["status"] == "completed"
    assert shown(bench.lines) == "m fast m look look m"


def test_a_run_whose_process_was_killed_is_cancelled_by_another_without_repeating_anything(bench):
    """B07: cancel ends in a settled state though the worker is dead."""
    bench.dies("once", die={"tool": "post"})
    run = bench.run("once", verb="cancel")
    assert (run["status"], run["pending"]) == ("cancelled", ["r/c2"])
    assert shown(bench.lines) == "m fast m post"
    again = bench.run("once")
    assert again["status"] == "cancelled"


def test_processes_started_afresh_say_the_same(bench):
    """Not forked from anything: two interpreters, one file."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    def fresh(**more) -> tuple[int, dict]:
        job = bench.job("parallel once", **more)
        done = subprocess.run(
            [sys.executable, "-m", "tests.kill.worker", json.dumps(job)],
            cwd=ROOT,
            env=environment,
            check=False,
            timeout=25,
        )
        found = {} if done.returncode else json.loads(Path(job["result"]).read_text())
        return done.returncode, found

    code, _ = fresh(die={"tool": "post"})
    assert code == -signal.SIGKILL
    code, run = fresh()
    assert (code, run["status"], run["reason"]) == (0, "waiting", "in_doubt")
    assert bench.counts()["fast"] == bench.counts()["post"] == 1
