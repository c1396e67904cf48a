"""SIGKILL around the making of a fork and around an edit: each is there whole, or not at all."""

import asyncio

import pytest

from cairn import Runtime, UnknownRun
from cairn.core import events as ev

pytestmark = pytest.mark.kill


def trace(bench, run: str) -> list:
    async def look():
        async with Runtime(bench.store) as rt:
            assert await rt.store.verify(run) > 0
            return await rt.trace_async(run)

    return asyncio.run(look())


def edits(entries: list) -> list[str]:
    return [e.event.arguments for e in entries if isinstance(e.event, ev.ToolEdited)]


def settled(bench, run: str) -> dict:
    """The run driven to its end, with everything approved that it asks for."""
    for _ in range(6):
        stands = bench.run("give", verb="drive", of=run)
        if stands["status"] == "completed":
            return stands
        bench.run("give", verb="settle", of=run)
    raise AssertionError(f"it never completed: {stands}")


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_around_an_edit_loses_it_whole_or_keeps_it_whole(bench, side):
    bench.run("give")
    die = {"submit": 1, "side": side}
    bench.dies("give", verb="edit", die=die, counter=str(bench.folder / "counter"))
    assert edits(trace(bench, "r")) == ([] if side == "before" else ['{"cents":90}'])
    bench.run("give", verb="edit")  # the same once more
    assert edits(trace(bench, "r")) == ['{"cents":90}']
    assert settled(bench, "r")["text"] == "done"
    assert [line for line in bench.lines if line != "m"] == ["give 90"]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_around_the_making_of_a_fork_leaves_it_whole_or_nothing(bench, side):
    bench.run("give")
    before = trace(bench, "r")
    job = {"verb": "fork", "of": "f", "at": len(before)}
    die = {"create": 1, "side": side}
    bench.dies("give", die=die, counter=str(bench.folder / "counter"), **job)
    if side == "before":
        with pytest.raises(UnknownRun):
            trace(bench, "f")
    else:
        own = trace(bench, "f")[len(before) :]
        assert [e.event.NAME for e in own] == ["run.forked", "tool.edited", "input.queued"]
    bench.run("give", **job)  # the same once more
    assert edits(trace(bench, "f")) == ['{"cents":90}']
    assert trace(bench, "r") == before
    assert settled(bench, "f")["text"] == "done"
    assert settled(bench, "r")["text"] == "done"
    assert sorted(line for line in bench.lines if line != "m") == ["give 90", "give 9000"]


def test_a_fork_that_was_killed_in_its_edited_call_asks_before_it_goes_on(bench):
    """Law 4 holds in a fork: what may have happened is not repeated by itself."""
    bench.run("give")
    bench.run("give", verb="fork", of="f", at=len(trace(bench, "r")))
    bench.run("give", verb="drive", of="f")
    bench.run("give", verb="settle", of="f")
    bench.dies("give", verb="drive", of="f", die={"tool": "give"})
    stands = bench.run("give", verb="drive", of="f")
    assert (stands["reason"], stands["pending"]) == ("in_doubt", ["f/c1"])
    assert settled(bench, "f")["text"] == "done"
    given = [line for line in bench.lines if line.startswith("give 90")]
    assert given.count("give 90") == 1


def test_a_worker_takes_up_what_another_process_has_edited_and_a_third_approved(bench):
    bench.run("give")
    bench.run("give", verb="edit")
    assert bench.run("give", verb="work")["pending"] == ["r/2"]
    bench.run("give", verb="settle")
    assert bench.run("give", verb="work")["status"] == "completed"
    assert [line for line in bench.lines if line != "m"] == ["give 90"]
