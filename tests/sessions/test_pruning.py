"""What is pruned goes whole, and what somebody goes on from stays."""

import asyncio
import signal
import subprocess
import sys

import apsw
import pytest
from tests.erasing.kit import everywhere, rows, wrong
from tests.store.first_version import AS_FIFTH

from cairn import Agent, Principal, Runtime, Scripted, UnknownRun
from cairn.core.events import ErasedFact, SessionForked, SessionRemoved
from cairn.engine import sessions as talk
from cairn.engine.clock import SystemClock
from cairn.store import inspect_store, open_store
from cairn.store.sqlite import pruning
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore

ALL = 2**62
PREVIOUS = "SELECT id, previous FROM run WHERE previous <> '' ORDER BY no"
ANN = Principal(id="ann", tenant="acme")


def model(request):
    return "said: " + "; ".join(
        part.content for m in request.messages if m.role == "user" for part in m.parts
    )


def runtime(path):
    return Runtime(path, [Agent("desk", Scripted(model))])


def forked(path):
    """`B` was forked from `A`, ran twice, and was put back to its own first run; all ids."""
    with runtime(path) as rt:
        first = rt.send("A", "one", agent="desk", principal="ann")
        rt.fork_session("A", "B", principal="ann")
        begun = rt.send("B", "two", principal="ann")
        later = rt.send("B", "three", principal="ann")
        rt.rewind("B", begun.id, principal="ann")
    return first.id, begun.id, later.id


def without(run):
    """Statements that take a run out, as an older Cairn did."""
    return (
        f"DELETE FROM event WHERE id >> 32 = (SELECT no FROM run WHERE id = '{run}')",
        f"DELETE FROM run WHERE id = '{run}'",
    )


def later(path, work):
    """What is asked of a store that is opened for it."""

    async def asked():
        store = open_store(path)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(asked())


def pruned(path, session=""):
    return later(path, lambda store: store.prune(ALL, session=session))


# ---------------------------------------------------------------- who goes on from whom


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_conversation_that_was_forked_and_put_back_outlives_the_one_it_was_forked_from(
    kind, tmp_path
):
    with runtime(":memory:" if kind == "memory" else tmp_path / "cairn.db") as rt:
        first = rt.send("A", "one", agent="desk", principal="ann")
        rt.send("A", "more", principal="ann")
        rt.fork_session("A", "B", at=first.id, principal="ann")
        begun = rt.send("B", "two", principal="ann")
        rt.send("B", "three", principal="ann")
        rt.rewind("B", begun.id, principal="ann")
        gone = rt.portal.call(rt.store.prune(ALL, session="A"), "prune")
        assert first.id not in gone
        assert len(gone) == 1
        assert rt.send("B", "four", principal="ann").text == "said: one; two; four"
        assert [run.run for run in rt.session("B", principal="ann").chain][:2] == [
            first.id,
            begun.id,
        ]


def test_a_run_that_is_gone_and_that_another_goes_on_from_is_found_missing(tmp_path):
    path = tmp_path / "cairn.db"
    first, begun, _ = forked(path)
    connection = apsw.Connection(str(path))
    for statement in without(first):
        connection.execute(statement)
    connection.close()
    with inspect_store(path) as look:
        (finding,) = look.inspect(begun).findings
    assert (finding.kind, str(finding)) == (
        "row",
        f"{begun}: it goes on from run {first}, which is missing",
    )


