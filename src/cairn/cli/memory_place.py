"""What the command line asks the application about facts: its embedder, and who shares them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from cairn.cli.place import Place, open_existing, open_runtime, runtime_of
from cairn.cli.say import complain
from cairn.core.messages import Principal
from cairn.core.names import listed
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError
from cairn.governance.secrets import of_environment
from cairn.memory.facts import Scope
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


def check_shared(scope: Scope, principal: str) -> Callable[[Runtime | None], None]:
    """Refuses a scope that the application does not share: what is kept there reaches no run."""

    def check(runtime: Runtime | None) -> None:
        if scope.kind == "user":
            return
        if runtime is None:
            complain(
                f"no application was named, so nobody knows whether its runs share facts of the "
                f"{scope.kind} {scope.name}: where MemoryRules do not name it, and no run says it, "
                "nobody reads this"
            )
            return
        rules = runtime.host.memory_rules
        whose = Principal(id=principal, tenant=scope.tenant)
        said = {scope.kind: scope.name}
        shared = rules.scopes(whose, said.get("agent", ""), said.get("project", ""))
        if shared.get(scope.kind) == scope:
            return
        names = rules.agents if scope.kind == "agent" else rules.projects
        own = rules.scopes(whose, "").get("project")
        if scope.kind == "project" and own is not None:
            names = (own.name, *names)
        fix = f"It shares those of {listed(names)}" if names else "It shares none of that kind"
        problem = f"the application shares no facts of the {scope.kind} {scope.name!r}"
        raise ConfigError(f"--{scope.kind}", problem, fix)

    return check
