"""What a request held, for people and for programs: `cairn context show`, `trace --context`."""

import asyncio

import pytest

from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.summaries import SECTIONS


@pytest.mark.parametrize(
    "command", [("context", "show", "r", "1"), ("trace", "r", "--context", "1")]
)
def test_a_manifest_as_json_is_one_whole_line(cairn, command):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn(*command, "--json")
    assert said.out.endswith("}\n")
    (held,) = said.objects
    assert held["step"] == 1
    assert "before" not in held, "there is none"


def test_the_first_request_of_a_run_is_compared_with_none(cairn):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn("context", "show", "r", "1")
    assert "100" not in said.out
    assert "no request before it" in " ".join(said.out.split())


@pytest.mark.parametrize("option", ["--at", "--step"])
def test_what_a_request_held_cannot_be_asked_for_together_with_another_view(cairn, option):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn("trace", "r", "--context", "1", option, "1")
    assert said.code != 0
    assert f"{option}: it cannot be used together with --context" in " ".join(said.err.split())


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: " + "and so on " * 60


@tool(effect="write")
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def work(request):
    """Look at many records, then pay, for which a person is asked."""
    if request.turn < 30:
        return call("look", n=request.turn)
    return call("pay", cents=5) if request.turn == 30 else "done"


async def condensed() -> list[ev.Entry]:
    """A run in the store that waits for a person behind a compaction; its journal."""
    heads = "\n".join(f"## {name}\nNone" for name in SECTIONS)
    model = Scripted(work, window=6_000, max_output=500)
    cheap = Scripted(lambda _: heads, name="cheap", summarises=True)
    limits = {"steps": 200, "no_progress": 200}
    agent = Agent("a", model, tools=[look, pay], limits=limits, summary_model=cheap)
    async with Runtime("desk.db", [agent]) as rt:
        assert (await rt.run_async("a", "Look at many.", id="r")).status == "waiting"
        return await rt.trace_async("r")


def test_a_compaction_that_is_taken_back_is_told_as_one_object(cairn):
    asyncio.run(condensed())
    said = cairn("context", "undo", "r", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.objects == [
        {
            "did": "taken back",
            "id": "r",
            "changed": True,
            "said": "r: the last compaction is taken back",
        }
    ]
    last = cairn("trace", "r", "--json").objects[-1]
    assert last["name"] == "context.restored"


def test_a_step_in_which_only_a_summary_was_asked_for_is_shown_as_no_turn(cairn):
    journal = asyncio.run(condensed())
    asked: dict[int, set[str]] = {}
    for entry in journal:
        if isinstance(entry.event, ev.ModelRequested):
            asked.setdefault(entry.step, set()).add(entry.event.purpose)
    summaries = [step for step, purposes in asked.items() if purposes == {"summary"}]
    assert summaries
    for step, purposes in asked.items():
        (line,) = [
            x
            for x in cairn("trace", "r", "--step", str(step)).out.splitlines()
            if f"step {step} " in x
        ]
        assert ("turn" in line) is ("turn" in purposes)
        assert ("summary" in line) is (step in summaries)
