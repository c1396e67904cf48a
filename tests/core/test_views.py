"""Views for people: a timeline loses nothing and agrees with the state; changes are the moves."""

import itertools
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import Phase, settings
from tests.core.play import DAY, SECOND, Play, rules_of, tool
from tests.core.test_core_machine import CoreMachine

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.lifecycle import CLOSED, MOVES, CallStatus, Status
from cairn.core.limits import Limits, Reservation, Usage
from cairn.core.messages import PlanItem, Source, Text
from cairn.core.outcomes import Called, Reply
from cairn.core.state import RunState
from cairn.core.views import CallView, RunView, changes, timeline
from cairn.core.views.words import money, short, span, words
from cairn.errors import CorruptJournal, ErrorClass

NOT_NOTED = (
    ev.RunCreated,
    *ev.TERMINAL,
    *(ev.StepStarted, ev.StepCompleted, ev.StepFailed, ev.StepLost),
    *(ev.ModelRequested, ev.ModelCompleted, ev.ModelFailed, ev.ModelRejected),
    *(ev.ToolStarted, ev.ToolCompleted, ev.ToolFailed, ev.ToolRejected, ev.ToolUnknown),
    *(ev.ToolResolved, ev.ToolLate),
    *(ev.ApprovalRequested, ev.ApprovalGranted, ev.ApprovalDenied, ev.ApprovalExpired),
)
PAY = rules_of(
    tool("find", retries=1),
    tool("pay", "write"),
    tool("drop", "dangerous"),
    tool("ask_user", kind="question"),
)


def told(play: Play) -> RunView:
    """The play's timeline, checked against its journal and its state."""
    view = timeline(play.journal, "r1")
    check(view, play.journal)
    return view


def calls_of(view: RunView) -> dict[str, CallView]:
    return {call.id: call for step in view.steps for call in step.calls}


def check(view: RunView, journal: list[ev.Entry]) -> None:
    """Nothing is lost, and nothing is told that the state does not know."""
    state = fold(RunState(run="r1"), journal)
    calls = calls_of(view)
    events = [entry.event for entry in journal]

    def count(*kinds: type[Any]) -> int:
        return sum(isinstance(e, kinds) for e in events)

    assert (view.status, view.head, view.totals.usage) == (state.status, state.seq, state.usage)
    assert sum(len(s.attempts) for s in view.steps) == count(ev.ModelRequested)
    assert sum(len(s.tasks) for s in view.steps) == count(ev.StepStarted)
    assert sum(len(c.attempts) for c in calls.values()) == count(ev.ToolStarted)
    assert sum(len(c.approvals) for c in calls.values()) == count(ev.ApprovalRequested)
    assert sum(bool(c.question) for c in calls.values()) == sum(
        isinstance(e, ev.InputRequested) and bool(e.call) for e in events
    )
    settled = sum(len(c.settlements) for c in calls.values())
    strays = sum(isinstance(e, ev.ToolLate) and e.call not in calls for e in events)
    assert settled == count(ev.ToolResolved, ev.ToolLate) - strays
    notes = [note for step in view.steps for note in step.notes] + list(view.notes)
    asked = {c.question.n for c in calls.values() if c.question}
    noted = [e for e in events if not isinstance(e, NOT_NOTED)]
    noted += [e for e in events if isinstance(e, ev.ToolLate) and e.call not in calls]
    noted = [e for e in noted if getattr(e, "n", 0) not in asked]
    assert sorted(n.name for n in notes) == sorted(e.NAME for e in noted)
    for call in state.calls.values():
        assert calls[call.id].status is call.status
    for call in calls.values():
        if call.id not in state.calls:
            assert call.status in CLOSED
        assert bool(call.ended_at) is (call.status in CLOSED)


# ---------------------------------------------------------------- the timeline


def test_a_call_shows_its_verdict_its_approval_its_attempt_and_its_result() -> None:
    play = Play(PAY, lawful=False)
    play.says("", ("drop", {"a": 1}))
    play.settle()
    play.now += 5 * SECOND
    play.submit(cmd.Approve(n=1, message="fine"))
    play.start()
    play.returns("c1", "dropped", duration_us=7_000)
    call = calls_of(told(play))["c1"]
    (approval,) = call.approvals
    assert (call.verdict, call.rule) == ("ask", "default: dangerous") or call.verdict == "ask"
    assert (approval.decision, approval.actor, approval.message) == ("granted", "p1", "fine")
    assert approval.decided_at - approval.at == 5 * SECOND
    assert [a.fate for a in call.attempts] == ["completed"]
    assert (call.status, call.result, call.duration_us) == (
        CallStatus.COMPLETED,
        "dropped",
        7_000,
    )


