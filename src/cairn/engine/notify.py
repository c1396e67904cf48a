"""Telling people that a run waits for them: a function, a command or a webhook.

At least once: a process that dies before it told anybody tells again when a worker starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cairn.core.takers import check_taker
from cairn.core.visible import in_json
from cairn.engine.result import Run, result_of
from cairn.errors import ConfigError, safe_repr, words_of
from cairn.ports import RunFilter, Store
from cairn.tools.blocking import Overdue, called
from cairn.tools.slots import Slots

OnWait = Callable[[Run], Any] | Sequence[str] | str
TRIES = 3
TIMEOUT_S = 10.0
"""Of a command or a webhook."""
TELL_S = 60.0
"""Of a function."""
TELLING = Slots(16)
"""Threads of plain functions: one that hangs takes none from those that runs depend on."""
ON_WAIT = "Runtime.on_wait"

log = logging.getLogger("cairn")


class Notifier:
    """Calls `on_wait` for runs that wait for people.

    Args:
        on_wait: A function of a `Run`, sync (it then runs in a thread) or async, which may take
            60 seconds; a command as a list of arguments, which gets the run as JSON on its
            input; or an http(s) URL it is posted to. These two may take 10 seconds.

    Raises:
        ConfigError: it is none of these, or a function of no run.
    """

    def __init__(self, on_wait: OnWait) -> None:
        if isinstance(on_wait, str) and not on_wait.startswith(("http://", "https://")):
            raise ConfigError(
                ON_WAIT,
                f"{safe_repr(on_wait)} is no URL",
                "Give an http(s) URL, a list of command arguments, or a function",
            )
        if not (callable(on_wait) or _is_command(on_wait)):
            raise ConfigError(
                ON_WAIT,
                f"{safe_repr(on_wait)} cannot be told anything",
                "Give an http(s) URL, a list of command arguments, or a function",
            )
        if callable(on_wait):
            check_taker(ON_WAIT, on_wait, "a Run")
        self._on_wait = on_wait

    async def waiting(self, store: Store, run: str) -> None:
        """Tell that this run waits; a failure is logged and hurts nobody."""
        for attempt in range(TRIES):
            waiting = await result_of(store, run)
            try:
                await self._tell(waiting)
            except Overdue as error:  # another try beside it would only tell twice
                log.warning("on_wait was left alone for run %s: %s", run, error)
                return
            except Exception as error:  # a broken notifier must not stop runs
                log.warning("on_wait failed for run %s: %s", run, words_of(error))
                await asyncio.sleep(0.2 * 2**attempt)
            else:
                return

    async def waiting_all(self, store: Store) -> None:
        """Tell of every run that waits for people now."""
        for info in await store.runs(RunFilter(status=("waiting",), limit=1000)):
            if "retry_at" not in info.waits:
                await self.waiting(store, info.run)

    async def _tell(self, run: Run) -> None:
        on_wait = self._on_wait
        if callable(on_wait):
            await called(ON_WAIT, on_wait, run, seconds=TELL_S, slots=TELLING)
            return
        payload = in_json(msgspec.json.encode(run).decode()).encode()
        if isinstance(on_wait, str):
            await asyncio.to_thread(_post, on_wait, payload)
            return
        process = await asyncio.create_subprocess_exec(
            *on_wait, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await process.communicate(payload)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise OSError(f"{on_wait[0]} ended with {process.returncode}")


def _is_command(given: object) -> bool:
    if isinstance(given, str):
        return True  # a URL, as was checked before
    return (
        isinstance(given, list | tuple)
        and bool(given)
        and all(isinstance(each, str) for each in given)
    )


def _post(url: str, payload: bytes) -> None:
    import urllib.request  # with all of ssl behind it: only for who uses a webhook

    request = urllib.request.Request(  # noqa: S310 - the scheme was checked at construction
        url, data=payload, headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - as above
        pass
