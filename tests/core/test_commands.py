"""What people may ask of a run: every command has one outcome in every state."""

import copy
from typing import Any

import pytest
from tests.core.play import DAY, SECOND, Play, need, raw, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import StartCalls, Wait
from cairn.core.evolve import evolve
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Limits
from cairn.core.messages import PlanItem, ResultPart, Text
from cairn.core.policy import Policy
from cairn.errors import CairnError, ErrorClass, IllegalTransition, Refused, UnknownRun

RULES = rules_of(
    tool("find"),
    tool("mail", "write", settle_us=5 * SECOND),
    tool("drop", "dangerous"),
    tool("wipe", "dangerous"),
    tool("ask_user", kind="question", check=need("question")),
)


def queued() -> Play:
    return Play(RULES)


def running() -> Play:
    play = Play(RULES)
    play.ask()
    return play


def asking() -> Play:
    play = Play(RULES)
    play.calls(("drop", {"table": "a"}))
    return play


def granted() -> Play:
    play = asking()
    play.submit(cmd.Approve(n=1))
    return play


def granted_edited() -> Play:
    """Once this has run there is no call left to compare with."""
    play = asking()
    play.submit(COMMANDS["approve edited"])
    for call in play.start():
        play.returns(call)
    return play


def taken() -> Play:
    play = queued()
    play.submit(cmd.TakeOver(by="ann", reason="it is stuck"))
    return play


def taken_asking() -> Play:
    play = asking()
    play.submit(cmd.TakeOver(by="ann", reason="it is stuck"))
    return play


def taken_paused() -> Play:
    play = taken_asking()
    play.submit(cmd.Pause())
    return play


def denied() -> Play:
    play = asking()
    play.submit(cmd.Deny(n=1))
    return play


def expired() -> Play:
    play = asking()
    play.now += 7 * DAY
    return play


def swept() -> Play:
    play = expired()
    play.settle()
    return play


def questioning() -> Play:
    play = Play(RULES)
    play.calls(("ask_user", {"question": "which?"}))
    return play


def in_doubt() -> Play:
    play = Play(RULES)
    play.calls("mail")
    play.vanishes("c1")
    return play


def paused() -> Play:
    play = asking()
    play.submit(cmd.Pause())
    return play


def cancelling() -> Play:
    play = running()
    play.submit(cmd.Cancel())
    return play


def given_up() -> Play:
    play = in_doubt()
    play.submit(cmd.Resolve(call="c1", verdict="given_up"))
    return play


def ended_in_doubt() -> Play:
    play = given_up()
    play.settle()
    assert play.state.status is Status.FAILED
    return play


def completed() -> Play:
    play = denied()
    play.says("done")
    play.settle()
    assert play.state.status is Status.COMPLETED
    return play


