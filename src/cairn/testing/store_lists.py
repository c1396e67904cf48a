"""Promises of a store about its lists, and about who is told of news."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.core.commands import Approve, Queue
from cairn.core.events import SessionForked
from cairn.core.messages import Text
from cairn.core.state import RunState
from cairn.ports import RunFilter, Store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import Promises
from cairn.testing.store_sessions import said
from cairn.testing.store_story import LATER, START, Story, create, drive

SOON = START + 60_000_000
PATIENCE_S = 20.0
"""How long news may take on a busy machine; nothing waits so long when all is well."""


class ListPromises(Promises):
    """The run table, the inbox, what is runnable, news."""

    def test_runs_are_listed_newest_first_and_by_what_they_are(self) -> None:
        async def promise(store: Store) -> None:
            stories = [
                Story("a", agent="shop", session="s"),
                Story("b", agent="desk"),
                Story("c", agent="shop"),
            ]
            for story in stories:
                await create(store, story)
            await drive(store, stories[0], stories[0].finish(), release=True)

            async def listed(where: RunFilter) -> list[str]:
                return [line.run for line in await store.runs(where)]

            assert await listed(RunFilter()) == ["c", "b", "a"]
            assert await listed(RunFilter(limit=2)) == ["c", "b"]
            assert await listed(RunFilter(agent="shop")) == ["c", "a"]
            assert await listed(RunFilter(session="s")) == ["a"]
            assert await listed(RunFilter(principal="ann", limit=1)) == ["c"]
            assert await listed(RunFilter(principal="bob")) == []
            assert await listed(RunFilter(status=("queued",), agent="desk")) == ["b"]
            assert await listed(RunFilter(status=("completed", "failed"))) == ["a"]
            assert await store.runs(RunFilter(session="s")) == [await store.info("a")]

        self.keep(promise)

    def test_the_runs_that_go_on_from_a_run_are_listed(self) -> None:
        async def promise(store: Store) -> None:
            first = Story("r1", session="s")
            await create(store, first)
            waits = Story("r2", session="s", behind="r1")
            await create(store, waits)
            epoch = await drive(store, first)
            at = first.state.seq
            await store.append("r1", epoch, first.fail(), first.index, release=True)

            async def listed(where: RunFilter) -> list[str]:
                return [line.run for line in await store.runs(where)]

            assert await listed(RunFilter(previous="r1")) == [], "it has not begun"
            epoch = await drive(store, waits, waits.go_on(first))
            assert await listed(RunFilter(previous="r1")) == ["r2"]
            await store.append("r2", epoch, waits.finish(), waits.index, release=True)
            await create(store, Story("f", parent=first, at=at))
            assert await listed(RunFilter(previous="r1")) == ["r2"], "a fork is no part of it"
            await said(store, SessionForked(session="q", run="r1", of="s"))
            elsewhere = Story("q1", session="q", agent="desk", after=first)
            await create(store, elsewhere)
            assert await listed(RunFilter(previous="r1")) == ["q1", "r2"]
            assert await listed(RunFilter(previous="r1", session="s")) == ["r2"]
            assert await listed(RunFilter(previous="r1", agent="desk")) == ["q1"]
            assert await listed(RunFilter(previous="r1", limit=1)) == ["q1"]
            assert await listed(RunFilter(previous="r2")) == []
            assert await listed(RunFilter(previous="nobody")) == []

        self.keep(promise)

    def test_a_retry_is_listed_with_those_that_go_on_from_the_run(self) -> None:
        async def promise(store: Store) -> None:
            first = Story("r1", session="s")
            await create(store, first)
            await drive(store, first, first.fail(), release=True)
            again = Story("r2", session="s", parent=first, at=len(first.entries) - 1)
            await create(store, again)
            after = [line.run for line in await store.runs(RunFilter(previous="r1"))]
            assert after == ["r2"]

        self.keep(promise)

    def test_what_waits_for_people_is_listed_oldest_first_and_keeps_its_place(self) -> None:
        async def promise(store: Store) -> None:
            first, second = Story("a"), Story("b")
            await create(store, first)
            await create(store, second)
            epoch = await drive(store, second, second.ask())
            await drive(store, first, first.ask())
            assert [item.id for item in await store.pending()] == ["b/1", "a/1"]
            assert (await store.pending())[0] == second.index.pending[0]
            await store.append("b", epoch, second.tell(note("still open")), second.index)
            assert [item.id for item in await store.pending()] == ["b/1", "a/1"]
            assert [item.id for item in await store.pending(limit=1)] == ["b/1"]
            await store.submit("b", second.state, Approve(n=1), SOON)
            assert [item.id for item in await store.pending()] == ["a/1"]

        self.keep(promise)

    def test_what_can_be_driven_is_named_oldest_first(self) -> None:
        async def promise(store: Store) -> None:
            stories = {name: Story(name) for name in ("queued", "mine", "waiting", "open", "over")}
            stories["foreign"] = Story("foreign", agent="desk")
            for story in stories.values():
                await create(store, story)
            await drive(store, stories["mine"])
            await drive(store, stories["waiting"], stories["waiting"].ask(), release=True)
            await drive(store, stories["open"], stories["open"].call(), release=True)
            await drive(store, stories["over"], stories["over"].finish(), release=True)
            other = self.beside(store)
            for home in (store, other):
                assert await home.runnable(["shop"], SOON) == ["queued", "open"]
                assert await home.runnable(["shop"], SOON, limit=1) == ["queued"]
                assert await home.runnable(["shop"], LATER) == ["queued", "waiting", "open"]
                assert await home.runnable(["desk", "other"], SOON) == ["foreign"]
                assert await home.runnable([], LATER) == []
            self.die(store)
            await other.claim("queued")
            assert await other.claim("mine") is not None
            await other.append("mine", 2, [], None, release=True)
            assert await other.runnable(["shop"], SOON) == ["mine", "open"]
            await other.close()

        self.keep(promise)

    # ------------------------------------------------------------ news

    def test_who_asks_for_what_is_there_already_does_not_wait(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            assert await store.changed("r", 0, PATIENCE_S)
            assert await store.news(0, PATIENCE_S) > 0

        self.keep(promise)

    def test_without_news_the_time_out_is_the_answer(self) -> None:
        async def promise(store: Store) -> None:
            await create(store, Story("r"))
            assert not await store.changed("r", 1, 0.01)
            token = await store.news(0, 0.01)
            while (now := await store.news(token, 0.2)) != token:
                token = now

        self.keep(promise)

    def test_a_write_wakes_who_waits_for_the_run_or_for_anything(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story, quiet = Story("r"), Story("q")
            await create(store, story)
            await create(store, quiet)
            token = await store.news(0, PATIENCE_S)
            told = asyncio.gather(
                store.changed("r", 1, PATIENCE_S),
                other.changed("r", 1, PATIENCE_S),
                store.changed("r", 2, PATIENCE_S),
                store.news(token, PATIENCE_S),
            )
            unmoved = asyncio.ensure_future(store.changed("q", 1, PATIENCE_S))
            await asyncio.sleep(0.05)
            await drive(store, story, story.tell(note("a")))
            await other.submit("r", RunState(run="r"), Queue(parts=(Text("b"),)), SOON)
            *changed, newer = await told
            assert changed == [True, True, True]
            assert newer > token
            assert not unmoved.done()
            unmoved.cancel()
            await asyncio.gather(unmoved, return_exceptions=True)
            await other.close()

        self.keep(promise)

    def test_news_of_other_processes_counts_even_if_nobody_waited_when_it_came(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r"))
            token = await other.news(0, PATIENCE_S)
            await create(store, Story("q"))
            assert await other.news(token, PATIENCE_S) > token
            await other.close()

        self.keep(promise)

    def test_who_stops_waiting_leaves_nothing_behind(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            waits = [store.changed("r", 1, PATIENCE_S), store.news(10**9, PATIENCE_S)]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)
            await drive(store, story, story.tell(note("a")))
            assert await store.changed("r", 1, PATIENCE_S)

        self.keep(promise)