def test_every_attempt_of_a_call_stays_with_its_fault_and_what_was_done_about_it() -> None:
    play = Play(PAY)
    play.calls(("find", {}))
    play.raises("c1", ErrorClass.TOOL_UNAVAILABLE, "busy")
    play.now = play.state.calls["c1"].retry_at
    play.start()
    play.returns("c1", "found")
    call = calls_of(told(play))["c1"]
    first, second = call.attempts
    assert first.fault is not None
    assert (first.fault.error_class, first.fault.disposition) == (
        ErrorClass.TOOL_UNAVAILABLE,
        "retry",
    )
    assert (second.n, second.fate) == (2, "completed")


def test_model_attempts_show_faults_usage_and_a_refused_answer() -> None:
    play = Play(rules_of(check_answer=lambda text: "" if text == "good" else "it is bad"))
    play.fails(ErrorClass.NETWORK, "gone")
    play.now = play.state.retry_at
    play.says("bad", usage=Usage(input_tokens=9, output_tokens=2))
    play.settle()
    play.says("good")
    play.settle()
    view = told(play)
    first, second = view.steps
    assert [a.fate for a in first.attempts] == ["failed", "completed"]
    assert first.attempts[0].fault is not None
    assert first.attempts[1].usage.tokens == 11
    assert first.attempts[1].rejection is not None
    assert "it is bad" in first.attempts[1].rejection.message
    assert (first.status, second.status) == ("failed", "completed")
    assert (view.answer, view.totals.requests) == ("good", 3)


def test_an_unknown_effect_shows_the_doubt_and_who_settled_it() -> None:
    play = Play(PAY)
    play.calls(("pay", {}))
    play.vanishes("c1", "lost", gone=True)
    assert calls_of(told(play))["c1"].status is CallStatus.TAKEOVER
    assert told(play).steps[-1].status == "waiting"
    play.submit(cmd.Resolve(call="c1", verdict="happened", evidence="the bank says so"))
    call = calls_of(told(play))["c1"]
    (settlement,) = call.settlements
    assert (settlement.by, settlement.actor, settlement.verdict) == ("person", "p1", "happened")
    assert call.attempts[0].fate == "unknown"
    assert call.attempts[0].doubt.startswith("lost")
    assert call.status is CallStatus.COMPLETED


def test_a_late_outcome_settles_a_doubt_and_is_told_as_late() -> None:
    play = Play(PAY)
    play.calls(("pay", {}))
    play.vanishes("c1")
    play.submit(cmd.Late(call="c1", ok=True, result=msgspec.Raw(b'"paid"')))
    call = calls_of(told(play))["c1"]
    assert (call.status, call.result) == (CallStatus.COMPLETED, "paid")
    assert call.settlements[0].verdict == "late"


def test_a_question_shows_its_text_its_answer_and_who_gave_it() -> None:
    play = Play(PAY)
    play.calls(("ask_user", {"question": "Which?"}))
    play.submit(cmd.Answer(n=1, text="seven"))
    question = calls_of(told(play))["c1"].question
    assert question is not None
    assert (question.text, question.answer, question.actor) == ("Which?", "seven", "p1")


def test_calls_that_never_started_are_cancelled_with_the_run_and_an_open_step_has_failed() -> None:
    play = Play(PAY)
    play.calls(("drop", {}), ("drop", {"b": 2}))
    play.submit(cmd.Cancel())
    play.settle()
    view = told(play)
    assert {c.status for c in calls_of(view).values()} == {CallStatus.CANCELLED}
    assert [s.status for s in view.steps] == ["failed"]
    assert view.ended_at == play.state.at


def test_a_step_that_leaves_an_unknown_effect_behind_has_failed() -> None:
    play = Play(PAY)
    play.calls(("pay", {}))
    play.vanishes("c1", "lost")
    play.submit(cmd.Cancel())
    play.settle()
    view = told(play)
    assert [s.status for s in view.steps] == ["failed"]
    assert [p.id for p in view.pending] == ["r1/c1"]