COMMANDS: dict[str, cmd.Command] = {
    "approve": cmd.Approve(n=1),
    "deny": cmd.Deny(n=1, message="no"),
    "answer": cmd.Answer(n=1, text="the second"),
    "queue": cmd.Queue(parts=(Text("and hurry"),)),
    "happened": cmd.Resolve(call="c1", verdict="happened"),
    "not_happened": cmd.Resolve(call="c1", verdict="not_happened"),
    "give up": cmd.Resolve(call="c1", verdict="given_up"),
    "pause": cmd.Pause(),
    "resume": cmd.Resume(),
    "cancel": cmd.Cancel(),
    "late": cmd.Late(call="c1", ok=True),
    "edit": cmd.EditCall(call="c1", arguments='{"table": "b"}'),
    "plan": cmd.SetPlan(items=(PlanItem(text="look"),)),
    "approve edited": cmd.Approve(n=1, arguments='{"table": "b"}', by="p1"),
    "take over": cmd.TakeOver(by="ann", reason="it is stuck"),
    "turn": cmd.TakeTurn(by="ann", calls=(("find", "{}"),)),
    "final answer": cmd.TakeTurn(by="ann", text="It is done."),
    "by hand": cmd.DoneByHand(by="ann", call="c1", result=raw("done")),
    "hand back": cmd.HandBack(by="ann"),
    "hand back by nobody": cmd.HandBack(),
    "hand back by another": cmd.HandBack(by="bob"),
    "turn of another": cmd.TakeTurn(by="bob", text="It is done."),
    "by hand of nobody": cmd.DoneByHand(by="", call="c1", result=raw("done")),
}
# What a command does: + an event, . nothing, R Refused, U UnknownRun, I IllegalTransition.
LIVE = {"queue": "+", "pause": "+", "resume": ".", "cancel": "+", "late": "+"}
LIVE |= {"edit": "R", "plan": "+"}
LIVE |= {"take over": "+", "turn": "R", "final answer": "R", "by hand": "R", "hand back": "."}
LIVE |= {"hand back by nobody": ".", "hand back by another": ".", "turn of another": "R"}
LIVE |= {"by hand of nobody": "R"}
NO_DOUBT = {"happened": "R", "not_happened": "R", "give up": "R"}
NOTHING = {"approve": "U", "deny": "U", "answer": "U", "approve edited": "U"}
UNKNOWN_CALL = {"happened": "U", "not_happened": "U", "give up": "U", "late": "U"}
UNKNOWN_CALL |= {"edit": "U", "by hand": "U", "by hand of nobody": "U"}
ENDED = {"queue": "I", "pause": "I", "resume": "I", "cancel": ".", "late": "+"}
ENDED |= {"edit": "I", "plan": "I", "take over": "I", "turn": "I", "final answer": "I"}
ENDED |= {"by hand": "I", "hand back": "I", "hand back by nobody": "I"}
ENDED |= {"hand back by another": "I", "turn of another": "I", "by hand of nobody": "I"}
TAKEN = {"take over": ".", "hand back": "+"}
TAKEN |= {"hand back by nobody": "R", "hand back by another": "R"}
EXPECTED: dict[Any, dict[str, str]] = {
    queued: {**LIVE, **NOTHING, **UNKNOWN_CALL},
    running: {**LIVE, **NOTHING, **UNKNOWN_CALL},
    asking: {**LIVE, **NO_DOUBT, "edit": "+", "approve": "+", "deny": "+", "answer": "R"}
    | {"approve edited": "+"},
    granted: {**LIVE, **NO_DOUBT, "edit": "+", "approve": ".", "deny": "R", "answer": "R"}
    | {"approve edited": "R"},
    granted_edited: {**LIVE, **NO_DOUBT, "edit": "R", "approve": "R", "deny": "R", "answer": "R"}
    | {"approve edited": "."},
    denied: {**LIVE, **NO_DOUBT, "approve": "R", "deny": ".", "answer": "R"}
    | {"approve edited": "R"},
    expired: {**LIVE, **NO_DOUBT, "edit": "+", "approve": "R", "deny": "R", "answer": "R"}
    | {"approve edited": "R"},
    swept: {**LIVE, **NO_DOUBT, "approve": "R", "deny": "R", "answer": "R", "approve edited": "R"},
    questioning: {**LIVE, **NO_DOUBT, "approve": "R", "deny": "R", "answer": "+"}
    | {"approve edited": "R"},
    in_doubt: {**LIVE, **NOTHING, "happened": "+", "not_happened": "R", "give up": "+"},
    paused: {**LIVE, **NO_DOUBT, "approve": "+", "deny": "+", "answer": "R"}
    | {"pause": ".", "resume": "+", "edit": "+", "approve edited": "+"},
    taken: {**LIVE, **NOTHING, **UNKNOWN_CALL, **TAKEN, "turn": "+", "final answer": "+"},
    taken_asking: {**LIVE, **NO_DOUBT, **TAKEN, "edit": "+", "approve": "+", "deny": "+"}
    | {"approve edited": "+", "answer": "R", "by hand": "+"},
    taken_paused: {**LIVE, **NO_DOUBT, **TAKEN, "edit": "+", "approve": "+", "deny": "+"}
    | {"approve edited": "+", "answer": "R", "by hand": "+", "pause": ".", "resume": "+"},
    cancelling: {**LIVE, **NOTHING, **UNKNOWN_CALL, "cancel": ".", "take over": "R"},
    given_up: {**LIVE, **NOTHING, "happened": "+", "not_happened": "R", "give up": "."}
    | {"take over": "R"},
    ended_in_doubt: {**ENDED, **NOTHING, "happened": "+", "not_happened": "+", "give up": "."},
    completed: {**ENDED, **NO_DOUBT, "approve": "R", "deny": ".", "answer": "I"}
    | {"approve edited": "R"},
}
STATES = list(EXPECTED)
LONG = "c" + "9" * 5_000  # more digits than Python reads into a number
CASES = [(state, name) for state in STATES for name in COMMANDS]


