"""A diff is applied whole and exactly, or nothing of it is."""

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.workspace import PatchRefused, PathRefused, Workspace, WorkspaceError, WorkspaceLimit
from cairn.workspace.content import TextFile, lines_of
from cairn.workspace.patching import applied, plan
from cairn.workspace.unified import parse


def apply(workspace: Workspace, diff: str) -> None:
    workspace.commit(plan(workspace, diff))


def diff_of(old: str, new: str, context: int = 3, path: str = "f") -> str:
    """The reference: the standard library's diff, with the marks of missing newlines."""
    before, after = ([body + ending for body, ending in lines_of(each)] for each in (old, new))
    mark = "\n\\ No newline at end of file\n"
    found = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=context)
    return "".join(row if row.endswith("\n") else row + mark for row in found)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "run")
    workspace.write("f", "one\ntwo\nthree\nfour\nfive\n")
    workspace.write("g", "alpha\nbeta\n")
    return workspace


def state(workspace: Workspace) -> dict[str, bytes]:
    found = [each for each in workspace.list().found if each.kind == "file"]
    return {"/".join(each.parts): workspace.read("/".join(each.parts)) for each in found}


# ---------------------------------------------------------------- round trips

LINES = st.lists(st.text(st.sampled_from("ab-+ \\@é"), max_size=3), max_size=12)


@settings(deadline=None, max_examples=300)
@given(
    LINES, LINES, st.booleans(), st.booleans(), st.sampled_from(["\n", "\r\n"]), st.integers(0, 3)
)
def test_a_diff_makes_the_new_text_of_the_old(
    old: list[str], new: list[str], ends: bool, new_ends: bool, ending: str, context: int
) -> None:
    before = ending.join(old) + (ending if ends and old else "")
    after = ending.join(new) + (ending if new_ends and new else "")
    diff = diff_of(before, after, context)
    if not diff:
        return
    (patch,) = parse(diff)
    got = applied(TextFile(text=before), patch)
    single = "\n" not in before  # then the old text shows no line ending to keep
    assert got == (after.replace("\r\n", "\n") if single else after)


@settings(deadline=None)
@given(LINES, LINES, st.booleans())
def test_a_diff_with_plain_newlines_fits_a_file_with_crlf(
    old: list[str], new: list[str], ends: bool
) -> None:
    before = "\n".join(["top", *old]) + ("\n" if ends else "")
    after = "\n".join(["top", *new]) + ("\n" if ends else "")
    diff = diff_of(before, after)
    if not diff:
        return
    (patch,) = parse(diff)
    got = applied(TextFile(text=before.replace("\n", "\r\n")), patch)
    if "\n" in before:
        assert got == after.replace("\n", "\r\n")
    else:
        assert got == after


@given(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=1, max_size=9), st.data())
def test_mixed_line_endings_stay_line_by_line(endings: list[str], data: st.DataObject) -> None:
    lines = [(f"line {number}", ending) for number, ending in enumerate(endings)]
    before = "".join(body + ending for body, ending in lines)
    at = data.draw(st.integers(0, len(lines) - 1))
    changed = [
        (body.upper() if number == at else body, e) for number, (body, e) in enumerate(lines)
    ]
    after = "".join(body + ending for body, ending in changed)
    diff = diff_of(before.replace("\r\n", "\n"), after.replace("\r\n", "\n"))
    (patch,) = parse(diff)
    assert applied(TextFile(text=before), patch) == after


def test_a_missing_last_newline_is_kept_unless_the_diff_says_otherwise() -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n"
    (patch,) = parse(diff)
    assert applied(TextFile(text="a\nb"), patch) == "A\nb"
    mark = "\\ No newline at end of file\n"
    for text, said, expected in (
        ("a\nb", f"--- a/f\n+++ b/f\n@@ -2 +2 @@\n-b\n{mark}+b\n", "a\nb\n"),
        ("a\nb\n", f"--- a/f\n+++ b/f\n@@ -2 +2 @@\n-b\n+b\n{mark}", "a\nb"),
        ("a\nb", "--- a/f\n+++ b/f\n@@ -2 +2,2 @@\n b\n+c\n", "a\nb\nc"),
        ("a\nb", f"--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n a\n-b\n{mark}", "a\n"),
    ):
        assert applied(TextFile(text=text), parse(said)[0]) == expected
    with pytest.raises(PatchRefused):
        applied(TextFile(text="a\nb\n"), parse(f"--- a/f\n+++ b/f\n@@ -2 +2 @@\n-b\n{mark}+b\n")[0])


# ---------------------------------------------------------------- several files


SEVERAL = """\
diff --git a/f b/f
index 123..456 100644
--- a/f
+++ b/f
@@ -1,2 +1,2 @@
 one
-two
+TWO
@@ -5 +5,2 @@
 five
+six
--- /dev/null
+++ b/new/deep.txt
@@ -0,0 +1,2 @@
+hello
+world
\\ No newline at end of file
diff --git a/g b/h
similarity index 50%
rename from g
rename to h
--- a/g
+++ b/h
@@ -1,2 +1,2 @@
 alpha
-beta
+BETA
"""


