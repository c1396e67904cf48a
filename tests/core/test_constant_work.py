"""A turn costs the same at the beginning of a run and at its two-thousandth step.

Work is counted, not timed: calls of Python and C functions, items read from the histories, and
the size of everything a state holds.
"""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.core.play import Play, rules_of, tool

from cairn.core.context import faults
from cairn.core.history import Growing, History
from cairn.core.index import index_of
from cairn.core.limits import Limits
from cairn.core.messages import Message, user
from cairn.core.rules import ModelSpec
from cairn.core.state import RunState
from cairn.core.view import View, sent

EARLY, LATE = 20, 2_000
LIMITS = Limits(steps=10_000, calls=100_000, tokens=10**9)
WIDE = ModelSpec(name="m1", window=10**9, max_output=1_000)
"""Nothing has to be condensed; what that costs is counted in tests/context."""
RULES = rules_of(tool("find"), tool("set", "write"), models=(WIDE,))


def turn(play: Play, n: int) -> None:
    """Ask, two calls that follow each other, both return."""
    (first,) = play.calls(("find", {"n": n}), ("set", {"n": n}))
    play.returns(first, f"found {n}")
    (second,) = play.start()
    play.returns(second)
    index_of(play.state)


def counted(work: Callable[[], Any]) -> int:
    """How many functions were called, of Python or C."""
    calls = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()  # a collection may call functions of others
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def instructions(work: Callable[[], Any]) -> int:
    """How many instructions of Python were carried out."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def sizes(state: RunState) -> dict[str, int]:
    """How long each container of the state is; histories are shared and left out."""
    found = {}
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if isinstance(value, dict | tuple | list | set | frozenset | Growing):
            found[name] = len(value)
    found["guard"] = len(state.guard.seen) + len(state.guard.asked)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every item that is read from a history from here on counts once."""
    count = [0]
    get, walk = History.__getitem__, History.__iter__

    def counting_get(self: Any, index: Any) -> Any:
        value = get(self, index)
        count[0] += len(value) if isinstance(index, slice) else 1
        return value

    def counting_walk(self: Any) -> Any:
        for item in walk(self):
            count[0] += 1
            yield item

    monkeypatch.setattr(History, "__getitem__", counting_get)
    monkeypatch.setattr(History, "__iter__", counting_walk)
    return count


def test_a_turn_costs_the_same_at_step_20_and_at_step_2000(reads: list[int]) -> None:
    """B11."""
    play = Play(RULES, limits=LIMITS, lawful=False)
    costs, held, shared = {}, {}, None
    for n in range(1, LATE + 1):
        if n in {EARLY, LATE}:
            costs[n] = counted(lambda n=n: turn(play, n))
            held[n] = sizes(play.state)
        else:
            turn(play, n)
        shared = shared or play.state.messages._items
        assert play.state.messages._items is shared, "the messages were copied"
    assert play.state.step == LATE
    assert costs[EARLY] == costs[LATE]
    assert held[EARLY] == held[LATE]
    assert reads[0] == 0, "deciding reads no old message"


def test_the_proof_before_a_request_reads_only_what_is_new(reads: list[int]) -> None:
    play = Play(RULES, limits=LIMITS, lawful=False)
    for n in range(200):
        checked = len(play.state.messages)
        turn(play, n)
        before = reads[0]
        assert faults(play.state.messages[checked:]) == []
        assert reads[0] - before == 2


def test_a_request_behind_a_summary_takes_the_same_steps_however_much_follows_it() -> None:
    """Messages that are sent as they are, are handed over as one, not one by one."""
    view, found = View(start=1, summary=7), {}
    for length in (100, 10_000):
        messages: History[Message] = History([user(f"message {n}") for n in range(length)])
        assert len(sent(messages, view, "what was")) == length
        found[length] = instructions(lambda messages=messages: sent(messages, view, "what was"))
    assert found[100] == found[10_000]


def test_a_turn_that_goes_wrong_leaves_nothing_behind_either() -> None:
    """Repaired replies, refused calls and errors of tools keep no list of what once was."""
    limits = Limits(steps=10_000, calls=100_000, tokens=10**9, errors_in_row=9, no_progress=9)
    play = Play(RULES, limits=limits, lawful=False)
    held = {}
    for n in range(1, 301):
        play.says("")
        play.calls(("nothing", {}), ("find", {"n": n}))
        play.raises(f"c{3 * n - 1}")
        play.one_turn("find", {"m": n}, n)
        held[n] = sizes(play.state)
    assert held[EARLY] == held[300]
