"""Promises of a store about sessions: who goes on, who waits, and what nobody has read yet."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.core.commands import Cancel, Queue
from cairn.core.events import (
    Entry,
    ErasedFact,
    Event,
    RunCancelled,
    RunRef,
    SessionForked,
    SessionRemoved,
    SessionRewound,
    SessionTitled,
)
from cairn.core.messages import Principal, Text
from cairn.core.state import RunState
from cairn.errors import Moved, SessionBusy, UnknownRun
from cairn.ports import Store
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_story import LATER, START, Story, create, drive

SOON = START + 60_000_000


async def message(store: Store, story: Story, text: str, id: str = "") -> Entry | None:
    """A message to a run; the story knows of it then."""
    command = Queue(parts=(Text(text),), id=id)
    _, entry = await store.submit(story.run, RunState(run=story.run), command, SOON)
    if entry is not None:
        story.follow([entry])
    return entry


async def said(store: Store, *facts: Event) -> None:
    """Facts of the journal `store`."""
    head = (await store.info("store")).head
    entries = [Entry(seq=head + n, at=LATER, event=fact) for n, fact in enumerate(facts, 1)]
    await store.keep(head, entries)


async def begin(store: Store, story: Story, before: Story) -> int:
    """Claim a run that waited and have it go on from another; the epoch."""
    claim = await store.claim(story.run)
    assert claim is not None
    await store.append(story.run, claim.epoch, story.go_on(before), story.index)
    return claim.epoch


async def stands_at(store: Store, session: str) -> str:
    """The run a session stands at."""
    head = await store.session_head(session)
    return head.run if head is not None else ""


async def three(store: Store) -> tuple[Story, Story, Story]:
    """An active run of session `s`, and two that wait behind it."""
    stories = (
        Story("r1", session="s", previous=""),
        Story("r2", session="s", behind="r1"),
        Story("r3", session="s", behind="r1"),
    )
    for story in stories:
        assert await create(store, story) is None
    return stories


async def over(store: Store, story: Story) -> Story:
    """The story, completed."""
    assert await create(store, story) is None
    await drive(store, story, story.finish(), release=True)
    return story


class SessionPromises(Promises):
    """Waiting in line, unread messages, titles, rewinds and forks."""

    def test_runs_of_a_session_wait_in_line_and_go_on_one_by_one(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            first, second, third = await three(store)
            assert [r.behind for r in await other.session_open("s")] == ["", "r1", "r1"]
            assert await store.runnable(["shop"], SOON) == ["r1"]
            assert await other.claim("r2") is None
            await drive(store, first, first.finish(), release=True)
            assert [r.behind for r in await other.session_open("s")] == ["", "r2"]
            assert (await other.info("r2")).behind == ""
            assert await other.runnable(["shop"], SOON) == ["r2"]
            assert await stands_at(store, "s") == "r1", "it has not begun yet"
            assert await store.claim("r3") is None
            epoch = await begin(store, second, first)
            assert [r.run for r in await other.session_open("s")] == ["r2", "r3"]
            assert await stands_at(other, "s") == "r2"
            assert await other.claim("r3") is None
            await store.append("r2", epoch, second.finish(), second.index, release=True)
            await begin(other, third, second)
            assert (await store.info("r3")).behind == ""
            await other.close()

        self.keep(promise)

    def test_what_has_nothing_to_wait_behind_is_told_so(self) -> None:
        async def promise(store: Store) -> None:
            await refused(Moved, create(store, Story("r1", session="s", behind="r0")))
            first, *_ = await three(store)
            busy = await refused(SessionBusy, create(store, Story("r4", session="s")))
            assert busy.run == "r1"
            await drive(store, first, first.finish(), release=True)
            busy = await refused(SessionBusy, create(store, Story("r4", session="s")))
            assert busy.run == "r2", "who waits goes first"

        self.keep(promise)

    def test_of_many_who_come_at_once_each_has_its_place(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r", session="s", previous=""))
            stories = [Story(f"q{n}", session="s", behind="r") for n in range(8)]
            homes = (store, other) * 4
            assert set(await asyncio.gather(*map(create, homes, stories))) == {None}
            line = [run.run for run in await store.session_open("s")]
            assert line[0] == "r"
            assert sorted(line[1:]) == [story.run for story in stories]
            assert line == [run.run for run in await other.session_open("s")]
            await other.close()

        self.keep(promise)

    def test_who_waits_can_be_cancelled_and_is_then_no_part_of_the_session(self) -> None:
        async def promise(store: Store) -> None:
            first, second, third = await three(store)
            _, entry = await store.submit("r2", second.state, Cancel(), SOON)
            assert entry is not None
            second.follow([entry])
            assert await store.runnable([], SOON) == ["r2"]
            await drive(store, second, second.tell(RunCancelled(reason="enough")), release=True)
            assert [r.run for r in await store.session_open("s")] == ["r1", "r3"]
            await drive(store, first, first.finish(), release=True)
            assert await stands_at(store, "s") == "r1"
            await begin(store, third, first)

        self.keep(promise)

    # ------------------------------------------------------------ messages

    def test_a_message_is_taken_once_under_its_id(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            story = Story("r", session="s")
            await create(store, story)
            entry = await message(store, story, "hello", "m1")
            assert entry is not None
            assert await message(other, story, "hello", "m1") is None
            assert await message(store, story, "hello", "r") is None, "a run has this id"
            assert await message(store, story, "hello") is not None, "without one it is another"
            where = await other.message("m1")
            assert where == RunRef(run="r", seq=entry.seq)
            assert await store.message("r") == RunRef(run="r", seq=1)
            assert await store.message("m2") is None
            await drive(store, story, story.fail(), release=True)
            taken = await create(other, Story("m1", session="s"))
            assert taken.run == "r"
            await refused(UnknownRun, store.info("m1"))
            await other.close()

        self.keep(promise)

    def test_of_the_same_message_from_two_hands_one_is_taken(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await create(store, Story("r", session="s"))
            command = Queue(parts=(Text("hello"),), id="m1")
            answers = await asyncio.gather(
                *(home.submit("r", RunState(run="r"), command, SOON) for home in (store, other) * 4)
            )
            assert len([entry for _, entry in answers if entry is not None]) == 1
            assert len(await store.read("r")) == 2
            await other.close()

        self.keep(promise)

    def test_what_a_run_left_unread_is_named_until_another_takes_it_over(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            first = Story("r1", session="s", previous="")
            await create(store, first)
            await message(store, first, "hello")
            assert await store.unread(["shop"]) == [], "it may yet read it"
            await drive(store, first, first.fail(), release=True)
            assert (await store.info("r1")).unread == 1
            assert await other.unread(["shop"]) == ["r1"]
            assert await other.unread(["desk"]) == []
            assert await store.prune(LATER) == [], "nobody has read it"
            second = Story("r2", session="s", previous="r1")
            await create(other, second)
            assert await store.unread(["shop"]) == []
            assert (await store.info("r1")).unread == 0
            await drive(store, second, second.finish(), release=True)
            assert await other.unread(["shop"]) == []
            assert await store.prune(LATER) == ["r2", "r1"]
            await other.close()

        self.keep(promise)

    def test_who_waits_behind_takes_over_what_was_left_unread(self) -> None:
        async def promise(store: Store) -> None:
            first, second, _ = await three(store)
            await message(store, first, "hello")
            await drive(store, first, first.fail(), release=True)
            assert await store.unread(["shop"]) == [], "somebody waits who will"
            assert (await store.info("r1")).unread == 1
            await begin(store, second, first)
            assert (await store.info("r1")).unread == 0

        self.keep(promise)

    def test_what_comes_out_later_does_not_bring_back_what_was_taken_over(self) -> None:
        async def promise(store: Store) -> None:
            first = Story("r1", session="s", previous="")
            await create(store, first)
            claim = await store.claim("r1")
            assert claim is not None
            await store.append("r1", claim.epoch, first.doubt(), first.index)
            await message(store, first, "hello")
            await store.append("r1", claim.epoch, first.fail(), first.index, release=True)
            assert await store.unread(["shop"]) == ["r1"]
            second = Story("r2", session="s", previous="r1")
            await create(store, second)
            await drive(store, second, second.finish(), release=True)
            claim = await store.claim("r1")
            assert claim is not None
            late = first.tell(first.late())
            await store.append("r1", claim.epoch, late, first.index, release=True)
            assert (await store.info("r1")).unread == 0

        self.keep(promise)

    # ------------------------------------------------------------ titles, rewinds, forks

    def test_sessions_are_listed_with_what_is_said_of_them(self) -> None:
        async def promise(store: Store) -> None:
            for name in ("s", "t"):
                story = Story(f"{name}1", session=name)
                await create(store, story)
                await drive(store, story, story.finish(), release=True)
            await create(store, Story("alone"))
            await said(store, SessionTitled(session="s", title="Refunds"))
            lines = await store.sessions()
            assert [(line.session, line.title, line.head) for line in lines] == [
                ("t", "", "t1"),
                ("s", "Refunds", "s1"),
            ]
            assert (lines[1].agent, lines[1].principal, lines[1].status) == (
                *("shop", "ann", "completed"),
            )
            assert (lines[1].runs, lines[1].open) == (1, 0)
            assert await store.session("s") == lines[1]
            assert await store.sessions(principal="bob") == []
            assert [line.session for line in await store.sessions(limit=1)] == ["t"]
            await refused(UnknownRun, store.session("nobody"))
            await create(store, Story("s2", session="s"))
            assert [line.session for line in await store.sessions()] == ["s", "t"]
            assert (await store.session("s")).open == 1

        self.keep(promise)

    def test_a_session_that_is_rewound_stands_at_an_earlier_run(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            for n, previous in ((1, ""), (2, "r1"), (3, "r2")):
                story = Story(f"r{n}", session="s", previous=previous)
                await create(store, story)
                fact = SessionRewound(session="s", run="r1", newest=f"r{n}")
                busy = await refused(SessionBusy, said(store, fact))
                assert busy.run == f"r{n}"
                await drive(store, story, story.finish(), release=True)
            await refused(Moved, said(store, SessionRewound(session="s", run="r1", newest="r2")))
            gone = SessionRewound(session="s", run="r9", newest="r3")
            await refused(UnknownRun, said(store, gone))
            assert await store.read("store") == []
            await said(other, SessionRewound(session="s", run="r1", newest="r3"))
            assert await stands_at(store, "s") == "r1"
            await refused(Moved, create(store, Story("r4", session="s", previous="r3")))
            await create(store, Story("r4", session="s", previous="r1"))
            assert await stands_at(other, "s") == "r4"
            assert len(await store.read("r3")) > 1, "nothing is rewritten"
            assert await store.verify("store") == 1
            await other.close()

        self.keep(promise)

    def test_a_session_that_is_forked_stands_at_another_ones_run_and_keeps_it(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r1", session="s")
            await create(store, story)
            await drive(store, story, story.finish(), release=True)
            fact = SessionForked(session="f", run="r1", of="s")
            await refused(UnknownRun, said(store, SessionForked(session="f", run="r9", of="s")))
            await refused(Moved, said(store, SessionForked(session="s", run="r1", of="s")))
            await said(store, fact)
            await refused(Moved, said(store, fact))
            assert await stands_at(store, "f") == "r1"
            line = await store.session("f")
            assert (line.head, line.runs, line.principal) == ("r1", 0, "ann")
            assert [line.session for line in await store.sessions()] == ["f", "s"]
            assert await store.prune(LATER) == [], "another session goes on from it"
            await refused(Moved, create(store, Story("f1", session="f", previous="")))
            await create(store, Story("f1", session="f", previous="r1"))
            assert await stands_at(store, "s") == "r1"

        self.keep(promise)

    def test_only_one_session_is_pruned_if_it_is_named(self) -> None:
        async def promise(store: Store) -> None:
            for name in ("s", "t"):
                story = Story(f"{name}1", session=name)
                await create(store, story)
                await drive(store, story, story.finish(), release=True)
            assert await store.prune(LATER, True, "s") == ["s1"]
            assert await store.prune(LATER, session="s") == ["s1"]
            assert (await store.session("t")).head == "t1"
            await refused(UnknownRun, store.session("s"))

        self.keep(promise)

    def test_of_a_principal_in_a_tenant_as_many_sessions_are_listed_as_are_asked_for(self) -> None:
        async def promise(store: Store) -> None:
            for n in range(6):
                story = Story(f"r{n}", session=f"s{n}")
                story.principal = Principal(tenant="ab"[n % 2])
                await create(store, story)
            first = Story("q", session="q")
            first.principal = Principal(tenant="a")
            await over(store, first)
            await said(store, SessionForked(session="f", run="q", of="q"))

            async def listed(tenant: str | None, limit: int) -> list[str]:
                lines = await store.sessions("ann", limit, tenant)
                return [line.session for line in lines]

            assert await listed("b", 3) == ["s5", "s3", "s1"]
            assert await listed("a", 3) == ["f", "q", "s4"]
            assert await listed("a", 9) == ["f", "q", "s4", "s2", "s0"]
            assert await listed("", 9) == []
            assert await listed(None, 2) == ["f", "q"]
            assert await store.sessions("bob", 9, "a") == []

        self.keep(promise)

    def test_a_session_is_listed_with_its_first_run(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, Story("r1", session="s"))
            await create(store, Story("r2", session="s", after=first))
            await said(store, SessionForked(session="f", run="r1", of="s"))
            lines = {line.session: line.first for line in await store.sessions()}
            assert lines == {"s": "r1", "f": ""}
            assert (await store.session("s")).first == "r1"

        self.keep(promise)

    # ------------------------------------------------------------ what is removed

    def test_a_run_stays_while_a_run_of_another_session_goes_on_from_it(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, Story("r1", session="s"))
            await said(store, SessionForked(session="f", run="r1", of="s"))
            begun = await over(store, Story("f1", session="f", after=first))
            await over(store, Story("f2", session="f", after=begun))
            await said(store, SessionRewound(session="f", run="f1", newest="f2"))
            assert await store.prune(LATER, True, "s") == []
            assert await store.prune(LATER, session="s") == []
            assert await store.read("r1") == first.entries
            assert await store.prune(LATER, True) == ["f2", "f1", "r1"]
            assert await store.prune(LATER, session="f") == ["f2", "f1"]
            assert await store.prune(LATER) == ["r1"]

        self.keep(promise)

    def test_a_run_stays_while_one_that_waited_for_its_turn_goes_on_from_it(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, Story("r1", session="s"))
            await said(store, SessionForked(session="f", run="r1", of="s"))
            active = Story("f1", session="f", after=first)
            await create(store, active)
            waits = Story("f2", session="f", behind="f1")
            await create(store, waits)
            await drive(store, active, active.finish(), release=True)
            epoch = await begin(store, waits, first)
            await store.append("f2", epoch, waits.finish(), waits.index, release=True)
            await said(store, SessionRewound(session="f", run="f1", newest="f2"))
            assert await store.prune(LATER, session="s") == []
            await over(store, Story("x", session="x"))
            assert await store.prune(LATER) == ["x", "f2", "f1", "r1"]

        self.keep(promise)

    def test_with_the_last_run_of_a_session_goes_what_was_said_of_it(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            first = await over(store, Story("r1", session="s"))
            await over(store, Story("r2", session="s", after=first))
            await over(store, Story("t1", session="t"))
            await said(
                store,
                SessionTitled(session="s", title="Ann's refund"),
                SessionTitled(session="t", title="Lamps"),
                SessionRewound(session="s", run="r1", newest="r2"),
                SessionTitled(session="s", title="Ann's divorce"),
            )
            rows = await store.rows("store")
            assert await store.prune(LATER, True, "s") == ["r2", "r1"]
            assert await store.rows("store") == rows, "it only looked"
            assert await store.prune(LATER, session="s") == ["r2", "r1"]
            told = [entry.event for entry in await other.read("store")]
            assert [n for n, e in enumerate(told, 1) if isinstance(e, ErasedFact)] == [1, 3, 4]
            assert told[1] == SessionTitled(session="t", title="Lamps")
            assert told[-1] == SessionRemoved(notes=(1, 3, 4))
            left = await other.rows("store")
            assert [row.hash for row in left[:4]] == [row.hash for row in rows]
            assert [row.data for row in left if row.seq in {1, 3, 4}] == [None] * 3
            assert await other.verify("store") == len(told)
            assert (await other.session("t")).title == "Lamps"
            theirs = Story("b1", session="s", previous="")
            await create(other, theirs)
            assert (await store.session("s")).title == ""
            assert await stands_at(store, "s") == "b1"
            await other.close()

        self.keep(promise)

    def test_a_session_whose_runs_are_not_all_removed_keeps_what_was_said_of_it(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, Story("r1", session="s"))
            await over(store, Story("r2", session="s", after=first))
            await said(store, SessionForked(session="f", run="r1", of="s"))
            await said(store, SessionTitled(session="s", title="Lamps"))
            assert await store.prune(LATER, session="s") == ["r2"]
            assert (await store.session("s")).title == "Lamps"
            assert await stands_at(store, "f") == "r1"
            assert await store.verify("store") == 3

        self.keep(promise)

    def test_a_name_whose_session_was_removed_is_free_to_be_forked_into(self) -> None:
        async def promise(store: Store) -> None:
            first = await over(store, Story("r1", session="s"))
            for name in ("f", "q"):
                await said(store, SessionForked(session=name, run="r1", of="s"))
                await over(store, Story(f"{name}1", session=name, after=first))
                await said(store, SessionTitled(session=name, title="Lamps"))
            assert await store.prune(LATER, session="f") == ["f1"]
            await refused(UnknownRun, store.session("f"))
            assert [line.session for line in await store.sessions()] == ["q", "s"]
            await said(store, SessionForked(session="f", run="q1", of="q"))
            line = await store.session("f")
            assert (line.title, line.head, line.runs) == ("", "q1", 0)
            assert await store.prune(LATER) == [], "the new one goes on from q1, and that from r1"

        self.keep(promise)

    def test_a_session_that_is_not_there_is_given_no_title(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, Story("r1", session="s"))
            fact = SessionTitled(session="s", title="Lamps")
            await refused(UnknownRun, said(store, SessionTitled(session="t", title="Lamps")))
            await store.prune(LATER)
            await refused(UnknownRun, said(store, fact))
            assert len(await store.read("store")) == 1

        self.keep(promise)
