"""After a crash, each write is found out: it happened, it did not, or nobody can tell."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn import NOT_HAPPENED, UNKNOWN, Agent, Policy, Runtime, Scripted, call, happened
from cairn.toolkit import FILE_TOOLS
from cairn.toolkit.edit import edit_file
from cairn.toolkit.files import delete_file, move_file, write_file
from cairn.toolkit.patch import apply_patch
from cairn.toolkit.pledge import came_of
from cairn.tools.context import Context
from cairn.workspace import Workspace, intents, staging

PATCH = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+g\n"
WRITES: dict[str, Callable[[Context[Any]], str]] = {
    "write new": lambda ctx: write_file("g", "new\n", ctx),
    "overwrite": lambda ctx: write_file("f", "new\n", ctx, overwrite=True),
    "edit": lambda ctx: edit_file("f", "old", "old and new", ctx),
    "delete": lambda ctx: delete_file("f", ctx),
    "move": lambda ctx: move_file("f", "d/g", ctx),
    "patch": lambda ctx: apply_patch(PATCH, ctx),
}


def context(tmp_path: Path, call_id: str = "c1") -> Context[Any]:
    """As another process has it."""
    workspace = Workspace(tmp_path / "run")
    return Context(run_id="r", call_id=call_id, workspace=workspace)


@pytest.fixture(autouse=True)
def _file(tmp_path: Path) -> None:
    Workspace(tmp_path / "run").write("f", "old\n")


class Killed(BaseException):
    """Stands for the end of the process at this point."""


def die(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("which", WRITES)
def test_a_write_that_was_carried_out_is_found_with_its_answer(tmp_path: Path, which: str) -> None:
    said = WRITES[which](context(tmp_path))
    assert came_of(context(tmp_path)) == happened(said)
    assert came_of(context(tmp_path, "c2")) == NOT_HAPPENED


@pytest.mark.parametrize("which", WRITES)
@pytest.mark.parametrize("point", ["staging", "noting", "naming"])
def test_a_write_that_died_before_its_first_step_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, point: str
) -> None:
    before = {"f": b"old\n"}
    with monkeypatch.context() as broken:
        if point == "staging":
            broken.setattr(staging.os, "fsync", die)
        elif point == "noting":
            broken.setattr(intents.Intents, "write", die)
        else:
            for name in ("rename_new", "_publish"):
                broken.setattr(f"cairn.workspace.commit.{name}", die)
        with pytest.raises(Killed):
            WRITES[which](context(tmp_path))
    assert came_of(context(tmp_path)) == NOT_HAPPENED
    workspace = Workspace(tmp_path / "run")
    assert {"f": workspace.read("f")} == before
    assert came_of(context(tmp_path)) == NOT_HAPPENED
    WRITES[which](context(tmp_path))
    assert came_of(context(tmp_path)) != NOT_HAPPENED


def test_half_of_a_patch_is_left_to_a_person(tmp_path: Path) -> None:
    WRITES["patch"](context(tmp_path))
    (tmp_path / "run" / "g").unlink()
    assert came_of(context(tmp_path)) == UNKNOWN


def test_a_file_that_became_something_else_is_left_to_a_person(tmp_path: Path) -> None:
    WRITES["overwrite"](context(tmp_path))
    (tmp_path / "run" / "f").write_text("a third thing")
    assert came_of(context(tmp_path)) == UNKNOWN
    (tmp_path / "run" / "f").unlink()
    (tmp_path / "run" / "f").symlink_to("/etc/passwd")
    assert came_of(context(tmp_path)) == UNKNOWN


def test_a_missing_note_proves_nothing_once_notes_were_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "KEPT", 3)
    for number in range(6):
        write_file(f"f{number}", "x", context(tmp_path, f"c{number}"))
    assert came_of(context(tmp_path, "c5")) == happened("f5: wrote 1 byte, a new file.")
    assert came_of(context(tmp_path, "c0")) == UNKNOWN


def test_a_missing_note_proves_nothing_in_a_workspace_that_is_new_here(tmp_path: Path) -> None:
    elsewhere: Context[Any] = Context(
        run_id="r", call_id="c1", workspace=Workspace(tmp_path / "elsewhere" / "run")
    )
    assert came_of(elsewhere) == UNKNOWN


def test_notes_that_cannot_be_written_stop_the_write(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    ctx.workspace.open()
    notes = tmp_path / ".cairn" / "run.calls"
    for path in notes.iterdir():
        path.unlink()
    notes.rmdir()
    with pytest.raises(Exception, match="cannot be noted"):
        write_file("g", "x", ctx)
    assert not (tmp_path / "run" / "g").exists()


@pytest.mark.kill
def test_a_run_killed_in_a_write_finds_out_and_goes_on(tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        from cairn import Agent, Policy, Runtime, Scripted, call
        from cairn.toolkit import FILE_TOOLS
        from cairn.workspace import commit

        when, real = sys.argv[1], commit._publish

        def publish(ready):
            if when == "after":
                real(ready)
            os.kill(os.getpid(), signal.SIGKILL)

        commit._publish = publish
        script = Scripted([call("edit_file", path="f", old="old", new="old!"), "done"])
        policy = Policy(effects={"write": "allow"})
        rt = Runtime("cairn.db", [Agent("a", script, tools=FILE_TOOLS)], policy=policy,
                     workspace="w")
        rt.run("a", "go", id="r1")
    """
    for when in ("before", "after"):
        folder = tmp_path / when
        folder.mkdir()
        argv = [sys.executable, "-c", textwrap.dedent(code), when]
        (folder / "w" / "r1").mkdir(parents=True)
        (folder / "w" / "r1" / "f").write_text("old")
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        script = Scripted([call("edit_file", path="f", old="old", new="old!"), "done"])
        agent = Agent("a", script, tools=FILE_TOOLS)
        here = Path.cwd()
        os.chdir(folder)
        try:
            policy = Policy(effects={"write": "allow"})
            with Runtime("cairn.db", [agent], policy=policy, workspace="w") as runtime:
                run = runtime.run("a", "go", id="r1")
        finally:
            os.chdir(here)
        assert (run.status, run.text) == ("completed", "done")
        assert (folder / "w" / "r1" / "f").read_text() == "old!"
