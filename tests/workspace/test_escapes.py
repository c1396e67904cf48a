"""No path leads out of a workspace, in whatever way it is written or prepared."""

import os
import socket
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.workspace import PathRefused, Workspace, WorkspaceError, WorkspaceLimit
from cairn.workspace.patching import plan

SECRET = "the canary sings\n"

UP = ["../outside/secret.txt", "..", "../", "../.", "./..", "a/../../outside/secret.txt"]
UP += ["a/..", "a/../a/f.txt", "a/./../../outside", "a//..//..//outside/secret.txt", "../run/f.txt"]
UP += ["a/b/../../../outside/secret.txt", ".//..", "../" * 40 + "etc/passwd"]
ABSOLUTE = ["/etc/passwd", "/", "//", "//etc/passwd", "/./etc", "/proc/self/environ", "/dev/zero"]
ABSOLUTE += ["/proc/self/cwd/f.txt", "/dev/stdin", "///tmp", "/..", "/proc/self/fd/0"]
NAMES = ["f\0.txt", "f.txt\0", "\0", "a\nb", "f.txt\n", "a\rb", "\x1b[2Jf", "a\tb", "a\x7fb"]
NAMES += ["..\\outside\\secret.txt", "a\\b", "C:\\Windows", "\\\\server\\share", "a\\..\\..\\b"]
NAMES += ["\udc80", "a/\udcff/b", "\ud800", "invoice\u202efdp.exe", "a\u2066b", "a\u200fb"]
NAMES += ["a\u2028b", "a\u2029b", "\ufeffa", "a\x85b"]
LINKS = ["to_secret", "to_outside", "to_outside/secret.txt", "to_outside/new.txt", "to_etc/passwd"]
LINKS += [
    "loop",
    "loop/x",
    "dangling",
    "a/up",
    "a/up/outside/secret.txt",
    "chain",
    "chain/secret.txt",
]
LINKS += ["to_here", "to_here/f.txt", "to_file", "to_root", "to_root/etc/passwd", "to_dot/f.txt"]
LINKS += ["to_proc", "to_proc/root/etc/passwd", "to_outside/sub/deep.txt"]
SPECIAL = ["fifo", "sock", "fifo/x", "sock/x"]
EMPTY = ["", ".", "./", "./.", ".//."]
LONG = ["x" * 256, "a/" + "é" * 128, "x" * 5_000, "d/" * 40 + "f", "a/" * 600]
KEPT = [".cairn-tmp.0123456789abcdef", "a/.cairn-tmp.x", ".CAIRN-TMP.x"]
RULES = {
    "parent": UP,
    "absolute": ABSOLUTE,
    "name": NAMES,
    "link": LINKS,
    "empty": EMPTY,
    "reserved": KEPT,
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret.txt").write_text(SECRET)
    (folder / "sub" / "deep.txt").write_text(SECRET)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path) -> Workspace:
    root = tmp_path / "run"
    (root / "a" / "b").mkdir(parents=True)
    (root / "f.txt").write_text("inside\n")
    (root / "a" / "f.txt").write_text("inside too\n")
    links = {
        "to_secret": "../outside/secret.txt",
        "to_outside": str(outside),
        "to_etc": "/etc",
        "loop": "loop",
        "dangling": "../outside/new.txt",
        "a/up": "../..",
        "chain": "to_outside",
        "to_here": "a",
        "to_file": "f.txt",
        "to_root": "/",
        "to_dot": ".",
        "to_proc": "/proc/self",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    here = Path.cwd()
    os.chdir(root)  # an address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("sock")
    finally:
        os.chdir(here)
    os.link(outside / "secret.txt", root / "twin.txt")
    return Workspace(root)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found


ATTEMPTS: dict[str, Callable[[Workspace, str], object]] = {
    "read": lambda w, p: w.read(p),
    "read text": lambda w, p: w.read_text(p),
    "write": lambda w, p: w.write(p, "evil"),
    "overwrite": lambda w, p: w.write(p, "evil", overwrite=True),
    "edit": lambda w, p: w.read_to_change(p),
    "move away": lambda w, p: w.move(p, "stolen.txt"),
    "move there": lambda w, p: w.move("f.txt", p),
    "below it": lambda w, p: w.write(f"{p}/evil.txt", "evil", overwrite=True),
    "patch": lambda w, p: plan(w, f"--- a/{p}\n+++ b/{p}\n@@ -1 +1 @@\n-the canary sings\n+evil\n"),
    "patch new": lambda w, p: plan(w, f"--- /dev/null\n+++ b/{p}\n@@ -0,0 +1 @@\n+evil\n"),
    "patch away": lambda w, p: plan(
        w, f"diff --git a/x b/x\nrename from {p}\nrename to stolen.txt\n"
    ),
}


@pytest.mark.parametrize("path", [*UP, *ABSOLUTE, *NAMES, *LINKS, *SPECIAL, *EMPTY, *LONG, *KEPT])
def test_no_path_leads_out(workspace: Workspace, outside: Path, path: str) -> None:
    """B61: through no link either, also where what it names is not there yet."""
    before = snapshot(outside)
    inside = snapshot(workspace.root)
    for attempt, act in ATTEMPTS.items():
        if path in EMPTY and attempt == "below it":
            continue  # a file in the root is no escape
        with pytest.raises(WorkspaceError):
            act(workspace, path)
    assert snapshot(outside) == before
    assert snapshot(workspace.root) == inside


@pytest.mark.parametrize(
    ("rule", "path"), [(rule, path) for rule, paths in RULES.items() for path in paths]
)
def test_a_refusal_names_its_rule(workspace: Workspace, rule: str, path: str) -> None:
    with pytest.raises(PathRefused, match=f"rule: workspace.{rule}") as refused:
        workspace.write(path, "evil", overwrite=True)
    assert refused.value.rule == rule
    assert not set("\n\r\x1b\0\u202e") & set(str(refused.value))
    str(refused.value).encode()


@pytest.mark.parametrize("path", SPECIAL[:2])
def test_pipes_and_sockets_are_never_opened(workspace: Workspace, path: str) -> None:
    with pytest.raises(PathRefused, match=r"workspace\.special"):
        workspace.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_never_opened(workspace: Workspace) -> None:
    os.mknod(workspace.root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    for attempt in ("read", "overwrite", "edit", "move away"):
        with pytest.raises(PathRefused, match=r"workspace\.special"):
            ATTEMPTS[attempt](workspace, "zero")


def test_a_pipe_with_a_waiting_writer_is_not_woken(workspace: Workspace) -> None:
    end = os.open(workspace.root / "fifo", os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(end, b"precious")
        with pytest.raises(PathRefused):
            workspace.read("fifo")
        assert os.read(end, 100) == b"precious"
    finally:
        os.close(end)


def test_a_file_with_a_second_name_outside_is_never_written(
    workspace: Workspace, outside: Path
) -> None:
    before = snapshot(outside)
    for attempt in ("overwrite", "edit", "patch"):
        with pytest.raises(PathRefused, match="hard link") as refused:
            ATTEMPTS[attempt](workspace, "twin.txt")
        assert refused.value.rule == "hard_link"
    workspace.delete("twin.txt")
    after = snapshot(outside)
    assert after == before
    workspace.write("twin.txt", "mine")
    assert snapshot(outside) == before


def test_deleting_a_link_removes_the_link_alone(workspace: Workspace, outside: Path) -> None:
    before = snapshot(outside)
    for name in ("to_secret", "to_outside", "loop", "dangling", "fifo"):
        workspace.delete(name)
        assert not os.path.lexists(workspace.root / name)
    assert snapshot(outside) == before
    with pytest.raises(PathRefused, match=r"workspace\.kind"):
        workspace.delete("a")


def test_links_are_listed_and_never_gone_into(workspace: Workspace) -> None:
    """B61."""
    listing = workspace.list()
    kinds = {"/".join(each.parts): each.kind for each in listing.found}
    assert kinds["to_outside"] == "link"
    assert kinds["fifo"] == "special"
    assert kinds["a/f.txt"] == "file"
    assert not any("secret" in path and path != "to_secret" for path in kinds)
    for path in ("to_outside", "../outside", "/etc", "f.txt", "missing"):
        with pytest.raises(PathRefused):
            workspace.list(path)


def test_names_that_no_path_can_say_are_listed_in_a_readable_form(workspace: Workspace) -> None:
    root = os.fsencode(workspace.root)
    for name in (b"\xff\xfe.txt", b"two\nlines", b"back\\slash", "ab\u202ecd".encode()):
        os.close(os.open(root + b"/" + name, os.O_CREAT | os.O_WRONLY))
    unnameable = [each for each in workspace.list().found if not each.nameable]
    assert len(unnameable) == 4
    paths = {change.path for change in workspace.changes()}
    assert {r"\xff\xfe.txt", r"two\nlines", r"ab\u202ecd"} <= paths


BENIGN = [
    "..foo",
    "a..b",
    "...",
    "....",
    "..foo/bar",
    "foo../bar",
    ".hidden",
    "-rf",
    "--",
    "~",
    "~/x",
]
BENIGN += [
    "%2e%2e/x",
    "%2e%2e%2fx",
    "．．/x",
    "a b/c d.txt",
    " lead",
    "trail ",
    "日本語/ファイル.txt",
]
BENIGN += [
    "emoji 👩‍👩‍👧.md",
    "é",
    "e\u0301",
    "CON",
    "nul.txt",
    "a:b",
    "a*b?",
    "$(id)",
    "`id`",
    "${HOME}",
]
BENIGN += ["a;b|c&d", "'q'", '"q"', "#x", "[x]", "{x}", "A", "x" * 255, "∕etc∕passwd", "․․/x"]
BENIGN += ["./plain.txt", "new//double.txt", "new/./dot.txt", "deep/" * 31 + "f", "İ", "ß", "a,b"]


@pytest.mark.parametrize("path", BENIGN)
def test_names_that_only_look_dangerous_are_plain_names(
    workspace: Workspace, outside: Path, path: str
) -> None:
    before = snapshot(outside)
    assert workspace.write(path, f"{path}\n")
    assert workspace.read_text(path).text == f"{path}\n"
    assert (workspace.root / path).read_text() == f"{path}\n"
    workspace.move(path, "moved")
    workspace.delete("moved")
    assert snapshot(outside) == before


def test_two_forms_of_one_letter_are_two_files(workspace: Workspace) -> None:
    composed = "é.txt"
    apart = unicodedata.normalize("NFD", composed)
    workspace.write(composed, "one")
    workspace.write(apart, "two")
    assert (workspace.read(composed), workspace.read(apart)) == (b"one", b"two")


def test_length_and_depth_are_named_with_their_figures(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceLimit) as long:
        workspace.write("x" * 100 + "/" + "y" * 1_000, "")
    assert (long.value.limit, long.value.figure, long.value.bound) == ("path_bytes", 1_101, 1_024)
    with pytest.raises(WorkspaceLimit) as deep:
        workspace.write("d/" * 32 + "f", "")
    assert (deep.value.limit, deep.value.figure, deep.value.bound) == ("depth", 33, 32)


# ---------------------------------------------------------------- the root itself


def test_a_root_that_is_a_link_is_refused(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(WorkspaceError, match="is a link"):
        Workspace(tmp_path / "link").list()


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkspaceError, match="is no folder"):
        Workspace(tmp_path / "file").list()


def test_the_handle_decides_when_another_folder_takes_the_name(
    workspace: Workspace, outside: Path, tmp_path: Path
) -> None:
    root = workspace.root
    root.rename(tmp_path / "elsewhere")
    root.symlink_to(outside)
    before = snapshot(outside)
    workspace.write("new.txt", "here")
    assert (tmp_path / "elsewhere" / "new.txt").read_text() == "here"
    assert snapshot(outside) == before
    with pytest.raises(WorkspaceError, match="another folder"):
        assert workspace.root


def test_a_root_that_vanished_says_so(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.write("f.txt", "x")
    (tmp_path / "run" / "f.txt").unlink()
    (tmp_path / "run").rmdir()
    with pytest.raises(WorkspaceError, match="was removed"):
        workspace.write("f.txt", "x")
    with pytest.raises(WorkspaceError, match="was removed"):
        workspace.list()


def test_a_new_workspace_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Workspace(tmp_path / "above" / "run").list()
    finally:
        os.umask(before)
    for path in ("above", "above/run", "above/.cairn", "above/.cairn/run.calls"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "above/.cairn/run.json").stat().st_mode) == 0o600
