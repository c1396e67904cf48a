"""How the command line looks facts up: with the application's embedder, if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from cairn.cli.place import Place, open_existing, open_runtime, runtime_of
from cairn.cli.say import complain
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError
from cairn.governance.secrets import of_environment
from cairn.memory.port import Embedder

if TYPE_CHECKING:
    from cairn.runtime import Runtime


def ranked(embedder: Embedder | None, place: Place, degraded: str) -> str:
    """How facts were put in order, in words."""
    if embedder is None:
        why = "the application has no embedder" if place.has_app else "no application was named"
        return f"ranked by their words alone: {why}"
    by = f"their words and by meaning ({embedder.name})"
    return f"degraded, not ranked by {by}: {degraded}" if degraded else f"ranked by {by}"


def with_runtime(place: Place, work: Callable[[Runtime], Coroutine[Any, Any, int]]) -> int:
    """What `work` comes to, with the application's memory and embedder or with the store alone.

    Raises:
        ConfigError: there is no such store, or an application that was asked for cannot be loaded.
    """

    async def whole() -> int:
        runtime = _opened(place)
        try:
            with runtime.host.secrets.scrubbed():
                return await work(runtime)
        finally:
            await runtime.close_async()

    return asyncio.run(whole())


def _opened(place: Place) -> Runtime:
    """The application's runtime; the bare store where one was not asked for and is broken."""
    try:
        return open_runtime(place)
    except ConfigError as error:
        if place.app or place.of_app or not place.has_app:
            raise
        complain(f"the application is left out: {error}")
        return runtime_of(Client(open_existing(place), SystemClock(), of_environment()))
