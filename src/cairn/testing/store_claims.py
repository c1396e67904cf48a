"""Promises of a store about claims: one owner at a time, and nobody waits for the dead."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.core.commands import Cancel
from cairn.core.state import RunState
from cairn.errors import Fenced
from cairn.ports import Claim, Store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_story import LATER, Story, create, drive


class ClaimPromises(Promises):
    """Claiming, releasing, dying, freezing."""

    def test_the_epoch_goes_up_with_every_claim_and_says_how_the_last_one_ended(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            assert await store.claim("r") == Claim(epoch=1, head=1, previous="new")
            told = story.tell(note("bye"))
            await store.append("r", 1, told, story.index, release=True)
            assert await store.claim("r") == Claim(epoch=2, head=2, previous="released")
            await store.append("r", 2, [], None, release=True)
            assert await store.claim("r") == Claim(epoch=3, head=2, previous="released")

        self.keep(promise)

    def test_a_run_somebody_drives_cannot_be_claimed(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r"))
            assert not (await other.info("r")).leased
            assert await store.claim("r") is not None
            assert await store.claim("r") is None
            assert await other.claim("r") is None
            assert (await store.info("r")).leased
            assert (await other.info("r")).leased
            await store.append("r", 1, [], None, release=True)
            assert not (await other.info("r")).leased
            assert await other.claim("r") == Claim(epoch=2, head=1, previous="released")
            assert await store.claim("r") is None
            await other.close()

        self.keep(promise)

    def test_of_claims_at_the_same_moment_exactly_one_is_given(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r"))
            answers = await asyncio.gather(*(s.claim("r") for s in (store, other) * 5))
            given = [answer for answer in answers if answer is not None]
            assert given == [Claim(epoch=1, head=1, previous="new")]
            await other.close()

        self.keep(promise)

    def test_the_runs_of_a_dead_process_are_free_at_once(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            assert await other.claim("r") is None
            self.die(store)
            assert await other.claim("r") == Claim(epoch=2, head=4, previous="dead")
            assert await other.read("r") == story.entries
            await other.close()

        self.keep(promise)

    def test_a_run_of_a_dead_process_can_be_cancelled_and_is_then_runnable(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            self.die(store)
            await other.submit("r", RunState(run="r"), Cancel(), LATER)
            assert await other.runnable([], LATER) == ["r"]
            assert await other.claim("r") == Claim(epoch=2, head=5, previous="dead")
            await other.close()

        self.keep(promise)

    def test_a_frozen_owner_loses_its_runs_and_can_write_nothing_when_it_wakes(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.ask())
            self.freeze(store)
            assert await other.claim("r") == Claim(epoch=2, head=4, previous="expired")
            told = story.tell(note("I am back"))
            await refused(Fenced, store.append("r", epoch, told, story.index))
            await refused(Fenced, store.append("r", epoch, [], None, release=True))
            assert len(await other.read("r")) == 4
            await other.append("r", 2, told, story.index)
            await other.close()

        self.keep(promise)

    def test_a_frozen_owner_stays_in_mind_until_something_is_written_after_it(self) -> None:
        async def promise(store: Store) -> None:
            second, third = self.beside(store), self.beside(store)
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            self.freeze(store)
            assert await second.claim("r") == Claim(epoch=2, head=4, previous="expired")
            await second.append("r", 2, [], None, release=True)
            assert await second.claim("r") == Claim(epoch=3, head=4, previous="released")
            self.die(second)
            assert await third.claim("r") == Claim(epoch=4, head=4, previous="expired")
            await third.append("r", 4, story.tell(note("it may wake up")), story.index)
            fourth = self.beside(third)
            self.die(third)
            assert await fourth.claim("r") == Claim(epoch=5, head=5, previous="dead")
            await fourth.close()

        self.keep(promise)

    def test_a_closed_store_leaves_its_claims_to_others_but_does_not_count_as_dead(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r"))
            await store.claim("r")
            await store.close()
            assert await other.claim("r") == Claim(epoch=2, head=1, previous="expired")
            await other.close()

        self.keep(promise)

    def test_a_claim_whose_caller_was_cancelled_holds_nothing(self) -> None:
        async def promise(store: Store) -> None:
            for n in range(5):
                await create(store, Story(f"r{n}"))
                task = asyncio.ensure_future(store.claim(f"r{n}"))
                for _ in range(n):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if task.cancelled():
                    await _until_free(store, f"r{n}")

        self.keep(promise)


async def _until_free(store: Store, run: str) -> None:
    while await store.claim(run) is None:  # noqa: ASYNC110 - nothing tells of a free run
        await asyncio.sleep(0.001)
