"""Memory in a store's file: it outlives processes, nothing erased is left, changes are found."""

import contextlib
import random
import shutil
import string

import apsw
import pytest
from tests.memory.kit import ANN, BOB, DAY, NOW, fact, looked, within

from cairn import Principal
from cairn.memory import FactFilter, Scope
from cairn.memory.embedding import Embedding
from cairn.memory.facts import user_scope
from cairn.store import inspect_store
from cairn.store.sqlite import schema
from cairn.store.sqlite.connection import Settings, open_reader
from cairn.store.sqlite.memory_rows import Rows
from cairn.testing.memory_promises import Meaning


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cairn.db"


async def story(memory, store):
    """Facts in every state, and tombstones of every kind."""
    await memory.keep(fact("Lives in Rome."), "k1", NOW)
    await memory.keep(fact("Lives in Oslo.", supersedes=1), "k2", NOW)
    await memory.keep(fact("住在杭州", tags=("home",)), "k3", NOW)
    waits = fact("Pays by card.", trust="untrusted", taint=("web",), waits=True)
    await memory.keep(waits, "k4", NOW)
    await memory.keep(fact("Pays in cash.", trust="untrusted", taint=("web",)), "k5", NOW)
    await memory.review(5, "accepted", NOW, actor="ada", reason="asked")
    await memory.keep(fact("one"), "k6", NOW)
    await memory.forget(6, NOW, actor="ann")
    await memory.keep(fact("two", waits=True), "k7", NOW)
    await memory.review(7, "rejected", NOW, actor="ada")
    await memory.keep(fact("theirs", BOB, Scope(kind="project", name="shop")), "k8", NOW)
    await memory.erase(BOB, NOW, actor="dpo")
    await memory.keep(fact("three", expires_at=NOW + DAY), "k9", NOW)
    await memory.keep(fact("four"), "k10", NOW + 30 * DAY)


def test_what_was_kept_is_there_when_the_file_is_opened_again(path):
    within(path, story)

    async def look(memory, _):
        found = await memory.recall("lives 杭州", [user_scope(ANN)], 5, NOW)
        assert {hit.fact.text for hit in found.hits} == {"Lives in Oslo.", "住在杭州"}
        assert [(await memory.gone(n)).why for n in (6, 7, 8, 9)] == [
            "forgotten",
            "rejected",
            "erased",
            "expired",
        ]
        kept = await memory.keep(fact("five"), "", NOW)
        assert kept.n == 11

    within(path, look)


def test_every_change_is_an_event_of_the_journal_store_and_says_nothing_of_the_text(path):
    within(path, story)

    async def look(_, store):
        assert await store.verify("store") == 15
        return await store.read("store")

    entries = within(path, look)
    names = [entry.event.NAME for entry in entries]
    assert names.count("memory.kept") == 10
    assert names.count("memory.reviewed") == 2
    assert names.count("memory.forgotten") == 2
    assert names.count("memory.erased") == 1
    assert [e.actor for e in entries if e.event.NAME == "memory.reviewed"] == ["ada", "ada"]
    for word in ("Rome", "Oslo", "杭州", "card", "theirs", "bob"):
        assert word not in repr(entries)


def test_a_file_with_facts_is_as_it_was_written(path):
    within(path, story, Embedding(Meaning()))
    assert looked(path) == []