def test_a_run_that_ends_before_the_event_another_goes_on_from_is_found_out(tmp_path):
    path = tmp_path / "cairn.db"
    first, begun, _ = forked(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE run SET head = head - 1 WHERE id = ?", (first,))
    connection.close()
    with inspect_store(path) as look:
        (finding,) = look.inspect(begun).findings
    assert f"it goes on from event 4 of {first}, which is missing" in str(finding)


def test_a_session_that_is_forked_between_the_look_and_the_removal_keeps_its_beginning(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        first = rt.send("A", "one", agent="desk", principal="ann")
        second = rt.send("A", "two", principal="ann")
        kept = rt.send("C", "one", agent="desk", principal="ann")

    async def race():
        prunes = SqliteStore(Settings(path=str(path)))
        forks = SqliteStore(Settings(path=str(path)))
        look = pruning.choose

        def choose(*args):
            chosen = look(*args)
            assert {run for run, _ in chosen} == {first.id, second.id, kept.id}
            asyncio.run_coroutine_threadsafe(fork(), loop).result(60)
            return chosen

        async def fork():
            await talk.fork(forks, SystemClock(), "A", "B", first.id, "ann")
            await talk.set_title(forks, SystemClock(), "C", "Lamps", "ann")

        loop = asyncio.get_running_loop()
        pruning.choose = choose
        try:
            removed = await prunes.prune(ALL)
        finally:
            pruning.choose = look
            await prunes.close()
            await forks.close()
        return removed

    assert asyncio.run(race()) == [kept.id, second.id]
    with runtime(path) as rt:
        assert rt.send("B", "three", principal="ann").text == "said: one; three"
    assert wrong(path) == []
    assert rows(path, "SELECT session, title FROM place") == [("B", "")]
    told = later(path, lambda store: store.read("store"))
    assert [entry.seq for entry in told if isinstance(entry.event, ErasedFact)] == [2]


def test_a_title_that_comes_when_the_session_was_just_removed_is_refused(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        rt.send("A", "one", agent="desk", principal="ann")

    async def race(store):
        session, looked = store.session, []

        async def and_it_is_removed(name):
            found = await session(name)
            if not looked:
                looked.append(name)
                await store.prune(ALL)
            return found

        store.session = and_it_is_removed
        with pytest.raises(UnknownRun):
            await talk.set_title(store, SystemClock(), "A", "Lamps", "ann")
        del store.session
        return await store.read("store")

    told = later(path, race)
    assert len(told) == 1
    assert rows(path, "SELECT * FROM place") == []


# ---------------------------------------------------------------- what was said of it


def test_who_begins_a_session_of_the_same_name_has_nothing_of_the_one_before(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        rt.send("A", "one", agent="desk", principal="ann")
        rt.title_session("A", "Ann's divorce", principal="ann")
        rt.send("R", "r", agent="desk", principal="bob")
    assert len(pruned(path, "A")) == 1
    with runtime(path) as rt:
        rt.fork_session("R", "A", principal="bob")
        assert rt.session("A", principal="bob").title == "r"
        rt.send("A", "mine", principal="bob")
        assert {info.title for info in rt.sessions(principal="bob")} == {"r", "mine"}
    assert wrong(path) == []


def test_who_is_erased_after_their_sessions_were_pruned_has_left_no_title(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        for name in ("A", "B"):
            rt.send(name, "hello", agent="desk", principal=ANN)
            rt.title_session(name, f"zqdivorce{name}", principal=ANN)
    assert len(pruned(path, "A")) == 1
    told = later(path, lambda store: store.read("store"))
    assert [type(e.event) for e in told][:1] == [ErasedFact]
    assert told[-1].event == SessionRemoved(notes=(1,))
    with runtime(path) as rt:
        held = rt.holdings(ANN)
        assert (held.sessions, held.notes) == (("B",), (2,))
        assert rt.erase(ANN).cleared
    assert b"zqdivorce" not in everywhere(tmp_path)
    assert wrong(path) == []


def test_an_erased_run_says_no_more_what_it_went_on_from(tmp_path):
    path = tmp_path / "cairn.db"
    forked(path)
    assert len(rows(path, PREVIOUS)) == 2
    with runtime(path) as rt:
        rt.erase("ann")
    assert rows(path, PREVIOUS) == []
    assert wrong(path) == []
    assert len(pruned(path)) == 3


def test_a_fact_of_a_session_that_was_emptied_without_a_record_is_told_apart(tmp_path):
    path = tmp_path / "cairn.db"
    forked(path)
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE event SET data = NULL, salt = randomblob(32) WHERE type = ?", (SessionForked.TYPE,)
    )
    connection.close()
    with inspect_store(path) as look:
        assert look.inspect("store").findings


# ---------------------------------------------------------------- files of earlier versions


def as_fifth(path, *more):
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in (*AS_FIFTH, *more):
        connection.execute(statement)
    connection.close()


def test_an_older_file_knows_who_goes_on_from_whom_once_it_is_opened(tmp_path):
    path = tmp_path / "cairn.db"
    first, begun, after = forked(path)
    with runtime(path) as rt:
        waits = rt.post("B", "waits", principal="ann")
        queued = rt.post("B", "x" * 20_000, principal="ann", mode="queue")
        long = rt.follow(queued)
        assert rt.get(waits.run).status == "completed"
    before = rows(path, PREVIOUS)
    assert before == [(begun, first), (after, begun), (waits.run, begun), (long.id, waits.run)]
    as_fifth(path)
    with inspect_store(path) as look:
        assert [f for run in look.journals() for f in look.inspect(run).findings] == []
    assert pruned(path, "A") == []
    assert rows(path, PREVIOUS) == before
    assert wrong(path) == []


def test_an_older_file_that_was_damaged_by_pruning_is_opened_and_says_so(tmp_path):
    path = tmp_path / "cairn.db"
    first, begun, _ = forked(path)
    as_fifth(path, *without(first))
    with inspect_store(path) as look:
        assert [str(f) for f in look.inspect(begun).findings] == [
            f"{begun}: it goes on from run {first}, which is missing"
        ]
    assert pruned(path, "A") == []
    assert [f for f in wrong(path) if "which is missing" in f]


def test_of_an_older_file_what_was_left_of_sessions_that_were_removed_goes_when_it_is_opened(
    tmp_path,
):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        gone = rt.send("A", "one", agent="desk", principal="ann")
        rt.title_session("A", "zqdivorce", principal="ann")
        rt.send("B", "one", agent="desk", principal="bob")
        rt.title_session("B", "Lamps", principal="bob")
    as_fifth(path, *without(gone.id))
    with runtime(path) as rt:
        rt.send("A", "mine", agent="desk", principal="bob")
        assert {info.title for info in rt.sessions()} == {"mine", "Lamps"}
        told = [entry.event for entry in rt.trace("store")]
        assert told[-1] == SessionRemoved(notes=(1,))
        rt.erase("ann")
    assert b"zqdivorce" not in everywhere(tmp_path)
    assert wrong(path) == []


def test_an_older_file_whose_own_journal_is_damaged_is_opened_as_it_is(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        gone = rt.send("A", "one", agent="desk", principal="ann")
        rt.title_session("A", "zqdivorce", principal="ann")
    as_fifth(
        path,
        f"DELETE FROM run WHERE id = '{gone.id}'",
        "UPDATE event SET data = CAST('{' AS BLOB) WHERE type IN (1, 240)",
    )
    assert pruned(path) == []
    assert rows(path, "SELECT session, title FROM place") == [("A", "zqdivorce")]


# ---------------------------------------------------------------- killed

PRUNER = """
import asyncio, os, signal, sys
from cairn.store import open_store
from cairn.store.sqlite import journal, sessions, transaction, pruning, upgrading

path, when = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    def and_die(*args):
        function(*args)
        die()
    return and_die

if when == "before what is said goes":
    sessions.silence = die
elif when == "before it is said so":
    sessions.prepare = die
elif when == "before the commit":
    sessions.silence = after(sessions.silence)
elif when == "after the commit":
    transaction.Transaction.commit = after(transaction.Transaction.commit)
elif when == "in the migration":
    upgrading._append = die

async def main():
    store = open_store(path)
    await store.prune(2**62, session="A")

asyncio.run(main())
"""


@pytest.mark.kill
@pytest.mark.parametrize(
    ("when", "gone"),
    [
        ("before what is said goes", False),
        ("before it is said so", False),
        ("before the commit", False),
        ("after the commit", True),
    ],
)
def test_a_killed_pruning_has_removed_a_session_with_all_that_is_said_of_it_or_nothing(
    tmp_path, when, gone
):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        rt.send("A", "one", agent="desk", principal="ann")
        rt.title_session("A", "Lamps", principal="ann")
    pruner = subprocess.run([sys.executable, "-c", PRUNER, str(path), when], check=False)
    assert pruner.returncode == -signal.SIGKILL
    assert wrong(path) == []
    assert rows(path, "SELECT title FROM place") == ([] if gone else [("Lamps",)])
    assert len(pruned(path)) == (0 if gone else 1)
    assert wrong(path) == []
    assert rows(path, "SELECT * FROM place") == []
    assert rows(path, "SELECT count(*) FROM event WHERE type = 243") == [(1,)]


@pytest.mark.kill
def test_a_file_whose_migration_is_killed_is_as_it_was_and_the_next_one_ends_it(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        gone = rt.send("A", "one", agent="desk", principal="ann")
        rt.title_session("A", "Lamps", principal="ann")
    as_fifth(path, *without(gone.id))
    pruner = subprocess.run(
        [sys.executable, "-c", PRUNER, str(path), "in the migration"], check=False
    )
    assert pruner.returncode == -signal.SIGKILL
    assert rows(path, "PRAGMA user_version") == [(5,)]
    assert wrong(path) == []
    assert pruned(path) == []
    assert rows(path, "SELECT * FROM place") == []
    assert wrong(path) == []


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_of_one_tenant_as_many_sessions_are_listed_as_there_are_up_to_the_limit(kind, tmp_path):
    with runtime(":memory:" if kind == "memory" else tmp_path / "cairn.db") as rt:
        for n in range(6):
            who = Principal(id="zed", tenant="a" if n < 3 else "b")
            rt.send(f"t{n}", f"word {n}", agent="desk", principal=who)
        mine = Principal(id="zed", tenant="a")
        assert [i.session for i in rt.sessions(principal=mine, limit=3)] == ["t2", "t1", "t0"]
        assert [i.session for i in rt.sessions(principal=mine, limit=2)] == ["t2", "t1"]
        assert len(rt.sessions(principal="zed", limit=4)) == 4
        assert rt.sessions(principal=Principal(id="zed")) == []


def test_the_titles_of_a_list_are_found_without_a_look_at_all_runs(tmp_path):
    with runtime(tmp_path / "cairn.db") as rt:
        for n in range(3):
            first = rt.send("A", f"word {n}", agent="desk", principal="ann")
        rt.fork_session("A", "B", at=first.id, principal="ann")

        async def runs(where):
            raise AssertionError(f"{where} is asked for")

        rt.store.runs = runs
        assert [(i.session, i.title) for i in rt.sessions()] == [("B", "word 0"), ("A", "word 0")]
        del rt.store.runs
