"""Runs stop at a budget over time, say so, and never spend beyond it, whatever runs beside them."""

import asyncio

import pytest

from cairn import Agent, Limits, Price, Principal, Runtime, Scripted, Text, Usage, call, tool
from cairn.core import events as ev
from cairn.core.budgets import DAY_US, Budget, Spend, start_of
from cairn.errors import BudgetUnknown
from cairn.ports import ModelReply
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore

PRICE = Price(input=1_000_000, output=1_000_000)
"""A token costs a micro-dollar."""


class Clock:
    """Turned by hand."""

    def __init__(self, now):
        self.now = now

    def now_us(self):
        return self.now

    def monotonic_us(self):
        return self.now

    async def sleep(self, seconds):
        self.now += int(seconds * 1e6)
        await asyncio.sleep(0)


NOON = start_of("day", 1_700_000_000_000_000) + DAY_US // 2


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="read", cost=0.002)
def buy(n: int = 0) -> str:
    """Look at what costs."""
    return "bought"


def says(text="done", tokens=500, usd_of=PRICE):
    return Scripted(
        [text], usage=Usage(input_tokens=tokens), price=usd_of, repeat=True, max_output=1_000
    )


def runtime(model, budgets, *, store=":memory:", clock=None, tools=(), **more):
    return Runtime(
        store, agents=[Agent("a", model, tools=tools, **more)], budgets=budgets, clock=clock
    )


def names(rt, run):
    return [entry.event.NAME for entry in rt.trace(run)]


def spent(rt, name="store-day"):
    return {s.key: s.spend for s in rt.budgets() if s.cap.name == name}


def test_a_run_that_a_budget_has_no_room_for_is_stopped_and_says_by_what():
    with runtime(says(), [Budget(per="principal", usd=0.0005)], clock=Clock(NOON)) as rt:
        run = rt.run("a", "go", id="r", principal="ann")
        assert run.status == "stopped"
        assert names(rt, "r") == ["run.created", "limit.reached", "run.stopped"]
        end = rt.trace("r")[-1].event
        assert end.limit == "budget:principal-day"
        assert end.message == (
            "budget principal-day of ann: 0.00 USD of 0.0005 USD are used or reserved in this "
            "day, and what comes next may need more than the rest; it begins anew at "
            "2023-11-15 00:00 UTC"
        )
        assert end.message in run.text


def test_near_the_cap_a_request_is_given_less_room_as_by_the_runs_own_limit():
    with runtime(says(), [Budget(tokens=1_800)]) as rt:
        first, second = (rt.run("a", "go", id=run) for run in ("r1", "r2"))
        assert first.status == second.status == "completed"
        rooms = [rt.trace(run)[1].event.reserved for run in ("r1", "r2")]
        assert rooms[0].output_tokens == 1_000
        assert 256 <= rooms[1].output_tokens < 1_000
        assert rooms[1].tokens + 500 == 1_800
        assert rt.run("a", "go", id="r3").status == "completed"
        assert rt.run("a", "go", id="r4").status == "stopped", "under 256 tokens it is reached"
        assert spent(rt)[""].tokens == 1_500


def test_the_next_day_begins_anew():
    clock = Clock(NOON)
    with runtime(says(tokens=900), [Budget(tokens=2_000)], clock=clock) as rt:
        while (run := rt.run("a", "go")).status == "completed":
            pass
        assert run.status == "stopped"
        clock.now = start_of("day", NOON) + DAY_US
        assert rt.retry(run.id).status == "completed"
        assert spent(rt)[""] == Spend(tokens=900, micro_usd=900)


def test_what_is_in_flight_comes_to_its_end_and_is_charged():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(request):
        if request.run == "slow":
            begun.set()
            await ended.wait()
        return ModelReply(usage=Usage(input_tokens=100, output_tokens=100))

    async def story():
        rt = runtime(Scripted(slow, price=PRICE, max_output=1_000), [Budget(usd=0.0018)])
        task = asyncio.create_task(rt.run_async("a", "go", id="slow"))
        await begun.wait()
        quick = await rt.run_async("a", "go", id="quick")
        assert quick.status == "stopped"
        ended.set()
        await task
        entries = await rt.trace_async("slow")
        assert entries[1].event.NAME == "model.requested"
        assert any(isinstance(e.event, ev.ModelCompleted | ev.ModelFailed) for e in entries)
        [standing] = await rt.budgets_async()
        assert standing.spend.held_tokens == 0
        assert standing.spend.tokens >= 200
        await rt.close_async()

    asyncio.run(story())


