"""What a model is sent, what a later run takes over, and what a retry goes on from."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.play import DAY, Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.context import faults, system_text
from cairn.core.evolve import evolve, fold
from cairn.core.history import History
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Limits, Reservation
from cairn.core.messages import CallPart, Message, ResultPart, Text, text_of, user
from cairn.core.sizes import tokens_of
from cairn.core.state import RunState, transcript
from cairn.errors import ErrorClass, IllegalTransition

E = ErrorClass
RULES = rules_of(
    tool("find"),
    tool("set", "write", recovery="keyed"),
    tool("book", "write", recovery="probe"),
    tool("mail", "write"),
    tool("drop", "dangerous"),
    tool("ask_user", kind="question", check=need("question")),
)


# ---------------------------------------------------------------- the proof before a request


def asks(*ids: str, arguments: str = "{}") -> Message:
    parts = tuple(CallPart(id=i, name="find", arguments=arguments) for i in ids)
    return Message(role="assistant", parts=parts)


def answers(*ids: str, text: str = "ok") -> Message:
    return Message(role="tool", parts=tuple(ResultPart(id=i, result=text) for i in ids))


SOUND: dict[str, list[Message]] = {
    "nothing": [],
    "a question": [user("hi")],
    "two calls and their answers": [user("hi"), asks("c1", "c2"), answers("c1", "c2")],
    "answers in another order": [asks("c1", "c2"), answers("c2", "c1")],
    "answers in two messages": [asks("c1", "c2"), answers("c1"), answers("c2"), user("go on")],
    "wide text": [user("中文 🙂"), asks("c1", arguments='{"a":"é"}'), answers("c1", text="ß")],
}
BROKEN: dict[str, tuple[list[Message], str]] = {
    "a call without an answer": ([asks("c1"), user("hello again")], "c1 have no answer"),
    "a call without an answer at the end": ([user("hi"), asks("c1")], "c1 have no answer"),
    "one of two is missing": ([asks("c1", "c2"), answers("c1"), user("x")], "c2 have no answer"),
    "an answer without its call": ([user("hi"), answers("c1")], "c1 has no open call"),
    "an answer too many": ([asks("c1"), answers("c1", "c1")], "c1 has no open call"),
    "an answer to an older call": (
        [asks("c1"), answers("c1"), asks("c2"), answers("c1", "c2")],
        "c1 has no open call",
    ),
    "an id twice in one reply": ([asks("c1", "c1"), answers("c1", "c1")], "c1 is used twice"),
    "an id twice in the list": ([asks("c1"), answers("c1")] * 2, "c1 is used twice"),
    "arguments that are no object": (
        [asks("c1", arguments="[1]"), answers("c1")],
        "no JSON object",
    ),
    "arguments that are blank": ([asks("c1", arguments=""), answers("c1")], "no JSON object"),
    "arguments that are cut": ([asks("c1", arguments='{"a'), answers("c1")], "no JSON object"),
    "half an emoji in a text": ([user("\ud83d")], "no UTF-8"),
    "half an emoji in an answer": ([asks("c1"), answers("c1", text="\ud83d")], "no UTF-8"),
    "half an emoji in arguments": (
        [asks("c1", arguments='{"a":"\ud83d"}'), answers("c1")],
        "UTF-8",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_well_formed_list_has_no_faults(name: str) -> None:
    assert faults(SOUND[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_list_a_provider_would_refuse_is_known_before_it_is_sent(name: str) -> None:
    messages, said = BROKEN[name]
    assert any(said in fault for fault in faults(messages)), faults(messages)


def test_instructions_come_from_the_blocks_in_the_order_they_were_first_given() -> None:
    play = Play(RULES)
    play.settle()
    blocks = (ev.Block(name="system", text="Be brief."), ev.Block(name="memory", text="Oslo."))
    room = Reservation(input_tokens=1, output_tokens=256)
    play.add(ev.ModelRequested(model="m", reserved=room, blocks=blocks), 1)
    assert system_text(play.state) == "Be brief.\n\nOslo."
    play.crash()
    changed = (ev.Block(name="system", text="Be long."), ev.Block(name="memory"))
    play.add(ev.ModelRequested(model="m", reserved=room, blocks=changed, attempt=2), 1)
    assert system_text(play.state) == "Be long."


# ---------------------------------------------------------------- a conversation goes on


def interrupted(name: str) -> Play:
    """A run that was cancelled while this call stood open."""
    play = Play(RULES)
    play.calls((name, {"question": "which?"}), "find")
    for call in tuple(play.state.calls.values()):
        if call.status is CallStatus.STARTED and call.name == "find":
            play.returns(call.id, "found")
    play.submit(cmd.Cancel())
    play.crash()
    play.settle()
    assert play.state.status is Status.CANCELLED
    return play


@pytest.mark.parametrize("name", ["find", "set", "book", "mail", "drop", "ask_user", "nothing"])
def test_the_transcript_of_an_interrupted_run_answers_every_call_once(name: str) -> None:
    play = interrupted(name)
    messages = transcript(play.state)
    assert faults(messages) == []
    assert faults((*messages, user("hello again"))) == []
    assert transcript(play.state) == messages, "asking twice changes nothing"


def test_the_transcript_says_of_each_call_what_is_true_of_it() -> None:
    told = {}
    for name in ("mail", "set", "drop", "ask_user"):
        part = transcript(interrupted(name).state)[-1].parts[0]
        assert isinstance(part, ResultPart)
        told[name] = part.result
    assert "may have happened" in told["mail"]
    assert "may have happened" in told["set"]
    assert told["drop"].startswith("Not executed")
    assert told["ask_user"].startswith("Not executed")


def test_the_transcript_of_a_run_that_hit_its_step_limit_can_go_on() -> None:
    play = Play(RULES, limits=Limits(steps=2))
    play.one_turn("find", {"a": 1})
    play.one_turn("find", {"a": 2}, "other")
    play.settle()
    assert play.state.status is Status.STOPPED
    assert faults((*transcript(play.state), user("and now?"))) == []


def test_messages_nobody_read_stay_for_the_next_run_of_the_session() -> None:
    play = Play(RULES)
    play.ask()
    play.submit(cmd.Queue(parts=(Text("one more thing"),)))
    play.submit(cmd.Cancel())
    play.crash()
    play.settle()
    assert [text_of(parts) for parts in play.state.queued.values()] == ["one more thing"]


def test_the_estimate_of_a_message_grows_with_all_that_it_holds() -> None:
    small, large = user("x"), user("x" * 4_000)
    assert tokens_of(large) - tokens_of(small) >= 999
    assert tokens_of(asks("c1", arguments='{"a":"' + "x" * 4_000 + '"}')) > 1_000
    assert tokens_of(answers("c1", text="字" * 1_000)) > 1_000
    total = Play(RULES)
    total.one_turn("find", {"a": 1}, "x" * 400)
    assert total.state.tokens == sum(map(tokens_of, total.state.messages))


# ---------------------------------------------------------------- retry: a fork before the end


def forked(play: Play, **fields: Any) -> Play:
    """A new run from just before the end of this one."""
    prefix = play.journal[:-1]
    before = fold(RunState(run="r1"), prefix)
    again = Play(play.rules, lawful=False)
    again.now, again.journal = play.now, list(prefix)
    again.state = before
    again.add(ev.RunForked(run="r2", parent="r1", at=before.seq, **fields))
    return again


def test_a_retry_starts_its_accounts_anew_and_goes_on_with_the_conversation() -> None:
    play = Play(RULES, limits=Limits(steps=1))
    play.one_turn("find", {}, "found")
    play.settle()
    again = forked(play, limits=Limits(steps=5))
    assert (again.state.run, again.state.limits.steps) == ("r2", 5)
    assert again.state.parent == ev.RunRef(run="r1", seq=again.state.seq - 1)
    assert (again.state.spent.steps, again.state.usage.tokens) == (0, 0)
    assert again.state.messages == play.state.messages
    again.says("done")
    again.settle()
    assert again.state.status is Status.COMPLETED


@pytest.mark.parametrize("error_class", [E.AUTH, E.INVALID_REQUEST, E.CONTENT_FILTERED])
def test_a_retry_of_a_run_that_failed_over_its_model_asks_again(error_class: ErrorClass) -> None:
    play = Play(RULES)
    play.fails(error_class)
    play.settle()
    again = forked(play)
    assert again.state.status is Status.RUNNING
    assert isinstance(again.settle(), AskModel)


def approved_and_cancelled() -> Play:
    play = Play(RULES)
    play.calls("drop")
    play.settle()
    play.submit(cmd.Approve(n=1))
    play.submit(cmd.Cancel())
    play.settle()
    return play


def test_an_approval_that_was_not_used_is_void_in_a_fork() -> None:
    again = forked(approved_and_cancelled(), grants="void")
    (call,) = again.state.calls.values()
    assert (call.status, call.granted, call.approval) == (CallStatus.REQUESTED, False, 0)
    again.settle()
    assert again.state.status is Status.WAITING
    assert isinstance(again.journal[-1].event, ev.ApprovalRequested)
    assert again.journal[-1].event.n == 2


@pytest.mark.parametrize("late", [False, True])
def test_an_old_journal_whose_fork_kept_an_approval_still_reads_as_it_was(late: bool) -> None:
    """It went on under the approval, or let it expire: neither may be unreadable now."""
    again = forked(approved_and_cancelled())
    (call,) = again.state.calls.values()
    assert (call.status, call.granted) == (CallStatus.APPROVED, True)
    again.now += 400 * DAY if late else 0
    if not late:
        assert again.start() == ["c1"]
        return
    again.settle()
    assert again.state.calls == {}
    assert any(isinstance(entry.event, ev.ApprovalExpired) for entry in again.journal)


def test_a_retry_never_cuts_off_an_effect_that_was_started() -> None:
    play = Play(RULES)
    play.calls("mail")
    play.crash()
    play.submit(cmd.Resolve(call="c1", verdict="given_up"))
    play.settle()
    again = forked(play)
    assert again.state.status is Status.WAITING
    assert again.call("c1").status is CallStatus.TAKEOVER
    key = again.call("c1").key
    assert key == play.call("c1").key, "the key is that of the run that first asked"
    again.submit(cmd.Resolve(call="c1", verdict="happened"))
    again.calls("mail")
    assert again.call("c2").origin == "r2"


def test_a_retry_of_a_run_whose_checks_kept_dying_gives_them_another_chance() -> None:
    play = Play(rules_of(checks=("complete",)))
    play.says("done")
    for _ in range(4):
        play.step()
        play.crash()
    play.settle()
    assert play.state.status is Status.FAILED
    again = forked(play)
    again.step()
    again.accepts()
    again.settle()
    assert again.state.status is Status.COMPLETED


def test_a_retry_asks_again_what_nobody_had_decided() -> None:
    play = Play(RULES)
    play.calls("drop")
    play.submit(cmd.Cancel())
    play.settle()
    again = forked(play)
    assert again.state.cancel is None
    again.submit(cmd.Approve(n=1))
    assert again.start() == ["c1"]


def test_a_retry_is_refused_nothing_that_a_living_run_may_do() -> None:
    play = Play(RULES)
    play.submit(cmd.Cancel())
    play.settle()
    again = forked(play)
    again.submit(cmd.Pause())
    again.submit(cmd.Resume())
    assert again.state.status is Status.QUEUED


# ---------------------------------------------------------------- the shared list

actions = st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=40)


@given(actions)
def test_a_history_behaves_as_if_every_addition_copied_it(steps: list[tuple[int, int]]) -> None:
    versions: list[tuple[History[int], list[int]]] = [(History(), [])]
    for pick, item in steps:
        history, model = versions[pick % len(versions)]
        versions.append((history.added(item), [*model, item]))
        for version, expected in versions:
            assert list(version) == expected
            assert len(version) == len(expected)
            assert version[:] == expected


@given(st.lists(st.integers(), max_size=12), st.integers(-15, 15), st.integers(-15, 15))
def test_a_history_is_read_like_any_sequence(items: list[int], a: int, b: int) -> None:
    history = History(items)
    assert history[a:b] == items[a:b]
    assert history[::-2] == items[::-2]
    assert list(reversed(history)) == items[::-1]
    assert history == History(items)
    assert hash(history) == hash(History(items))
    assert (a in history) == (a in items)
    if -len(items) <= a < len(items):
        assert history[a] == items[a]
    else:
        with pytest.raises(IndexError):
            history[a]
    assert history != items
    assert repr(items) in repr(history)


def test_an_older_history_never_sees_what_a_newer_one_added() -> None:
    old = History([1, 2])
    new = old.added(3)
    other = old.added(4)
    assert (list(old), list(new), list(other)) == ([1, 2], [1, 2, 3], [1, 2, 4])
    with pytest.raises(IndexError):
        old[2]
    with pytest.raises(IndexError):
        old[-3]


def test_runs_start_with_histories_of_their_own() -> None:
    one, other = RunState(run="a"), RunState(run="b")
    assert one.messages == other.messages
    one.messages.added(user("x"))
    assert other.messages._items == []


class Raced(list[int]):
    """A list to which another thread adds at the very moment we do."""

    def append(self, item: int) -> None:
        super().append(99)
        super().append(item)


def test_two_threads_that_go_on_from_one_history_at_the_same_moment_get_each_their_own() -> None:
    history = History([1, 2])
    history._items = Raced([1, 2])
    new = history.added(3)
    assert list(new) == [1, 2, 3]
    assert list(history) == [1, 2]


def test_growing_a_history_copies_nothing() -> None:
    history: History[int] = History()
    history = history.added(0)
    shared = history._items
    for n in range(1, 1_000):
        history = history.added(n)
        assert history._items is shared


# ---------------------------------------------------------------- time and expiry across a week


def test_a_run_that_slept_for_a_week_goes_on_as_if_nothing_had_been() -> None:
    play = Play(RULES)
    play.one_turn("find", {})
    play.now += 7 * DAY
    folded = play.refold()
    assert folded == play.state
    play.says("done")
    play.settle()
    assert play.state.status is Status.COMPLETED


def test_a_degraded_answer_says_what_it_had_to_do_without() -> None:
    rules = rules_of(
        tool("find"), ladder=Ladder(rows={E.TOOL_ERROR: (Rung(disposition="degrade"),)})
    )
    play = Play(rules)
    play.calls("find")
    play.raises("c1")
    play.says("done")
    play.settle()
    assert play.state.end is not None
    assert play.state.end.degraded == ("find",)


def test_a_journal_that_was_cut_anywhere_folds_to_what_it_was_then() -> None:
    play = Play(RULES)
    states = []
    for n in range(5):
        play.one_turn("find", {"n": n}, n)
        states.append((len(play.journal), play.state))
    for length, state in states:
        assert fold(RunState(run="r1"), play.journal[:length]) == state
    with pytest.raises(IllegalTransition):
        fold(RunState(run="r1"), play.journal[3:])
    with pytest.raises(IllegalTransition):
        evolve(play.state, play.journal[-1])