@pytest.mark.parametrize(("state", "name"), CASES, ids=[f"{n} {s.__name__}" for s, n in CASES])
def test_every_command_has_one_defined_outcome_in_every_state(state: Any, name: str) -> None:
    play = state()
    before = copy.deepcopy(play.state)
    refusals: dict[str, type[CairnError]] = {
        "R": Refused,
        "U": UnknownRun,
        "I": IllegalTransition,
    }
    expected = EXPECTED[state][name]
    if expected in refusals:
        with pytest.raises(refusals[expected]) as refused:
            cmd.accept(play.state, COMMANDS[name], play.now)
        assert type(refused.value) is refusals[expected]
    else:
        event = cmd.accept(play.state, COMMANDS[name], play.now)
        assert (event is not None) == (expected == "+")
        if event is not None:
            play.submit(COMMANDS[name])  # what is accepted can be appended
            return
    assert play.state == before


# ---------------------------------------------------------------- approvals


def test_a_granted_call_runs_once_and_the_grant_is_named_as_its_rule() -> None:
    play = granted()
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).rule == "approval 1"
    play.returns("c1")
    assert play.started("c1") == ["c1"]


def test_the_same_decision_twice_is_no_second_decision() -> None:
    for command in (cmd.Approve(n=1), cmd.Deny(n=1)):
        play = asking()
        assert play.submit(command) is not None
        assert play.submit(command) is None


def test_the_same_decision_may_come_again_when_the_run_is_long_past_it() -> None:
    for command in (cmd.Approve(n=1), cmd.Deny(n=1)):
        play = asking()
        play.submit(command)
        for call in play.start():
            play.returns(call)
        play.says("done")
        play.settle()
        assert play.state.status is Status.COMPLETED
        assert play.submit(command) is None


def test_the_other_decision_afterwards_is_refused_by_name() -> None:
    for first, second, how in (
        (cmd.Approve(n=1), cmd.Deny(n=1), "granted"),
        (cmd.Deny(n=1), cmd.Approve(n=1), "denied"),
    ):
        play = asking()
        play.submit(first)
        with pytest.raises(Refused, match=how):
            play.submit(second)


@pytest.mark.parametrize("first", [1, 2])
def test_parallel_requests_are_all_open_at_once(first: int) -> None:
    keyed = {"conflict_key": lambda values: values["table"]}
    play = Play(rules_of(tool("drop", "dangerous", **keyed)))
    play.calls(("drop", {"table": "a"}), ("drop", {"table": "b"}))
    assert [c.status for c in play.state.calls.values()] == [CallStatus.ASKING] * 2
    play.submit(cmd.Approve(n=first))
    assert play.start() == [f"c{first}"]
    assert play.call(f"c{3 - first}").status is CallStatus.ASKING
    play.returns(f"c{first}")
    play.submit(cmd.Deny(n=3 - first, message="not that one"))
    told = [p for p in play.state.messages[-1].parts if isinstance(p, ResultPart)]
    assert [p.ok for p in told] == [first == 1, first == 2]
    assert "not that one" in told[2 - first].result


@pytest.mark.parametrize(
    ("late_us", "outcome"), [(-1, "granted"), (0, "refused"), (1, "refused"), (5 * DAY, "refused")]
)
def test_expiry_is_checked_in_the_write_that_decides(late_us: int, outcome: str) -> None:
    play = asking()
    play.now = play.call("c1").expires_at + late_us
    if outcome == "granted":
        assert play.submit(cmd.Approve(n=1)) is not None
        return
    for command in (cmd.Approve(n=1), cmd.Deny(n=1)):
        with pytest.raises(Refused, match="expired"):
            play.submit(command)
    with pytest.raises(IllegalTransition, match="expired"):
        play.add(ev.ApprovalGranted(n=1))
    play.settle()
    assert play.count(ev.ApprovalExpired) == 1
    assert play.started() == []


def test_a_grant_that_is_not_used_in_time_expires_too() -> None:
    play = granted()
    play.submit(cmd.Pause())
    play.now = play.call("c1").expires_at
    play.submit(cmd.Resume())
    play.settle()
    assert play.started() == []
    assert isinstance(play.events[-1], ev.ApprovalExpired)
    with pytest.raises(Refused, match="expired"):
        play.submit(cmd.Approve(n=1))


def test_a_start_at_the_moment_of_expiry_is_refused_by_the_journal_itself() -> None:
    play = granted()
    action = play.settle()
    assert isinstance(action, StartCalls)
    late = ev.Entry(
        seq=play.state.seq + 1, at=play.call("c1").expires_at, event=action.starts[0][1], step=1
    )
    with pytest.raises(IllegalTransition, match="expired"):
        evolve(play.state, late)


