"""Every verb is written once, async; its sync form runs in the runtime's background loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from cairn.engine.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")


class HasPortal(Protocol):
    """What a sync verb needs of its object."""

    portal: Portal


S = TypeVar("S", bound=HasPortal)


def twin(
    verb: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], R]:
    """The sync form of an async verb."""

    def sync(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.call(verb(self, *args, **kwargs), sync.__name__)

    sync.__name__ = verb.__name__.removesuffix("_async")
    sync.__qualname__ = verb.__qualname__.removesuffix("_async")
    sync.__doc__ = verb.__doc__
    return sync
