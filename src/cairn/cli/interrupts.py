"""Ctrl-C and SIGTERM while runs move: pause first, cancel next, and never lose what is known."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cairn.core import commands as cmd
from cairn.errors import CairnError

if TYPE_CHECKING:
    from cairn.runtime import Runtime

Say = Callable[[str], None]
BY_SIGNAL = 128


class Signals:
    """Handlers on the running loop, put back at the end.

    A loop in a thread of its own has no signals: then nothing is changed.
    """

    def __init__(self, handlers: dict[signal.Signals, Callable[[], None]]) -> None:
        self._handlers = handlers
        self._set: list[signal.Signals] = []

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, handler)
                self._set.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._set:
            loop.remove_signal_handler(number)


class RunInterrupts:
    """For one run: Ctrl-C pauses it, again cancels it, a third time ends the process.

    SIGTERM drains: nothing new is started, what is in flight lands, and the run stays as it is,
    so that whoever starts it again goes on.
    """

    def __init__(self, runtime: Runtime, run: str, by: str, say: Say) -> None:
        self._runtime = runtime
        self._run = run
        self._by = by
        self._say = say
        self._pressed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.terminated = False

    def signals(self) -> Signals:
        """The handlers, to be entered while the run is driven."""
        return Signals({signal.SIGINT: self._interrupt, signal.SIGTERM: self._terminate})

    def _interrupt(self) -> None:
        self._pressed += 1
        if self._pressed == 1:
            self._say("pausing: what is in flight is waited for; Ctrl-C again cancels the run")
            self._start(self._submit(cmd.Pause(reason="Ctrl-C")))
        elif self._pressed == 2:
            self._say("cancelling: what is in flight is stopped; Ctrl-C again ends the process")
            self._start(self._submit(cmd.Cancel(reason="Ctrl-C")))
        else:
            leave_at_once(signal.SIGINT)

    def _terminate(self) -> None:
        if self.terminated:
            leave_at_once(signal.SIGTERM)
        self.terminated = True
        self._runtime.host.draining = True
        self._say("ending: what is in flight is waited for; the run stays as it is")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, command: cmd.Command) -> None:
        try:
            await self._runtime.client.submit(self._run, command, self._by)
        except CairnError as error:
            self._say(str(error))


def leave_at_once(number: signal.Signals) -> NoReturn:
    """End the process without waiting for anything; its claims are found dead by others."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(BY_SIGNAL + number)
