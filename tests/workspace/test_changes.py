"""What a run changed can be told, whoever changed it, and which workspace a run has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import Runtime
from cairn.errors import ConfigError
from cairn.workspace import (
    Change,
    Workspace,
    WorkspaceError,
    WorkspaceFailed,
    WorkspaceLimits,
    Workspaces,
    workspaces,
)


def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("one\ntwo\nthree\n")
    (root / "gone.txt").write_text("good bye\n")
    (root / "same.txt").write_text("same\n")
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\1")
    (root / "run.sh").write_text("echo\n")
    (root / "windows.txt").write_bytes(b"a\r\nb\r\n")
    (root / "link").symlink_to("same.txt")
    return root


def by_path(workspace: Workspace) -> dict[str, Change]:
    return {change.path: change for change in workspace.changes()}


def test_what_was_there_at_first_is_no_change(tmp_path: Path) -> None:
    assert Workspace(project(tmp_path)).changes() == []


def test_created_modified_and_deleted_files_are_told_with_their_diffs(tmp_path: Path) -> None:
    root = project(tmp_path)
    workspace = Workspace(root)
    workspace.list()
    workspace.write("src/main.py", "one\n2\nthree\n", overwrite=True)
    workspace.write("new/file.txt", "hello")
    workspace.delete("gone.txt")
    workspace.write("windows.txt", b"a\r\nB\r\n", overwrite=True)
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\2\3")
    (root / "run.sh").chmod(0o755)
    (root / "link").unlink()
    (root / "link").symlink_to("run.sh")
    found = by_path(workspace)
    assert {path: change.what for path, change in found.items()} == {
        "src/main.py": "modified",
        "new/file.txt": "created",
        "gone.txt": "deleted",
        "windows.txt": "modified",
        "image.png": "modified",
        "run.sh": "modified",
        "link": "modified",
    }
    main = found["src/main.py"]
    assert main.diff == (
        "--- a/src/main.py\n+++ b/src/main.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    )
    assert (main.old_size, main.size) == (14, 12)
    assert found["new/file.txt"].diff == (
        "--- /dev/null\n+++ b/new/file.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file"
    )
    assert found["new/file.txt"].mode == 0o644
    assert found["gone.txt"].diff.startswith("--- a/gone.txt\n+++ /dev/null\n")
    assert found["gone.txt"].hash == ""
    assert "-b\r\n+B\r" in found["windows.txt"].diff
    image = found["image.png"]
    assert (image.diff, image.old_size, image.size) == ("", 10, 11)
    assert image.hash != image.old_hash
    assert "binary" in image.note
    assert (found["run.sh"].mode, found["run.sh"].diff) == (0o755, "")
    assert found["link"].note == "a link"


def test_the_baseline_survives_restarts_and_lies_outside(tmp_path: Path) -> None:
    root = project(tmp_path)
    Workspace(root).write("new.txt", "x")
    code = (
        "import sys; from cairn.workspace import Workspace;"
        "print([(c.path, c.what) for c in Workspace(sys.argv[1]).changes()])"
    )
    argv = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('new.txt', 'created')]"
    assert (tmp_path / ".cairn" / "project.json").is_file()
    assert not (root / ".cairn").exists()


def test_a_baseline_that_cannot_be_read_is_told_and_hinders_nothing_else(tmp_path: Path) -> None:
    root = project(tmp_path)
    Workspace(root).list()
    (tmp_path / ".cairn" / "project.json").write_text("{")
    workspace = Workspace(root)
    workspace.write("new.txt", "x")
    with pytest.raises(WorkspaceFailed, match=r"baseline project\.json cannot be read"):
        workspace.changes()


def test_a_linked_baseline_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    root = project(tmp_path)
    (tmp_path / ".cairn").mkdir()
    canary = tmp_path / "canary"
    canary.write_text('{"name": "x", "files": {}}')
    (tmp_path / ".cairn" / "project.json").symlink_to(canary)
    workspace = Workspace(root)
    with pytest.raises(WorkspaceFailed):
        workspace.changes()
    assert canary.read_text() == '{"name": "x", "files": {}}'


def test_changes_are_bounded_however_large_the_files(tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / "large.txt").write_text("x\n" * 200_000)
    (root / "many.txt").write_text("".join(f"{n}\n" for n in range(3_000)))
    workspace = Workspace(root)
    workspace.list()
    (root / "large.txt").write_text("y\n" * 200_000)
    (root / "many.txt").write_text("".join(f"{-n}\n" for n in range(3_000)))
    found = by_path(workspace)
    assert found["large.txt"].diff == ""
    assert "too large" in found["large.txt"].note
    assert len(found["many.txt"].diff) == 20_000
    assert "cut" in found["many.txt"].note


def test_a_baseline_inside_the_workspace_is_refused(tmp_path: Path) -> None:
    for inside in ("base.json", "deep/base.json"):
        with pytest.raises(ConfigError, match="inside the workspace"):
            Workspace(tmp_path / "w", baseline=tmp_path / "w" / inside)
    for root in ("", "/", tmp_path / ".cairn", "a\0b", 3, None):
        with pytest.raises(ConfigError):
            Workspace(root)  # type: ignore[arg-type] # - what is tested


# ---------------------------------------------------------------- which workspace


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    given = Workspaces(tmp_path / "w")
    one, two = given.of("one", "chat"), given.of("two", "chat")
    one.write("f", "1")
    two.write("f", "2")
    assert (tmp_path / "w" / "one" / "f").read_text() == "1"
    assert (one.read("f"), two.read("f")) == (b"1", b"2")
    assert given.of("one") is one
    assert [change.path for change in two.changes()] == ["f"]


def test_runs_of_a_session_share_one_when_asked_for(tmp_path: Path) -> None:
    given = Workspaces(tmp_path / "w", per="session")
    given.of("one", "chat").write("f", "1")
    assert given.of("two", "chat").read("f") == b"1"
    assert given.of("two").list().found == ()
    assert (tmp_path / "w" / "s-chat" / "f").exists()


RUNS = ["run", ".", "..", ".cairn", ".hidden", "s-chat", "-x", "a.b", "R" * 64, "s-", "_", "S-chat"]
SESSIONS = [
    "chat",
    "..",
    "../x",
    "/etc",
    "a/b",
    "",
    "日本",
    "x" * 500,
    "chat ",
    ".",
    "a\nb",
    "=x",
    "s-chat",
]


def test_no_id_leads_to_a_folder_of_another_or_outside(tmp_path: Path) -> None:
    base = tmp_path / "w"
    by_run = [Workspaces(base).of(run).root for run in RUNS]
    by_session = [Workspaces(base, per="session").of("r", each).root for each in SESSIONS]
    roots = [*by_run, *by_session]
    assert len(set(roots)) == len(roots)
    assert all(root.parent == base and root.resolve() == root for root in roots)
    assert not {root.name for root in roots} & {".", "..", ".cairn"}


def test_a_folder_that_somebody_else_prepared_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    base = tmp_path / "w"
    base.mkdir()
    (base / "one").symlink_to(outside)
    with pytest.raises(WorkspaceError, match="is a link"):
        Workspaces(base).of("one").write("f", "x")
    assert not list(outside.iterdir())
    if os.geteuid() == 0:
        (base / "two").mkdir()
        os.chown(base / "two", 12_345, 12_345)
        with pytest.raises(WorkspaceError, match="another user"):
            Workspaces(base).of("two").write("f", "x")


def test_what_a_deployment_may_give(tmp_path: Path) -> None:
    single = Workspace(tmp_path / "one")
    assert workspaces(None) is None
    assert workspaces(single) is single
    assert single.of("any", "session") is single
    given = workspaces(tmp_path / "w", "session")
    assert isinstance(given, Workspaces)
    (tmp_path / "file").write_text("")
    for bad in (3, "", tmp_path / "file", object()):
        with pytest.raises(ConfigError, match="workspace"):
            workspaces(bad)
    with pytest.raises(ConfigError, match="workspace_per"):
        workspaces(tmp_path, "user")  # type: ignore[arg-type] # - what is tested
    with pytest.raises(ConfigError, match="files"):
        Workspaces(tmp_path, limits=WorkspaceLimits(files=0))


def test_workspaces_that_are_per_run_are_refused_where_they_are_wanted_per_session(
    tmp_path: Path,
) -> None:
    for per_run in (Workspaces(tmp_path), Workspaces(tmp_path, per="run")):
        with pytest.raises(ConfigError, match=r"^workspace_per: .* Workspaces .*per=\"session\""):
            Runtime(":memory:", workspace=per_run, workspace_per="session")
    per_session = Workspaces(tmp_path, per="session")
    for per in ("run", "session"):
        assert workspaces(per_session, per) is per_session  # type: ignore[arg-type] # - both are


def test_many_things_are_listed_up_to_the_limit_and_it_is_said(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w", limits=WorkspaceLimits(files=10, depth=3))
    root = workspace.root
    for number in range(60):
        (root / f"{number:02}").touch()
    (root / "a/b/c/d/e/f/g/h").mkdir(parents=True)
    listing = workspace.list(limit=5)
    assert (len(listing.found), listing.cut) == (5, True)
    assert workspace.list(limit=1_000).cut
    assert len(workspace.list(limit=1_000).found) == 40


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/deep/**", ["src/deep", "src/deep/c.py"]),
        ("**", ["a.py", "src", "src/[x].txt", "src/b.py", "src/deep", "src/deep/c.py"]),
        ("[[]x].txt", ["src/[x].txt"]),
        ("../*", []),
        ("/a.py", ["a.py"]),
        ("?.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("**/" * 30 + "c.py", ["src/deep/c.py"]),
        ("*a*a*a*a*a*a*a*a*a*a*b", []),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, found: list[str]) -> None:
    workspace = Workspace(tmp_path / "w")
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/[x].txt"):
        workspace.write(path, "")
    assert ["/".join(each.parts) for each in workspace.list(pattern=pattern).found] == found
