"""Replies as models really write them: what is run, what is told, and what never happens."""

from typing import Any

import pytest
from tests.core.play import MODEL, Play, need, rules_of, tool

from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.context import faults
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits, Price, Usage
from cairn.core.messages import (
    UNREADABLE,
    CallPart,
    Reasoning,
    ResultPart,
    Source,
    Text,
    calls_of,
    clean,
    parse_object,
    sendable,
    text_of,
)
from cairn.core.outcomes import CUT, REFUSED, Called, Reply
from cairn.core.rules import ModelSpec
from cairn.errors import ErrorClass

E = ErrorClass
RULES = rules_of(tool("weather", check=need("city")), tool("find"), tool("mail", "write"))


def told(play: Play) -> str:
    """The last message to the model, as text."""
    message = play.state.messages[-1]
    return text_of(message.parts) or "".join(
        part.result for part in message.parts if isinstance(part, ResultPart)
    )


# ---------------------------------------------------------------- text and calls


def test_text_beside_a_call_is_a_comment_and_the_later_answer_ends_the_run() -> None:
    play = Play(RULES)
    play.says("Let me check the weather.", ("weather", {"city": "Oslo"}))
    assert play.state.answer == 0
    assert play.start() == ["c1"]
    play.returns("c1", "rain")
    play.says("It rains.")
    play.settle()
    assert play.state.status is Status.COMPLETED
    assert play.state.answer_text == "It rains."
    kept = [text_of(m.parts) for m in play.state.messages if m.role == "assistant"]
    assert kept == ["Let me check the weather.", "It rains."]


def test_the_run_names_the_reply_that_holds_its_answer() -> None:
    play = Play(RULES)
    play.says("done")
    seq = play.state.seq
    play.settle()
    assert play.last(ev.RunCompleted).answer == seq
    assert text_of(play.journal[seq - 1].event.parts) == "done"


@pytest.mark.parametrize(
    "parts", [(), (Text(""),), (Text(" \n\t"),), (Reasoning(content="I think"),)]
)
def test_an_empty_reply_is_nudged_a_few_times_and_then_fails_the_run(parts: Any) -> None:
    play = Play(RULES)
    play.one_turn("find", {}, "an earlier sentence")
    for _ in range(3):
        play.ask()
        play.outcome(Reply(parts=parts))
        assert play.state.answer == 0
    assert play.count(ev.ModelFailed) == 3
    play.settle()
    assert play.state.status is Status.FAILED
    assert play.state.end is not None
    assert play.state.end.error_class is E.EMPTY_OUTPUT
    assert play.state.answer_text == ""


@pytest.mark.parametrize("finish", sorted(REFUSED))
def test_a_refusal_ends_the_run_at_once_with_its_own_class_and_runs_nothing(finish: str) -> None:
    for text, calls in (("", ()), ("I cannot help with that.", ()), ("", ("mail",))):
        play = Play(RULES)
        event = play.says(text, *calls, finish=finish)
        assert isinstance(event, ev.ModelFailed)
        assert (event.error_class, event.disposition) == (E.CONTENT_FILTERED, "end")
        if text:
            assert text in event.message
        play.settle()
        assert play.state.status is Status.FAILED
        assert play.started() == []


@pytest.mark.parametrize("finish", sorted(CUT))
def test_a_reply_that_was_cut_off_is_not_executed_and_the_model_is_told_to_send_less(
    finish: str,
) -> None:
    play = Play(RULES)
    event = play.says("", ("mail", '{"text": "Dear all, I wri'), finish=finish)
    assert isinstance(event, ev.ModelFailed)
    assert (event.error_class, event.disposition) == (E.TRUNCATED_OUTPUT, "repair")
    assert "cut off" in told(play)
    assert "Send less" in told(play)
    assert play.start() == []
    assert play.state.calls == {}


def test_a_cut_reply_whose_call_happens_to_be_whole_is_not_executed_either() -> None:
    play = Play(RULES)
    play.says("", ("mail", "{}"), finish="length")
    assert play.start() == []


@pytest.mark.parametrize(("calls", "runs"), [(16, True), (17, False), (200, False)])
def test_a_reply_over_the_cap_runs_nothing_and_is_repaired(calls: int, runs: bool) -> None:
    play = Play(RULES)
    play.says("", *[("find", {"n": n}) for n in range(calls)])
    assert len(play.start()) == (16 if runs else 0)
    if not runs:
        assert play.last(ev.ModelFailed).error_class is E.MALFORMED_OUTPUT
        assert f"{calls} tool calls" in told(play)
        assert "None was executed" in told(play)
        assert [m.role for m in play.state.messages] == ["user", "user"]
        assert play.state.last_call == 0


