"""What a tool call was about to do, noted before its first step, so that it can be found out later.

A killed process may leave a call of which nobody knows whether it took effect. The note says what
each file was and was to become; what the files are now tells the rest. No note: nothing was begun.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from cairn.core.messages import Record
from cairn.workspace.descent import FILE, FOLDER, names_in, read_all
from cairn.workspace.staging import sync_folder

KEPT = 4_096
"""Notes of one workspace; when there are more, the oldest half is dropped."""
DROPPED = "dropped"
"""A file beside the notes that says that some were dropped."""
NOTE_BYTES = 1 << 20

Step = tuple[str, str]
"""What a file was and is to become: hashes, or `ABSENT`."""
ABSENT = ""
Found = Literal["done", "not_done", "unknown"]


class Note(Record):
    """One call's intent.

    Args:
        steps: By path: hash before and after; empty where there is no file.
        said: What the call answers when it took effect.
    """

    steps: dict[str, Step]
    said: str = ""


def digest(data: bytes) -> str:
    """The hash by which contents are compared."""
    return hashlib.sha256(data).hexdigest()


class Intents:
    """The notes of one workspace, in a folder outside it."""

    def __init__(self, folder: int) -> None:
        """`folder` is a handle that stays open as long as this is used."""
        self._folder = folder

    def write(self, call: str, note: Note) -> None:
        """Note durably what a call is about to do, over what an earlier attempt noted.

        Raises:
            OSError: it could not be written; the call must not begin.
        """
        temp = f".{secrets.token_hex(8)}"
        handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder)
        try:
            view = memoryview(msgspec.json.encode(note))
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
            os.rename(temp, f"{call}.json", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            with suppress(OSError):
                os.unlink(temp, dir_fd=self._folder)
            raise
        finally:
            os.close(handle)
        sync_folder(self._folder)
        self._tidy()

    def read(self, call: str) -> Note | None:
        """What was noted for a call; None for nothing, or nothing that can be read."""
        try:
            handle = os.open(f"{call}.json", FILE, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(read_all(handle, NOTE_BYTES), type=Note)
        finally:
            os.close(handle)

    @property
    def complete(self) -> bool:
        """Whether no note was ever dropped, so that a missing one means that nothing was begun."""
        try:
            os.stat(DROPPED, dir_fd=self._folder)
        except FileNotFoundError:
            return True
        return False

    def _tidy(self) -> None:
        names = [name for name in names_in(self._folder, KEPT * 4) if name.endswith(".json")]
        if len(names) <= KEPT:
            return
        os.close(os.open(DROPPED, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._folder))
        aged = []
        for name in names:
            with suppress(FileNotFoundError):
                aged.append((os.stat(name, dir_fd=self._folder).st_mtime_ns, name))
        for _, name in sorted(aged)[: len(aged) // 2]:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)


def verdict(steps: Mapping[str, Step], now: Mapping[str, str]) -> Found:
    """Whether the steps were taken, by what the files are now."""
    if all(now[path] == after for path, (_, after) in steps.items()):
        return "done"
    if all(now[path] == before for path, (before, _) in steps.items()):
        return "not_done"
    return "unknown"


def open_notes(state: int, name: str) -> int:
    """A handle of the folder of notes, made if it is missing; only for its owner."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=state)
    return os.open(name, FOLDER, dir_fd=state)
