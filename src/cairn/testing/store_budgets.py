"""Promises of a store about budgets over time: exact, shared, and never above the cap."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio
from typing import Any

from cairn.core import events as ev
from cairn.core.budgets import DAY_US, Cap, Only, Spend, Standing, start_of
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import CallPart, Principal, Text
from cairn.errors import BudgetReached, ErrorClass, Moved
from cairn.ports import Store
from cairn.testing.store_promises import Promises, refused
from cairn.testing.store_story import START, TICK, Story, create, drive

MIDNIGHT = start_of("day", START) + 2 * DAY_US
NOON = MIDNIGHT - DAY_US // 2


class Spender(Story):
    """A run that costs something; the times of its events are said."""

    def __init__(self, run: str, *, who: str = "ann", tenant: str = "", **more: Any) -> None:
        super().__init__(run, **more)
        self.who = Principal(id=who, tenant=tenant)
        self.now = NOON

    def begin(self) -> list[ev.Entry]:
        """The run is created, or forked."""
        if self.new.parent:
            return super().begin()
        created = ev.RunCreated(
            agent=self.new.agent,
            input=(Text("spend"),),
            digest=self.new.digest,
            principal=self.who,
        )
        return self.tell(created, at=NOON)

    def request(self, tokens: int = 1_000, micro_usd: int = 1_000) -> list[ev.Entry]:
        """A model request that reserves this much; half of the tokens are output."""
        self.now += TICK
        reserved = Reservation(
            input_tokens=tokens - tokens // 2, output_tokens=tokens // 2, micro_usd=micro_usd
        )
        event = ev.ModelRequested(
            model="scripted", reserved=reserved, attempt=self.state.attempts + 1
        )
        step = self.state.step + (event.attempt == 1)
        return self.tell(event, step=step, at=self.now)

    def answer(self, tokens: int = 300, micro_usd: int = 300) -> list[ev.Entry]:
        """A reply without calls that used this much."""
        self.now += TICK
        usage = Usage(input_tokens=tokens, micro_usd=micro_usd)
        return self.tell(ev.ModelCompleted(parts=(Text("more"),), usage=usage), at=self.now)

    def lose(self, tokens: int = 1_000, micro_usd: int = 1_000) -> list[ev.Entry]:
        """The process died inside the request; it is charged at its reservation."""
        self.now += TICK
        event = ev.ModelFailed(
            error_class=ErrorClass.STREAM_INTERRUPTED,
            message="lost",
            disposition="retry",
            lost=True,
            usage=Usage(input_tokens=tokens, micro_usd=micro_usd),
        )
        return self.tell(event, at=self.now)

    def ask_for(self, *tools: str) -> list[ev.Entry]:
        """A reply with a call of each tool, which used nothing."""
        self.now += TICK
        first = self.state.last_call + 1
        parts = tuple(CallPart(id=f"c{n}", name=tool) for n, tool in enumerate(tools, first))
        return self.tell(ev.ModelCompleted(parts=parts), at=self.now)

    def start(self, call: str, micro_usd: int = 0) -> list[ev.Entry]:
        """A call begins."""
        self.now += TICK
        event = ev.ToolStarted(
            call=call, effect="read", recovery="repeat", rule="test", micro_usd=micro_usd
        )
        return self.tell(event, at=self.now)

    def returns(self, call: str, micro_usd: int = 0) -> list[ev.Entry]:
        """It has returned."""
        self.now += TICK
        return self.tell(ev.ToolCompleted(call=call, micro_usd=micro_usd), at=self.now)


async def append(store: Store, story: Spender, *scenes: list[ev.Entry]) -> None:
    """The owner's write of scenes that were told."""
    entries = [entry for scene in scenes for entry in scene]
    await store.append(story.run, 1, entries, story.index)


async def begun(store: Store, story: Spender) -> Spender:
    """The story is in the store, and claimed."""
    await create(store, story)
    assert await drive(store, story) == 1
    return story


async def stands(store: Store, now: int = NOON) -> dict[tuple[str, str], Spend]:
    """What is counted now, by budget and whose it is."""
    return {(s.cap.name, s.key): s.spend for s in await store.budgets(now)}


DAY = Cap(name="day", per="store", window="day", micro_usd=5_000, tokens=5_000, calls=2)