def test_the_cap_is_the_runs_own() -> None:
    play = Play(RULES, limits=Limits(calls_per_reply=2))
    assert play.calls("find", "find", "find") == []
    assert play.calls("find", "find") == ["c1", "c2"]


@pytest.mark.parametrize("name", ["", "  "])
def test_a_call_without_a_name_makes_the_whole_reply_unusable(name: str) -> None:
    play = Play(RULES)
    play.says("", "find", (name, {}))
    assert play.last(ev.ModelFailed).error_class is E.MALFORMED_OUTPUT
    assert play.state.calls == {}


def test_an_unusable_reply_is_not_kept_but_a_short_look_at_it_stands_in_the_trace() -> None:
    play = Play(RULES)
    event = play.says("x" * 10_000, finish="length")
    assert isinstance(event, ev.ModelFailed)
    assert "It began: 'xxx" in event.message
    assert len(event.message) < 500
    assert "xxx" not in told(play)


# ---------------------------------------------------------------- ids


def test_call_ids_are_the_runtimes_and_the_providers_id_is_an_alias() -> None:
    play = Play(RULES)
    play.calls(("find", {"a": 1}, "x1"), ("find", {"a": 2}, "x1"))
    play.returns("c2", "second")
    play.returns("c1", "first")
    parts = calls_of(play.state.messages[-2].parts)
    assert [(p.id, p.alias) for p in parts] == [("c1", "x1"), ("c2", "x1")]
    answers = [p for p in play.state.messages[-1].parts if isinstance(p, ResultPart)]
    assert [(p.id, p.result) for p in answers] == [("c1", "first"), ("c2", "second")]


def test_a_server_that_calls_every_call_0_runs_each_and_gives_each_its_own_result() -> None:
    play = Play(RULES)
    for turn in range(3):
        for n, call in enumerate(play.calls(("find", {"a": 1}, "0"), ("find", {"b": turn}, "0"))):
            play.returns(call, f"{turn}.{n}")
    assert play.started() == [f"c{n}" for n in range(1, 7)]
    assert faults(play.state.messages) == []


# ---------------------------------------------------------------- what is sent later

BAD = ['{"city": "Oslo",', "[1]", "3", '"x"', '{"a": NaN}', "{" * 300, r'{"a":"\ud800"}']


@pytest.mark.parametrize("text", BAD)
def test_arguments_nobody_can_read_are_carried_in_a_form_every_provider_takes(text: str) -> None:
    play = Play(RULES)
    play.calls(("weather", text))
    (call,) = calls_of(play.state.messages[1].parts)
    assert call.arguments == UNREADABLE
    assert isinstance(parse_object(call.arguments), dict)
    assert faults(play.state.messages) == []
    play.ask()
    assert play.last(ev.ModelCompleted).parts[0].arguments == clean(text), "the trace has it exact"


@pytest.mark.parametrize(
    ("text", "sent"),
    [("", "{}"), ("null", "{}"), ("  ", "{}"), (' {"a":1}', '{"a":1}'), ('{"a":1}', '{"a":1}')],
)
def test_arguments_that_can_be_read_are_sent_as_they_were_meant(text: str, sent: str) -> None:
    (part,) = sendable((CallPart(id="c1", name="find", arguments=text),))
    assert isinstance(part, CallPart)
    assert part.arguments == sent


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("中文 🙂", "中文 🙂"),
        ("a\0b", "a\u2400b"),
        ("中\0文", "中\u2400文"),
        ("half \ud83d of an emoji", "half \ufffd of an emoji"),
        ("\ud83d\ude42", "🙂"),
        ("", ""),
    ],
)
def test_text_no_store_or_provider_takes_is_replaced_visibly(text: str, kept: str) -> None:
    assert clean(text) == kept
    play = Play(RULES)
    play.says(text or "x")
    assert play.state.answer_text == (kept or "x")


def test_names_and_reasoning_are_cleaned_as_well() -> None:
    play = Play(RULES)
    play.ask()
    play.outcome(
        Reply(
            parts=(Reasoning(content="a\0", opaque="sig"),),
            calls=(Called(name="fi\0nd", arguments="{}"),),
        )
    )
    play.start()
    reasoning, call = play.last(ev.ModelCompleted).parts
    assert (reasoning.content, reasoning.opaque) == ("a\u2400", "sig")
    assert call.name == "fi\u2400nd"


# ---------------------------------------------------------------- answers


