"""Whether an exception that ends more than a call was asked for, or is one run's own fault.

`SystemExit`, `KeyboardInterrupt`, `CancelledError` and `GeneratorExit` may come out of any code
that is lent to a run. Then they are that run's fault as any other exception would be. Only where
somebody outside wants the process or the task to end do they go on.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from functools import partial
from types import CodeType
from typing import Any

from cairn.errors import words_of
from cairn.tools.blocking import ended_from_outside


def asked_for(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether somebody outside wants `task` or the process to end.

    Args:
        error: What came out of the task's own work.
        task: The one that the work was done in.
    """
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return ended_from_outside(error, task)
    if threading.current_thread() is not threading.main_thread():
        return False  # signals come to the main thread only
    return isinstance(error, KeyboardInterrupt) or _by_signal(error)


def as_fault(error: BaseException, where: str) -> Exception:
    """The exception as one that ends nothing but the work at hand."""
    if isinstance(error, Exception):
        return error
    fault = RuntimeError(f"{where} came to {words_of(error)}, which nobody had asked for")
    fault.__cause__ = error
    return fault


def _by_signal(error: BaseException) -> bool:
    """Whether a handler of a signal raised it, wherever that happened to come."""
    handlers = {_code_of(signal.getsignal(each)) for each in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    called = handler if hasattr(handler, "__code__") else getattr(handler, "__call__", None)  # noqa: B004 - an object's own method is meant
    code = getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None
