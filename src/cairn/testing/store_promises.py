"""What the parts of the store contract share: how a store is opened, and how refusals are met."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cairn.ports import Store

E = TypeVar("E", bound=BaseException)


class Promises:
    """A store to make promises about. Back ends fill in the first four methods."""

    def open(self) -> Store:
        """An empty store."""
        raise NotImplementedError

    def beside(self, store: Store) -> Store:
        """The same journals, as another process opens them."""
        raise NotImplementedError

    def die(self, store: Store) -> None:
        """The process of this object is gone, without a word."""
        raise NotImplementedError

    def freeze(self, store: Store) -> None:
        """The process of this object lives, but was not heard of for too long."""
        raise NotImplementedError

    def keep(self, promise: Callable[[Store], Awaitable[None]]) -> None:
        """Hold the store to a promise."""

        async def held() -> None:
            store = self.open()
            try:
                await promise(store)
            finally:
                await store.close()

        asyncio.run(held())


async def refused(kind: type[E], wish: Awaitable[object]) -> E:
    """The error the wish was refused with; anything else is a broken promise."""
    try:
        result = await wish
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was due, but the answer was {result!r}")
