"""Counters follow from the journals: they can be made anew, and what is wrong is found."""

import asyncio
import random

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.first_version import AS_FIRST

from cairn.core import events as ev
from cairn.core.budgets import DAY_US, HOUR_US, Cap, Only, Spend
from cairn.core.codec import seal
from cairn.errors import BudgetReached, BudgetUnknown
from cairn.store import open_store, restore
from cairn.store.inmemory import InMemoryStore
from cairn.store.sqlite import schema, spending
from cairn.testing.store_budgets import MIDNIGHT, NOON, Spender, append, begun, stands
from cairn.testing.store_promises import refused

CAPS = (
    Cap(name="all", tokens=200_000, micro_usd=200_000),
    Cap(name="who", per="principal", window="hour", micro_usd=60_000, calls=6),
    Cap(name="what", per="agent", window="month", tokens=90_000),
    Cap(name="acme", per="tenant", calls=9, only=(Only(scope="tenant", names=("acme",)),)),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cairn.db"


def sql(path, *statements):
    connection = apsw.Connection(str(path))
    found = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    return found


def run(story):
    return asyncio.run(story())


async def wander(store, dice, runs=4, moves=40):
    """Runs that spend as they like, over some days; what is refused was not said."""
    agents, people, tenants = ("shop", "desk"), ("ann", "bob"), ("", "acme")
    stories = []
    for n in range(runs):
        story = Spender(
            f"r{n}", agent=dice.choice(agents), who=dice.choice(people), tenant=dice.choice(tenants)
        )
        stories.append(await begun(store, story))
    open_calls = {}
    for _ in range(moves):
        story = dice.choice(stories)
        story.now = max(story.now, story.state.at) + dice.choice((1, HOUR_US // 3, DAY_US // 2))
        calls = open_calls.setdefault(story.run, [])
        before = story.state
        if story.state.request is not None:
            amount = dice.randrange(20_000)
            scene = dice.choice((story.answer, story.lose))(amount, amount)
            if dice.random() < 0.5:
                story.state = before
                scene = story.ask_for("look", "look")
                calls += [c.id for c in story.state.calls.values()]
        elif calls and story.state.calls[calls[0]].status.value == "requested":
            scene = story.start(calls[0], dice.choice((0, 3_000)))
        elif calls:
            scene = story.returns(calls.pop(0), dice.choice((0, 3_000)))
        else:
            scene = story.request(dice.randrange(600, 30_000), dice.randrange(30_000))
        try:
            await append(store, story, scene)
        except BudgetReached:
            story.state = before
    return max(story.state.at for story in stories)


@settings(max_examples=25)
@given(st.integers(0, 1 << 32))
def test_counters_made_anew_from_the_journals_are_those_that_grew_with_them(seed):
    async def story():
        store = InMemoryStore()
        await store.set_budgets(CAPS, NOON)
        now = await wander(store, random.Random(seed))
        grown = await stands(store, now)
        assert await store.recount(now) == []
        assert await stands(store, now) == grown

    run(story)


@pytest.mark.parametrize("seed", range(6))
def test_the_file_counts_as_the_reference_does_and_can_be_made_anew(path, seed):
    async def story():
        stores = (open_store(path, durability="process"), InMemoryStore())
        told = []
        for store in stores:
            await store.set_budgets(CAPS, NOON)
            now = await wander(store, random.Random(seed), moves=120)
            told.append((now, await stands(store, now)))
        assert told[0] == told[1]
        now, grown = told[0]
        file, _ = stores
        held = "SELECT * FROM ledger WHERE data LIKE '%holds%' ORDER BY run"
        rows = sql(path, held)
        assert await file.recount(now) == []
        assert await stands(file, now) == grown
        assert sql(path, held) == rows
        await file.close()
        sql(path, "DELETE FROM spend", "DELETE FROM ledger")
        again = open_store(path, durability="process")
        wrong = await again.recount(now)
        assert bool(wrong) == any(spend != Spend() for spend in grown.values())
        assert await stands(again, now) == grown
        await again.close()

    run(story)


async def two_requests(path):
    """A store whose one cap has been half used, with a request open."""
    store = open_store(path)
    await store.set_budgets((Cap(name="day", micro_usd=10_000),), NOON)
    story = await begun(store, Spender("r"))
    await append(store, story, story.request(10, 4_000), story.answer(9, 3_000))
    await append(store, story, story.request(10, 2_000))
    return store, story


FULL = {("day", ""): Spend(tokens=9, micro_usd=3_000, held_tokens=10, held_micro_usd=2_000)}


def test_a_file_of_an_older_cairn_is_brought_up_to_date_and_what_it_spent_is_counted(path):
    async def older():
        store = open_store(path)
        story = await begun(store, Spender("r"))
        await append(store, story, story.request(10, 4_000), story.answer(9, 3_000))
        await append(store, story, story.request(10, 2_000))
        await store.close()

    run(older)
    sql(path, *AS_FIRST)

    async def newer():
        store = open_store(path)
        assert await store.verify("r") == 4
        assert await store.budgets(NOON) == []
        await store.set_budgets((Cap(name="day", micro_usd=10_000),), NOON)
        assert await stands(store) == FULL
        await store.close()

    run(newer)
    assert sql(path, "PRAGMA user_version")[0] == [(len(schema.migrations()),)]


def test_while_a_process_of_an_older_cairn_writes_nothing_paid_is_begun_until_it_is_counted(path):
    async def promise():
        store, story = await two_requests(path)
        last = (await store.rows("r"))[-1]
        entry = story.answer(9, 3_000)[0]
        row = seal("r", entry, bytes(16), last.hash)
        connection = apsw.Connection(str(path))
        connection.execute(
            "INSERT INTO event SELECT (no << 32) + ?, ?, ?, '', ?, ?, ?, NULL, ?, ? FROM run "
            "WHERE id = 'r'",
            (row.seq, row.at, row.step, row.type, row.v, row.data, row.salt, row.hash),
        )
        connection.execute("UPDATE run SET head = ?, hash = ? WHERE id = 'r'", (row.seq, row.hash))
        connection.close()
        other = await begun(store, Spender("p"))
        error = await refused(
            BudgetUnknown, store.append("p", 1, other.request(10, 10), other.index)
        )
        assert "an older Cairn" in str(error)
        assert "cairn budgets --rebuild" in str(error)
        assert (await store.info("p")).head == 1
        wrong = await store.recount(NOON)
        assert "says [3000, 9, 0, 2000, 10], the journals say [6000, 18, 0, 0, 0]" in wrong[0]
        assert await stands(store) == {("day", ""): Spend(tokens=18, micro_usd=6_000)}
        other.state = other.state.__class__(run="p")
        other.follow(await store.read("p"))
        await append(store, other, other.request(10, 4_000))
        await store.close()

    run(promise)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE spend SET held_micro_usd = -1", "the counter of budget day is damaged"),
        ("UPDATE ledger SET data = x'7b'", "could not be counted"),
        ("UPDATE event SET data = zeroblob(3) WHERE type = 220", "budgets.set cannot be read"),
        ("INSERT INTO uncounted VALUES (1)", "could not be counted"),
    ],
)
def test_a_store_that_cannot_tell_begins_nothing_paid_and_names_the_way_out(path, damage, said):
    async def half():
        store, _ = await two_requests(path)
        await store.close()

    run(half)
    sql(path, damage)

    async def promise():
        store = open_store(path)
        claim = await store.claim("r")
        story = Spender("r")
        story.follow(await store.read("r"))
        story.now = story.state.at
        answer = story.answer(1, 1)
        await store.append("r", claim.epoch, answer, story.index)
        wish = store.append("r", claim.epoch, story.request(10, 10), None)
        error = await refused(BudgetUnknown, wish)
        assert said in str(error)
        assert "budgets --rebuild" in str(error) or "configured with budgets=" in str(error)
        assert (await store.info("r")).head == 5
        await store.set_budgets((Cap(name="day", micro_usd=10_000),), NOON)
        await store.recount(NOON)
        assert await stands(store) == {("day", ""): Spend(tokens=10, micro_usd=3_001)}
        await store.close()

    run(promise)


def test_budgets_are_not_set_while_what_was_spent_cannot_be_read_and_nothing_has_changed(path):
    async def promise():
        store, _ = await two_requests(path)
        sql(path, "UPDATE event SET data = x'00' WHERE type = 31")
        wish = store.set_budgets((Cap(name="more", calls=1),), NOON)
        assert "r" in str(await refused(BudgetUnknown, wish))
        assert [e.event.NAME for e in await store.read("store")] == ["budgets.set"]
        assert await stands(store) == FULL
        await refused(BudgetUnknown, store.recount(NOON))
        assert await stands(store) == FULL
        await store.set_budgets((), NOON)
        assert await store.budgets(NOON) == []
        await store.close()

    run(promise)


def test_what_an_erased_run_has_spent_still_counts_when_it_is_counted_anew(path):
    async def promise():
        store, story = await two_requests(path)
        last = (await store.rows("store"))[-1]
        fact = ev.StoreErased(run="r", head=4, hash="")
        row = seal("store", ev.Entry(seq=2, at=NOON, event=fact), bytes(16), last.hash)
        connection = apsw.Connection(str(path))
        connection.execute(
            "INSERT INTO event VALUES (2, ?, 0, '', ?, ?, ?, NULL, ?, ?)",
            (row.at, row.type, row.v, row.data, row.salt, row.hash),
        )
        connection.execute(
            "UPDATE run SET head = 2, counted = 2, hash = ? WHERE no = 0", (row.hash,)
        )
        connection.execute("UPDATE event SET data = NULL WHERE id > 4294967296")
        connection.close()
        assert await store.recount(NOON) != [], "what was reserved is not told any more"
        assert await stands(store) == {("day", ""): Spend(tokens=9, micro_usd=3_000)}
        assert await store.recount(NOON) == []
        assert story.run == "r"
        await store.close()

    run(promise)


def test_a_backup_that_is_put_back_counts_what_its_journals_say(path, tmp_path):
    async def promise():
        store, _ = await two_requests(path)
        await store.backup(str(tmp_path / "copy.db"))
        await store.close()
        restore(tmp_path / "copy.db", path)
        store = open_store(path)
        assert await stands(store) == FULL
        assert await store.recount(NOON) == []
        await store.close()

    run(promise)


def test_counters_of_windows_long_over_go_with_the_runs_that_are_pruned(path):
    async def promise():
        store, story = await two_requests(path)
        story.now = MIDNIGHT + 40 * DAY_US
        await append(store, story, story.answer(1, 1))
        await append(store, story, story.request(5, 5))
        assert len(sql(path, "SELECT * FROM spend")[0]) == 2
        await store.prune(MIDNIGHT + 30 * DAY_US)
        assert len(sql(path, "SELECT * FROM spend")[0]) == 1
        assert await stands(store, story.now) == {
            ("day", ""): Spend(held_tokens=5, held_micro_usd=5)
        }
        await store.close()

    run(promise)


def test_without_budgets_nothing_is_counted(path):
    async def promise():
        store = open_store(path)
        story = await begun(store, Spender("r"))
        await append(store, story, story.request(10, 4_000), story.answer(9, 3_000))
        assert sql(path, "SELECT * FROM spend", "SELECT * FROM ledger") == [[], []]
        assert await store.recount(NOON) == []
        await store.close()

    run(promise)


def test_looking_for_runs_that_were_not_counted_walks_over_no_runs(path):
    async def make():
        await (open_store(path)).close()

    run(make)
    plans = [
        sql(path, f"EXPLAIN QUERY PLAN {query.replace('?', '9')}")[0][0][3]
        for query in (spending._UNCOUNTED, spending._STANDING)
    ]
    assert plans == [
        "SCAN run USING INDEX run_uncounted",
        "SEARCH event USING COVERING INDEX event_budgets (type=? AND rowid<?)",
    ]


def test_a_model_reply_of_thousands_of_runs_is_not_read_to_charge_one(path):
    """Only events that charge something are looked at when it is counted anew."""

    async def promise():
        store, story = await two_requests(path)
        told = story.tell(*[ev.InputQueued(parts=()) for _ in range(50)], at=story.now)
        await append(store, story, told)
        sql(path, "UPDATE event SET data = x'00' WHERE type = 70")
        assert await store.recount(NOON) == []
        assert await stands(store) == FULL
        await store.close()

    run(promise)
