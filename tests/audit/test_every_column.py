"""Whatever column of a store is changed, `verify` finds it, or the column says nothing of a run.

The tables are asked for their columns: a new one is changed like all the others, and must be found
or stand in `EXEMPT` with a reason.
"""

import asyncio
import contextlib
import shutil
import time
from pathlib import Path
from tempfile import mkdtemp

import apsw
import msgspec
import pytest
from tests.audit.conftest import refund

from cairn import Agent, Budget, Policy, Price, Runtime, Scripted, Usage, call, tool
from cairn.memory.embedding import Embedding
from cairn.memory.facts import NewFact, Scope
from cairn.store import inspect_store, open_store
from cairn.store.sqlite import schema
from cairn.testing.store_budgets import DAY, NOON, Spender, append, begun

EXEMPT = {
    ("run", "epoch"): "a lease: how often the run was claimed",
    ("run", "owner"): "a lease: which process drives it now",
    ("run", "doubt"): "a lease: whether who drove it before may yet wake up",
    ("place", "no"): "only the order in which sessions without runs of their own are listed",
    ("pending", "no"): "only the order in which the inbox lists what waits",
    ("owner", "token"): "a lease: a process that is alive, and nothing of a run",
    ("owner", "pid"): "a lease",
    ("owner", "boot"): "a lease",
    ("owner", "beat"): "a lease",
}
"""Columns that are no evidence, and why."""
CHANGES = {
    ("run", "no"): "no + 1000",
    (
        "run",
        "parent",
    ): "CASE WHEN no = 0 THEN 1 WHEN parent IS NULL THEN no - 1 ELSE parent - 1 END",
    ("run", "due"): "coalesce(due, 0) + 1",
    ("event", "id"): "id + (1000 << 32)",
    ("event", "data"): "CAST(coalesce(data, '') || ' ' AS BLOB)",
    ("event", "blob"): "randomblob(32)",
    ("blob", "data"): "CAST(data || ' ' AS BLOB)",
    ("ledger", "run"): "run + 1000",
    ("ledger", "data"): "CAST(replace(data, '\"shop\"', '\"other\"') AS BLOB)",
    ("pending", "run"): "run + 1000",
    ("pending", "no"): "no + 1000",
    ("place", "no"): "no + 1000",
    ("fact", "no"): "no + 1000",
    ("fact_scope", "no"): "no + 1000",
    ("uncounted", "run"): "run + 1000",
}
"""How a column is changed where its type alone does not say it."""
BY_TYPE = {"INTEGER": "{0} + 1", "TEXT": "{0} || 'x'", "BLOB": "randomblob(length({0}))"}
SAID = {
    ("run", "no"): "is missing",
    ("run", "id"): ("event ", "no line of the store's own journal"),
    ("run", "parent"): ("says fork", "event "),
    ("run", "parent_at"): ("says fork", "event "),
    ("run", "head"): "event ",
    ("run", "hash"): "is not the one that the run table names",
    ("run", "counted"): "was written to by a process of an older Cairn",
    ("event", "id"): "is missing",
    ("blob", "hash"): "there is a payload that no event names",
    ("blob", "data"): "its time, step, actor, type, salt or data",
    ("ledger", "run"): "there is a ledger of line",
}
"""How the change of a column is told, or in which ways; by its name, if nothing stands here."""
TABLES = {"event": "was changed", "pending": "inbox", "spend": "budget", "ledger": "ledger"}
TABLES |= {"uncounted": "could not be counted", "message": "the messages listed for it are not"}
TABLES |= {"place": "what is listed of session", "fact_gone": "the tombstone of the fact m4"}
TABLES |= dict.fromkeys(("fact", "fact_scope", "fact_term", "fact_vector"), "the fact m")
"""The same for whole tables."""
EMPTY = (
    "INSERT INTO run (id, head, hash, status, created_at, updated_at) "
    "VALUES ('empty', 0, zeroblob(32), 'queued', 0, 0)"
)
LEDGER = "UPDATE ledger SET data = CAST({} AS BLOB) WHERE run = 1"


def columns():
    """All columns of all tables of a new store, with their types."""
    path = Path(mkdtemp()) / "empty.db"
    connection = apsw.Connection(str(path))
    schema.migrate(connection, str(path))
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    found = {
        (table, column): kind
        for (table,) in connection.execute(names).fetchall()
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
    }
    connection.close()
    shutil.rmtree(path.parent)
    return found


COLUMNS = columns()


@tool(effect="read")
def look(what: str = "") -> str:
    """Look something up."""
    return f"{what} " * 5_000


