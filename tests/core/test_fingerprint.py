"""Which version of an agent it is: what changes a fingerprint, and what does not."""

import functools

import msgspec
import pytest
from tests.core.play import OPEN, SECOND, Play, rules_of, tool

from cairn import Agent, Limits, Policy, Scripted
from cairn import tool as declare
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.codec import decode, encode
from cairn.core.fingerprint import (
    Fingerprint,
    PartChange,
    changed,
    changes_between,
    contract_changed,
)
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus
from cairn.core.views import timeline
from cairn.core.views.words import words
from cairn.crew import prepare
from cairn.errors import ErrorClass, Refused


def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def look(query: str) -> str:
    """Look."""
    return query


def accept(answer) -> None:
    """Any answer will do."""


def greet(briefing) -> str:
    return "Be kind."


def grumble(briefing) -> str:
    return "Be brief."


def tools(**options):
    return [declare(effect="write", **options)(pay), declare(effect="read")(look)]


PLAIN, STANDARD = Policy(), Ladder()


def print_of(*, policy=PLAIN, ladder=STANDARD, model=None, **fields) -> Fingerprint:
    fields.setdefault("tools", tools())
    agent = Agent("a", model or Scripted(["done"]), **fields)
    return prepare(agent, policy, ladder).fingerprint


BEFORE = print_of(instructions="Be good.", completion_checks=[accept])


def parts(after: Fingerprint, before: Fingerprint = BEFORE) -> list[str]:
    return [change.part for change in changes_between(before, after)]


def again(**fields) -> list[str]:
    return parts(print_of(**{"instructions": "Be good.", "completion_checks": [accept], **fields}))


def test_the_same_agent_made_twice_is_the_same_version():
    assert again() == []
    assert again(tools=tools()[::-1]) == [], "the order of tools does not count"


RUNGS = Ladder(rows={ErrorClass.TIMEOUT: (Rung(disposition="end"),)})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"instructions": "Be better."}, ["prompt"]),
        ({"instructions": greet}, ["prompt"]),
        ({"model": Scripted(["done"], name="other")}, ["model"]),
        ({"limits": Limits(steps=9)}, ["agent"]),
        ({"kind": "query"}, ["agent"]),
        ({"repairs": 1}, ["agent"]),
        ({"tool_choice": "required"}, ["agent"]),
        ({"output_type": int}, ["agent"]),
        ({"completion_checks": []}, ["agent", "code"]),
        ({"policy": Policy(tools={"pay": "deny"})}, ["policy"]),
        ({"ladder": RUNGS}, ["ladder"]),
        ({"tools": tools(timeout=9.0)}, ["tool pay"]),
        ({"tools": tools(recovery="repeat")}, ["tool pay"]),
        ({"tools": tools()[1:]}, ["code", "tool pay"]),
        (
            {"builtins": ["ask_user"]},
            ["tool find_tools", "tool read_artifact", "tool search_history", "tool update_plan"],
        ),
    ],
    ids=str,
)
def test_a_change_names_the_part_that_changed(fields, named):
    assert sorted(again(**fields)) == named


def test_another_function_of_instructions_is_another_prompt_and_no_other_code():
    assert parts(print_of(instructions=greet), print_of(instructions=grumble)) == ["prompt"]


def test_what_stands_in_a_tool_s_function_is_code_and_not_its_schema():
    @declare(effect="write", name="pay")
    def other(cents: int) -> str:
        """Pay."""
        return f"paid {cents} and more"

    assert again(tools=[other, tools()[1]]) == ["code"]


def test_what_a_person_approves_is_told_from_how_a_call_is_handled():
    slower = changes_between(BEFORE, print_of(tools=tools(timeout=9.0)))
    other = changes_between(BEFORE, print_of(tools=tools(recovery="repeat")))
    gone = changes_between(BEFORE, print_of(tools=tools()[1:]))
    assert not contract_changed(slower, "pay")
    assert contract_changed(other, "pay")
    assert contract_changed(gone, "pay")
    assert not contract_changed(gone, "look")
    assert not contract_changed(changes_between(None, BEFORE), "pay"), "nothing is known of before"


def test_a_fingerprint_is_the_sum_of_its_changes():
    after = print_of(instructions=greet, tools=tools(timeout=9.0)[:1], policy=Policy(name="x"))
    for before in (BEFORE, None, Fingerprint()):
        changes = changes_between(before, after)
        assert changed(before, changes, after.unread) == after


def test_source_that_cannot_be_read_counts_by_name_and_is_said():
    space: dict = {}
    exec("def typed(query: str) -> str:\n    return query", space)  # as at a prompt
    found = print_of(tools=[declare(effect="read")(space["typed"])])
    assert [name.rpartition(".")[2] for name in found.unread] == ["typed"]
    assert BEFORE.unread == ()


