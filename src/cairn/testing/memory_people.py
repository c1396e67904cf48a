"""What a memory promises to people: reviews, forgetting, export, erasing, and a record of it."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import json

from cairn.core.messages import Principal
from cairn.errors import ConfigError, Refused, UnknownRun
from cairn.memory.facts import FactFilter, user_scope
from cairn.memory.port import Memory
from cairn.testing.memory_promises import (
    ANN,
    ANN_ELSEWHERE,
    BOB,
    NOW,
    SHOP,
    MemoryPromises,
    chain,
    fact,
    known,
    refused,
    untrusted,
)


class PeoplePromises(MemoryPromises):
    """Reviews, forgetting, export and erasing."""

    def test_what_waits_is_never_recalled_before_a_person_has_accepted_it(self) -> None:
        """The review queue."""

        async def promise(memory: Memory) -> None:
            kept = await memory.keep(untrusted("Pays by card.", waits=True), "k", NOW)
            assert (kept.state, bool(kept.why)) == ("waiting", True)
            assert await known(memory, "card") == []
            (waiting,) = await memory.facts(FactFilter(state="waiting"))
            assert waiting.n == kept.n
            await memory.review(kept.n, "accepted", NOW, actor="ada", reason="asked her")
            assert await known(memory, "card") == ["Pays by card."]
            found = await memory.get(kept.n)
            assert (found.state, found.trust) == ("live", "owner")
            assert (found.content.trust, found.content.taint) == ("untrusted", ("web",))
            await memory.review(kept.n, "accepted", NOW, actor="ada", trust="untrusted")
            assert (await memory.get(kept.n)).trust == "untrusted"

        self.held(promise)

    def test_what_is_rejected_is_removed_and_says_by_whom(self) -> None:
        """A rejection."""

        async def promise(memory: Memory) -> None:
            kept = await memory.keep(untrusted("Pays by card.", waits=True), "k", NOW)
            await memory.review(kept.n, "rejected", NOW + 5, actor="ada")
            await refused(UnknownRun, memory.get(kept.n))
            gone = await memory.gone(kept.n)
            assert gone is not None
            assert (gone.why, gone.by, gone.at) == ("rejected", "ada", NOW + 5)
            await refused(UnknownRun, memory.review(kept.n, "accepted", NOW, actor="ada"))
            assert (await memory.keep(untrusted("Pays by card."), "k", NOW)).state == "gone"

        self.held(promise)

    def test_untrusted_content_replaces_nothing_that_is_trusted_more_by_itself(self) -> None:
        """It waits, whatever was said, and replaces only once it is accepted."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("The bank account is 1.", trust="owner"), "", NOW)
            kept = await memory.keep(untrusted("The bank account is 2.", supersedes=1), "", NOW)
            assert kept.state == "waiting"
            assert "m1" in kept.why
            assert await known(memory, "bank") == ["The bank account is 1."]
            await memory.review(kept.n, "accepted", NOW, actor="ada", trust="agent")
            assert await known(memory, "bank") == ["The bank account is 2."]
            assert (await memory.get(1)).successor == kept.n

        self.held(promise)

    def test_what_an_agent_keeps_replaces_nothing_that_a_person_has_said_by_itself(self) -> None:
        """It waits, whatever rule there is, and replaces only once it is accepted."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("The limit is 50.", trust="owner"), "", NOW, "ann")
            kept = await memory.keep(fact("The limit is 9000.", supersedes=1), "", NOW)
            assert (kept.state, kept.replaced) == ("waiting", ())
            assert kept.why == "it would replace m1, which is trusted more"
            assert await known(memory, "limit") == ["The limit is 50."]
            assert await known(memory, "limit") == ["The limit is 50."]
            owner = fact("The limit is 70.", supersedes=1, trust="owner")
            assert (await memory.keep(owner, "", NOW, "ann")).state == "live"
            same = fact("The limit is 80.", supersedes=3, trust="owner")
            assert (await memory.keep(same, "", NOW, "ann")).state == "live"
            await memory.keep(fact("The room is 1."), "", NOW)
            assert (await memory.keep(fact("The room is 2.", supersedes=5), "", NOW)).replaced == (
                5,
            )

        self.held(promise)

    def test_untrusted_replaces_untrusted_and_nobody_replaces_anothers(self) -> None:
        """The same trust is enough, but it has to be one's own fact."""

        async def promise(memory: Memory) -> None:
            await memory.keep(untrusted("Price 1"), "", NOW)
            assert (await memory.keep(untrusted("Price 2", supersedes=1), "", NOW)).state == "live"
            await memory.keep(fact("Opens at 8", ANN, SHOP), "", NOW)
            kept = await memory.keep(fact("Opens at 9", BOB, SHOP, supersedes=3), "", NOW)
            assert (kept.state, "another principal" in kept.why) == ("waiting", True)
            owner = fact("Opens at 10", BOB, SHOP, supersedes=3, trust="owner")
            assert (await memory.keep(owner, "", NOW, "bob")).state == "live"

        self.held(promise)

    def test_two_reviews_of_one_replacement_leave_one_fact_of_the_chain(self) -> None:
        """What was replaced meanwhile is not replaced again."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(untrusted("Lives in Oslo.", supersedes=1), "", NOW)
            await memory.keep(fact("Lives in Lima.", supersedes=1), "", NOW)
            await memory.review(2, "accepted", NOW, actor="ada")
            assert sorted(await known(memory, "lives")) == ["Lives in Lima.", "Lives in Oslo."]
            assert (await memory.get(1)).successor == 3
            await refused(Refused, memory.review(1, "accepted", NOW, actor="ada"))
            await refused(ConfigError, memory.review(2, "maybe", NOW, actor="a"))  # type: ignore[arg-type]  # on purpose

        self.held(promise)

    def test_what_is_forgotten_is_gone_with_all_that_it_had_replaced(self) -> None:
        """Forget, then recall; nothing older comes back."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(fact("Lives in Oslo.", supersedes=1), "", NOW)
            await memory.keep(fact("Lives by the sea."), "", NOW)
            assert await memory.forget(2, NOW + 7, actor="ann", reason="moved") == [1, 2]
            assert await known(memory, "lives") == ["Lives by the sea."]
            for n in (1, 2):
                await refused(UnknownRun, memory.get(n))
                gone = await memory.gone(n)
                assert gone is not None
                assert (gone.why, gone.by, gone.at, len(gone.hash)) == (
                    *("forgotten", "ann", NOW + 7),
                    32,
                )
            error = await refused(UnknownRun, memory.forget(2, NOW))
            assert "m2 was forgotten" in str(error)
            assert (await memory.keep(fact("Lives in Rome."), "", NOW)).n == 4

        self.held(promise)

    def test_untrusted_content_removes_nothing_that_is_trusted(self) -> None:
        """Neither a fact nor, with it, one that it had replaced; then all of them stay."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("The account is 1.", trust="owner"), "", NOW)
            await memory.keep(untrusted("Tea is cheap."), "", NOW)
            error = await refused(Refused, memory.forget(1, NOW, trusted=False))
            assert "m1 is trusted" in str(error)
            assert await memory.forget(2, NOW, trusted=False) == [2]
            await memory.keep(untrusted("The account is 2.", supersedes=1), "", NOW)
            await memory.review(3, "accepted", NOW, actor="ada", trust="untrusted")
            error = await refused(Refused, memory.forget(3, NOW, trusted=False))
            assert "m1, which goes with m3, is trusted" in str(error)
            assert await chain(memory) == [(1, "superseded", 3), (3, "live", 0)]
            assert await memory.forget(3, NOW) == [1, 3]

        self.held(promise)

    def test_what_is_to_go_only_of_one_principal_stays_where_anothers_would_go_with_it(
        self,
    ) -> None:
        """A fact of somebody else that it had replaced."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Opens at eight.", BOB, SHOP), "", NOW)
            new = fact("Opens at nine.", ANN, SHOP, supersedes=1, trust="owner")
            await memory.keep(new, "", NOW, "ann")
            error = await refused(Refused, memory.forget(2, NOW, of=ANN))
            assert "m1, which goes with m2, was kept for another principal" in str(error)
            await memory.keep(fact("Closes at six.", ANN, SHOP), "", NOW)
            assert await memory.forget(3, NOW, of=ANN) == [3]

        self.held(promise)

    def test_an_export_holds_everything_of_one_principal_and_nothing_of_others(self) -> None:
        """Every scope, every state; lines of JSON."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("mine"), "", NOW)
            await memory.keep(fact("mine too", supersedes=1), "", NOW)
            await memory.keep(fact("shared", ANN, SHOP), "", NOW)
            await memory.keep(untrusted("waits", waits=True), "", NOW)
            await memory.keep(fact("theirs", BOB), "", NOW)
            await memory.keep(fact("other tenant", ANN_ELSEWHERE), "", NOW)
            lines = [json.loads(line) for line in await memory.export(ANN)]
            assert [line["text"] for line in lines] == ["mine", "mine too", "shared", "waits"]
            states = ["superseded", "live", "live", "waiting"]
            assert [line["state"] for line in lines] == states
            assert lines[1]["supersedes"] == "m1"
            assert all("\n" not in line for line in await memory.export(ANN))

        self.held(promise)

    def test_erasing_a_principal_removes_all_of_theirs_and_nothing_else(self) -> None:
        """Twice does no harm."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("mine"), "k", NOW)
            await memory.keep(fact("shared", ANN, SHOP), "", NOW)
            await memory.keep(fact("replaces mine", supersedes=1), "", NOW)
            await memory.keep(fact("theirs", BOB), "", NOW)
            await memory.keep(fact("other tenant", ANN_ELSEWHERE), "", NOW)
            erased = await memory.erase(ANN, NOW + 1, actor="dpo", reason="asked to")
            assert (erased.facts, erased.log_cleared) == (3, True)
            assert await memory.export(ANN) == []
            assert await known(memory, "mine shared") == []
            assert await known(memory, "theirs", BOB) == ["theirs"]
            assert await known(memory, "tenant", ANN_ELSEWHERE) == ["other tenant"]
            gone = await memory.gone(3)
            assert gone is not None
            assert (gone.why, gone.by, gone.at) == ("erased", "dpo", NOW + 1)
            assert (await memory.erase(ANN, NOW)).facts == 0
            for nobody in (Principal(id=""), Principal(id="", tenant="acme")):
                await refused(ConfigError, memory.erase(nobody, NOW))
                await refused(ConfigError, memory.export(nobody))
            assert (await memory.keep(fact("mine"), "k", NOW)).state == "gone"
            again = await memory.keep(fact("new"), "", NOW)
            assert again.n == 6
            found = await memory.recall("new", [user_scope(ANN)], 5, NOW)
            assert len(found.hits) == 1

        self.held(promise)

    def test_facts_are_listed_by_what_they_are_the_oldest_first(self) -> None:
        """Filters and pages."""

        async def promise(memory: Memory) -> None:
            for n in range(5):
                await memory.keep(fact(f"fact {n}"), "", NOW)
            await memory.keep(fact("theirs", BOB), "", NOW)
            await memory.keep(fact("fact 5", supersedes=1), "", NOW)
            page = await memory.facts(FactFilter(principal="ann", after=2, limit=2))
            assert [each.n for each in page] == [3, 4]
            old = await memory.facts(FactFilter(state="superseded"))
            assert [each.n for each in old] == [1]
            assert len(await memory.facts(FactFilter(scope=user_scope(BOB)))) == 1
            assert await memory.facts(FactFilter(tenant="acme")) == []

        self.held(promise)
