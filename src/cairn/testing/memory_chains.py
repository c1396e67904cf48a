"""What a memory promises of facts that replace each other, whichever of them goes first."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

from cairn.errors import Refused
from cairn.memory.embedding import Embedding
from cairn.memory.facts import FactFilter
from cairn.memory.port import Memory
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
            await memory.keep(fact("zzzz Rome.", trust="owner"), "", NOW)
            await memory.keep(fact("zzzz Oslo.", supersedes=1), "", NOW)
            await memory.keep(fact("zzzz Lima.", supersedes=2), "", NOW)
            await memory.review(3, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "superseded", 2), (2, "live", 0)]
            await memory.review(2, "rejected", NOW, actor="ada")
            assert await chain(memory) == [(1, "live", 0)]
            assert (await memory.get(1)).trust == "owner"
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
            await memory.keep(fact("Opens at 5.", BOB, SHOP, supersedes=1), "", NOW)
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
        """It takes the place of both, and gives both back when it is rejected."""

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
            assert await chain(memory) == [(1, "live", 0), (2, "live", 0)]
            await memory.keep(fact("Lives in Oslo.", supersedes=1), "", NOW)
            assert await memory.forget(4, NOW) == [1, 2, 4]

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
