"""Calls a function that a deployment lends, without ever holding up the event loop.

One loop drives many runs and renews what they hold. An async function is awaited on it; a plain
one gets a daemon thread of its own, since nobody can know whether it blocks. A thread cannot be
stopped: who stops waiting leaves it, and it counts until it ends. No function may take more than
its share, so that one that hangs starves itself and no other.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, TypeVar

from cairn.core.names import listed
from cairn.errors import words_of
from cairn.tools.runner import Threads, in_a_thread
from cairn.tools.slots import Slots
from cairn.tools.theirs import is_async

T = TypeVar("T")
LENT = Slots()
"""Threads of plain functions in this process, beside those of tools and hooks."""
SLOT_WAIT_S = 30.0
"""How long a plain function waits for a thread, when all are taken."""
USUAL_S = 60.0
"""After so long a call hangs, where nobody says how long it may take."""
MOST_HANGING = 4
"""So many calls of one function may hang; it is not called again before one of them has ended."""
NAMES_TOLD = 3


class _Work(NamedTuple):
    """A thread that is at work: what for, of which function, and since when it hangs."""

    slots: Slots
    name: str
    share: _Share
    ends: float


class _Share:
    """What one function may hold of some slots: half of them."""

    def __init__(self, function: object, slots: Slots) -> None:
        self.function = function  # as long as this one is known, its id is nobody else's
        self.own = Slots(max(slots.limit // 2, 1))
        self.users = 0


_at_work: dict[object, _Work] = {}
_shares: dict[tuple[int, ...], _Share] = {}
_lock = threading.Lock()


class Overdue(TimeoutError):
    """A function took longer than it may; a plain one is still at it."""


async def called(
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float | None = None,
    slots: Slots = LENT,
    threads: Threads = in_a_thread,
    of: object = None,
) -> Any:
    """What a function gives; what a plain one gives to await is awaited on the loop.

    Args:
        name: What it is called in messages, as `the check is_paid`.
        function: Sync or async.
        *arguments: What it is called with.
        seconds: How long it may take; None where the caller sees to that.
        slots: Whose threads a plain function takes, at most half of them at once.
        threads: What a plain function runs in.
        of: Whose share of the threads it takes, where it is called by another one; its own
            by default.

    Raises:
        Overdue: its time is up. TimeoutError: no thread was free within 30 seconds, and it says
            what holds them; or 4 earlier calls of this function still hang. RuntimeError: it
            raised what would end the process or the loop, such as `SystemExit`; or the system
            has no more threads. And whatever it raises itself.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            if is_async(function):
                return await contained(name, function(*arguments))
            work, whose = partial(function, *arguments), function if of is None else of
            given = await in_thread(
                name, work, whose, seconds=seconds or USUAL_S, slots=slots, threads=threads
            )
            return await contained(name, given) if inspect.isawaitable(given) else given
    except TimeoutError:
        if seconds is None or not limit.expired():  # it has raised this itself
            raise
        said = f"{name} took longer than {seconds:g} s. Give what it waits for a time-out"
        raise Overdue(said) from None


async def contained(name: str, work: Awaitable[T]) -> T:
    """What comes of a deployment's code that is awaited here, in the task of whoever asks.

    Raises:
        RuntimeError: it raised what would end the process or the loop, such as `SystemExit`; or
            `CancelledError` or `GeneratorExit`, though nobody has cancelled this task or closed
            what is awaited. And whatever it raises itself.
    """
    task = asyncio.current_task()
    try:
        return await work
    except Exception:  # whatever it is, it is for whoever asks
        raise
    except BaseException as error:  # even SystemExit ends this call and nothing else
        if ended_from_outside(error, task):
            raise
        raise _fault(name, error) from error


