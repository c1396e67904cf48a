"""Copies of a store: taken while it is in use, put back while it is not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from cairn.errors import ConfigError, StoreFailed, UnsupportedStore
from cairn.store.sqlite import schema
from cairn.store.sqlite.faults import translate
from cairn.store.sqlite.filesystem import PRIVATE_FILE, check_place, make_private
from cairn.store.sqlite.owners import RESTORED

PAGES_AT_ONCE = 1024

_SHARED_FIRST = 0x40000002
_SHARED_SIZE = 510
"""The bytes every open connection of the library keeps locked in the file."""


def back_up(connection: apsw.Connection, path: str) -> None:
    """Copy what the connection's snapshot shows into a new file of mode 0600.

    Raises:
        ConfigError: the folder is missing, or there is a file already.
    """
    check_place(path)
    if not make_private(path):
        raise ConfigError("path", f"{path} exists", "Choose a new name for the copy")
    try:
        connection.execute("SELECT no FROM run LIMIT 1").fetchone()  # takes the snapshot
        with contextlib.closing(apsw.Connection(path)) as copy:
            # a journal whose removal is lost with the power would make the copy look unfinished
            copy.pragma("synchronous", "extra")
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(PAGES_AT_ONCE)
            copy.pragma("journal_mode", "delete")  # one file, nothing beside it
            copy.execute("UPDATE run SET owner = ? WHERE owner IS NOT NULL", (RESTORED,))
            copy.execute("DELETE FROM owner")
    except BaseException:  # half a copy must not be taken for a whole one
        Path(path).unlink(missing_ok=True)
        raise


def restore(source: str, target: str) -> None:
    """Put a copy in the place of a store that no process uses, or where there is none.

    The caller has made sure that neither file is open in this process.

    Raises:
        ConfigError: there is no such copy.
        UnsupportedStore: it is not a whole copy of a store, or the store in that place is in use.
    """
    if not Path(source).is_file():
        raise ConfigError("backup_path", f"there is no file {source}", "Name a copy made by backup")
    check_place(target)
    _check_copy(source)
    fresh = f"{target}.restoring"
    with _unused(target):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with (
                os.fdopen(os.open(fresh, flags, PRIVATE_FILE), "wb") as file,
                Path(source).open("rb") as copy,
            ):
                shutil.copyfileobj(copy, file)
                file.flush()
                os.fsync(file.fileno())
            for suffix in ("-wal", "-shm"):  # a log of the old file must not meet the new one
                Path(target + suffix).unlink(missing_ok=True)
            _sync_folder(str(Path(target).parent))  # the old log is gone before the new file comes
            Path(fresh).replace(target)
            _sync_folder(str(Path(target).parent))
        except OSError as error:
            raise StoreFailed(f"{target} cannot be written: {error.strerror}") from error


def _check_copy(path: str) -> None:
    try:
        schema.check_untouched(path)
        flags = apsw.SQLITE_OPEN_READONLY
        with contextlib.closing(apsw.Connection(path, flags=flags)) as connection:
            if schema.check_version(connection, path) == 0:
                raise UnsupportedStore(f"{path} is empty")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
    except apsw.Error as error:
        raise translate(error, path) from error
    if found is None or found[0] != "ok":
        raise UnsupportedStore(f"{path} is damaged: {found and found[0]}")


@contextlib.contextmanager
def _unused(path: str) -> Iterator[None]:
    """Hold the lock that any open connection of another process would be in the way of."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError as error:
            raise UnsupportedStore(f"{path} is in use: stop who uses it first") from error
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
