"""Telling people that a run waits for them: a function, a command or a webhook.

At least once: a process that dies before it told anybody tells again when a worker starts.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cairn.engine.result import Run, result_of
from cairn.errors import ConfigError
from cairn.ports import RunFilter, Store

OnWait = Callable[[Run], Any] | Sequence[str] | str
TRIES = 3
TIMEOUT_S = 10.0

log = logging.getLogger("cairn")


class Notifier:
    """Calls `on_wait` for runs that wait for people.

    Args:
        on_wait: A function of a `Run` (sync or async); a command as a list of arguments, which
            gets the run as JSON on its input; or an http(s) URL it is posted to.

    Raises:
        ConfigError: it is none of these.
    """

    def __init__(self, on_wait: OnWait) -> None:
        if isinstance(on_wait, str) and not on_wait.startswith(("http://", "https://")):
            raise ConfigError(
                "Runtime.on_wait",
                f"{on_wait!r} is no URL",
                "Give an http(s) URL, a list of command arguments, or a function",
            )
        if not (callable(on_wait) or _is_command(on_wait)):
            raise ConfigError(
                "Runtime.on_wait",
                f"{on_wait!r} cannot be told anything",
                "Give an http(s) URL, a list of command arguments, or a function",
            )
        self._on_wait = on_wait

    async def waiting(self, store: Store, run: str) -> None:
        """Tell that this run waits; a failure is logged and hurts nobody."""
        for attempt in range(TRIES):
            waiting = await result_of(store, run)
            try:
                await self._tell(waiting)
            except Exception as error:  # a broken notifier must not stop runs
                log.warning("on_wait failed for run %s: %s", run, error)
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
            told = on_wait(run)
            if inspect.isawaitable(told):
                await told
            return
        payload = msgspec.json.encode(run)
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