def ended_from_outside(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether somebody has cancelled `task`, or closed a coroutine of it: then it is no fault.

    Args:
        error: What came out of the work that was done in the task.
        task: It; None where the work was done in none.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    # a coroutine is closed by who is not within it: by another task, or where no loop runs
    return isinstance(error, GeneratorExit) and (task is None or _current() is not task)


def _current() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running any more
        return None


def _fault(name: str, error: BaseException) -> RuntimeError:
    return RuntimeError(f"{name} raised {words_of(error)}")


async def in_thread(
    name: str,
    work: Callable[[], Any],
    function: object,
    *,
    seconds: float = USUAL_S,
    slots: Slots = LENT,
    threads: Threads = in_a_thread,
    begun: Callable[[], None] | None = None,
) -> Any:
    """What work gives that may block, done in a thread. The arguments and errors of `called`.

    Args:
        function: Whose share of the slots is taken.
        seconds: After so long it hangs, whether or not somebody still waits.
        begun: Told when it has got its thread.
    """
    loop = asyncio.get_running_loop()
    key = object()
    with _share(function, slots) as share:
        hanging = _hanging(share, loop.time())
        if hanging >= MOST_HANGING:
            raise TimeoutError(
                f"{name} was not called: {hanging} earlier calls of it still hang. "
                "Give what it waits for a time-out"
            )
        await _slots(name, share, slots)
        _at_work[key] = _Work(slots, name, share, loop.time() + seconds)
        with _lock:
            share.users += 1  # until the thread ends
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    variables = contextvars.copy_context()

    def tell(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))
        elif inspect.iscoroutine(value):
            value.close()  # nobody will await it any more

    def serve() -> None:
        value, failure = None, None
        try:
            value = variables.run(work)
        except BaseException as error:  # even SystemExit ends this call and nothing else
            failure = error
        _end(key)
        with suppress(RuntimeError):  # the loop is closed: whoever waited is gone
            loop.call_soon_threadsafe(tell, value, failure)

    try:
        threads(f"cairn-{name}", serve)
    except RuntimeError:  # the system has no more threads
        _end(key)
        raise
    if begun is not None:
        begun()
    value, failure = await ended
    if failure is None:
        return value
    if isinstance(failure, Exception):
        raise failure
    raise _fault(name, failure) from failure


def no_thread(name: str, seconds: float, function: object, slots: Slots) -> str:
    """Why a function got no thread within so many seconds, and what holds them."""
    own = _shares.get(_key(function, slots))
    held = Counter(each.name for each in list(_at_work.values()) if each.slots is slots)
    whose = "these hold them all"
    if own is not None and own.own.taken >= own.own.limit and slots.taken < slots.limit:
        held = Counter(each.name for each in list(_at_work.values()) if each.share is own)
        whose = "its own calls hold all that one function may have"
    names = listed([f"{each} ({count})" for each, count in held.most_common()], NAMES_TOLD)
    return (
        f"{name} got no thread within {seconds:g} s, for {whose}: {names}. "
        "Give what they wait for a time-out, or make them async"
    )


async def _slots(name: str, share: _Share, slots: Slots) -> None:
    """Take a slot of the function's share, then one of all."""
    if share.own.try_acquire():
        if slots.try_acquire():
            return
        share.own.release()
    try:
        async with asyncio.timeout(SLOT_WAIT_S):
            await share.own.acquire()
            try:
                await slots.acquire()
            except asyncio.CancelledError:
                share.own.release()
                raise
    except TimeoutError:
        raise TimeoutError(no_thread(name, SLOT_WAIT_S, share.function, slots)) from None


def _end(key: object) -> None:
    """A thread has ended, or was not begun: what it held is free."""
    work = _at_work.pop(key)
    work.slots.release()
    work.share.own.release()
    _leave(work.share, work.slots)


def _hanging(share: _Share, now: float) -> int:
    return sum(each.share is share and each.ends < now for each in list(_at_work.values()))


@contextmanager
def _share(function: object, slots: Slots) -> Iterator[_Share]:
    """The share of a function, known as long as somebody uses it."""
    key = _key(function, slots)
    with _lock:
        share = _shares.setdefault(key, _Share(function, slots))
        share.users += 1
    try:
        yield share
    finally:
        _leave(share, slots)


def _leave(share: _Share, slots: Slots) -> None:
    with _lock:
        share.users -= 1
        if not share.users:
            _shares.pop(_key(share.function, slots), None)


def _key(function: object, slots: Slots) -> tuple[int, ...]:
    """Names a function; a method anew looked up is the same one."""
    if isinstance(function, MethodType):
        return id(slots), id(function.__self__), id(function.__func__)
    return id(slots), id(function)
