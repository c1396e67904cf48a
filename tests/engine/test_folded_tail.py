"""What is asked of a long run reads what is new of it, and stands as if it had been read whole.

Events that are read are counted, not timed.
"""

import asyncio

import pytest
from tests.engine.kit import Watched, runtime

from cairn import Principal, Scripted, call, tool
from cairn.core.commands import Pause, Resume
from cairn.engine import fold_cache
from cairn.engine.load import load
from cairn.errors import CorruptJournal, RunErased, StoreBusy, UnknownRun
from cairn.store.inmemory import InMemoryStore

FREE = {"steps": 10_000, "calls": 10_000, "tokens": 10**9}
ANN = Principal(id="ann")


class CountingStore(InMemoryStore):
    """Counts the events that are read."""

    def __init__(self, journals=None):
        super().__init__(journals)
        self.events_read = 0

    async def read(self, run, after=0, upto=0):
        entries = await super().read(run, after, upto)
        self.events_read += len(entries)
        return entries


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"found {n}"


@tool(effect="dangerous")
def book(n: int) -> str:
    """Book."""
    return "booked"


def booking(turns):
    """Looks so many times, and then wants to book."""

    def play(request):
        if request.turn < turns:
            return call("look", n=request.turn)
        return call("book", n=1) if request.turn == turns else "done"

    return Scripted(play)


async def anew(store, run):
    """The state as somebody folds it who has never seen the run."""
    return await load(store.beside(), run)


def test_a_decision_on_a_long_run_reads_as_little_as_on_a_short_one():
    async def spent(turns):
        store = CountingStore()
        rt = runtime(booking(turns), [look, book], store=store, limits=FREE)
        await rt.run_async("a", "go", id="r")
        await load(store, "r")
        costs = []
        for ask in (
            lambda: rt.client.submit("r", Pause()),
            lambda: rt.client.submit("r", Resume()),
            lambda: rt.client.approve("r/1"),
            lambda: load(store, "r"),
        ):
            before = store.events_read
            await ask()
            costs.append(store.events_read - before)
        assert await load(store, "r") == await anew(store, "r")
        return costs

    async def main():
        few, many = await spent(3), await spent(200)
        assert few == many
        assert max(many) <= 1, "no more than the one event that came since"

    asyncio.run(main())


def test_a_second_process_folds_only_what_the_first_one_has_added():
    async def main():
        store = CountingStore()
        rt = runtime(booking(40), [look, book], store=store)
        await rt.run_async("a", "go", id="r")
        other = CountingStore(store.journals)
        await load(other, "r")
        other.events_read = 0
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        state = await load(other, "r")
        assert state.end is not None
        assert other.events_read < 15
        assert state == await anew(store, "r")

    asyncio.run(main())


def test_a_run_that_waited_behind_another_is_folded_anew_when_it_begins():
    async def main():
        store = InMemoryStore()
        rt = runtime(booking(2), [look, book], store=store)
        await rt.send_async("s", "first", agent="a")
        later = await rt.post_async("s", "second", mode="queue")
        assert (await load(store, later.run)).created.behind
        await rt.deny_async(f"{(await store.session_head('s')).run}/1")
        await rt.follow_async(later)
        state = await load(store, later.run)
        assert state == await anew(store, later.run)
        assert len(state.tasks) == 2, "the conversation before it is there"

    asyncio.run(main())


def test_a_fork_and_its_parent_stand_as_if_they_had_been_read_whole():
    async def main():
        store = InMemoryStore()
        rt = runtime(booking(3), [look, book], store=store)
        await rt.run_async("a", "go", id="r")
        at = (await store.info("r")).head
        await load(store, "r")
        await rt.fork_async("r", at, id="f", drive=False)
        for run in ("f", "r"):
            assert await load(store, run) == await anew(store, run)
        await rt.deny_async("f/1")
        await rt.drive_async("f")
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        for run in ("f", "r"):
            assert await load(store, run) == await anew(store, run)

    asyncio.run(main())


def test_what_another_process_has_erased_is_not_told_from_what_was_kept():
    async def main():
        store = InMemoryStore()
        rt = runtime(["ok"], store=store)
        run = await rt.run_async("a", "my number is 4711", principal=ANN)
        assert "4711" in str((await load(store, run.id)).messages)
        await store.beside().erase(ANN, rt.host.clock.now_us())
        with pytest.raises(RunErased):
            await load(store, run.id)
        folds = fold_cache.cache_of(store)
        assert folds.runs.find(await folds.age(store), run.id) is None

    asyncio.run(main())


def test_what_another_process_has_pruned_is_gone_here_too():
    async def main():
        store = InMemoryStore()
        rt = runtime(["ok"], store=store)
        run = await rt.run_async("a", "hello")
        await load(store, run.id)
        await store.beside().prune(2**60, now=2**61)
        with pytest.raises(UnknownRun):
            await load(store, run.id)

    asyncio.run(main())


def test_what_was_folded_is_kept_while_facts_grants_and_titles_change_beside_it():
    async def main():
        store = InMemoryStore()
        pay = tool(name="pay", effect="write")(lambda: "paid")
        rt = runtime(["ok"], [pay], store=store)
        run = await rt.run_async("a", "hello", session="s")
        folds = fold_cache.cache_of(store)
        age = await folds.age(store)
        await load(store, run.id)
        await rt.remember_async("likes tea")
        await rt.grant_async("pay")
        await rt.title_session_async("s", "tea")
        assert await folds.age(store) == age
        assert folds.runs.find(age, run.id) is not None
        await rt.erase_async("local")
        assert await fold_cache.cache_of(store).age(store) is not None
        assert fold_cache.cache_of(store).runs.find(age, run.id) is None

    asyncio.run(main())


@pytest.mark.parametrize("fault", [CorruptJournal("broken"), StoreBusy("held")])
def test_where_it_cannot_be_told_what_was_erased_nothing_kept_is_used(fault):
    async def main():
        store = Watched()
        rt = runtime(["ok"], store=store)
        run = await rt.run_async("a", "hello")
        folds = fold_cache.cache_of(store)
        whole = await load(store, run.id)

        async def before(name, *args, **kwargs):
            if name == "info" and args[0] == "store":
                raise fault

        store.before = before
        assert await folds.age(store) is None
        assert folds.runs.find(None, run.id) is None
        assert await load(store, run.id) == whole

    asyncio.run(main())


def test_what_is_kept_of_a_run_does_not_grow_with_who_goes_on_from_it():
    async def main():
        store = InMemoryStore()
        rt = runtime(booking(8), [look, book], store=store)
        await rt.run_async("a", "go", id="r")
        known = await load(store, "r")
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        kept = [each.state for each in fold_cache.cache_of(store).runs._held.values()]
        assert len(known.messages) < len((await load(store, "r")).messages)
        assert kept
        for state in kept:
            assert len(state.messages._items) == len(state.messages)

    asyncio.run(main())