def test_other_events_are_notes_of_the_step_they_fell_into() -> None:
    play = Play(PAY)
    play.submit(cmd.Queue(parts=(Text("before the first step"),)))
    play.settle()
    play.calls(("find", {}))
    play.submit(cmd.Pause(reason="lunch"))
    play.add(ev.PlanUpdated(items=(PlanItem(text="look"),)), step=1)
    play.returns("c1")
    view = told(play)
    assert [n.name for n in view.notes] == ["input.queued", "input.given"]
    assert [(n.name, n.text) for n in view.steps[0].notes] == [
        ("run.pause_requested", "lunch"),
        ("plan.updated", "[ ] look"),
    ]


def test_tasks_are_steps_with_their_attempts() -> None:
    play = Play(rules_of(checks=("complete",)))
    play.says("done")
    play.step()
    play.crash()
    play.step()
    play.add(ev.StepCompleted(duration_us=4_000), step=2)
    play.settle()
    task = told(play).steps[-1]
    assert (task.kind, task.name, task.status) == ("task", "complete", "completed")
    assert [a.fate for a in task.tasks] == ["lost", "completed"]


def test_a_fork_tells_the_shared_past_and_counts_anew() -> None:
    play = Play(PAY, limits=Limits(steps=1))
    play.one_turn("find", {})
    play.settle()
    assert play.state.status is Status.STOPPED
    at = play.state.seq - 1
    fork = ev.Entry(
        seq=at + 1,
        at=play.now,
        event=ev.RunForked(run="r2", parent="r1", at=at, limits=Limits(steps=9), reason="retry"),
    )
    view = timeline([*play.journal[:at], fork], "r1")
    assert (view.run, view.status) == ("r2", Status.RUNNING)
    assert view.totals.steps == 0
    assert view.limits.steps == 9
    assert [n.name for n in view.steps[-1].notes] == ["limit.reached", "run.forked"]


def test_time_spent_standing_still_is_told_apart() -> None:
    play = Play(PAY)
    play.calls(("drop", {}))
    play.now += DAY
    play.submit(cmd.Deny(n=1, message="no"))
    totals = told(play).totals
    assert totals.waited_us == DAY
    assert totals.elapsed_us == DAY


def test_a_journal_without_its_beginning_is_refused() -> None:
    play = Play(PAY)
    play.says("done")
    with pytest.raises(CorruptJournal, match=r"run\.created"):
        timeline(play.journal[1:])
    with pytest.raises(CorruptJournal, match="empty"):
        timeline([])


def test_a_failed_task_and_a_failed_turn_show_their_faults() -> None:
    play = Play(rules_of(checks=("complete",)))
    play.says("half done")
    play.step()
    play.add(
        ev.StepFailed(error_class=ErrorClass.MALFORMED_OUTPUT, message="not whole", duration_us=9),
        step=2,
    )
    play.fails(ErrorClass.AUTH, "no key")
    play.settle()
    first, task, last = told(play).steps
    assert (first.status, task.status, last.status) == ("completed", "failed", "failed")
    assert task.tasks[0].fault is not None
    assert task.tasks[0].fault.message == "not whole"
    assert task.duration_us == 0


def test_a_turn_that_will_be_tried_again_waits() -> None:
    play = Play(PAY)
    play.fails(ErrorClass.RATE_LIMITED, "slow down")
    (step,) = told(play).steps
    assert step.status == "waiting"
    assert step.attempts[0].fault is not None
    assert step.attempts[0].fault.retry_at > play.now


def test_a_question_of_the_runtime_itself_and_its_answer_are_notes() -> None:
    play = Play(PAY)
    play.says("", ("find", {}))
    play.start()
    play.returns("c1")
    play.add(ev.InputRequested(n=1, question="What now?"))
    play.submit(cmd.Answer(n=1, text="stop"))
    assert [n.text for n in told(play).steps[0].notes] == [
        "question 1 · What now?",
        "question 1 · stop",
    ]


def test_late_outcomes_settle_only_what_is_in_doubt() -> None:
    play = Play(PAY)
    play.calls(("pay", {}))
    play.vanishes("c1")
    play.add(ev.ToolLate(call="c9", ok=True))
    play.submit(cmd.Late(call="c1", ok=False, message="refused"))
    play.submit(cmd.Late(call="c1", ok=True))
    view = told(play)
    call = calls_of(view)["c1"]
    assert (call.status, call.result) == (CallStatus.FAILED, "refused")
    assert [s.verdict for s in call.settlements] == ["late", "late"]
    assert [n.name for n in view.steps[0].notes] == ["tool.late"]


# ---------------------------------------------------------------- changes


