"""Daemon threads for sync tools: one per running call, kept a while for the next one.

Starting a thread costs several times what handing work to an idle one does. A thread serves one
call at a time and is never waited for, so a tool that hangs holds up nobody else. Variables of a
thread (`threading.local`) may be seen by a later call in it, as in any pool.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

IDLE_S = 10.0
"""How long a thread without work is kept."""


def run_in_thread(work: Callable[[], None], name: str) -> None:
    """Have the work done in a thread of its own; it must not raise.

    Raises:
        RuntimeError: the system has no more threads; nothing was begun.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.hand_over(work, name)


class _Worker:
    """A thread that does what it is handed, one thing after the other."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._ready = threading.Lock()
        self._ready.acquire()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hand_over(self, work: Callable[[], None], name: str) -> None:
        self._thread.name = name
        self._work = work
        self._ready.release()

    def _serve(self) -> None:
        while True:
            if not self._ready.acquire(timeout=IDLE_S):
                if self._retired():
                    return
                self._ready.acquire()  # somebody has just taken it and hands work over
            work, self._work = self._work, None
            if work is not None:
                work()
            del work  # what the call held is free while the thread is idle
            _idle.append(self)

    def _retired(self) -> bool:
        """Whether nobody has taken it for new work; then nobody will."""
        try:
            _idle.remove(self)
        except ValueError:
            return False
        return True


_idle: deque[_Worker] = deque()