def test_a_budget_of_calls_ends_the_run_with_the_reply_kept():
    model = Scripted([[call("look"), call("look")], "done"], price=PRICE)
    with runtime(model, [Budget(calls=1)], tools=[look]) as rt:
        run = rt.run("a", "go", id="r")
        assert run.status == "stopped"
        assert names(rt, "r") == [
            "run.created",
            "model.requested",
            "model.completed",
            "limit.reached",
            "run.stopped",
        ]
        assert spent(rt)[""].calls == 0, "what was refused was not begun"
        assert "budget:store-day" in str(rt.trace("r")[-1].event)


def test_a_tool_that_costs_is_reserved_before_it_starts():
    model = Scripted([[call("buy", n=1)], [call("buy", n=2)], "done"], price=Price())
    with runtime(model, [Budget(usd="0.003")], tools=[buy]) as rt:
        run = rt.run("a", "go", id="r")
        assert run.status == "stopped"
        assert rt.trace("r")[-1].event.limit == "budget:store-day"
        assert spent(rt)[""].micro_usd == 2_000


def test_a_model_that_costs_nothing_is_not_bounded_by_money():
    with runtime(says(usd_of=Price()), [Budget(usd=0)]) as rt:
        assert rt.run("a", "go").status == "completed"
        assert spent(rt)[""] == Spend(tokens=500)


def test_a_model_of_unknown_price_counts_at_the_worst_case():
    class Unpriced(Scripted):
        price = None

        def __init__(self):
            self.name, self.window, self.max_output = "unpriced", 128_000, 1_000
            self._script, self._usage, self._repeat = ["done"], Usage(output_tokens=100), True

    with runtime(Unpriced(), [Budget(usd=1)]) as rt:
        assert rt.run("a", "go").status == "completed"
        assert spent(rt)[""].micro_usd == 27_000


def test_each_principal_spends_of_its_own():
    with runtime(says(tokens=900), [Budget(per="principal", tokens=2_000)]) as rt:
        for who in ("ann", "bob", Principal(id="ann", tenant="acme")):
            while rt.run("a", "go", principal=who).status == "completed":
                pass
        assert {key: s.tokens for key, s in spent(rt, "principal-day").items()} == {
            "ann": 1_800,
            "bob": 1_800,
            '["acme","ann"]': 1_800,
        }


def test_a_fork_and_a_retry_are_not_charged_for_what_the_first_run_spent():
    model = Scripted(
        [[call("look")], "done"], usage=Usage(input_tokens=100), price=PRICE, repeat=True
    )
    with runtime(model, [Budget(usd=1)], tools=[look]) as rt:
        rt.run("a", "go", id="r")
        before = spent(rt)[""]
        assert (before.tokens, before.calls) == (200, 1)
        rt.fork("r", at=5, id="f", drive=False)
        assert spent(rt)[""] == before
        assert rt.drive("f").status == "completed"
        assert spent(rt)[""].tokens == 300


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_many_runs_at_once_never_go_beyond_the_cap_and_lose_nothing(tmp_path, kind):
    store = open_store(tmp_path / "c.db", durability="process") if kind == "sqlite" else None
    cap = 20_000

    async def story():
        rt = runtime(
            says(tokens=700),
            [Budget(tokens=cap), Budget(per="agent", usd=1)],
            store=store or InMemoryStore(),
        )
        tops = []

        async def watch():
            while True:
                found = await rt.store.budgets(rt.host.clock.now_us())
                tops.extend(standing.spend.total("tokens") for standing in found)
                await asyncio.sleep(0.001)

        watcher = asyncio.create_task(watch())
        runs = await asyncio.gather(*(rt.run_async("a", "go", id=f"r{n}") for n in range(60)))
        watcher.cancel()
        done = [run for run in runs if run.status == "completed"]
        assert {run.status for run in runs} == {"completed", "stopped"}
        [tokens, _] = await rt.budgets_async()
        assert tokens.spend == Spend(tokens=700 * len(done), micro_usd=700 * len(done))
        assert max(tops) <= cap
        assert await rt.store.recount(rt.host.clock.now_us()) == []
        assert (await rt.budgets_async())[0].spend == tokens.spend
        await rt.close_async()

    asyncio.run(story())


