"""The content of files that an approval is bound to: hashed when asked, at the yes, at the start.

The hash is taken in a thread, outside the event loop. A tool opens its files itself, a moment
later; what a program changes in that moment is not seen.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from cairn.core.state import Call, RunState
from cairn.core.terms import BoundFile
from cairn.engine.folders import workspace_of
from cairn.errors import Refused
from cairn.ports import Store
from cairn.workspace import GivesWorkspaces, PathRefused, WorkspaceError

MOST_BYTES = 256 << 20
"""A larger file is bound by nobody."""
CHUNK = 1 << 20

Hash = Callable[[str], str]


class Unbindable(Exception):
    """A file's content cannot be read, so nobody can approve what would be done with it."""


async def bind(
    places: GivesWorkspaces | None, store: Store, state: RunState, paths: tuple[str, ...]
) -> tuple[BoundFile, ...]:
    """The files with the hashes of what is in them now.

    Args:
        places: Where the run's workspace is; without one, paths are this process's own.
        store: Where the run is.
        state: The run.
        paths: In the order they are bound in.

    Raises:
        Unbindable: one is no file, too large, or cannot be read.
    """
    look: Hash = _hash
    if places is not None:
        workspace = await workspace_of(places, store, state)
        look = _in_workspace(workspace.read)
    return await asyncio.to_thread(
        lambda: tuple(BoundFile(path=path, hash=look(path)) for path in paths)
    )


async def changed_since(
    places: GivesWorkspaces | None, store: Store, state: RunState, call: Call
) -> tuple[str, ...]:
    """The files of a call's request that no longer hold what they held when it was asked.

    Raises:
        Unbindable: one cannot be looked at.
    """
    now = await bind(places, store, state, tuple(file.path for file in call.files))
    old = {file.path: file.hash for file in call.files}
    return tuple(file.path for file in now if file.hash != old[file.path])


async def check_unchanged(
    places: GivesWorkspaces | None, store: Store, state: RunState, request: str, call: Call
) -> None:
    """Refuse a yes to what is no longer what was shown.

    The start looks once more; this tells the person who decides, while they still can.

    Raises:
        Refused: a file that the request is bound to has changed, or cannot be looked at.
    """
    try:
        changed = await changed_since(places, store, state, call)
    except Unbindable as error:
        raise Refused(f"{request} was not approved: {error}") from error
    if changed:
        raise Refused(
            f"{request} was not approved: changed since it was asked: {', '.join(changed)}. "
            "Put back what was there, or deny the request and have it asked for again"
        )


def _in_workspace(read: Callable[[str], bytes]) -> Hash:
    def look(path: str) -> str:
        try:
            return sha256(read(path)).hexdigest()
        except PathRefused as error:
            if error.rule == "missing":
                return ""
            raise Unbindable(str(error)) from error
        except WorkspaceError as error:
            raise Unbindable(str(error)) from error

    return look


def _hash(path: str) -> str:
    """The hash of a file's content, empty when there is no such file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise Unbindable(f"{path} cannot be read: {error}") from error
    try:
        found: Any = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise Unbindable(f"{path} is no file")
        digest, seen = sha256(), 0
        while chunk := os.read(handle, CHUNK):
            seen += len(chunk)
            if seen > MOST_BYTES:
                raise Unbindable(f"{path} is larger than {MOST_BYTES >> 20} MiB")
            digest.update(chunk)
        return digest.hexdigest()
    except OSError as error:
        raise Unbindable(f"{path} cannot be read: {error}") from error
    finally:
        os.close(handle)
