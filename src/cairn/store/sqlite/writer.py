"""The one thread of a process that writes to the file and checkpoints it.

It takes everything that waits into one short transaction, without lingering for more: while one
batch syncs, the next gathers. All callers of a batch are woken together.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from cairn.errors import CairnError, CorruptJournal, StoreClosed, StoreError, StoreFailed
from cairn.store.sqlite.connection import Settings, abandon
from cairn.store.sqlite.faults import BUSY, FATAL, patiently, translate
from cairn.store.sqlite.lines import Line
from cairn.store.sqlite.owners import Owners
from cairn.store.sqlite.requests import GiveUp, Request
from cairn.store.sqlite.transaction import Clearing, Overtaken, Transaction

BATCH_MAX = 512
QUEUE_MAX = 4096
"""Requests that may wait; who comes later waits for room."""
CLEARING_S = 0.01
"""Between two attempts to cut the log, while others read what is in it."""

Wish = Request | GiveUp
Outcome = tuple[Request, object, BaseException | None]


class Writer:
    """Queue, thread and connection.

    Args:
        wrote: Called on the thread after each commit, with the lines that changed.
    """

    def __init__(
        self,
        settings: Settings,
        connection: apsw.Connection,
        owners: Owners,
        wrote: Callable[[Sequence[Line]], None],
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._owners = owners
        self._wrote = wrote
        self._tx = Transaction(connection, owners)
        self._queue: queue.SimpleQueue[Wish | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._crowd: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self.fault: StoreError | None = None
        """Why nothing more is taken."""
        self._thread = threading.Thread(target=self._run, name="cairn-write", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ on the callers' side

    async def ask(self, request: Request) -> object:
        """Hand a request over; its result once it is durable.

        Raises: what the request raises, `StoreBusy`, `StoreFailed`, `StoreClosed`.
        """
        while self._queue.qsize() >= QUEUE_MAX and self.fault is None:
            await self._room()
        self.put(request)
        return await request.future

    def put(self, wish: Wish) -> None:
        """Hand it over without waiting."""
        with self._guard:  # nothing may come after the word to stop
            if self.fault is not None:
                raise type(self.fault)(str(self.fault))
            self._queue.put(wish)

    def put_if_open(self, wish: Wish) -> None:
        """Hand it over, unless there is nobody to take it any more."""
        with contextlib.suppress(StoreError):
            self.put(wish)

    async def _room(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._crowd.append((loop, future))
        if self._queue.qsize() >= QUEUE_MAX:
            await future

    def stop(self) -> None:
        """Finish what is queued, sign off, close the connection; blocks until it is done."""
        with self._guard:
            if self.fault is None:
                self.fault = StoreClosed("this store was closed; open it again")
            self._queue.put(None)
        self._thread.join()

    # ------------------------------------------------------------ on the thread

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._gather()
            self._let_in()  # before the callers are woken: after that the thread is in their way
            self._write(batch)
        self._refuse_rest()
        self._leave()

    def _gather(self) -> tuple[list[Wish], bool]:
        """All that waits, once something does or the owner's line wants to be renewed."""
        beating = bool(self._tx.driven) and self.fault is None
        timeout = self._owners.next_beat_s() if beating else None
        try:
            first = self._queue.get(timeout=timeout)
        except queue.Empty:
            return [], False
        batch: list[Wish] = []
        item = first
        with contextlib.suppress(queue.Empty):
            while item is not None:
                batch.append(item)
                if len(batch) == BATCH_MAX:
                    return batch, False
                item = self._queue.get_nowait()
            return batch, True
        return batch, False

    def _write(self, batch: Sequence[Wish]) -> None:
        """One transaction for all; if something unforeseen happens in it, one for each."""
        if isinstance(self.fault, StoreFailed):
            self._fail(batch, self.fault)
            return
        try:
            self._attempt(batch)
        except BUSY as error:
            self._undo()
            self._fail(batch, translate(error, self._settings.path))
        except FATAL as error:
            self._break(batch, error)
        except Exception as error:  # one request's fault must not be the others'
            self._undo()
            if len(batch) > 1:
                for wish in batch:
                    self._write((wish,))
            else:
                self._fail(batch, self._own(error))

    def _attempt(self, batch: Sequence[Wish]) -> None:
        tx = self._tx
        patiently(tx.begin, self._settings.patience_s)
        outcomes: list[Outcome] = []
        for wish in batch:
            if type(wish) is GiveUp:
                wish.apply(tx)
                continue
            if wish.withdrawn:
                continue
            try:
                outcomes.append((wish, wish.apply(tx), None))
            except CairnError as refusal:
                outcomes.append((wish, None, refusal))
        if tx.driven:
            self._owners.beat(self._connection)
        touched = patiently(tx.commit, self._settings.patience_s)
        if tx.clearing is not None:
            self._clear_file(tx.clearing)
        elif tx.clears_log:
            self._clear_log()
        if touched:
            self._wrote(touched)
        self._deliver(outcomes)

    def _clear_log(self) -> bool:
        """Bring the log to the file and cut it to nothing, as far as other readers let us."""
        self._tx.clears_log = False
        deadline = time.monotonic() + self._settings.patience_s
        while True:
            busy: Any = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy[0] or time.monotonic() >= deadline:
                return not busy[0]
            time.sleep(CLEARING_S)

    def _clear_file(self, clearing: Clearing) -> None:
        """Write the whole file anew: a page that rows were moved out of keeps copies of them.

        What was asked for is written by then: others who hold the file are only waited for.
        """
        self._tx.clearing = None
        connection = self._connection
        # what stays passes through a file of the library's own, if it is too much for memory
        connection.execute("PRAGMA temp_store = FILE")
        try:
            patiently(lambda: connection.execute("VACUUM"), self._settings.patience_s)
        except (*BUSY, apsw.FullError, apsw.SQLError):  # it is as it was; they can ask again
            self._clear_log()
            return
        finally:
            connection.execute("PRAGMA temp_store = MEMORY")
        clearing.done = self._clear_log()

    def _break(self, batch: Sequence[Wish], error: apsw.Error) -> None:
        """Nobody knows what the file holds now: nothing more goes through this object."""
        self.fault = StoreFailed(
            f"{self._settings.path}: {error}. Open the store again; what was acknowledged is there"
        )
        with contextlib.suppress(apsw.Error):
            self._tx.roll_back()
        with contextlib.suppress(apsw.Error):
            abandon(self._connection)
        # whoever opens the file next in this process need not wait for the runs to expire
        self._owners.give_back(driving=bool(self._tx.driven))
        self._fail(batch, self.fault)

    def _undo(self) -> None:
        with contextlib.suppress(apsw.Error):  # the file is as it was; the next BEGIN will tell
            self._tx.roll_back()

    def _own(self, error: Exception) -> BaseException:
        if isinstance(error, apsw.Error):
            return translate(error, self._settings.path)
        if isinstance(error, OSError):
            return StoreFailed(f"{self._settings.path}: {error}")
        if isinstance(error, UnicodeDecodeError):
            return CorruptJournal(f"{self._settings.path} is damaged: {error}")
        if isinstance(error, Overtaken):
            return CorruptJournal(f"{self._settings.path}: the run table is damaged")
        return error

    # ------------------------------------------------------------ back to the callers

    def _fail(self, batch: Sequence[Wish], error: BaseException) -> None:
        """Each caller gets an exception of its own: tracebacks grow on the object."""
        requests = [wish for wish in batch if isinstance(wish, Request)]
        if isinstance(error, StoreError):
            kind, text = type(error), str(error)
            self._deliver([(request, None, kind(text)) for request in requests])
        else:
            self._deliver([(request, None, error) for request in requests])

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        """Wake all callers, with one call for each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in outcomes:
            by_loop.setdefault(outcome[0].loop, []).append(outcome)
        for loop, part in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, part)
            except RuntimeError:  # the loop is closed: nobody waits there any more
                for request, result, _ in part:
                    request.unheard(result)

    def _let_in(self) -> None:
        while self._crowd:
            loop, future = self._crowd.popleft()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(_release, future)

    # ------------------------------------------------------------ the end

    def _refuse_rest(self) -> None:
        rest: list[Wish] = []
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if item is not None:
                    rest.append(item)
        self._fail(rest, StoreClosed("this store was closed; open it again"))
        self._let_in()

    def _leave(self) -> None:
        driving = bool(self._tx.driven)
        if not isinstance(self.fault, StoreFailed):
            try:
                patiently(self._tx.begin, self._settings.patience_s)
                self._owners.sign_off(self._connection, driving=driving)
                self._tx.commit()
                self._connection.close(True)
            except apsw.Error:  # the line stays, and says what is true: this owner is gone
                driving = True
                with contextlib.suppress(apsw.Error):
                    abandon(self._connection)
        self._owners.give_back(driving=driving)


def _settle(part: Sequence[Outcome]) -> None:
    for request, result, error in part:
        future = request.future
        if future.done():
            request.unheard(result)
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
