"""SIGKILL while a hook is asked: it has decided nothing, and the next process asks it anew."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import Runtime
from cairn.core import events as ev

pytestmark = pytest.mark.kill

APP = """
import os, signal
from pathlib import Path
from cairn import Agent, Policy, Rewrite, Runtime, Scripted, before_tool, call, tool

@tool(effect="write")
def pay(cents: int) -> str:
    with Path("paid.txt").open("a") as file:
        file.write(f"{cents}\\n")
    return "paid"

@before_tool
def first(call):
    with Path("asked.txt").open("a") as file:
        file.write(f"{call.arguments['cents']} {call.fixed}\\n")
    return Rewrite({"cents": call.arguments["cents"] + 1})

@before_tool
def second(call):
    if not Path("killed.txt").exists():
        Path("killed.txt").write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)

with Runtime(
    "shop.db",
    [Agent("a", Scripted([call("pay", cents=5), "done"]), tools=[pay])],
    policy=Policy(effects={"write": "allow"}),
    hooks=[first, second],
) as rt:
    print(rt.run("a", "task", id="r").status)
"""


def test_a_kill_inside_a_hook_leaves_nothing_decided_and_nothing_done_twice(tmp_path: Path) -> None:
    def process() -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-c", APP]
        return subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    died = process()
    assert died.returncode == -signal.SIGKILL, died.stderr
    with Runtime(tmp_path / "shop.db") as rt:
        kinds = [entry.event.NAME for entry in rt.trace("r")]
    assert kinds[-1] == "model.completed"  # durable before the hooks were asked
    went_on = process()
    assert went_on.stdout == "completed\n", went_on.stderr
    assert (tmp_path / "asked.txt").read_text().splitlines() == ["5 False", "5 False"]
    assert (tmp_path / "paid.txt").read_text() == "6\n"
    with Runtime(tmp_path / "shop.db") as rt:
        edits = [e.event for e in rt.trace("r") if isinstance(e.event, ev.ToolEdited)]
    assert [edit.arguments for edit in edits] == ['{"cents":6}']