@pytest.mark.parametrize("lasts", [DAY, 0], ids=["it ends sooner", "it lasts longer"])
def test_a_file_with_a_fact_that_was_confirmed_is_as_it_was_written(path, lasts):
    async def confirmed(memory, _):
        await memory.keep(fact("Likes coffee."), "", NOW)
        await memory.keep(fact("Likes tea.", expires_at=NOW + 2 * DAY), "", NOW)
        await memory.keep(fact("Likes tea.", trust="untrusted", taint=("web",)), "", NOW)
        waits = fact(
            "Likes tea.",
            trust="untrusted",
            expires_at=lasts and NOW + lasts,
            supersedes=1,
            waits=True,
        )
        await memory.keep(waits, "", NOW)
        await memory.review(4, "accepted", NOW, actor="ada", trust="untrusted")
        assert [f.n for f in await memory.facts(FactFilter(state="live"))] == [3]
        assert (await memory.get(3)).trust == "agent"

    within(path, confirmed, Embedding(Meaning()))
    assert looked(path) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE fact SET trust = 'owner' WHERE no = 3", "m3 says trust 'owner'"),
        ("UPDATE fact SET state = 'live' WHERE no = 4", "m4 says state 'live'"),
        (
            "UPDATE fact SET data = CAST(replace(data, 'Oslo', 'Lima') AS BLOB) WHERE no = 2",
            "m2 was",
        ),
        ("UPDATE fact SET successor = 3 WHERE no = 1", "m1 says successor 3"),
        ("UPDATE fact SET principal = 'bob' WHERE no = 3", "m3 says principal 'bob'"),
        ("DELETE FROM fact WHERE no = 10", "the fact m10 is missing"),
        ("DELETE FROM fact_gone WHERE no = 6", "the tombstone of the fact m6"),
        ("UPDATE fact_gone SET by = 'eve' WHERE no = 7", "the tombstone of the fact m7"),
        ("DELETE FROM fact_term WHERE fact = 3 AND term = '杭州'", "m3 is found by other words"),
        ("UPDATE fact SET scope = scope + 1 WHERE no = 3", "m3 says scope"),
        ("UPDATE fact_term SET scope = scope + 1 WHERE fact = 3", "m3 is found by other words"),
        ("INSERT INTO fact_term SELECT scope, 'bribe', 1, 1 FROM fact WHERE no = 1", "m1 is found"),
        (
            "UPDATE fact_vector SET vector = zeroblob(104) WHERE fact = 3",
            "the vector of the fact m3",
        ),
        (
            "INSERT INTO fact_vector SELECT 99, model, vector, hash FROM fact_vector LIMIT 1",
            "of no",
        ),
        ("UPDATE fact SET data = x'7b' WHERE no = 3", "the fact m3 cannot be read"),
    ],
)
def test_a_change_behind_the_stores_back_is_found_and_named(path, statement, said):
    within(path, story, Embedding(Meaning()))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(statement)
    assert connection.changes()
    connection.close()
    found = looked(path)
    assert any(said in each for each in found), found


def secret_words(seed):
    """Words that stand nowhere else, to be searched for in the bytes of a file."""
    chance = random.Random(seed)
    while True:
        yield "".join(chance.choices(string.ascii_lowercase, k=12))


def left_of(path, words):
    """Those of the words that are still somewhere in the store's files."""
    data = b"".join(each.read_bytes() for each in path.parent.glob("cairn.db*") if each.is_file())
    return [word for word in words if word.encode() in data]


def test_erasing_leaves_no_byte_of_the_text_in_any_file(path):
    """Pages are split, merged and reused before it: copies of old rows must not stay in them."""
    fresh, chance, mine = secret_words(1), random.Random(2), []

    def secret():
        mine.append(next(fresh))
        return f"{mine[-1]} {'pad ' * chance.randrange(400)}{mine[-1][::-1]}"

    async def work(memory, _):
        live = []
        for n in range(200):
            kept = await memory.keep(fact(secret(), tags=(next(fresh),)), f"a{n}", NOW)
            live.append(kept.n)
            await memory.keep(fact(f"theirs {n} {'x ' * chance.randrange(400)}", BOB), "", NOW)
            if chance.random() < 0.3:
                await memory.forget(live.pop(chance.randrange(len(live))), NOW)
            if live and chance.random() < 0.3:
                old = live.pop(chance.randrange(len(live)))
                newer = await memory.keep(fact(secret(), supersedes=old), "", NOW)
                live.append(newer.n)
        assert len(left_of(path, mine)) > 150
        erased = await memory.erase(ANN, NOW, actor="dpo", reason="asked to")
        assert erased.facts > 100
        assert erased.log_cleared
        assert left_of(path, mine) == []

    within(path, work, Embedding(Meaning()))
    assert left_of(path, mine) == []
    assert left_of(path, ["theirs"]) == ["theirs"]
    assert looked(path) == []


