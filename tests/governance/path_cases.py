"""Paths that lead out, by every tool for files; and those that only look so."""

from collections.abc import Callable

from tests.governance.cases import Case, Place, written

KIND = "paths"


RENAME = """diff --git a/notes/today.md b/../../outside/made.txt
rename from notes/today.md
rename to ../../outside/made.txt
"""


def patch(path: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-call the bank\n+write to the bank\n"


def new_file(path: str) -> str:
    return f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+made\n"


TOOLS: dict[str, tuple[str, Callable[[str], str]]] = {
    "read": ("read_file", lambda p: written(path=p)),
    "write": ("write_file", lambda p: written(path=p, content="x", overwrite=True)),
    "edit": ("edit_file", lambda p: written(path=p, old="plain", new="x")),
    "delete": ("delete_file", lambda p: written(path=p)),
    "move": ("move_file", lambda p: written(path=p, to="taken.txt")),
    "move to": ("move_file", lambda p: written(path="notes/today.md", to=p)),
    "patch": ("apply_patch", lambda p: written(diff=patch(p))),
    "list": ("list_files", lambda p: written(path=p)),
    "search": ("search_files", lambda p: written(pattern="feathers", path=p)),
}


def hostile(place: Place) -> list[Case]:
    secret, up = f"{place.outside}/secret.txt", "../../outside/secret.txt"
    everywhere = [
        (secret, "absolute"),
        (up, "parent"),
        (f"notes/../{up}", "parent"),
        ("link_folder/secret.txt", "link"),
        ("link_up/outside/secret.txt", "link"),
        ("notes\\..\\..\\..\\outside\\secret.txt", "name"),
        ("notes/\x00/secret.txt", "name"),
    ]
    found = []
    for verb, (tool, make) in TOOLS.items():
        for path, rule in everywhere:
            if verb == "patch" and path in {secret, "notes/\x00/secret.txt"}:
                continue  # in a diff these read otherwise; see below
            found.append(Case(KIND, "files", tool, make(path), f"workspace.{rule}"))
    single = [
        ("read", "/etc/passwd", "workspace.absolute"),
        ("read", "//etc/passwd", "workspace.absolute"),
        ("read", "/proc/self/environ", "workspace.absolute"),
        ("read", "./../../outside/secret.txt", "workspace.parent"),
        ("read", "notes/..", "workspace.parent"),
        ("read", "no/such/../../../../outside/secret.txt", "workspace.parent"),
        ("read", "link_file", "workspace.link"),
        ("read", "link_inside", "workspace.link"),
        ("read", "link_loop", "workspace.link"),
        ("read", "link_proc", "workspace.link"),
        ("read", "pipe", "workspace.special"),
        ("read", "", "workspace.empty"),
        ("read", "notes", "workspace.kind"),
        ("read", "notes/\u202egnp.md", "workspace.name"),
        ("read", "notes/a\nb", "workspace.name"),
        ("read", "notes/\u2028b", "workspace.name"),
        ("read", "x" * 300, "workspace.length"),
        ("read", "d/" * 40 + "f", "workspace.depth"),
        ("read", "d" * 1_500, "workspace.path_bytes"),
        ("read", "p" * 5_000, "- path:"),
        ("write", "hard", "workspace.hard_link"),
        ("write", "link_file", "workspace.link"),
        ("write", "link_nowhere", "workspace.link"),
        ("write", "pipe", "workspace.special"),
        ("write", ".cairn-tmp.mine", "workspace.reserved"),
        ("write", ".CAIRN-TMP.mine", "workspace.reserved"),
        ("write", "notes/.CaIrN-tmp.x", "workspace.reserved"),
        ("write", "link_loop/x", "workspace.link"),
        ("edit", "hard", "workspace.hard_link"),
        ("edit", "link_file", "workspace.link"),
        ("delete", "notes", "workspace.kind"),
        ("delete", ".", "workspace.empty"),
        ("move to", "link_nowhere", "workspace.exists"),
        ("move", "link_file", "workspace.link"),
        ("list", "link_folder", "workspace.link"),
        ("list", "..", "workspace.parent"),
        ("search", "/", "workspace.absolute"),
    ]
    for verb, path, says in single:
        tool, make = TOOLS[verb]
        found.append(Case(KIND, "files", tool, make(path), says))
    diffs = [
        (new_file(f"b/{secret}"), "workspace."),
        (new_file("b/../../outside/made.txt"), "workspace.parent"),
        (new_file("b/link_folder/made.txt"), "workspace.link"),
        (new_file("b/notes/../../x"), "workspace.parent"),
        (RENAME, "workspace.parent"),
    ]
    found += [Case(KIND, "files", "apply_patch", written(diff=d), says) for d, says in diffs]
    return found + _only_docs()


def _only_docs() -> list[Case]:
    """A policy that lets one folder be written, told from the text of the path."""
    paths = [
        "docs/../notes/x",
        "docs/../../outside/x",
        "/docs/x",
        "docs\\..\\x",
        "docs/%2e%2e/x",
        "docs%2f..%2fx",
        "docs/%252e%252e/../x/../../y",
        "docs\uff0f..\uff0fx",
        "docs/\uff0e\uff0e/x",
        "docs\u2215x",
        "~/.ssh/authorized_keys",
        "$HOME/x",
        "docs/../$HOME/x",
        "C:docs/x",
        "file:///docs/x",
        "docsx/y",
        "Docs/x",
        "d\u043ecs/x",
        "docs/.. /x",
        "docs/\u200b../x",
        " docs/x",
        "docs/x\n../y",
    ]
    says = "deployment: only docs"
    found = [Case(KIND, "scribe", "write_file", written(path=p, content="x"), says) for p in paths]
    for source, to in (("docs/a", "notes/a"), ("notes/today.md", "docs/a"), ("docs/a", "../a")):
        found.append(Case(KIND, "scribe", "move_file", written(path=source, to=to), says))
    return found


def benign(place: Place) -> list[Case]:
    names = [
        "..foo",
        "a..b",
        "...three",
        "..dir/..bar",
        "~x",
        "%2e%2e",
        "$HOME.txt",
        "-y",
        "a b.txt",
        "file:colon",
        ".hidden",
        "日本/ファイル.txt",
        "caf\u00e9",
        "emoji \U0001f5fb",
        "n" * 255,
        "d/" * 30 + "f",
        "a//b",
        "./c/./d",
    ]
    calls = [("write_file", written(path=name, content="../../etc/passwd\n")) for name in names]
    calls += [
        ("read_file", written(path="notes/today.md")),
        ("read_file", written(path="notes//./today.md")),
        ("read_file", written(path="-x")),
        ("read_file", written(path="hard")),
        ("list_files", written(path="")),
        ("list_files", written(path=".", pattern="**/*")),
        ("search_files", written(pattern="../", path="notes")),
        ("search_files", written(pattern="link_folder/secret.txt")),
        ("edit_file", written(path="notes/today.md", old="the bank", new="../the/bank")),
        ("apply_patch", written(diff=patch("docs/..plan").replace("-call the bank\n", ""))),
        ("move_file", written(path="notes/moved.md", to="docs/..moved..")),
        ("delete_file", written(path="link_file")),
    ]
    patched = "--- /dev/null\n+++ b/docs/..plan\n@@ -0,0 +1 @@\n+../../outside\n"
    calls[-3] = ("apply_patch", written(diff=patched))
    found = [Case(KIND, "files", tool, arguments) for tool, arguments in calls]
    for path in (
        "docs/a",
        "docs/..a",
        "docs/a..b",
        "docs/b/../c.txt",
        "docs/caf\u00e9",
        "./docs/e",
    ):
        if ".." in path.split("/"):
            continue  # the workspace takes no such step, wherever it leads
        found.append(Case(KIND, "scribe", "write_file", written(path=path, content="x")))
    return found
