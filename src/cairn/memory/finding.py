"""How facts are found, written once for every memory, on what a back end gives it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr
from cairn.memory.embedding import Embedding
from cairn.memory.facts import MAX_HITS, Hit, Scope, is_number
from cairn.memory.ranking import Posting, by_meaning, by_words, fused, nudge
from cairn.memory.shelf import VECTORS_AT_MOST, Reading
from cairn.memory.wording import KIN, asked_for, beginnings, forms, root

TERMS_AT_MOST = 200
"""Words with the same beginning that are looked at for related ones, scope by scope."""


class Question(Record, gc=True):
    """A question, ready to be looked up.

    Args:
        asked: Its words and what each counts.
        scopes: Where to look.
        limit: Facts at most.
        now: When it is.
        vector: Its meaning, empty when that is not known.
        model: What the vector was made by.
    """

    asked: dict[str, float]
    scopes: tuple[Scope, ...]
    limit: int
    now: int
    vector: tuple[float, ...] = ()
    model: str = ""


async def question_of(
    embedding: Embedding | None, query: str, scopes: Sequence[Scope], limit: int, now: int
) -> tuple[Question, str]:
    """What is looked for, and why it is looked for by words alone; empty when it is not.

    Raises:
        ConfigError: so many hits cannot be asked for.
    """
    check_limit(limit)
    vector: tuple[float, ...] = ()
    degraded = ""
    if embedding is not None:
        vector, degraded = await embedding.of_question(query)
    question = Question(
        asked=asked_for(query),
        scopes=tuple(scopes),
        limit=limit,
        now=now,
        vector=vector,
        model=embedding.model if embedding is not None else "",
    )
    return question, degraded


def check_limit(limit: int) -> None:
    """Refuse a number of hits that cannot be.

    Raises:
        ConfigError: it is none.
    """
    if not is_number(limit) or not 1 <= limit <= MAX_HITS:
        problem = f"{safe_repr(limit)} is no number of facts"
        raise ConfigError("limit", problem, f"Give 1 to {MAX_HITS}")


class Found(Record, gc=True):
    """What a search came to.

    Args:
        hits: The facts, the best first.
        degraded: Why they may not be the best there are.
        bare: How many facts of the scopes have no vector, where one is asked for.
    """

    hits: tuple[Hit, ...]
    degraded: str = ""
    bare: int = 0


def search(shelf: Reading, question: Question) -> Found:
    """The facts that fit a question."""
    postings: list[Posting] = []
    vectors: list[tuple[int, bytes]] = []
    count = total = 0
    degraded, bare = "", 0
    scopes = tuple(dict.fromkeys(question.scopes))
    kin = _kin(shelf, question.asked, scopes)
    looked_up = tuple(dict.fromkeys([*question.asked, *chain.from_iterable(kin.values())]))
    for scope in scopes:
        facts, long = shelf.count(scope, "live", question.now)
        count, total = count + facts, total + long
        postings += shelf.postings(scope, looked_up, question.now)
        if question.vector:
            there = shelf.vectors(scope, question.model, question.now)
            vectors += there
            bare += max(facts - len(there), 0) if len(there) <= VECTORS_AT_MOST else 0
    if len(vectors) > VECTORS_AT_MOST:
        degraded = f"only the newest {VECTORS_AT_MOST:,} facts were compared by meaning"
        vectors = sorted(vectors, reverse=True)[:VECTORS_AT_MOST]
    rankings = [by_words(question.asked, postings, count, total, kin, KIN)]
    if question.vector:
        rankings.append(by_meaning(question.vector, vectors))
    scores = fused(rankings)
    # a nudge moves a fact past its equals only, so those just behind the limit are looked at too
    best = sorted(scores, key=lambda n: (-scores[n], -n))[: question.limit + MAX_HITS]
    hits = []
    for n in best:
        fact = shelf.fact(n)
        if fact is not None and fact.scope in question.scopes:
            age = question.now - fact.content.created_at
            score = scores[n] + nudge(age, trusted=fact.trust != "untrusted")
            hits.append(Hit(fact=fact, score=round(score, 9)))
    hits.sort(key=lambda hit: (-hit.score, -hit.fact.n))
    if bare and not degraded:
        degraded = f"{bare:,} facts have no vector yet and were found by their words alone"
        if bare == 1:
            degraded = "one fact has no vector yet and was found by its words alone"
    return Found(hits=tuple(hits[: question.limit]), degraded=degraded, bare=bare)


def _kin(
    shelf: Reading, words_asked: dict[str, float], scopes: tuple[Scope, ...]
) -> dict[str, tuple[str, ...]]:
    """For a word that is asked for the other forms of it, and words made of it, in these scopes."""
    found: dict[str, tuple[str, ...]] = {}
    begin = beginnings(words_asked)
    for word in words_asked:
        related = forms(word)
        if word in begin:
            begin_so = chain.from_iterable(
                shelf.terms(scope, begin[word], TERMS_AT_MOST) for scope in scopes
            )
            related |= {each for each in begin_so if root(each) == begin[word]}
        if others := related - words_asked.keys():
            found[word] = tuple(sorted(others))
    return found