class BudgetPromises(Promises):
    """Budgets over time."""

    def test_budgets_stand_for_everybody_as_a_fact_of_the_store(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            assert await store.budgets(NOON) == []
            assert await store.set_budgets((DAY,), NOON, "host:1")
            assert not await other.set_budgets((DAY,), NOON, "host:2")
            [entry] = await other.read("store")
            assert entry.event == ev.BudgetsSet(budgets=(DAY,), by="host:1")
            [standing] = await other.budgets(NOON)
            assert standing == Standing(
                cap=DAY, key="", start=MIDNIGHT - DAY_US, resets_at=MIDNIGHT, spend=Spend()
            )
            assert await other.set_budgets((), NOON)
            assert await store.budgets(NOON) == []
            assert await store.verify("store") == 2
            await other.close()

        self.keep(promise)

    def test_a_request_counts_at_its_reservation_until_its_outcome(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(1_000, 2_000))
            assert await stands(store) == {
                ("day", ""): Spend(held_tokens=1_000, held_micro_usd=2_000)
            }
            await append(store, story, story.answer(300, 700))
            assert await stands(store) == {("day", ""): Spend(tokens=300, micro_usd=700)}
            await append(store, story, story.request(), story.lose())
            assert await stands(store) == {("day", ""): Spend(tokens=1_300, micro_usd=1_700)}

        self.keep(promise)

    def test_what_a_cap_has_no_room_for_is_refused_whole_and_a_smaller_wish_fits(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(1_000, 4_000))
            poor = await begun(store, Spender("p"))
            before = poor.state
            wish = store.append("p", 1, poor.request(1_000, 1_001), poor.index)
            error = await refused(BudgetReached, wish)
            assert (error.budget, error.measure, error.bound, error.used) == (
                *("day", "micro_usd", 5_000),
                4_000,
            )
            assert error.room.micro_usd.left == 1_000
            assert error.room.tokens.left == 4_000
            assert (await store.info("p")).head == before.seq
            assert await stands(store) == {
                ("day", ""): Spend(held_tokens=1_000, held_micro_usd=4_000)
            }
            poor.state = before
            await append(store, poor, poor.request(1_000, 1_000))

        self.keep(promise)

    def test_an_outcome_is_written_even_where_it_goes_beyond_the_cap(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(), story.answer(9_000, 9_000))
            assert await stands(store) == {("day", ""): Spend(tokens=9_000, micro_usd=9_000)}
            wish = store.append("r", 1, story.tell(ev.InputQueued(parts=())), story.index)
            await wish
            await refused(BudgetReached, store.append("r", 1, story.request(2, 0), story.index))

        self.keep(promise)

    def test_an_outcome_makes_room_for_the_request_in_the_same_write(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(1_000, 5_000))
            await append(store, story, story.answer(0, 0), story.request(1_000, 5_000))

        self.keep(promise)

    def test_calls_are_counted_when_they_start_and_priced_ones_are_reserved(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            asked = [*story.request(10, 0), *story.ask_for("look", "look", "look")]
            await append(store, story, asked, story.start("c1", 4_000))
            assert await stands(store) == {("day", ""): Spend(calls=1, held_micro_usd=4_000)}
            before = story.state
            error = await refused(
                BudgetReached, store.append("r", 1, story.start("c2", 1_001), story.index)
            )
            assert error.measure == "micro_usd"
            story.state = before
            await append(store, story, story.returns("c1", 4_000), story.start("c2", 1_000))
            assert await stands(store) == {
                ("day", ""): Spend(calls=2, micro_usd=4_000, held_micro_usd=1_000)
            }
            error = await refused(BudgetReached, store.append("r", 1, story.start("c3"), None))
            assert (error.measure, error.used) == ("calls", 2)

        self.keep(promise)

    def test_a_late_outcome_is_settled_in_the_day_it_was_reserved_in(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            story.now = MIDNIGHT - 2 * TICK
            await append(store, story, story.request(1_000, 5_000))
            story.now = MIDNIGHT + TICK
            await append(store, story, story.answer(400, 600))
            assert await stands(store, MIDNIGHT - 1) == {
                ("day", ""): Spend(tokens=400, micro_usd=600)
            }
            assert await stands(store, MIDNIGHT) == {("day", ""): Spend()}
            await append(store, story, story.request(1_000, 5_000))
            assert await stands(store, MIDNIGHT) == {
                ("day", ""): Spend(held_tokens=1_000, held_micro_usd=5_000)
            }

        self.keep(promise)

    def test_each_principal_agent_and_tenant_has_a_budget_of_its_own(self) -> None:
        async def promise(store: Store) -> None:
            only_bob = Only(scope="principal", names=("bob",))
            caps = (
                Cap(name="who", per="principal", micro_usd=1_000),
                Cap(name="what", per="agent", micro_usd=9_000),
                Cap(name="where", per="tenant", window="month", micro_usd=9_000),
                Cap(name="bob", window="hour", calls=9, only=(only_bob,)),
            )
            await store.set_budgets(caps, NOON)
            ann = await begun(store, Spender("r1"))
            bob = await begun(store, Spender("r2", who="bob", agent="desk"))
            far = await begun(store, Spender("r3", tenant="acme"))
            for story in (ann, bob, far):
                await append(store, story, story.request(10, 1_000), story.answer(0, 1_000))
                await refused(BudgetReached, store.append(story.run, 1, story.request(10, 1), None))
            paid = Spend(micro_usd=1_000)
            assert await stands(store) == {
                ("who", "ann"): paid,
                ("who", "bob"): paid,
                ("who", '["acme","ann"]'): paid,
                ("what", "shop"): paid + paid,
                ("what", "desk"): paid,
                ("where", ""): paid + paid,
                ("where", "acme"): paid,
                ("bob", ""): paid,
            }

        self.keep(promise)

    def test_a_fork_is_charged_for_its_own_and_not_for_what_it_shares(self) -> None:
        async def promise(store: Store) -> None:
            cap = Cap(name="who", per="principal", micro_usd=9_000)
            await store.set_budgets((cap,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(), story.answer(300, 700))
            fork = Spender("f", who="nobody", parent=story, at=story.state.seq)
            fork.now = story.now
            await begun(store, fork)
            assert await stands(store) == {("who", "ann"): Spend(tokens=300, micro_usd=700)}
            await append(store, fork, fork.request(), fork.answer(1, 1))
            assert await stands(store) == {("who", "ann"): Spend(tokens=301, micro_usd=701)}
            assert await store.recount(NOON) == []
            assert await stands(store) == {("who", "ann"): Spend(tokens=301, micro_usd=701)}

        self.keep(promise)

    def test_what_was_spent_before_budgets_were_set_counts_and_can_be_counted_anew(self) -> None:
        async def promise(store: Store) -> None:
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(), story.answer(), story.request(7, 7))
            await store.set_budgets((DAY,), NOON)
            known = {("day", ""): Spend(tokens=300, micro_usd=300, held_tokens=7, held_micro_usd=7)}
            assert await stands(store) == known
            assert await store.recount(NOON) == []
            assert await stands(store) == known
            await append(store, story, story.answer(5, 5))
            assert await stands(store) == {("day", ""): Spend(tokens=305, micro_usd=305)}
            lower = Cap(name="day", per="store", window="day", micro_usd=300)
            await store.set_budgets((lower,), NOON)
            await refused(BudgetReached, store.append("r", 1, story.request(), story.index))

        self.keep(promise)

    def test_what_removed_runs_have_spent_still_counts_when_it_is_counted_anew(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            await append(store, story, story.request(), story.answer(300, 700), story.fail())
            await store.append("r", 1, [], None, release=True)
            assert await store.prune(NOON + DAY_US // 4) == ["r"]
            spent = {("day", ""): Spend(tokens=300, micro_usd=700)}
            assert await stands(store) == spent
            assert await store.recount(NOON) == []
            assert await stands(store) == spent
            await store.set_budgets((DAY, Cap(name="more", calls=1)), NOON)
            assert (await stands(store))["day", ""] == spent["day", ""]
            other = Cap(name="day", per="principal", micro_usd=5_000)
            await store.set_budgets((other,), NOON)
            assert await stands(store) == {("day", ""): Spend()}, "its counters mean another thing"

        self.keep(promise)

    def test_of_many_at_the_same_moment_no_more_get_through_than_there_is_room_for(self) -> None:
        async def promise(store: Store) -> None:
            other = self.beside(store)
            await store.set_budgets((Cap(name="all", tokens=10_000, micro_usd=10_500),), NOON)
            stories = [await begun(store, Spender(f"r{n}", who=f"u{n}")) for n in range(16)]
            homes = (store, other) * 8
            answers = await asyncio.gather(
                *(
                    home.append(story.run, 1, story.request(), story.index)
                    for home, story in zip(homes, stories, strict=True)
                ),
                return_exceptions=True,
            )
            assert sum(answer is None for answer in answers) == 10
            assert sum(isinstance(answer, BudgetReached) for answer in answers) == 6
            full = {("all", ""): Spend(held_tokens=10_000, held_micro_usd=10_000)}
            assert await stands(store) == await stands(other) == full
            await other.close()

        self.keep(promise)

    def test_an_append_that_is_refused_for_another_reason_charges_nothing(self) -> None:
        async def promise(store: Store) -> None:
            await store.set_budgets((DAY,), NOON)
            story = await begun(store, Spender("r"))
            late = [ev.Entry(seq=9, at=NOON, event=story.request()[0].event, step=1)]
            await refused(Moved, store.append("r", 1, late, None))
            assert await stands(store) == {("day", ""): Spend()}

        self.keep(promise)
