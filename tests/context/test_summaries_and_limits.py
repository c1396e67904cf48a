"""A summary leaves what the turn after it needs, is given up when it always fails; larger windows.

All by hand, without a shell: what is decided is what is promised.
"""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.core.play import Play, rules_of, tool
from tests.engine.kit import events

from cairn import Agent, ErrorClass, Ladder, Limits, ModelError, Rung, Runtime, Scripted, call
from cairn import tool as as_tool
from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.compaction import SUMMARY_MISSES
from cairn.core.limits import Price
from cairn.core.messages import Text
from cairn.core.outcomes import Fault, Reply
from cairn.core.remaining import REPLY_TOKENS
from cairn.core.rules import ModelSpec
from cairn.core.summaries import SECTIONS
from cairn.core.views.words import words

SMALL = ModelSpec(name="small", window=3_400, max_output=600)
SCRIBE = ModelSpec(name="scribe", window=9_000, max_output=600)
LARGE = ModelSpec(name="large", window=60_000, max_output=600)
HEADS = "\n".join(f"## {name}\nNone" for name in SECTIONS)
LONG = {"about": "a" * 4_500}
ENDLESS = Limits(steps=500, no_progress=500)


def laden(summary: ModelSpec | None = SCRIBE, **options: Any) -> Play:
    """A run whose next request is too large for its model's window as it is."""
    fields = {"models": (SMALL,), "summary": summary, **options.pop("rules", {})}
    play = Play(rules_of(tool("look"), **fields), **options)
    for _ in range(2):
        for each in play.calls(("look", LONG)):
            play.returns(each)
    return play


def next_is(play: Play) -> str:
    """What is asked next: a summary or a turn."""
    action = play.settle()
    assert isinstance(action, AskModel), action
    return action.purpose


def why(play: Play) -> str:
    found = play.last(ev.ContextCompacted)
    assert found.by == "rule"
    return str(found.why)


# ---------------------------------------------------------------- what the turn needs


def test_where_enough_is_left_for_both_a_model_is_asked_to_summarise() -> None:
    assert next_is(laden()) == "summary"


@pytest.mark.parametrize("checks", [(), ("one", "two")])
def test_a_summary_never_takes_the_step_that_the_turn_or_a_check_of_its_answer_needs(
    checks: tuple[str, ...],
) -> None:
    enough = 4 + len(checks)
    play = laden(limits=Limits(steps=enough), rules={"checks": checks})
    assert next_is(play) == "summary"
    play = laden(limits=Limits(steps=enough - 1), rules={"checks": checks})
    assert next_is(play) == "turn"
    assert why(play) == "too little is left of the limit steps for a summary and the turn after it"
    play.says("done")
    for _ in checks:
        play.step()
        play.accepts()
    play.settle()
    assert play.state.end is not None
    assert play.state.end.status.value == "completed"


def test_a_summary_leaves_the_tokens_of_the_turn_and_of_a_reply() -> None:
    ample = laden(limits=Limits(tokens=10_000))
    assert next_is(ample) == "summary"
    least = ample.decide()
    assert isinstance(least, AskModel)
    play = laden(limits=Limits(tokens=least.reserved.tokens + 1_000))
    assert next_is(play) == "turn"
    assert "limit tokens" in why(play)


def test_a_summary_that_would_leave_only_a_stump_of_a_reply_is_not_asked_for() -> None:
    chatty = msgspec.structs.replace(SMALL, max_output=REPLY_TOKENS * 2, window=6_000)
    long = {"about": "a" * 7_000}

    def after(tokens: int) -> str:
        play = Play(
            rules_of(tool("look"), models=(chatty,), summary=SCRIBE), limits=Limits(tokens=tokens)
        )
        for _ in range(2):
            for each in play.calls(("look", long)):
                play.returns(each)
        return next_is(play)

    asked = [tokens for tokens in range(5_200, 12_000, 200) if after(tokens) == "summary"]
    assert asked
    assert after(asked[0] - 200) == "turn"
    play = Play(
        rules_of(tool("look"), models=(chatty,), summary=SCRIBE), limits=Limits(tokens=asked[0])
    )
    for _ in range(2):
        for each in play.calls(("look", long)):
            play.returns(each)
    said = HEADS + "\nword " * 300
    action = play.ask()
    usage = msgspec.structs.replace(
        play.last(ev.ModelCompleted).usage,
        input_tokens=action.reserved.input_tokens,
        output_tokens=action.reserved.output_tokens,
    )
    play.outcome(Reply(parts=(Text(said),), usage=usage))
    turn = play.settle()
    assert isinstance(turn, AskModel)
    assert turn.purpose == "turn"
    assert turn.reserved.output_tokens >= REPLY_TOKENS