def test_a_grant_for_a_fallback_expires_like_any_other() -> None:
    """The second tool's grant is the call's first start under it, whatever its attempt."""
    play = Play(
        rules_of(tool("mail", "write", fallback="post"), tool("post", "write"), policy=Policy())
    )
    play.calls("mail")
    play.submit(cmd.Approve(n=1))
    play.start()
    play.raises("c1", ErrorClass.TOOL_ERROR)
    play.settle()
    assert play.call("c1").tool == "post"
    assert play.call("c1").status is CallStatus.ASKING
    play.submit(cmd.Approve(n=2))
    play.now = play.call("c1").expires_at
    assert play.start() == []
    assert isinstance(play.last(ev.ApprovalExpired), ev.ApprovalExpired)
    assert play.started() == ["c1"]


def test_retries_of_a_granted_call_need_no_second_grant() -> None:
    play = granted()
    play.start()
    play.raises("c1", ErrorClass.TOOL_UNAVAILABLE, not_done=True)
    play.now += 8 * DAY  # an approval covers a call with all its attempts
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).rule == "approval 1"


def test_a_grant_for_other_arguments_than_shown_executes_nothing() -> None:
    play = asking()
    shown = play.call("c1").digest
    with pytest.raises(Refused, match="no longer asks for what was shown"):
        play.submit(cmd.Approve(n=1, digest="0" * 32))
    assert play.start() == []
    assert play.submit(cmd.Approve(n=1, digest=shown)) is not None


def test_a_decision_for_an_old_request_never_touches_the_present_one() -> None:
    play = swept()
    play.calls(("wipe", {}))
    assert play.call("c2").approval == 2
    with pytest.raises(Refused):
        play.submit(cmd.Approve(n=1))
    assert play.start() == []
    assert play.call("c2").status is CallStatus.ASKING


def test_the_refusal_is_told_with_the_reason_as_typed() -> None:
    for message, told in (("use the staging host", "use the staging host"), ("", "No reason")):
        play = asking()
        play.submit(cmd.Deny(n=1, message=message))
        (part,) = play.state.messages[-1].parts
        assert isinstance(part, ResultPart)
        assert "refused" in part.result
        assert "Not executed" in part.result
        assert told in part.result


def test_a_run_without_approvals_never_waits_for_one() -> None:
    play = Play(RULES, approvals="none")
    play.calls("drop")
    assert play.count(ev.ApprovalRequested) == 0
    assert play.last(ev.ToolRejected).kind == "denied"
    assert play.started() == []


def test_only_so_many_decisions_are_remembered() -> None:
    play = Play(RULES, limits=Limits(steps=100, no_progress=100))
    for n in range(1, 80):
        play.calls("drop" if n % 2 else "wipe")
        play.submit(cmd.Deny(n=n))
    assert len(play.state.decided) == 64
    assert play.submit(cmd.Deny(n=79)) is None
    with pytest.raises(Refused, match="settled"):
        play.submit(cmd.Deny(n=1))


# ---------------------------------------------------------------- the others


def test_a_question_is_answered_once_with_what_was_typed() -> None:
    play = questioning()
    play.submit(cmd.Answer(n=1, text="the second"))
    (part,) = play.state.messages[-1].parts
    assert isinstance(part, ResultPart)
    assert (part.result, part.ok) == ("the second", True)
    with pytest.raises(Refused, match="already answered"):
        play.submit(cmd.Answer(n=1, text="the third"))


def test_that_it_did_not_happen_may_be_said_once_it_can_be_known() -> None:
    play = in_doubt()
    opens = play.call("c1").not_before
    assert opens == play.call("c1").started_at + (60 + 30 + 5) * SECOND
    play.now = opens - 1
    with pytest.raises(Refused, match="in 1 s"):
        play.submit(cmd.Resolve(call="c1", verdict="not_happened"))
    with pytest.raises(IllegalTransition, match="may still be at work"):
        play.add(ev.ToolResolved(call="c1", verdict="not_happened"))
    play.now = opens
    play.submit(cmd.Resolve(call="c1", verdict="not_happened"))
    assert play.start() == ["c1"]


def test_a_dead_process_opens_that_verdict_at_once() -> None:
    play = Play(RULES)
    play.calls("mail")
    play.crash(gone=True)
    assert play.call("c1").not_before == play.now + 5 * SECOND  # the tool's own settling time


