"""What is seen of a run without folding it: its index row, what waits, and its last words."""

from typing import Any

import pytest
from tests.core.play import DAY, SECOND, Play, need, rules_of, tool, used

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.index import Pending, index_of, pending_of
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits
from cairn.core.messages import Principal, Source
from cairn.core.policy import Policy, Redirect, Rule
from cairn.core.report import SHOWN, cited, summary
from cairn.core.state import RunState, waits, wake_at
from cairn.errors import ErrorClass

E = ErrorClass
RULES = rules_of(
    tool("find"),
    tool("mail", "write"),
    tool("book", "write", recovery="probe"),
    tool("drop", "dangerous", conflict_key=str),
    tool("ask_user", kind="question", check=need("question")),
)


def test_the_index_says_status_steps_and_what_was_used() -> None:
    play = Play(RULES)
    play.calls("find", usage=used(7))
    play.returns("c1", micro_usd=3)
    row = index_of(play.state)
    assert (row.status, row.steps, row.tokens, row.micro_usd) == ("running", 1, 7, 3)
    assert (row.waits, row.pending, row.wake_at) == ((), (), 0)


def test_everything_that_waits_for_people_is_listed_with_what_to_name_it_by() -> None:
    play = Play(RULES)
    play.calls(("drop", {"a": 1}), ("drop", {"a": 2}), ("ask_user", {"question": "which?"}))
    assert index_of(play.state).waits == ("approval",)
    first, second = pending_of(play.state)
    assert (first.id, second.id) == ("r1/1", "r1/2")
    assert (first.kind, first.tool, first.detail) == ("approval", "drop", '{"a":1}')
    assert first.digest != second.digest
    assert first.expires_at == play.now + 7 * DAY == index_of(play.state).wake_at
    assert "cairn approve r1/1" in str(first)
    play.submit(cmd.Deny(n=1))
    play.submit(cmd.Deny(n=2))
    play.settle()
    (question,) = pending_of(play.state)
    assert (question.id, question.kind, question.expires_at) == ("r1/3", "input", 0)
    assert "cairn answer r1/3" in str(question)


@pytest.mark.parametrize(
    ("name", "error_class", "kind"),
    [("mail", None, "in_doubt"), ("find", E.DEPENDENCY_FAILED, "takeover")],
)
def test_a_call_a_person_must_settle_is_named_by_its_call(
    name: str, error_class: Any, kind: str
) -> None:
    ladder = Ladder(rows={E.DEPENDENCY_FAILED: (Rung(disposition="takeover"),)})
    play = Play(rules_of(*RULES.tools.values(), ladder=ladder))
    play.calls(name)
    if error_class is None:
        play.vanishes("c1")
    else:
        play.raises("c1", error_class)
    (item,) = pending_of(play.state)
    assert (item.id, item.kind) == ("r1/c1", kind)
    assert waits(play.state) == {kind}
    assert "cairn resolve r1/c1" in str(item)


def test_a_question_of_the_runtime_itself_is_listed_too() -> None:
    play = Play(RULES, on_loop="ask", limits=Limits(no_progress=1))
    while not play.state.question:
        for call in play.calls("find"):
            play.returns(call, "same")
        play.settle()
    (item,) = pending_of(play.state)
    assert (item.id, item.kind, item.call) == ("r1/1", "input", "")
    assert index_of(play.state).waits == ("input",)


def test_a_state_says_who_works_for_whom() -> None:
    nobody = RunState(run="r1")
    assert (nobody.agent, nobody.principal.id) == ("", "local")
    play = Play(RULES, agent="shop", principal=Principal(id="anne"))
    assert (play.state.agent, play.state.principal.id) == ("shop", "anne")


def test_every_kind_of_waiting_says_how_to_end_it() -> None:
    kinds: list[Any] = ["approval", "input", "takeover", "in_doubt"]
    assert all("cairn" in str(Pending(id="r1/1", kind=kind)) for kind in kinds)


def test_time_is_news_at_the_earliest_of_all_that_waits_for_it() -> None:
    play = Play(RULES)
    play.calls(("drop", {"a": 1}), ("drop", {"a": 2}))
    play.now += SECOND
    play.submit(cmd.Approve(n=2))
    play.start()
    event = play.raises("c2", E.TOOL_UNAVAILABLE, not_done=True)
    assert wake_at(play.state) == event.retry_at < play.call("c1").expires_at
    assert waits(play.state) == {"approval", "retry_at"}


