"""Calls what a decision asks of a deployment's code, and says so when it holds up the loop.

A decision is taken in one go, so what it asks for is called on the event loop: no thread can take
it, and nothing can cut it off. All that can be done is to tell people which function it is. One
that has returned is told of at once; one that has not, by a thread that looks now and then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

from cairn.errors import words_of

P = ParamSpec("P")
T = TypeVar("T")
LONG_S = 0.1
"""Who takes longer on the loop is told of."""
STUCK_S = 5.0
"""Who has not returned after so long is told of while it is still at it."""
LOOK_S = 1.0
LOOKS = 10
"""After so many looks at nothing the thread that looks ends; the next call begins another."""
QUIET_S = 600.0
"""How long a function is not told of again."""
MOST_TOLD = 1_000
FIX = (
    "The answer has to come at once, from what is given or was looked up before: what has to wait "
    "belongs into a tool, a hook or a check"
)

log = logging.getLogger("cairn")


class _Call(NamedTuple):
    name: str
    began: float


_at_work: dict[int, _Call] = {}
"""What is at work on an event loop, by the loop's thread."""
_told: dict[tuple[str, str], float] = {}
_lock = threading.Lock()
_looking: threading.Thread | None = None


def watched(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """A function that runs code of the deployment's, as a decision calls it.

    On an event loop it is timed, and what it raises that would end the process or the loop, such
    as `SystemExit`, is a `RuntimeError` that names it. Elsewhere it is simply called.

    Args:
        name: What it is called in messages, as `conflict_key of the tool pay`.
        function: A plain function; who wants its source finds it as `__wrapped__`.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return function(*args, **kwargs)
        thread = threading.get_ident()
        outer = _at_work.get(thread)
        own = _at_work[thread] = _Call(name, time.monotonic())
        if _looking is None:
            _look_from_now_on()
        try:
            return function(*args, **kwargs)
        except Exception:  # whatever it is, it is for whoever asks
            raise
        except BaseException as error:  # even SystemExit ends this call and nothing else
            raise RuntimeError(f"{name} raised {words_of(error)}") from error
        finally:
            if outer is None:
                del _at_work[thread]
            else:
                _at_work[thread] = outer
            seconds = time.monotonic() - own.began
            if seconds >= LONG_S:
                _tell(own, seconds, stuck=False)

    return call


def told_lately(name: str, what: str) -> bool:
    """Whether this was told of a function in the last ten minutes; if not, it counts as told now.

    Args:
        name: What the function is called in messages.
        what: Which of the things that can be told of it.
    """
    key, now = (name, what), time.monotonic()
    with _lock:
        if len(_told) >= MOST_TOLD:
            _told.clear()
        if key in _told and now - _told[key] < QUIET_S:
            return True
        _told[key] = now
        return False


def _tell(call: _Call, seconds: float, *, stuck: bool) -> None:
    if told_lately(call.name, "stuck" if stuck else "long"):
        return
    have = "have" if call.name.startswith("the validators ") else "has"
    took = f"{have} been at work for" if stuck else "took"
    log.warning(
        "%s %s %d ms on the event loop, and every run of this process waited. %s",
        call.name,
        took,
        seconds * 1_000,
        FIX,
    )


# ---------------------------------------------------------------- the thread that looks


def _look_from_now_on() -> None:
    global _looking  # noqa: PLW0603 - one thread looks after all loops of the process
    with _lock:
        if _looking is None:
            looking = threading.Thread(target=_look, name="cairn-on-loop", daemon=True)
            try:
                looking.start()
            except RuntimeError:  # the system has no more threads: who returns is told of anyway
                return
            _looking = looking


def _look() -> None:
    global _looking  # noqa: PLW0603 - as above
    idle = 0
    while idle < LOOKS:
        time.sleep(LOOK_S)
        now = time.monotonic()
        calls = list(_at_work.values())
        idle = 0 if calls else idle + 1
        for call in calls:
            if now - call.began >= STUCK_S:
                _tell(call, now - call.began, stuck=True)
    with _lock:
        _looking = None
    if _at_work:  # it began in this very moment, and saw that somebody looks
        _look_from_now_on()


def _forget() -> None:
    """A child of a fork has none of its parent's threads."""
    global _looking, _lock
    _looking, _lock = None, threading.Lock()
    _at_work.clear()


os.register_at_fork(after_in_child=_forget)
