"""Going down from a held folder, name by name, by handles: no step ever follows a link.

A path is never given to the system as a whole. What is swapped between two steps is met by the
second as what it then is, and a step into a link fails.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Literal

from cairn.core.names import listed, nearest
from cairn.workspace.paths import Parts, nameable, shown
from cairn.workspace.refusals import PathRefused, WorkspaceError, WorkspaceFailed

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
FOLDER_MODE = 0o755
CHUNK = 1 << 20
Kind = Literal["file", "folder", "link", "special"]
MOST_LOOKED_AT = 1_000
"""Names of a folder that are looked through for one like the one that is missing."""


@contextmanager
def descend(root: int, parts: Parts, *, make: list[Parts] | None = None) -> Iterator[int]:
    """A handle of a folder below the root, closed afterwards; the root's own for no parts.

    Args:
        root: Handle of the folder to begin at.
        parts: The names on the way.
        make: Missing folders are made, and their paths added here; None to refuse instead.

    Raises:
        PathRefused: a step is a link, a file, or missing.
        WorkspaceFailed: the system refused a step.
    """
    held = root
    try:
        for depth, name in enumerate(parts):
            following = _step(held, parts[: depth + 1], name, make)
            if held != root:
                os.close(held)
            held = following
        yield held
    finally:
        if held != root:
            os.close(held)


def _step(held: int, parts: Parts, name: str, make: list[Parts] | None) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=held)
    except FileNotFoundError:
        if make is None:
            raise missing(held, parts) from None
    except OSError as error:
        raise _no_folder(held, parts, error) from None
    try:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=held)
            make.append(parts)
        return os.open(name, FOLDER, dir_fd=held)
    except OSError as error:
        raise _no_folder(held, parts, error) from None


def _no_folder(held: int, parts: Parts, error: OSError) -> WorkspaceError:
    told = told_of(parts)
    found = look(held, parts[-1])
    if found is not None and stat.S_ISLNK(found.st_mode):
        return refused_link(told)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        return PathRefused("kind", told, "this is no folder", "Name a folder")
    return failed(told, "cannot be opened", error)


def look(folder: int, name: str) -> os.stat_result | None:
    """What a name in a folder is, links not followed; None when there is no such name."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(shown(name), "cannot be looked at", error) from None


@contextmanager
def open_file(folder: int, parts: Parts) -> Iterator[int]:
    """A handle to read a regular file by; nothing else is ever opened.

    Raises:
        PathRefused: it is missing, a link, a folder, or a special file.
        WorkspaceFailed: the system refused.
    """
    told = told_of(parts)
    found = look(folder, parts[-1])
    if found is None:
        raise missing(folder, parts)
    refuse_kind(told, found)
    try:
        handle = os.open(parts[-1], FILE, dir_fd=folder)
    except OSError as error:
        swapped = look(folder, parts[-1])
        if swapped is not None:
            refuse_kind(told, swapped)
        raise failed(told, "cannot be opened", error) from None
    try:
        refuse_kind(told, os.fstat(handle))  # it may have been swapped since
        yield handle
    finally:
        os.close(handle)


def refuse_kind(told: str, found: os.stat_result) -> None:
    """Raise `PathRefused` for all but regular files."""
    kind = kind_of(found)
    if kind == "link":
        raise refused_link(told)
    if kind == "folder":
        raise PathRefused("kind", told, "this is a folder", "Name a file in it")
    if kind == "special":
        said = "this is a pipe, a socket or a device, which are never opened"
        raise PathRefused("special", told, said)


def kind_of(found: os.stat_result) -> Kind:
    """`file`, `folder`, `link` or `special`."""
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(found.st_mode) else "special"


def read_all(handle: int, most: int) -> bytes:
    """The content of an open file; one byte more than `most` tells that it is longer."""
    pieces: list[bytes] = []
    left = most + 1
    while left > 0 and (piece := os.read(handle, min(left, CHUNK))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def names_in(folder: int, most: int) -> list[str]:
    """Names in a folder, sorted; at most `most` of them, whichever the system gives first."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, most))


def told_of(parts: Parts) -> str:
    """A path in messages."""
    return shown("/".join(parts))


def refused_link(told: str) -> PathRefused:
    said = "this is a link, and links are never followed"
    return PathRefused("link", told, said, "Name the file or folder it points to, if that is here")


def missing(folder: int, parts: Parts) -> PathRefused:
    """There is no such name: say which names of the folder are like it."""
    where = told_of(parts[:-1]) or "the workspace's root"
    try:
        known = [name for name in names_in(folder, MOST_LOOKED_AT) if nameable(name)]
    except OSError:
        known = []
    close = nearest(parts[-1], known)
    if close:
        fix = f"Did you mean {' or '.join(map(shown, close))}"
    elif known:
        fix = f"In {where} there are {listed(known, 10)}"
    else:
        fix = f"{where[:1].upper()}{where[1:]} is empty" if where else ""
    return PathRefused("missing", told_of(parts), "there is no such file or folder", fix)


SAID = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the system allows no file of this size",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.EMFILE: "the process has too many files open",
    errno.ENFILE: "the system has too many files open",
    errno.EILSEQ: "the file system does not allow this name",
}


def failed(told: str, what: str, error: OSError) -> WorkspaceFailed:
    """The system refused something; in words."""
    said = SAID.get(error.errno or 0, error.strerror or type(error).__name__)
    return WorkspaceFailed(f"{told}: it {what}: {said}")
