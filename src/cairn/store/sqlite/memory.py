"""Memory in the store's own file: its changes go through the store's writer, like all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from cairn.core.messages import Principal, clean
from cairn.memory import finding, reviewing, shelf
from cairn.memory.embedding import Embedding
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
    checked,
    export_line,
)
from cairn.memory.meaning import filled, indexed, recalled
from cairn.store.sqlite.journal import Salts
from cairn.store.sqlite.memory_rows import Rows, WritableRows
from cairn.store.sqlite.requests import Request
from cairn.store.sqlite.transaction import Transaction

if TYPE_CHECKING:
    from cairn.store.sqlite.store import SqliteStore


class Change(Request):
    """A change of facts, in the writer's transaction."""

    __slots__ = ("_change", "_erases", "_salts")

    def __init__(
        self, change: Callable[[WritableRows], object], salts: Salts, *, erases: bool = False
    ) -> None:
        super().__init__()
        self._change = change
        self._salts = salts
        self._erases = erases

    def apply(self, tx: Transaction) -> object:
        result = self._change(WritableRows(tx, self._salts))
        tx.clears_log |= self._erases
        return result


class SqliteMemory:
    """Facts in a store's file; the contract is `cairn.memory.Memory`.

    Args:
        store: The store; it is opened and closed by whoever it belongs to.
        embedding: Gives texts a meaning in numbers; None for full text only.
    """

    def __init__(self, store: SqliteStore, embedding: Embedding | None = None) -> None:
        self._store = store
        self._embedding = embedding
        self._salts = Salts()

    # ------------------------------------------------------------ changing

    async def keep(self, new: NewFact, key: str, now: int, actor: str = "") -> Kept:
        """See `Memory.keep`."""
        new, actor = checked(new, now), clean(actor)
        kept = cast("Kept", await self._do(lambda r: shelf.keep(r, new, key, now, actor)))
        if self._embedding is not None and kept.state == "live" and not kept.known:
            await filled(self, self._embedding, (new.scope,), now, kept.n)
        return kept

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
        """See `Memory.review`."""
        by = clean(actor)
        await self._do(lambda r: reviewing.review(r, n, verdict, trust, now, by, reason))
        if self._embedding is not None and verdict == "accepted":
            scopes = [f.scope for f in await self._store.look(lambda c: _one(Rows(c), n))]
            await filled(self, self._embedding, scopes, now)

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
        """See `Memory.forget`."""
        by = clean(actor)
        gone = await self._do(lambda r: shelf.forget(r, n, now, by, reason, of, trusted=trusted))
        return cast("list[int]", gone)

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erased:
        """See `Memory.erase`."""
        by = clean(actor)

        def change(rows: WritableRows) -> int:
            erased = shelf.erase(rows, principal, now, by, reason)
            rows.rewrite()
            return erased

        facts = cast("int", await self._do(change, erases=True))
        return Erased(facts=facts, log_cleared=_is_empty(f"{self._store.settings.path}-wal"))

    async def _do(self, change: Callable[[WritableRows], object], *, erases: bool = False) -> Any:
        return await self._store.change(Change(change, self._salts, erases=erases))

    async def index(self, now: int) -> Indexed:
        """See `Indexing.index`."""
        return await indexed(self, self._embedding, now)

    async def mean(self, model: str, vectors: Sequence[tuple[int, bytes]]) -> None:
        """See `Back.mean`."""

        def change(rows: WritableRows) -> None:
            for n, vector in vectors:
                rows.set_vector(n, model, vector)

        await self._do(change)

    # ------------------------------------------------------------ reading

    async def recall(self, query: str, scopes: Sequence[Scope], limit: int, now: int) -> Recall:
        """See `Memory.recall`."""
        return await recalled(self, self._embedding, query, scopes, limit, now)

    async def search(self, question: finding.Question) -> finding.Found:
        """See `Back.search`."""
        return await self._store.look(lambda c: finding.search(Rows(c), question))

    async def bare(
        self, model: str, scopes: Sequence[Scope], now: int, limit: int, after: int = 0
    ) -> list[Fact]:
        """See `Back.bare`."""
        return await self._store.look(lambda c: Rows(c).bare(model, scopes, now, limit, after))

    async def bare_count(self, model: str, now: int) -> int:
        """See `Back.bare_count`."""
        return await self._store.look(lambda c: Rows(c).bare_count(model, now))

    async def get(self, n: int) -> Fact:
        """See `Memory.get`."""
        return await self._store.look(lambda c: shelf.there(Rows(c), n))

    async def gone(self, n: int) -> Gone | None:
        """See `Memory.gone`."""
        return await self._store.look(lambda c: Rows(c).gone(n))

    async def facts(self, where: FactFilter) -> list[Fact]:
        """See `Memory.facts`."""
        return await self._store.look(lambda c: Rows(c).facts(where))

    async def export(self, principal: Principal) -> list[str]:
        """See `Memory.export`."""
        facts = await self._store.look(lambda c: shelf.everything_of(Rows(c), principal))
        return [export_line(fact) for fact in facts]


def _one(rows: Rows, n: int) -> list[Fact]:
    fact = rows.fact(n)
    return [] if fact is None else [fact]


def _is_empty(log: str) -> bool:
    try:
        return not Path(log).stat().st_size
    except FileNotFoundError:
        return True