def test_an_answer_that_fails_its_check_is_sent_back_with_the_reason() -> None:
    rules = rules_of(check_answer=lambda text: "" if text.startswith("{") else "it is no JSON")
    play = Play(rules)
    play.says("no JSON")
    assert isinstance(play.settle(), AskModel)
    assert told(play) == "[runtime] Your answer was not accepted: it is no JSON"
    play.says("{}")
    play.settle()
    assert play.state.status is Status.COMPLETED


@pytest.mark.parametrize("repairs", [1, 2, 3])
def test_an_answer_may_be_mended_only_so_often(repairs: int) -> None:
    rules = rules_of(check_answer=lambda text: "no", repairs=repairs)
    play = Play(rules, limits=Limits(errors_in_row=50))
    while isinstance(play.settle(), AskModel):
        play.says("again")
    assert play.count(ev.ModelCompleted) == repairs + 1
    assert play.state.status is Status.FAILED
    assert play.last(ev.RunFailed).error_class is E.MALFORMED_OUTPUT


def sourced(play: Play) -> None:
    """A turn that brings two sources."""
    for call in play.calls("find"):
        sources = (Source(uri="doc:1", text="one", span="3-4"), Source(uri="doc:2", text="two"))
        play.add(ev.ToolCompleted(call=call, sources=sources), play.state.step)


def test_sources_are_numbered_on_through_the_run_and_may_be_cited() -> None:
    play = Play(RULES)
    sourced(play)
    assert "[s1] doc:1#3-4\none" in told(play)
    sourced(play)
    assert "[s4] doc:2\ntwo" in told(play)
    play.says("So it is [s1], and so [s4].")
    play.settle()
    assert play.state.status is Status.COMPLETED


@pytest.mark.parametrize("text", ["See [s3].", "See [s0].", "[s1] and [s99] say so"])
def test_a_citation_of_a_source_that_was_never_given_goes_to_repair(text: str) -> None:
    play = Play(RULES)
    sourced(play)
    play.says(text)
    assert isinstance(play.settle(), AskModel)
    assert "[s1] to [s2]" in told(play)
    play.says("See [s2].")
    play.settle()
    assert play.state.status is Status.COMPLETED


def test_without_sources_no_citation_is_known() -> None:
    play = Play(RULES)
    play.says("See [s1].")
    play.settle()
    assert "there are none" in told(play)


def test_completion_checks_run_in_order_as_tasks_and_a_refusal_is_told() -> None:
    play = Play(rules_of(checks=("complete", "polite")))
    play.says("done")
    play.step()
    assert play.last(ev.StepStarted).name == "complete"
    play.accepts()
    play.step()
    assert play.last(ev.StepStarted).name == "polite"
    play.refuses("say please")
    assert isinstance(play.settle(), AskModel)
    assert "say please" in told(play)
    play.says("done, please")
    for name in ("complete", "polite"):  # a new answer passes all of them
        play.step()
        assert play.last(ev.StepStarted).name == name
        play.accepts()
    play.settle()
    assert play.state.status is Status.COMPLETED


def test_an_answer_that_never_passes_its_check_fails_the_run() -> None:
    play = Play(rules_of(checks=("complete",), repairs=2), limits=Limits(errors_in_row=50))
    while isinstance(play.settle(), AskModel):
        play.says("done")
        play.step()
        play.refuses("a total is missing")
    assert play.state.status is Status.FAILED
    assert play.count(ev.StepFailed) == 3
    assert play.last(ev.RunFailed).message == "a total is missing"


def test_a_task_whose_process_died_runs_again_in_its_step_a_few_times() -> None:
    play = Play(rules_of(checks=("complete",)))
    play.says("done")
    for attempt in (1, 2, 3, 4):
        play.step()
        started = play.last(ev.StepStarted)
        assert (started.attempt, play.state.step) == (attempt, 2)
        play.crash()
    play.settle()
    assert play.state.status is Status.FAILED
    assert play.state.spent.steps == 2


def test_a_task_that_must_run_once_is_never_run_again() -> None:
    play = Play()
    play.says("done")
    play.add(ev.StepStarted(name="t", recovery="once"), 2)
    play.crash()
    play.settle()
    assert play.state.status is Status.FAILED
    assert play.last(ev.RunFailed).error_class is E.IN_DOUBT


# ---------------------------------------------------------------- prices


def test_the_model_in_use_sets_the_price_of_a_reply() -> None:
    dear = ModelSpec(name="m2", price=Price(input=1_000_000, output=2_000_000, version="2026"))
    play = Play(rules_of(models=(MODEL, dear)))
    play.fails(E.AUTH)
    event = play.says("done", usage=Usage(input_tokens=10, output_tokens=10))
    assert isinstance(event, ev.ModelCompleted)
    assert (event.usage.micro_usd, event.price) == (30, "2026")
