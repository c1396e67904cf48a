"""Writing a file so that at every moment its name means the old content or the new, whole.

The new content is written to a file beside it, whose lock tells that its writer lives, and then
takes the name in one step. What a killed writer left behind has no lock and is removed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from cairn.workspace.descent import FILE
from cairn.workspace.paths import TEMP_PREFIX

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_MODE = 0o644
NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})
"""What file systems say that cannot make a folder durable by itself."""
NO_SUCH_CALL = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
TRIES = 5


class Staged:
    """New content in a file of its own, ready to take a name. Close it in any case."""

    __slots__ = ("_folder", "_handle", "_temp")

    def __init__(self, folder: int, data: bytes, like: os.stat_result | None, mode: int) -> None:
        """Write the content beside where it is to be, and make it durable.

        Args:
            folder: Handle of the folder; kept open by a handle of its own.
            data: All of the content.
            like: The file that will be replaced, whose owner is kept; None for a new one.
            mode: Permission bits.

        Raises:
            OSError: it could not be written; nothing is left of it.
        """
        self._folder = os.dup(folder)
        self._temp, self._handle = "", -1
        try:
            self._create()
            _write(self._handle, data)
            if like is not None and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(PermissionError):  # only root can give files away
                    os.fchown(self._handle, like.st_uid, like.st_gid)
            if like is not None or mode != NEW_MODE:
                os.fchmod(self._handle, mode)
            os.fsync(self._handle)
        except BaseException:  # whatever stopped it, no file is left behind
            self.close()
            raise

    def _create(self) -> None:
        for _ in range(TRIES):
            self._temp = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
            self._handle = os.open(self._temp, NEW, NEW_MODE, dir_fd=self._folder)
            if _locked(self._handle) and os.fstat(self._handle).st_nlink:
                return  # nobody tidied it away before it was locked
            os.close(self._handle)
            self._handle = -1
        raise FileNotFoundError(errno.ENOENT, "new files vanish from this folder")

    def publish(self, name: str, *, fresh: bool) -> None:
        """Give it its name: of a file that is replaced, or, `fresh`, one that is not taken.

        Raises:
            FileExistsError: the name is taken.
            OSError: the system refused; the name means what it meant before.
        """
        if fresh:
            rename_new(self._folder, self._temp, self._folder, name)
        else:
            os.rename(self._temp, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._temp = ""

    def close(self) -> None:
        """Let go of it; what has no name by now is removed."""
        if self._temp and self._handle >= 0:
            with suppress(OSError):
                os.unlink(self._temp, dir_fd=self._folder)
        if self._handle >= 0:
            os.close(self._handle)
        if self._folder >= 0:
            os.close(self._folder)
        self._temp, self._handle, self._folder = "", -1, -1


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # somebody is tidying it away at this moment
        return False
    except OSError:  # a file system without locks, where nothing is tidied away either
        return True
    return True


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def sync_folder(folder: int) -> None:
    """Make the names in a folder durable, where the file system can."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def remove_leftover(folder: int, name: str) -> bool:
    """Remove an unfinished file if its writer is gone."""
    with suppress(OSError):
        handle = os.open(name, FILE, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return False
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
            return True
        finally:
            os.close(handle)
    return False


# ---------------------------------------------------------------- names that are not taken


def rename_new(from_folder: int, name: str, to_folder: int, new_name: str) -> None:
    """Rename, never onto a name that is taken.

    It is one step where the system has such a call. Where it has none, another process could take
    the name between a look and the step; calls of this process cannot.

    Raises:
        FileExistsError: the new name is taken.
        OSError: the system refused; nothing has changed.
    """
    rename = _exclusive_rename()
    if rename is not None:
        failed = rename(from_folder, os.fsencode(name), to_folder, os.fsencode(new_name))
        if not failed:
            return
        if failed not in NO_SUCH_CALL:
            raise OSError(failed, os.strerror(failed), new_name)
    try:
        os.stat(new_name, dir_fd=to_folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=from_folder, dst_dir_fd=to_folder)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)


Rename = Callable[[int, bytes, int, bytes], int]


@cache
def _exclusive_rename() -> Rename | None:
    """The system's own rename that refuses a taken name; it gives 0 or an error number."""
    library = ctypes.CDLL(None, use_errno=True)
    name, flag = ("renameatx_np", 4) if sys.platform == "darwin" else ("renameat2", 1)
    call = getattr(library, name, None)
    if call is None:
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int

    def rename(from_folder: int, old: bytes, to_folder: int, new: bytes) -> int:
        ctypes.set_errno(0)
        return ctypes.get_errno() if call(from_folder, old, to_folder, new, flag) else 0

    return rename
