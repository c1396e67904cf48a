"""Memory that ends with the process: for tests, demos, and as the measure of every other one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from cairn.core import events as ev
from cairn.core.messages import Principal, clean
from cairn.core.words import words
from cairn.memory import shelf
from cairn.memory.embedding import Embedding
from cairn.memory.facts import (
    Erased,
    Fact,
    FactFilter,
    Gone,
    Kept,
    NewFact,
    Recall,
    Scope,
    State,
    Trust,
    checked,
    export_line,
)
from cairn.memory.ranking import Posting
from cairn.memory.shelf import VECTORS_AT_MOST

Note = Callable[[ev.Event, int, str], int]
"""Appends an event to the journal `store`: the event, the time, the actor; the entry's time."""


class Tables:
    """The rows; the whole `Shelf`. Shared by all who stand for processes on one store."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.number = 0
        self.rows: dict[int, Fact] = {}
        self.tombs: dict[int, Gone] = {}
        self.terms: dict[int, dict[str, int]] = {}
        self.meanings: dict[int, tuple[str, bytes]] = {}
        self.noted: Note | None = None

    def fact(self, n: int) -> Fact | None:
        """See `Shelf.fact`."""
        return self.rows.get(n)

    def gone(self, n: int) -> Gone | None:
        """See `Shelf.gone`."""
        return self.tombs.get(n)

    def keyed(self, key: str) -> int:
        """See `Shelf.keyed`."""
        named = [f.n for f in self.rows.values() if f.content.key == key]
        named += [g.n for g in self.tombs.values() if g.key == key]
        return named[0] if key and named else 0

    def facts(self, where: FactFilter, *, newest: bool = False) -> list[Fact]:
        """See `Shelf.facts`."""
        found = [
            fact
            for fact in self.rows.values()
            if fact.n > where.after
            and where.scope in {None, fact.scope}
            and where.principal in {"", fact.content.principal}
            and where.tenant in {None, fact.scope.tenant}
            and where.state in {"", fact.state}
        ]
        found.sort(key=lambda fact: fact.n, reverse=newest)
        return found[: where.limit] if where.limit else found

    def replaced_by(self, fact: Fact) -> list[Fact]:
        """See `Shelf.replaced_by`."""
        return [each for each in self.rows.values() if each.successor == fact.n]

    def overdue(self, scope: Scope, before: int, limit: int) -> list[Fact]:
        """See `Shelf.overdue`."""
        found = [f for f in self.rows.values() if f.scope == scope and f.expired(before)]
        return sorted(found, key=lambda fact: fact.n)[:limit]

    def count(self, scope: Scope, state: State, now: int) -> tuple[int, int]:
        """See `Shelf.count`."""
        found = [
            fact
            for fact in self.rows.values()
            if fact.scope == scope and fact.state == state and not fact.expired(now)
        ]
        return len(found), sum(map(_length, found))

    def waiting_of(self, principal: Principal) -> int:
        """See `Shelf.waiting_of`."""
        return sum(f.of(principal) and f.state == "waiting" for f in self.rows.values())

    def postings(self, scope: Scope, asked: Sequence[str], now: int) -> Iterable[Posting]:
        """See `Shelf.postings`."""
        for n, terms in sorted(self.terms.items()):
            fact = self.rows[n]
            if fact.scope == scope and not fact.expired(now):
                for word in asked:
                    if word in terms:
                        yield n, word, terms[word], _length(fact)

    def vectors(self, scope: Scope, model: str, now: int) -> list[tuple[int, bytes]]:
        """See `Shelf.vectors`."""
        found = [
            (n, vector)
            for n, (name, vector) in sorted(self.meanings.items(), reverse=True)
            if name == model and self.rows[n].scope == scope and not self.rows[n].expired(now)
        ]
        return found[: VECTORS_AT_MOST + 1]

    # ------------------------------------------------------------ changing

    def next_number(self) -> int:
        """See `Shelf.next_number`."""
        return self.number + 1

    def salt(self) -> bytes:
        """See `Shelf.salt`."""
        return os.urandom(16)

    def add(self, fact: Fact) -> None:
        """See `Shelf.add`."""
        self.number = fact.n
        self.rows[fact.n] = fact

    def put(self, fact: Fact) -> None:
        """See `Shelf.put`."""
        self.rows[fact.n] = fact

    def index(self, fact: Fact, found: Mapping[str, int]) -> None:
        """See `Shelf.index`."""
        self.terms[fact.n] = dict(found)

    def unindex(self, fact: Fact) -> None:
        """See `Shelf.unindex`."""
        self.terms.pop(fact.n, None)
        self.meanings.pop(fact.n, None)

    def drop(self, fact: Fact, gone: Gone) -> None:
        """See `Shelf.drop`."""
        del self.rows[fact.n]
        self.tombs[fact.n] = gone

    def note(self, event: ev.Event, now: int, actor: str) -> int:
        """See `Shelf.note`."""
        return now if self.noted is None else self.noted(event, now, actor)


def _length(fact: Fact) -> int:
    return words("\n".join([fact.text, *fact.content.tags])).total()


class InMemoryMemory:
    """Facts in memory; the contract is `cairn.memory.Memory`.

    Args:
        tables: Shared with another object to stand for a second process; fresh by default.
        embedding: Gives texts a meaning in numbers; None for full text only.
    """

    def __init__(self, tables: Tables | None = None, embedding: Embedding | None = None) -> None:
        self.tables = tables if tables is not None else Tables()
        self._embedding = embedding

    async def keep(self, new: NewFact, key: str, now: int, actor: str = "") -> Kept:
        """See `Memory.keep`."""
        new = checked(new, now)
        with self.tables.lock:
            kept = shelf.keep(self.tables, new, key, now, clean(actor))
        if kept.state == "live" and not kept.known:
            await self._embed(self.tables.rows.get(kept.n))
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
        with self.tables.lock:
            shelf.review(self.tables, n, verdict, trust, now, clean(actor), reason)
        if verdict == "accepted":
            await self._embed(self.tables.rows.get(n))

    async def forget(self, n: int, now: int, *, actor: str = "", reason: str = "") -> list[int]:
        """See `Memory.forget`."""
        with self.tables.lock:
            return shelf.forget(self.tables, n, now, clean(actor), reason)

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erased:
        """See `Memory.erase`."""
        with self.tables.lock:
            return Erased(facts=shelf.erase(self.tables, principal, now, clean(actor), reason))

    async def _embed(self, fact: Fact | None) -> None:
        """Vectors for it and for the newest that have none."""
        if self._embedding is None or fact is None:
            return
        model = self._embedding.model
        with self.tables.lock:
            tables = self.tables
            missing = [tables.rows[n] for n in sorted(tables.terms, reverse=True)]
            missing = [f for f in missing if tables.meanings.get(f.n, ("",))[0] != model][:32]
        for n, vector in await self._embedding.of_facts(missing):
            with self.tables.lock:
                if n in self.tables.terms:
                    self.tables.meanings[n] = (model, vector)

    async def recall(self, query: str, scopes: Sequence[Scope], limit: int, now: int) -> Recall:
        """See `Memory.recall`."""
        question, degraded = await shelf.question_of(self._embedding, query, scopes, limit, now)
        with self.tables.lock:
            hits, cut = shelf.search(self.tables, question)
        return Recall(hits=tuple(hits), degraded=degraded or cut)

    async def get(self, n: int) -> Fact:
        """See `Memory.get`."""
        with self.tables.lock:
            return shelf.there(self.tables, n)

    async def gone(self, n: int) -> Gone | None:
        """See `Memory.gone`."""
        with self.tables.lock:
            return self.tables.gone(n)

    async def facts(self, where: FactFilter) -> list[Fact]:
        """See `Memory.facts`."""
        with self.tables.lock:
            return self.tables.facts(where)

    async def export(self, principal: Principal) -> list[str]:
        """See `Memory.export`."""
        with self.tables.lock:
            return [export_line(fact) for fact in shelf.everything_of(self.tables, principal)]
