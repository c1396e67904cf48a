"""Where the library's exceptions end: what each of them means to a caller of the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import SystemRandom
from typing import TypeVar

import apsw

from cairn.errors import CorruptJournal, StoreBusy, StoreError, StoreFailed

T = TypeVar("T")
_CHANCE = SystemRandom()
"""Nobody's seed makes processes wait in step, and no draw of ours moves an application's."""

FATAL = (
    apsw.IOError,
    apsw.FullError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.ProtocolError,
    apsw.NoMemError,
)
"""After these on a write nobody knows what the file holds until it is opened again."""

BUSY = (apsw.BusyError, apsw.LockedError)


def translate(error: apsw.Error, path: str) -> StoreError:
    """The store's own error for one of the library's."""
    if isinstance(error, BUSY):
        return StoreBusy(f"other processes held {path} for too long; nothing was written")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ConstraintError):
        return CorruptJournal(f"{path} is damaged: {error}")
    return StoreFailed(f"{path}: {error}")


def patiently(action: Callable[[], T], patience_s: float) -> T:
    """Do it again while other processes are in the way, at most this long.

    The pause is short and random: SQLite's own busy time-out waits longer each time, and so
    the process that has waited longest gets the fewest chances.

    Raises:
        apsw.BusyError: they still are.
    """
    try:
        return action()
    except BUSY:
        deadline = time.monotonic() + patience_s
    while True:
        time.sleep(_CHANCE.uniform(0.0001, 0.001))
        try:
            return action()
        except BUSY:
            if time.monotonic() >= deadline:
                raise
