"""Effects nobody knows the outcome of: law 4, one sentence at a time."""

from typing import Any

import pytest
from tests.core.play import SECOND, Play, raw, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel, ProbeCall, Wait
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import ResultPart
from cairn.core.state import wake_at
from cairn.errors import ErrorClass, IllegalTransition

E = ErrorClass
TOOLS = (
    tool("find"),
    tool("set", "write", recovery="repeat"),
    tool("pay", "write", recovery="keyed", key_ttl_us=100 * SECOND, fallback="bill"),
    tool("bill", "write"),
    tool("book", "write", recovery="probe", settle_us=2 * SECOND),
    tool("mail", "write", fallback="post"),
    tool("post", "write"),
)
RULES = rules_of(*TOOLS)


def lost(name: str, *, gone: bool = True) -> Play:
    """A run whose process died while this tool was at work."""
    play = Play(RULES)
    play.calls((name, {"a": 1}))
    play.crash(gone=gone)
    return play


# ---------------------------------------------------------------- what each recovery does


@pytest.mark.parametrize(
    ("name", "next_step"),
    [("find", "again"), ("set", "again"), ("pay", "again"), ("book", "probe"), ("mail", "person")],
)
def test_after_a_crash_the_tools_recovery_decides(name: str, next_step: str) -> None:
    play = lost(name)
    play.now += 10 * SECOND
    action = play.settle()
    if next_step == "again":
        assert play.start() == ["c1"]
        assert play.last(ev.ToolStarted).attempt == 2
    elif next_step == "probe":
        assert action == ProbeCall(call="c1")
    else:
        assert action == Wait(reasons=frozenset({"in_doubt"}))


def test_the_key_is_the_same_for_every_attempt_and_another_for_every_call() -> None:
    play = lost("pay")
    first = play.call("c1").key
    play.start()
    assert play.call("c1").key == first
    play.returns("c1")
    play.calls(("pay", {"a": 1}))
    assert play.call("c2").key != first


def test_after_its_time_to_live_a_key_is_worth_nothing_and_a_person_is_asked() -> None:
    play = lost("pay")
    play.now += 100 * SECOND - 1
    assert play.start() == ["c1"]
    play.crash()
    play.now += 1
    assert play.start() == []
    assert play.call("c1").status is CallStatus.TAKEOVER
    assert "no longer honoured" in play.last(ev.TakeoverRequested).message


def test_a_write_is_repeated_only_so_often_and_a_person_is_asked_then() -> None:
    play = Play(RULES)
    play.calls("set")
    for _ in range(4):
        play.crash()
        play.start()
    assert play.started() == ["c1"] * 4
    assert play.call("c1").status is CallStatus.TAKEOVER


# ---------------------------------------------------------------- probes


def test_a_probe_is_asked_once_it_can_know_and_the_run_says_when() -> None:
    play = lost("book", gone=False)
    opens = play.call("c1").not_before
    assert opens == play.call("c1").started_at + (60 + 30 + 2) * SECOND
    assert play.decide() == Wait(reasons=frozenset({"retry_at"}), until=opens)
    assert wake_at(play.state) == opens
    play.now = opens
    assert play.decide() == ProbeCall(call="c1")


@pytest.mark.parametrize(
    ("verdict", "then"),
    [("happened", "told"), ("not_happened", "again"), ("unknown", "person")],
)
def test_the_answer_of_a_probe_decides_what_is_done(verdict: str, then: str) -> None:
    play = lost("book")
    play.now += 5 * SECOND
    play.probe(verdict, "seat 12" if verdict == "happened" else None)
    if then == "told":
        (part,) = play.state.messages[-1].parts
        assert isinstance(part, ResultPart)
        assert (part.result, part.ok) == ("seat 12", True)
    elif then == "again":
        assert play.start() == ["c1"]
    else:
        assert play.settle() == Wait(reasons=frozenset({"in_doubt"}))


@pytest.mark.parametrize(("reason", "attempts"), [("lost", 4), ("timeout", 2)])
def test_a_probe_that_keeps_saying_no_ends_in_a_failure_and_not_in_a_circle(
    reason: str, attempts: int
) -> None:
    play = Play(RULES)
    play.calls("book")
    for _ in range(20):
        if not play.state.calls:
            break
        play.vanishes("c1", reason, gone=True)
        play.now += 5 * SECOND
        play.probe("not_happened")
        play.start()
    assert play.started() == ["c1"] * attempts
    failed = play.last(ev.ToolFailed)
    assert failed.disposition == "repair"
    assert "did not take effect" in failed.message
    assert isinstance(play.settle(), AskModel)


def test_what_certainly_did_not_happen_may_be_done_by_the_fallback() -> None:
    ladder = Ladder(rows={E.TOOL_TIMEOUT: (Rung(disposition="switch", times=1),)})
    rules = rules_of(
        tool("book", "write", recovery="probe", fallback="post"),
        tool("post", "write"),
        ladder=ladder,
    )
    play = Play(rules)
    play.calls("book")
    play.vanishes("c1", "timeout", gone=True)
    play.probe("not_happened")
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).tool == "post"


def test_a_person_may_send_a_call_off_again_as_often_as_it_is_said() -> None:
    play = Play(RULES)
    play.calls("mail")
    for _ in range(9):
        play.crash()
        play.submit(cmd.Resolve(call="c1", verdict="not_happened"))
        assert play.start() == ["c1"]
    assert play.started() == ["c1"] * 10


