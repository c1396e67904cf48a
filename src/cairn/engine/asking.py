"""Asks one hook of the deployment, alone with whatever it does: slow, raising, or nonsense."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cairn.core.messages import Record
from cairn.core.rules import Problem
from cairn.hooks import Hook
from cairn.tools.slots import Slots

T = TypeVar("T")
THREADS = Slots(32)
"""Threads of plain hooks in this process; those that nobody waits for any more count as well."""
_left: set[asyncio.Task[Any]] = set()
"""Hooks that took too long, kept here until they end, so that they are not collected before."""


class Answer(Record, gc=True):
    """What a hook said; `problem` says in words why it said nothing that can be used."""

    value: Any = None
    problem: str = ""


async def ask(hook: Hook, subject: Any) -> Answer:
    """What a hook says of a call or a request.

    Never raises, whatever the hook does. A coroutine that takes too long is cancelled and left; a
    thread cannot be stopped, so it is left, and counts until it ends.
    """
    work = _awaited(hook, subject) if hook.is_async else _threaded(hook, subject)
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=hook.timeout_s)
        if task.done():
            return task.result()
        return Answer(problem=f"it gave no answer within {hook.timeout_s:g} s")
    finally:
        if not task.done():
            _left.add(task)
            task.add_done_callback(_left.discard)
            task.cancel()


async def _awaited(hook: Hook, subject: Any) -> Answer:
    try:
        return Answer(value=await hook.function(subject))
    except BaseException as error:  # even SystemExit ends this hook and nothing else
        return _raised(error)


async def _threaded(hook: Hook, subject: Any) -> Answer:
    try:
        await THREADS.acquire()
    except asyncio.CancelledError:
        return Answer(problem="no thread was free for it")
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()

    def tell(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def serve() -> None:
        try:
            answer = _called(hook, subject, variables)
        finally:
            THREADS.release()
        with suppress(RuntimeError):  # the loop is closed: whoever waited is gone
            loop.call_soon_threadsafe(tell, answer)

    variables = contextvars.copy_context()
    try:
        threading.Thread(target=serve, name=f"cairn-hook-{hook.name}", daemon=True).start()
    except RuntimeError as error:  # the system has no more threads
        THREADS.release()
        return _raised(error)
    try:
        return await answered
    except asyncio.CancelledError:
        return Answer(problem="nobody waited for its answer any more")


def _called(hook: Hook, subject: Any, variables: contextvars.Context) -> Answer:
    try:
        value = variables.run(hook.function, subject)
    except BaseException as error:  # even SystemExit ends this hook and nothing else
        return _raised(error)
    if type(value) is types.CoroutineType:
        value.close()
        return Answer(problem="it gave something to await: declare it with async def")
    return Answer(value=value)


def read(taken: Callable[..., T], answer: Answer, *about: Any) -> T | Problem:
    """What an answer comes to: reading what a hook gave runs the hook's own code once more."""
    try:
        return taken(answer, *about)
    except BaseException as error:  # even SystemExit ends this hook and nothing else
        return Problem(message=_raised(error).problem)


def _raised(error: BaseException) -> Answer:
    try:
        said = f"{type(error).__name__}: {error}"
    except BaseException:  # an exception whose own text fails is named by its type
        said = type(error).__name__
    return Answer(problem=f"it raised {said}"[:500])
