"""What a memory promises of accepting what it knows already, in the same words."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

from cairn.core.messages import Principal
from cairn.memory.embedding import Embedding
from cairn.memory.facts import FactFilter, Recall, user_scope
from cairn.memory.port import Memory
from cairn.testing.memory_promises import (
    ANN,
    ANN_ELSEWHERE,
    BOB,
    DAY,
    NOW,
    SHOP,
    Meaning,
    MemoryPromises,
    chain,
    fact,
    known,
    untrusted,
)

TEA = "Likes green tea."


async def told(memory: Memory, principal: Principal = ANN, now: int = NOW) -> Recall:
    """What a principal's own scope answers about tea."""
    return await memory.recall("tea", [user_scope(principal)], 10, now)


class ReviewPromises(MemoryPromises):
    """A fact that waited and a live one of the same words: one of them is left."""

    def test_accepting_what_is_known_in_the_same_words_confirms_it_and_leaves_one(self) -> None:
        """The live one keeps its number and gets the trust; the other stands behind it."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact(TEA, run="r1", call="c1"), "k1", NOW)
            await memory.keep(untrusted(TEA, run="r2", call="c2", uri="w", waits=True), "k2", NOW)
            await memory.review(2, "accepted", NOW, actor="ada", reason="asked")
            (hit,) = (await told(memory)).hits
            assert (hit.fact.n, hit.fact.trust) == (1, "owner")
            assert await chain(memory) == [(1, "live", 0), (2, "superseded", 1)]
            behind = (await memory.get(2)).content
            assert (behind.run, behind.call, behind.uri, behind.taint) == (
                "r2",
                "c2",
                "w",
                ("web",),
            )
            again = await memory.keep(untrusted(TEA, waits=True), "k2", NOW)
            assert (again.n, again.known) == (2, True)
            assert await memory.forget(1, NOW) == [1, 2]

        self.held(promise, Embedding(Meaning()))

    def test_of_two_of_the_same_words_the_better_trust_is_kept(self) -> None:
        """Accepting as less lowers nothing, and raises nothing beyond what a person said."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact(TEA, trust="owner"), "", NOW, "ann")
            await memory.keep(untrusted(TEA, waits=True), "", NOW)
            await memory.review(2, "accepted", NOW, actor="ada", trust="untrusted")
            assert (await memory.get(1)).trust == "owner"
            assert (await memory.get(2)).trust == "untrusted"
            await memory.review(1, "rejected", NOW, actor="ada")
            assert await chain(memory) == []

        self.held(promise)

    def test_of_two_of_the_same_words_the_one_that_counts_longer_is_left(self) -> None:
        """With the better trust of both, whichever of them that is."""

        async def promise(memory: Memory) -> None:
            for place, (first, second, left) in enumerate(
                [(0, NOW + DAY, 1), (NOW + DAY, 0, 2), (NOW + DAY, NOW + 2 * DAY, 2)]
            ):
                who = Principal(id=f"p{place}")
                one = fact(TEA, who, trust="owner", expires_at=first)
                await memory.keep(one, "", NOW, who.id)
                waiting = untrusted(TEA, who, expires_at=second, waits=True)
                n = (await memory.keep(waiting, "", NOW)).n
                await memory.review(n, "accepted", NOW, actor="ada", trust="untrusted")
                (hit,) = (await told(memory, who)).hits
                assert (hit.fact.n, hit.fact.trust) == (n - 2 + left, "owner")
                ends = hit.fact.content.expires_at
                assert ends == (0 if 0 in {first, second} else max(first, second))
                facts = await memory.facts(FactFilter(principal=who.id))
                assert [f.state for f in facts].count("live") == 1
                assert len(facts) == 2

        self.held(promise, Embedding(Meaning()))

    def test_a_confirmed_fact_stands_in_the_place_of_what_was_to_be_replaced(self) -> None:
        """That lives again when a person rejects the words which stand there."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Likes coffee.", trust="owner"), "", NOW)
            await memory.keep(fact(TEA), "", NOW)
            await memory.keep(untrusted(TEA, supersedes=1), "", NOW)
            await memory.review(3, "accepted", NOW, actor="ada")
            assert await known(memory, "likes") == [TEA]
            assert await chain(memory) == [
                (1, "superseded", 3),
                (2, "live", 0),
                (3, "superseded", 2),
            ]
            await memory.review(2, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "live", 0)]
            assert (await memory.get(1)).trust == "owner"

        self.held(promise)

    def test_what_a_person_rejects_does_not_count_on_in_the_same_words(self) -> None:
        """However many facts stood behind it that say so; what says something else is no such."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact(TEA, tags=("drinks",)), "", NOW)
            for days, taint in ((3, "web"), (5, "mail"), (9, "web")):
                new = untrusted(TEA, waits=True, taint=(taint,), expires_at=NOW + days * DAY)
                await memory.keep(new, "", NOW)
            for n in (2, 3, 4):
                await memory.review(n, "accepted", NOW, actor="ada")
            assert await chain(memory) == [
                (1, "live", 0),
                (2, "superseded", 3),
                (3, "superseded", 4),
                (4, "live", 0),
            ]
            await memory.review(4, "rejected", NOW, actor="ada", reason="it is wrong")
            assert await chain(memory) == [(1, "live", 0)]
            assert [hit.fact.n for hit in (await told(memory)).hits] == [1]
            for n in (2, 3, 4):
                gone = await memory.gone(n)
                assert gone is not None
                assert (gone.why, gone.by) == ("rejected", "ada")

        self.held(promise, Embedding(Meaning()))

    def test_only_what_is_of_the_same_scope_principal_and_tags_and_counts_is_the_same(self) -> None:
        """What another vouches for, shares or tagged otherwise stays beside it."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact(TEA, BOB), "", NOW)
            await memory.keep(fact(TEA, ANN_ELSEWHERE), "", NOW)
            await memory.keep(fact(TEA, ANN, SHOP), "", NOW)
            await memory.keep(fact(TEA, BOB, SHOP), "", NOW)
            await memory.keep(fact(TEA, tags=("drinks",)), "", NOW)
            await memory.keep(fact(TEA, expires_at=NOW + 1), "", NOW)
            await memory.keep(fact("Likes green tea"), "", NOW)
            await memory.keep(untrusted(TEA, waits=True), "", NOW)
            before = await chain(memory)
            await memory.review(8, "accepted", NOW + 1, actor="ada")
            assert await chain(memory) == [*before[:-1], (8, "live", 0)]

        self.held(promise)

    def test_of_several_that_were_live_in_the_same_words_one_is_left_too(self) -> None:
        """However many there were, and whatever signs they are made of."""

        async def promise(memory: Memory) -> None:
            for place, text in enumerate((TEA, "好茶", "!?")):
                who = Principal(id=f"p{place}")
                for new in (
                    fact(text, who),
                    untrusted(text, who),
                    fact(text, who, expires_at=NOW + DAY),
                ):
                    await memory.keep(new, "", NOW)
                new = untrusted(text, who, waits=True, taint=("mail",))
                last = (await memory.keep(new, "", NOW)).n
                await memory.review(last, "accepted", NOW, actor="ada")
                facts = await memory.facts(FactFilter(principal=who.id))
                first = facts[0].n
                stands = [(f.state, f.successor) for f in facts]
                assert stands == [("live", 0), *[("superseded", first)] * 3]
                assert facts[0].trust == "owner"

        self.held(promise)
