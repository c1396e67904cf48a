"""How the file is opened: checked, private, in WAL mode, with the durability that was asked for."""

from __future__ import annotations

import ctypes
from typing import Literal

import apsw

from cairn.core.messages import Record
from cairn.errors import CairnError, UnsupportedStore
from cairn.store.sqlite import filesystem, schema
from cairn.store.sqlite.faults import patiently, translate

OLDEST_LIBRARY = (3, 51, 3)
"""Older ones can corrupt a WAL file when a checkpoint and a log reset race."""

CHECKPOINT_PAGES = 1000
CACHE_KIB = 8192


class Settings(Record):
    """What a store object is opened with.

    Args:
        path: The file's real path.
        durability: `full` syncs every commit; `process` survives the end of the process only.
        beat_s: How often the owner's line is renewed while it drives runs.
        expiry_s: After how long without that an owner counts as frozen.
        patience_s: How long other processes may hold the file before a call fails.
        vfs: Name of the library's file layer; tests put faults into one.
    """

    path: str
    durability: Literal["full", "process"] = "full"
    beat_s: float = 10.0
    expiry_s: float = 30.0
    patience_s: float = 10.0
    vfs: str = ""


def check_library(version: str | None = None) -> None:
    """Refuse a library that can corrupt the file.

    Raises:
        UnsupportedStore: it is too old.
    """
    found = version or apsw.sqlite_lib_version()
    if tuple(map(int, found.split(".")[:3])) < OLDEST_LIBRARY:
        oldest = ".".join(map(str, OLDEST_LIBRARY))
        raise UnsupportedStore(
            f"SQLite {found} can corrupt a store; {oldest} or newer is needed. "
            "Upgrade the package apsw"
        )


def open_writer(settings: Settings) -> apsw.Connection:
    """The one connection that writes and checkpoints; makes the file and its tables.

    Raises:
        UnsupportedStore: the library, filesystem or file cannot hold a store.
        SchemaTooNew: the file is from a newer Cairn and was not touched.
        StoreBusy, StoreFailed, CorruptJournal: it cannot be opened.
    """
    check_library()
    filesystem.check_place(settings.path)
    flags = apsw.SQLITE_OPEN_READWRITE
    try:
        if not filesystem.make_private(settings.path):
            schema.check_untouched(settings.path)
        connection = patiently(lambda: _connect(settings, flags), settings.patience_s)
        try:
            patiently(lambda: _prepare(connection, settings), settings.patience_s)
        except (apsw.Error, CairnError):
            abandon(connection)
            raise
    except apsw.Error as error:
        raise translate(error, settings.path) from error
    return connection


def open_reader(settings: Settings) -> apsw.Connection:
    """A connection that can only read, and never checkpoints."""
    flags = apsw.SQLITE_OPEN_READONLY
    connection = _connect(settings, flags)
    connection.execute("PRAGMA query_only = ON; PRAGMA wal_autocheckpoint = 0")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # it may be the last, and cannot
    return connection


def abandon(connection: apsw.Connection) -> None:
    """Close without a checkpoint: what the log holds is judged by whoever opens the file next."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)


def has_moved(connection: apsw.Connection) -> bool:
    """Whether its path no longer leads to the file it has open: what is written would be lost."""
    moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved.value)


def _connect(settings: Settings, flags: int) -> apsw.Connection:
    vfs = settings.vfs or None
    connection = apsw.Connection(settings.path, flags=flags, vfs=vfs, statementcachesize=128)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.execute(
        f"PRAGMA trusted_schema = OFF; PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = MEMORY"
    )
    return connection


def _prepare(connection: apsw.Connection, settings: Settings) -> None:
    level = "FULL" if settings.durability == "full" else "NORMAL"
    connection.execute(
        f"PRAGMA synchronous = {level}; PRAGMA foreign_keys = ON; "
        f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"
    )
    if settings.durability == "full":  # a plain sync on macOS stops at the drive's cache
        connection.execute("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON")
    if schema.check_version(connection, settings.path) == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only ever takes in an empty file
    if connection.pragma("journal_mode", "wal") != "wal":
        raise UnsupportedStore(f"{settings.path}: this filesystem cannot hold a write-ahead log")
    schema.migrate(connection, settings.path)
