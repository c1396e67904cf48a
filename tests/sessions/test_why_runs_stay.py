"""What is pruned by age, why a run stays, and what is said of what was removed."""

import asyncio
import json

import pytest
from tests.engine.kit import runtime, texts
from tests.sessions.test_sessions_command import cairn

from cairn import call
from cairn.store import open_store


def answer(request):
    said = texts(request)[-1]
    return call("ask_user", question="?") if said == "wait" else f"read {said}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    return tmp_path


def told(work):
    """What is done with the application."""

    async def main():
        async with runtime(answer, store="s.db") as rt:
            return await work(rt)

    return asyncio.run(main())


def whys(*words):
    """What `cairn sessions prune` says of each run that stays."""
    said = cairn("sessions", "prune", *words, "--json").stdout.splitlines()
    lines = [json.loads(line) for line in said]
    return {line["id"]: line["why"] for line in lines if line["did"] == "kept"}


async def talk(rt):
    """`r2` was left behind by a rewind to `r1`, from which `r3` goes on; that waits."""
    await rt.run_async("a", "one", id="r1", session="s")
    await rt.run_async("a", "two", id="r2", session="s")
    await rt.rewind_async("s", "r1")
    await rt.run_async("a", "wait", id="r3", session="s")


def test_a_superseded_run_is_not_said_to_be_what_a_newer_one_goes_on_from(home):
    told(talk)
    assert whys("s") == {
        "r3": "it is waiting",
        "r2": "run r3 of the session is newer, and stays",
        "r1": "run r3 of the session stays, and goes on from it",
    }


def test_of_a_run_that_several_go_on_from_one_that_stays_is_named(home):
    async def work(rt):
        await talk(rt)
        await rt.cancel_async("r3")
        await rt.drive_async("r3")
        await rt.fork_session_async("s", "f", at="r2")

    told(work)
    assert whys("s", "--dry-run") == {
        "r2": "session f was forked from it",
        "r1": "run r2 of the session stays, and goes on from it",
    }


def test_forks_in_which_nothing_was_said_for_so_long_are_pruned_by_age(home):
    async def work(rt):
        await rt.run_async("a", "one", id="r1", session="s")
        await rt.fork_session_async("s", "f")
        await rt.fork_session_async("f", "g")
        await rt.title_session_async("g", "Lamps")

    told(work)
    assert "removed: 0 runs" in cairn("prune", "--older-than", "1h").stdout
    assert "session f" in cairn("sessions", "show", "f").stdout
    assert "to be removed: 1 run" in cairn("prune", "--older-than", "0s", "--dry-run").stdout
    assert "removed: 1 run" in cairn("prune", "--older-than", "0s").stdout
    assert cairn("sessions", "list").stdout.split() == ["no", "sessions"]
    assert cairn("verify").exit_code == 0


def test_verify_says_of_facts_that_went_with_their_session_that_they_were_not_erased(home):
    async def work(rt):
        for name in ("s", "t"):
            await rt.run_async("a", "one", session=name, principal=f"{name}-ann")
            await rt.title_session_async(name, "Lamps", principal=f"{name}-ann")
        await rt.title_session_async("t", "Chairs", principal="t-ann")

    told(work)
    assert "removed: 1 run" in cairn("sessions", "prune", "s").stdout
    said = cairn("verify").stdout
    assert "store: 1 fact removed with their sessions, as the store's journal says" in said
    assert "erased" not in said
    line = json.loads(cairn("verify", "store", "--json").stdout)
    assert (line["ok"], line["erased"], line["removed"]) == (True, 1, 1)

    told(lambda rt: rt.erase_async("t-ann"))
    said = cairn("verify").stdout
    gone = "store: 1 fact removed with their sessions and 2 facts erased, as the store's journal"
    assert gone in said
    assert ": erased, as the store's journal says" in said, "the run"


def test_verify_says_of_facts_that_were_erased_that_they_were(home):
    async def work(rt):
        await rt.run_async("a", "one", session="s", principal="ann")
        await rt.title_session_async("s", "Lamps", principal="ann")
        await rt.erase_async("ann")

    told(work)
    said = cairn("verify").stdout
    assert "store: 1 fact erased, as the store's journal says" in said
    assert "removed" not in said


def test_what_is_pruned_in_memory_is_recorded_at_the_time_of_who_removes_it():
    async def main():
        store = open_store(":memory:")
        async with runtime(answer, store=store) as rt:
            await rt.run_async("a", "one", session="s")
            await rt.title_session_async("s", "Lamps")
            now = rt.host.clock.now_us() + 5_000_000
            assert len(await store.prune(now, now=now)) == 1
            assert [entry.at for entry in await store.read("store")][1:] == [now, now]

    asyncio.run(main())