def test_of_five_runs_that_begin_at_once_only_so_many_do_as_the_rest_has_room_for(tmp_path):
    """B40: 9.90 of 10 are spent, and each of the five would take the whole rest."""
    dear = Price(input=100_000_000, output=100_000_000)
    paid = Scripted(["done"], usage=Usage(input_tokens=99_000), price=dear)
    store = open_store(tmp_path / "c.db", durability="process")

    async def slow(request):
        await asyncio.sleep(0.05)
        return ModelReply(parts=(Text("done"),), usage=Usage(input_tokens=600))

    async def story():
        budgets = [Budget(usd=10.0)]
        wide = Limits(micro_usd=20_000_000)
        first = runtime(paid, budgets, store=store, limits=wide)
        assert (await first.run_async("a", "go")).status == "completed"
        assert (await first.budgets_async())[0].spend.micro_usd == 9_900_000
        rt = runtime(Scripted(slow, price=dear, max_output=1_000), budgets, store=store)
        runs = await asyncio.gather(*(rt.run_async("a", "go", id=f"r{n}") for n in range(5)))
        done = [run for run in runs if run.status == "completed"]
        assert len(done) == 1
        assert {run.limit for run in runs if run.status == "stopped"} == {"budget:store-day"}
        (standing,) = await rt.budgets_async()
        assert standing.spend.total("micro_usd") == 9_900_000 + 60_000
        await rt.close_async()

    asyncio.run(story())


def test_a_process_without_budgets_is_held_to_those_that_stand(tmp_path):
    path = tmp_path / "c.db"
    with runtime(says(), [Budget(tokens=600, name="house")], store=path) as rt:
        rt.run("a", "go")
    with runtime(says(), None, store=path) as rt:
        while (run := rt.run("a", "go")).status == "completed":
            pass
        assert rt.trace(run.id)[-1].event.limit == "budget:house"
    with runtime(says(), [], store=path) as rt:
        assert rt.budgets() == []
        assert rt.run("a", "go").status == "completed"


def test_budgets_are_set_once_and_the_journal_of_the_store_says_by_whom(tmp_path):
    path = tmp_path / "c.db"
    for _ in range(2):
        with runtime(says(), [Budget(tokens=9_000)], store=path) as rt:
            rt.run("a", "go")
            rt.run("a", "go")
    with runtime(says(), [Budget(tokens=8_000)], store=path) as rt:
        rt.run("a", "go")
        facts = [e.event for e in rt.trace("store")]
    assert [type(fact) for fact in facts] == [ev.BudgetsSet, ev.BudgetsSet]
    assert all("cairn" in fact.by for fact in facts)


def test_when_it_cannot_be_told_what_is_left_nothing_is_begun_and_what_came_back_is_kept():
    class Unsure(InMemoryStore):
        doubt = False

        async def append(self, run, epoch, entries, *rest, **more):
            if self.doubt and any(isinstance(e.event, ev.ToolStarted) for e in entries):
                raise BudgetUnknown("the counter of budget store-day is damaged. Run something")
            await super().append(run, epoch, entries, *rest, **more)

    store = Unsure()
    store.doubt = True
    model = Scripted([[call("look")], "done"], usage=Usage(input_tokens=5), price=PRICE)
    with runtime(model, [Budget(usd=1)], tools=[look], store=store) as rt:
        with pytest.raises(BudgetUnknown, match="Run something"):
            rt.run("a", "go", id="r")
        assert names(rt, "r") == ["run.created", "model.requested", "model.completed"]
        assert not rt.store.journals.runs["r"].owner
        store.doubt = False
        assert rt.run("a", "go", id="r").status == "completed"
        assert spent(rt)[""].tokens == 10


def test_a_replay_takes_what_others_had_spent_as_it_was():
    with runtime(says(), [Budget(tokens=2_000)]) as rt:
        while (run := rt.run("a", "go")).status == "completed":
            last = run
        for each in (last, run):
            assert rt.replay(each.id).same
