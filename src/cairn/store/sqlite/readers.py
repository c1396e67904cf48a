"""Reading, off the event loop: a few threads with read-only connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from cairn.errors import CorruptJournal, StoreClosed
from cairn.store.sqlite.connection import Settings, open_reader
from cairn.store.sqlite.faults import patiently, translate

T = TypeVar("T")

THREADS = 2


class Readers:
    """Runs functions of a connection, each against one snapshot of the file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cairn-read")
        self._guard = threading.Lock()
        self._idle: list[apsw.Connection] = []
        self._all: list[apsw.Connection] = []

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """The function's result.

        Raises: what the function raises, and `StoreError` for faults of the file.
        """
        loop = asyncio.get_running_loop()
        try:
            waiting = loop.run_in_executor(self._pool, self.now, read)
        except RuntimeError as error:  # the pool is shut down
            raise StoreClosed("this store was closed; open it again") from error
        return await waiting

    def now(self, read: Callable[[apsw.Connection], T]) -> T:
        """The same on the calling thread."""
        try:
            return patiently(lambda: self._once(read), self._settings.patience_s)
        except apsw.Error as error:
            raise translate(error, self._settings.path) from error
        except UnicodeDecodeError as error:  # bytes that are no text, where only text is kept
            raise CorruptJournal(f"{self._settings.path} is damaged: {error}") from error

    def _once(self, read: Callable[[apsw.Connection], T]) -> T:
        connection = self._borrow()
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("ROLLBACK")  # nothing was written: it only ends the snapshot
        finally:
            with self._guard:
                self._idle.append(connection)

    def _borrow(self) -> apsw.Connection:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        connection = open_reader(self._settings)
        with self._guard:
            self._all.append(connection)
        return connection

    def connections(self) -> list[apsw.Connection]:
        """All that were opened."""
        with self._guard:
            return list(self._all)

    def close(self) -> None:
        """Let what is being read end, then close."""
        self._pool.shutdown(wait=True)
        with self._guard:
            for connection in self._all:
                connection.close(True)
            self._all.clear()
            self._idle.clear()
