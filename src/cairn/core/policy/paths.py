"""Whether a path stands inside a folder, told from its text alone.

Only the text is looked at: what a link leads to is the workspace's business. Of any form that some
program may read otherwise (`..` past the root, backslashes, escapes, look-alikes of the slash,
variables, drives, addresses) it cannot be told.
"""

from __future__ import annotations

import re
import unicodedata

PATH_CHARS = 4_096
SLASHES = frozenset(
    "\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c\u1735\u2571\u2572\u27cb\u27cd"
)
ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
ELSEWHERE = re.compile(r"[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]*://?|~")
VARIABLE = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%")
MEANT = frozenset(range(0x20)) | {0x25, 0x2E, 0x2F, 0x5C} | frozenset(range(0x7F, 0x100))
"""What a percent escape must not stand for: signs of a path, controls, and parts of a character."""


def is_inside(path: str, root: str) -> bool:
    """Whether `path` is the folder `root` or stands in it.

    Args:
        path: Absolute for an absolute root, relative for a relative one.
        root: A normal path; `.` for whatever the path is relative to.
    """
    if not path or len(path) > PATH_CHARS or _suspect(path):
        return False
    wanted = parts_of(root)
    if path.startswith("/") is not root.startswith("/") or path.startswith("//"):
        return False
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if parts[: len(wanted)] != wanted:
        return False
    depth = 0
    for part in parts[len(wanted) :]:
        if part == "..":
            depth -= 1
            if depth < 0:
                return False
        elif part.strip(". ") == "" or part != part.strip():
            return False  # some programs drop dots and spaces at the end of a name
        else:
            depth += 1
    return True


def stands_inside(path: str, root: str) -> bool | None:
    """As `is_inside`, but None where the path may be inside for some program."""
    if is_inside(path, root):
        return True
    if not path or len(path) > PATH_CHARS or _suspect(path) or path.startswith("//"):
        return None
    if path.startswith("/") is not root.startswith("/"):
        return None  # what a relative path is relative to is not known here
    parts = path.split("/")
    if any(part == ".." or (part != "." and part != part.strip().rstrip(".")) for part in parts):
        return None
    return None if is_inside(_folded(path), _folded(root)) else False


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def parts_of(root: str) -> list[str]:
    """The names a root consists of."""
    return [part for part in root.split("/") if part not in {"", "."}]


def is_root(root: str) -> bool:
    """Whether a text can be a root: a normal path without `..` or anything doubtful."""
    return bool(root) and not _suspect(root) and ".." not in parts_of(root) and root[:2] != "//"


def _suspect(path: str) -> bool:
    if _doubtful(path):
        return True
    if path.isascii():
        return False
    flat = unicodedata.normalize("NFKC", path)
    return flat != path and (_signs(flat) != _signs(path) or _doubtful(flat))


def _doubtful(path: str) -> bool:
    if "\\" in path or path != path.strip() or ELSEWHERE.match(path) or VARIABLE.search(path):
        return True
    if "%" in path and any(int(code, 16) in MEANT for code in ESCAPE.findall(path)):
        return True
    if path.isascii():
        return not path.isprintable()
    return any(char in SLASHES or unicodedata.category(char)[0] == "C" for char in path)


def _signs(path: str) -> tuple[int, int]:
    """How often the signs that make a path what it is stand in it."""
    return path.count("/"), path.count("..")
