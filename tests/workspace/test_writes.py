"""Writes are whole or not at all, bounded, and leave nothing behind."""

import errno
import fcntl
import gc
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cairn.errors import ConfigError, ToolError
from cairn.workspace import (
    PathRefused,
    Workspace,
    WorkspaceError,
    WorkspaceFailed,
    WorkspaceLimit,
    WorkspaceLimits,
    staging,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "run")


def names(workspace: Workspace) -> list[str]:
    root = workspace.root
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_the_mode_of_a_file_is_kept(workspace: Workspace) -> None:
    workspace.write("run.sh", "echo 1\n")
    path = workspace.root / "run.sh"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    for mode in (0o755, 0o600, 0o444, 0o4755):
        path.chmod(mode)
        workspace.write("run.sh", f"echo {mode}\n", overwrite=True)
        assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777


def test_a_file_that_is_there_is_only_replaced_when_asked(workspace: Workspace) -> None:
    workspace.write("f.txt", "one")
    with pytest.raises(PathRefused, match=r"overwrite=true .*edit_file.*workspace\.exists"):
        workspace.write("f.txt", "two")
    assert workspace.read("f.txt") == b"one"
    assert workspace.write("f.txt", "two", overwrite=True) is False


def test_half_of_a_character_is_refused_before_anything_is_written(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceError, match="half of a character at 2"):
        workspace.write("f.txt", "ab\ud800")
    assert names(workspace) == []


def test_a_missing_file_is_told_with_those_that_are_like_it(workspace: Workspace) -> None:
    workspace.write("src/parser.py", "")
    with pytest.raises(PathRefused, match=r"Did you mean parser\.py"):
        workspace.read("src/parsers.py")
    with pytest.raises(PathRefused, match=r"In src there are parser\.py"):
        workspace.read("src/zzz")
    with pytest.raises(PathRefused, match=r"src/parser\.py: this is no folder"):
        workspace.read("src/parser.py/x")


# ---------------------------------------------------------------- limits


def small(tmp_path: Path, **limits: int) -> Workspace:
    return Workspace(tmp_path / "run", limits=WorkspaceLimits(**limits))


def test_bytes_of_a_file_are_bounded_when_written_and_when_read(tmp_path: Path) -> None:
    workspace = small(tmp_path, file_bytes=10)
    workspace.write("ten", "x" * 10)
    with pytest.raises(WorkspaceLimit, match=r"workspace\.file_bytes, 11 of at most 10") as over:
        workspace.write("eleven", "x" * 11)
    assert (over.value.limit, over.value.figure, over.value.bound) == ("file_bytes", 11, 10)
    os.truncate(workspace.root / "ten", 1 << 40)  # holes take no room on disk
    with pytest.raises(WorkspaceLimit) as huge:
        workspace.read("ten")
    assert huge.value.figure == 1 << 40
    assert isinstance(huge.value, ToolError)


def test_bytes_of_all_files_are_bounded(tmp_path: Path) -> None:
    workspace = small(tmp_path, total_bytes=100)
    workspace.write("a", "x" * 60)
    workspace.write("b", "x" * 40)
    workspace.write("b", "y" * 40, overwrite=True)
    with pytest.raises(WorkspaceLimit, match=r"workspace\.total_bytes, 101 of at most 100"):
        workspace.write("c", "x")
    with pytest.raises(WorkspaceLimit):
        workspace.write("b", "y" * 41, overwrite=True)
    workspace.delete("a")
    workspace.write("c", "x" * 60)
    assert workspace.usage() == workspace.recount()
    assert names(workspace) == ["b", "c"]


def test_the_number_of_files_and_folders_is_bounded(tmp_path: Path) -> None:
    workspace = small(tmp_path, files=5)
    workspace.write("d/e/f", "")
    with pytest.raises(WorkspaceLimit, match=r"workspace\.files, 6 of at most 5"):
        workspace.write("g/h/i", "")
    assert names(workspace) == ["d", "d/e", "d/e/f"]
    workspace.write("g/h", "")
    workspace.move("g/h", "d/h")
    workspace.write("d/h", "more", overwrite=True)
    with pytest.raises(WorkspaceLimit):
        workspace.write("d/j", "")
    assert workspace.usage() == workspace.recount()


def test_what_others_wrote_counts_at_the_next_opening(tmp_path: Path) -> None:
    small(tmp_path, total_bytes=100).list()
    (tmp_path / "run" / "big").write_text("x" * 100)
    with pytest.raises(WorkspaceLimit, match="101 of at most 100"):
        small(tmp_path, total_bytes=100).write("f", "x")


def test_what_commands_write_counts_once_they_know_the_path(tmp_path: Path) -> None:
    workspace = small(tmp_path, total_bytes=100)
    (workspace.root / "big").write_text("x" * 100)
    with pytest.raises(WorkspaceLimit):
        workspace.write("f", "x")
    (workspace.root / "big").unlink()
    workspace.write("f", "x")


def test_what_others_removed_is_seen_before_anything_is_refused(tmp_path: Path) -> None:
    workspace = small(tmp_path, total_bytes=100)
    workspace.write("a", "x" * 100)
    (tmp_path / "run" / "a").unlink()
    workspace.write("b", "x" * 100)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9", None])
def test_a_limit_that_cannot_be_is_told_at_once(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match=r"WorkspaceLimits\.depth"):
        Workspace(tmp_path, limits=WorkspaceLimits(depth=value))  # type: ignore[arg-type] # - what is tested


