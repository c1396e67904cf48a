"""What a deployment asks of every sandbox: a rung at least, limits at most, else nothing runs."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.engine.kit import Watched

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.errors import ConfigError, ErrorClass, ToolError, ToolsUnready
from cairn.sandbox import Limits, Minimum, Rung, Sandbox, ladder, probe
from cairn.sandbox.minimum import STRENGTH
from cairn.toolkit import FILE_TOOLS, python_tool, shell_tool

WRITES = Policy(effects={"write": "allow"})
REACHED = [each.rung for each in probe() if each.reached]


def agent(script: list[Any], *tools: Any) -> Agent:
    return Agent("a", Scripted(script), tools=tools)


def only(monkeypatch: pytest.MonkeyPatch, *rungs: Rung) -> None:
    """A machine that reaches these rungs and no others."""
    found = {
        (rung, ""): ladder.Reached(rung=rung, reached=rung in rungs, why="as the test says")
        for rung in ladder.WALLS
    }
    monkeypatch.setattr(ladder, "_found", found)


def test_a_minimum_names_a_rung_and_takes_it_and_all_stronger_ones() -> None:
    assert ("unsandboxed", *ladder.WALLS[::-1]) == STRENGTH
    for at, least in enumerate(STRENGTH):
        taken = [rung for rung in STRENGTH if Minimum(rung=least).takes(rung)]
        assert taken == list(STRENGTH[at:])
    with pytest.raises(ConfigError, match="no rung 'bublewrap'"):
        Minimum(rung="bublewrap")  # type: ignore[arg-type] # - that is the mistake
    with pytest.raises(ConfigError, match=r"sandbox\.limits"):
        Minimum(limits=5)  # type: ignore[arg-type] # - that is the mistake
    with pytest.raises(ConfigError, match=r"Runtime\.sandbox"):
        Runtime(":memory:", [agent(["done"])], sandbox="strong")  # type: ignore[arg-type] # - as above


def test_of_limits_the_lower_ones_hold() -> None:
    most = Limits(memory_bytes=1 << 20, processes=500)
    under = Sandbox(limits=Limits(processes=3, wall_s=2)).under(Minimum(limits=most))
    assert (under.limits.memory_bytes, under.limits.processes, under.limits.wall_s) == (
        1 << 20,
        3,
        2,
    )
    plain = Sandbox()
    assert plain.under(None) is plain
    assert plain.limits == Limits()


def test_under_a_minimum_the_strongest_rung_is_taken_and_no_weaker_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch, "landlock", "bubblewrap-root")
    assert Sandbox().under(Minimum(rung="landlock")).rung == "bubblewrap-root"
    assert Sandbox("landlock").under(Minimum(rung="landlock")).rung == "landlock"
    with pytest.raises(ToolError, match="does not reach bubblewrap") as caught:
        _ = Sandbox().under(Minimum(rung="bubblewrap")).rung
    assert caught.value.error_class is ErrorClass.TOOL_UNAVAILABLE
    assert "unsandboxed" not in str(caught.value)
    with pytest.raises(ToolError, match="landlock is weaker"):
        Sandbox("landlock").under(Minimum(rung="bubblewrap-root")).prepare(["true"])


@pytest.mark.parametrize("weak", ["unsandboxed", "landlock"])
def test_a_tool_that_insists_on_less_is_refused_when_the_runtime_is_made(weak: Rung) -> None:
    tool = shell_tool(name="host_shell", sandbox=Sandbox(weak))
    with pytest.raises(ConfigError, match=rf"host_shell.sandbox.*{weak}.*bubblewrap-root"):
        Runtime(":memory:", [agent(["done"], tool)], sandbox="bubblewrap-root")
    Runtime(":memory:", [agent(["done"], tool)]).close()
    Runtime(":memory:", [agent(["done"], tool)], sandbox="unsandboxed").close()


def test_where_the_machine_reaches_less_nothing_of_the_run_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch, "landlock")
    script = [call("shell", command="echo hello"), "done"]
    with Runtime(":memory:", [agent(script, shell_tool())], sandbox="bubblewrap") as rt:
        with pytest.raises(ToolsUnready, match="does not reach bubblewrap"):
            rt.run("a", "go", id="r")
        assert rt.runs() == []
    files = Agent("b", Scripted(["done"]), tools=FILE_TOOLS)
    with Runtime(":memory:", [files], sandbox="bubblewrap") as rt:
        assert rt.run("b", "go").ok  # no command of its could run: nothing is asked of it


def test_a_run_that_was_begun_elsewhere_waits_and_goes_on_where_the_minimum_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = [call("shell", command="echo hello"), "done"]
    store = tmp_path / "cairn.db"
    with Runtime(store, [agent(script, shell_tool())]) as rt:
        assert rt.run("a", "go", id="r").status == "waiting"
        rt.approve("r/1")
    with monkeypatch.context() as patch:
        only(patch, "landlock")
        with Runtime(store, [agent(script, shell_tool())], sandbox="bubblewrap") as rt:
            with pytest.raises(ToolsUnready):
                rt.run("a", "go", id="r")
            assert [e for e in rt.trace("r") if isinstance(e.event, ev.ToolStarted)] == []
    with Runtime(store, [agent(script, shell_tool())], sandbox=REACHED[0]) as rt:
        assert rt.run("a", "go", id="r").status == "completed"


def test_the_deployments_limits_hold_for_commands_and_programs_alike() -> None:
    tools = [shell_tool(effect="write"), python_tool(effect="write")]
    script = [
        call("shell", command="sleep 30"),
        call("python", code="import time; time.sleep(30)"),
        "done",
    ]
    least = Minimum(rung=REACHED[-1], limits=Limits(wall_s=0.5))
    with Runtime(":memory:", [agent(script, *tools)], policy=WRITES, sandbox=least) as rt:
        run = rt.run("a", "go", id="r")
        ended = [e.event for e in rt.trace("r") if isinstance(e.event, ev.ToolCompleted)]
    assert run.status == "completed"
    assert [b"longer than its time limit" in bytes(each.result) for each in ended] == [True, True]


# ---------------------------------------------------------------- what is recorded, and when


def test_the_rung_is_written_in_the_same_write_that_starts_the_first_call() -> None:
    script = [call("shell", command="echo one"), call("shell", command="echo two"), "done"]

    async def main() -> list[tuple[str, ...]]:
        store = Watched()
        tools = [shell_tool(effect="write")]
        async with Runtime(store, [agent(script, *tools)], policy=WRITES) as rt:
            assert (await rt.run_async("a", "go", id="r")).status == "completed"
        return store.commits

    commits = asyncio.run(main())
    (written,) = [names for names in commits if "sandbox.chosen" in names]
    assert written.index("sandbox.chosen") + 1 == written.index("tool.started")
    assert sum("tool.started" in names for names in commits) == 2


def test_the_rung_of_each_tool_is_told_also_when_its_command_comes_to_nothing() -> None:
    tools = [
        shell_tool(effect="write"),
        shell_tool(name="host", effect="write", sandbox="unsandboxed", limits=Limits(wall_s=0.2)),
    ]
    script = [[call("shell", command="exit 3"), call("host", command="sleep 30")], "done"]
    with Runtime(":memory:", [agent(script, *tools)], policy=WRITES) as rt:
        run = rt.run("a", "go", id="r")
        told = [e.event for e in rt.trace("r") if isinstance(e.event, ev.SandboxChosen)]
    assert run.reason == "in_doubt"  # nobody knows what came of the second
    assert [(each.tool, each.rung) for each in told] == [
        ("shell", REACHED[0]),
        ("host", "unsandboxed"),
    ]


def test_a_kill_in_the_middle_of_the_first_command_leaves_the_rung_on_record(
    tmp_path: Path,
) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        textwrap.dedent(
            """
            import os
            from cairn import Agent, Policy, Runtime, Scripted, call
            from cairn.toolkit import shell_tool

            script = [call("shell", command=f"kill -9 {os.getpid()}"), "done"]
            tools = [shell_tool(effect="write", sandbox="unsandboxed")]
            policy = Policy(effects={"write": "allow"})
            Runtime("cairn.db", [Agent("a", Scripted(script), tools=tools)], policy=policy).run(
                "a", "go", id="r"
            )
            """
        )
    )
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == -9
    with Runtime(tmp_path / "cairn.db", []) as rt:
        events = [entry.event for entry in rt.trace("r")]
    assert isinstance(events[-1], ev.ToolStarted)
    assert events[-2] == ev.SandboxChosen(rung="unsandboxed", tool="shell")


def test_a_machine_without_walls_tells_of_none_and_refuses_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch)
    script = [call("shell", command="echo hello"), "done"]
    tools = [shell_tool(effect="write")]
    with Runtime(":memory:", [agent(script, *tools)], policy=WRITES) as rt:
        rt.run("a", "go", id="r")
        events = [entry.event for entry in rt.trace("r")]
    assert not [each for each in events if isinstance(each, ev.SandboxChosen)]
    (failed,) = [each for each in events if isinstance(each, ev.ToolFailed)]
    assert failed.error_class is ErrorClass.TOOL_UNAVAILABLE


def test_the_ladder_is_tried_before_the_first_start_and_not_while_the_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ladder, "_found", {})
    threads = []
    tried = ladder._problem

    def problem(rung: Rung, bwrap: str) -> str:
        threads.append(asyncio._get_running_loop())
        return tried(rung, bwrap)

    monkeypatch.setattr(ladder, "_problem", problem)
    script = [call("shell", command="echo hello"), "done"]
    tools = [shell_tool(effect="write")]
    with Runtime(":memory:", [agent(script, *tools)], policy=WRITES) as rt:
        assert rt.run("a", "go", id="r").status == "completed"
    assert threads
    assert set(threads) == {None}
