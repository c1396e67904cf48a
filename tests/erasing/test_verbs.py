"""A principal is handed over and erased through a runtime, and reads say what became of it."""

import asyncio
import threading

import apsw
import msgspec
import pytest
from tests.erasing.kit import ANN, BOB, Garden, live, runtime, wrong

from cairn import Agent, Principal, Refused, Runtime, Scripted, call, tool
from cairn.core.codec import Row, check_chain
from cairn.core.erasing import whose
from cairn.errors import ConfigError, RunErased, UnknownRun
from cairn.memory.inmemory import InMemoryMemory
from cairn.store.inmemory import InMemoryStore
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.workspace import Workspace


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


def shop(store, script, **more):
    return Runtime(store, [Agent("shop", Scripted(script), tools=[pay])], **more)


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    """Where journals live: a file, or memory."""
    return tmp_path / "cairn.db" if request.param == "file" else InMemoryStore()


# ---------------------------------------------------------------- reading

VERBS = {
    "get": lambda rt: rt.get("r"),
    "at": lambda rt: rt.at("r", 1),
    "trace": lambda rt: rt.trace("r"),
    "drive": lambda rt: rt.drive("r"),
    "replay": lambda rt: rt.replay("r"),
    "fork": lambda rt: rt.fork("r", 1),
    "retry": lambda rt: rt.retry("r"),
    "resume": lambda rt: rt.resume("r"),
    "cancel": lambda rt: rt.cancel("r"),
    "approve": lambda rt: rt.approve("r/1"),
    "resolve": lambda rt: rt.resolve("r/c1", happened=True),
    "edit": lambda rt: rt.edit("r", message="more"),
    "run": lambda rt: rt.run("shop", "again", id="r", principal="ann"),
    "start": lambda rt: rt.start("shop", "hello", id="r", session="s", principal="ann"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_every_verb_on_an_erased_run_says_that_it_was_erased(store, verb):
    with shop(store, ["done"]) as rt:
        rt.run("shop", "hello", id="r", session="s", principal="ann")
        rt.erase("ann")
        with pytest.raises(RunErased, match="'r' was erased") as caught:
            verb(rt)
        assert caught.value.run == "r"
        assert isinstance(caught.value, UnknownRun)


def test_lists_show_an_erased_run_and_its_session_begins_anew(store):
    with shop(store, ["done", "done"]) as rt:
        rt.run("shop", "hello", id="r", session="s", principal="ann")
        rt.run("shop", "hello", id="b", principal="bob")
        rt.erase("ann")
        lines = {line.run: line for line in rt.runs()}
        assert (lines["r"].erased, lines["b"].erased) == (True, False)
        assert rt.sessions() == []
        with pytest.raises(UnknownRun):
            rt.session("s")
        with pytest.raises(UnknownRun):
            rt.send("s", "hello again", principal="ann")
        assert rt.run("shop", "hello", id="r2", session="s", principal="bob").status == "completed"
        assert rt.show_grant("pay").runs == 3, "what is erased is passed over"
        assert asyncio.run(rt.store.runnable(["shop"], 2**60)) == []


# ---------------------------------------------------------------- refusing, and cancelling first


def test_a_run_that_is_not_over_holds_an_erasing_back_unless_it_is_to_be_cancelled(tmp_path):
    folder = tmp_path / "work"
    with shop(tmp_path / "cairn.db", [call("pay", order="7")], workspace=folder) as rt:
        rt.run("shop", "hello", id="r", principal="ann")
        rt.host.workspaces.of("r").write("kept.txt", b"kept")
        with pytest.raises(Refused, match="not all runs of 'ann' are over: r"):
            rt.erase("ann")
        assert rt.get("r").status == "waiting"
        assert (folder / "r" / "kept.txt").read_bytes() == b"kept"
        assert rt.erase("ann", force=True).runs == ("r",)
        assert rt.runs()[0].status == "cancelled"
        assert rt.pending() == []
        assert not (folder / "r").exists()
    assert wrong(tmp_path / "cairn.db") == []


def test_whose_it_is_must_be_said(store):
    with shop(store, []) as rt, pytest.raises(ConfigError, match="principal"):
        rt.erase("")


# ---------------------------------------------------------------- what else there is


def test_a_workspace_that_was_given_for_all_runs_stays(tmp_path):
    shared = Workspace(tmp_path / "shared")
    with shop(tmp_path / "cairn.db", ["done"], workspace=shared) as rt:
        rt.run("shop", "hello", id="r", principal="ann")
        shared.write("all.txt", b"everybody's")
        assert rt.erase("ann").runs == ("r",)
        assert shared.read("all.txt") == b"everybody's"


def test_a_memory_that_is_kept_elsewhere_is_erased_too(tmp_path):
    own = InMemoryMemory()
    with shop(tmp_path / "cairn.db", ["done"], memory=own) as rt:
        rt.remember("Likes tea.", principal="ann")
        rt.remember("Likes milk.", principal="bob")
        assert rt.holdings("ann").facts == 1
        assert rt.erase("ann").facts == 1
        assert [fact.text for fact in rt.facts()] == ["Likes milk."]
        assert rt.erase("ann").facts == 0


def test_an_outcome_that_comes_after_the_erasing_is_not_written(tmp_path):
    gate, begun = threading.Event(), threading.Event()

    @tool(effect="write", timeout=0.2)
    def slow() -> str:
        """Take long."""
        begun.set()
        gate.wait(10)
        return "a late secret"

    agent = Agent("shop", Scripted([call("slow"), "done"]), tools=[slow])
    with Runtime(tmp_path / "cairn.db", [agent]) as rt:
        rt.grant("slow")
        rt.run("shop", "hello", id="r", principal="ann")
        assert begun.is_set()
        rt.erase("ann", force=True)
        rows = asyncio.run(rt.store.rows("r"))
        gate.set()
    assert {row.data for row in rows} == {None}
    assert b"a late secret" not in (tmp_path / "cairn.db").read_bytes()
    assert wrong(tmp_path / "cairn.db") == []


def test_while_another_reads_an_older_state_the_erasing_says_that_copies_may_be_left(tmp_path):
    path = tmp_path / "cairn.db"
    hasty = SqliteStore(Settings(path=str(path), patience_s=0.1))
    with shop(hasty, ["done"]) as rt:
        rt.run("shop", "my word", id="r", principal="ann")
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        cursor = reader.execute("SELECT * FROM event")
        next(cursor)
        erased = rt.erase("ann")
        assert (erased.runs, erased.cleared) == (("r",), False)
        cursor.close()
        reader.close()
        again = rt.erase("ann")
        assert (again.runs, again.cleared) == ((), True)


# ---------------------------------------------------------------- handing over


def test_the_export_holds_all_of_it_and_its_chains_verify(tmp_path):
    path, ann, bob = tmp_path / "cairn.db", Garden("ann"), Garden("bob")
    with runtime(path, tmp_path / "work", ann) as rt:
        runs = live(rt, ANN, ann)
        with runtime(path, tmp_path / "work", bob) as other:
            live(other, BOB, bob)
        text = "\n".join(rt.export_principal(ANN))
        lines = [msgspec.json.decode(line) for line in text.splitlines()]
        assert [place for place, word in ann.words.items() if word not in text] == []
        assert not [word for word in bob.words.values() if word in text]
        kinds = [line["kind"] for line in lines]
        assert {*kinds} == {"principal", "run", "event", "session", "fact", "note"}
        assert [line["run"] for line in lines if line["kind"] == "run"] == runs
        own = [line for line in lines if line["kind"] == "event" and line["run"] == runs[0]]
        check_chain(runs[0], [row_of(line) for line in own])
        assert {line["name"] for line in lines if line["kind"] == "note"} >= {
            "grant.made",
            "session.titled",
        }
        rt.erase(ANN)
        assert len(rt.export_principal(ANN)) == 1


def row_of(line):
    return Row(
        **{name: line[name] for name in ("seq", "at", "step", "actor", "type", "v")},
        data=line["data"].encode(),
        salt=bytes.fromhex(line["salt"]),
        hash=bytes.fromhex(line["hash"]),
    )


def test_the_record_of_it_names_nobody_and_shows_it_to_who_knows_the_id(tmp_path):
    with shop(tmp_path / "cairn.db", ["done"]) as rt:
        rt.run("shop", "hello", id="r", principal="ann")
        rt.erase("ann", by="dpo", reason="asked to")
        record = rt.trace("store")[-1]
        assert (record.event.NAME, record.actor) == ("store.principal_erased", "dpo")
        fields = msgspec.json.encode(record.event)
        assert b"ann" not in fields
        salt = bytes.fromhex(record.event.salt)
        assert record.event.whose == whose(Principal(id="ann"), salt)
        assert record.event.whose != whose(BOB, salt)


def test_a_grant_that_was_made_for_them_answers_nothing_any_more(store):
    script = [call("pay", order="7"), "done"]
    with shop(store, script) as rt:
        rt.grant("pay", principal="ann")
        assert rt.run("shop", "hello", id="r", principal="ann").status == "completed"
        assert rt.erase("ann").grants == 1
        assert rt.grants() == []
        assert rt.run("shop", "hello", id="r2", principal="ann").status == "waiting"
