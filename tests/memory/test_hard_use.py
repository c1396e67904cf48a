"""Memory under hard use: many processes, clocks that jump, texts that are none, many facts."""

import asyncio
import multiprocessing
import time

import pytest
from tests.memory.kit import ANN, BOB, DAY, NOW, fact

from cairn.errors import ConfigError, Refused, UnknownRun
from cairn.memory.facts import MAX_CHARS, FactFilter, user_scope
from cairn.memory.inmemory import InMemoryMemory
from cairn.store import open_store
from cairn.testing.memory_promises import refused

SCOPE = [user_scope(ANN)]
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["memory", "file"])
def within(request, tmp_path):
    def run(work):
        async def whole():
            if request.param == "memory":
                return await work(InMemoryMemory())
            store = open_store(tmp_path / "cairn.db")
            try:
                return await work(store.memory())
            finally:
                await store.close()

        return asyncio.run(whole())

    return run


def write(path, name, told):
    """One process of several: keeps facts of its own and tries to replace the same one."""

    async def work():
        store = open_store(path)
        won = []
        try:
            memory = store.memory()
            for n in range(25):
                await memory.keep(fact(f"{name} says {n}"), f"{name}-{n}", NOW)
                await memory.keep(fact(f"{name} says {n}"), f"{name}-{n}", NOW)
            for n in range(1, 6):
                try:
                    await memory.keep(fact(f"{name} replaces {n}", supersedes=n), "", NOW)
                    won.append(n)
                except Refused:
                    pass
        finally:
            await store.close()
        told.put((name, won))

    asyncio.run(work())