def test_several_files_change_together(workspace: Workspace) -> None:
    apply(workspace, SEVERAL)
    assert state(workspace) == {
        "f": b"one\nTWO\nthree\nfour\nfive\nsix\n",
        "new/deep.txt": b"hello\nworld",
        "h": b"alpha\nBETA\n",
    }
    assert workspace.usage() == workspace.recount()


def test_files_are_made_deleted_renamed_and_made_executable(workspace: Workspace) -> None:
    apply(
        workspace,
        "diff --git a/empty b/empty\nnew file mode 100755\nindex 0..0\n"
        "diff --git a/f b/moved/f\nsimilarity index 100%\nrename from f\nrename to moved/f\n"
        "--- a/g\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-alpha\n-beta\n",
    )
    assert state(workspace) == {"empty": b"", "moved/f": b"one\ntwo\nthree\nfour\nfive\n"}
    assert (workspace.root / "empty").stat().st_mode & 0o777 == 0o755
    apply(workspace, "diff --git a/empty b/empty\nold mode 100755\nnew mode 100644\n")
    assert (workspace.root / "empty").stat().st_mode & 0o777 == 0o644
    apply(workspace, "diff --git a/empty b/empty\ndeleted file mode 100644\n")
    assert "empty" not in state(workspace)


def test_quoted_names_and_dates_are_read_as_git_writes_them(workspace: Workspace) -> None:
    apply(
        workspace,
        '--- /dev/null\t2026-01-01\n+++ "b/\\303\\244 \\"q\\".txt"\t2026\n@@ -0,0 +1 @@\n+x\n',
    )
    assert workspace.read('ä "q".txt') == b"x\n"


def test_a_hunk_may_stand_elsewhere_if_there_is_just_one_place(workspace: Workspace) -> None:
    apply(workspace, "--- a/f\n+++ b/f\n@@ -40,2 +40,2 @@\n four\n-five\n+FIVE\n")
    assert workspace.read("f").endswith(b"four\nFIVE\n")
    workspace.write("twice", "x\ny\nz\nx\ny\n")
    with pytest.raises(PatchRefused, match=r"fits at lines 1, 4, but not at 9.*line number"):
        plan(workspace, "--- a/twice\n+++ b/twice\n@@ -9,2 +9,2 @@\n x\n-y\n+Y\n")


BAD_PARTS = {
    "wrong context": "--- a/g\n+++ b/g\n@@ -1,2 +1,2 @@\n alfa\n-beta\n+B\n",
    "wrong spaces": "--- a/g\n+++ b/g\n@@ -1,2 +1,2 @@\n alpha \n-beta\n+B\n",
    "missing file": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n",
    "there already": "--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+x\n",
    "not all deleted": "--- a/g\n+++ /dev/null\n@@ -1 +0,0 @@\n-alpha\n",
    "nothing changes": "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-alpha\n+alpha\n",
    "count too small": "--- a/g\n+++ b/g\n@@ -1 +1 @@\n alpha\n-beta\n+B\n",
    "count too large": "--- a/g\n+++ b/g\n@@ -1,9 +1,9 @@\n alpha\n-beta\n+B\n",
    "no hunk": "--- a/g\n+++ b/g\n",
    "hunks out of order": ("--- a/g\n+++ b/g\n@@ -2 +2 @@\n-beta\n+B\n@@ -1 +1 @@\n-alpha\n+A\n"),
    "binary": "diff --git a/g b/g\nindex 1..2\nGIT binary patch\nliteral 3\nabc\n",
    "binary differ": "diff --git a/g b/g\nBinary files a/g and b/g differ\n",
    "a link": (
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n"
    ),
    "a submodule": "diff --git a/s b/s\nnew file mode 160000\n",
    "setuid": "diff --git a/g b/g\nold mode 100644\nnew mode 104755\n",
    "a copy": "diff --git a/g b/k\nsimilarity index 100%\ncopy from g\ncopy to k\n",
    "renamed in secret": "--- a/g\n+++ b/k\n@@ -1 +1 @@\n-alpha\n+A\n",
    "renamed otherwise": (
        "diff --git a/g b/k\nrename from g\nrename to k\n"
        "--- a/g\n+++ b/other\n@@ -1 +1 @@\n-alpha\n+A\n"
    ),
    "renamed over": "diff --git a/g b/f\nrename from g\nrename to big\n",
    "the same file again": "--- a/f\n+++ b/f\n@@ -5 +5 @@\n-five\n+FIVE\n",
    "below a file": "--- /dev/null\n+++ b/f/x\n@@ -0,0 +1 @@\n+x\n",
    "up": "--- /dev/null\n+++ b/../evil\n@@ -0,0 +1 @@\n+x\n",
    "up, quoted": '--- /dev/null\n+++ "b/\\056\\056/evil"\n@@ -0,0 +1 @@\n+x\n',
    "up, unprefixed": "--- ../evil\n+++ ../evil\n@@ -1 +1 @@\n-x\n+y\n",
    "absolute": "--- /dev/null\n+++ /etc/cron.d/evil\n@@ -0,0 +1 @@\n+x\n",
    "absolute behind a prefix": "--- /dev/null\n+++ b//etc/evil\n@@ -0,0 +1 @@\n+x\n",
    "NUL, quoted": '--- /dev/null\n+++ "b/e\\000vil"\n@@ -0,0 +1 @@\n+x\n',
    "newline, quoted": '--- /dev/null\n+++ "b/e\\nvil"\n@@ -0,0 +1 @@\n+x\n',
    "no UTF-8, quoted": '--- /dev/null\n+++ "b/\\377"\n@@ -0,0 +1 @@\n+x\n',
    "renamed out": "diff --git a/g b/x\nrename from g\nrename to ../evil\n",
    "renamed in": "diff --git a/x b/x\nrename from ../canary\nrename to stolen\n",
    "both nowhere": "--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n",
    "prose": "Here is the diff you wanted:\n",
    "another form": "*** Begin Patch\n*** Update File: f\n",
    "temporary": "--- /dev/null\n+++ b/.cairn-tmp.0123456789abcdef\n@@ -0,0 +1 @@\n+x\n",
    "a huge number": "--- a/g\n+++ b/g\n@@ -99999999999999999999 +1 @@\n-alpha\n+A\n",
}
GOOD_PART = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"