def test_a_summary_leaves_the_money_of_the_turn() -> None:
    price = Price(input=1_000_000, output=4_000_000, version="1")
    models = (msgspec.structs.replace(SMALL, price=price),)
    dear = msgspec.structs.replace(SCRIBE, price=price)
    rules = {"models": models}
    ample = laden(dear, rules=rules, limits=Limits(micro_usd=100_000))
    assert next_is(ample) == "summary"
    action = ample.decide()
    assert isinstance(action, AskModel)
    play = laden(dear, rules=rules, limits=Limits(micro_usd=action.reserved.micro_usd + 1_000))
    assert next_is(play) == "turn"
    assert "limit micro_usd" in why(play)


def test_a_summary_leaves_time_for_the_turn_if_it_took_all_that_it_may() -> None:
    slow = msgspec.structs.replace(SCRIBE, timeout_us=30_000_000)
    assert next_is(laden(slow, limits=Limits(running_s=31))) == "summary"
    play = laden(slow, limits=Limits(running_s=30))
    assert next_is(play) == "turn"
    assert "limit running_s" in why(play)


def test_a_run_with_one_step_left_is_answered_in_it_and_not_stopped() -> None:
    @as_tool(effect="read")
    def look(n: int) -> str:
        """Look."""
        return f"record {n}: " + "and so on. " * 60

    def model(request):
        return call("look", n=request.turn) if request.turn < 14 else "It is so."

    async def main():
        small = Scripted(model, window=3_000, max_output=500)
        scribe = Scripted(lambda _: HEADS, name="scribe", summarises=True)
        for steps in range(15, 26):
            agent = Agent("a", small, tools=[look], summary_model=scribe, limits=ENDLESS)
            rt = Runtime(":memory:", [agent])
            run = await rt.run_async("a", "Look at all.", id="r", limits={"steps": steps})
            asked = events(await rt.trace_async("r"), ev.ModelRequested)
            beside = sum(each.purpose == "summary" for each in asked)
            if run.status != "completed":  # it was condensed for turns that came, not for the last
                assert asked[-1].purpose == "turn", steps
                assert steps < 15 + beside
        assert run.status == "completed"

    asyncio.run(main())


# ---------------------------------------------------------------- the breaker


def condense(play: Play, *summaries: str) -> None:
    """Work until something is condensed; a model that is asked to says these, one by one."""
    wanted = play.count(ev.ContextCompacted) + 1
    said = iter(summaries)
    for _ in range(20):
        while next_is(play) == "summary":
            play.now += 60_000_000
            play.says(next(said))
        if play.count(ev.ContextCompacted) == wanted:
            assert next(said, None) is None, "fewer were asked for"
            return
        for each in play.calls(("look", LONG)):
            play.returns(each)
    raise AssertionError("nothing was condensed")


def test_a_model_whose_summaries_always_fail_is_not_asked_for_the_rest_of_the_run() -> None:
    play = laden(limits=ENDLESS)
    for _ in range(SUMMARY_MISSES):
        condense(play, "words", "words")
        assert why(play) == "the summary has failed 2 times"
    for _ in range(5):
        condense(play)
    assert why(play) == "the summaries of 2 compactions in a row had failed"
    assert "by rule (the summaries of 2" in words(play.last(ev.ContextCompacted))
    assert play.refold() == play.state


def test_one_good_summary_starts_the_count_anew() -> None:
    play = laden(limits=ENDLESS)
    for _ in range(3):
        condense(play, "words", "words")
        condense(play, HEADS)
        assert play.last(ev.ContextCompacted).by == "model"
        assert play.last(ev.ContextCompacted).why == ""


def test_a_compaction_that_no_model_was_asked_for_is_no_failure_of_one() -> None:
    play = laden(limits=ENDLESS)
    condense(play, "words", "words")
    play.state = msgspec.structs.replace(play.state, limits=Limits(steps=play.state.step + 2))
    condense(play)
    assert "limit steps" in why(play)
    assert play.state.summary_misses == 1


def test_the_manifest_says_why_a_rule_wrote_the_summary() -> None:
    @as_tool(effect="read")
    def look(n: int) -> str:
        """Look."""
        return f"record {n}: " + "and so on. " * 60

    def model(request):
        return call("look", n=request.turn) if request.turn < 80 else "Done."

    async def main():
        small = Scripted(model, window=3_000, max_output=500)
        scribe = Scripted(lambda _: "words", name="scribe", summarises=True)
        agent = Agent("a", small, tools=[look], summary_model=scribe, limits=ENDLESS)
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "Look at all.", id="r")
        assert run.status == "completed"
        entries = await rt.trace_async("r")
        asked = events(entries, ev.ModelRequested)
        assert sum(each.purpose == "summary" for each in asked) == 4
        last = next(e for e in reversed(entries) if isinstance(e.event, ev.ModelRequested))
        held = await rt.context_async("r", last.step)
        (summary,) = (line for line in held.lines if line.name == "summary")
        said = "by a rule: the summaries of 2 compactions in a row had failed"
        assert summary.why == said

    asyncio.run(main())


