"""Asks one hook of the deployment, alone with whatever it does: slow, raising, or nonsense."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from cairn.core.messages import Record
from cairn.core.rules import Problem
from cairn.errors import words_of
from cairn.hooks import Hook
from cairn.tools.blocking import in_thread, no_thread
from cairn.tools.slots import Slots

T = TypeVar("T")
THREADS = Slots(32)
"""Threads of plain hooks in this process, half of them at most for one hook.

Those that nobody waits for any more count as well."""
_left: set[asyncio.Task[Any]] = set()
"""Hooks that took too long, kept here until they end, so that they are not collected before."""


class Answer(Record, gc=True):
    """What a hook said; `problem` says in words why it said nothing that can be used."""

    value: Any = None
    problem: str = ""


async def ask(hook: Hook, subject: Any) -> Answer:
    """What a hook says of a call or a request.

    Never raises, whatever the hook does. A coroutine that takes too long is cancelled and left; a
    thread cannot be stopped, so it is left, and counts until it ends. One of which several hang
    is not asked, and one that got no thread is not blamed: the answer says what holds them.
    """
    begun = asyncio.Event()
    work = _awaited(hook, subject, begun) if hook.is_async else _threaded(hook, subject, begun)
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=hook.timeout_s)
        if task.done():
            return task.result()
        if not begun.is_set():
            return Answer(problem=no_thread(_name(hook), hook.timeout_s, hook, THREADS))
        return Answer(problem=f"it gave no answer within {hook.timeout_s:g} s")
    finally:
        if not task.done():
            _left.add(task)
            task.add_done_callback(_left.discard)
            task.cancel()


async def _awaited(hook: Hook, subject: Any, begun: asyncio.Event) -> Answer:
    begun.set()
    try:
        return Answer(value=await hook.function(subject))
    except BaseException as error:  # even SystemExit ends this hook and nothing else
        return _raised(error)


async def _threaded(hook: Hook, subject: Any, begun: asyncio.Event) -> Answer:
    work, limit = partial(_called, hook, subject), hook.timeout_s
    try:
        answer: Answer = await in_thread(
            _name(hook), work, hook, seconds=limit, slots=THREADS, begun=begun.set
        )
    except asyncio.CancelledError:
        return Answer(problem="nobody waited for its answer any more")
    except TimeoutError as error:  # too many calls of it hang, or none got a thread
        return Answer(problem=str(error))
    except RuntimeError as error:  # the system has no more threads
        return _raised(error)
    return answer


def _name(hook: Hook) -> str:
    return f"hook-{hook.name}"


def _called(hook: Hook, subject: Any) -> Answer:
    try:
        value = hook.function(subject)
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
    return Answer(problem=f"it raised {words_of(error)}"[:500])
