"""Names that are swapped between a look and its use lead nowhere."""

import ctypes
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cairn.errors import Unsure
from cairn.workspace import (
    Changed,
    PathRefused,
    Workspace,
    WorkspaceError,
    commit,
    descent,
    staging,
)

Make = Callable[[Path], object]
SECRET = "the canary sings\n"
ROUNDS = 50
READS = 40


@contextmanager
def swapping(swap: Callable[[], None]) -> Iterator[None]:
    """Swaps in a loop, in a thread of its own."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            swap()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "f.txt").write_text(SECRET)
    return folder


def exchanging(good: Path, make_good: Make, bad: Path, make_bad: Make) -> Callable[[], None]:
    """Two names change places in one step, over and over; what was taken away is made anew."""
    library = ctypes.CDLL(None)
    name, flag = ("renameatx_np", 2) if sys.platform == "darwin" else ("renameat2", 2)
    here = -2 if sys.platform == "darwin" else -100
    call = getattr(library, name)
    is_bad = [False]

    def swap() -> None:
        if call(here, os.fsencode(good), here, os.fsencode(bad), flag) == 0:
            is_bad[0] = not is_bad[0]
        for path, make in ((good, make_good), (bad, make_bad)):
            with suppress(OSError):
                if not os.path.lexists(path):
                    make(path)
        with suppress(OSError):
            if (
                not is_bad[0] and not bad.is_symlink() and bad.is_file()
            ):  # the bad one was written over
                bad.unlink()

    return swap


def attempts(workspace: Workspace, path: str, number: int) -> Iterator[Callable[[], object]]:
    yield lambda: workspace.read(path)
    yield lambda: workspace.write(path, f"evil {number}", overwrite=True)
    yield lambda: workspace.write(f"{path}.{number}", "evil")
    yield lambda: workspace.list("d")
    yield lambda: workspace.move(path, f"m{number}")
    yield lambda: workspace.move(f"m{number}", path)
    yield lambda: workspace.changes() if number % 20 == 0 else None


def storm(workspace: Workspace, path: str) -> list[object]:
    """What was read. It goes on until some attempts met a link or a pipe, and some did not."""
    seen: list[object] = []
    refused: Counter[str] = Counter()

    def attempt(act: Callable[[], object]) -> None:
        try:
            seen.append(act())
        except PathRefused as error:
            refused[error.rule] += 1
        except (WorkspaceError, Unsure):
            refused["other"] += 1

    number = 0
    while number < ROUNDS or not seen or not refused["link"] + refused["special"]:
        number += 1
        for act in attempts(workspace, path, number):
            attempt(act)
        for _ in range(READS):
            attempt(lambda: workspace.read(path))
    return seen


def test_a_folder_swapped_for_a_link_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    root = workspace.root
    (root / "d").mkdir()
    (root / "d" / "f.txt").write_text("inside\n")
    (root / "e").symlink_to(outside)
    links = exchanging(root / "d", Path.mkdir, root / "e", lambda path: path.symlink_to(outside))
    with swapping(links):
        seen = storm(workspace, "d/f.txt")
    assert SECRET.encode() not in seen
    assert [path.name for path in outside.iterdir()] == ["f.txt"]
    assert (outside / "f.txt").read_text() == SECRET


def test_a_file_swapped_for_a_link_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    root = workspace.root
    (root / "d").mkdir()
    (root / "d" / "f.txt").write_text("inside\n")
    (root / "e").symlink_to(outside / "f.txt")
    target = outside / "f.txt"
    links = exchanging(
        root / "d" / "f.txt", Path.touch, root / "e", lambda path: path.symlink_to(target)
    )
    with swapping(links):
        seen = storm(workspace, "d/f.txt")
    assert SECRET.encode() not in seen
    assert [path.name for path in outside.iterdir()] == ["f.txt"]
    assert (outside / "f.txt").read_text() == SECRET


@pytest.mark.parametrize(("left", "told"), [("a file", commit.SWAPPED), ("nothing", commit.ABSENT)])
def test_a_link_that_is_swapped_before_its_target_is_read_is_no_error_of_the_system(
    tmp_path: Path, left: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "l").symlink_to("elsewhere")
    link = (tmp_path / "l").lstat()
    (tmp_path / "l").unlink()
    if left == "a file":
        (tmp_path / "l").touch()
    monkeypatch.setattr("cairn.workspace.commit.look", lambda folder, name: link)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert commit.hash_of(folder, ("l",)) == told
    finally:
        os.close(folder)


def test_a_file_swapped_for_a_pipe_never_blocks(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    root = workspace.root
    (root / "d").mkdir()
    (root / "d" / "f.txt").write_text("inside\n")
    os.mkfifo(root / "e")
    with swapping(exchanging(root / "d" / "f.txt", Path.touch, root / "e", os.mkfifo)):
        storm(workspace, "d/f.txt")


def test_readers_see_the_old_or_the_new_content_never_a_part(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    contents = [letter * 50_000 for letter in "ab"]
    workspace.write("f.txt", contents[0])
    number = 0

    def write() -> None:
        nonlocal number
        number += 1
        workspace.write("f.txt", contents[number % 2], overwrite=True)

    with swapping(write):
        seen = {workspace.read("f.txt").decode() for _ in range(300)}
    assert seen <= set(contents)


def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.write("f.txt", "one")
    looked = workspace.read_to_change("f.txt")
    (workspace.root / "f.txt").write_text("somebody else's")
    with pytest.raises(Changed, match="changed by somebody else"):
        workspace.commit([workspace.replacing(looked, b"two")])
    assert workspace.read("f.txt") == b"somebody else's"


@pytest.mark.parametrize("system", ["with an exclusive rename", "without one"])
def test_a_name_that_is_taken_at_the_last_moment_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    if system == "without one":
        monkeypatch.setattr(staging, "_exclusive_rename", lambda: None)
    workspace = Workspace(tmp_path / "run")

    def take(name: str) -> Callable[[object], None]:
        return lambda _: (workspace.root / name).write_text("somebody else's") and None

    with pytest.raises(WorkspaceError, match="taken"):
        workspace.write("new.txt", "mine", before_first=take("new.txt"))
    assert workspace.read("new.txt") == b"somebody else's"
    workspace.write("from.txt", "mine")
    with pytest.raises(WorkspaceError, match="taken"):
        workspace.move("from.txt", "to.txt", before_first=take("to.txt"))
    assert workspace.read("to.txt") == b"somebody else's"
    assert workspace.read("from.txt") == b"mine"


def test_a_change_that_fails_in_the_midst_is_unsure_and_says_how_far_it_came(
    tmp_path: Path,
) -> None:
    workspace = Workspace(tmp_path / "run")
    changes = [workspace.put((name,), b"new", overwrite=False) for name in ("a", "b", "c")]

    def take(_: object) -> None:
        (workspace.root / "b").mkdir()

    with pytest.raises(Unsure, match=r"a part was done \(a\), then: b: this name is taken"):
        workspace.commit(changes, take)
    assert sorted(path.name for path in workspace.root.iterdir()) == ["a", "b"]
    assert workspace.usage().files == 2


@pytest.mark.parametrize("becomes", ["link", "pipe", "folder", "nothing"])
@pytest.mark.parametrize("act", ["read", "read_to_change"])
def test_what_is_swapped_right_between_the_look_and_the_opening_is_refused(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, becomes: str, act: str
) -> None:
    workspace = Workspace(tmp_path / "run")
    path = workspace.root / "f.txt"
    path.write_text("inside\n")
    real = descent.look
    looks = 1 if act == "read" else 2  # one of its own before it opens

    def swap() -> None:
        path.unlink()
        if becomes == "link":
            path.symlink_to(outside / "f.txt")
        elif becomes == "pipe":
            os.mkfifo(path)
        elif becomes == "folder":
            path.mkdir()

    def look(folder: int, name: str) -> os.stat_result | None:
        nonlocal looks
        found = real(folder, name)
        looks -= name == "f.txt"
        if looks == 0:
            looks = -1
            swap()
        return found

    monkeypatch.setattr(descent, "look", look)
    monkeypatch.setattr(commit, "look", look)
    with pytest.raises(WorkspaceError):
        getattr(workspace, act)("f.txt")
    assert looks < 0