def test_wrapped_functions_are_read_and_not_their_wrappers():
    class Checker:
        def __init__(self, limit: int) -> None:
            self.limit = limit

        def __call__(self, answer) -> None:
            """Look at an answer."""

        def method(self, answer) -> None:
            """Look at it, too."""

    one = Checker(1)
    for check in (
        one,
        one.method,
        functools.partial(accept),
        functools.wraps(accept)(lambda _: None),
    ):
        assert print_of(completion_checks=[check]).unread == ()


def test_a_journal_of_before_has_text_in_the_place_of_a_fingerprint():
    old = decode(1, 1, b'{"agent":"a","input":[],"digest":"d","fingerprint":"f0"}')
    assert isinstance(old, ev.RunCreated)
    assert old.fingerprint == "f0"
    play = Play(fingerprint="f0")
    assert play.state.fingerprint is None
    new = ev.RunCreated(agent="a", input=(), digest="d", fingerprint=BEFORE)
    assert decode(1, 1, encode(new)) == new
    assert b"fingerprint" not in encode(ev.RunCreated(agent="a", input=(), digest="d"))
    assert len(encode(new)) < 600


# ---------------------------------------------------------------- in a run

PAY = rules_of(tool("pay", "dangerous", conflict_key=str), tool("look"))
NEWER = PartChange(part="tool pay", before="a.b", after="c.b")


def test_an_approval_that_is_void_is_asked_anew_and_the_old_one_cannot_be_given():
    play = Play(PAY)
    play.calls(("pay", {"cents": 4}), ("pay", {"cents": 5}))
    play.submit(cmd.Approve(n=1))
    play.add(ev.RunVersionChanged(changes=(NEWER,), calls=("c1", "c2")))
    assert {c.status for c in play.state.calls.values()} == {CallStatus.REQUESTED}
    play.settle()
    assert [e.n for e in play.events if isinstance(e, ev.ApprovalRequested)] == [1, 2, 3, 4]
    with pytest.raises(Refused, match="already withdrawn"):
        play.submit(cmd.Approve(n=2))
    play.submit(cmd.Approve(n=3))
    assert play.start() == ["c1"]


def test_an_approval_of_a_call_that_waits_to_be_repeated_is_void_too():
    play = Play(PAY)
    play.calls(("pay", {"cents": 4}))
    play.submit(cmd.Approve(n=1))
    play.start()
    play.raises("c1", ErrorClass.TOOL_UNAVAILABLE, not_done=True)
    play.add(ev.RunVersionChanged(changes=(NEWER,), calls=("c1",)))
    play.now += 60_000_000
    play.settle()
    assert play.call("c1").status is CallStatus.ASKING
    play.submit(cmd.Approve(n=2))
    play.add(ev.RunVersionChanged(changes=(NEWER,), calls=("c1",)))
    assert play.call("c1").status is CallStatus.RETRYING
    play.settle()
    play.submit(cmd.Cancel())
    play.settle()
    assert play.state.status.value == "cancelled"


def test_a_refusing_version_ends_the_run_and_its_retry_may_go_on():
    play = Play(PAY)
    play.calls(("pay", {"cents": 4}))
    play.add(ev.RunVersionChanged(changes=(NEWER,), decision="refuse"))
    before = play.state
    play.settle()
    assert play.state.status.value == "failed"
    assert "another version" in play.last(ev.RunFailed).message
    assert "tool pay" in play.last(ev.RunFailed).message
    assert before.fingerprint is not None
    assert before.fingerprint.tools == ("pay c.b",)


def test_a_trace_tells_what_changed_and_who_went_on():
    play = Play(PAY)
    play.calls(("pay", {"cents": 4}))
    gone = PartChange(part="tool old", before="d.e")
    event = ev.RunVersionChanged(changes=(NEWER, gone), calls=("c1",), driver="desk:41")
    play.add(event)
    assert words(event) == "tool pay a.b → c.b, tool old d.e → none · judged anew: c1 · desk:41"
    told = timeline(play.journal)
    assert "tool pay a.b → c.b" in told.steps[0].notes[-1].text
    unknown = msgspec.structs.replace(event, changes=(PartChange(part="prompt", after="x"),))
    assert "what came before is not known" in words(unknown)


@pytest.mark.parametrize("policy", [OPEN, Policy(), Policy(tools={"pay": "deny"})], ids=str)
def test_what_may_have_happened_is_never_told_as_not_executed(policy):
    """The first attempt timed out, the second certainly did nothing: one of them may have paid."""
    keyed = tool("pay", "write", recovery="keyed")
    play = Play(rules_of(keyed))
    play.calls(("pay", {"cents": 4}))
    play.vanishes("c1")
    play.now += 5 * SECOND
    play.start()
    play.raises("c1", ErrorClass.TOOL_UNAVAILABLE, not_done=True)
    assert play.call("c1").status is CallStatus.RETRYING
    play.rules = rules_of(*([] if policy is OPEN else [keyed]), policy=policy)
    play.now += 60 * SECOND
    play.settle()
    assert play.call("c1").status is CallStatus.TAKEOVER
    assert play.call("c1").error_class is ErrorClass.IN_DOUBT