# ---------------------------------------------------------------- fallbacks and earlier attempts


@pytest.mark.parametrize("not_done", [True, False])
def test_a_raised_error_is_known_and_may_be_followed_by_the_fallback(not_done: bool) -> None:
    play = Play(RULES)
    play.calls("mail")
    play.raises("c1", E.TOOL_ERROR, not_done=not_done)
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).tool == "post"


def test_an_unknown_end_is_never_followed_by_the_fallback() -> None:
    play = lost("mail")
    assert play.start() == []
    play.submit(cmd.Resolve(call="c1", verdict="not_happened"))
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).tool == ""


def test_that_the_last_attempt_did_nothing_does_not_settle_an_earlier_one() -> None:
    """The first attempt may have paid. Neither a fallback nor "it failed" would be true."""
    play = lost("pay")
    play.start()
    for _ in range(9):
        event = play.raises("c1", E.TOOL_UNAVAILABLE, not_done=True)
        if event.disposition != "retry":
            break
        play.now = event.retry_at
        play.start()
    assert (event.disposition, event.error_class) == ("takeover", E.IN_DOUBT)
    assert play.call("c1").tool == "pay"
    assert play.settle() == Wait(reasons=frozenset({"in_doubt"}))
    play.submit(cmd.Resolve(call="c1", verdict="happened"))
    assert isinstance(play.settle(), AskModel)


def test_a_known_failure_under_the_same_key_does_settle_it() -> None:
    play = lost("pay")
    play.start()
    assert play.raises("c1", E.PERMISSION_DENIED).disposition == "repair"


def test_a_run_that_ends_over_a_retry_keeps_an_earlier_doubt_listed() -> None:
    play = lost("pay")
    play.start()
    play.raises("c1", E.TOOL_UNAVAILABLE, not_done=True)
    play.submit(cmd.Cancel())
    play.settle()
    assert play.state.status is Status.CANCELLED
    assert play.call("c1").status is CallStatus.TAKEOVER


# ---------------------------------------------------------------- ends and late outcomes


@pytest.mark.parametrize("name", ["set", "pay", "book", "mail"])
def test_an_effect_in_doubt_stays_open_to_a_verdict_after_the_end(name: str) -> None:
    for verdict, status in (("happened", "completed"), ("not_happened", "failed")):
        play = lost(name, gone=False)
        play.submit(cmd.Cancel())
        play.settle()
        assert play.state.status is Status.CANCELLED
        assert play.call("c1").status is CallStatus.TAKEOVER
        command: Any = cmd.Resolve(call="c1", verdict=verdict)
        play.submit(command)
        assert play.call("c1").status.value == status


def test_a_read_without_an_outcome_is_no_effect_in_doubt_when_the_run_ends() -> None:
    play = lost("find")
    play.submit(cmd.Cancel())
    play.settle()
    assert play.call("c1").status is CallStatus.FAILED


@pytest.mark.parametrize("name", ["set", "pay", "book", "mail"])
@pytest.mark.parametrize("ok", [True, False])
def test_a_late_outcome_settles_what_is_still_unknown(name: str, ok: bool) -> None:
    play = Play(RULES)
    play.calls(name)
    play.vanishes("c1", "timeout")
    play.submit(cmd.Late(call="c1", ok=ok, result=raw("it is done"), message="it bounced"))
    (part,) = play.state.messages[-1].parts
    assert isinstance(part, ResultPart)
    assert part.ok is ok
    assert ("it is done" if ok else "it bounced") in part.result


def test_a_late_outcome_of_a_call_a_person_has_in_hand_changes_nothing() -> None:
    ladder = Ladder(rows={E.TOOL_ERROR: (Rung(disposition="takeover"),)})
    play = Play(rules_of(tool("mail", "write"), ladder=ladder))
    play.calls("mail")
    play.raises("c1")
    before = play.state.calls
    play.submit(cmd.Late(call="c1", ok=True))
    assert play.state.calls == before


def test_an_outcome_after_the_time_out_can_only_come_as_a_late_one() -> None:
    play = Play(RULES)
    play.calls("pay")
    play.vanishes("c1")
    for event in (
        ev.ToolCompleted(call="c1"),
        ev.ToolFailed(call="c1", error_class=E.TOOL_ERROR, message="m", disposition="repair"),
        ev.ToolRejected(call="c1", kind="denied", error_class=E.PERMISSION_DENIED, message="m"),
    ):
        with pytest.raises(IllegalTransition):
            play.add(event, 1)


def test_when_it_did_not_happen_may_be_said_depends_on_whether_the_process_is_gone() -> None:
    for gone, opens_after_s in ((True, 2), (False, 92)):
        play = lost("book", gone=gone)
        assert play.call("c1").not_before - play.call("c1").started_at == opens_after_s * SECOND


def test_a_call_whose_tool_is_not_known_any_more_keeps_the_deadline_it_was_started_with() -> None:
    play = Play(RULES)
    play.calls("mail")
    play.rules = rules_of(tool("find"))
    play.crash(gone=False)
    assert play.call("c1").not_before - play.call("c1").started_at == 90 * SECOND
