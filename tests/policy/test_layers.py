"""Law 6: lower layers only narrow, deny wins, and nobody widens the floor."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.core.messages import Principal
from cairn.core.policy import (
    DEFAULTS,
    STRICTNESS,
    Equals,
    Intent,
    Policy,
    Range,
    Redirect,
    Rule,
    Spend,
    opinions,
    weigh,
)
from cairn.core.policy.rule import fits_glob
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError

# ---------------------------------------------------------------- any layers at all

TOOLS = ("pay", "mail", "find")
LABELS = ("web", "files", "mcp:crm")
tables = st.sampled_from(["allow", "ask", "deny"])


def some(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), max_size=2, unique=True).map(tuple)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    decide = draw(st.sampled_from(["allow", "ask", "deny", "redirect"]))
    return Rule(
        name=f"rule {draw(st.integers(0, 10**6))}",
        decide=decide,
        tools=draw(some((*TOOLS, "*", "m*"))),
        effects=draw(some(tuple(DEFAULTS))),
        arguments=draw(st.sampled_from([{}, {"n": Range(max=5)}, {"s": Equals(value="a")}])),
        agents=draw(some(("shop", "desk"))),
        principals=draw(some(("kim", "lee"))),
        roles=draw(some(("clerk", "lead"))),
        tenants=draw(some(("acme",))),
        kinds=draw(some(("query", "operate"))),
        taint=draw(st.sampled_from([(), ("any",), ("none",), ("web",), ("mcp:*",)])),
        spend=draw(st.sampled_from([None, None, Spend(calls=2)])),
        redirect=Redirect(tool="find") if decide == "redirect" else None,
    )


layers = st.builds(
    Policy,
    tools=st.dictionaries(st.sampled_from(TOOLS), tables, max_size=2),
    effects=st.dictionaries(st.sampled_from(list(DEFAULTS)), tables, max_size=2),
    rules=st.lists(rules(), max_size=3, unique_by=lambda rule: rule.name).map(tuple),
)


def narrowing(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Policy]]:
    return st.dictionaries(st.sampled_from(names), layers, max_size=1)


intents = st.builds(
    Intent,
    tool=st.sampled_from(TOOLS),
    effect=st.sampled_from(list(DEFAULTS)),
    arguments=st.sampled_from([{}, {"n": 3}, {"n": 9, "s": "a"}, {"s": "A"}, {"n": "3"}]),
    agent=st.sampled_from(["shop", "desk", "other"]),
    principal=st.builds(
        Principal,
        id=st.sampled_from(["kim", "lee", "local"]),
        roles=some(("clerk", "lead")),
        tenant=st.sampled_from(["", "acme"]),
    ),
    kind=st.sampled_from(["query", "generate", "operate"]),
    taint=st.frozensets(st.sampled_from(LABELS), max_size=2),
    calls=st.integers(0, 4),
)


def strength(verdict: Any) -> int:
    return STRICTNESS[verdict.decision] if verdict is not None else 0


@settings(max_examples=60)
@given(
    layers,
    narrowing(("shop", "desk")),
    narrowing(("kim", "local")),
    narrowing(("clerk", "lead")),
    narrowing(("acme", "")),
    st.none() | layers,
    st.none() | layers,
    intents,
)
def test_lower_layers_never_widen_and_the_strictest_of_all_wins(
    deployed: Policy,
    agents: dict[str, Policy],
    principals: dict[str, Policy],
    roles: dict[str, Policy],
    tenants: dict[str, Policy],
    own: Policy | None,
    run: Policy | None,
    intent: Intent,
) -> None:
    whole = Policy(
        tools=deployed.tools,
        effects=deployed.effects,
        rules=deployed.rules,
        agents=agents,
        principals=principals,
        roles=roles,
        tenants=tenants,
    )
    verdict = weigh(whole, intent, own, run)
    alone = deployed.spoken(intent)
    assert strength(verdict) >= (strength(alone) if alone else STRICTNESS[DEFAULTS[intent.effect]])
    said = [each.verdict for each in opinions(whole, intent, own, run)]
    assert strength(verdict) == max(map(strength, said)), "the strictest wins, and no more"
    who = intent.principal
    concerned = [
        *(p for name, p in agents.items() if name == intent.agent),
        *(p for name, p in principals.items() if name == who.id),
        *(p for name, p in roles.items() if name in who.roles),
        *(p for name, p in tenants.items() if name == who.tenant),
        *(p for p in (own, run) if p is not None),
    ]
    for layer in concerned:
        assert strength(verdict) >= strength(layer.spoken(intent))
    if intent.effect == "dangerous":
        assert verdict.decision != "allow", "the floor"
    if intent.kind == "query" and intent.effect != "read":
        assert verdict.decision == "deny"
    nothing = weigh(deployed, intent)
    assert strength(verdict) >= strength(nothing)
    assert verdict.rule


@settings(max_examples=40)
@given(layers, intents, st.integers(0, 3))
def test_a_deny_wins_wherever_it_stands(layer: Policy, intent: Intent, at: int) -> None:
    deny = Rule(name="no", decide="deny", tools=(intent.tool,))
    placed = (*layer.rules[:at], deny, *layer.rules[at:])
    with_deny = Policy(tools=layer.tools, effects=layer.effects, rules=placed)
    assert weigh(with_deny, intent).decision == "deny"
    tabled = Policy(tools={intent.tool: "deny"}, effects=layer.effects, rules=layer.rules)
    assert weigh(tabled, intent).decision == "deny"


# ---------------------------------------------------------------- one layer


def test_the_first_rule_that_speaks_decides_then_the_tool_then_the_effect() -> None:
    small = Rule(
        name="small", decide="allow", tools=("refund",), arguments={"cents": Range(max=100)}
    )
    big = Rule(name="big", decide="ask", tools=("refund",))
    policy = Policy(rules=(small, big), tools={"refund": "allow"}, effects={"write": "deny"})
    assert policy.judge("refund", "write", {"cents": 5}).rule == "deployment: small"
    assert policy.judge("refund", "write", {"cents": 500}).rule == "deployment: big"
    swapped = Policy(rules=(big, small))
    assert swapped.judge("refund", "write", {"cents": 5}).rule == "deployment: big"
    assert policy.judge("mail", "write", {}).decision == "deny"


@pytest.mark.parametrize(
    ("fields", "yes", "no"),
    [
        ({"tools": ("re*",)}, {"tool": "refund"}, {"tool": "prefund"}),
        ({"effects": ("write",)}, {"effect": "write"}, {"effect": "read"}),
        ({"agents": ("shop",)}, {"agent": "shop"}, {"agent": "Shop"}),
        ({"principals": ("kim",)}, {"principal": Principal(id="kim")}, {}),
        (
            {"roles": ("lead", "clerk")},
            {"principal": Principal(roles=("clerk",))},
            {"principal": Principal(roles=("Clerk", "guest"))},
        ),
        ({"tenants": ("acme",)}, {"principal": Principal(tenant="acme")}, {}),
        ({"kinds": ("generate",)}, {"kind": "generate"}, {"kind": "operate"}),
        ({"taint": ("any",)}, {"taint": frozenset({"web"})}, {}),
        ({"taint": ("none",)}, {}, {"taint": frozenset({"web"})}),
        ({"taint": ("mcp:*",)}, {"taint": frozenset({"mcp:crm"})}, {"taint": frozenset({"web"})}),
        ({"spend": Spend(calls=3)}, {"calls": 3}, {"calls": 2}),
        ({"spend": Spend(micro_usd=5, tokens=9)}, {"micro_usd": 5, "tokens": 9}, {"tokens": 99}),
        (
            {"arguments": {"n": Range(min=1)}, "tools": ("act",)},
            {"arguments": {"n": 1}},
            {"arguments": {"n": 0}},
        ),
    ],
)
def test_a_rule_speaks_of_all_that_it_names(
    fields: dict[str, Any], yes: dict[str, Any], no: dict[str, Any]
) -> None:
    rule = Rule(name="r", decide="deny", **fields)
    assert rule.speaks(Intent(**{"tool": "act", "effect": "write", **yes}))
    assert not rule.speaks(Intent(**{"tool": "act", "effect": "write", **no}))


@pytest.mark.parametrize(
    ("name", "glob", "fits"),
    [
        ("pay", "pay", True),
        ("pay", "Pay", False),
        ("pay_all", "pay*", True),
        ("pay", "pay*", True),
        ("repay", "*pay", True),
        ("a_pay_b", "*pay*", True),
        ("ab", "a*b*", True),
        ("a", "a*a", False),
        ("aba", "a*a", True),
        ("x.y", "x?y", False),
        ("", "*", True),
        ("abcd", "a*c*b*d", False),
        ("abxbcd", "a*b*c*d", True),
    ],
)
def test_a_star_stands_for_any_run_of_characters_and_nothing_else_is_special(
    name: str, glob: str, *, fits: bool
) -> None:
    assert fits_glob(name, glob) is fits


def test_whoever_says_yes_must_fulfil_the_terms_of_all_layers_that_ask() -> None:
    lead = Rule(name="lead", decide="ask", approval=ApprovalTerms(roles=("lead",)))
    other = Rule(name="other", decide="ask", approval=ApprovalTerms(other_person=True))
    policy = Policy(rules=(lead,), agents={"shop": Policy(rules=(other,))})
    intent = Intent(tool="pay", effect="write", agent="shop")
    assert weigh(policy, intent).terms == ApprovalTerms(roles=("lead",), other_person=True)
    assert weigh(policy, intent).rule == "deployment: lead"


def test_each_layer_stands_under_its_own_name_in_the_rule() -> None:
    deny = Policy(tools={"pay": "deny"})
    intent = Intent(
        tool="pay",
        effect="read",
        agent="shop",
        principal=Principal(id="kim", roles=("clerk",), tenant="acme"),
    )
    for fields, rule in (
        ({"agents": {"shop": deny}}, "agent shop: tool pay"),
        ({"principals": {"kim": deny}}, "principal kim: tool pay"),
        ({"roles": {"clerk": deny}}, "role clerk: tool pay"),
        ({"tenants": {"acme": deny}}, "tenant acme: tool pay"),
    ):
        assert weigh(Policy(**fields), intent).rule == rule
    assert weigh(Policy(), intent, agent=deny).rule == "agent shop, its own: tool pay"
    assert weigh(Policy(), intent, run=deny).rule == "run: tool pay"


REFUSED: list[tuple[Any, str]] = [
    (lambda: Policy(tools={"a": "redirect"}), "policy.tools.a"),
    (lambda: Policy(rules=[Rule(name="a", decide="deny")]), "policy.rules"),
    (lambda: Policy(rules=(Rule(name="a", decide="deny"),) * 2), "policy.rules"),
    (lambda: Policy(agents={"a": Policy(roles={"b": Policy()})}), "policy.agents.a"),
    (lambda: Policy(roles={"a": {"pay": "deny"}}), "policy.roles.a"),
    (lambda: Rule(name="", decide="deny"), "rule ''.name"),
    (lambda: Rule(name="a", decide="maybe"), "rule 'a'.decide"),
    (lambda: Rule(name="a", decide="redirect"), "rule 'a'.redirect"),
    (lambda: Rule(name="a", decide="ask", redirect=Redirect(tool="b")), "rule 'a'.redirect"),
    (lambda: Rule(name="a", decide="deny", approval=ApprovalTerms()), "rule 'a'.approval"),
    (lambda: Rule(name="a", decide="ask", tools="pay"), "rule 'a'.tools"),
    (lambda: Rule(name="a", decide="ask", effects=("wrong",)), "rule 'a'.effects"),
    (lambda: Rule(name="a", decide="ask", kinds=("wrong",)), "rule 'a'.kinds"),
    (lambda: Rule(name="a", decide="ask", taint=("any", "web")), "rule 'a'.taint"),
    (
        lambda: Rule(name="a", decide="ask", arguments={"a..b": Range(max=1)}),
        "rule 'a'.arguments",
    ),
    (Spend, "spend"),
    (lambda: Spend(calls=True), "spend"),
    (Range, "min"),
    (lambda: Range(max=float("nan")), "min"),
    (lambda: Range(max=True), "min"),
]


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_what_cannot_be_is_refused_by_the_place_it_stands_at(n: int) -> None:
    make, where = REFUSED[n]
    with pytest.raises(ConfigError) as refused:
        make()
    assert refused.value.field == where
