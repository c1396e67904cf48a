"""The same id stands for the same session and the same terms: nobody is given a run with others."""

import pytest

from cairn import Agent, Limits, Policy, Rule, RunConflict, Runtime, Scripted, call, tool
from cairn.core.policy import Policy as CorePolicy
from cairn.intake import Intake

DENY = Policy(tools={"pay": "deny"})
RULED = Policy(rules=(Rule(name="no", decide="deny", tools=("pay",), reason="not now"),))


@tool(effect="write")
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def runtime(path=":memory:", **options) -> Runtime:
    desk = Agent("desk", Scripted([call("pay", to="a"), "done"]), tools=[pay], **options)
    return Runtime(path, [desk])


NARROWER = [
    ("session", {"session": "other"}, "'s', and not 'other'"),
    ("kind", {"kind": "query"}, "operate, and not query"),
    ("approvals", {"approvals": "none"}, "ask, and not none"),
    ("policy", {"policy": DENY}, 'none, and not .*"pay":"deny"'),
    ("limits.calls", {"limits": {"calls": 0}}, "200, and not 0"),
    ("limits.steps", {"limits": Limits(steps=3)}, "50, and not 3"),
]


@pytest.mark.parametrize(("field", "asked", "said"), NARROWER, ids=[each[0] for each in NARROWER])
@pytest.mark.parametrize("verb", ["run", "start", "enqueue"])
def test_a_call_that_names_what_would_narrow_the_run_is_told_that_it_is_another(
    field, asked, said, verb
):
    with runtime() as rt:
        rt.run("desk", "x", id="r", session="s")
        rt.approve("r/1")
        head = len(rt.trace("r"))
        with pytest.raises(RunConflict, match=rf"another {field}: {said}"):
            getattr(rt, verb)("desk", "x", id="r", **{"session": "s"} | asked)
        assert [info.session for info in rt.sessions()] == ["s"]
        assert len(rt.trace("r")) == head, "nothing was driven"
        assert rt.run("desk", "x", id="r").status == "completed"


TERMS = {"session": "s", "kind": "operate", "approvals": "none", "limits": {"calls": 3}}


@pytest.mark.parametrize("policy", [DENY, RULED])
def test_the_same_terms_named_again_and_terms_left_out_are_the_same_call(tmp_path, policy):
    terms = TERMS | {"policy": policy}
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        first = rt.run("desk", "x", id="r", **terms)
    with runtime(path) as rt:
        assert rt.run("desk", "x", id="r", **terms) == first
        assert rt.run("desk", "x", id="r") == first
        for name, value in terms.items():
            assert rt.run("desk", "x", id="r", **{name: value}) == first
        wider = {"calls": 4}
        assert rt.run("desk", "x", id="r", limits=wider) == first, "what stands is narrower"


def test_another_policy_than_the_one_it_was_started_with_is_another_call():
    with runtime() as rt:
        rt.run("desk", "x", id="r", policy=DENY)
        with pytest.raises(RunConflict, match="another policy"):
            rt.run("desk", "x", id="r", policy=RULED)


def test_bounds_of_the_agent_that_have_changed_since_make_no_other_call(tmp_path):
    path = tmp_path / "cairn.db"
    with runtime(path) as rt:
        rt.run("desk", "x", id="r", limits={"calls": 9})
    with runtime(path, limits=Limits(calls=5, steps=7), kind="query") as rt:
        assert rt.run("desk", "x", id="r", limits={"calls": 9}).id == "r"
        assert rt.run("desk", "x", id="r").id == "r"


def test_a_kind_that_a_rule_has_narrowed_is_the_same_call_when_the_rule_says_otherwise(tmp_path):
    path, found = tmp_path / "cairn.db", ["query", None, None, None]
    intake = Intake(rule=lambda text: found.pop(0))
    with runtime(path, intake=intake) as rt:
        rt.run("desk", "x", id="r", kind="operate")
        assert rt.run("desk", "x", id="r", kind="operate").id == "r"
        rt.run("desk", "y", id="r2", kind="query")
        with pytest.raises(RunConflict, match="another kind: query, and not generate"):
            rt.run("desk", "y", id="r2", kind="generate")


def test_a_long_policy_is_shown_in_part():
    with runtime() as rt:
        rt.run("desk", "x", id="r")
        long = CorePolicy(
            rules=(Rule(name="n" * 60, decide="deny", tools=("pay",), reason="w" * 200),)
        )
        with pytest.raises(RunConflict) as error:
            rt.run("desk", "x", id="r", policy=long)
        assert "…" in str(error.value)
        assert len(str(error.value)) < 500
