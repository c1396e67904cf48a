"""The progress guard: it finds runs that go round in circles, and leaves the others alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.play import Play, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel, Wait
from cairn.core.guard import WINDOW, Guard, call_key, canonical, result_key
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits
from cairn.core.messages import text_of
from cairn.errors import ErrorClass

Turn = tuple[str, Any, Any]
RULES = rules_of(tool("read"), tool("search"), tool("set", "write"), tool("attach", "write"))


def played(turns: list[Turn], limits: Limits | None = None, **created: Any) -> Play:
    """A run that makes these turns, until something keeps it from going on."""
    play = Play(RULES, limits=limits, **created)
    for name, arguments, result in turns:
        if not isinstance(play.settle(), AskModel):
            break
        for call in play.calls((name, arguments)):
            play.returns(call, result)
    play.settle()
    return play


def alarms(play: Play) -> list[str]:
    """What the guard has said, in order."""
    found = []
    for event in play.events:
        if isinstance(event, ev.LimitWarned):
            found.append(event.level)
        elif isinstance(event, ev.ToolRejected) and event.kind == "loop":
            found.append("refused")
        elif isinstance(event, ev.LimitReached):
            found.append("stop")
    return found


LOOPS: dict[str, list[Turn]] = {
    "the same read for ever": [("read", {"a": 1}, "same")] * 20,
    "the same write for ever": [("set", {"a": 1}, "ok")] * 20,
    "A, B, A, B": [("read", {"a": 1}, "x"), ("set", {"a": 1}, "ok")] * 10,
    "A, B, C, A, B, C": [("read", {"a": 1}, "x"), ("read", {"a": 2}, "y"), ("set", {}, "ok")] * 7,
    "A, B, A, B in any key order": [
        ("read", '{"a": 1, "b": 2}', "x"),
        ("set", '{"a":1,"b":2}', "ok"),
        ("read", '{"b":2,"a":1}', "x"),
        ("set", '{ "b":2, "a": 1 }', "ok"),
    ]
    * 5,
    "reads that change their arguments and bring the same": [
        ("search", {"query": f"word {n}"}, "nothing found") for n in range(20)
    ],
}
HONEST: dict[str, list[Turn]] = {
    "three attachments that all answer true": [
        ("attach", {"file": name}, True) for name in ("a", "b", "c")
    ],
    "twenty different writes that all answer true": [
        ("attach", {"file": n}, True) for n in range(20)
    ],
    "polling with changing results": [("read", {"job": 7}, f"{n} %") for n in range(20)],
    "reads that all bring something new": [("read", {"page": n}, f"page {n}") for n in range(20)],
    "the same write again after eight other turns": [
        *[("set", {"a": n}, "ok") for n in range(9)],
        *[("set", {"a": n}, "ok") for n in range(9)],
    ],
    "two idle turns and then something new, over and over": [
        ("read", {"a": n // 3}, f"r{n // 3}") for n in range(21)
    ],
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_circle_is_hinted_at_then_blocked_and_then_the_run_stops_with_its_own_reason(
    name: str,
) -> None:
    play = played(LOOPS[name])
    said = alarms(play)
    assert said[0] == "hint"
    assert said[1] == "block"
    assert said[-1] == "stop"
    assert play.state.status is Status.STOPPED
    assert play.last(ev.RunStopped).limit == "no_progress"
    assert play.count(ev.ModelRequested) <= 9


@pytest.mark.parametrize("name", HONEST)
def test_work_that_gets_somewhere_raises_no_alarm(name: str) -> None:
    play = played(HONEST[name])
    assert alarms(play) == []
    assert play.state.status is Status.RUNNING


def test_the_model_is_told_once_per_rung() -> None:
    play = played(LOOPS["the same read for ever"])
    notes = [text_of(m.parts) for m in play.state.messages if m.role == "user"]
    assert sum("brought nothing new" in note for note in notes) == 1
    assert sum("refused from now on" in note for note in notes) == 1


def test_while_blocked_a_repeated_call_is_refused_and_a_new_one_runs() -> None:
    play = played([("read", {"a": 1}, "same")] * 5)
    assert alarms(play) == ["hint", "block"]
    assert play.calls(("read", '{"a":1}'), ("read", {"a": 2})) == ["c7"]
    refused = play.last(ev.ToolRejected)
    assert (refused.kind, refused.error_class) == ("loop", ErrorClass.LOOP_DETECTED)


def test_something_new_takes_the_block_away() -> None:
    play = played([*[("read", {"a": 1}, "same")] * 5, ("read", {"a": 2}, "new")])
    assert play.state.guard.rung == -1
    play.calls(("read", {"a": 1}))
    assert alarms(play) == ["hint", "block"]


def test_hints_begin_after_the_turns_that_the_limit_allows() -> None:
    for bound in (1, 2, 5):
        play = played([("read", {}, "same")] * (bound + 1), Limits(no_progress=bound))
        assert alarms(play) == ["hint"]
        play = played([("read", {}, "same")] * bound, Limits(no_progress=bound))
        assert alarms(play) == []


def test_with_on_loop_ask_a_person_is_asked_instead_and_the_answer_starts_anew() -> None:
    play = played([("read", {}, "same")] * 9, on_loop="ask")
    action = play.settle()
    assert isinstance(action, Wait)
    assert action.reasons == {"input"}
    play.submit(cmd.Answer(n=play.state.question, text="look in the cellar"))
    play.ask()
    assert text_of(play.state.messages[-1].parts) == "look in the cellar"
    assert play.state.guard.stale == 0


def test_where_nobody_is_to_be_asked_a_circle_stops_the_run() -> None:
    play = played([("read", {}, "same")] * 9, on_loop="ask", approvals="none")
    assert play.state.status is Status.STOPPED
    assert play.count(ev.InputRequested) == 0


def test_turns_whose_calls_all_fail_are_no_progress() -> None:
    play = Play(RULES, limits=Limits(errors_in_row=50))
    for n in range(3):
        play.calls(("read", {"a": n}))
        play.raises(f"c{n + 1}")
    play.settle()
    assert alarms(play) == ["hint"]


def test_one_new_result_beside_old_ones_is_progress() -> None:
    play = Play(RULES)
    for n in range(10):
        first, second = play.calls(("read", {"a": 1}), ("search", {"q": n}))
        play.returns(first, "same")
        play.returns(second, n)
    assert alarms(play) == []


def test_the_guard_forgets_what_is_longer_ago_than_its_window() -> None:
    guard = Guard()
    key = call_key("set", "{}")
    guard = guard.closed(frozenset({key}), frozenset({key}))
    for n in range(WINDOW - 1):
        assert guard.repeats(key)
        other = call_key("set", f'{{"n":{n}}}')
        guard = guard.closed(frozenset({other}), frozenset({other}))
    assert guard.repeats(key)
    guard = guard.closed(frozenset(), frozenset())
    assert not guard.repeats(key)
    assert len(guard.seen) == len(guard.asked) == WINDOW
    assert guard.closed(frozenset({key}), frozenset({key})).stale == 0


# ---------------------------------------------------------------- identities

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=5))
def test_a_call_is_the_same_call_whatever_the_order_and_spacing_of_its_arguments(
    arguments: dict[str, Any],
) -> None:
    backwards = dict(reversed(list(arguments.items())))
    tight = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    loose = json.dumps(backwards, indent=2, ensure_ascii=True)
    assert call_key("t", tight) == call_key("t", loose)
    assert canonical(tight) == canonical(loose)


@given(st.text(max_size=30))
def test_any_text_whatever_has_an_identity(text: str) -> None:
    assert len(call_key("t", text)) == len(result_key(text, text)) == 12
    assert call_key("t", text) != call_key("u", text)


@pytest.mark.parametrize("text", ["{", "[1]", "1", '"x"', '{"a":NaN}', "\ud800", "{" * 5_000])
def test_text_that_is_no_object_keeps_its_own_identity(text: str) -> None:
    assert canonical(text) == text.encode("utf-8", "replace")


def test_blank_arguments_and_null_are_the_empty_object() -> None:
    assert len({call_key("t", text) for text in ("", " \n", "null", "{}", "{ }")}) == 1
