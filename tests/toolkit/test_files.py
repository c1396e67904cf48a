"""The tools for files, as a model meets them: through a run, and what they say when they refuse."""

import threading
from pathlib import Path
from typing import Any

import pytest

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.errors import ConfigError, NotDone, ToolError
from cairn.toolkit import FILE_TOOLS, READ_TOOLS, files
from cairn.toolkit.edit import edit_file
from cairn.toolkit.files import delete_file, list_files, move_file, read_file, write_file
from cairn.toolkit.patch import apply_patch
from cairn.toolkit.search import search_files
from cairn.tools.context import Context
from cairn.workspace import Workspace, WorkspaceError, WorkspaceLimits, Workspaces

FREE_HAND = Policy(effects={"write": "allow"}, name="test")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "run")


@pytest.fixture
def ctx(workspace: Workspace) -> Context[Any]:
    return Context(run_id="r", call_id="c1", workspace=workspace)


def outcomes(runtime: Runtime, run: str) -> list[str]:
    async def read() -> list[ev.Entry]:
        return await runtime.store.read(run)

    said = []
    for entry in runtime.portal.call(read()):
        if isinstance(entry.event, ev.ToolCompleted):
            said.append(bytes(entry.event.result).decode())
        elif isinstance(entry.event, ev.ToolFailed):
            said.append(entry.event.message)
    return said


def run(tmp_path: Path, *calls: Any, **options: Any) -> list[str]:
    agent = Agent("a", Scripted([*calls, "done"]), tools=FILE_TOOLS)
    given = {"workspace": tmp_path / "w", "policy": FREE_HAND, **options}
    with Runtime(":memory:", [agent], **given) as runtime:
        done = runtime.run("a", "go", id="r1", session="chat")
        assert done.status == "completed", done.text
        return outcomes(runtime, "r1")


def test_a_run_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        call("write_file", path="notes.txt", content="one\ntwo\n"),
        call("edit_file", path="notes.txt", old="two", new="2"),
        call("read_file", path="notes.txt"),
    )
    assert (tmp_path / "w" / "r1" / "notes.txt").read_text() == "one\n2\n"
    assert "1\\tone\\n     2\\t2" in said[2]


def test_runs_of_a_session_can_share_one(tmp_path: Path) -> None:
    run(tmp_path, call("write_file", path="f", content="x"), workspace_per="session")
    assert (tmp_path / "w" / "s-chat" / "f").read_text() == "x"


def test_one_workspace_can_be_given_to_all(tmp_path: Path) -> None:
    run(tmp_path, call("write_file", path="f", content="x"), workspace=Workspace(tmp_path / "one"))
    assert (tmp_path / "one" / "f").read_text() == "x"
    limited = Workspaces(tmp_path / "w", limits=WorkspaceLimits(file_bytes=3))
    said = run(tmp_path, call("write_file", path="f", content="1234"), workspace=limited)
    assert "workspace.file_bytes, 4 of at most 3" in said[0]


def test_without_a_workspace_the_tools_say_who_can_set_one(tmp_path: Path) -> None:
    said = run(tmp_path, call("read_file", path="f"), workspace=None)
    assert "Runtime(workspace=" in said[0]


@pytest.mark.parametrize("given", [{"workspace": 3}, {"workspace": "w", "workspace_per": "user"}])
def test_a_workspace_that_cannot_be_is_told_when_the_runtime_is_made(
    given: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match="workspace"):
        Runtime(":memory:", [], **given)


def test_a_run_without_file_calls_makes_no_folder(tmp_path: Path) -> None:
    run(tmp_path)
    assert not (tmp_path / "w").exists()


def test_writes_ask_and_reads_do_not(tmp_path: Path) -> None:
    for each in FILE_TOOLS:
        expected = ("read", "repeat") if each in READ_TOOLS else ("write", "probe")
        assert (each.spec.effect, each.spec.recovery) == expected, each
        assert each.probe is None or each not in READ_TOOLS
    assert files.TAINT == "files"


def test_calls_on_different_files_may_overlap_and_on_one_file_may_not() -> None:
    for each in (read_file, write_file, edit_file, delete_file):
        key = each.spec.conflict_key
        assert key is not None
        same = {key({"path": path}) for path in ("a/b.txt", "./a//b.txt", "A/B.TXT")}
        assert len(same) == 1
        assert key({"path": "é"}) == key({"path": "e\u0301"}) != key({"path": "e"})
    for each in (move_file, apply_patch, list_files, search_files):
        assert each.spec.conflict_key is None


