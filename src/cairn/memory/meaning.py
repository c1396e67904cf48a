"""Finding by meaning, on what a back end gives: ask, and give vectors to the facts that have none.

An embedder that was down when a fact was kept is asked for its vector later: when the next fact of
the scope is kept, when somebody asks there, or when a person has it done (`index`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cairn.errors import ConfigError
from cairn.memory.embedding import AT_ONCE, Embedding, Made
from cairn.memory.facts import Fact, Indexed, Recall, Scope
from cairn.memory.finding import Found, Question, question_of

NEIGHBOURS = 64
"""How far back a keep looks for facts without a vector: all would be a look at each fact."""


class Back(Protocol):
    """What a back end does for it, each in a transaction or a snapshot of its own."""

    async def search(self, question: Question) -> Found:
        """See `finding.search`."""
        ...

    async def bare(
        self, model: str, scopes: Sequence[Scope], now: int, limit: int, after: int = 0
    ) -> list[Fact]:
        """The newest facts that may be recalled and have no vector of a model.

        Of all scopes where none is named; only those with a higher number than `after`.
        """
        ...

    async def bare_count(self, model: str, now: int) -> int:
        """How many there are."""
        ...

    async def mean(self, model: str, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Keep vectors by the facts' numbers, of those that may still be recalled."""
        ...


async def recalled(
    back: Back,
    embedding: Embedding | None,
    query: str,
    scopes: Sequence[Scope],
    limit: int,
    now: int,
) -> Recall:
    """See `Memory.recall`."""
    question, degraded = await question_of(embedding, query, scopes, limit, now)
    found = await back.search(question)
    if embedding is not None and found.bare and await filled(back, embedding, scopes, now):
        found = await back.search(question)
    return Recall(hits=found.hits, degraded=degraded or found.degraded)


async def filled(
    back: Back, embedding: Embedding, scopes: Sequence[Scope], now: int, last: int = 0
) -> bool:
    """Give vectors to some facts of these scopes that have none; whether any got one.

    `last` is the number of one that was just kept: only it and its neighbours are looked at.
    """
    made = await _step(back, embedding, scopes, now, max(last - NEIGHBOURS, 0))
    return bool(made.vectors)


async def _step(
    back: Back, embedding: Embedding, scopes: Sequence[Scope], now: int, after: int = 0
) -> Made:
    aside = embedding.aside
    facts = await back.bare(embedding.model, scopes, now, AT_ONCE + len(aside), after)
    made = await embedding.of_facts([fact for fact in facts if fact.n not in aside][:AT_ONCE])
    if made.vectors:
        await back.mean(embedding.model, made.vectors)
    return made


async def indexed(back: Back, embedding: Embedding | None, now: int) -> Indexed:
    """See `Indexing.index`."""
    if embedding is None:
        fix = "Give MemoryRules(embedder=...); from the command line, name the application: --app"
        raise ConfigError("MemoryRules.embedder", "there is none, so nothing to index by", fix)
    embedding.afresh()
    made, why = 0, ""
    while True:
        before = len(embedding.aside)
        step = await _step(back, embedding, (), now)
        made += len(step.vectors)
        why = step.why or why
        if not step.vectors and len(embedding.aside) == before:
            break
    left = await back.bare_count(embedding.model, now)
    return Indexed(made=made, left=left, why=(why or "they were kept meanwhile") if left else "")
