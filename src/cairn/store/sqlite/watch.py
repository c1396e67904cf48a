"""News of a file: told at once by this process's writer, noticed by polling when others write."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import apsw

from cairn.errors import StoreError
from cairn.store.sqlite import queries
from cairn.store.sqlite.connection import Settings, open_reader
from cairn.store.sqlite.lines import Line
from cairn.store.sqlite.owners import POLL_US, Owners, monotonic_us
from cairn.store.sqlite.readers import Readers
from cairn.store.waiting import ANYTHING, Waiters, wait

FIRST_PAUSE_S = 0.025
LONGEST_PAUSE_S = 0.1


class Watch:
    """Who waits on this file in this process, and the thread that looks while somebody does."""

    def __init__(self, settings: Settings, owners: Owners, readers: Readers, token: int) -> None:
        self._settings = settings
        self._owners = owners
        self._readers = readers
        self._waiters = Waiters()
        self._guard = threading.Lock()
        self._token = token
        self._alive: frozenset[str] = frozenset()
        self._mourned = 0
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ telling

    def wrote(self, lines: Sequence[Line]) -> None:
        """The writer of this process committed."""
        if self._waiters:
            for line in lines:
                self._waiters.wake(line.id, line.head)
        self._bump()

    def _bump(self) -> None:
        with self._guard:
            self._token += 1
        if self._waiters:
            self._waiters.wake(ANYTHING, self._token)

    # ------------------------------------------------------------ waiting

    async def changed(self, run: str, seq: int, timeout_s: float) -> bool:
        """See `Store.changed`."""
        waiter = self._waiters.add(run, seq)
        try:
            if await self._readers.run(lambda c: queries.head(c, run)) > seq:
                return True
            self._look()
            return await wait(waiter, timeout_s) is not None
        finally:
            self._waiters.leave(run, waiter)

    async def news(self, seen: int, timeout_s: float) -> int:
        """See `Store.news`."""
        waiter = self._waiters.add(ANYTHING, seen)
        try:
            if self._token <= seen:
                self._look()
                await wait(waiter, timeout_s)
            return self._token
        finally:
            self._waiters.leave(ANYTHING, waiter)

    def _look(self) -> None:
        with self._guard:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._poll, name="cairn-watch", daemon=True)
                self._thread.start()
        self._wanted.set()

    # ------------------------------------------------------------ looking

    def _poll(self) -> None:
        connection: apsw.Connection | None = None
        seen: int | None = None
        pause = FIRST_PAUSE_S
        while not self._stopped.wait(pause):
            if not self._waiters:
                self._wanted.clear()
                # asked after the clear: the word to stop may have come just before it
                if not self._waiters and not self._stopped.is_set():
                    self._wanted.wait()
                pause = FIRST_PAUSE_S
                continue
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
            with contextlib.suppress(apsw.Error, StoreError):  # busy: look again
                connection = connection or open_reader(self._settings)
                # kept while nobody waits, so that what was written meanwhile counts as news too
                version = int(connection.pragma("data_version"))
                if version != seen:
                    pause = FIRST_PAUSE_S
                    self._tell(connection)
                    seen = version
                self._mourn(connection)
        if connection is not None:
            connection.close(True)

    def _tell(self, connection: apsw.Connection) -> None:
        wanted = self._waiters.runs()
        if wanted:
            for run, head in queries.heads(connection, wanted).items():
                self._waiters.wake(run, head)
        self._bump()

    def _mourn(self, connection: apsw.Connection) -> None:
        """A process that died writes nothing, but its runs are free now: that is news as well."""
        now = monotonic_us()
        if now - self._mourned < POLL_US:
            return
        self._mourned = now
        alive = frozenset(self._owners.alive(connection))
        if self._alive - alive:
            self._bump()
        self._alive = alive

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
