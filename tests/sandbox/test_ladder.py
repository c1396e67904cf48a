"""The ladder: what is found is tried, what is tried is told, and nothing is degraded unsaid."""

import marshal
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from cairn.errors import ConfigError, ErrorClass, ToolError
from cairn.sandbox import Limits, Rung, Sandbox, ladder, probe
from cairn.sandbox.bubblewrap import Unfit, program
from cairn.sandbox.inside import seccomp
from cairn.sandbox.interpreter import PACKAGE, command, own
from cairn.sandbox.launch import hand_over


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_each_rung_is_reached_or_says_why_not() -> None:
    found = probe()
    assert [each.rung for each in found] == ["bubblewrap", "bubblewrap-root", "landlock"]
    for each in found:
        assert each.why
        assert each.reached == (each.why == ladder.ABOUT[each.rung]), each
    assert probe()[0] is found[0]  # it is not tried again


def test_a_rung_that_is_insisted_on_is_taken_and_no_other(rung: Rung) -> None:
    assert Sandbox(rung).rung == rung


def test_the_strongest_rung_that_holds_is_taken() -> None:
    assert Sandbox().rung == next(each.rung for each in probe() if each.reached)


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("echo bubblewrap 0.7.0", "0.8 or newer"),
        ("echo something else", "0.8 or newer"),
        ("exit 3", "does not run"),
        ("echo bubblewrap 0.11.0; exit 1", "does not run"),
        (
            "case $1 in --version) echo bubblewrap 1.0;; *) echo no namespace >&2; exit 1; esac",
            "no namespace",
        ),
        (
            'case $1 in --version) echo bubblewrap 1.0;; *) exec sh -c "cat >/dev/null"; esac',
            "set up",
        ),
    ],
)
def test_a_bubblewrap_that_does_not_do_what_it_must_is_not_taken(
    tmp_path: Path, does: str, why: str
) -> None:
    path = script(tmp_path / "bwrap", does)
    found = {each.rung: each for each in probe(path)}
    assert not found["bubblewrap"].reached
    assert why in found["bubblewrap"].why
    insisting = Sandbox("bubblewrap", bwrap=path)
    with pytest.raises(ToolError, match="no sandbox") as caught:
        insisting.prepare(["true"])
    assert caught.value.error_class is ErrorClass.TOOL_UNAVAILABLE
    assert why in str(caught.value)


def test_a_supervisor_without_a_process_namespace_of_its_own_does_nothing(tmp_path: Path) -> None:
    """As under a bubblewrap that only says it made one: the machine is not its own to clear."""
    request = {
        "mark": "m",
        "namespaces": True,
        "argv": ["touch", str(tmp_path / "ran")],
        "env": {"PATH": "/usr/bin:/bin"},
        "cwd": str(tmp_path),
        "stdin": False,
        "uid": 0,
        "disk": [],
        "limits": {},
    }
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        done = subprocess.run(
            command(own().path, str(PACKAGE)),
            input=marshal.dumps(request).hex().encode() + b"\n",
            capture_output=True,
            check=True,
            timeout=20,
        )
        assert b"m failed OSError: this is no process namespace of its own" in done.stderr
        assert bystander.poll() is None
        assert not (tmp_path / "ran").exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_no_code_here_signals_everybody() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r"kill(pg)?\(\s*-1", path.read_text()), path


def test_a_bubblewrap_that_others_could_have_changed_is_not_run(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    path = script(open_to_all / "bwrap", "touch ran; echo bubblewrap 1.0")
    open_to_all.chmod(0o777)
    with pytest.raises(Unfit, match="everybody may write"):
        program(path)
    open_to_all.chmod(0o755)
    Path(path).chmod(0o757)
    with pytest.raises(Unfit, match="everybody may write"):
        program(path)
    Path(path).chmod(0o4755)
    with pytest.raises(Unfit, match="setuid"):
        program(path)
    with pytest.raises(Unfit, match="No such file"):
        program(str(tmp_path / "none"))


def test_without_any_rung_commands_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path / "bwrap", "exit 1")
    monkeypatch.setattr(ladder, "WALLS", ("bubblewrap", "bubblewrap-root"))
    with pytest.raises(ToolError, match="unsandboxed"):
        Sandbox(bwrap=path).prepare(["true"])
    plain = Sandbox("unsandboxed", bwrap=path).prepare(["true"])
    assert plain.argv == ("true",)
    assert plain.rung == "unsandboxed"


def test_an_operators_mistake_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rung"):
        Sandbox("bublewrap")  # type: ignore[arg-type] # - that is the mistake
    with pytest.raises(ConfigError, match="there is no"):
        Sandbox(readable=[tmp_path / "missing"])
    with pytest.raises(ConfigError, match=r"limits\.processes"):
        Limits(processes=0)


def test_further_folders_can_be_read_and_not_written(rung: Rung, workspace: Path) -> None:
    data = workspace.parent / "data"
    data.mkdir()
    (data / "file").write_text("given")
    sandbox = Sandbox(rung, readable=[data], env={"GIVEN": "yes"})
    argv = ["/bin/sh", "-c", f"cat {data}/file; echo $GIVEN; echo x > {data}/new"]
    launch = sandbox.prepare(argv, workspace=workspace)
    done = subprocess.run(
        launch.argv,
        input=launch.input,
        env=launch.env,
        cwd=launch.cwd,
        capture_output=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == b"givenyes\n"
    assert launch.read(0, done.stderr.decode()).exit_code != 0
    assert not (data / "new").exists()


def test_the_filter_has_numbers_for_both_machines_and_no_others() -> None:
    for machine in ("x86_64", "aarch64"):
        for namespaces in (True, False):
            for scoped in (True, False):
                code = seccomp.program(machine, namespaces=namespaces, scoped=scoped)
                steps = [code[at : at + 8] for at in range(0, len(code), 8)]
                assert 100 < len(steps) < 4_096
                assert all(
                    at + 1 + max(step[2:4]) < len(steps)
                    for at, step in enumerate(steps[:-1])
                    if step[0] & 7 == 5
                )
    with pytest.raises(KeyError):
        seccomp.program("mips", namespaces=True)


def test_a_workspace_is_handed_over_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    inside = tmp_path / "workspace"
    (inside / "folder").mkdir(parents=True)
    (inside / "folder" / "file").write_text("x")
    (inside / "link").symlink_to(outside)
    os.link(outside, inside / "second-name")
    if os.getuid() != 0:
        with pytest.raises(PermissionError):
            hand_over(str(inside), 65_534)
        return
    hand_over(str(inside), 65_534)
    assert outside.stat().st_uid == 0
    assert stat.S_ISLNK((inside / "link").lstat().st_mode)
    for path in (inside, inside / "folder", inside / "folder" / "file"):
        assert path.stat().st_uid == 65_534


def test_root_is_told_that_another_user_cannot_reach_the_workspace(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "workspace").mkdir(parents=True)
    closed.chmod(0o700)
    if os.getuid() != 0:  # nobody else is needed then
        launch = Sandbox("landlock").prepare(["true"], workspace=closed / "workspace")
        assert marshal.loads(bytes.fromhex(launch.input.decode()))["uid"] == 0
    elif "landlock" in [each.rung for each in probe() if each.reached]:
        with pytest.raises(ToolError, match="cannot reach"):
            Sandbox("landlock").prepare(["true"], workspace=closed / "workspace")
