"""Calls of one reply: which may overlap, which follow, and that each keeps its own fate."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.play import Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel, InFlight
from cairn.core.context import faults
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import ResultPart
from cairn.core.policy import Policy
from cairn.core.rules import Rules
from cairn.errors import ErrorClass


def by_file(values: dict[str, Any]) -> str:
    return str(values["file"])


def broken(values: dict[str, Any]) -> str:
    raise KeyError("file")


RULES = rules_of(
    tool("read"),
    tool("peek", conflict_key=by_file),
    tool("write", "write"),
    tool("edit", "write", conflict_key=by_file, check=need("file")),
    tool("patch", "write", conflict_key=by_file, check=need("file")),
    tool("odd", "write", conflict_key=broken),
)
A, B = {"file": "a"}, {"file": "b"}
FOLLOWS: dict[str, tuple[list[Any], list[tuple[str, ...]]]] = {
    "reads overlap": (["read", "read", "read"], [(), (), ()]),
    "a write follows a read": (["read", "write"], [(), ("c1",)]),
    "a read follows a write": (["write", "read"], [(), ("c1",)]),
    "writes follow each other": (["write", "write", "write"], [(), ("c1",), ("c1", "c2")]),
    "reads around a write": (["read", "write", "read"], [(), ("c1",), ("c2",)]),
    "writes of different keys overlap": ([("edit", A), ("edit", B)], [(), ()]),
    "writes of one key follow": ([("edit", A), ("edit", A)], [(), ("c1",)]),
    "keys are compared across tools": (
        [("edit", A), ("patch", A), ("patch", B)],
        [(), ("c1",), ()],
    ),
    "a key on one side only is not enough": ([("edit", A), "write"], [(), ("c1",)]),
    "a read with another key overlaps a write": ([("edit", A), ("peek", B)], [(), ()]),
    "a read with the same key does not": ([("edit", A), ("peek", A)], [(), ("c1",)]),
    "a read without a key does not": ([("edit", A), "read"], [(), ("c1",)]),
    "arguments that do not fit have no key": ([("edit", {}), ("edit", B)], [(), ("c1",)]),
    "a key that cannot be told costs only overlap": ([("odd", A), ("odd", B)], [(), ("c1",)]),
    "an unknown tool holds nothing back": (["write", "nothing", "write"], [(), (), ("c1",)]),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_order_is_kept_where_one_call_writes_unless_both_name_different_keys(name: str) -> None:
    calls, after = FOLLOWS[name]
    play = Play(RULES)
    play.says("", *calls)
    assert [call.after for call in play.state.calls.values()] == after


def test_calls_that_may_overlap_start_together_and_the_others_when_their_turn_comes() -> None:
    play = Play(RULES)
    assert play.calls("read", "read", "write", "read") == ["c1", "c2"]
    play.returns("c2")
    assert play.start() == []
    assert isinstance(play.decide(), InFlight)
    play.returns("c1")
    assert play.start() == ["c3"]
    play.returns("c3")
    assert play.start() == ["c4"]


def test_outcomes_are_journaled_as_they_arrive_and_told_in_the_order_of_the_calls() -> None:
    play = Play(RULES)
    play.calls("read", "read", "read")
    for call in ("c3", "c1", "c2"):
        play.returns(call, f"result of {call}")
    done = [e.call for e in play.events if isinstance(e, ev.ToolCompleted)]
    assert done == ["c3", "c1", "c2"]
    told = [p.id for p in play.state.messages[-1].parts if isinstance(p, ResultPart)]
    assert told == ["c1", "c2", "c3"]


def test_a_call_that_waits_for_approval_holds_back_only_what_follows_it() -> None:
    rules = Rules(
        tools=RULES.tools,
        models=RULES.models,
        policy=Policy(tools={"edit": "ask", "patch": "allow"}),
    )
    play = Play(rules)
    started = play.calls(("edit", A), ("patch", B), ("patch", A))
    assert started == ["c2"]
    play.returns("c2")
    assert play.settle().reasons == {"approval"}
    play.submit(cmd.Approve(n=1))
    assert play.start() == ["c1"]
    play.returns("c1")
    assert play.start() == ["c3"]


@pytest.mark.parametrize("fate", ["failed", "denied", "rejected"])
def test_a_call_that_comes_to_nothing_lets_its_followers_go_on(fate: str) -> None:
    policy = Policy(effects={"write": "ask" if fate == "denied" else "allow"})
    play = Play(Rules(tools=RULES.tools, models=RULES.models, policy=policy))
    play.calls(("edit", {} if fate == "rejected" else A), ("edit", A))
    if fate == "failed":
        play.raises("c1")
    elif fate == "denied":
        play.submit(cmd.Deny(n=1))
        play.settle()
        play.submit(cmd.Approve(n=2))
    play.start()
    assert play.call("c2").status is CallStatus.STARTED


def test_a_call_in_doubt_holds_its_followers_back_until_it_is_settled() -> None:
    play = Play(RULES)
    play.calls("write", "read")
    play.vanishes("c1")
    assert play.start() == []
    assert play.state.status is Status.WAITING
    play.submit(cmd.Resolve(call="c1", verdict="happened"))
    assert play.start() == ["c2"]


def test_one_call_that_fails_takes_no_sibling_with_it() -> None:
    play = Play(RULES)
    play.calls("read", "read", "read")
    play.raises("c1")
    play.vanishes("c2", "timeout")
    play.returns("c3", "fine")
    assert play.start() == ["c2"]
    play.returns("c2", "fine after all")
    told = [p.ok for p in play.state.messages[-1].parts if isinstance(p, ResultPart)]
    assert told == [False, True, True]
    assert isinstance(play.settle(), AskModel)


def test_a_crash_between_siblings_closes_each_for_itself() -> None:
    """c1 has its answer, c2 was at work, c3 was never started: only c2 is in question."""
    play = Play(RULES)
    play.calls("read", "write", "read")
    play.returns("c1", "one")
    play.start()
    play.crash()
    assert [c.status for c in play.state.calls.values()] == [
        CallStatus.COMPLETED,
        CallStatus.TAKEOVER,
        CallStatus.REQUESTED,
    ]
    play.submit(cmd.Resolve(call="c2", verdict="not_happened"))
    assert play.start() == ["c2"]
    play.returns("c2")
    assert play.start() == ["c3"]
    assert play.started("c1") == ["c1"]


def test_a_failure_that_ends_the_run_starts_no_further_sibling() -> None:
    play = Play(RULES)
    play.calls("read", "write")
    event = ev.ToolFailed(
        call="c1", error_class=ErrorClass.INTERNAL, message="no", disposition="end"
    )
    play.add(event, 1)
    assert play.start() == []
    assert play.state.status is Status.FAILED
    assert play.call("c2").status is CallStatus.CANCELLED


names = st.sampled_from(["read", "peek", "write", "edit", "patch", "odd", "nothing"])


@given(
    st.lists(st.tuples(names, st.sampled_from([A, B, {}])), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_whatever_order_outcomes_come_in_every_call_runs_once_and_is_answered_once(
    calls: list[Any], random: Any
) -> None:
    play = Play(RULES)  # that nothing overtakes is checked by the laws at every start
    started = play.calls(*calls)
    while started:
        call = started.pop(random.randrange(len(started)))
        play.returns(call)
        if play.state.calls:
            started += play.start()
    assert play.started() == list(dict.fromkeys(play.started()))
    assert faults(play.state.messages) == []
    assert not play.state.calls
