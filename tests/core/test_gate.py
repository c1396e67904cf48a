"""The one gate: parse, validate, authorise; the floor that nobody can widen."""

from typing import Any

import pytest
from tests.core.play import Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel, StartCalls
from cairn.core.gate import call_digest
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import ResultPart
from cairn.core.policy import DEFAULTS, Policy, Verdict
from cairn.core.rules import Problem, ToolSpec
from cairn.errors import ConfigError, ErrorClass

E = ErrorClass
EFFECTS: tuple[ev.Effect, ...] = ("read", "write", "dangerous")
DECISIONS = ("allow", "ask", "deny")


def fate(play: Play, call: str = "c1") -> str:
    """What became of a call: started, asked, or the kind it was rejected as."""
    for event in play.events:
        if getattr(event, "call", "") != call:
            continue
        if isinstance(event, ev.ToolStarted):
            return "allow"
        if isinstance(event, ev.ApprovalRequested):
            return "ask"
        if isinstance(event, ev.ToolRejected):
            return "deny" if event.kind == "denied" else event.kind
    return "nothing"


# ---------------------------------------------------------------- policy


@pytest.mark.parametrize("effect", EFFECTS)
def test_where_the_deployment_is_silent_the_effects_default_holds(effect: ev.Effect) -> None:
    verdict = Policy().judge("act", effect, {})
    assert verdict == Verdict(decision=DEFAULTS[effect], rule=f"default: {effect}")
    assert DEFAULTS == {"read": "allow", "write": "ask", "dangerous": "ask"}


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("by", ["tools", "effects"])
def test_the_deployment_decides_and_the_floor_stands_above_it(
    effect: ev.Effect, decision: Any, by: str
) -> None:
    table = {"act": decision} if by == "tools" else {effect: decision}
    policy = Policy(**{by: table})
    play = Play(rules_of(tool("act", effect), policy=policy))
    play.calls("act")
    floored = effect == "dangerous" and decision == "allow"
    assert fate(play) == ("ask" if floored else decision)


def test_a_rule_for_a_tool_wins_over_one_for_its_effect() -> None:
    policy = Policy(tools={"mail": "deny"}, effects={"write": "allow"})
    assert policy.judge("mail", "write", {}).decision == "deny"
    assert policy.judge("post", "write", {}).decision == "allow"