@pytest.mark.parametrize("end", [cmd.Cancel(), None])
def test_an_ended_run_waits_for_no_time_and_for_no_approval(end: Any) -> None:
    play = Play(RULES, limits=Limits(tokens=10**6))
    play.calls(("drop", {"a": 1}))
    if end is not None:
        play.submit(end)
    else:
        play.add(ev.LimitReached(limit="tokens", bound=1, value=1))
    play.settle()
    row = index_of(play.state)
    assert (row.wake_at, row.waits, row.pending) == (0, (), ())


# ---------------------------------------------------------------- last words


def words(play: Play) -> dict[str, str]:
    """The lines of a run's summary, by their first word."""
    lines = summary(play.state, play.journal).splitlines()
    return {line.partition(":")[0]: line.partition(": ")[2] for line in lines}


def test_the_summary_says_of_every_call_what_became_of_it() -> None:
    play = Play(RULES)
    play.one_turn("find", {})
    play.calls("nothing", "find")
    play.raises("c3")
    play.calls(("drop", {}))
    play.submit(cmd.Deny(n=1))
    play.calls("mail")
    play.vanishes("c5")
    play.submit(cmd.Late(call="c5", ok=True))
    play.calls("mail", ("drop", {}))
    play.vanishes("c6")
    play.submit(cmd.Resolve(call="c6", verdict="given_up"))
    play.settle()
    assert words(play) == {
        "Run r1": "failed (in_doubt). given up: whether mail (c6) took effect is unknown",
        "Done": "find (c1), mail (c5)",
        "Failed": "find (c3)",
        "Refused": "drop (c4)",
        "Not done": "nothing (c2), drop (c7)",
        "Unknown": "mail (c6)",
    }


@pytest.mark.parametrize(("verdict", "line"), [("happened", "Done"), ("not_happened", "Not done")])
def test_a_verdict_after_the_end_moves_a_call_to_its_line(verdict: Any, line: str) -> None:
    play = Play(RULES)
    play.calls("mail")
    play.crash()
    play.submit(cmd.Cancel())
    play.settle()
    assert words(play)["Unknown"] == "mail (c1)"
    play.now += DAY
    play.submit(cmd.Resolve(call="c1", verdict=verdict))
    assert words(play)[line] == "mail (c1)"
    assert "Unknown" not in words(play)


def test_a_long_run_is_summed_up_and_not_listed_whole() -> None:
    play = Play(RULES, limits=Limits(steps=200, no_progress=99))
    for n in range(SHOWN + 5):
        play.one_turn("find", {"n": n}, n)
    assert words(play)["Done"].endswith("and 5 more")


@pytest.mark.parametrize(
    ("limits", "status", "said"),
    [
        (Limits(steps=1), Status.STOPPED, "stopped. steps limit reached: 1 of 1."),
        (Limits(errors_in_row=1), Status.FAILED, "failed (limit_reached). 1 turns in a row"),
    ],
)
def test_the_first_line_says_how_the_run_ended_and_over_what(
    limits: Limits, status: Status, said: str
) -> None:
    play = Play(RULES, limits=limits)
    play.calls("find")
    if status is Status.STOPPED:
        play.returns("c1")
    else:
        play.raises("c1")
    play.settle()
    assert play.state.status is status
    assert words(play)["Run r1"].startswith(said)


def test_the_first_line_of_a_living_run_is_its_status() -> None:
    play = Play(RULES)
    assert words(play) == {"Run r1": "queued."}
    play.calls("mail")
    assert words(play)["At work"] == "mail (c1)"
    play.returns("c1")
    play.says("done")
    play.settle()
    assert words(play)["Run r1"] == "completed."


def test_citations_come_in_the_order_the_text_names_them_first() -> None:
    sources = [Source(uri=f"doc:{n}") for n in range(1, 4)]
    found = cited("So [s3], and [s1], again [s3], but not [s9] or [s0].", sources)
    assert [(c.mark, c.source.uri) for c in found] == [("s3", "doc:3"), ("s1", "doc:1")]


def test_a_report_names_the_tool_that_ran_and_not_the_one_that_was_asked_for() -> None:
    rule = Rule(name="drafts", decide="redirect", tools=("mail",), redirect=Redirect(tool="draft"))
    free = Policy(effects={"write": "allow"}, rules=(rule,))
    play = Play(rules_of(tool("mail", "write"), tool("draft", "write"), policy=free))
    play.calls("mail")
    play.returns("c1", "draft 7")
    said = summary(play.state, play.journal)
    assert "Done: draft (c1)" in said
    assert "mail" not in said
