"""The workspace of a run is looked at from outside, and looking makes none."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cairn import Agent, Runtime, Scripted, UnknownRun, call
from cairn.cli.entry import app
from cairn.errors import ConfigError
from cairn.toolkit import FILE_TOOLS
from cairn.workspace import NoWorkspace, Workspace, Workspaces

APP = """
from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.toolkit import FILE_TOOLS
script = [call("write_file", path="notes/a.txt", content="one\\n"), "done"]
rt = Runtime("s.db", [Agent("a", Scripted(script), tools=[*FILE_TOOLS])], workspace="work",
             policy=Policy(effects={"write": "allow"}))
"""


def runtime(**options: Any) -> Runtime:
    return Runtime(":memory:", [Agent("a", Scripted(["done"]))], **options)


def test_a_runtime_hands_out_the_workspace_of_a_run(tmp_path: Path) -> None:
    with runtime(workspace=tmp_path / "work", workspace_per="session") as rt:
        rt.run("a", "t", id="r", session="s")
        place = rt.workspace("r")
        assert place is rt.host.workspaces.of("r", "s")
        place.write("a.txt", "x")
        assert [change.path for change in rt.workspace("r").changes()] == ["a.txt"]
        with pytest.raises(UnknownRun):
            rt.workspace("nobody")


def test_a_runtime_without_workspaces_says_so() -> None:
    with runtime() as rt:
        rt.run("a", "t", id="r")
        with pytest.raises(ConfigError, match=r"Runtime\(workspace=\.\.\.\)"):
            rt.workspace("r")


@pytest.mark.parametrize("own", [True, False])
def test_asking_for_the_changes_of_a_workspace_that_never_was_makes_none(
    tmp_path: Path, own: bool
) -> None:
    place = Workspaces(tmp_path / "w").of("nobody") if own else Workspace(tmp_path / "w")
    with pytest.raises(NoWorkspace, match="nothing has used a workspace here"):
        place.changes()
    assert list(tmp_path.iterdir()) == []


def test_the_command_lists_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workspaceshop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with Runtime(
        "s.db",
        [Agent("a", Scripted([call("list_files"), "done"]), tools=[*FILE_TOOLS])],
    ) as rt:
        rt.run("a", "t", id="other")

    def say(*words: str) -> Any:
        sys.modules.pop("workspaceshop", None)
        return CliRunner().invoke(app, [*words, "--app", "workspaceshop:rt"])

    assert say("run", "a", "t", "--id", "r").exit_code == 0
    said = say("workspace", "list", "r")
    assert [line.split() for line in said.stdout.splitlines()] == [
        ["folder", "notes"],
        ["4", "notes/a.txt"],
    ]
    rows = [
        json.loads(line) for line in say("workspace", "list", "r", "--json").stdout.splitlines()
    ]
    assert rows[1] == {"path": "notes/a.txt", "kind": "file", "size": 4}
    said = say("workspace", "diff", "r")
    assert said.stdout.startswith("created notes/a.txt, 0 to 4 bytes")
    assert "    +one" in said.stdout
    assert json.loads(say("workspace", "diff", "r", "--json").stdout)["what"] == "created"
    said = say("workspace", "diff", "other")
    assert said.exit_code != 0
    assert "nothing has used a workspace here" in said.stderr
    assert not Path("work/other").exists()
    assert "nobody" in say("workspace", "list", "nobody").stderr