def test_the_verdict_names_its_rule_in_the_journal() -> None:
    play = Play(
        rules_of(tool("mail", "write"), policy=Policy(tools={"mail": "allow"}, name="shop"))
    )
    play.calls("mail")
    assert play.last(ev.ToolStarted).rule == "shop: tool mail"
    play = Play(rules_of(tool("mail", "write"), policy=Policy(effects={"write": "deny"})))
    play.calls("mail")
    rejected = play.last(ev.ToolRejected)
    assert (rejected.rule, rejected.error_class) == (
        "deployment: effect write",
        E.PERMISSION_DENIED,
    )


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"tools": {"mail": "maybe"}}, "policy.tools.mail"),
        ({"effects": {"write": True}}, "policy.effects.write"),
        ({"effects": {"writes": "allow"}}, "policy.effects.writes"),
    ],
)
def test_a_policy_with_a_wrong_word_is_refused_by_the_place_it_stands_at(
    fields: dict[str, Any], where: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Policy(**fields)
    assert refused.value.field == where


class Broken(Policy):
    """A policy that raises."""

    def judge(self, tool: str, effect: ev.Effect, arguments: Any) -> Verdict:
        raise KeyError("department")


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_policy_that_raises_lets_nothing_through(effect: ev.Effect) -> None:
    play = Play(rules_of(tool("act", effect), policy=Broken()), lawful=False)
    play.calls("act")
    rejected = play.last(ev.ToolRejected)
    assert rejected.kind == "denied"
    assert "KeyError" in rejected.rule


class Widening(Policy):
    """A policy that says yes to everything, whatever the floor says."""

    def judge(self, tool: str, effect: ev.Effect, arguments: Any) -> Verdict:
        return Verdict(decision="allow", rule="yes")


def test_no_policy_of_any_kind_makes_a_dangerous_call_better_than_ask() -> None:
    play = Play(rules_of(tool("drop", "dangerous"), policy=Widening()))
    play.calls("drop")
    assert fate(play) == "ask"
    assert play.last(ev.ApprovalRequested).rule == "floor: dangerous"


def test_a_tool_whose_effect_is_not_declared_counts_as_dangerous() -> None:
    spec = ToolSpec(name="act", check=need())
    assert (spec.effect, spec.recovery) == ("dangerous", "once")


class ByAmount(Policy):
    """A policy that looks at the arguments, which are validated by then."""

    def judge(self, tool: str, effect: ev.Effect, arguments: Any) -> Verdict:
        return Verdict(decision="allow" if arguments["cents"] < 500 else "ask", rule="amount")


@pytest.mark.parametrize(("cents", "expected"), [(400, "allow"), (500, "ask")])
def test_a_policy_sees_the_validated_arguments(cents: int, expected: str) -> None:
    play = Play(
        rules_of(tool("refund", "write", check=need("cents")), policy=ByAmount()), lawful=False
    )
    play.calls(("refund", {"cents": cents}))
    assert fate(play) == expected


# ---------------------------------------------------------------- asked again right before


def test_policy_is_checked_again_right_before_the_call_starts() -> None:
    play = Play(rules_of(tool("mail", "write"), policy=Policy()))
    play.calls("mail")
    play.submit(cmd.Approve(n=1))
    play.rules = rules_of(tool("mail", "write"), policy=Policy(tools={"mail": "deny"}))
    assert play.start() == []
    assert fate(play) == "ask"
    assert play.last(ev.ToolRejected).kind == "denied"


def test_policy_is_checked_again_before_a_retry() -> None:
    play = Play(rules_of(tool("set", "write", recovery="repeat")))
    play.calls("set")
    play.raises("c1", E.TOOL_UNAVAILABLE)
    play.now += 10**9
    play.rules = rules_of(tool("set", "write", recovery="repeat"), policy=Policy())
    assert play.start() == []
    assert play.call("c1").status is CallStatus.ASKING
    play.submit(cmd.Approve(n=1))
    assert play.start() == ["c1"]


@pytest.mark.parametrize("policy", [Policy(), Policy(tools={"pay": "deny"})])
def test_an_interrupted_write_that_is_no_longer_allowed_waits_for_a_person(
    policy: Policy,
) -> None:
    play = Play(rules_of(tool("pay", "write", recovery="keyed")))
    play.calls("pay")
    play.crash()
    play.rules = rules_of(tool("pay", "write", recovery="keyed"), policy=policy)
    assert play.start() == []
    assert play.call("c1").status is CallStatus.TAKEOVER


def test_an_interrupted_read_that_is_no_longer_allowed_is_closed_and_said() -> None:
    for policy in (Policy(effects={"read": "ask"}), Policy(effects={"read": "deny"})):
        play = Play(rules_of(tool("find")))
        play.calls("find")
        play.crash()
        play.rules = rules_of(tool("find"), policy=policy)
        assert play.start() == []
        assert play.last(ev.ToolRejected).kind == "denied"


@pytest.mark.parametrize("name", ["pay", "find"])
def test_an_interrupted_call_of_a_tool_that_is_gone_is_settled_all_the_same(name: str) -> None:
    play = Play(rules_of(tool("pay", "write", recovery="keyed"), tool("find")))
    play.calls(name)
    play.crash()
    play.rules = rules_of(tool("other"))
    play.settle()
    if name == "pay":
        assert play.call("c1").status is CallStatus.TAKEOVER
    else:
        assert play.last(ev.ToolRejected).error_class is E.UNKNOWN_TOOL


@pytest.mark.parametrize(("before", "after"), [("keyed", "once"), ("repeat", "probe")])
def test_an_interrupted_write_is_repeated_only_if_old_and_new_declaration_allow_it(
    before: Any, after: Any
) -> None:
    play = Play(rules_of(tool("pay", "write", recovery=before)))
    play.calls("pay")
    play.crash()
    play.rules = rules_of(tool("pay", "write", recovery=after))
    assert play.start() == []
    assert play.call("c1").status is CallStatus.TAKEOVER
    play = Play(rules_of(tool("pay", "write", recovery=after)))
    play.calls("pay")
    play.crash()
    play.rules = rules_of(tool("pay", "write", recovery=before))
    assert play.start() == []


# ---------------------------------------------------------------- layers below


def test_a_query_is_offered_reads_only() -> None:
    play = Play(
        rules_of(tool("find"), tool("mail", "write"), tool("drop", "dangerous")), kind="query"
    )
    play.calls("find", "mail", "drop")
    play.returns("c1")
    play.settle()
    assert [fate(play, c) for c in ("c1", "c2", "c3")] == ["allow", "deny", "deny"]
    assert play.last(ev.ToolRejected).rule == "task kind: query"


def test_without_approvals_an_ask_is_a_no() -> None:
    play = Play(rules_of(tool("find"), tool("mail", "write"), policy=Policy()), approvals="none")
    play.calls("find", "mail")
    play.returns("c1")
    play.settle()
    assert fate(play, "c2") == "deny"
    assert "takes none" in play.last(ev.ToolRejected).message


def test_without_approvals_no_question_is_put_to_anybody() -> None:
    spec = tool("ask_user", kind="question", check=need("question"))
    play = Play(rules_of(spec), approvals="none")
    play.calls(("ask_user", {"question": "which?"}))
    assert play.count(ev.InputRequested) == 0
    assert "asks nobody" in play.last(ev.ToolRejected).message


# ---------------------------------------------------------------- parse and validate


def test_an_unknown_tool_is_rejected_with_the_nearest_and_the_real_names() -> None:
    play = Play(rules_of(tool("web_search"), tool("read_file")))
    started = play.calls(("search_web", {"q": "x"}), ("read_file", {}))
    assert started == ["c2"], "siblings run all the same"
    play.returns("c2")
    rejected = play.last(ev.ToolRejected)
    assert (rejected.kind, rejected.error_class) == ("invalid", E.UNKNOWN_TOOL)
    assert "web_search" in rejected.message
    assert "read_file" in rejected.message
    told = play.state.messages[-1].parts[0]
    assert isinstance(told, ResultPart)
    assert not told.ok


@pytest.mark.parametrize("names", [[], [f"tool_{n}" for n in range(500)]])
def test_the_message_about_an_unknown_tool_is_bounded(names: list[str]) -> None:
    play = Play(rules_of(*map(tool, names)))
    play.calls("x" * 10_000)
    assert len(play.last(ev.ToolRejected).message) < 4_000


@pytest.mark.parametrize("text", ['{"city": "Oslo",', "[1]", "3", '"x"', '{"a":NaN}', "{" * 9_000])
def test_arguments_that_are_no_object_are_not_run_and_the_model_is_told(text: str) -> None:
    play = Play(rules_of(tool("find")))
    assert play.calls(("find", text)) == []
    rejected = play.last(ev.ToolRejected)
    assert (rejected.kind, rejected.error_class) == ("invalid", E.INVALID_ARGUMENTS)
    assert rejected.disposition == "repair"


@pytest.mark.parametrize("text", ["", "  \n", "null", "{}"])
def test_blank_arguments_are_an_empty_object(text: str) -> None:
    play = Play(rules_of(tool("now"), tool("find", check=need("city"))))
    assert play.calls(("now", text)) == ["c1"]
    play.returns("c1")
    play.calls(("find", text))
    assert play.last(ev.ToolRejected).message == "missing: city"


def test_a_check_may_name_its_own_class() -> None:
    def check(text: str) -> Problem:
        return Problem(message="the file is gone", error_class=E.DEPENDENCY_FAILED)

    play = Play(rules_of(tool("find", check=check)))
    play.calls("find")
    assert play.last(ev.ToolRejected).error_class is E.DEPENDENCY_FAILED


# ---------------------------------------------------------------- repair budgets


@pytest.mark.parametrize(("repairs", "rejected"), [(3, 4), (2, 3), (1, 2), (9, 4)])
def test_arguments_may_be_mended_a_few_times_in_a_row_and_then_the_run_fails(
    repairs: int, rejected: int
) -> None:
    play = Play(rules_of(tool("find", check=need("city")), repairs=repairs))
    for _ in range(10):
        if not isinstance(play.settle(), AskModel):
            break
        play.calls("find")
    assert play.count(ev.ToolRejected) == rejected
    assert play.state.status is Status.FAILED
    assert play.state.end is not None
    assert play.state.end.error_class is E.INVALID_ARGUMENTS


@pytest.mark.parametrize("effect", ["read", "write"])
def test_the_same_mistake_in_many_calls_of_one_reply_is_one_mistake(effect: ev.Effect) -> None:
    play = Play(rules_of(tool("find", effect, check=need("city")), repairs=1))
    play.calls(*["find"] * 6, *["web_search"] * 6)
    assert play.count(ev.ToolRejected) == 12
    assert isinstance(play.settle(), AskModel), "the model is told, and may mend them all"
    play.calls(*["find"] * 2)
    play.settle()
    assert play.state.status is Status.FAILED


def test_a_call_that_fits_gives_the_whole_budget_back() -> None:
    play = Play(rules_of(tool("find", check=need("city"))))
    for n in range(4):
        play.calls("find")
        play.calls("find")
        play.one_turn("find", {"city": n}, n)
    assert play.state.status is Status.RUNNING
    assert play.state.repairs == {}


def test_made_up_tools_share_one_budget_however_they_are_called() -> None:
    play = Play(rules_of(tool("find")))
    for n in range(4):
        assert isinstance(play.settle(), AskModel)
        play.calls(f"search_web_{n}")
    play.settle()
    assert play.state.status is Status.FAILED
    assert play.last(ev.RunFailed).error_class is E.UNKNOWN_TOOL


def test_a_made_up_tool_now_and_then_ends_no_run_that_gets_somewhere() -> None:
    play = Play(rules_of(tool("find")))
    for n in range(8):
        play.calls("search_web")
        play.one_turn("find", {"n": n}, n)
    assert isinstance(play.settle(), AskModel)


def test_tools_have_their_budgets_each_for_itself() -> None:
    play = Play(rules_of(tool("find", check=need("a")), tool("look", check=need("a"))))
    for _ in range(2):
        play.calls("find", "look")
    assert isinstance(play.settle(), AskModel)


def test_a_tool_named_like_a_budget_of_the_runtime_shares_nothing_with_it() -> None:
    rules = rules_of(
        tool("answer"), tool("model"), check_answer=lambda text: "it is bad", repairs=2
    )
    play = Play(rules)
    for n in range(3):
        play.says("no good")
        if not isinstance(play.settle(), AskModel):
            break
        play.one_turn("answer", {"n": n}, n)
        play.one_turn("model", {"n": n}, n)
    assert play.state.status is Status.FAILED
    assert play.count(ev.ModelRejected) == 3


# ---------------------------------------------------------------- digests


def test_an_approval_is_bound_to_tool_and_arguments_and_not_to_their_spelling() -> None:
    one = call_digest("drop", '{"table": "a", "force": true}')
    assert one == call_digest("drop", '{"force":true,"table":"a"}')
    assert one != call_digest("drop", '{"force":true,"table":"b"}')
    assert one != call_digest("dro", 'p{"force":true,"table":"a"}')
    assert one != call_digest("wipe", '{"force":true,"table":"a"}')


def test_a_question_to_a_person_needs_no_approval_but_can_be_forbidden() -> None:
    spec = tool("ask_user", kind="question", check=need("question"))
    play = Play(rules_of(spec, policy=Policy(tools={"ask_user": "ask"})))
    play.calls(("ask_user", {"question": "which?"}))
    assert play.last(ev.InputRequested).question == "which?"
    play = Play(rules_of(spec, policy=Policy(tools={"ask_user": "deny"})))
    play.calls(("ask_user", {"question": "which?"}))
    assert play.count(ev.InputRequested) == 0
    assert fate(play) == "deny"


def test_a_question_may_stand_in_for_a_tool_that_failed() -> None:
    rules = rules_of(
        tool("find", fallback="ask_user"), tool("ask_user", kind="question", check=need("question"))
    )
    play = Play(rules)
    play.calls(("find", {"question": "where is it?"}))
    play.raises("c1")
    play.settle()
    assert play.call("c1").status is CallStatus.QUESTION
    play.submit(cmd.Answer(n=1, text="in the cellar"))
    assert isinstance(play.settle(), AskModel)


def test_nothing_is_started_beside_a_rejection_before_it_is_recorded() -> None:
    play = Play(rules_of(tool("find")))
    play.says("", "find", "nothing")
    action = play.decide()
    assert not isinstance(action, StartCalls)
    assert play.start() == ["c1"]
