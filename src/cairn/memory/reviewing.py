"""What becomes of a fact that a person has looked at: decided once, for every back end."""

from __future__ import annotations

from typing import Literal

import msgspec

from cairn.core import events as ev
from cairn.core.messages import clean
from cairn.core.words import words
from cairn.errors import ConfigError, Refused, safe_repr
from cairn.memory.facts import (
    TRUSTS,
    Fact,
    FactFilter,
    Trust,
    most_trusted,
    outlasts,
    says_the_same,
)
from cairn.memory.shelf import (
    LOOKED_BACK,
    Reading,
    Shelf,
    bury,
    goes_live,
    lives_again,
    takes_place,
    there,
    trim,
    whose_was,
)

replace = msgspec.structs.replace


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
        raise ConfigError("verdict", f"{safe_repr(verdict)} is none", "Use accepted or rejected")
    if trust not in TRUSTS:
        raise ConfigError("trust", f"{safe_repr(trust)} is none", f"Use {', '.join(TRUSTS)}")
    fact = there(shelf, n)
    if fact.state == "superseded" and shelf.fact(fact.successor) is not None:
        raise Refused(f"m{n} was replaced by m{fact.successor}: nothing is left to review")
    if verdict == "rejected":
        _reject(shelf, fact, now, actor, reason)
        return
    if fact.expired(now):
        raise Refused(f"m{n} has expired: nothing is left to accept. Have it remembered anew")
    _accept(shelf, fact, trust, now, actor, reason)


def _accept(shelf: Shelf, fact: Fact, trust: Trust, now: int, actor: str, reason: str) -> None:
    """Let a fact count; of those that say the same in the same words one is left.

    That is the one which counts the longest, and of several the one that was live already: it gets
    the most trust of all, and the others stand behind it as what it has replaced.
    """
    old = shelf.fact(fact.content.supersedes) if fact.content.supersedes else None
    replaces = old is not None and old.state == "live" and fact.state == "waiting"
    supersedes = fact.content.supersedes if replaces else 0
    same = _same_words(shelf, fact, supersedes, now)
    stands, *others = *same, fact
    for each in others:
        if outlasts(each.content.expires_at, stands.content.expires_at):
            stands = each
    also = [each for each in same if each is not stands]
    event = ev.MemoryReviewed(
        fact=fact.n,
        hash=fact.hash.hex(),
        verdict="accepted",
        trust=trust,
        supersedes=supersedes,
        reason=clean(reason),
        confirms=stands.n if stands is not fact else 0,
        also=tuple(each.n for each in also),
    )
    shelf.note(event, now, actor)
    best = most_trusted(trust, *(each.trust for each in same))
    if stands is fact:
        accepted = replace(fact, state="live", trust=best)
        shelf.put(accepted)
        if fact.state == "superseded":  # by one that is gone, as older versions left it
            lives_again(shelf, accepted)
        elif fact.state == "waiting":
            goes_live(shelf, accepted, supersedes)
    else:
        shelf.put(replace(fact, state="superseded", trust=trust, successor=stands.n))
        takes_place(shelf, fact, supersedes)
        shelf.put(replace(stands, trust=best))
    for each in also:
        takes_place(shelf, stands, each.n)
    trim(shelf, stands.n, now)


def _same_words(shelf: Reading, fact: Fact, supersedes: int, now: int) -> list[Fact]:
    """The live facts that say what one says which counts only from here on, the oldest first."""
    if fact.state == "live":
        return []
    longest = max(words(fact.text), key=len, default="")  # the most likely to stand in few facts
    if longest:
        with_it = {n for n, *_ in shelf.postings(fact.scope, [longest], now)}
        found = [each for n in sorted(with_it) if (each := shelf.fact(n)) is not None]
    else:  # of signs alone, by which nothing is found
        where = FactFilter(scope=fact.scope, state="live", limit=LOOKED_BACK)
        found = shelf.facts(where, newest=True)[::-1]
    return [
        each
        for each in found
        if each.state == "live"
        and not each.expired(now)
        and each.n not in {fact.n, supersedes}
        and says_the_same(each.content, fact.content)
    ]


def _reject(shelf: Shelf, fact: Fact, now: int, actor: str, reason: str) -> None:
    """Remove a fact, and what stood behind it in the same words; what it had replaced lives again.

    A person said no to these words: a fact that says the same, which was confirmed or replaced by
    this one, does not count on in its place. What such a fact had replaced in turn lives again.
    """
    going = [fact]
    for each in going:  # grows as it is walked
        behind = shelf.replaced_by(each.scope, each.n)
        equal = [old for old in behind if says_the_same(old.content, fact.content)]
        going += equal
        lives = [old for old in behind if old not in equal]
        said = reason if each is fact else f"it says what {fact.id} said, which was rejected"
        _remove(shelf, each, lives, now, actor, said)


def _remove(
    shelf: Shelf, fact: Fact, replaced: list[Fact], now: int, actor: str, reason: str
) -> None:
    event = ev.MemoryReviewed(
        fact=fact.n,
        hash=fact.hash.hex(),
        verdict="rejected",
        reason=clean(reason),
        restores=tuple(old.n for old in replaced),
        whose=whose_was(fact),
    )
    at = shelf.note(event, now, actor)
    bury(shelf, fact, "rejected", at, actor)
    for old in replaced:
        lives_again(shelf, old)
