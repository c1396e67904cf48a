"""The tree of a trace: whatever a journal may hold has its place in it."""

import io

from rich.console import Console
from tests.core.play import Play, raw, rules_of, tool, used

from cairn.cli.tree import run_tree
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.messages import PlanItem, Principal, Reasoning, Source, Text
from cairn.core.outcomes import Called, Reply
from cairn.core.views import timeline
from cairn.errors import ErrorClass

RULES = rules_of(
    tool("find"),
    tool("pay", "write"),
    tool("ask_user", kind="question"),
    checks=("complete",),
    check_answer=lambda text: "say please" if text == "give" else "",
)


def drawn(play: Play, only: int | None = None) -> str:
    """The tree as one long line."""
    out = io.StringIO()
    console = Console(file=out, width=110)
    console.print(run_tree(timeline(play.journal, "r1"), only))
    return " ".join(out.getvalue().replace("│", " ").split())


def test_a_conversation_with_everything_in_it_is_drawn_whole() -> None:
    play = Play(RULES, session="s", principal=Principal(id="ann"))
    play.ask()
    thought = (Reasoning(content="hmm"), Text("let me see"))
    play.outcome(
        Reply(parts=thought, calls=(Called(name="find"), Called(name="ask_user")), usage=used(7))
    )
    play.start()
    play.returns("c1", "ok", sources=(Source(uri="u"), Source(uri="v")))
    play.settle()
    play.add(ev.PlanUpdated(items=(PlanItem(text="pay", status="doing", steps=(1,)),)), step=1)
    play.submit(cmd.Answer(n=1, text="seven"))
    play.calls(("pay", {"a": 1}))
    play.vanishes("c3", "timeout")
    play.submit(cmd.Resolve(call="c3", verdict="happened", evidence="the bank"))
    play.says("give")
    play.settle()
    play.says("please")
    play.step()
    play.add(ev.StepCompleted(output=raw("fine"), duration_us=4_000), step=5)
    play.settle()
    out = drawn(play)
    for part in (
        "r1 · completed · a for ann · operate · session s",
        "thinking: hmm",
        "let me see",
        "7 in, 0 out",
        "2 sources",
        "question r1/1 · answered by p1",
        "result · seven",
        'c3 pay({"a":1}) · completed',
        "unknown",
        "timeout",
        "happened · says p1 · the bank",
        "answer not accepted · malformed_output",
        "say please",
        "task complete · completed",
        "attempt 1 · completed · 4 ms · fine",
        "plan",
        "[>] pay · steps 1",
        "end · completed",
        "please",
    ):
        assert part in out, f"{part}\n{out}"


def test_what_waits_and_what_is_open_is_drawn_as_such() -> None:
    play = Play(RULES)
    play.calls(("pay", {"a": 1}))
    play.vanishes("c1", "lost", gone=True)
    assert 'waits: r1/c1 · in doubt · pay({"a":1})' in drawn(play)
    play = Play(RULES)
    play.ask()
    assert "model m1 · open" in drawn(play)
    assert "reserved 1," in drawn(play)


def test_tasks_that_failed_show_why() -> None:
    play = Play(RULES)
    play.says("please")
    play.step()
    fault = ev.StepFailed(error_class=ErrorClass.MALFORMED_OUTPUT, message="not whole")
    play.add(fault, step=2)
    assert "malformed_output · not whole · → repair" in drawn(play, only=2)


def test_a_run_that_asks_nobody_says_so_in_its_first_line() -> None:
    assert "operate · approvals none" in drawn(Play(RULES, approvals="none"))
