"""What every memory decides, written once, on what a back end gives it.

A back end is a `Shelf`: rows of facts, tombstones, words and vectors inside one transaction. The
decisions here check first and change then, so that a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from cairn.core import events as ev
from cairn.core.erasing import whose
from cairn.core.messages import Principal, clean
from cairn.core.words import words
from cairn.errors import ConfigError, Refused, UnknownRun
from cairn.memory.facts import (
    MAX_FACTS,
    MAX_WAITING,
    TRUSTS,
    Content,
    Fact,
    FactFilter,
    Gone,
    Kept,
    NewFact,
    Scope,
    State,
    Why,
    encoded,
    sealed,
)
from cairn.memory.ranking import Posting

replace = msgspec.structs.replace
VECTORS_AT_MOST = 10_000
"""Facts of the asked scopes that are compared by meaning, the newest; more would take seconds."""
GRACE_US = 7 * 86_400_000_000
"""How long an expired fact still stands in the file: a wrong clock loses nothing at once."""
SWEPT_AT_ONCE = 50
MOST_REPLACED = 1_000
"""So many facts whose place a fact has taken, one after the other, are kept behind it."""
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

    def replaced_by(self, scope: Scope, n: int) -> list[Fact]:
        """The facts of a scope that the one of this number has replaced, the oldest first."""
        ...

    def before(self, n: int) -> list[int]:
        """The numbers of all facts whose place one has taken, one after the other.

        Those come first that were replaced the longest ago: nothing is there that they replaced.
        """
        ...

    def overdue(self, scope: Scope, before: int, limit: int) -> list[Fact]:
        """Facts of a scope that expired before this time."""
        ...

    def count(self, scope: Scope, state: State, now: int) -> tuple[int, int]:
        """How many facts of a scope are in this state and not expired, and their words."""
        ...

    def waiting_of(self, principal: Principal, now: int) -> int:
        """How many facts of a principal wait for a review and are not expired."""
        ...

    def postings(self, scope: Scope, asked: Sequence[str], now: int) -> Iterable[Posting]:
        """Where words stand, in facts of a scope that may be recalled."""
        ...

    def terms(self, scope: Scope, beginning: str, limit: int) -> list[str]:
        """The different words of facts of a scope that begin so, in order."""
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
        _check_replaced(shelf, new, now)
    same = _same_words(shelf, new, now)
    if same is not None and _is_no_news(same, new):
        return Kept(n=same.n, state=same.state, known=True)
    why = _why_it_waits(shelf, new)
    _check_room(shelf, new, bool(why), now)
    _sweep(shelf, new, now)
    also = (same.n,) if same is not None and same.state == "live" and not why else ()
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
        also=also,
    )
    shelf.note(event, now, actor)
    if why:
        return Kept(n=fact.n, state="waiting", why=why)
    goes_live(shelf, fact, new.supersedes)
    for n in also:
        takes_place(shelf, fact, n)
    trim(shelf, fact.n, now)
    replaced = tuple(filter(None, (new.supersedes, *also)))
    return Kept(n=fact.n, state="live", replaced=replaced)


def _is_no_news(same: Fact, new: NewFact) -> bool:
    """Whether a fact of the same words makes this one needless.

    One that is to replace another is not, but it then takes the place of its equal as well.
    """
    if not new.supersedes or same.n == new.supersedes:
        return True
    return same.state == "waiting" and same.content.supersedes == new.supersedes


def _sweep(shelf: Shelf, new: NewFact, now: int) -> None:
    """Remove what has long expired in the scope of a new fact, with all that it had replaced."""
    for old in shelf.overdue(new.scope, now - GRACE_US, SWEPT_AT_ONCE):
        if old.n == new.supersedes or shelf.fact(old.n) is None:  # its place is taken, or it went
            continue
        for fact in _with_all_before(shelf, old):
            reason = "" if fact.n == old.n else f"replaced by {old.id}, which has expired"
            _remove(shelf, fact, "expired", now, "", reason)


def trim(shelf: Shelf, n: int, now: int) -> None:
    """Of the facts whose place one has taken keep the last, and remove some of the others."""
    for each in shelf.before(n)[:-MOST_REPLACED][:SWEPT_AT_ONCE]:
        reason = f"{MOST_REPLACED:,} facts that were replaced later stand behind m{n}"
        _remove(shelf, there(shelf, each), "expired", now, "", reason)


def _with_all_before(shelf: Reading, fact: Fact) -> list[Fact]:
    """A fact, then all that it has replaced, and what those had."""
    found, seen = [fact], {fact.n}
    for each in found:  # grows as it is walked
        older = shelf.replaced_by(each.scope, each.n)
        before = each.content.supersedes
        if before and shelf.fact(before) is None:  # older versions left gaps
            older += shelf.replaced_by(each.scope, before)
        for old in older:
            if old.n not in seen:
                seen.add(old.n)
                found.append(old)
    return found


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


def _check_replaced(shelf: Shelf, new: NewFact, now: int) -> None:
    old = shelf.fact(new.supersedes)
    if old is None or old.scope != new.scope:
        raise UnknownRun(f"there is no fact m{new.supersedes} in the scope {new.scope}")
    if old.state == "superseded":
        raise Refused(_instead(shelf, old, now))
    if old.state == "waiting":
        raise Refused(f"m{old.n} waits for a review: it cannot be replaced yet")


def _instead(shelf: Shelf, old: Fact, now: int) -> str:
    """That a fact was replaced before, and what can be done."""
    newest: Fact | None = old
    while newest is not None and newest.state == "superseded":
        newest = shelf.fact(newest.successor)
    anew = "keep yours as a new fact, which replaces none"
    if newest is None:
        return f"{old.id} was replaced by a fact that is gone: {anew}"
    if newest.expired(now):
        return f"{old.id} was replaced by {newest.id}, which has expired: {anew}"
    by = "" if old.successor == newest.n else f" by m{old.successor}"
    return f"{old.id} was replaced{by} before: replace {newest.id}"


def _why_it_waits(shelf: Shelf, new: NewFact) -> str:
    """Why a person has to look at it first: nothing replaces what is trusted more than it is."""
    old = shelf.fact(new.supersedes) if new.supersedes else None
    if old is not None and TRUSTS.index(new.trust) < TRUSTS.index(old.trust):
        return f"it would replace m{old.n}, which is trusted more"
    if old is not None and new.trust != "owner" and old.content.principal != new.principal:
        return f"it would replace m{old.n}, which is another principal's"
    return _WAITS if new.waits else ""


def _check_room(shelf: Shelf, new: NewFact, waits: bool, now: int) -> None:
    there = shelf.count(new.scope, "live", now)[0] + shelf.count(new.scope, "waiting", now)[0]
    if there >= MAX_FACTS:
        raise Refused(f"the scope {new.scope} is full: it has {there:,} facts. Forget some")
    if waits and shelf.waiting_of(_owner(new), now) >= MAX_WAITING:
        raise Refused(f"{MAX_WAITING:,} facts of {new.principal} wait for a review already")


def _owner(new: NewFact) -> Principal:
    return Principal(id=new.principal, tenant=new.scope.tenant)


def goes_live(shelf: Shelf, fact: Fact, supersedes: int) -> None:
    """From here on it is found, and stands in the place of the one that it replaces."""
    shelf.index(fact, found_by(fact))
    if supersedes:
        takes_place(shelf, fact, supersedes)


def takes_place(shelf: Shelf, fact: Fact, n: int) -> None:
    """Put a fact in the place of the live one of this number."""
    old = shelf.fact(n)
    if old is not None and old.state == "live":
        shelf.unindex(old)
        shelf.put(replace(old, state="superseded", successor=fact.n))


def lives_again(shelf: Shelf, old: Fact) -> None:
    """Let a fact count again that was replaced."""
    shelf.put(replace(old, state="live", successor=0))
    shelf.index(old, found_by(old))


def found_by(fact: Fact) -> Counter[str]:
    """The words a fact is found by."""
    return words("\n".join([fact.text, *fact.content.tags]))


# ---------------------------------------------------------------- removing


def forget(
    shelf: Shelf,
    n: int,
    now: int,
    actor: str,
    reason: str,
    of: Principal | None = None,
    *,
    trusted: bool = True,
) -> list[int]:
    """See `Memory.forget`."""
    going = _with_all_before(shelf, there(shelf, n))
    for fact in going:
        with_it = "" if fact.n == n else f", which goes with m{n},"
        if of is not None and not fact.of(of):
            said = f"{fact.id}{with_it} was kept for another principal"
            raise Refused(f"{said}: a person can remove it")
        if not trusted and fact.trust != "untrusted":
            said = f"{fact.id}{with_it} is trusted, and this run has read untrusted content"
            raise Refused(f"{said}: a person can remove it")
    for fact in going:
        _remove(shelf, fact, "forgotten", now, actor, reason)
    return sorted(fact.n for fact in going)


def _remove(
    shelf: Shelf,
    fact: Fact,
    why: Literal["forgotten", "expired"],
    now: int,
    actor: str,
    reason: str,
) -> None:
    event = ev.MemoryForgotten(
        fact=fact.n,
        hash=fact.hash.hex(),
        expired=why == "expired",
        reason=clean(reason),
        whose=whose_was(fact),
    )
    at = shelf.note(event, now, actor)
    bury(shelf, fact, why, at, actor)


def whose_was(fact: Fact) -> tuple[str, ...]:
    """Of whom a fact is that is removed, readable only to who knows the id."""
    scope = fact.scope
    names = dict.fromkeys((fact.content.principal, scope.name if scope.kind == "user" else ""))
    people = [Principal(id=name, tenant=scope.tenant) for name in names if name]
    return tuple(whose(principal, fact.hash) for principal in people)


def bury(shelf: Shelf, fact: Fact, why: Why, at: int, actor: str) -> None:
    """Remove a fact; its tombstone says when, by whom and why."""
    shelf.unindex(fact)
    gone = Gone(n=fact.n, hash=fact.hash, at=at, by=actor, why=why, key=fact.content.key)
    shelf.drop(fact, gone)


def erase(shelf: Shelf, principal: Principal, now: int, actor: str, reason: str) -> int:
    """See `Memory.erase`; how many facts went."""
    facts = everything_of(shelf, principal)
    if not facts:
        return 0
    left, salt = _left_behind(shelf, facts), shelf.salt()
    event = ev.MemoryErased(
        facts=tuple(fact.n for fact in facts),
        reason=clean(reason),
        restores=tuple(old.n for old, by in left if not by),
        moves=tuple((old.n, by) for old, by in left if by),
        whose=whose(principal, salt),
        salt=salt.hex(),
    )
    at = shelf.note(event, now, actor)
    for fact in facts:
        bury(shelf, fact, "erased", at, actor)
    for old, by in left:
        if by:
            shelf.put(replace(old, successor=by))
        else:
            lives_again(shelf, old)
    return len(facts)


def _left_behind(shelf: Reading, going: list[Fact]) -> list[tuple[Fact, int]]:
    """The facts that these have replaced and that stay; and which one has replaced each then."""
    next_of = {fact.n: fact.successor for fact in going}
    ends: dict[int, int] = {}
    left: list[tuple[Fact, int]] = []
    for fact in going:
        walked, by = [], fact.n
        while by in next_of and by not in ends:  # each link is walked once
            walked.append(by)
            by = next_of[by]
        by = ends.get(by, by)
        ends |= dict.fromkeys(walked, by)
        if by and shelf.fact(by) is None:
            by = 0
        left += [(old, by) for old in shelf.replaced_by(fact.scope, fact.n) if old.n not in next_of]
    return left


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