class Letters:
    """An embedder that counts two letters."""

    name = "letters"
    dimensions = 2

    async def embed(self, texts):
        return [(text.count("a") + 1.0, text.count("e") + 1.0) for text in texts]


async def remember(path):
    """Facts: one that was replaced, one that counts, one that waits, and one that is gone."""
    store = open_store(path)
    memory = store.memory(Embedding(Letters()))
    now = time.time_ns() // 1_000
    new = NewFact(text="Ann likes tea", scope=Scope(kind="user", name="ann"), principal="ann")
    first = (await memory.keep(new, "k1", now, "ann")).n
    other = msgspec.structs.replace(new, text="Ann likes coffee", supersedes=first)
    await memory.keep(other, "k2", now, "ann")
    await memory.keep(msgspec.structs.replace(new, text="Unsure", waits=True), "k3", now, "ann")
    gone = (await memory.keep(msgspec.structs.replace(new, text="Secret"), "k4", now, "ann")).n
    await memory.forget(gone, now, actor="ann", reason="asked to")
    await store.close()


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A store in which every table but those of leases holds something."""
    path = tmp_path_factory.mktemp("rich") / "cairn.db"
    script = [[call("refund", order="7", cents=4), call("look", what="it")], "done"]
    model = Scripted(
        script,
        usage=Usage(input_tokens=100),
        price=Price(input=1_000_000, output=1_000_000),
        max_output=1_000,
    )
    agent = Agent("shop", model, tools=[refund, look], policy=Policy(tools={"refund": "ask"}))
    budgets = [Budget(per="principal", window="month", calls=30)]
    with Runtime(path, agents=[agent], budgets=budgets) as rt:
        rt.run("shop", "go", id="asking", principal="ann")
        rt.run("shop", "go", id="cancelled", principal="ann")
        rt.cancel("cancelled")
        rt.run("shop", "go", id="narrow", principal="bob", session="s", limits={"steps": 1})
        rt.approve("narrow/1", by="ada")
        assert rt.resume("narrow").limit == "steps"
        rt.retry("narrow", id="wider", limits={"steps": 5})
        rt.fork("wider", at=3, id="fork", drive=False)
        rt.run("shop", "go", id="active", session="t")
        rt.send("t", "and hurry", mode="steer", id="a message")
        rt.enqueue("shop", "later", id="later", session="t", mode="queue")
        rt.title_session("t", "Refunds")
        for n in (1, 2):
            rt.run("shop", "go", id=f"v{n}", session="v")
            rt.cancel(f"v{n}")
        rt.rewind("v", to="v1")
    asyncio.run(remember(path))
    connection = apsw.Connection(str(path))
    now = time.time_ns() // 1_000
    connection.execute("INSERT INTO owner VALUES ('gone', 1, 'boot', ?)", (now,))
    connection.close()
    return path


def told(path):
    """All that a look at the whole store finds."""
    with inspect_store(path) as look:
        found = [f for run in look.journals() for f in look.inspect(run).findings]
        return [*found, *look.strays(), *look.counters(time.time_ns() // 1_000)]


@pytest.fixture
def copy(rich, tmp_path):
    shutil.copy(rich, tmp_path / "cairn.db")
    connection = apsw.Connection(str(tmp_path / "cairn.db"))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF")
    yield tmp_path / "cairn.db", connection
    connection.close()


def test_a_store_in_which_every_table_holds_something_is_as_it_was_written(copy):
    path, connection = copy
    assert told(path) == []
    for table in {table for table, _ in COLUMNS} - {"uncounted"}:
        assert connection.execute(f"SELECT count(*) FROM {table}").get, table


def key(table):
    """What a row is found by: this table has no numbers."""
    return "id" if table == "message" else "rowid"


def rows_to_change(connection, table, column):
    """Rows in which the column says something; of the events, some of each kind."""
    where = {
        ("event", "blob"): "WHERE blob IS NOT NULL",
        ("run", "parent_at"): "WHERE no > 0 OR parent_at = 0",
    }.get((table, column), "")
    found = [row for (row,) in connection.execute(f"SELECT {key(table)} FROM {table} {where}")]
    return found[::5] if table == "event" and len(found) > 20 else found


def restore(connection, table, old):
    connection.execute(f"DELETE FROM {table}")
    marks = ", ".join("?" * len(old[0]))  # in the same order, whatever rowids they get
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", old)


def change(table, column):
    """The statement that changes one row of a column."""
    to = CHANGES.get((table, column)) or BY_TYPE[COLUMNS[table, column]].format(column)
    return f"UPDATE {table} SET {column} = {to} WHERE {key(table)} = ?"


@pytest.mark.parametrize(("table", "column"), sorted(COLUMNS.keys() - EXEMPT.keys()))
def test_a_change_of_any_column_in_any_row_is_found_and_named(copy, table, column):
    path, connection = copy
    if table == "uncounted":
        connection.execute("INSERT INTO uncounted VALUES (1)")
    old = connection.execute(f"SELECT * FROM {table}").fetchall()
    count = len(rows_to_change(connection, table, column))
    assert count
    for n in range(count):
        row = rows_to_change(connection, table, column)[n]
        connection.execute(change(table, column), (row,))
        assert connection.changes() == 1
        assert sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) != sorted(
            old, key=repr
        ), "the test changes nothing"
        found = "\n".join(map(str, told(path)))
        said = SAID.get((table, column)) or TABLES.get(table) or f"the run table says {column} "
        ways = said if isinstance(said, tuple) else (said,)
        assert any(way in found for way in ways), (
            f"{table}.{column} of row {row}: {found or 'nothing was found'}"
        )
        restore(connection, table, old)
    if table != "uncounted":
        assert told(path) == []


@pytest.mark.parametrize(("table", "column"), sorted(EXEMPT))
def test_what_is_said_to_be_no_evidence_is_there_and_changes_no_finding(copy, table, column):
    path, connection = copy
    assert (table, column) in COLUMNS, "it is gone: take it off the list"
    for row in rows_to_change(connection, table, column):
        connection.execute(change(table, column), (row,))
    assert told(path) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("INSERT INTO blob VALUES (zeroblob(32), x'78')", "a payload that no event names: 0000"),
        (
            "INSERT INTO event VALUES ((1000 << 32) + 1, 0, 0, '', 1, 1, x'', NULL, x'', x'')",
            "there are events of line 1000 of the run table, which is missing",
        ),
        (
            "INSERT INTO pending VALUES (99, 1000, 'a/9', 'approval', 'c9', 't', '', '', 0)",
            "the inbox lists 'a/9' of a run that is not there",
        ),
        (
            "INSERT INTO pending VALUES (99, 0, 'store/9', 'approval', 'c9', 't', '', '', 0)",
            "store: the inbox lists ['store/9']",
        ),
        ("INSERT INTO message VALUES ('m-1', 1, 3)", "the message 'm-1' is listed where none is"),
        ("UPDATE place SET newest = 0 WHERE session = 'v'", "what is listed of session 'v'"),
        (EMPTY, "empty: the run table lists it, and it has no event of its own"),
        (
            "UPDATE event SET data = x'78' WHERE blob IS NOT NULL",
            "was changed: it holds text beside the payload that it names",
        ),
        ("UPDATE run SET parent = 1, parent_at = 0 WHERE id = 'cancelled'", "fork ('asking', 0)"),
        ("UPDATE run SET parent_at = 3 WHERE id = 'asking'", "fork ('', 3)"),
        ("UPDATE run SET cancel = 2 WHERE id = 'cancelled'", "cancel 2, the journal says 1"),
        ("UPDATE run SET session = '' WHERE id = 'wider'", "session '', the journal says 's'"),
        ("UPDATE run SET session = 's' WHERE id = 'fork'", "session 's', the journal says ''"),
        ("UPDATE ledger SET data = x'7b' WHERE run = 1", "the ledger of run asking cannot be read"),
        ("UPDATE ledger SET data = x'7b7d' WHERE run = 1", "the ledger of run asking says Ledger("),
        (LEDGER.format("replace(data, '\"ann\"', '\"eve\"')"), "principal='eve'"),
        (LEDGER.format("json_set(data, '$.tenant', 'other')"), "tenant='other'"),
        (LEDGER.format("json_set(data, '$.holds.c1', json('{\"at\":5}'))"), "'c1': Hold(at=5"),
    ],
)
def test_a_row_that_belongs_to_nothing_or_says_something_else_is_found(copy, statement, said):
    path, connection = copy
    connection.execute(statement)
    found = "\n".join(map(str, told(path)))
    assert said in found, found or "nothing was found"


def test_a_ledger_that_was_removed_while_something_is_reserved_is_missed(tmp_path):
    path = tmp_path / "cairn.db"

    async def reserve():
        store = open_store(path)
        await store.set_budgets((DAY,), NOON)
        story = await begun(store, Spender("r"))
        await append(store, story, story.request())
        await store.close()

    asyncio.run(reserve())
    with inspect_store(path) as look:
        assert look.counters(NOON) == []
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM ledger")
    with inspect_store(path) as look:
        [found] = look.counters(NOON)
    assert found.kind == "counter"
    assert "the ledger of run r is missing, the journal says Ledger(" in found.text
