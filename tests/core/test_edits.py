"""Edits: a person changes a call that has not started, or the plan; history stays as it was."""

from typing import Any

import pytest
from tests.core.play import Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import Append, StartCalls
from cairn.core.evolve import evolve
from cairn.core.forks import around, effects_after, obstacle
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import CallPart, PlanItem, ResultPart, text_of
from cairn.core.policy import Policy
from cairn.core.state import RunState
from cairn.core.views import timeline
from cairn.errors import IllegalTransition, Refused, UnknownRun

BY_FILE: dict[str, Any] = {"conflict_key": lambda values: str(values["file"])}
RULES = rules_of(
    tool("find"),
    tool("note", "write", check=need("file"), **BY_FILE),
    tool("drop", "dangerous", check=need("table")),
    tool("ask_user", kind="question", check=need("question")),
)
NEW = '{"table": "b"}'


def asking() -> Play:
    play = Play(RULES)
    play.calls(("drop", {"table": "a"}))
    return play


def granted() -> Play:
    play = asking()
    play.submit(cmd.Approve(n=1))
    return play


def edit(call: str = "c1", arguments: str = NEW) -> cmd.EditCall:
    return cmd.EditCall(call=call, arguments=arguments)


def told(play: Play) -> list[str]:
    return [p.result for p in play.state.messages[-1].parts if isinstance(p, ResultPart)]


# ---------------------------------------------------------------- the gate


@pytest.mark.parametrize("begin", [asking, granted])
def test_an_edited_call_is_asked_for_anew_and_the_old_request_is_void(begin: Any) -> None:
    play = begin()
    old = play.call("c1").digest
    play.submit(edit())
    assert play.call("c1").status is CallStatus.REQUESTED
    assert play.start() == []
    assert play.call("c1").status is CallStatus.ASKING
    assert (play.call("c1").approval, play.call("c1").digest != old) == (2, True)
    for command in (cmd.Approve(n=1), cmd.Deny(n=1)):
        with pytest.raises(Refused, match="changed since"):
            play.submit(command)
    play.submit(cmd.Approve(n=2))
    assert play.start() == ["c1"]
    assert play.last(ev.ToolStarted).rule == "approval 2"


def test_the_tool_stays_the_one_that_was_asked_for() -> None:
    play = asking()
    play.submit(edit())
    assert (play.call("c1").name, play.call("c1").tool) == ("drop", "drop")


def test_the_policy_judges_the_new_arguments() -> None:
    class ByTable:
        def judge(self, tool: str, effect: str, arguments: dict[str, Any]) -> Any:
            decision = "deny" if arguments.get("table") == "b" else "allow"
            return Policy(tools={tool: decision}).judge(tool, effect, arguments)

    tools = RULES.tools.values()
    play = Play(rules_of(*tools, policy=ByTable()), lawful=False)
    play.calls(("drop", {"table": "a"}))
    play.submit(cmd.Approve(n=1))
    play.submit(edit())
    assert play.start() == []
    assert play.last(ev.ToolRejected).kind == "denied"


def test_arguments_that_do_not_fit_are_never_run_and_are_not_the_models_mistake() -> None:
    play = granted()
    play.submit(edit(arguments='{"tables": 1}'))
    assert play.start() == []
    assert play.last(ev.ToolRejected).kind == "invalid"
    assert play.last(ev.ToolRejected).disposition == "repair"
    assert play.state.repairs == {}
    assert "missing: table" in told(play)[0]


# ---------------------------------------------------------------- what the model reads


def test_the_model_reads_that_a_person_changed_the_call_and_what_ran() -> None:
    play = asking()
    play.submit(edit())
    play.settle()
    play.submit(cmd.Approve(n=2))
    for call in play.start():
        play.returns(call, "dropped b")
    (result,) = told(play)
    assert "A person changed the arguments" in result
    assert NEW in result
    assert result.endswith("dropped b")
    written = [p for p in play.state.messages[1].parts if isinstance(p, CallPart)]
    assert [p.arguments for p in written] == ['{"table":"a"}'], "history was rewritten"


def test_the_model_reads_of_the_change_when_the_changed_call_is_refused() -> None:
    play = asking()
    play.submit(edit())
    play.settle()
    play.submit(cmd.Deny(n=2, message="nor that one"))
    (result,) = told(play)
    assert NEW in result
    assert "nor that one" in result


