"""Promises of a store about erasing: nothing of a principal is left, and the chain still fits."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

import msgspec

from cairn.core.budgets import Cap, Only
from cairn.core.codec import Row
from cairn.core.commands import Queue, Resolve
from cairn.core.erasing import whose
from cairn.core.events import (
    Block,
    Entry,
    ErasedFact,
    Event,
    GrantMade,
    GrantRevoked,
    GrantUsed,
    MemoryErased,
    MemoryForgotten,
    MemoryRecalled,
    MemoryReviewed,
    ModelCompleted,
    ModelRequested,
    PrincipalErased,
    RunCompleted,
    SessionForked,
    SessionRewound,
    SessionTitled,
    StoreErased,
    ToolCompleted,
    ToolStarted,
)
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import Principal, Text
from cairn.core.state import RunState
from cairn.errors import ConfigError, Fenced, Refused, RunErased, UnknownRun
from cairn.memory.block import INTRO
from cairn.ports import NewRun, RunFilter, Store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_retention import over
from cairn.testing.store_story import LATER, Story, create, drive

ANN = Principal(id="ann")


async def kept(store: Store, *events: Event) -> None:
    """Facts of the journal `store`."""
    head = (await store.info("store")).head
    await store.keep(
        head, [Entry(seq=head + n, at=LATER, event=e) for n, e in enumerate(events, 1)]
    )


async def of_bob(
    store: Store, run: str, *, session: str = "", parent: Story | None = None, whose: str = "bob"
) -> Story:
    """A run of somebody else, that was completed; forked from event 1 of its parent."""
    story = Story(run, session=session, parent=parent, at=1 if parent else 0)
    story.new = msgspec.structs.replace(story.new, principal=whose)
    await create(store, story)
    await drive(store, story, story.finish(), release=True)
    return story


async def told(
    store: Store, run: str, *, recalled: int = 0, shown: str = "", whose: str = "bob"
) -> None:
    """A run that was told of facts: by a call, or in a block of the context; it was completed."""
    story = Story(run)
    story.new = msgspec.structs.replace(story.new, principal=whose)
    await create(store, story)
    scenes = [story.call()] if recalled else []
    if recalled:
        call = f"c{story.state.last_call}"
        scenes += [
            story.tell(
                ToolStarted(call=call, effect="read", recovery="repeat", rule="test"),
                MemoryRecalled(call=call, facts=(recalled,)),
                ToolCompleted(call=call, result=msgspec.Raw(b'"told"')),
            )
        ]
    block = Block(name="known", text=f"{INTRO}\n- {shown}" if shown else "house rules")
    request = ModelRequested(
        model="scripted", reserved=Reservation(input_tokens=9, output_tokens=9), blocks=(block,)
    )
    scenes.append(story.tell(request, step=story.state.step + 1))
    reply = ModelCompleted(parts=(Text("done"),), usage=Usage(input_tokens=7, output_tokens=2))
    scenes.append(story.tell(reply))
    scenes.append(story.tell(RunCompleted(answer=story.state.answer)))
    await drive(store, story, *scenes, release=True)


def bare(rows: list[Row]) -> list[tuple[int, int, str, int, bytes]]:
    """What of rows outlives an erasing."""
    return [(row.seq, row.at, row.actor, row.type, row.hash) for row in rows]


class ErasingPromises(Promises):
    """Erasing a principal."""

    def test_an_erased_run_keeps_its_place_and_hashes_and_nothing_it_said(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r", session="s")
            rows, info = await store.rows("r"), await store.info("r")
            erased = await store.erase(ANN, LATER, actor="dpo", reason="asked to")
            assert (erased.runs, erased.events, erased.sessions) == (("r",), len(rows), 1)
            assert erased.cleared
            left = await store.rows("r")
            assert bare(left) == bare(rows)
            assert {row.data for row in left} == {None}
            assert {len(row.salt) for row in left} == {32}
            assert await store.verify("r") == len(rows)
            now = await store.info("r")
            assert now.erased
            assert (now.principal, now.session, now.waits) == ("", "", ())
            assert (now.agent, now.status, now.head) == (info.agent, info.status, info.head)
            assert (now.created_at, now.updated_at) == (info.created_at, info.updated_at)
            first, last = await store.read("store")
            assert first.event == StoreErased(
                run="r", head=len(rows), hash=rows[-1].hash.hex(), reason="asked to"
            )
            assert isinstance(last.event, PrincipalErased)
            assert (first.actor, last.actor) == ("dpo", "dpo")
            assert last.event.whose == whose(ANN, bytes.fromhex(last.event.salt))
            assert (last.event.runs, last.event.events) == (1, len(rows))
            assert await store.verify("store") == 2

        self.keep(promise)

    def test_nothing_goes_on_from_an_erased_run(self) -> None:
        async def promise(store: Store) -> None:
            story = await over(store, "r", session="s")
            await store.erase(ANN, LATER)
            assert (await refused(RunErased, store.read("r"))).run == "r"
            await refused(RunErased, store.claim("r"))
            await refused(Fenced, store.append("r", 1, [], None))
            command = Resolve(call="c1", verdict="happened")
            await refused(RunErased, store.submit("r", story.state, command, LATER))
            fork = NewRun(run="f", agent="shop", digest="", parent="r", parent_at=1)
            await refused(RunErased, store.create(fork, [], story.index))
            assert await store.runnable(["shop"], LATER) == []
            assert [info.run for info in await store.runs(RunFilter())] == ["r"]
            assert await store.runs(RunFilter(principal="ann")) == []

        self.keep(promise)

    def test_no_session_is_forked_from_or_put_back_to_an_erased_run_or_named(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r1", session="s")
            await over(store, "r2", session="s")
            await store.erase(ANN, LATER)
            told = await store.read("store")
            fork = SessionForked(session="f", run="r1", of="s")
            assert (await refused(RunErased, kept(store, fork))).run == "r1"
            await refused(
                RunErased, kept(store, SessionRewound(session="s", run="r1", newest="r2"))
            )
            await refused(UnknownRun, kept(store, SessionTitled(session="s", title="Ann's")))
            assert await store.read("store") == told
            assert await store.sessions() == []

        self.keep(promise)

    def test_what_somebody_wrote_in_runs_of_others_is_found_and_stays(self) -> None:
        async def promise(store: Store) -> None:
            story = await of_bob(store, "b", whose="shared:room")
            other = Story("o")
            other.new = msgspec.structs.replace(other.new, principal="bob")
            await create(store, other)
            said = Queue(parts=(Text("I live in Rome."),))
            await store.submit("o", other.state, said, LATER, "ann")
            held = await store.holdings(ANN)
            assert (held.runs, [info.run for info in held.elsewhere]) == ((), ["o"])
            assert held.shared == ()
            assert (await store.holdings(Principal(id="ann", tenant="acme"))).elsewhere == ()
            await store.erase(ANN, LATER)
            assert [info.run for info in (await store.holdings(ANN)).elsewhere] == ["o"]
            assert await store.verify("o") == 2
            assert await store.verify("b") == story.state.seq

        self.keep(promise)

    def test_runs_of_others_that_were_told_of_somebodys_facts_are_found_and_stay(self) -> None:
        async def promise(store: Store) -> None:
            await told(store, "by-call", recalled=7)
            await told(store, "by-block", shown="m8 (user; owner; 2026-01-01): Rome " * 500)
            await told(store, "of-another", recalled=9, shown="m10 (user): Oslo")
            await told(store, "own", recalled=7, whose="ann")
            for facts, runs in (({7}, ["by-call"]), ({8}, ["by-block"]), ({5, 11}, []), ((), [])):
                assert [info.run for info in (await store.holdings(ANN, facts)).recalled] == runs
            assert (await store.holdings(ANN)).recalled == (), "none is kept for her here"
            await store.erase(ANN, LATER)
            both = await store.holdings(ANN, {7, 8})
            assert [info.run for info in both.recalled] == ["by-call", "by-block"]
            assert await store.verify("by-call") == (await store.info("by-call")).head
            await store.erase(Principal(id="bob"), LATER)
            assert (await store.holdings(ANN, {7, 8})).recalled == ()

        self.keep(promise)

    def test_runs_that_were_told_of_somebodys_facts_are_found_when_these_are_gone(self) -> None:
        async def promise(store: Store) -> None:
            for n in range(1, 8):
                await told(store, f"r{n}", recalled=n)
            salt = b"\7" * 32
            name, hers, his = salt.hex(), whose(ANN, salt), whose(Principal(id="bob"), salt)
            elsewhere = whose(Principal(id="ann", tenant="acme"), salt)
            await kept(
                store,
                MemoryForgotten(fact=1, hash=name, whose=(his, hers)),
                MemoryForgotten(fact=2, hash=name, expired=True, whose=(hers,)),
                MemoryReviewed(fact=3, hash=name, verdict="rejected", whose=(hers,)),
                MemoryErased(facts=(4,), whose=hers, salt=name),
                MemoryErased(facts=(5,), whose=his, salt=name),
                MemoryForgotten(fact=6, hash=name, whose=(elsewhere,)),
                MemoryForgotten(fact=7, hash=name),
            )
            for _ in range(2):
                runs = [info.run for info in (await store.holdings(ANN)).recalled]
                assert runs == ["r1", "r2", "r3", "r4"]
                await store.erase(ANN, LATER)
            assert await store.verify("store") == 7, "she had nothing else"

        self.keep(promise)

    def test_erasing_again_changes_nothing(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r")
            await store.erase(ANN, LATER)
            rows = await store.rows("store")
            erased = await store.erase(ANN, LATER)
            assert (erased.runs, erased.events, erased.notes, erased.facts) == ((), 0, 0, 0)
            assert await store.rows("store") == rows
            assert (await store.erase(Principal(id="nobody"), LATER)).runs == ()
            await refused(ConfigError, store.erase(Principal(id=""), LATER))

        self.keep(promise)

    def test_a_principal_with_a_run_that_is_not_over_is_not_erased(self) -> None:
        async def promise(store: Store) -> None:
            ended, live = await over(store, "ended"), Story("live")
            await create(store, live)
            assert (await store.holdings(ANN)).live == ("live",)
            error = await refused(Refused, store.erase(ANN, LATER))
            assert "live" in str(error)
            assert "ended" not in str(error)
            assert await store.read("ended") == ended.entries
            assert await store.read("store") == []
            await drive(store, live, live.finish(), release=True)
            assert (await store.erase(ANN, LATER)).runs == ("ended", "live")

        self.keep(promise)

    def test_forks_go_with_the_run_they_go_on_from(self) -> None:
        async def promise(store: Store) -> None:
            parent = await over(store, "r")
            fork = Story("f", parent=parent, at=1)
            await create(store, fork)
            await drive(store, fork, fork.finish(), release=True)
            erased = await store.erase(ANN, LATER)
            assert erased.runs == ("r", "f")
            assert await store.verify("f") == len(fork.entries)
            await refused(RunErased, store.read("f"))

        self.keep(promise)

    def test_a_run_that_anothers_goes_on_from_is_not_erased(self) -> None:
        async def promise(store: Store) -> None:
            parent = await over(store, "r")
            fork = await of_bob(store, "theirs", parent=parent)
            assert (await store.holdings(ANN)).foreign == ("theirs",)
            error = await refused(Refused, store.erase(ANN, LATER))
            assert "theirs" in str(error)
            assert await store.read("theirs") == fork.entries
            assert await store.prune(LATER + 1) == ["theirs", "r"]

        self.keep(promise)

    def test_what_is_anothers_stays_as_it_is(self) -> None:
        async def promise(store: Store) -> None:
            text = "shared by both " * 1_000
            mine = Story("mine")
            await create(store, mine)
            await drive(store, mine, mine.tell(note(text)))
            await store.append("mine", 1, mine.finish(), mine.index, release=True)
            theirs = await of_bob(store, "theirs", session="s")
            big = await of_bob(store, "big")
            command = Queue(parts=(Text(text),))
            live = Story("live")
            live.new = msgspec.structs.replace(live.new, principal="bob")
            await create(store, live)
            await store.submit("live", RunState(run="live"), command, LATER)
            before = {run: await store.rows(run) for run in ("theirs", "big", "live")}
            lines = [await store.info(run) for run in before]
            await store.erase(ANN, LATER)
            assert {run: await store.rows(run) for run in before} == before
            assert [await store.info(run) for run in before] == lines
            assert await store.read("theirs") == theirs.entries
            assert await store.read("big") == big.entries
            assert (await store.read("live"))[-1].event.parts == (Text(text),)
            assert (await store.session("s")).principal == "bob"

        self.keep(promise)

    def test_what_the_store_says_of_them_goes_and_what_it_says_of_others_stays(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r", session="s")
            await of_bob(store, "b", session="t")
            other = GrantMade(n=2, tool="mail", effect="write", principal="ann", tenant="acme")
            await kept(
                store,
                GrantMade(n=1, tool="refund", effect="write", principal="ann", reason="ann asked"),
                other,
                GrantMade(n=3, tool="mail", effect="write", uses=1),
                GrantUsed(n=1, run="r", call="c1"),
                GrantUsed(n=3, run="r", call="c2"),
                GrantRevoked(n=1, reason="ann left"),
                SessionTitled(session="s", title="Ann's refund"),
                SessionTitled(session="t", title="Bob's"),
                SessionForked(session="s2", run="r", of="s"),
            )
            held = await store.holdings(ANN)
            assert (held.grants, held.sessions) == ((1,), ("s", "s2"))
            assert held.notes == (1, 4, 6, 7, 9)
            erased = await store.erase(ANN, LATER)
            assert (erased.grants, erased.notes, erased.sessions) == (1, 5, 2)
            told = [entry.event for entry in await store.read("store")]
            assert told[0] == ErasedFact(type=GrantMade.TYPE)
            assert [n for n, e in enumerate(told, 1) if isinstance(e, ErasedFact)] == [*held.notes]
            assert (told[1], told[7]) == (other, SessionTitled(session="t", title="Bob's"))
            assert told[-1].notes == held.notes
            assert await store.verify("store") == 11
            assert [line.session for line in await store.sessions()] == ["t"]
            await refused(UnknownRun, store.session("s"))
            await refused(UnknownRun, store.session("s2"))

        self.keep(promise)

    def test_messages_and_what_waits_for_people_go_with_their_run(self) -> None:
        async def promise(store: Store) -> None:
            story = Story("r", session="s")
            await create(store, story)
            command = Queue(parts=(Text("and order 8"),), id="m1")
            state, entry = await store.submit("r", story.state, command, LATER)
            assert entry is not None
            story.follow([entry])
            await drive(store, story, story.doubt(), story.fail(), release=True)
            assert len(await store.pending()) == 1
            await store.erase(ANN, LATER)
            assert await store.pending() == []
            assert await store.message("m1") is None
            assert await store.unread(["shop"]) == []
            assert state.run == "r"

        self.keep(promise)

    def test_an_erased_run_can_be_pruned(self) -> None:
        async def promise(store: Store) -> None:
            await over(store, "r")
            await store.erase(ANN, LATER)
            assert await store.prune(LATER) == ["r"]
            assert await store.runs(RunFilter()) == []
            assert await store.verify("store") == 3

        self.keep(promise)

    def test_an_id_of_another_tenant_is_somebody_else(self) -> None:
        async def promise(store: Store) -> None:
            story = await over(store, "r")
            assert (await store.erase(Principal(id="ann", tenant="acme"), LATER)).runs == ()
            assert await store.read("r") == story.entries

        self.keep(promise)

    def test_counters_of_budgets_under_their_name_go_and_the_others_stay(self) -> None:
        async def promise(store: Store) -> None:
            each = Cap(name="each", per="principal", window="day", tokens=10_000)
            every = Cap(name="all", window="day", tokens=10_000)
            await store.set_budgets((each, every), LATER)
            await of_bob(store, "r", whose="local")  # for whom stories are charged
            await store.erase(Principal(id="local"), LATER)
            keys = {s.key for s in await store.budgets(LATER) if s.cap.name == "each"}
            assert keys == {""}
            (whole,) = [s for s in await store.budgets(LATER) if s.cap.name == "all"]
            assert whole.spend.tokens > 0
            assert await store.recount(LATER) == []

        self.keep(promise)

    def test_a_budget_that_stands_and_names_them_is_left_and_said(self) -> None:
        async def promise(store: Store) -> None:
            only = (Only(scope="principal", names=("ann",)),)
            named = Cap(name="hers", window="day", tokens=9, only=only)
            await store.set_budgets((named,), LATER)
            assert (await store.erase(ANN, LATER)).budgets == ("hers",)
            assert [standing.cap for standing in await store.budgets(LATER)] == [named]
            await store.set_budgets((), LATER)
            erased = await store.erase(ANN, LATER)
            assert (erased.budgets, erased.notes) == ((), 1)
            assert await store.budgets(LATER) == []

        self.keep(promise)

    def test_principals_who_are_erased_at_the_same_time_are_all_gone(self) -> None:
        async def promise(store: Store) -> None:
            who = [f"p{n}" for n in range(5)]
            for name in who:
                await of_bob(store, name, whose=name)
            erasing = [store.erase(Principal(id=name), LATER) for name in who]
            done = await asyncio.gather(*erasing)
            assert [(each.runs, each.cleared) for each in done] == [((name,), True) for name in who]
            assert await store.verify("store") == 10

        self.keep(promise)
