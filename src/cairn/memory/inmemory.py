"""Memory that ends with the process: for tests, demos, and as the measure of every other one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from cairn.core import events as ev
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
    State,
    Trust,
    checked,
    export_line,
)
from cairn.memory.meaning import filled, indexed, recalled
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
        self.replaced: dict[int, set[int]] = {}
        self.tombs: dict[int, Gone] = {}
        self.lengths: dict[int, int] = {}
        self.terms_of: dict[int, dict[str, int]] = {}
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

    def replaced_by(self, scope: Scope, n: int) -> list[Fact]:
        """See `Shelf.replaced_by`."""
        found = [self.rows[each] for each in sorted(self.replaced.get(n, ()))]
        return [fact for fact in found if fact.scope == scope]

    def before(self, n: int) -> list[int]:
        """See `Shelf.before`."""
        found, layer = [], sorted(self.replaced.get(n, ()))
        while layer:
            found.append(layer)
            layer = sorted(old for each in layer for old in self.replaced.get(each, ()))
        return [each for layer in reversed(found) for each in layer]

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
        return len(found), sum(self.lengths[fact.n] for fact in found)

    def waiting_of(self, principal: Principal, now: int) -> int:
        """See `Shelf.waiting_of`."""
        return sum(
            fact.of(principal) and fact.state == "waiting" and not fact.expired(now)
            for fact in self.rows.values()
        )

    def postings(self, scope: Scope, asked: Sequence[str], now: int) -> Iterable[Posting]:
        """See `Shelf.postings`."""
        for n, terms in sorted(self.terms_of.items()):
            fact = self.rows[n]
            if fact.scope == scope and not fact.expired(now):
                for word in asked:
                    if word in terms:
                        yield n, word, terms[word], self.lengths[n]

    def terms(self, scope: Scope, beginning: str, limit: int) -> list[str]:
        """See `Shelf.terms`."""
        found = {
            word
            for n, terms in self.terms_of.items()
            if self.rows[n].scope == scope
            for word in terms
            if word.startswith(beginning)
        }
        return sorted(found)[:limit]

    def vectors(self, scope: Scope, model: str, now: int) -> list[tuple[int, bytes]]:
        """See `Shelf.vectors`."""
        found = [
            (n, vector)
            for n, (name, vector) in sorted(self.meanings.items(), reverse=True)
            if name == model and self.rows[n].scope == scope and not self.rows[n].expired(now)
        ]
        return found[: VECTORS_AT_MOST + 1]

    def bare(self, model: str, scopes: Sequence[Scope], now: int) -> list[Fact]:
        """See `Back.bare`."""
        found = [self.rows[n] for n in sorted(self.terms_of, reverse=True)]
        return [
            fact
            for fact in found
            if self.meanings.get(fact.n, ("",))[0] != model
            and (not scopes or fact.scope in scopes)
            and not fact.expired(now)
        ]

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
        self.put(fact)
        self.lengths[fact.n] = shelf.found_by(fact).total()

    def put(self, fact: Fact) -> None:
        """See `Shelf.put`."""
        self._stands_alone(fact.n)
        self.rows[fact.n] = fact
        if fact.successor:
            self.replaced.setdefault(fact.successor, set()).add(fact.n)

    def _stands_alone(self, n: int) -> None:
        by = self.rows[n].successor if n in self.rows else 0
        if by:
            self.replaced[by].discard(n)
            if not self.replaced[by]:
                del self.replaced[by]

    def index(self, fact: Fact, found: Mapping[str, int]) -> None:
        """See `Shelf.index`."""
        self.terms_of[fact.n] = dict(found)

    def unindex(self, fact: Fact) -> None:
        """See `Shelf.unindex`."""
        self.terms_of.pop(fact.n, None)
        self.meanings.pop(fact.n, None)

    def drop(self, fact: Fact, gone: Gone) -> None:
        """See `Shelf.drop`."""
        self._stands_alone(fact.n)
        del self.rows[fact.n], self.lengths[fact.n]
        self.tombs[fact.n] = gone

    def note(self, event: ev.Event, now: int, actor: str) -> int:
        """See `Shelf.note`."""
        return now if self.noted is None else self.noted(event, now, actor)


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
            await self._embed(kept.n, now)
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
            reviewing.review(self.tables, n, verdict, trust, now, clean(actor), reason)
        if verdict == "accepted":
            await self._embed(n, now)

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
        with self.tables.lock:
            return shelf.forget(self.tables, n, now, clean(actor), reason, of, trusted=trusted)

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erased:
        """See `Memory.erase`."""
        with self.tables.lock:
            return Erased(facts=shelf.erase(self.tables, principal, now, clean(actor), reason))

    async def _embed(self, n: int, now: int) -> None:
        fact = self.tables.rows.get(n)
        if self._embedding is not None and fact is not None:
            await filled(self, self._embedding, (fact.scope,), now, n)

    async def index(self, now: int) -> Indexed:
        """See `Indexing.index`."""
        return await indexed(self, self._embedding, now)

    async def bare(
        self, model: str, scopes: Sequence[Scope], now: int, limit: int, after: int = 0
    ) -> list[Fact]:
        """See `Back.bare`."""
        with self.tables.lock:
            found = self.tables.bare(model, scopes, now)
            return [fact for fact in found if fact.n > after][:limit]

    async def bare_count(self, model: str, now: int) -> int:
        """See `Back.bare_count`."""
        with self.tables.lock:
            return len(self.tables.bare(model, (), now))

    async def mean(self, model: str, vectors: Sequence[tuple[int, bytes]]) -> None:
        """See `Back.mean`."""
        with self.tables.lock:
            for n, vector in vectors:
                if n in self.tables.terms_of:
                    self.tables.meanings[n] = (model, vector)

    async def recall(self, query: str, scopes: Sequence[Scope], limit: int, now: int) -> Recall:
        """See `Memory.recall`."""
        return await recalled(self, self._embedding, query, scopes, limit, now)

    async def search(self, question: finding.Question) -> finding.Found:
        """See `Back.search`."""
        with self.tables.lock:
            return finding.search(self.tables, question)

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