def test_changes_are_the_moves_of_the_status_with_their_cause() -> None:
    play = Play(PAY)
    play.calls(("drop", {}))
    play.submit(cmd.Approve(n=1))
    play.start()
    play.returns("c1")
    play.says("done")
    play.settle()
    moves = changes(play.journal, "r1")
    assert [(m.after.value, m.event, m.actor) for m in moves] == [
        ("queued", "run.created", ""),
        ("running", "model.requested", ""),
        ("waiting", "approval.requested", ""),
        ("running", "approval.granted", "p1"),
        ("completed", "run.completed", ""),
    ]
    assert moves[2].waits == ("approval",)
    assert all((a.after, b.after) in MOVES for a, b in itertools.pairwise(moves))
    assert told(play).changes == moves


# ---------------------------------------------------------------- any history


class ViewMachine(CoreMachine):
    """Any history the core allows is told whole."""

    def teardown(self) -> None:
        if hasattr(self, "play"):
            told(self.play)
            assert changes(self.play.journal, "r1") == timeline(self.play.journal, "r1").changes


TestAnyHistory = ViewMachine.TestCase
TestAnyHistory.settings = settings(
    max_examples=30, deadline=None, phases=(Phase.generate,), report_multiple_bugs=False
)


# ---------------------------------------------------------------- words


def test_every_event_has_words_on_one_line() -> None:
    play = Play(PAY)
    play.says("a\nb", ("find", {"q": "x\ny"}))
    filled: dict[str, Any] = {
        "message": "one\ntwo",
        "question": "one\ntwo",
        "sources": (Source(uri="u"),),
        "parts": (Text("one\ntwo"),),
        "input": (Text("one\ntwo"),),
        "seqs": (1, 2),
        "items": (PlanItem(text="one\ntwo"),),
        "error_class": ErrorClass.INTERNAL,
        "disposition": "end",
        "result": msgspec.Raw(b'"one\\ntwo"'),
    }
    for kind in ev.EVENTS.values():
        hints = get_type_hints(kind)
        fields = msgspec.structs.fields(kind)
        event = kind(**{f.name: _any(f, hints[f.name], filled) for f in fields})
        told_in_words = words(event)
        assert "\n" not in told_in_words, kind.NAME
        assert len(told_in_words) < 400, kind.NAME


def _any(field: msgspec.structs.FieldInfo, hint: Any, filled: dict[str, Any]) -> Any:
    """A value that fits a field: one that says much where there is one, else its default."""
    if field.name in filled and field.name in {"message", "question", "sources", "input", "seqs"}:
        return filled[field.name]
    if not field.required:
        return field.default
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    plain = {str: "text", int: 7, bool: True, Usage: Usage()}
    records = {
        Reservation: Reservation(input_tokens=1, output_tokens=1),
        ev.RunRef: ev.RunRef(run="r", seq=1),
        ErrorClass: ErrorClass.INTERNAL,
    }
    known = {**plain, **records}
    return known.get(hint, filled.get(field.name, ()))


def test_a_kind_of_event_without_words_of_its_own_shows_its_fields() -> None:
    class Odd(ev.Event):
        TYPE = 0
        NAME = "odd.one"
        colour: str = "blue"

    assert words(Odd()) == "colour blue"


@pytest.mark.parametrize(
    ("us", "expected"),
    [
        (0, "0 ms"),
        (900, "under 1 ms"),
        (7_000, "7 ms"),
        (1_200_000, "1.2 s"),
        (200 * SECOND, "3 min 20 s"),
        (7_500 * SECOND, "2 h 5 min"),
        (6 * DAY + 4 * 3600 * SECOND, "6 d 4 h"),
    ],
)
def test_lengths_of_time_are_told_in_fitting_units(us: int, expected: str) -> None:
    assert span(us) == expected


@pytest.mark.parametrize(
    ("micro", "expected"),
    [(0, "$0"), (1, "$0.000001"), (4_200, "$0.0042"), (1_250_000, "$1.25")],
)
def test_small_amounts_are_not_rounded_away(micro: int, expected: str) -> None:
    assert money(micro) == expected


def test_long_texts_are_cut_with_a_sign() -> None:
    assert short("a " * 1000, 9) == "a a a a a"[:8] + "…"
    assert short("a\n b", 9) == "a b"


def test_a_whole_reply_in_words_names_text_and_calls() -> None:
    play = Play(PAY)
    play.ask()
    play.outcome(
        Reply(parts=(Text("let me look"),), calls=(Called(name="find", arguments='{"q": 1}'),))
    )
    line = words(play.journal[-1].event)
    assert line.startswith('"let me look" · c1 find({"q": 1}) · 0 in, 0 out')
