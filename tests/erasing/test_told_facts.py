"""What others' runs were told of somebody's facts stays with those runs, and is said each time."""

import pytest
from tests.memory.kit import DAY, Clock
from typer.testing import CliRunner

from cairn import (
    Agent,
    ContextBlock,
    MemoryRules,
    Principal,
    Route,
    Runtime,
    Scripted,
    call,
    memory_block,
)
from cairn.cli.entry import app
from cairn.memory.inmemory import InMemoryMemory
from cairn.store.inmemory import InMemoryStore
from cairn.toolkit import MEMORY_TOOLS

ROOM = [Route(agent="desk", channel="room", session="channel", shared=True)]


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    """Where journals live: a file, or memory."""
    return tmp_path / "cairn.db" if request.param == "file" else InMemoryStore()


def desk(store, *, memory=None):
    """A runtime whose agent looks up what the project knows, by a call or in a block."""

    def looks(request):
        return call("recall", query="code") if request.turn == 0 else "Noted."

    agents = [
        Agent("desk", Scripted(looks), tools=[*MEMORY_TOOLS]),
        Agent("reader", Scripted(lambda _: "ok"), context=[ContextBlock("known", memory_block())]),
        Agent("plain", Scripted(lambda _: "ok")),
    ]
    rules = MemoryRules(project="shop", memory=memory)
    return Runtime(store, agents, memory=rules, routes=ROOM)


def share(rt, text="Wang's code is GEHEIM", **more):
    """A fact of Wang's that all who work on the project see."""
    whose = {"principal": "wang"} | more
    return rt.remember(text, scope="project", **whose)


def ask(rt, run, *, agent="desk", principal="ann"):
    """A run that asks for what the project knows."""
    return rt.run(agent, "Which code?", id=run, principal=principal)


@pytest.mark.parametrize("agent", ["desk", "reader"])
def test_a_run_of_another_that_was_told_is_named(store, agent):
    with desk(store) as rt:
        share(rt)
        ask(rt, "ann-1", agent=agent)
        ask(rt, "ann-2", agent="plain")
        ask(rt, "wang-1", agent=agent, principal="wang")
        assert [info.run for info in rt.holdings("wang").recalled] == ["ann-1"]
        erased = rt.erase("wang")
        assert (erased.runs, erased.facts) == (("wang-1",), 1)
        (left,) = erased.stays
        assert "run ann-1 of ann: facts of theirs were recalled there" in left
        assert "erased with its own principal, or pruned" in left
        assert rt.get("ann-1").ok


def test_it_is_said_each_time_until_that_run_is_gone(store):
    with desk(store) as rt:
        share(rt)
        ask(rt, "ann-1")
        assert len(rt.erase("wang").stays) == 1
        assert [info.run for info in rt.holdings("wang").recalled] == ["ann-1"]
        assert len(rt.erase("wang").stays) == 1
        rt.erase("ann")
        assert rt.erase("wang").stays == ()


@pytest.mark.parametrize("by", ["forgotten", "rejected", "expired", "erased alone"])
def test_a_run_is_named_though_the_fact_that_it_was_told_was_removed_before(store, by):
    with desk(store) as rt:
        rt.host.clock = clock = Clock()
        fact = share(rt, days=1)
        ask(rt, "ann-1")
        share(rt, "Carl's code is 4711", principal="carl")
        ask(rt, "bob-1", principal="bob")
        if by == "forgotten":
            rt.forget_fact(f"m{fact.n}", by="carl")
        elif by == "rejected":
            rt.reject_fact(f"m{fact.n}", by="carl")
        elif by == "erased alone":
            rt.erase_facts("wang")
        else:
            clock.now += 10 * DAY
            share(rt, "Something else.", principal="carl")
        held = rt.holdings("wang")
        assert (held.facts, [info.run for info in held.recalled]) == (0, ["ann-1", "bob-1"])
        for _ in range(2):
            erased = rt.erase("wang")
            assert [left.split(":")[0] for left in erased.stays] == [
                "run ann-1 of ann",
                "run bob-1 of bob",
            ]
        assert [info.run for info in rt.holdings("carl").recalled] == ["bob-1"]


def test_facts_of_others_in_the_same_project_name_nothing(store):
    with desk(store) as rt:
        share(rt, principal="carl")
        rt.remember("Likes tea.", principal="wang")
        ask(rt, "ann-1")
        assert rt.holdings("wang").recalled == ()
        assert rt.erase("wang").stays == ()
        assert rt.holdings(Principal(id="carl", tenant="acme")).recalled == ()


def test_facts_that_are_kept_outside_of_the_store_are_looked_for_too(store):
    with desk(store, memory=InMemoryMemory()) as rt:
        share(rt)
        ask(rt, "ann-1")
        assert [info.run for info in rt.holdings("wang").recalled] == ["ann-1"]
        assert ["run ann-1 of ann" in left for left in rt.erase("wang").stays] == [True]


def test_a_shared_session_that_was_told_is_named_by_its_name(store):
    with desk(store) as rt:
        share(rt)
        run = rt.receive(channel="room", principal="bob", text="Which code?")
        (left,) = rt.erase("wang").stays
        assert left.startswith(f"run {run.id} of the shared session desk/channel///room: ")


def test_the_command_names_them_before_it_asks_and_when_it_is_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CAIRN_APP", "CAIRN_STORE", "CAIRN_SECRETS"):
        monkeypatch.delenv(name, raising=False)
    with desk(tmp_path / "cairn.db") as rt:
        share(rt)
        ask(rt, "ann-1")
    words = ("erase", "--principal", "wang", "--store", "cairn.db")
    asked = CliRunner().invoke(app, [*words], input="n\n")
    assert "stays: facts of theirs that were recalled in run ann-1 of ann" in asked.output
    done = CliRunner().invoke(app, [*words, "--yes"])
    assert (done.exit_code, "erased: 0 runs" in done.output) == (0, True)
    assert "stays: run ann-1 of ann: facts of theirs were recalled there" in done.output
    again = CliRunner().invoke(app, [*words, "--yes"])
    assert "stays: run ann-1 of ann" in again.output


def test_the_command_says_whole_what_can_be_done_of_a_run_with_long_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, person = "r" * 64, "ann." + "a" * 80
    with desk(tmp_path / "cairn.db") as rt:
        share(rt)
        ask(rt, run, principal=person)
    words = ("erase", "--principal", "wang", "--store", "cairn.db")
    asked = CliRunner().invoke(app, [*words], input="n\n")
    assert f"recalled in run {run} of {person}\n" in asked.output
    done = CliRunner().invoke(app, [*words, "--yes"])
    assert f"run {run} of {person}: " in done.output
    assert "until it is erased with its own principal, or pruned\n" in done.output