def test_several_processes_that_write_at_once_lose_nothing_and_replace_each_fact_once(tmp_path):
    path = str(tmp_path / "cairn.db")

    async def fill():
        store = open_store(path)
        try:
            for n in range(5):
                await store.memory().keep(fact(f"old {n}"), "", NOW)
        finally:
            await store.close()

    asyncio.run(fill())
    told = SPAWN.Queue()
    names = ["ada", "bea", "cyd"]
    workers = [SPAWN.Process(target=write, args=(path, name, told)) for name in names]
    for worker in workers:
        worker.start()
    won = dict(told.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0

    async def look():
        store = open_store(path)
        try:
            memory = store.memory()
            facts = await memory.facts(FactFilter(limit=0))
            texts = [each.text for each in facts]
            assert sorted(n for each in won.values() for n in each) == [1, 2, 3, 4, 5]
            for name in names:
                assert [t for t in texts if t.startswith(f"{name} says")] == [
                    f"{name} says {n}" for n in range(25)
                ]
            assert len({each.n for each in facts}) == len(facts) == 5 + 75 + 5
            assert {each.state for each in facts[:5]} == {"superseded"}
            found = await memory.recall("ada says 7", SCOPE, 1, NOW)
            assert found.hits[0].fact.text == "ada says 7"
        finally:
            await store.close()

    asyncio.run(look())


# ---------------------------------------------------------------- replacing what is not there


def test_what_was_replaced_forgotten_or_erased_cannot_be_replaced_and_nothing_is_kept(within):
    async def work(memory):
        await memory.keep(fact("first"), "", NOW)
        await memory.keep(fact("second", supersedes=1), "", NOW)
        error = await refused(Refused, memory.keep(fact("third", supersedes=1), "", NOW))
        assert "m1 was replaced before: replace m2" in str(error)
        await memory.forget(2, NOW)
        for n in (1, 2, 99):
            error = await refused(UnknownRun, memory.keep(fact("x", supersedes=n), "", NOW))
            assert f"there is no fact m{n}" in str(error)
        await memory.keep(fact("theirs", BOB), "", NOW)
        await memory.keep(fact("mine"), "", NOW)
        await memory.erase(ANN, NOW)
        await refused(UnknownRun, memory.keep(fact("x", supersedes=4), "", NOW))
        await refused(UnknownRun, memory.keep(fact("x", supersedes=3), "", NOW))
        assert [each.text for each in await memory.facts(FactFilter())] == ["theirs"]
        found = await memory.recall("first second third mine x", SCOPE, 9, NOW)
        assert found.hits == ()

    within(work)


def test_a_fact_that_waited_to_replace_one_that_went_meanwhile_is_accepted_for_itself(within):
    async def work(memory):
        await memory.keep(fact("old", trust="owner"), "", NOW)
        new = fact("new", trust="untrusted", taint=("web",), supersedes=1)
        assert (await memory.keep(new, "", NOW)).state == "waiting"
        await memory.forget(1, NOW)
        await memory.review(2, "accepted", NOW, actor="ada")
        (left,) = await memory.facts(FactFilter())
        assert (left.text, left.state, left.successor) == ("new", "live", 0)

    within(work)


# ---------------------------------------------------------------- clocks that jump


def test_an_expiry_counts_by_the_clock_of_each_look_and_a_clock_set_back_loses_nothing(within):
    async def work(memory):
        await memory.keep(fact("short lived", expires_at=NOW + DAY), "", NOW)

        async def seen(now):
            return [hit.fact.text for hit in (await memory.recall("lived", SCOPE, 5, now)).hits]

        assert await seen(NOW + DAY - 1) == ["short lived"]
        assert await seen(NOW + DAY) == []
        await memory.keep(fact("other"), "", NOW + 2 * DAY)  # the sweep leaves it its seven days
        assert await seen(NOW - 400 * DAY) == ["short lived"], "the clock was set back"
        assert await seen(NOW + DAY) == []
        await memory.keep(fact("another"), "", NOW + 9 * DAY)
        assert (await memory.gone(1)).why == "expired"
        assert await seen(NOW - 400 * DAY) == []

    within(work)


def test_facts_kept_under_a_clock_that_was_set_back_are_kept_and_found(within):
    async def work(memory):
        await memory.keep(fact("later lived"), "", NOW)
        await memory.keep(fact("earlier lived"), "", NOW - 100 * DAY)
        found = await memory.recall("lived", SCOPE, 5, NOW - 100 * DAY)
        assert len(found.hits) == 2
        assert (await refused(ConfigError, memory.keep(fact("x", expires_at=5), "", NOW))).field

    within(work)


# ---------------------------------------------------------------- texts


def test_a_text_of_a_megabyte_is_refused_at_once_and_a_question_of_one_is_answered_soon(within):
    async def work(memory):
        begun = time.process_time()
        for text in ("x" * 1_000_000, "Ann likes tea. " * 70_000, "茶" * 1_000_000):
            error = await refused(ConfigError, memory.keep(fact(text), "", NOW))
            assert error.field == "fact.text"
            assert f"at most {MAX_CHARS:,}" in str(error)
            assert len(str(error)) < 500
        await memory.keep(fact("Ann likes tea."), "", NOW)
        for query in ("tea " * 250_000, "什么" * 500_000, "insurance" * 100_000):
            await memory.recall(query, SCOPE, 5, NOW)
        assert time.process_time() - begun < 20
        assert len(await memory.facts(FactFilter())) == 1

    within(work)


@pytest.mark.parametrize("text", ["half \ud83d of one", "nul \0 inside", "\ud800tea", "a\0\0b tea"])
def test_halves_of_characters_and_nul_are_stored_safely_found_and_exported(within, text):
    async def work(memory):
        kept = await memory.keep(fact(text, tags=("tag\ud800",)), "", NOW)
        found = await memory.get(kept.n)
        found.text.encode()
        assert "\0" not in found.text
        assert (await memory.keep(fact(text, tags=("tag\ud800",)), "", NOW)).known
        told = await memory.recall(text, SCOPE, 5, NOW)
        assert [hit.fact.n for hit in told.hits] == [kept.n]
        for line in await memory.export(ANN):
            line.encode()

    within(work)


def test_a_scope_of_many_facts_is_searched_whole_and_in_order(within):
    async def work(memory):
        for n in range(600):
            await memory.keep(fact(f"note {n} about topic{n % 50}"), "", NOW)
        told = await memory.recall("note 534", SCOPE, 5, NOW)
        assert told.hits[0].fact.text == "note 534 about topic34"
        told = await memory.recall("topic7", SCOPE, 12, NOW)
        assert len(told.hits) == 12
        assert all(hit.fact.text.endswith("topic7") for hit in told.hits)

    within(work)
