"""What every memory promises, as tests: a back end subclasses `MemoryContract` and runs it whole.

class TestMyMemory(MemoryContract):
    def open(self, embedding=None): ...  # an empty memory, and an async function that closes it
"""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.errors import ConfigError, Refused, UnknownRun
from cairn.memory.embedding import Embedding
from cairn.memory.facts import MAX_CHARS, FactFilter, Scope, user_scope
from cairn.memory.port import Memory
from cairn.testing.memory_chains import ChainPromises
from cairn.testing.memory_ends import EndPromises
from cairn.testing.memory_people import PeoplePromises
from cairn.testing.memory_promises import (
    ANN,
    ANN_ELSEWHERE,
    BOB,
    DAY,
    NOW,
    SHOP,
    Meaning,
    MemoryPromises,
    fact,
    known,
    refused,
    texts,
    untrusted,
)
from cairn.testing.memory_reviews import ReviewPromises


class KeepingPromises(MemoryPromises):
    """Keeping and finding."""

    def test_what_is_kept_is_found_by_its_words_with_all_that_is_known_of_it(self) -> None:
        """Keep, then recall."""

        async def promise(memory: Memory) -> None:
            new = fact("Likes green tea.", run="r", call="c1", uri="mail:7", tags=("drinks",))
            kept = await memory.keep(new, "k", NOW)
            assert (kept.n, kept.state, kept.known) == (1, "live", False)
            for query in ("green", "GREEN TEAS?", "drink"):
                (hit,) = (await memory.recall(query, [user_scope(ANN)], 5, NOW)).hits
                found = hit.fact
                assert (found.text, found.id, found.trust) == ("Likes green tea.", "m1", "agent")
                assert (found.content.run, found.content.call, found.content.uri) == (
                    *("r", "c1"),
                    "mail:7",
                )
                assert found.content.created_at == NOW
                assert await memory.get(1) == found
            assert await known(memory, "coffee") == []

        self.held(promise)

    def test_the_same_key_again_changes_nothing_and_answers_the_same(self) -> None:
        """A call that is repeated is one call."""

        async def promise(memory: Memory) -> None:
            first = await memory.keep(fact("Likes tea."), "k", NOW)
            again = await memory.keep(fact("Likes tea."), "k", NOW + DAY)
            assert (again.n, again.state, again.known) == (first.n, "live", True)
            await refused(Refused, memory.keep(fact("Likes coffee."), "k", NOW))
            await memory.forget(first.n, NOW + DAY)
            gone = await memory.keep(fact("Likes tea."), "k", NOW + DAY)
            assert (gone.n, gone.state) == (first.n, "gone")
            assert await known(memory, "tea coffee") == []

        self.held(promise)

    def test_what_is_known_in_the_same_words_is_not_kept_twice(self) -> None:
        """Another key, the same fact."""

        async def promise(memory: Memory) -> None:
            one = await memory.keep(fact("Likes tea."), "k1", NOW)
            two = await memory.keep(fact("Likes tea."), "k2", NOW)
            assert (two.n, two.known) == (one.n, True)
            web = await memory.keep(untrusted("Likes tea."), "k3", NOW)
            assert not web.known
            other = await memory.keep(fact("Likes tea.", BOB), "k4", NOW)
            assert not other.known

        self.held(promise)

    def test_no_principal_and_no_tenant_ever_finds_anothers_facts(self) -> None:
        """User scopes are apart, and so is what they are ranked by."""

        async def promise(memory: Memory) -> None:
            for who in (ANN, BOB, ANN_ELSEWHERE):
                await memory.keep(fact(f"The code is {who.id}-{who.tenant}", who), "", NOW)
            alone = await memory.recall("code", [user_scope(BOB)], 10, NOW)
            assert texts(alone) == ["The code is bob-"]
            for n in range(20):  # how rare a word is elsewhere is nobody's business
                await memory.keep(fact(f"code number {n}", ANN), "", NOW)
            assert await memory.recall("code", [user_scope(BOB)], 10, NOW) == alone
            assert await known(memory, "code", ANN_ELSEWHERE) == ["The code is ann-acme"]

        self.held(promise)

    def test_a_scope_is_its_kind_its_name_and_its_tenant(self) -> None:
        """Names that look alike, or that run into each other, stay apart."""

        async def promise(memory: Memory) -> None:
            scopes = [
                Scope(kind="project", name="shop"),
                Scope(kind="project", name="shop", tenant="acme"),
                Scope(kind="agent", name="shop"),
                Scope(kind="user", name="shop"),
                Scope(kind="project", name="sho", tenant="p"),
                Scope(kind="project", name="", tenant=""),
            ]
            for number, scope in enumerate(scopes[:-1]):
                await memory.keep(fact(f"secret {number}", scope=scope), "", NOW)
            for number, scope in enumerate(scopes[:-1]):
                assert texts(await memory.recall("secret", [scope], 10, NOW)) == [
                    f"secret {number}"
                ]
            assert texts(await memory.recall("secret", [scopes[-1]], 10, NOW)) == []
            both = await memory.recall("secret", [scopes[0], scopes[2], scopes[0]], 10, NOW)
            assert sorted(texts(both)) == ["secret 0", "secret 2"]
            assert texts(await memory.recall("secret", [], 10, NOW)) == []

        self.held(promise)

    def test_a_fact_ends_when_its_time_is_up_by_the_clock_that_is_asked_with(self) -> None:
        """Expiry needs nobody to act."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("The code is 4711.", expires_at=NOW + DAY), "", NOW)
            assert await known(memory, "code", now=NOW + DAY - 1) == ["The code is 4711."]
            assert await known(memory, "code", now=NOW + DAY) == []
            assert await known(memory, "code", now=NOW) == ["The code is 4711."]
            await refused(ConfigError, memory.keep(fact("late", expires_at=NOW), "", NOW))

        self.held(promise)

    def test_what_has_long_expired_is_removed_and_a_wrong_clock_loses_nothing_at_once(self) -> None:
        """Expired facts do not stay for ever."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("old", expires_at=NOW + DAY), "k", NOW)
            await memory.keep(fact("soon after"), "", NOW + 2 * DAY)
            assert (await memory.get(1)).text == "old"
            await memory.keep(fact("much later"), "", NOW + 10 * DAY)
            await refused(UnknownRun, memory.get(1))
            gone = await memory.gone(1)
            assert gone is not None
            assert (gone.why, gone.by, gone.key) == ("expired", "", "k")

        self.held(promise)

    def test_a_newer_fact_takes_the_place_of_the_one_it_replaces(self) -> None:
        """A chain of them: only the last is told."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(fact("Lives in Oslo.", supersedes=1), "", NOW)
            await memory.keep(fact("Lives in Lima.", supersedes=2), "", NOW)
            assert await known(memory, "lives rome oslo lima") == ["Lives in Lima."]
            old = await memory.get(1)
            assert (old.state, old.successor) == ("superseded", 2)
            error = await refused(Refused, memory.keep(fact("Paris", supersedes=1), "", NOW))
            assert "m2" in str(error)
            await refused(UnknownRun, memory.keep(fact("x", BOB, supersedes=3), "", NOW))
            await refused(UnknownRun, memory.keep(fact("x", supersedes=99), "", NOW))

        self.held(promise)

    def test_two_who_replace_the_same_fact_at_once_are_not_both_right(self) -> None:
        """Compare and set."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            wishes = [
                memory.keep(fact(f"Lives in {n}.", supersedes=1), f"k{n}", NOW) for n in range(5)
            ]
            done = await asyncio.gather(*wishes, return_exceptions=True)
            assert sum(isinstance(each, Refused) for each in done) == 4
            assert len(await known(memory, "lives")) == 1

        self.held(promise)

    def test_many_who_keep_at_once_lose_nothing(self) -> None:
        """Concurrent writers."""

        async def promise(memory: Memory) -> None:
            kept = await asyncio.gather(
                *(memory.keep(fact(f"fact number {n}"), f"k{n}", NOW) for n in range(60))
            )
            assert sorted(each.n for each in kept) == list(range(1, 61))
            found = await memory.recall("fact", [user_scope(ANN)], 50, NOW)
            assert len(found.hits) == 50
            assert len(await memory.facts(FactFilter(limit=0))) == 60

        self.held(promise)

    def test_hostile_and_broken_text_is_kept_found_and_breaks_nothing(self) -> None:
        """What is a query language elsewhere is plain text here."""

        async def promise(memory: Memory) -> None:
            odd = [
                "quote \" and ' and ; DROP TABLE fact; --",
                "NEAR(one two, 3) AND NOT three OR col:four*",
                "lone \ud800 surrogate and a \0 zero",
                "* ^ - + ( ) { } [ ] ~ ? : / \\ %s %d $1 ?1 :name @x",
                "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁne ＷＩＤＥ Straße İstanbul",
                "مرحبا بالعالم שלום עולם नमस्ते สวัสดี",
            ]
            for text in odd:
                kept = await memory.keep(fact(text), "", NOW)
                stored = (await memory.get(kept.n)).text
                stored.encode()
                assert "\0" not in stored
            for text in odd:
                await memory.recall(text, [user_scope(ANN)], 10, NOW)
            assert (await known(memory, "UNICODE fine wide strasse"))[0] == odd[4]
            assert await known(memory, "three") == [odd[1]]
            assert await known(memory, "נ שלום") == [odd[5]]
            assert await known(memory, '"') == []
            assert await known(memory, "") == []
            assert await known(memory, "x" * 1_000_000) == []

        self.held(promise)

    def test_chinese_japanese_and_korean_are_found_within_their_sentences(self) -> None:
        """No spaces are needed."""

        async def promise(memory: Memory) -> None:
            said = [
                "她最喜欢的颜色是绿色",
                "缓存用 Redis，超时 30 秒",
                "母は京都で花屋をしています",
            ]
            said.append("지난달에 부산으로 이사했습니다")
            for text in said:
                await memory.keep(fact(text), "", NOW)
            for query, wanted in (("绿色", 0), ("redis 超时", 1), ("京都", 2), ("부산", 3)):
                assert (await known(memory, query))[0] == said[wanted]
            assert await known(memory, "紫") == []

        self.held(promise)

    def test_what_fits_better_comes_first_and_equals_by_trust_and_youth(self) -> None:
        """The order is the same every time."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("tea and tea, green tea"), "", NOW)
            await memory.keep(fact("a long text about kettles, cups, spoons and tea"), "", NOW)
            await memory.keep(untrusted("visits Rome"), "", NOW)
            await memory.keep(fact("visits Rome", trust="owner"), "", NOW)
            await memory.keep(fact("visits Oslo"), "", NOW - 400 * DAY)
            await memory.keep(fact("visited Oslo"), "", NOW)
            assert (await known(memory, "tea"))[0] == "tea and tea, green tea"
            rome = await memory.recall("rome", [user_scope(ANN)], 5, NOW)
            assert [hit.fact.trust for hit in rome.hits] == ["owner", "untrusted"]
            assert await known(memory, "oslo") == ["visited Oslo", "visits Oslo"]
            assert await memory.recall("rome", [user_scope(ANN)], 5, NOW) == rome

        self.held(promise)

    def test_what_cannot_be_a_fact_or_a_question_is_refused_by_name(self) -> None:
        """Typed errors, and nothing is kept."""

        async def promise(memory: Memory) -> None:
            for new, field in (
                (fact(""), "fact.text"),
                (fact(" \n "), "fact.text"),
                (fact("x" * (MAX_CHARS + 1)), "fact.text"),
                (fact("x", tags=("",)), "fact.tags"),
                (fact("x", tags=("a\nb",)), "fact.tags"),
                (fact("x", tags=tuple(map(str, range(11)))), "fact.tags"),
                (fact("x", taint=("web",)), "fact.trust"),
                (fact("x", trust="untrusted", taint=("no label",)), "fact.taint"),
                (fact("x", scope=Scope(kind="user", name="")), "fact.scope"),
                (fact("x", scope=Scope(kind="user", name="a\0b")), "fact.scope"),
                (fact("x", trust="much"), "fact.trust"),
            ):
                assert (await refused(ConfigError, memory.keep(new, "", NOW))).field == field
            for limit in (0, -1, 51):
                await refused(ConfigError, memory.recall("x", [user_scope(ANN)], limit, NOW))
            assert await memory.facts(FactFilter()) == []

        self.held(promise)

    # ------------------------------------------------------------ meaning

    def test_meaning_finds_what_words_do_not_and_both_together_come_first(self) -> None:
        """Hybrid ranking."""
        meaning = Meaning()

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("zzzz zzzz"), "", NOW)
            await memory.keep(fact("aabb abab"), "", NOW)
            found = await memory.recall("zz zzz", [user_scope(ANN)], 5, NOW)
            assert (texts(found)[0], found.degraded) == ("zzzz zzzz", "")
            await memory.keep(fact("abab quiz"), "", NOW)
            assert (await known(memory, "abab"))[0] == "aabb abab"
            assert await known(memory, "zzz", BOB) == []

        self.held(promise, Embedding(meaning))

    def test_an_embedder_that_is_down_or_slow_costs_the_order_only(self) -> None:
        """Full text, marked degraded; nothing is lost, and vectors are made later."""
        meaning = Meaning()
        meaning.down = ConnectionError("no route")

        async def promise(memory: Memory) -> None:
            kept = await memory.keep(fact("zzzz tea"), "k", NOW)
            assert kept.state == "live"
            found = await memory.recall("tea", [user_scope(ANN)], 5, NOW)
            assert texts(found) == ["zzzz tea"]
            assert "letters failed: ConnectionError: no route" in found.degraded
            meaning.down, meaning.delay_s = None, 5.0
            found = await memory.recall("tea", [user_scope(ANN)], 5, NOW)
            assert texts(found) == ["zzzz tea"]
            assert "no answer within 0.05 s" in found.degraded
            meaning.delay_s = 0.0
            await memory.keep(fact("qqqq"), "", NOW)
            assert {"zzzz tea", "qqqq"} <= set(meaning.asked)
            found = await memory.recall("zz", [user_scope(ANN)], 5, NOW)
            assert (texts(found), found.degraded) == (["zzzz tea"], "")

        self.held(promise, Embedding(meaning, timeout_s=0.05, rest_s=0))

    def test_what_is_no_vector_is_not_compared_with(self) -> None:
        """Wrong sizes, too few, no numbers."""
        for wrong in ([[1.0]], [], [[float("nan")] * 26], [[0.0] * 26], [["x"] * 26], None):

            async def embed(texts: object, wrong: object = wrong) -> object:
                return wrong

            meaning = Meaning()
            meaning.embed = embed  # type: ignore[method-assign, assignment]  # on purpose

            async def promise(memory: Memory) -> None:
                await memory.keep(fact("tea"), "", NOW)
                found = await memory.recall("tea", [user_scope(ANN)], 5, NOW)
                assert (texts(found), "letters" in found.degraded) == (["tea"], True)

            self.held(promise, Embedding(meaning))

    def test_facts_that_wait_are_replaced_or_gone_have_no_meaning_either(self) -> None:
        """A vector goes with what it stands for."""

        async def promise(memory: Memory) -> None:
            await memory.keep(untrusted("zzzz one", waits=True), "", NOW)
            await memory.keep(fact("zzzz two"), "", NOW)
            await memory.keep(fact("zzzz three", supersedes=2), "", NOW)
            await memory.keep(fact("zzzz four"), "", NOW)
            await memory.forget(4, NOW)
            assert await known(memory, "zzz") == ["zzzz three"]

        self.held(promise, Embedding(Meaning()))

    def test_what_is_shared_is_found_by_all_who_share_it(self) -> None:
        """A project's scope."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Deploys on Wednesday.", ANN, SHOP), "", NOW)
            await memory.keep(fact("Deploys are announced.", BOB, SHOP), "", NOW)
            found = await memory.recall("deploy", [SHOP, user_scope(BOB)], 5, NOW)
            assert sorted(hit.fact.content.principal for hit in found.hits) == ["ann", "bob"]

        self.held(promise)


class MemoryContract(KeepingPromises, PeoplePromises, ChainPromises, EndPromises, ReviewPromises):
    """All promises of a memory."""
