"""Promises of a store about retention: only what is over and needed by nobody goes."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

from cairn.core.commands import Resolve
from cairn.core.events import SessionForked, SessionRemoved, SessionTitled, StorePruned
from cairn.core.messages import Text
from cairn.core.state import RunState
from cairn.errors import UnknownRun
from cairn.ports import RunFilter, Store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_sessions import said, stands_at
from cairn.testing.store_story import LATER, Story, create, drive


async def over(store: Store, run: str, *, session: str = "") -> Story:
    """A run that was completed."""
    story = Story(run, session=session)
    await create(store, story)
    await drive(store, story, story.finish(), release=True)
    return story


class RetentionPromises(Promises):
    """Pruning."""

    def test_a_pruned_run_is_gone_and_its_hash_stays(self) -> None:
        async def promise(store: Store) -> None:
            story = await over(store, "r")
            rows = await store.rows("r")
            before = story.entries[-1].at + 1
            assert await store.prune(before - 1) == []
            assert await store.prune(before, dry_run=True) == ["r"]
            assert len(await store.rows("r")) == len(rows)
            assert await store.prune(before) == ["r"]
            assert await store.prune(before) == []
            await refused(UnknownRun, store.read("r"))
            (tombstone,) = await store.read("store")
            assert tombstone.event == StorePruned(
                run="r", head=len(rows), hash=rows[-1].hash.hex(), status="completed"
            )
            assert await store.verify("store") == 1
            assert await store.runs(RunFilter()) == []

        self.keep(promise)

    def test_sessions_that_have_no_run_any_more_are_named(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "a", session="one")
            await over(store, "b", session="two")
            await over(store, "c")
            await create(store, Story("d", session="two", previous=None))
            assert (await store.prune(LATER, dry_run=True)).sessions == ()
            gone = await store.prune(LATER)
            assert (sorted(gone), gone.sessions) == (["a", "c"], ("one",))

        self.keep(promise)

    def test_what_still_runs_waits_or_is_held_stays(self) -> None:
        async def promise(store: Store) -> None:
            stories = [Story("queued"), Story("waiting"), Story("held")]
            for story in stories:
                await create(store, story)
            await drive(store, stories[1], stories[1].ask(), release=True)
            await drive(store, stories[2], stories[2].finish())
            assert await store.prune(LATER) == []
            await store.append("held", 1, [], None, release=True)
            assert await store.prune(LATER) == ["held"]

        self.keep(promise)

    def test_a_run_stays_while_a_fork_of_it_stays(self) -> None:
        async def promise(store: Store) -> None:
            parent = await over(store, "r")
            fork = Story("f", parent=parent, at=1)
            await create(store, fork)
            assert await store.prune(LATER) == []
            assert await store.verify("f") == 2
            await drive(store, fork, fork.finish(), release=True)
            assert await store.prune(LATER) == ["f", "r"]
            assert await store.verify("store") == 2

        self.keep(promise)

    def test_a_session_that_lives_keeps_its_past(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r1", session="s")
            await over(store, "other", session="t")
            story = Story("r2", session="s")
            await create(store, story)
            assert await store.prune(LATER) == ["other"]
            await drive(store, story, story.finish(), release=True)
            assert await store.prune(LATER) == ["r2", "r1"]

        self.keep(promise)

    def test_a_run_with_an_unknown_effect_stays_until_somebody_says_what_came_of_it(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.doubt(), story.fail(), release=True)
            assert await store.prune(LATER) == []
            command = Resolve(call="c1", verdict="happened")
            await store.submit("r", RunState(run="r"), command, LATER)
            assert await store.pending() == []
            assert await store.prune(LATER + 1) == ["r"]

        self.keep(promise)

    def test_what_stays_is_whole_after_a_prune(self) -> None:
        async def promise(store: Store) -> None:
            text = "shared by both " * 1_000
            kept, gone = Story("kept"), Story("gone")
            for story in (kept, gone):
                await create(store, story)
                await drive(store, story, story.tell(note(text)))
            await store.append("gone", 1, gone.reply(Text("done")), gone.index)
            await store.append("gone", 1, gone.fail(), gone.index, release=True)
            assert await store.prune(LATER) == ["gone"]
            assert await store.read("kept") == kept.entries
            assert await store.verify("kept") == len(kept.entries)
            again = Story("gone")
            await create(store, again)
            assert await store.read("gone") == again.entries

        self.keep(promise)

    # ------------------------------------------------------------ forks without a run

    def test_a_fork_in_which_nothing_was_said_yet_is_removed_by_its_name(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r1", session="s")
            await said(store, SessionForked(session="f", run="r1", of="s"))
            assert await store.prune(LATER, session="f") == [], "it is not that old"
            would = await store.prune(LATER + 1, True, "f")
            assert (would, would.forks) == ([], ("f",)), "it is named before it goes"
            other = await store.prune(LATER + 1, session="s")
            assert (other, other.forks) == ([], ()), "that is another one"
            assert await stands_at(store, "f") == "r1"
            gone = await store.prune(LATER + 1, session="f")
            assert (gone, gone.forks) == ([], ("f",)), "and when it went"
            await refused(UnknownRun, store.session("f"))
            assert (await store.read("store"))[-1].event == SessionRemoved(notes=(1,))
            assert await store.prune(LATER + 1) == ["r1"]

        self.keep(promise)

    def test_a_fork_in_which_nothing_was_said_for_so_long_goes_and_holds_nothing(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, "r1", session="s")
            await said(store, SessionForked(session="f", run="r1", of="s"))
            await said(store, SessionForked(session="g", run="r1", of="s"))
            await said(store, SessionTitled(session="f", title="Lamps"))
            begun = Story("g1", session="g", after=first)
            await create(store, begun)
            assert await store.prune(LATER) == [], "it is not that old"
            assert await store.prune(LATER + 1, True) == []
            assert await stands_at(store, "f") == "r1"
            assert await store.prune(LATER + 1) == [], "one has begun, and goes on from it"
            await refused(UnknownRun, store.session("f"))
            told = [entry.event for entry in await store.read("store")]
            assert told[-1] == SessionRemoved(notes=(1, 3))
            assert told[1] == SessionForked(session="g", run="r1", of="s")
            await drive(store, begun, begun.finish(), release=True)
            for name in "hi":
                await said(store, SessionForked(session=name, run="r1", of="s"))
            rows = await store.rows("store")
            assert await store.prune(LATER + 1, True) == ["g1", "r1"]
            assert await store.rows("store") == rows, "it only looked"
            assert await store.prune(LATER + 1) == ["g1", "r1"]
            assert await store.sessions() == []
            assert (await store.read("store"))[-1].event == SessionRemoved(notes=(2, 5, 6))
            assert await store.verify("store") == (await store.info("store")).head

        self.keep(promise)

    def test_what_is_removed_is_recorded_at_the_time_that_it_is_for_who_removes_it(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, "r1", session="s")
            await over(store, "r2")
            await said(store, SessionTitled(session="s", title="Lamps"))
            now = LATER + 7_000_000
            assert await store.prune(LATER, session="s", now=now) == [first.run]
            assert [entry.at for entry in await store.read("store")] == [LATER, now, now]
            assert await store.prune(LATER, now=LATER) == ["r2"]
            assert (await store.read("store"))[-1].at == now, "time never falls"

        self.keep(promise)
