"""Promises of a store about journals: what is acknowledged is there, whole and in order."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.core.codec import GENESIS, check_chain, open_row
from cairn.core.events import ErrorRaised, InputQueued
from cairn.core.messages import Text
from cairn.errors import (
    ConfigError,
    ErrorClass,
    Fenced,
    IllegalTransition,
    Moved,
    SessionBusy,
    StoreClosed,
    UnknownRun,
)
from cairn.ports import Claim, NewRun, RunFilter, Store
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_story import START, Story, create, drive


def note(text: str) -> ErrorRaised:
    """An event that is allowed in any living run and changes nothing."""
    return ErrorRaised(error_class=ErrorClass.INTERNAL, message=text)


class JournalPromises(Promises):
    """Creating, appending, reading, verifying."""

    # ------------------------------------------------------------ create

    def test_a_new_run_is_there_exactly_as_it_was_handed_over(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r", session="s")
            assert await create(store, story) is None
            assert await store.read("r") == story.entries
            info = await store.info("r")
            assert (info.run, info.agent, info.session) == ("r", "shop", "s")
            assert (info.principal, info.digest) == ("ann", "digest of r")
            assert (info.head, info.status, info.leased) == (1, "queued", False)
            assert info.created_at == info.updated_at == story.entries[0].at

        self.keep(promise)

    def test_the_first_creation_of_an_id_wins_and_later_ones_are_told_of_it(self) -> None:
        async def promise(store: Store) -> None:
            first, second = Story("r"), Story("r", agent="other")
            await create(store, first)
            taken = await create(store, second)
            assert taken == await store.info("r")
            assert taken.agent == "shop"
            assert await store.read("r") == first.entries

        self.keep(promise)

    def test_of_creations_at_the_same_moment_exactly_one_wins(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            stories = [Story("r", agent=f"a{n}") for n in range(8)]
            homes = (store, other) * 4
            answers = await asyncio.gather(*map(create, homes, stories))
            winners = [s for s, a in zip(stories, answers, strict=True) if a is None]
            assert len(winners) == 1
            assert await store.read("r") == winners[0].entries
            assert {a.agent for a in answers if a} == {winners[0].new.agent}
            await other.close()

        self.keep(promise)

    def test_the_id_of_the_journal_for_everything_else_is_reserved(self) -> None:
        async def promise(store: Store) -> None:
            await refused(ConfigError, create(store, Story("store")))
            assert await store.read("store") == []
            assert await store.verify("store") == 0

        self.keep(promise)

    def test_a_session_has_one_active_run_at_a_time(self) -> None:
        async def promise(store: Store) -> None:
            first, second = Story("r1", session="s"), Story("r2", session="s")
            await create(store, first)
            busy = await refused(SessionBusy, create(store, second))
            assert busy.run == "r1"
            await refused(UnknownRun, store.info("r2"))
            await drive(store, first, first.finish(), release=True)
            assert await create(store, Story("r2", session="s")) is None
            newest = await store.session_head("s")
            assert newest == await store.info("r2")
            assert await store.session_head("nobody") is None

        self.keep(promise)

    def test_a_run_is_not_built_on_a_conversation_that_has_gone_on_meanwhile(self) -> None:
        async def promise(store: Store) -> None:
            first = Story("r1", session="s")
            await create(store, first)
            await drive(store, first, first.finish(), release=True)
            for stale in ("", "r0"):
                await refused(Moved, create(store, Story("r2", session="s", previous=stale)))
            await refused(UnknownRun, store.info("r2"))
            other = Story("r2", session="s", previous="r1")
            assert await create(store, other) is None
            assert await create(store, Story("r3", session="t", previous="")) is None

        self.keep(promise)

    def test_of_two_messages_to_a_session_at_the_same_moment_one_is_told_busy(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            stories = [Story("r1", session="s"), Story("r2", session="s")]
            answers = await asyncio.gather(
                create(store, stories[0]), create(other, stories[1]), return_exceptions=True
            )
            assert sorted(type(a).__name__ for a in answers) == ["NoneType", "SessionBusy"]
            await other.close()

        self.keep(promise)

    # ------------------------------------------------------------ append

    def test_what_was_acknowledged_is_read_back_gapless_and_in_order(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.ask())
            for n in range(20):
                told = story.tell(note(f"n{n}"), note(f"m{n}"))
                await store.append("r", epoch, told, story.index)
            assert await store.read("r") == story.entries
            assert [e.seq for e in story.entries] == list(range(1, len(story.entries) + 1))
            assert await store.verify("r") == len(story.entries)

        self.keep(promise)

    def test_what_was_acknowledged_survives_the_process(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            other = self.beside(store)
            self.die(store)
            assert await other.read("r") == story.entries
            assert await other.verify("r") == len(story.entries)
            assert (await other.info("r")).status == "waiting"
            await other.close()

        self.keep(promise)

    def test_order_is_by_number_even_when_all_happened_at_once(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            told = [e for n in range(5) for e in story.tell(note(str(n)), at=START + 1_000)]
            await drive(store, story, told)
            assert [e.event.message for e in await store.read("r", 1)] == list("01234")

        self.keep(promise)

    def test_an_append_at_an_old_head_is_refused_and_may_be_tried_at_the_new_one(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.tell(note("one")))
            stale = story.entries[-1:]
            await refused(Moved, store.append("r", epoch, stale, story.index))
            assert await store.read("r") == story.entries
            await store.append("r", epoch, story.tell(note("two")), story.index)
            assert await store.read("r") == story.entries

        self.keep(promise)

    def test_only_the_present_epoch_may_append(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            told = story.tell(note("one"))
            for epoch in (0, 1, 7):
                await refused(Fenced, store.append("r", epoch, told, story.index))
            claim = await store.claim("r")
            assert claim == Claim(epoch=1, head=1, previous="new")
            for epoch in (0, 2):
                await refused(Fenced, store.append("r", epoch, told, story.index))
                await refused(Fenced, store.append("r", epoch, [], None, release=True))
            assert (await store.info("r")).head == 1
            await store.append("r", 1, told, story.index)

        self.keep(promise)

    def test_losing_the_claim_counts_before_losing_the_head(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.tell(note("one")))
            stale = story.entries[-1:]
            await refused(Fenced, store.append("r", epoch + 1, stale, story.index))

        self.keep(promise)

    def test_entries_with_a_gap_among_them_are_refused_whole(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story)
            told = story.tell(note("one"), note("two"), note("three"))
            holed = [told[0], told[2]]
            await refused(IllegalTransition, store.append("r", epoch, holed, story.index))
            assert (await store.info("r")).head == 1
            await refused(
                IllegalTransition,
                store.create(NewRun(run="q", agent="a", digest="d"), holed, story.index),
            )

        self.keep(promise)

    def test_a_refused_append_is_nobody_elses_business(self) -> None:
        async def promise(store: Store) -> None:
            stories = [Story(f"r{n}") for n in range(30)]
            await asyncio.gather(*(create(store, story) for story in stories))
            wishes = []
            for n, story in enumerate(stories):
                claim = await store.claim(story.run)
                assert claim is not None
                told = story.tell(note("a"), note("b"))
                epoch = claim.epoch + (n % 3 == 1)
                entries = told[1:] if n % 3 == 2 else told
                wishes.append(store.append(story.run, epoch, entries, story.index))
            answers = await asyncio.gather(*wishes, return_exceptions=True)
            expected = [type(None), Fenced, Moved] * 10
            assert [type(answer) for answer in answers] == expected
            heads = [(await store.info(story.run)).head for story in stories]
            assert heads == [3, 1, 1] * 10

        self.keep(promise)

    def test_the_line_shows_the_index_of_the_last_write_and_keeps_it_without_one(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.ask())
            line = await store.info("r")
            index = story.index
            assert (line.status, line.waits, line.wake_at) == (
                "waiting",
                ("approval",),
                index.wake_at,
            )
            assert (line.steps, line.tokens, line.micro_usd) == (1, 9, 0)
            assert line.updated_at == story.entries[-1].at
            told = story.tell(note("beside the point"))
            await store.append("r", epoch, told, None)
            later = await store.info("r")
            assert (later.status, later.waits, later.head) == ("waiting", ("approval",), 5)

        self.keep(promise)

    def test_large_payloads_and_strange_text_come_back_as_they_were(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            texts = ["x" * 100_000, "x" * 100_000, "\x00\u2028 日本語 🪨 \\u0000", "", "y" * 8_200]
            told = [e for text in texts for e in story.tell(note(text))]
            parts = tuple(Text(text) for text in texts)
            told += story.tell(InputQueued(parts=parts))
            await drive(store, story, told)
            assert await store.read("r") == story.entries
            assert await store.verify("r") == len(story.entries)

        self.keep(promise)

    # ------------------------------------------------------------ read and verify

    def test_a_read_gives_what_lies_between_two_numbers(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, [e for n in range(9) for e in story.tell(note(str(n)))])
            for after, upto in ((0, 0), (3, 0), (3, 7), (0, 1), (10, 0), (4, 4), (9, 99)):
                expected = [e for e in story.entries if after < e.seq <= (upto or 10)]
                assert await store.read("r", after, upto) == expected

        self.keep(promise)

    def test_rows_are_salted_and_chained_from_the_first_to_the_last(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            rows = await store.rows("r")
            assert check_chain("r", rows, GENESIS) == rows[-1].hash
            assert [open_row(row) for row in rows] == story.entries
            assert len({row.salt for row in rows}) == len(rows)
            assert {len(row.salt) for row in rows} == {16}

        self.keep(promise)

    def test_a_fork_reads_its_parents_past_but_not_its_future(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.ask())
            fork = Story("f", parent=story, at=3)
            await create(store, fork)
            await store.append("r", epoch, story.tell(note("after the fork")), story.index)
            await drive(store, fork, fork.tell(note("another way")))
            assert await store.read("f") == fork.entries
            assert await store.read("f", 1, 4) == fork.entries[1:4]
            assert [row.seq for row in await store.rows("f")] == [4, 5]
            assert await store.verify("f") == 5
            line = await store.info("f")
            assert (line.parent, line.parent_at, line.head) == ("r", 3, 5)
            parent_rows = await store.rows("r")
            check_chain("f", await store.rows("f"), parent_rows[2].hash)

        self.keep(promise)

    def test_a_fork_of_a_fork_may_share_only_the_oldest_part(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, [e for n in range(5) for e in story.tell(note(str(n)))])
            middle = Story("m", parent=story, at=4)
            await create(store, middle)
            await drive(store, middle, middle.tell(note("m1"), note("m2")))
            for run, at in (("old", 2), ("edge", 4), ("new", 6)):
                leaf = Story(run, parent=middle, at=at)
                await create(store, leaf)
                await drive(store, leaf, leaf.tell(note(run)))
                assert await store.read(run) == leaf.entries
                assert await store.verify(run) == len(leaf.entries) == at + 2

        self.keep(promise)

    def test_a_fork_needs_a_parent_that_goes_so_far(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            for parent, at in (("nobody", 1), ("r", 2)):
                new = NewRun(run="f", agent="a", digest="d", parent=parent, parent_at=at)
                await refused(UnknownRun, store.create(new, [], story.index))
            await refused(UnknownRun, store.info("f"))

        self.keep(promise)

    def test_a_run_nobody_made_is_unknown_to_every_question(self) -> None:
        async def promise(store: Store) -> None:
            questions = (store.info, store.read, store.rows, store.verify, store.claim)
            for question in questions:
                await refused(UnknownRun, question("nobody"))
            await refused(UnknownRun, store.append("nobody", 1, [], None, release=True))
            await refused(UnknownRun, store.changed("nobody", 0, 0.0))

        self.keep(promise)

    def test_a_closed_store_says_so(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await store.close()
            await refused(StoreClosed, store.read("r"))
            await refused(StoreClosed, store.claim("r"))
            await refused(StoreClosed, store.append("r", 1, story.tell(note("too late")), None))
            await refused(StoreClosed, store.runs(RunFilter()))
            await refused(StoreClosed, store.news(0, 0.0))

        self.keep(promise)
