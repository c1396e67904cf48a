"""Whose a workspace is: a mark beside its folder, looked at before anything in it is read.

A run's or a session's name is free again when the store has removed what had it. The folder that
was made under that name may be there still, and it is not the next one's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from cairn.core.messages import Principal, Record
from cairn.workspace.baseline import MANIFEST_BYTES, is_kept
from cairn.workspace.descent import FILE, FOLDER, read_all
from cairn.workspace.paths import shown
from cairn.workspace.refusals import WorkspaceFailed
from cairn.workspace.staging import sync_folder

ASIDE = "aside"
"""The folder beside the marks in which folders lie that are no longer anybody's."""
SLACK_US = 2_000_000
"""How far the clocks of a file system and of a journal may be apart."""
MICROS = 1_000
Standing = Literal["none", "free", "own", "foreign"]


class Owner(Record):
    """Whose a workspace is.

    Args:
        mark: What is kept of it: a digest, by which nobody is found who is not known already.
        begun: When its run, or the first run of its session, was made; microseconds since 1970.
    """

    mark: str
    begun: int


class _Marked(msgspec.Struct):
    """What is read of a manifest for its mark; None in one that an earlier version has kept."""

    owner: str | None = None


def owner_of(principal: Principal, run: str, begun: int) -> Owner:
    """Whose the workspace of a run is, or of the session that begins with that run."""
    same = msgspec.json.encode([principal.id, principal.tenant, run, begun])
    return Owner(mark=hashlib.sha256(same).hexdigest(), begun=begun)


def standing(state: int, name: str, owner: Owner) -> Standing:
    """What the folder beside this mark is to an owner.

    A folder without an owner's mark belongs to whoever has its name now, unless it was in use
    before their run was made: then it was left by somebody who had the name before.

    Args:
        state: Handle of the folder of the marks.
        name: The mark's file.
        owner: Who asks.

    Returns:
        `none` if there is no mark, `free` if nobody has it yet, `own` or `foreign`.

    Raises:
        WorkspaceFailed: the mark cannot be read.
    """
    if not is_kept(state, name):
        return "none"
    try:
        handle = os.open(name, FILE, dir_fd=state)
        try:
            made = os.fstat(handle).st_mtime_ns // MICROS
            mark = msgspec.json.decode(read_all(handle, MANIFEST_BYTES), type=_Marked).owner
        finally:
            os.close(handle)
    except (OSError, msgspec.MsgspecError) as error:
        said = f"{shown(name)} cannot be read ({error}); whose this workspace is is not known"
        raise WorkspaceFailed(said) from error
    if mark is None:
        return "free" if made + SLACK_US >= owner.begun else "foreign"
    if not mark:
        return "free"
    return "own" if mark == owner.mark else "foreign"


@contextmanager
def only_one(state: int) -> Iterator[None]:
    """Hold the lock of these marks: meanwhile no process opens a workspace beside them."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(state, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(state, fcntl.LOCK_UN)


def set_aside(base: int, state: int, place: str) -> None:
    """Take a folder out of the way, with what is noted beside it; nothing of it is lost.

    The mark goes last: whoever is killed before has left a folder that is still known as foreign.

    Args:
        base: Handle of the folder that holds the workspaces.
        state: Handle of the folder of the marks.
        place: The workspace's name.

    Raises:
        OSError: it cannot be moved; it is still known as foreign.
    """
    with suppress(FileExistsError):
        os.mkdir(ASIDE, 0o700, dir_fd=state)
    aside = os.open(ASIDE, FOLDER, dir_fd=state)
    try:
        to = f"{time.time_ns() // MICROS}.{secrets.token_hex(4)}"
        _move(base, place, aside, f"{to}.files")
        sync_folder(base)
        _move(state, f"{place}.calls", aside, f"{to}.calls")
        sync_folder(aside)
        _move(state, f"{place}.json", aside, f"{to}.json")
        sync_folder(state)
    finally:
        os.close(aside)


def _move(here: int, name: str, there: int, new: str) -> None:
    """Move what has this name, a link itself and not what it leads to; nothing may be there."""
    with suppress(FileNotFoundError):
        os.rename(name, new, src_dir_fd=here, dst_dir_fd=there)


def clear_aside(state: int, before: int) -> list[str]:
    """Remove what was set aside before this time, microseconds since 1970; the folders' names.

    Raises:
        OSError: one cannot be removed.
    """
    try:
        aside = os.open(ASIDE, FOLDER, dir_fd=state)
    except FileNotFoundError:
        return []
    removed: list[str] = []
    try:
        for name in os.listdir(aside):  # noqa: PTH208 - by its handle, which has no path
            when, _, rest = name.partition(".")
            if not when.isdecimal() or int(when) >= before:
                continue
            with suppress(FileNotFoundError):  # somebody else was faster
                _remove(aside, name)
                removed += [name] if rest.endswith(".files") else []
    finally:
        os.close(aside)
    return removed


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):  # a folder; which of them, the system decides
        shutil.rmtree(name, dir_fd=folder)
