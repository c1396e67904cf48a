"""What somebody said among others is found, handed over, and never left without a word."""

import json

import pytest
from typer.testing import CliRunner

from cairn import Agent, Principal, Refused, Route, Runtime, Scripted, call, tool
from cairn.cli.entry import app
from cairn.core import events as ev
from cairn.core.erasing import SHARED
from cairn.errors import RunErased
from cairn.store.inmemory import InMemoryStore

ROOM = [Route(agent="desk", channel="room", session="channel", shared=True)]


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    """Where journals live: a file, or memory."""
    return tmp_path / "cairn.db" if request.param == "file" else InMemoryStore()


def desk(store, *said):
    """A runtime with one agent, and a room that all share."""
    model = Scripted([*said] if said else lambda request: "Noted.")
    return Runtime(store, [Agent("desk", model, tools=[pay])], routes=ROOM)


def talk(rt):
    """Ann and Bob in a room; the ids of the runs."""
    one = rt.receive(channel="room", principal="ann", text="I live in Rome.")
    two = rt.receive(channel="room", principal="bob", text="And I in Oslo.")
    return one.id, two.id


def test_what_was_said_in_a_shared_session_is_found_and_handed_over(store):
    with desk(store) as rt:
        one, two = talk(rt)
        held = rt.holdings("ann")
        assert held.runs == ()
        assert [info.run for info in held.shared] == [one]
        lines = [json.loads(line) for line in rt.export_principal("ann")]
        written = [line for line in lines if line["kind"] == "written"]
        assert [line["run"] for line in written] == [one]
        assert "I live in Rome." in written[0]["data"]
        assert "Oslo" not in json.dumps(lines)
        assert [info.run for info in rt.holdings("bob").shared] == [two]
        assert rt.holdings("carl").elsewhere == ()


def test_a_shared_session_is_erased_whole_and_only_if_that_was_said(store):
    with desk(store) as rt:
        one, two = talk(rt)
        rt.run("desk", "hello", id="own", principal="ann")
        with pytest.raises(Refused, match=r"shared sessions: .*room \(with bob\).*--shared"):
            rt.erase("ann")
        assert rt.get("own").status == "completed", "nothing has changed"
        erased = rt.erase("ann", shared=True)
        assert set(erased.runs) == {one, two, "own"}
        assert erased.stays == ()
        for run in (one, two):
            with pytest.raises(RunErased):
                rt.get(run)
        assert rt.holdings("bob").elsewhere == ()
        assert rt.erase("ann").runs == ()
        told = list(rt.portal.call(rt.store.read("store"), "reading"))
        whole = [e.event for e in told if isinstance(e.event, ev.PrincipalErased)]
        assert [each.runs for each in whole] == [2, 1], "one record for the room, one for ann"
        begun = rt.receive(channel="room", principal="bob", text="Anybody here?")
        assert begun.status == "completed", "the room is free again"


def test_a_shared_session_that_is_not_over_holds_it_back_or_is_cancelled(store):
    with desk(store, call("pay", order="7")) as rt:
        run = rt.receive(channel="room", principal="ann", text="Pay order 7")
        assert run.status == "waiting"
        with pytest.raises(Refused, match="are over"):
            rt.erase("ann", shared=True)
        assert rt.erase("ann", shared=True, force=True).runs == (run.id,)


def test_what_was_written_in_runs_of_others_stays_and_is_named(store):
    with desk(store, call("pay", order="7"), "done") as rt:
        run = rt.run("desk", "pay", id="b", principal="bob")
        rt.approve(run.pending[0].id, "I know the shop", by="ann")
        assert rt.resume("b").ok
        erased = rt.erase("ann")
        assert (erased.runs, len(erased.stays)) == ((), 1)
        assert "run b of bob" in erased.stays[0]
        assert rt.get("b").ok


def test_the_same_id_in_another_tenant_is_another_person(store):
    with desk(store) as rt:
        talk(rt)
        assert rt.holdings(Principal(id="ann", tenant="acme")).elsewhere == ()


def cairn(*words):
    """What a command prints, and its exit code."""
    result = CliRunner().invoke(app, [*words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output, result.exit_code


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a store in it that holds a shared session, and no application."""
    monkeypatch.chdir(tmp_path)
    for name in ("CAIRN_APP", "CAIRN_STORE", "CAIRN_SECRETS"):
        monkeypatch.delenv(name, raising=False)
    with desk(tmp_path / "cairn.db") as rt:
        talk(rt)
    return tmp_path


def test_the_command_lists_shared_sessions_and_writes_no_copy_before_it_refuses(here):
    told, code = cairn("erase", "--principal", "ann", "--yes", "--export", "copy.jsonl")
    assert code == 1
    assert "shared session: desk/channel//" in told
    assert "with bob" in told
    assert not (here / "copy.jsonl").exists()
    told, code = cairn("erase", "--principal", "ann", "--yes", "--shared")
    assert (code, "erased: 2 runs" in told) == (0, True)
    assert "shared sessions go whole, with what others wrote in them: 2 runs" in told
    assert b"I live in Rome" not in (here / "cairn.db").read_bytes()
    told, code = cairn("verify")
    assert code == 0, told


def test_a_run_that_is_not_over_is_refused_before_a_copy_is_written(here):
    with desk(here / "cairn.db", call("pay", order="7")) as rt:
        rt.run("desk", "pay", id="r", principal="carl")
    told, code = cairn("erase", "--principal", "carl", "--yes", "--export", "copy.jsonl")
    assert (code, "not all runs of 'carl' are over" in told) == (1, True)
    assert not (here / "copy.jsonl").exists()
    told, code = cairn("erase", "--principal", "carl", "--yes", "--force", "--export", "c.jsonl")
    assert (code, (here / "c.jsonl").exists()) == (0, True)


def test_of_whom_nothing_is_kept_is_said_and_ends_with_1(here):
    told, code = cairn("erase", "--principal", "anm", "--yes")
    assert (code, "nothing is kept of anm" in told) == (1, True)
    assert "erased" not in told


def test_shared_runs_belong_to_a_principal_that_can_be_told_from_people():
    with desk(InMemoryStore()) as rt:
        run, _ = talk(rt)
        assert rt.runs()[-1].run == run
        assert rt.runs()[-1].principal.startswith(SHARED)


def test_an_application_without_workspaces_is_not_said_to_be_none(here, monkeypatch):
    (here / "plain_desk.py").write_text(
        "from cairn import Agent, Runtime, Scripted\n"
        "rt = Runtime('cairn.db', [Agent('desk', Scripted(['Noted.']))])\n"
        "rt.run('desk', 'hello', principal='dora')\n"
    )
    monkeypatch.syspath_prepend(here)
    told, code = cairn("erase", "--principal", "dora", "--yes", "--app", "plain_desk:rt")
    assert (code, "erased: 1 run" in told) == (0, True)
    assert "workspaces" not in told


def test_an_export_that_would_write_over_a_file_names_the_option_and_the_way_out(here):
    (here / "there").write_text("mine")
    told, code = cairn("export", "--principal", "ann", "-o", "there")
    assert (code, "-o" in told, "--force" in told) == (2, True, True)
    assert (here / "there").read_text() == "mine"