# ---------------------------------------------------------------- what they say


def test_a_listing_shows_what_is_there(workspace: Workspace, ctx: Context[Any]) -> None:
    assert list_files(ctx) == "The workspace is empty."
    workspace.write("src/a.py", "1234")
    workspace.write("src/deep/er/x.py", "")
    (workspace.root / "link").symlink_to("/etc")
    (workspace.root / "tab\there").touch()
    assert list_files(ctx, depth=2) == (
        "link  (a link: not followed)\nsrc/\nsrc/a.py  4 bytes\nsrc/deep/\n"
        "tab\\there  0 bytes  (this name cannot be given)"
    )
    assert list_files(ctx, "src", pattern="*.py", depth=9) == (
        "src/a.py  4 bytes\nsrc/deep/er/x.py  0 bytes"
    )
    assert list_files(ctx, pattern="*.rs") == "The workspace has nothing that fits *.rs."
    assert list_files(ctx, limit=1).endswith("or raise the limit.")


def test_a_listing_says_that_names_look_alike(workspace: Workspace, ctx: Context[Any]) -> None:
    for name in ("caf\u00e9", "cafe\u0301", "README", "other"):
        workspace.write(name, "")
    said = list_files(ctx)
    assert r"look alike: 'cafe\u0301', 'caf\xe9'" in said
    assert "README'" not in said


def test_a_page_of_a_file_says_what_it_is_and_how_to_go_on(
    workspace: Workspace, ctx: Context[Any]
) -> None:
    workspace.write("f", "\ufeff" + "".join(f"line {n}\r\n" for n in range(1, 11)) + "last")
    assert read_file("f", ctx, offset_line=3, limit_lines=2) == (
        "f: lines 3 to 4 of 11 (UTF-8 with a byte-order mark, CRLF line endings, none after the "
        "last line)\n     3\tline 3\n     4\tline 4\nGo on with offset_line=5."
    )
    with pytest.raises(ToolError, match="has 11 lines; offset_line is 12"):
        read_file("f", ctx, offset_line=12)
    workspace.write("empty", "")
    assert read_file("empty", ctx) == "empty is empty."


def test_a_page_stays_small_whatever_the_file(workspace: Workspace, ctx: Context[Any]) -> None:
    workspace.write("wide", "x" * 1_000_000 + "\n" + "y\n" * 10)
    page = read_file("wide", ctx)
    assert "(this line has 1,000,000 characters)" in page
    workspace.write("long", ("z" * 1_000 + "\n") * 2_000)
    page = read_file("long", ctx, limit_lines=2_000)
    assert len(page) < 45_000
    assert "Go on with offset_line=" in page
    assert read_file("long", ctx, offset_line=int(page.rsplit("=", 1)[1].rstrip("."))).startswith(
        "long: lines 40 to 78 of 2000"
    )


def test_what_the_tools_do_to_files(workspace: Workspace, ctx: Context[Any]) -> None:
    assert write_file("a.txt", "one\n", ctx) == "a.txt: wrote 4 bytes, a new file."
    assert write_file("a.txt", "1\n", ctx, overwrite=True).endswith("in place of the old.")
    assert edit_file("a.txt", "1", "2", ctx) == "a.txt: replaced 1 text at line 1."
    assert move_file("a.txt", "d/b.txt", ctx) == "a.txt: moved to d/b.txt."
    diff = "--- a/d/b.txt\n+++ b/d/b.txt\n@@ -1 +1 @@\n-2\n+3\n"
    diff += "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n"
    assert apply_patch(diff, ctx) == "Changed 2 files:\n  changed d/b.txt\n  made n"
    assert delete_file("n", ctx) == "n: deleted."
    assert workspace.read("d/b.txt") == b"3\n"


def test_what_is_no_text_is_neither_read_nor_edited(
    workspace: Workspace, ctx: Context[Any]
) -> None:
    data = "größe".encode("latin-1")
    workspace.write("f", data)
    for act in (
        lambda: read_file("f", ctx),
        lambda: edit_file("f", "gr", "kl", ctx),
        lambda: apply_patch("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", ctx),
    ):
        with pytest.raises(ToolError, match=r"no UTF-8 text.* in cp1252 .*, 5 bytes"):
            act()
    assert workspace.read("f") == data


def test_half_of_a_character_is_refused(workspace: Workspace, ctx: Context[Any]) -> None:
    workspace.write("f", "x")
    for act in (
        lambda: write_file("g", "\ud800", ctx),
        lambda: edit_file("f", "x", "\ud800", ctx),
        lambda: edit_file("f", "\ud800", "x", ctx),
        lambda: apply_patch("--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+\ud800\n", ctx),
        lambda: search_files("\ud800", ctx),
    ):
        with pytest.raises(ToolError):
            act()
    assert [each.parts for each in workspace.list().found] == [("f",)]


