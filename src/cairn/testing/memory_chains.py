"""What a memory promises of facts that replace each other, whichever of them goes first."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from cairn.errors import Refused
from cairn.memory.embedding import Embedding
from cairn.memory.facts import FactFilter
from cairn.memory.port import Memory
from cairn.memory.shelf import SWEPT_AT_ONCE
from cairn.testing.memory_promises import (
    ANN,
    BOB,
    NOW,
    SHOP,
    Meaning,
    MemoryPromises,
    chain,
    fact,
    known,
    refused,
    texts,
    untrusted,
)


class ChainPromises(MemoryPromises):
    """Facts that replace others, and what becomes of both."""

    def test_what_a_rejected_fact_had_replaced_lives_again_as_it_was(self) -> None:
        """Its trust, its words and its meaning."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("zzzz Rome."), "", NOW)
            for n, town in ((1, "Oslo"), (2, "Lima")):
                new = fact(f"zzzz {town}.", supersedes=n, trust="owner")
                await memory.keep(new, "", NOW)
            await memory.review(3, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "superseded", 2), (2, "live", 0)]
            await memory.review(2, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "live", 0)]
            assert (await memory.get(1)).trust == "agent"
            assert await known(memory, "rome") == ["zzzz Rome."]
            assert await known(memory, "zzz") == ["zzzz Rome."]
            await memory.keep(fact("zzzz Bern.", supersedes=1), "", NOW)
            assert await chain(memory) == [(1, "superseded", 4), (4, "live", 0)]

        self.held(promise, Embedding(Meaning()))

    def test_a_rejected_fact_that_waited_had_replaced_nothing(self) -> None:
        """What it would have replaced stays replaced by another."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Pays by card."), "", NOW)
            await memory.keep(untrusted("Pays in gold.", supersedes=1), "", NOW)
            await memory.keep(fact("Pays in cash.", supersedes=1), "", NOW)
            await memory.review(2, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "superseded", 3), (3, "live", 0)]

        self.held(promise)

    def test_what_an_erased_principal_had_replaced_of_others_lives_again(self) -> None:
        """Everybody who shares it finds it as before."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Opens at eight.", BOB, SHOP), "", NOW)
            for n, hour in ((1, "nine"), (2, "ten")):
                new = fact(f"Opens at {hour}.", ANN, SHOP, supersedes=n, trust="owner")
                await memory.keep(new, "", NOW, "ann")
            assert (await memory.erase(ANN, NOW)).facts == 2
            assert await chain(memory) == [(1, "live", 0)]
            found = await memory.recall("opens", [SHOP], 5, NOW)
            assert texts(found) == ["Opens at eight."]

        self.held(promise)

    def test_an_erased_principals_place_between_two_facts_is_closed(self) -> None:
        """What was replaced by the erased fact is replaced by the one that replaced that."""

        async def promise(memory: Memory) -> None:
            whose = (BOB, ANN, ANN, BOB)
            for n, who in enumerate(whose):
                new = fact(f"Opens at {n + 7}.", who, SHOP, supersedes=n, trust="owner")
                await memory.keep(new, "", NOW, who.id)
            await memory.erase(ANN, NOW)
            assert await chain(memory) == [(1, "superseded", 4), (4, "live", 0)]
            await memory.review(4, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "live", 0)]
            last = fact("Opens at 5.", BOB, SHOP, supersedes=1, trust="owner")
            await memory.keep(last, "", NOW, "bob")
            assert await memory.forget(5, NOW) == [1, 5]

        self.held(promise)

    def test_who_would_replace_what_was_replaced_is_told_the_newest_of_the_chain(self) -> None:
        """Never one that is replaced itself."""

        async def promise(memory: Memory) -> None:
            for n in range(3):
                await memory.keep(fact(f"Lives in town {n}.", supersedes=n), "", NOW)
            error = await refused(Refused, memory.keep(fact("Rome", supersedes=1), "", NOW))
            assert "replace m3" in str(error)

        self.held(promise)

    def test_a_replacement_in_the_words_of_a_live_fact_leaves_one_of_them(self) -> None:
        """It takes the place of both; what says something else lives again when it is rejected."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(fact("Lives in Oslo."), "", NOW)
            kept = await memory.keep(fact("Lives in Oslo.", supersedes=1), "k", NOW)
            assert (kept.n, kept.state, kept.replaced) == (3, "live", (1, 2))
            assert await known(memory, "lives") == ["Lives in Oslo."]
            assert await chain(memory) == [
                (1, "superseded", 3),
                (2, "superseded", 3),
                (3, "live", 0),
            ]
            await memory.review(3, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "live", 0)]
            await memory.keep(fact("Lives in Oslo."), "", NOW)
            await memory.keep(fact("Lives in Oslo.", supersedes=1), "", NOW)
            assert await memory.forget(5, NOW) == [1, 4, 5]

        self.held(promise)

    def test_a_fact_that_replaces_itself_or_waits_to_do_so_already_is_known(self) -> None:
        """The same wish again, by another call."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome.", trust="owner"), "", NOW)
            same = await memory.keep(fact("Lives in Rome.", trust="owner", supersedes=1), "", NOW)
            assert (same.n, same.known, same.state) == (1, True, "live")
            wish = untrusted("Lives in Oslo.", supersedes=1)
            first = await memory.keep(wish, "k1", NOW)
            again = await memory.keep(wish, "k2", NOW)
            assert (again.n, again.known, again.state) == (first.n, True, "waiting")
            assert len(await memory.facts(FactFilter(state="waiting"))) == 1

        self.held(promise)

    def test_only_so_many_replaced_facts_stand_behind_one(self) -> None:
        """Those that were replaced the longest ago are removed as expired ones are."""

        async def promise(memory: Memory) -> None:
            for n in range(8):
                await memory.keep(fact(f"Lives in town {n}.", supersedes=n), "", NOW)
            assert await chain(memory) == [
                *((n, "superseded", n + 1) for n in range(3, 8)),
                (8, "live", 0),
            ]
            for n in (1, 2):
                gone = await memory.gone(n)
                assert gone is not None
                assert gone.why == "expired"
            await memory.review(8, "rejected", NOW, actor="ada")
            assert await known(memory, "lives") == ["Lives in town 6."]
            assert await memory.forget(7, NOW) == [3, 4, 5, 6, 7]

        with bound(5):
            self.held(promise)

    def test_the_oldest_of_all_that_a_fact_has_replaced_goes_first(self) -> None:
        """Also where it has taken the place of two, and where a person has accepted it."""

        async def promise(memory: Memory) -> None:
            for n in range(4):
                await memory.keep(fact(f"Lives in town {n}.", supersedes=n), "", NOW)
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(fact("Lives in Rome.", supersedes=4), "", NOW)
            assert [n for n, *_ in await chain(memory)] == [2, 3, 4, 5, 6]
            await memory.keep(fact("Works in Bern."), "", NOW)
            await memory.keep(untrusted("Lives in Oslo.", supersedes=6), "", NOW)
            await memory.review(8, "accepted", NOW, actor="ada")
            assert [n for n, *_ in await chain(memory)] == [3, 4, 5, 6, 7, 8]
            assert await memory.forget(8, NOW) == [3, 4, 5, 6, 8]

        with bound(4):
            self.held(promise)

    def test_a_chain_that_is_far_too_long_is_shortened_little_by_little(self) -> None:
        """As an older version may have left it: no single write removes thousands of facts."""

        async def promise(memory: Memory) -> None:
            for n in range(SWEPT_AT_ONCE + 20):
                await memory.keep(fact(f"Lives in town {n}.", supersedes=n), "", NOW)
            last = SWEPT_AT_ONCE + 20
            with bound(5):
                await memory.keep(fact("Lives in Rome.", supersedes=last), "", NOW)
                assert len(await chain(memory)) == last + 1 - SWEPT_AT_ONCE
                await memory.keep(fact("Lives in Oslo.", supersedes=last + 1), "", NOW)
                assert [n for n, *_ in await chain(memory)] == list(range(last - 3, last + 3))

        self.held(promise)


def bound(most: int) -> AbstractContextManager[object]:
    """Fewer replaced facts may stand behind one, so that few are enough to see it."""
    return patch("cairn.memory.shelf.MOST_REPLACED", most)