def test_a_plan_of_a_person_replaces_the_agents_and_the_model_is_told_once() -> None:
    play = Play(RULES)
    play.one_turn("find", {})
    items = (PlanItem(text="look", status="done"), PlanItem(text="write", status="doing"))
    assert play.submit(cmd.SetPlan(items=items)) is not None
    assert play.submit(cmd.SetPlan(items=items)) is None
    assert play.state.plan == items
    play.says("done")
    given = [m for m in play.state.messages if m.role == "user" and "plan" in text_of(m.parts)]
    assert [text_of(m.parts) for m in given] == [
        "[runtime] A person has replaced your plan. It is now:\n[x] look\n[>] write"
    ]


def test_a_plan_of_the_agent_itself_is_not_told_back_to_it() -> None:
    play = Play(RULES)
    play.add(ev.PlanUpdated(items=(PlanItem(text="look"),)))
    assert play.state.queued == {}


# ---------------------------------------------------------------- too late, too early, twice


def test_the_same_edit_twice_is_one_edit_whatever_its_spelling() -> None:
    play = asking()
    assert play.submit(edit(arguments='{ "table" : "a" }')) is None
    assert play.call("c1").status is CallStatus.ASKING, "the request was given up for nothing"
    assert play.submit(edit()) is not None
    assert play.submit(edit(arguments='{"table":"b"}')) is None


def test_a_call_that_was_started_can_no_longer_be_changed() -> None:
    play = granted()
    play.start()
    for _ in range(2):
        with pytest.raises(Refused, match="has been started"):
            play.submit(edit())
        with pytest.raises(IllegalTransition):
            play.add(ev.ToolEdited(call="c1", arguments=NEW))
        if play.state.in_flight:
            play.vanishes("c1")
    play.submit(cmd.Resolve(call="c1", verdict="happened"))
    with pytest.raises(Refused, match="has ended"):
        play.submit(edit())


def test_a_failed_call_that_is_tried_again_keeps_its_arguments() -> None:
    """Its key stands for these arguments, and a first attempt was made with them."""
    play = Play(rules_of(tool("note", "write", recovery="keyed", retries=2)))
    (call,) = play.calls("note")
    play.raises(call)
    assert play.call(call).status is CallStatus.RETRYING
    with pytest.raises(Refused, match="has been started"):
        play.submit(edit())


def test_what_there_is_nothing_to_change_of_is_refused_by_name() -> None:
    play = Play(RULES)
    with pytest.raises(UnknownRun, match="no call r1/c1"):
        play.submit(edit())
    play.calls(("ask_user", {"question": "which?"}))
    with pytest.raises(Refused, match="is a question"):
        play.submit(edit(arguments='{"question": "what?"}'))
    play.submit(cmd.Answer(n=1, text="x"))
    with pytest.raises(Refused, match="has ended"):
        play.submit(edit())
    with pytest.raises(UnknownRun):
        play.submit(edit("c2"))
    for text in ("[1]", '{"a', "7"):
        play = asking()
        with pytest.raises(Refused, match="no JSON object"):
            play.submit(edit(arguments=text))


def test_a_run_that_ends_or_has_ended_takes_no_edit() -> None:
    play = asking()
    play.submit(cmd.Cancel())
    with pytest.raises(Refused, match="is ending"):
        play.submit(edit())
    play.settle()
    for command in (edit(), cmd.SetPlan(items=(PlanItem(text="x"),))):
        with pytest.raises(IllegalTransition, match="cancelled"):
            play.submit(command)
    assert play.state.status is Status.CANCELLED


def test_a_paused_run_is_edited_and_goes_on_with_what_was_changed() -> None:
    play = Play(RULES)
    play.says("", ("note", {"file": "a"}))
    play.submit(cmd.Pause())
    play.submit(edit(arguments='{"file": "z"}'))
    assert play.state.status is Status.PAUSED
    play.submit(cmd.Resume())
    assert play.start() == ["c1"]
    assert play.call("c1").arguments == '{"file": "z"}'


@pytest.mark.parametrize("first", ["approve", "edit"])
def test_an_edit_and_an_approval_in_either_order_run_only_what_was_approved(first: str) -> None:
    play = asking()
    shown = play.call("c1").digest
    approve = cmd.Approve(n=1, digest=shown)
    if first == "approve":
        play.submit(approve)
        play.submit(edit())
    else:
        play.submit(edit())
        with pytest.raises(Refused):
            play.submit(approve)
    assert play.start() == []
    assert play.call("c1").status is CallStatus.ASKING


# ---------------------------------------------------------------- order


def notes(*files: str) -> Play:
    """A reply of notes, one for each file, not started yet."""
    play = Play(RULES)
    play.says("", *[("note", {"file": file}) for file in files])
    return play


