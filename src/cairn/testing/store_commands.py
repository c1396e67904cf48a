"""Promises of a store about commands: decided against the journal they land in, once."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.core import events as ev
from cairn.core.commands import (
    Answer,
    Approve,
    Cancel,
    Command,
    Deny,
    Late,
    Pause,
    Queue,
    Resolve,
    Resume,
)
from cairn.core.evolve import fold
from cairn.core.index import index_of
from cairn.core.messages import Text
from cairn.core.state import RunState
from cairn.errors import Moved, Refused, UnknownRun
from cairn.ports import Claim, Store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_story import LATER, START, Story, create, drive

SOON = START + 60_000_000


def fresh(run: str = "r") -> RunState:
    """What somebody knows who has read nothing."""
    return RunState(run=run)


class CommandPromises(Promises):
    """Submitting."""

    def test_a_command_becomes_one_event_and_the_line_follows(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask(), release=True)
            assert [item.id for item in await store.pending()] == ["r/1"]
            state, entry = await store.submit("r", story.state, Approve(n=1), SOON, "ann")
            assert entry is not None
            assert (entry.seq, entry.at, entry.actor, entry.step) == (5, SOON, "ann", 1)
            assert entry.event == ev.ApprovalGranted(n=1)
            entries = await store.read("r")
            assert entries == [*story.entries, entry]
            assert state == fold(fresh(), entries)
            line, index = await store.info("r"), index_of(state)
            assert (line.head, line.status, line.waits) == (5, index.status, index.waits)
            assert await store.pending() == []
            assert await store.verify("r") == 5

        self.keep(promise)

    def test_whatever_the_caller_has_seen_the_command_meets_the_present(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            early = story.state
            await drive(store, story, story.ask(), release=True)
            state, entry = await store.submit("r", early, Deny(n=1, message="no"), SOON)
            assert entry is not None
            assert state == fold(fresh(), await store.read("r"))

        self.keep(promise)

    def test_a_command_leaves_the_claim_alone_and_only_moves_the_head(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story, story.ask())
            other = self.beside(store)
            _, entry = await other.submit("r", fresh(), Queue(parts=(Text("hurry"),)), SOON)
            assert entry is not None
            assert (await store.info("r")).leased
            told = [ev.Entry(seq=5, at=SOON, event=note("late"))]
            await refused(Moved, store.append("r", epoch, told, None))
            story.follow(await store.read("r", 4))
            await store.append("r", epoch, story.tell(note("now"), at=SOON), story.index)
            assert await other.read("r") == story.entries
            await other.close()

        self.keep(promise)

    def test_a_refused_command_writes_nothing(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            commands: list[tuple[type[Exception], Command, int]] = [
                (Refused, Approve(n=1), LATER),
                (Refused, Approve(n=1, digest="not what was shown"), SOON),
                (Refused, Answer(n=1, text="7"), SOON),
                (UnknownRun, Deny(n=2), SOON),
                (UnknownRun, Resolve(call="c9", verdict="happened"), SOON),
            ]
            for kind, command, now in commands:
                await refused(kind, store.submit("r", fresh(), command, now))
            await refused(UnknownRun, store.submit("nobody", fresh("nobody"), Cancel(), SOON))
            assert await store.read("r") == story.entries

        self.keep(promise)

    def test_the_same_command_again_changes_nothing(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            for command in (Pause(), Resume(), Approve(n=1), Cancel(reason="enough")):
                _, first = await store.submit("r", fresh(), command, SOON)
                state, second = await store.submit("r", fresh(), command, SOON)
                assert first is not None
                assert second is None
                assert state.seq == first.seq == (await store.info("r")).head

        self.keep(promise)

    def test_of_two_decisions_at_the_same_moment_one_counts(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.ask())
            answers = await asyncio.gather(
                store.submit("r", story.state, Approve(n=1), SOON),
                other.submit("r", story.state, Deny(n=1), SOON),
                return_exceptions=True,
            )
            assert sum(isinstance(answer, Refused) for answer in answers) == 1
            assert len(await store.read("r")) == len(story.entries) + 1
            await other.close()

        self.keep(promise)

    def test_many_messages_at_once_are_all_kept_in_one_order(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r")
            await create(store, story)
            answers = await asyncio.gather(
                *(
                    home.submit("r", fresh(), Queue(parts=(Text(str(n)),)), SOON)
                    for n, home in enumerate((store, other) * 10)
                )
            )
            told = sorted((entry for _, entry in answers if entry), key=lambda entry: entry.seq)
            assert await other.read("r", 1) == told
            assert [entry.seq for entry in told] == list(range(2, 22))
            await other.close()

        self.keep(promise)

    def test_time_never_falls_within_a_run(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            _, entry = await store.submit("r", fresh(), Pause(), START - 1_000_000)
            assert entry is not None
            assert entry.at == story.entries[-1].at

        self.keep(promise)

    def test_an_outcome_that_comes_after_the_end_is_kept(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r")
            await create(store, story)
            await drive(store, story, story.doubt(), story.fail(), release=True)
            assert [item.id for item in await store.pending()] == ["r/c1"]
            state, entry = await store.submit("r", fresh(), Late(call="c1", ok=True), SOON)
            assert entry is not None
            assert (state.status.value, await store.pending()) == ("failed", [])

        self.keep(promise)

    def test_a_cancel_that_was_requested_wakes_whoever_can_end_the_run(self) -> None:
        async def promise(store: Store) -> None:
            for n, scene in enumerate((Story.ask, Story.doubt)):
                story = Story(f"r{n}")
                await create(store, story)
                await drive(store, story, scene(story), release=True)
                assert await store.runnable(["shop"], SOON) == []
                if n:
                    await store.submit(story.run, story.state, Pause(), SOON)
                    assert await store.runnable(["shop"], SOON) == []
                await store.submit(story.run, fresh(story.run), Cancel(), SOON)
                assert await store.runnable([], SOON) == [story.run]
                claim = await store.claim(story.run)
                assert claim is not None
                assert claim == Claim(epoch=2, head=claim.head, previous="released")
                story.follow(await store.read(story.run, story.state.seq))
                told = story.tell(ev.RunCancelled(), at=SOON)
                await store.append(story.run, 2, told, story.index, release=True)
                assert await store.runnable(["shop"], LATER) == []

        self.keep(promise)