def test_a_call_at_work_is_not_resolved_but_the_refusal_says_what_to_do() -> None:
    play = granted()
    play.start()
    with pytest.raises(Refused, match="at work"):
        play.submit(cmd.Resolve(call="c1", verdict="happened"))


def test_a_verdict_with_a_result_is_what_the_model_reads() -> None:
    play = in_doubt()
    play.submit(cmd.Resolve(call="c1", verdict="happened", result=raw("mail 17 is out")))
    (part,) = play.state.messages[-1].parts
    assert isinstance(part, ResultPart)
    assert part.result == "mail 17 is out"


def test_giving_up_ends_the_run_and_leaves_the_effect_listed_and_open_to_a_verdict() -> None:
    play = ended_in_doubt()
    assert play.state.end is not None
    assert play.state.end.error_class is ErrorClass.IN_DOUBT
    assert play.call("c1").status is CallStatus.TAKEOVER
    play.submit(cmd.Resolve(call="c1", verdict="happened"))
    assert play.call("c1").status is CallStatus.COMPLETED
    with pytest.raises(Refused):
        play.submit(cmd.Resolve(call="c1", verdict="not_happened"))


@pytest.mark.parametrize("ok", [True, False])
def test_a_late_outcome_settles_an_effect_in_doubt_and_nothing_else(ok: bool) -> None:
    for state in (in_doubt, ended_in_doubt):
        play = state()
        play.submit(cmd.Late(call="c1", ok=ok, result=raw("sent"), message="bounced"))
        assert not {c.status for c in play.state.calls.values()} - {
            CallStatus.COMPLETED if ok else CallStatus.FAILED
        }
    play = asking()
    before = play.state.calls
    play.submit(cmd.Late(call="c1", ok=ok))
    assert play.state.calls == before


def test_a_pause_starts_nothing_new_and_a_resumption_goes_on_where_it_was() -> None:
    play = granted()
    play.submit(cmd.Pause())
    assert play.decide() == Wait(reasons=frozenset({"paused"}))
    assert play.state.status is Status.PAUSED
    play.submit(cmd.Resume())
    assert play.start() == ["c1"]


def test_a_pause_waits_for_what_is_at_work() -> None:
    play = granted()
    play.start()
    play.submit(cmd.Pause())
    play.returns("c1")
    assert play.state.status is Status.PAUSED
    assert play.decide() == Wait(reasons=frozenset({"paused"}))
    play.submit(cmd.Resume())
    play.says("done")
    play.settle()
    assert play.state.status is Status.COMPLETED


@pytest.mark.parametrize("state", STATES[:-3], ids=lambda s: s.__name__)
def test_cancel_ends_a_run_from_every_state(state: Any) -> None:
    play = state()
    play.submit(cmd.Cancel(reason="enough"))
    play.crash()
    play.settle()
    assert play.state.status is Status.CANCELLED
    assert play.state.end is not None
    assert play.state.end.message == ("cancelled on request" if state is cancelling else "enough")
    assert play.submit(cmd.Cancel()) is None


def test_a_message_is_queued_in_every_living_state_and_given_once() -> None:
    play = asking()
    play.submit(cmd.Queue(parts=(Text("also the second table"),)))
    play.submit(cmd.Queue(parts=(Text("and hurry"),)))
    play.submit(cmd.Deny(n=1))
    play.ask()
    assert play.names.count("input.given") == 1
    assert [m.role for m in play.state.messages[-3:]] == ["tool", "user", "user"]
    assert play.state.queued == {}


def test_a_message_that_comes_with_the_answer_is_read_before_the_run_can_complete() -> None:
    play = Play(RULES)
    play.says("done")
    play.submit(cmd.Queue(parts=(Text("one more thing"),)))
    play.says("done, and the other thing too")
    play.settle()
    assert play.state.status is Status.COMPLETED
    assert play.state.answer_text == "done, and the other thing too"


@pytest.mark.parametrize(
    "call", ["", "c", "c0", "c2", "x1", "c1 ", "c-1", "c01", "c١", "c" + 5000 * "9"]
)
def test_a_call_that_was_never_requested_is_unknown(call: str) -> None:
    play = asking()
    for command in (cmd.Resolve(call=call, verdict="happened"), cmd.Late(call=call, ok=True)):
        with pytest.raises(UnknownRun):
            play.submit(command)
