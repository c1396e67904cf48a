"""What the parts of the memory contract share: a memory to make promises about, and facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from cairn.core.messages import Principal
from cairn.memory.embedding import Embedding
from cairn.memory.facts import FactFilter, NewFact, Recall, Scope, user_scope
from cairn.memory.port import Memory

E = TypeVar("E", bound=BaseException)

NOW = 1_750_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
ANN = Principal(id="ann")
BOB = Principal(id="bob")
ANN_ELSEWHERE = Principal(id="ann", tenant="acme")
SHOP = Scope(kind="project", name="shop")


class Meaning:
    """An embedder for tests: a text is what its letters are, so alike letters are alike meaning.

    Attributes:
        down: What it raises while it is down; None while it works.
        delay_s: How long it takes.
        asked: The texts it was asked for.
    """

    name = "letters"
    dimensions = 26

    def __init__(self) -> None:
        self.down: Exception | None = None
        self.delay_s = 0.0
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """How often each letter stands in a text."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.down is not None:
            raise self.down
        self.asked += texts
        letters = "abcdefghijklmnopqrstuvwxyz"
        return [[text.lower().count(each) + 0.001 for each in letters] for text in texts]


class MemoryPromises:
    """A memory to make promises about. Back ends fill in the first method."""

    def open(self, embedding: Embedding | None = None) -> Any:
        """An empty memory, and a function that closes it: a pair."""
        raise NotImplementedError

    def held(
        self,
        promise: Callable[[Memory], Awaitable[None]],
        embedding: Embedding | None = None,
    ) -> None:
        """Hold the memory to a promise."""

        async def whole() -> None:
            memory, close = self.open(embedding)
            try:
                await promise(memory)
            finally:
                await close()

        asyncio.run(whole())


def fact(text: str, principal: Principal = ANN, scope: Scope | None = None, **more: Any) -> NewFact:
    """A fact that a run kept for a principal, unless something else is said."""
    return NewFact(
        text=text,
        scope=scope if scope is not None else user_scope(principal),
        principal=principal.id,
        **{"trust": "agent", **more},
    )


def untrusted(text: str, principal: Principal = ANN, **more: Any) -> NewFact:
    """A fact that may come from the web."""
    return fact(text, principal, **{"trust": "untrusted", "taint": ("web",), **more})


def texts(found: Recall) -> list[str]:
    """What was recalled, the best first."""
    return [hit.fact.text for hit in found.hits]


async def known(
    memory: Memory, query: str, principal: Principal = ANN, now: int = NOW
) -> list[str]:
    """What a principal's own scope answers."""
    return texts(await memory.recall(query, [user_scope(principal)], 10, now))


async def chain(memory: Memory) -> list[tuple[int, str, int]]:
    """Every fact: its number, its state, and which one has replaced it."""
    return [(f.n, f.state, f.successor) for f in await memory.facts(FactFilter(limit=0))]


async def refused(kind: type[E], wish: Awaitable[object]) -> E:
    """The error the wish was refused with; anything else is a broken promise."""
    try:
        result = await wish
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was due, but the answer was {result!r}")
