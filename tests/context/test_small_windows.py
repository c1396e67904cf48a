"""What small windows and feeding need: any script fits, no summary is paid for nothing."""

import asyncio

import pytest
from tests.core.play import Play, rules_of, tool
from tests.engine.kit import events

from cairn import Agent, ContextBlock, ErrorClass, Limits, Policy, Runtime, Scripted, call
from cairn import tool as as_tool
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.compaction import fit, guarded, room_of
from cairn.core.forks import effects_after
from cairn.core.grants import asked_in
from cairn.core.messages import Text
from cairn.core.outcomes import Reply
from cairn.core.report import summary
from cairn.core.rules import ModelSpec
from cairn.core.sizes import size_of
from cairn.core.state import RunState
from cairn.core.summaries import SECTIONS
from cairn.core.view import View
from cairn.core.views.audit import audit
from cairn.engine.load import start_of
from cairn.governance.backtest import _effects as effects_of

SMALL = ModelSpec(name="small", window=3_400, max_output=600)
SCRIBE = ModelSpec(name="scribe", window=2_600, max_output=600)


def with_results(text, calls, summary_model=None):
    """A run whose one turn has brought so many results."""
    rules = rules_of(tool("look"), models=(SMALL,), summary=summary_model)
    play = Play(rules, lawful=False)
    for each in play.calls(*[("look", {})] * calls):
        play.returns(each, text)
    return play


@pytest.mark.parametrize("text", ["and so on ", "文件中的记录已经找到。", "기록을 찾았습니다. "])
@pytest.mark.parametrize("calls", [1, 2, 4])
def test_results_of_a_turn_fit_whatever_script_they_are_in(text, calls):
    play = with_results(text * 1_200, calls)
    found = fit(play.state, play.rules, SMALL)
    while isinstance(found, ev.ContextCompacted):
        play.add(found)
        found = fit(play.state, play.rules, SMALL)
    assert isinstance(found, View)
    assert guarded(size_of(play.state.messages, found, play.state.summary)) <= room_of(SMALL)


def test_no_model_is_asked_to_condense_next_to_nothing():
    play = Play(rules_of(tool("look"), models=(SMALL,), summary=SCRIBE), lawful=False)
    for letters in (1_500, 1_000):  # the scribe cannot read the first turn at once
        for each in play.calls(("look", {"about": "记" * letters})):
            play.returns(each, "seen")
    found = fit(play.state, play.rules, SMALL)
    assert isinstance(found, ev.ContextCompacted), "it was asked to condense the request alone"
    assert (found.by, found.start) == ("rule", 3)


# ---------------------------------------------------------------- calls that feed a run


@as_tool(effect="write")
async def note(n: int) -> str:
    """Note it."""
    return "noted"


@as_tool(effect="write")
async def refund(n: int) -> str:
    """Pay it back."""
    return "paid"


def test_a_call_that_feeds_a_run_is_told_of_like_any_other():
    policy = Policy(effects={"write": "allow"}, tools={"refund": "ask"})
    blocks = [
        ContextBlock("noted", tool="note", arguments={"n": 1}),
        ContextBlock("paid", tool="refund", arguments={"n": 2}),
    ]
    agent = Agent("a", Scripted(["done"]), tools=[note, refund], context=blocks)

    async def main():
        rt = Runtime(":memory:", [agent], policy=policy)
        run = await rt.run_async("a", "Go.", id="r")
        await rt.approve_async(run.pending[0].id, by="ann")
        assert (await rt.run_async("a", "Go.", id="r")).status == "completed"
        entries = await rt.trace_async("r")
        assert [p.name for p in events(entries, ev.TurnFed)[0].parts] == ["note", "refund"]
        done = [("note", "done"), ("refund", "done")]
        assert [(each.tool, each.fate) for each in effects_after(entries, 0)] == done
        assert [each.tool for each in asked_in("r", entries)] == ["refund"]
        assert "note" in summary(RunState(run="r"), entries)
        told = audit("r", iter(await rt.store.rows("r")))
        assert {line.tool for line in told if line.call} == {"note", "refund"}
        assert list(effects_of(entries)) == ["note", "refund"]

    asyncio.run(main())


# ---------------------------------------------------------------- beside the turns


def test_a_summary_that_no_step_is_left_for_is_written_by_a_rule():
    rules = rules_of(tool("look"), models=(SMALL,), summary=SCRIBE)
    play = Play(rules, limits=Limits(steps=2), lawful=False)
    for each in play.calls(("look", {"about": "a" * 3_000})):
        play.returns(each)
    play.submit(cmd.Queue(parts=(Text("Go on."),)))
    play.fails(ErrorClass.CONTEXT_OVERFLOW, "too many tokens")
    asked = play.settle()
    assert isinstance(asked, AskModel)
    assert (asked.purpose, asked.step, asked.attempt) == ("turn", 2, 2)
    assert play.last(ev.ContextCompacted).by == "rule"
    assert play.state.spent.steps == 2


def test_an_answer_that_is_refused_leaves_a_summary_that_is_not_checked_yet():
    heads = "\n".join(f"## {name}\nNone" for name in SECTIONS)
    play = Play(rules_of(tool("look"), models=(SMALL,), summary=SCRIBE), lawful=False)
    for letters in (3_000, 6_200):
        for each in play.calls(("look", {"about": "a" * letters})):
            play.returns(each)
    assert play.ask().purpose == "summary"
    play.submit(cmd.TakeOver(by="ann", reason="it is stuck"))
    play.outcome(Reply(parts=(Text(heads),)))
    play.submit(cmd.TakeTurn(by="ann", text="It is so [s9]."))
    play.settle()
    assert len([e for e in play.events if isinstance(e, ev.ModelRejected)]) == 1
    assert play.state.draft is not None
    play.submit(cmd.HandBack(by="ann"))
    play.settle()
    assert play.last(ev.ContextCompacted).by == "model"


def test_a_conversation_goes_on_with_the_size_it_really_has():
    @as_tool(effect="read", result_bytes=16_000)
    def read(n: int) -> str:
        """Read it."""
        return "and so on " * 100 * n

    script = [
        call("read", n=3),
        call("read", n=5),
        [call("read", n=7), call("refund", n=1)],
        "done",
    ]
    model = Scripted(script, window=3_400, max_output=600)
    agent = Agent("a", model, tools=[read, refund], builtins=(), summary_model=None)

    async def main():
        rt = Runtime(":memory:", [agent])
        assert (await rt.run_async("a", "Read.", id="r1", session="s")).status == "waiting"
        await rt.cancel_async("r1")
        await rt.enqueue_async("a", "And?", id="r2", session="s")
        start = await start_of(rt.store, "r2", await rt.trace_async("r2"))
        assert start.view.start > 0, "something was condensed"
        assert start.tokens == size_of(start.messages, start.view, start.summary)

    asyncio.run(main())
