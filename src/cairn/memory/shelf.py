"""What every memory does, written once: deciding, and finding, on what a back end gives it.

A back end is a `Shelf`: rows of facts, tombstones, words and vectors inside one transaction. The
decisions here check first and change then, so that a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from cairn.core import events as ev
from cairn.core.messages import Principal, Record, clean
from cairn.core.words import asked, words
from cairn.errors import ConfigError, Refused, UnknownRun
from cairn.memory.embedding import Embedding
from cairn.memory.facts import (
    MAX_FACTS,
    MAX_HITS,
    MAX_WAITING,
    TRUSTS,
    Content,
    Fact,
    FactFilter,
    Gone,
    Hit,
    Kept,
    NewFact,
    Scope,
    State,
    Trust,
    Why,
    encoded,
    is_number,
    sealed,
)
from cairn.memory.ranking import Posting, by_meaning, by_words, fused, nudge

replace = msgspec.structs.replace
VECTORS_AT_MOST = 10_000
"""Facts of the asked scopes that are compared by meaning, the newest; more would take seconds."""
GRACE_US = 7 * 86_400_000_000
"""How long an expired fact still stands in the file: a wrong clock loses nothing at once."""
SWEPT_AT_ONCE = 50
LOOKED_BACK = 50
"""Newest facts of a scope that are looked at for one of the same words."""


class Reading(Protocol):
    """The rows, inside one transaction or one snapshot."""

    def fact(self, n: int) -> Fact | None:
        """The fact of this number, if it is there."""
        ...

    def gone(self, n: int) -> Gone | None:
        """What stays of it, if it was removed."""
        ...

    def keyed(self, key: str) -> int:
        """The number of the fact, or of the tombstone, that a key brought; 0 for none."""
        ...

    def facts(self, where: FactFilter, *, newest: bool = False) -> list[Fact]:
        """Facts by what they are, the oldest first, or the newest."""
        ...

    def replaced_by(self, fact: Fact) -> list[Fact]:
        """The facts that this one has replaced."""
        ...

    def overdue(self, scope: Scope, before: int, limit: int) -> list[Fact]:
        """Facts of a scope that expired before this time."""
        ...

    def count(self, scope: Scope, state: State, now: int) -> tuple[int, int]:
        """How many facts of a scope are in this state and not expired, and their words."""
        ...

    def waiting_of(self, principal: Principal) -> int:
        """How many facts of a principal wait for a review."""
        ...

    def postings(self, scope: Scope, asked: Sequence[str], now: int) -> Iterable[Posting]:
        """Where words stand, in facts of a scope that may be recalled."""
        ...

    def vectors(self, scope: Scope, model: str, now: int) -> list[tuple[int, bytes]]:
        """Vectors of facts of a scope that may be recalled, the newest first.

        Of more than `VECTORS_AT_MOST` that many and one.
        """
        ...


class Shelf(Reading, Protocol):
    """The rows inside one transaction, to be changed."""

    def next_number(self) -> int:
        """The number of the next fact; never given twice."""
        ...

    def salt(self) -> bytes:
        """16 random bytes."""
        ...

    def add(self, fact: Fact) -> None:
        """A new row."""
        ...

    def put(self, fact: Fact) -> None:
        """The same row with another state, trust or successor."""
        ...

    def index(self, fact: Fact, found: Mapping[str, int]) -> None:
        """From here on it is found by these words."""
        ...

    def unindex(self, fact: Fact) -> None:
        """It is found by nothing any more, neither by words nor by its vector."""
        ...

    def drop(self, fact: Fact, gone: Gone) -> None:
        """Remove the row and all that belongs to it; the tombstone takes its place."""
        ...

    def note(self, event: ev.Event, now: int, actor: str) -> int:
        """Append to the journal `store`; the time the entry got."""
        ...


# ---------------------------------------------------------------- keeping


def keep(shelf: Shelf, new: NewFact, key: str, now: int, actor: str) -> Kept:
    """See `Memory.keep`; `new` is checked."""
    if key and (n := shelf.keyed(key)):
        return _kept_before(shelf, n, new)
    if new.supersedes:
        _check_replaced(shelf, new)
    elif (same := _same_words(shelf, new, now)) is not None:
        return Kept(n=same.n, state=same.state, known=True)
    why = _why_it_waits(shelf, new)
    _check_room(shelf, new, bool(why), now)
    for old in shelf.overdue(new.scope, now - GRACE_US, SWEPT_AT_ONCE):
        _remove(shelf, old, "expired", now, "", "")
    fields = msgspec.structs.asdict(new) | {"waits": bool(why)}
    content = Content(n=shelf.next_number(), key=key, created_at=now, **fields)
    salt = shelf.salt()
    fact = Fact(
        content=content,
        state="waiting" if why else "live",
        trust=new.trust,
        salt=salt,
        hash=sealed(salt, encoded(content)),
    )
    shelf.add(fact)
    event = ev.MemoryKept(
        fact=fact.n,
        hash=fact.hash.hex(),
        trust=fact.trust,
        waits=content.waits,
        key=key,
        supersedes=0 if why else new.supersedes,
    )
    shelf.note(event, now, actor)
    if not why:
        _goes_live(shelf, fact, new.supersedes)
    return Kept(n=fact.n, state="waiting" if why else "live", why=why)


def _kept_before(shelf: Shelf, n: int, new: NewFact) -> Kept:
    fact = shelf.fact(n)
    if fact is None:
        return Kept(n=n, state="gone", known=True)
    if (fact.text, fact.scope) != (new.text, new.scope):
        raise Refused(f"the key was used before, for another fact: m{n}")
    return Kept(n=n, state=fact.state, known=True, why=_WAITS if fact.state == "waiting" else "")


_WAITS = "it waits for a review"


def _same_words(shelf: Shelf, new: NewFact, now: int) -> Fact | None:
    """A fact that says the same in the same words, for the same principal and as well trusted."""
    for fact in shelf.facts(FactFilter(scope=new.scope, limit=LOOKED_BACK), newest=True):
        content = fact.content
        same = (content.text, content.principal, content.expires_at, content.tags)
        if same != (new.text, new.principal, new.expires_at, new.tags) or fact.expired(now):
            continue
        if fact.state != "superseded" and (fact.trust, content.taint) == (new.trust, new.taint):
            return fact
    return None


def _check_replaced(shelf: Shelf, new: NewFact) -> None:
    old = shelf.fact(new.supersedes)
    if old is None or old.scope != new.scope:
        raise UnknownRun(f"there is no fact m{new.supersedes} in the scope {new.scope}")
    if old.state == "superseded":
        raise Refused(f"m{old.n} was replaced before: replace m{old.successor}")
    if old.state == "waiting":
        raise Refused(f"m{old.n} waits for a review: it cannot be replaced yet")


def _why_it_waits(shelf: Shelf, new: NewFact) -> str:
    """Why a person has to look at it first: untrusted content replaces nothing that is trusted."""
    old = shelf.fact(new.supersedes) if new.supersedes else None
    if old is not None and new.trust == "untrusted" and old.trust != "untrusted":
        return f"it would replace m{old.n}, which is trusted more"
    if old is not None and new.trust != "owner" and old.content.principal != new.principal:
        return f"it would replace m{old.n}, which is another principal's"
    return _WAITS if new.waits else ""


def _check_room(shelf: Shelf, new: NewFact, waits: bool, now: int) -> None:
    there = shelf.count(new.scope, "live", now)[0] + shelf.count(new.scope, "waiting", now)[0]
    if there >= MAX_FACTS:
        raise Refused(f"the scope {new.scope} is full: it has {there:,} facts. Forget some")
    if waits and shelf.waiting_of(_owner(new)) >= MAX_WAITING:
        raise Refused(f"{MAX_WAITING:,} facts of {new.principal} wait for a review already")


def _owner(new: NewFact) -> Principal:
    return Principal(id=new.principal, tenant=new.scope.tenant)


def _goes_live(shelf: Shelf, fact: Fact, supersedes: int) -> None:
    shelf.index(fact, found_by(fact))
    old = shelf.fact(supersedes) if supersedes else None
    if old is not None and old.state == "live":
        shelf.unindex(old)
        shelf.put(replace(old, state="superseded", successor=fact.n))


def found_by(fact: Fact) -> Counter[str]:
    """The words a fact is found by."""
    return words("\n".join([fact.text, *fact.content.tags]))


# ---------------------------------------------------------------- people


def review(
    shelf: Shelf,
    n: int,
    verdict: Literal["accepted", "rejected"],
    trust: Trust,
    now: int,
    actor: str,
    reason: str,
) -> None:
    """See `Memory.review`."""
    if verdict not in {"accepted", "rejected"}:
        raise ConfigError("verdict", f"{verdict!r} is none", "Use accepted or rejected")
    if trust not in TRUSTS:
        raise ConfigError("trust", f"{trust!r} is none", f"Use {', '.join(TRUSTS)}")
    fact = there(shelf, n)
    if fact.state == "superseded":
        raise Refused(f"m{n} was replaced by m{fact.successor}: nothing is left to review")
    if verdict == "rejected":
        _remove(shelf, fact, "rejected", now, actor, reason)
        return
    old = shelf.fact(fact.content.supersedes) if fact.content.supersedes else None
    replaces = old is not None and old.state == "live" and fact.state == "waiting"
    supersedes = fact.content.supersedes if replaces else 0
    event = ev.MemoryReviewed(
        fact=n,
        hash=fact.hash.hex(),
        verdict="accepted",
        trust=trust,
        supersedes=supersedes,
        reason=clean(reason),
    )
    shelf.note(event, now, actor)
    accepted = replace(fact, state="live", trust=trust)
    shelf.put(accepted)
    if fact.state == "waiting":
        _goes_live(shelf, accepted, supersedes)


def forget(shelf: Shelf, n: int, now: int, actor: str, reason: str) -> list[int]:
    """See `Memory.forget`."""
    going, seen = [there(shelf, n)], {n}
    for fact in going:  # grows as it is walked: what each of them had replaced
        for old in shelf.replaced_by(fact):
            if old.n not in seen:
                seen.add(old.n)
                going.append(old)
    for fact in going:
        _remove(shelf, fact, "forgotten", now, actor, reason)
    return sorted(seen)


def _remove(shelf: Shelf, fact: Fact, why: Why, now: int, actor: str, reason: str) -> None:
    event: ev.Event
    if why == "rejected":
        event = ev.MemoryReviewed(
            fact=fact.n, hash=fact.hash.hex(), verdict="rejected", reason=clean(reason)
        )
    else:
        expired = why == "expired"
        event = ev.MemoryForgotten(
            fact=fact.n, hash=fact.hash.hex(), expired=expired, reason=clean(reason)
        )
    at = shelf.note(event, now, actor)
    _drop(shelf, fact, why, at, actor)


def _drop(shelf: Shelf, fact: Fact, why: Why, at: int, actor: str) -> None:
    shelf.unindex(fact)
    gone = Gone(n=fact.n, hash=fact.hash, at=at, by=actor, why=why, key=fact.content.key)
    shelf.drop(fact, gone)


def erase(shelf: Shelf, principal: Principal, now: int, actor: str, reason: str) -> int:
    """See `Memory.erase`; how many facts went."""
    facts = everything_of(shelf, principal)
    if not facts:
        return 0
    event = ev.MemoryErased(facts=tuple(fact.n for fact in facts), reason=clean(reason))
    at = shelf.note(event, now, actor)
    for fact in facts:
        _drop(shelf, fact, "erased", at, actor)
    return len(facts)


def everything_of(shelf: Reading, principal: Principal) -> list[Fact]:
    """All facts kept for a principal, and all of the scope that is theirs alone.

    Raises:
        ConfigError: no principal is named, which would be everybody.
    """
    if not principal.id:
        raise ConfigError("principal", "it is empty", "Say whose facts are meant")
    own = Scope(kind="user", name=principal.id, tenant=principal.tenant)
    found: dict[int, Fact] = {}
    for where in (
        FactFilter(principal=principal.id, tenant=principal.tenant, limit=0),
        FactFilter(scope=own, limit=0),
    ):
        found |= {fact.n: fact for fact in shelf.facts(where)}
    return [found[n] for n in sorted(found)]


def there(shelf: Reading, n: int) -> Fact:
    """The fact of this number.

    Raises:
        UnknownRun: there is none, or not any more.
    """
    fact = shelf.fact(n)
    if fact is None:
        gone = shelf.gone(n)
        said = f"m{n} was {gone.why}" if gone is not None else f"there is no fact m{n}"
        raise UnknownRun(said)
    return fact


# ---------------------------------------------------------------- finding


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
        asked=asked(query),
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
        problem = f"{limit!r} is no number of facts"
        raise ConfigError("recall.limit", problem, f"Give 1 to {MAX_HITS}")


def search(shelf: Reading, question: Question) -> tuple[list[Hit], str]:
    """The facts that fit a question, the best first; and why they may not be the best there are."""
    postings: list[Posting] = []
    vectors: list[tuple[int, bytes]] = []
    count = total = 0
    degraded = ""
    for scope in dict.fromkeys(question.scopes):
        facts, long = shelf.count(scope, "live", question.now)
        count, total = count + facts, total + long
        postings += shelf.postings(scope, tuple(question.asked), question.now)
        if question.vector:
            vectors += shelf.vectors(scope, question.model, question.now)
    if len(vectors) > VECTORS_AT_MOST:
        degraded = f"only the newest {VECTORS_AT_MOST:,} facts were compared by meaning"
        vectors = sorted(vectors, reverse=True)[:VECTORS_AT_MOST]
    rankings = [by_words(question.asked, postings, count, total)]
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
    return hits[: question.limit], degraded