def test_an_edit_may_not_make_a_file_too_large(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run", limits=WorkspaceLimits(file_bytes=10))
    ctx: Context[Any] = Context(workspace=workspace)
    workspace.write("f", "x")
    with pytest.raises(WorkspaceError, match=r"workspace\.file_bytes"):
        edit_file("f", "x", "y" * 11, ctx)


# ---------------------------------------------------------------- search


@pytest.fixture
def searched(workspace: Workspace) -> Workspace:
    workspace.write("src/a.py", "def one():\r\n    return ONE\r\n")
    workspace.write("b.txt", "one\ntwo (one)\n")
    workspace.write("image.png", b"\x89PNG\r\n\x1a\n\0one")
    (workspace.root / "link").symlink_to("b.txt")
    return workspace


def test_a_search_finds_lines_by_text(searched: Workspace, ctx: Context[Any]) -> None:
    left_out = "1 file without UTF-8 text left out."
    found = "b.txt:1: one\nb.txt:2: two (one)\nsrc/a.py:1: def one():"
    assert search_files("one", ctx) == f"{found}\n{left_out}"
    assert search_files("(one)", ctx) == f"b.txt:2: two (one)\n{left_out}"
    assert search_files("one", ctx, "src") == "src/a.py:1: def one():"
    assert search_files("ONE", ctx, files="*.py", ignore_case=True) == (
        "src/a.py:1: def one():\nsrc/a.py:2:     return ONE"
    )
    assert search_files("one", ctx, files="*.txt", limit=1) == (
        "b.txt:1: one\nThere are more; these are the first 1."
    )
    assert search_files("three", ctx, files="*.txt") == "Nothing was found."


def test_a_search_finds_lines_by_expression(searched: Workspace, ctx: Context[Any]) -> None:
    assert search_files(r"^\s+return \w+$", ctx, files="*.py", regex=True) == (
        "src/a.py:2:     return ONE"
    )
    assert search_files("^ONE", ctx, files="*.txt", regex=True, ignore_case=True, limit=9) == (
        "b.txt:1: one"
    )
    with pytest.raises(ToolError, match=r"no regular expression: .*at position 0"):
        search_files("(", ctx, regex=True)


def test_an_expression_that_never_ends_is_ended(
    searched: Workspace, ctx: Context[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched.write("trap.txt", "a" * 40 + "!\n")
    monkeypatch.setattr("cairn.toolkit.search.REGEX_S", 0.3)
    seen = threading.Event()
    for pattern in ("(a+)+$", "(a|aa)+$", "a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"):
        ticker = threading.Timer(0.05, seen.set)
        ticker.start()
        with pytest.raises(ToolError, match="takes longer"):
            search_files(pattern, ctx, files="trap.txt", regex=True)
        assert seen.is_set(), "nothing else could run meanwhile"
        ticker.join()
        seen.clear()


def test_a_search_shows_a_part_of_long_lines_and_leaves_large_files_out(
    workspace: Workspace, ctx: Context[Any]
) -> None:
    workspace.write("wide", "x" * 5_000 + "needle" + "y" * 5_000)
    workspace.write("large", "needle\n" * 200_000)
    for regex in (False, True):
        found = search_files("needle", ctx, regex=regex)
        assert found.startswith("wide:1: …xxx")
        assert "needleyyy" in found
        assert len(found) < 500
        assert found.endswith("1 file above 1,048,576 bytes left out.")


@pytest.mark.parametrize("pattern", ["a\nb", "\n"])
def test_a_search_is_for_one_line(pattern: str, ctx: Context[Any]) -> None:
    with pytest.raises(ToolError, match="within one line"):
        search_files(pattern, ctx)


def test_a_call_that_was_given_up_writes_nothing_any_more(
    workspace: Workspace, ctx: Context[Any]
) -> None:
    workspace.write("f", "x")
    ctx.close()
    for act in (
        lambda: write_file("g", "x", ctx),
        lambda: edit_file("f", "x", "y", ctx),
        lambda: delete_file("f", ctx),
        lambda: move_file("f", "g", ctx),
        lambda: apply_patch("--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+x\n", ctx),
    ):
        with pytest.raises(NotDone):
            act()
    assert workspace.read("f") == b"x"
    assert len(workspace.list().found) == 1