@pytest.mark.parametrize("which", BAD_PARTS)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_one_part_that_does_not_fit_stops_all_of_it(
    workspace: Workspace, tmp_path: Path, which: str, first: bool
) -> None:
    (tmp_path / "canary").write_text("canary")
    workspace.write("big", "taken")
    before = state(workspace)
    parts = [GOOD_PART, BAD_PARTS[which]]
    with pytest.raises(WorkspaceError):
        apply(workspace, "".join(reversed(parts) if first else parts))
    assert state(workspace) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".cairn", "canary", "run"]
    assert (tmp_path / "canary").read_text() == "canary"
    workspace.delete("big")


@pytest.mark.parametrize("diff", ["", "\n\n", "@@ -1 +1 @@\n-a\n+b\n", "--- a/f\n", "x" * 100_000])
def test_what_is_no_diff_is_refused_with_what_one_looks_like(
    workspace: Workspace, diff: str
) -> None:
    with pytest.raises(PatchRefused, match=r"---"):
        plan(workspace, diff)


PIECES = ["--- a/f\n", "+++ b/f\n", "diff --git a/f b/f\n", "@@ -1 +1 @@\n", "@@ -1,2 +0,0 @@\n"]
PIECES += ["rename from f\n", "rename to g\n", "new file mode 100644\n", '"b/\\303"', "\\ No\n"]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*" -+@\\\n,0123ab/", *PIECES]), max_size=60))
def test_no_text_whatever_breaks_the_reader(pieces: list[str]) -> None:
    try:
        parse("".join(pieces))
    except PatchRefused as error:
        str(error).encode()


def test_binary_and_linked_files_are_not_patched(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("bin", b"\0\1")
    (workspace.root / "link").symlink_to("f")
    for name in ("bin", "link"):
        with pytest.raises(WorkspaceError):
            plan(workspace, f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-one\n+1\n")


def test_a_diff_that_would_pass_a_limit_writes_nothing(tmp_path: Path) -> None:
    from cairn.workspace import WorkspaceLimits

    workspace = Workspace(tmp_path / "run", limits=WorkspaceLimits(files=2, file_bytes=100))
    new = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+{}\n"
    with pytest.raises(WorkspaceLimit, match=r"workspace\.files"):
        apply(workspace, "".join(new.format(name, "x") for name in "abc"))
    with pytest.raises(WorkspaceLimit, match=r"workspace\.file_bytes"):
        apply(workspace, new.format("a", "x") + new.format("b", "x" * 100))
    assert state(workspace) == {}


def test_what_was_taken_between_check_and_write_stops_all_of_it(workspace: Workspace) -> None:
    changes = plan(workspace, SEVERAL)
    (workspace.root / "f").write_text("somebody else's")
    before = state(workspace)
    with pytest.raises(WorkspaceError, match="changed by somebody else"):
        workspace.commit(changes)
    assert state(workspace) == before


def test_a_hard_link_is_not_patched(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("one\n")
    (workspace.root / "twin").hardlink_to(tmp_path / "canary")
    with pytest.raises(PathRefused, match="hard links"):
        plan(workspace, "--- a/twin\n+++ b/twin\n@@ -1 +1 @@\n-one\n+1\n")