# ---------------------------------------------------------------- the disk says no


def test_a_full_disk_leaves_the_old_content(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("f.txt", "old")
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 10:
            return real(handle, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(staging.os, "write", full)
        with pytest.raises(WorkspaceFailed, match=r"f\.txt: .*no space is left on the disk"):
            workspace.write("f.txt", "new" * 10, overwrite=True)
        with pytest.raises(WorkspaceFailed):
            workspace.write("x/y/z.txt", "new" * 10)
    assert names(workspace) == ["f.txt"]
    assert workspace.read("f.txt") == b"old"
    assert workspace.usage() == workspace.recount()


def test_a_file_larger_than_the_system_allows_leaves_the_old_content(tmp_path: Path) -> None:
    code = """
        import sys, resource
        from cairn.workspace import Workspace, WorkspaceFailed
        workspace = Workspace(sys.argv[1])
        workspace.write("f.txt", "old")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            workspace.write("f.txt", "new" * 100_000, overwrite=True)
        except WorkspaceFailed as error:
            print(error)
        print(workspace.read("f.txt"), len(workspace.list().found))
    """
    argv = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "f.txt: it could not be written: the system allows no file of this size" in done.stdout
    assert "b'old' 1" in done.stdout
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["f.txt"]


def test_a_write_that_lost_its_handles_leaves_the_old_content(workspace: Workspace) -> None:
    workspace.write("f.txt", "old")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        with pytest.raises(WorkspaceFailed, match="too many files open"):
            workspace.write("f.txt", "new", overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert workspace.read("f.txt") == b"old"


def test_no_handle_stays_open_after_use(tmp_path: Path) -> None:
    def handles() -> int:
        return sum(1 for _ in Path("/dev/fd").iterdir())

    gc.collect()  # what earlier tests left in cycles
    before = handles()
    workspace = Workspace(tmp_path / "run")
    workspace.write("a/b/c.txt", "x")
    held = handles()
    for number in range(20):
        workspace.write(f"a/b/{number}", "x")
        workspace.read(f"a/b/{number}")
        workspace.list()
        for bad in ("a/b/c.txt/x", "missing/x", "../x"):
            with pytest.raises(WorkspaceError):
                workspace.read(bad)
        with pytest.raises(WorkspaceError):
            workspace.write(f"a/b/{number}", "x")
    workspace.changes()
    assert handles() == held == before + 3
    del workspace
    assert handles() == before


def test_content_is_durable_before_its_name_and_its_name_before_the_answer(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("f.txt", "old")
    seen: list[str] = []
    sync, rename = os.fsync, os.rename

    def syncing(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def renaming(old: str, new: str, **folders: int) -> None:
        seen.append(f"{old[:11]} becomes {new}")
        rename(old, new, **folders)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    workspace.write("f.txt", "new", overwrite=True)
    assert seen == ["file", ".cairn-tmp. becomes f.txt", "folder"]


# ---------------------------------------------------------------- the writer dies


def leave_behind(folder: Path, name: str = ".cairn-tmp.0123456789abcdef") -> Path:
    left = folder / name
    left.write_text("half of some")
    return left


def test_what_a_dead_writer_left_is_hidden_and_removed_at_the_next_opening(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write("d/f.txt", "x")
    left = leave_behind(tmp_path / "run" / "d")
    assert [each.parts for each in workspace.list().found] == [("d",), ("d", "f.txt")]
    again = Workspace(tmp_path / "run")
    again.list()
    assert not left.exists()
    assert again.usage().files == 2


def test_what_a_living_writer_writes_is_not_removed(workspace: Workspace, tmp_path: Path) -> None:
    workspace.list()
    left = leave_behind(tmp_path / "run")
    with left.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        Workspace(tmp_path / "run").list()
        assert left.exists()


def test_only_unfinished_files_are_hidden(workspace: Workspace) -> None:
    root = workspace.root
    leave_behind(root, ".cairn-tmp.mine")
    (root / ".cairn-tmp.0123456789abcdef").mkdir()
    leave_behind(root / ".cairn-tmp.0123456789abcdef", "x")
    assert len(workspace.list().found) == 3
    assert len(workspace.changes()) == 2


@pytest.mark.kill
def test_a_killed_writer_leaves_the_old_or_the_new_content_whole(tmp_path: Path) -> None:
    root = tmp_path / "run"
    code = """
        import sys
        from cairn.workspace import Workspace
        workspace = Workspace(sys.argv[1])
        print("ready", flush=True)
        number = 0
        while True:
            number += 1
            letter = "ab"[number % 2]
            workspace.write("f.txt", letter * 200_000, overwrite=True)
            workspace.write(f"new/{number % 50}.txt", letter * 5_000, overwrite=True)
    """
    Workspace(root).write("f.txt", "a" * 200_000)
    left = 0
    for number in range(12):
        argv = [sys.executable, "-c", textwrap.dedent(code), str(root)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.05 + 0.0137 * number)
            writer.send_signal(signal.SIGKILL)
        left += sum(1 for path in root.rglob(".cairn-tmp.*"))
        workspace = Workspace(root)
        assert set(workspace.read("f.txt")) in ({97}, {98})
        assert len(workspace.read("f.txt")) == 200_000
        for path in (root / "new").iterdir():
            content = path.read_text()
            assert (len(content), len(set(content))) == (5_000, 1)
        assert not list(root.rglob(".cairn-tmp.*"))
        assert workspace.usage() == workspace.recount()
    assert left > 0, "no kill fell into a write: the test shows nothing"
