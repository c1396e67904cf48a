"""Paths as they are given and shown: read without touching a disk.

A path is names with `/` between them, from the workspace's root. Nothing in it is expanded,
decoded or normalised: `~`, `%2e` and two forms of `é` are plain names, each its own file.
"""

from __future__ import annotations

import fnmatch
import unicodedata

from cairn.workspace.limits import WorkspaceLimits
from cairn.workspace.refusals import PathRefused, WorkspaceLimit

TEMP_PREFIX = ".cairn-tmp."
"""How the names of unfinished files begin; listings leave them out."""
NAME_BYTES = 255
SHOWN_CHARS = 200
PATTERN_CHARS = 200
PATTERN_PARTS = 32
TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
"""Characters that make a name read as another one on a screen."""

Parts = tuple[str, ...]


def parts_of(path: object, limits: WorkspaceLimits, *, root: bool = False) -> Parts:
    """The names of a path, from the root down; empty for the root itself.

    Args:
        path: As a model or a person wrote it.
        limits: What bounds length and depth.
        root: Whether the root itself may be meant, by `""` or `"."`.

    Raises:
        PathRefused: it leads out, or holds a name that cannot be used.
        WorkspaceLimit: it is too long or too deep.
    """
    if not isinstance(path, str):
        raise PathRefused("name", shown(repr(path)), "a path is text", "Give text")
    told = shown(path) or '""'
    if path.startswith("/"):
        fix = "Write it from the workspace's root, without the slash in front"
        raise PathRefused("absolute", told, "absolute paths are refused", fix)
    for character in path:
        _refuse_character(character, told)
    size = len(path.encode())
    if size > limits.path_bytes:
        said = f"{told}: the path is too long"
        raise WorkspaceLimit("path_bytes", size, limits.path_bytes, said)
    parts = tuple(name for name in path.split("/") if name not in {"", "."})
    for name in parts:
        _refuse_name(name, told)
    if len(parts) > limits.depth:
        raise WorkspaceLimit("depth", len(parts), limits.depth, f"{told}: the path is too deep")
    if not parts and not root:
        raise PathRefused("empty", told, "this names no file", "Name a file")
    return parts


def _refuse_character(character: str, told: str) -> None:
    if character == "\\":
        raise PathRefused("name", told, "a backslash cannot stand in a path", "Use / between names")
    if _is_bad(character):
        said = f"the character {character!a} cannot stand in a path"
        raise PathRefused("name", told, said, "Leave it out")


def _refuse_name(name: str, told: str) -> None:
    if name == "..":
        fix = "Write the path from the workspace's root, without such steps"
        raise PathRefused("parent", told, "the name .. leads out of a folder", fix)
    if len(name.encode()) > NAME_BYTES:
        said = f"one name is longer than {NAME_BYTES} bytes"
        raise PathRefused("length", told, said, "Use a shorter name")
    if name.casefold().startswith(TEMP_PREFIX):
        said = f"names that begin with {TEMP_PREFIX} are kept for unfinished files"
        raise PathRefused("reserved", told, said, "Use another name")


def _is_bad(character: str) -> bool:
    if character.isascii():
        return not character.isprintable()
    return character in TURNING or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def nameable(name: str) -> bool:
    """Whether a name that was found in a folder can be given as part of a path."""
    return "\\" not in name and not any(map(_is_bad, name))


def shown(path: str, limit: int = SHOWN_CHARS) -> str:
    """A path that is safe to show: what cannot be read or would mislead is escaped."""
    cut = path[: limit + 1]
    text = "".join(_escaped(each) if _is_bad(each) else each for each in cut)
    return text if len(path) <= limit and len(text) <= limit * 4 else f"{text[:limit]}…"


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return ascii(character)[1:-1]


def conflict_key(path: object) -> str:
    """One key for all spellings of a path that may be one file on some file system."""
    names = [name for name in str(path).split("/") if name not in {"", "."}]
    return "file " + unicodedata.normalize("NFC", "/".join(names)).casefold()


# ---------------------------------------------------------------- patterns


def pattern_of(pattern: str) -> Parts:
    """A pattern in parts; one without `/` holds for the name alone, at any depth.

    Raises:
        PathRefused: it is too long.
    """
    parts = tuple(part for part in pattern.split("/") if part not in {"", "."})
    if len(pattern) > PATTERN_CHARS or len(parts) > PATTERN_PARTS:
        said = f"a pattern has at most {PATTERN_CHARS} characters and {PATTERN_PARTS} parts"
        raise PathRefused("length", shown(pattern), said)
    return ("**", *parts) if len(parts) == 1 and "/" not in pattern.strip("/") else parts


def matches(parts: Parts, pattern: Parts) -> bool:
    """Whether a path fits: `*`, `?` and `[a-z]` within a name, `**` for any number of names."""
    fits = {0}
    for part in parts:
        fits = _stretched(fits, pattern)
        fits = {
            at if pattern[at] == "**" else at + 1
            for at in fits
            if at < len(pattern) and (pattern[at] == "**" or fnmatch.fnmatchcase(part, pattern[at]))
        }
    return len(pattern) in _stretched(fits, pattern)


def _stretched(fits: set[int], pattern: Parts) -> set[int]:
    """Positions reached without a name: `**` may stand for none."""
    reached = set(fits)
    for at in sorted(fits):
        following = at
        while following < len(pattern) and pattern[following] == "**":
            following += 1
            reached.add(following)
    return reached


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold a text: it has no half characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