def test_what_was_forgotten_before_a_restart_is_gone_from_the_file_after_an_erasing(path):
    fresh = secret_words(3)
    mine = [next(fresh) for _ in range(40)]

    async def keep(memory, _):
        for word in mine:
            await memory.keep(fact(f"{word} {'pad ' * 200}"), "", NOW)

    async def forget(memory, _):
        for n in range(1, len(mine) + 1):
            await memory.forget(n, NOW)
        assert (await memory.erase(ANN, NOW)).log_cleared

    within(path, keep)
    within(path, forget)
    assert left_of(path, mine) == []


def test_an_erased_principals_name_is_nowhere_either(path):
    whose = Principal(id="winifred-oakes", tenant="oakes-and-sons")

    async def work(memory, _):
        await memory.keep(fact("hello", whose), "k", NOW)
        assert left_of(path, [whose.id, whose.tenant]) == [whose.id, whose.tenant]
        assert (await memory.erase(whose, NOW, actor="dpo")).facts == 1

    within(path, work)
    assert left_of(path, [whose.id, whose.tenant]) == []


def test_a_reader_of_an_older_state_is_told_of_and_erasing_again_clears_the_log(path):
    async def work(memory, store):
        store._writer._settings = Settings(path=store.settings.path, patience_s=0.1)
        await memory.keep(fact("quasar"), "", NOW)
        other = open_reader(store.settings)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM fact").fetchall()
        first = await memory.erase(ANN, NOW)
        assert (first.facts, first.log_cleared) == (1, False)
        other.execute("ROLLBACK")
        other.close()
        second = await memory.erase(ANN, NOW)
        assert (second.facts, second.log_cleared) == (0, True)

    within(path, work)
    assert left_of(path, ["quasar"]) == []


def test_a_store_of_the_version_before_memory_is_brought_up_to_date_and_looked_at(path):
    connection = apsw.Connection(str(path))
    schema.migrate(connection, str(path))
    for table in ("fact_vector", "fact_term", "fact", "fact_gone"):
        connection.execute(f"DROP TABLE {table}")
    later = [file for file in schema.migrations() if file.name > "0004"]
    assert later[0].name.startswith("0004")
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    shutil.copy(path, path.with_suffix(".old"))
    with inspect_store(path.with_suffix(".old")) as look:
        assert [str(f) for f in look.strays()] == []


def test_no_question_about_facts_reads_a_whole_table(path):
    """Whatever is asked often goes by an index; only lists of everything read everything."""
    statements = []

    async def work(memory, _):
        await story(memory, None)
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            connection.exec_trace = lambda _, sql, values: statements.append((sql, values)) or True
            rows = Rows(connection)
            for scope in (user_scope(ANN), Scope(kind="project", name="shop")):
                rows.count(scope, "live", NOW)
                list(rows.postings(scope, ("tea", "杭州"), NOW))
                rows.vectors(scope, "letters/26", NOW)
                rows.overdue(scope, NOW, 5)
                rows.facts(FactFilter(scope=scope), newest=True)
                rows.facts(FactFilter(scope=scope, state="waiting"), newest=True)
            rows.facts(FactFilter(principal="ann", tenant=""))
            rows.waiting_of(ANN, NOW)
            rows.keyed("k1")
            rows.replaced_by(user_scope(ANN), 2)
            rows.before(2)
            connection.exec_trace = None
            for sql, values in statements:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
                scans = [step[-1] for step in plan if step[-1].startswith("SCAN fact")]
                assert not scans, (sql, plan)

    within(path, work)
    assert len(statements) >= 14