# ---------------------------------------------------------------- larger windows


def full(*models: ModelSpec, **rules: Any) -> Play:
    """A run whose last turn alone is too large for the first of the models."""
    play = Play(rules_of(tool("look"), models=models, summary=None, **rules))
    for each in play.calls(("look", {"about": "a" * 16_000})):
        play.returns(each)
    return play


def test_what_can_not_be_made_to_fit_goes_to_the_first_fallback_with_a_window_for_it() -> None:
    narrow = ModelSpec(name="narrow", window=3_000, max_output=600)
    wider = ModelSpec(name="wider", window=4_000, max_output=600)
    play = full(SMALL, narrow, wider, LARGE)
    asked = play.ask()
    assert (asked.model, asked.fallback, asked.step, asked.attempt) == ("large", 3, 2, 1)
    assert play.state.model == 3
    assert "for its larger window" in words(play.last(ev.ModelRequested))
    assert play.refold() == play.state


def test_without_a_larger_window_the_run_stops_at_the_window_as_before() -> None:
    play = full(SMALL, ModelSpec(name="same", window=3_400, max_output=600))
    play.settle()
    assert play.state.end is not None
    assert (play.state.end.status.value, play.state.end.limit) == ("stopped", "window")


def test_a_provider_that_refuses_a_request_as_too_large_hands_it_to_a_larger_window() -> None:
    play = Play(rules_of(models=(SMALL, LARGE)))
    assert play.fails(ErrorClass.CONTEXT_OVERFLOW).disposition == "retry"
    asked = play.ask()  # there is nothing that could be left out
    assert (asked.model, asked.step, asked.attempt) == ("large", 1, 2)
    again = play.outcome(Fault(error_class=ErrorClass.CONTEXT_OVERFLOW, message="too long"))
    assert isinstance(again, ev.ModelFailed)
    assert again.disposition == "retry"
    play.settle()
    assert play.state.end is not None
    assert play.state.end.error_class is ErrorClass.CONTEXT_OVERFLOW


def test_a_provider_that_goes_on_refusing_smaller_requests_is_left_for_a_larger_window() -> None:
    unknown = ModelSpec(name="unknown", window=0, max_output=600)
    small = msgspec.structs.replace(SMALL, window=20_000)
    rules = rules_of(tool("look"), models=(small, unknown, LARGE), summary=None)
    play = Play(rules, limits=ENDLESS)
    for n in range(6):
        for each in play.calls(("look", {"n": n})):
            play.returns(each, f"{n}" * 6_000)
    done: list[str] = []
    while (asked := play.ask()).model == "small":
        fault = Fault(error_class=ErrorClass.CONTEXT_OVERFLOW, message="too large")
        failed = play.outcome(fault)
        assert isinstance(failed, ev.ModelFailed)
        done.append(failed.disposition)
    assert done == ["retry"] * 3 + ["switch"]
    assert (asked.model, play.state.model) == ("large", 2), "one of unknown size is passed over"
    assert play.refold() == play.state


def test_a_deployment_can_forbid_the_switch() -> None:
    rows = {ErrorClass.CONTEXT_OVERFLOW: (Rung(disposition="retry", times=3),)}
    play = full(SMALL, LARGE, ladder=Ladder(rows=rows))
    play.settle()
    assert play.state.end is not None
    assert play.state.end.limit == "window"


def test_the_larger_model_is_really_asked_and_its_own_lane_is_used() -> None:
    @as_tool(effect="read")
    def look() -> str:
        """Look."""
        return "found"

    asked = []

    def small(request):
        asked.append("small")
        raise ModelError(ErrorClass.CONTEXT_OVERFLOW, "maximum context length exceeded")

    def large(request):
        asked.append("large")
        return "It is so."

    async def main():
        first = Scripted(small, name="m1", window=3_400, max_output=600)
        other = Scripted(large, name="m2", window=60_000, max_output=600)
        agent = Agent("a", first, fallback_models=[other], tools=[look])
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "Look. " + "word " * 400, id="r")
        assert (run.status, run.text, asked) == ("completed", "It is so.", ["small", "large"])
        models = [e.model for e in events(await rt.trace_async("r"), ev.ModelRequested)]
        assert models == ["m1", "m2"]
        again = await rt.replay_async("r")
        assert again.same, again.divergence

    asyncio.run(main())