def test_a_changed_call_waits_for_the_calls_before_it_and_those_after_it_wait() -> None:
    play = notes("a", "b", "c")
    play.submit(edit("c2", '{"file": "a"}'))
    for n in (1, 2, 3):
        assert play.start() == [f"c{n}"]
        play.returns(f"c{n}")


def test_a_changed_call_never_overlaps_a_later_one_that_is_at_work() -> None:
    tools = (tool("drop", "dangerous"), RULES.tools["note"])
    play = Play(rules_of(*tools, policy=Policy(tools={"note": "ask"})))
    play.calls(("note", {"file": "a"}), ("note", {"file": "b"}))
    play.submit(cmd.Approve(n=2))
    assert play.start() == ["c2"]
    play.submit(edit("c1", '{"file": "b"}'))
    play.settle()
    assert play.call("c1").status is CallStatus.REQUESTED, "it waits before it asks"
    play.returns("c2")
    play.settle()
    play.submit(cmd.Approve(n=3))
    assert play.start() == ["c1"]


def test_two_changed_calls_never_wait_for_each_other() -> None:
    for order in (("c1", "c3", "c1"), ("c3", "c1", "c2"), ("c2", "c2", "c1")):
        play = notes("a", "b", "c")
        for n, call in enumerate(order):
            play.submit(edit(call, f'{{"file": "{n}"}}'))
        for n in (1, 2, 3):
            assert play.start() == [f"c{n}"]
            play.returns(f"c{n}")
        assert play.state.calls == {}


def test_a_decision_that_was_taken_before_an_edit_does_not_fit_behind_it() -> None:
    """The owner decided to start the call; the edit came into the journal first."""
    play = granted()
    action = play.decide()
    assert isinstance(action, StartCalls)
    play.submit(edit())
    again = play.decide()
    assert isinstance(again, Append)
    assert isinstance(again.events[0][1], ev.ApprovalRequested)


# ---------------------------------------------------------------- looking


def test_a_timeline_tells_who_changed_what_and_that_the_approval_is_void() -> None:
    play = granted()
    play.submit(edit())
    play.settle()
    (call,) = timeline(play.journal, "r1").steps[0].calls
    assert call.arguments == NEW
    assert [(e.before, e.arguments, e.actor) for e in call.edits] == [('{"table":"a"}', NEW, "p1")]
    assert [a.decision for a in call.approvals] == ["void", "open"]


# ---------------------------------------------------------------- where to fork


def points(play: Play) -> list[int]:
    state, found = RunState(run="r1"), []
    for entry in play.journal:
        state = evolve(state, entry)
        if not obstacle(state):
            found.append(entry.seq)
    return found


def test_a_fork_point_has_nothing_in_flight_or_unknown() -> None:
    play = Play(RULES)
    play.one_turn("find", {})  # 2 requested, 3 completed, 4 started, 5 completed
    play.calls(("drop", {"table": "a"}))  # 6, 7; 8 asked
    play.submit(cmd.Approve(n=1))  # 9
    play.start()  # 10
    play.vanishes("c2")  # 11
    play.submit(cmd.Resolve(call="c2", verdict="happened"))  # 12
    play.says("done")  # 13, 14
    play.settle()  # 15 is the end
    assert play.state.status is Status.COMPLETED
    assert points(play) == [1, 3, 5, 7, 8, 9, 12, 14]
    for at, near in ((2, (1, 3)), (10, (9, 12)), (11, (9, 12)), (15, (14, 0))):
        assert around(RunState(run="r1"), play.journal, at) == near


def test_what_a_run_did_to_the_world_after_a_point_is_told_with_its_fate() -> None:
    play = Play(rules_of(tool("find"), tool("note", "write"), tool("mail", "write")))
    play.one_turn("note", {"file": "a"})
    at = play.state.seq
    play.one_turn("find", {})
    for name in ("note", "mail", "note"):
        (call,) = play.calls((name, {"file": name}))
        if name == "mail":
            play.vanishes(call)
            play.submit(cmd.Resolve(call=call, verdict="happened"))
        else:
            end = play.raises if call == "c5" else play.returns
            end(call)
    (last,) = play.calls(("note", {}))
    found = effects_after(play.journal, at)
    assert [(e.call, e.tool, e.fate) for e in found] == [
        ("c3", "note", "done"),
        ("c4", "mail", "done"),
        ("c5", "note", "failed"),
        (last, "note", "at work"),
    ]
    assert effects_after(play.journal, play.state.seq) == []
