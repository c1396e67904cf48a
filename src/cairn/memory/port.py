"""The port: what a memory promises, and what it asks of whoever turns texts into vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Literal, Protocol, runtime_checkable

from cairn.core.messages import Principal
from cairn.memory.facts import (
    Erased,
    Fact,
    FactFilter,
    Gone,
    Indexed,
    Kept,
    NewFact,
    Recall,
    Scope,
    Trust,
)

Vectors = Sequence[Sequence[float]]


class Embedder(Protocol):
    """Turns texts into vectors whose closeness is likeness of meaning.

    It must never: return fewer vectors than it got texts, or mix up their order. What it raises,
    and a delay, cost nothing but the ranking by meaning.
    """

    @property
    def name(self) -> str:
        """Which model it is; vectors of two names are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors | Awaitable[Vectors]:
        """A vector for each text, in the same order.

        Async or not. A plain function runs in threads, in up to four at once, so that nothing
        stands still for it; an async one must not block.
        """
        ...


class Memory(Protocol):
    """Where facts live.

    It must never: acknowledge what a crash can lose, show a fact outside of its scope, recall
    one that waits, is expired, superseded or gone, raise a fact's trust but in a review, or bring
    back what was removed. Every change is a fact of the journal `store`, in the same transaction.
    All times are microseconds since 1970, UTC.
    """

    async def keep(self, new: NewFact, key: str, now: int, actor: str = "") -> Kept:
        """Remember a fact; durable when it returns.

        Args:
            new: The fact.
            key: Names the wish: the same key again changes nothing and answers the same. Empty
                for none.
            now: When it is.
            actor: The person who adds it, empty for a run.

        One that would replace a fact of more trust, or another principal's, waits for a review.

        Raises:
            ConfigError: a part of it is not usable.
            UnknownRun: the fact it replaces is not of its scope.
            Refused: that one was replaced before, the scope is full, or the key is another's.
        """
        ...

    async def recall(self, query: str, scopes: Sequence[Scope], limit: int, now: int) -> Recall:
        """What is known of a question in these scopes, the best first.

        Raises:
            ConfigError: the limit is none.
        """
        ...

    async def get(self, n: int) -> Fact:
        """One fact, whatever its state. Raises `UnknownRun`; says so if it was removed."""
        ...

    async def gone(self, n: int) -> Gone | None:
        """What stays of a fact that was removed; None if it is there, or never was."""
        ...

    async def facts(self, where: FactFilter) -> list[Fact]:
        """Facts by what they are, the oldest first."""
        ...

    async def review(
        self,
        n: int,
        verdict: Literal["accepted", "rejected"],
        now: int,
        *,
        actor: str,
        trust: Trust = "owner",
        reason: str = "",
    ) -> None:
        """A person says what becomes of a fact: accepted with a trust, or removed.

        The only way in which trust is raised. A fact that is live already can be accepted too.
        One that waited and says what a live one of its scope and principal says, in the same words
        and tags, confirms that one: of both the one that counts longer is left, with the better
        trust, and the other is superseded by it. What a rejected fact had replaced lives again, as
        it was; what stood behind it in the same words is rejected with it.

        Raises:
            UnknownRun: there is no such fact.
            Refused: it was replaced by another, or it has expired and is to be accepted.
        """
        ...

    async def forget(
        self,
        n: int,
        now: int,
        *,
        actor: str = "",
        reason: str = "",
        of: Principal | None = None,
        trusted: bool = True,
    ) -> list[int]:
        """Remove a fact, and those that it had replaced; the numbers of all that went.

        Args:
            n: Its number.
            now: When it is.
            actor: The person who wants it, empty for a run.
            reason: Why; kept.
            of: Only if all that would go were kept for this principal; None for whoever's.
            trusted: Whether facts may go that are trusted; False for a run that has read untrusted
                content. Default True.

        Raises:
            UnknownRun: there is no such fact.
            Refused: one of them may not go; then all stay.
        """
        ...

    async def export(self, principal: Principal) -> list[str]:
        """All facts kept for a principal, in every scope and state, as lines of JSON."""
        ...

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erased:
        """Remove all facts kept for a principal: content, index and vectors; tombstones stay.

        What of others they had replaced lives again, or is replaced by what had replaced them.
        """
        ...


@runtime_checkable
class Indexing(Protocol):
    """A memory that can say what facts mean, in numbers, after they were kept."""

    async def index(self, now: int) -> Indexed:
        """Give vectors to the facts that have none of the embedder in use, the newest first.

        Ends at the first batch that the embedder fails at. Facts that wait, are superseded or
        expired get none.

        Raises:
            ConfigError: there is no embedder.
        """
        ...
