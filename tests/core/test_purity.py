"""The core is values and total functions: nothing handed in is ever changed."""

import copy
from typing import Any

import msgspec
import pytest
from tests.core.play import DAY, SECOND, Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.decide import decide
from cairn.core.evolve import evolve, fold
from cairn.core.index import index_of
from cairn.core.messages import Text
from cairn.core.state import RunState, transcript
from cairn.errors import ErrorClass

RULES = rules_of(
    tool("find", fallback="look"),
    tool("look"),
    tool("set", "write", recovery="repeat"),
    tool("mail", "write"),
    tool("drop", "dangerous"),
    tool("ask_user", kind="question", check=need("question")),
    checks=("complete",),
)


def story() -> Play:
    """A run in which nearly everything happens once."""
    play = Play(RULES)
    play.fails(ErrorClass.NETWORK)
    play.now += 60 * SECOND
    play.calls("find", ("set", {"a": 1}), "mail", "drop", "nothing", ("find", "[1"))
    play.raises("c1")
    play.start()
    play.returns("c1", "from look")
    play.start()
    play.vanishes("c2", "timeout")
    play.start()
    play.returns("c2")
    play.start()
    play.crash()
    play.submit(cmd.Queue(parts=(Text("and hurry"),)))
    play.submit(cmd.Resolve(call="c3", verdict="happened"))
    play.settle()
    play.submit(cmd.Pause())
    play.now += DAY
    play.submit(cmd.Approve(n=1))
    play.submit(cmd.Resume())
    play.start()
    play.returns("c4")
    play.settle()
    play.calls(("ask_user", {"question": "which?"}))
    play.submit(cmd.Answer(n=2, text="this one"))
    play.says("done, see [s9]")
    play.says("done")
    play.step()
    play.crash()
    play.step()
    play.refuses("a total is missing")
    play.says("done, 4 euros")
    play.step()
    play.accepts()
    play.settle()
    return play


def test_evolve_changes_neither_the_state_nor_the_event_it_is_given() -> None:
    play = story()
    state = RunState(run="r1")
    for entry in play.journal:
        state_before, entry_before = copy.deepcopy(state), copy.deepcopy(entry)
        after = evolve(state, entry)
        assert state == state_before
        assert entry == entry_before
        state = after
    assert state == play.state


def test_deciding_twice_gives_the_same_action_and_changes_nothing() -> None:
    play = story()
    state = RunState(run="r1")
    for entry in play.journal:
        state = evolve(state, entry)
        before = copy.deepcopy(state)
        for now in (entry.at, entry.at + DAY, entry.at + 30 * DAY):
            assert decide(state, RULES, now) == decide(state, RULES, now)
        transcript(state)
        index_of(state)
        assert state == before


def test_every_state_of_a_run_stays_true_while_the_run_goes_on() -> None:
    play = story()
    states, state = [], RunState(run="r1")
    for entry in play.journal:
        state = evolve(state, entry)
        states.append(state)
    for n, kept in enumerate(states, 1):
        assert fold(RunState(run="r1"), play.journal[:n]) == kept


def test_any_prefix_and_the_rest_fold_to_what_the_whole_folds_to() -> None:
    play = story()
    for n in range(1, len(play.journal)):
        prefix = fold(RunState(run="r1"), play.journal[:n])
        assert fold(prefix, play.journal[n:]) == play.state


def test_two_futures_of_one_state_do_not_touch_each_other() -> None:
    play = Play(RULES)
    play.one_turn("find", {})
    play.ask()
    fork = play.state
    at, seq = play.now, fork.seq + 1
    one = evolve(fork, ev.Entry(seq=seq, at=at, event=ev.ModelCompleted(parts=(Text("a"),))))
    two = evolve(fork, ev.Entry(seq=seq, at=at, event=ev.ModelCompleted(parts=(Text("b"),))))
    assert (one.answer_text, two.answer_text) == ("a", "b")
    assert [m.parts for m in one.messages][-1] == (Text("a"),)
    assert [m.parts for m in two.messages][-1] == (Text("b"),)


def test_a_story_is_told_in_every_kind_of_event_it_needs() -> None:
    kinds = {type(event) for event in story().events}
    assert len(kinds) >= 24


@pytest.mark.parametrize("kind", [RunState, ev.Entry, *ev.EVENTS.values()])
def test_values_cannot_be_changed_in_place(kind: Any) -> None:
    assert kind.__struct_config__.frozen
    assert issubclass(kind, msgspec.Struct)
