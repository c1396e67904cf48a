"""Runs a tool's function for one call: bounded in time, and alone with whatever it raises.

An async function becomes a task, a sync one gets a daemon thread of its own. When the time is up
the runtime stops waiting; what the function still does is tracked, and what comes of it later is
reported once.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cairn.core.messages import Record
from cairn.errors import NotDone
from cairn.tools.context import Context
from cairn.tools.results import drain
from cairn.tools.slots import SLOTS, Slots
from cairn.tools.tool import Body

CLEANUP_S = 2.0
"""How long a cancelled async tool may take to clean up before it is left alone."""

OnLate = Callable[[bool, Any], None]
OnDone = Callable[["Finished | None"], None]
Finish = Callable[[Any], Any]
Threads = Callable[[str, Callable[[], None]], None]
"""Does blocking work beside the loop, under a name; `RuntimeError` when it cannot be begun."""


def in_a_thread(name: str, work: Callable[[], None]) -> None:
    """Do it in a daemon thread of its own. Raises `RuntimeError` when there are no more threads."""
    threading.Thread(target=work, name=name, daemon=True).start()


class Finished(Record, gc=True):
    """The function returned (`ok`, and the value) or raised (not `ok`, and the exception)."""

    ok: bool
    value: Any = None


class Running:
    """A function that runs for a call. Made by `start`; to be used on the loop it was made on."""

    __slots__ = (
        "_body",
        "_bound",
        "_context",
        "_finish",
        "_late",
        "_loop",
        "_on_done",
        "_on_late",
        "_slots",
        "_task",
        "_waiter",
        "_watched",
        "abandoned",
        "finished",
    )

    def __init__(
        self,
        body: Body,
        bound: dict[str, Any],
        context: Context[Any],
        on_late: OnLate | None,
        on_done: OnDone | None,
        finish: Finish | None,
        slots: Slots,
    ) -> None:
        self.finished: Finished | None = None
        self.abandoned = False
        self._body = body
        self._bound = bound
        self._context = context
        self._on_late = on_late
        self._on_done = on_done
        self._finish = finish
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._late: Finished | None = None
        self._watched = False

    @property
    def is_async(self) -> bool:
        """Whether it can be cancelled; a thread can only be left alone."""
        return self._body.is_async

    async def outcome(
        self, seconds: float | None = None, cleanup: float = CLEANUP_S
    ) -> Finished | None:
        """Wait until the function has ended, or its time is up.

        Args:
            seconds: How long to wait; None for ever.
            cleanup: How long a cancelled async function may take to clean up, in seconds.

        Returns:
            What came of it; None when the time was up. Then its child processes are killed, an
            async function is cancelled, and whatever it still returns or raises goes to
            `on_late`. The same is done when the waiting task is cancelled.
        """
        self._watched = True
        try:
            await self._wait(seconds)
            if self.finished is not None:
                return self.finished
            self.abandon()
            if self._task is not None:
                await self._wait(cleanup)
        except asyncio.CancelledError:
            if self.finished is not None and not self.abandoned:  # it came in the same moment
                self.abandoned, self._late = True, self.finished
            self.abandon()
            raise
        finally:
            self._watched = False
            if self._late is not None:
                self._loop.call_soon(self._report)
        return None

    def abandon(self) -> None:
        """Stop waiting for it: kill its processes, cancel it if it is async, and keep track."""
        if self.finished is not None or self.abandoned:
            return
        self.abandoned = True
        _abandoned.add(self)
        self._context.close()
        if self._task is not None:
            self._task.add_done_callback(self._task_ended)
            self._task.cancel()

    async def _wait(self, seconds: float | None) -> None:
        if self.finished is not None:
            return
        self._waiter = waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _settle(self, finished: Finished | None) -> None:
        """The function has ended, and with it the call; None when it was cancelled for us."""
        self.finished = finished or Finished(ok=False, value=asyncio.CancelledError())
        if self.abandoned:
            _abandoned.discard(self)
        else:
            self._context.close()
        if self._on_done is not None:
            self._on_done(finished)
            return
        if self._waiter is not None:
            _wake(self._waiter)
        if self.abandoned and finished is not None:
            self._late = finished
            if not self._watched:
                self._report()

    def _report(self) -> None:
        late, self._late = self._late, None
        if late is not None and self._on_late is not None:
            self._on_late(late.ok, late.value)

    # ------------------------------------------------------------ async functions

    def run_task(self) -> None:
        self._task = self._loop.create_task(self._await())

    async def _await(self) -> None:
        finished = None
        try:
            finished = self._returned(await self._body.function(**self._bound))
        except asyncio.CancelledError as error:
            if not self.abandoned:  # nobody cancelled it: the function raised this by itself
                finished = Finished(ok=False, value=error)
        except BaseException as error:  # even SystemExit ends this call and nothing else
            finished = Finished(ok=False, value=error)
        self._settle(finished)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self.finished is None:  # it was cancelled before it began
            self._settle(None)

    # ------------------------------------------------------------ sync functions

    def run_thread(self, threads: Threads) -> None:
        variables = contextvars.copy_context()
        try:
            threads(f"cairn-tool-{self._context.tool}", lambda: self._serve(variables))
        except RuntimeError as error:  # the system has no more threads
            self._slots.release()
            failure = NotDone(f"no thread could be started: {error}")
            self._loop.call_soon(self._settle, Finished(ok=False, value=failure))

    def _serve(self, variables: contextvars.Context) -> None:
        try:
            finished = self._returned(variables.run(self._body.function, **self._bound))
        except BaseException as error:  # even SystemExit ends this call and nothing else
            finished = Finished(ok=False, value=error)
        try:
            self._loop.call_soon_threadsafe(self._settle, finished)
        except RuntimeError:  # the loop is closed: whoever waited is gone
            self._context.close()
            _abandoned.discard(self)
            self.finished = self._late = finished
            self._report()
        finally:
            self._slots.release()

    def _returned(self, value: Any) -> Finished:
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("the function gave something to await: declare it with async def")
        if isinstance(value, Iterator):  # its items are made here, while the tool's time runs
            value = drain(value)
        return Finished(ok=True, value=value if self._finish is None else self._finish(value))


def start(
    body: Body,
    arguments: Mapping[str, Any],
    context: Context[Any],
    *,
    on_late: OnLate | None = None,
    on_done: OnDone | None = None,
    finish: Finish | None = None,
    slots: Slots = SLOTS,
    threads: Threads = in_a_thread,
) -> Running:
    """Start a tool's function (`tool.body`) or its probe (`tool.probe`). On a running loop.

    For a sync function the caller holds a slot; it is given back when the thread really ends.
    Nothing is raised here: a function that cannot be started has failed.

    Args:
        body: What to run.
        arguments: Keyword arguments, as the tool's check returned them.
        context: The context of this attempt; closed when the function has ended or is left alone.
        on_late: Called once with (ok, value or exception) if the function returns or raises after
            it was left alone, never before `outcome` has returned. On the loop; in the tool's
            thread if the loop is closed by then.
        on_done: Called once when the function has ended, in time or not, with what came of it;
            with None when it ended because it was abandoned. On the loop; not called once that
            is closed. Takes the place of `outcome` and `on_late`.
        finish: Applied to what the function returns, where it ran and within its time.
        slots: Where the slot came from.
        threads: What a sync function runs in.
    """
    running = Running(body, body.bind(arguments, context), context, on_late, on_done, finish, slots)
    if body.is_async:
        running.run_task()
    else:
        running.run_thread(threads)
    return running


def abandoned() -> tuple[Running, ...]:
    """What still runs in this process though nobody waits for it."""
    return tuple(_abandoned)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_abandoned: set[Running] = set()
