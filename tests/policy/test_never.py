"""Rules that can never matter: found when they are sure not to, and never claimed wrongly."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policy.test_layers import intents, layers

from cairn.core.policy import Effect, Intent, Policy, weigh
from cairn.governance.never import findings
from cairn.governance.policy_file import PolicyFile, parse_policy

TOOLS: dict[str, Effect] = {"pay": "write", "look": "read", "wipe": "dangerous"}


def found(text: str, *, names: bool = False) -> list[str]:
    """Place and beginning of what is said, of a policy in the short form of YAML."""
    read = parse_policy(text)
    told = findings(read, TOOLS if names else None, ["shop"] if names else None)
    for each in told:
        assert each.said("p.yaml").startswith(f"p.yaml:{each.line}: " if each.line else "p.yaml: ")
    return [f"{each.place}: {each.problem}" for each in told]


def rules(*lines: str) -> str:
    return "rules:\n" + "".join(f"  - {{{line}}}\n" for line in lines)


def test_a_rule_behind_one_that_always_speaks_first_is_found_with_its_line() -> None:
    text = rules("name: a, decide: ask, tools: 'p*'", "name: b, decide: allow, tools: [pay, put]")
    (finding,) = findings(parse_policy(text))
    assert (finding.line, finding.place) == (3, "rules.b")
    assert "rule 'a' always decides" in finding.problem


def test_a_deny_hides_what_it_covers_wherever_it_stands_and_is_hidden_by_denies_only() -> None:
    text = rules(
        "name: a, decide: allow, tools: pay",
        "name: b, decide: deny, tools: '*'",
        "name: c, decide: deny, tools: pay",
    )
    assert [f.partition(":")[0] for f in found(text)] == ["rules.a", "rules.c"]
    assert found(rules("name: a, decide: allow", "name: b, decide: deny, tools: pay")) == []
    tabled = "tools: {pay: deny}\n" + rules("name: a, decide: allow, tools: pay")
    assert found(tabled) == ["rules.a: tools.pay is deny, and a deny always wins"]


def test_what_is_narrower_in_its_arguments_is_hidden() -> None:
    for wide, narrow in (
        ("{max: 100}", "{max: 50}"),
        ("{min: 1}", "{equals: 5}"),
        ("{one_of: [a, b]}", "{equals: a}"),
        ("{host: '*.example.org'}", "{host: [a.example.org, b.example.org]}"),
        ("{inside: docs}", "{inside: docs/a}"),
        ("{matches: 'a+'}", "{equals: aaa}"),
    ):
        text = rules(
            f"name: a, decide: allow, arguments: {{x: {wide}}}",
            f"name: b, decide: allow, arguments: {{x: {narrow}}}",
        )
        assert found(text), (wide, narrow)
        swapped = rules(
            f"name: a, decide: allow, arguments: {{x: {narrow}}}",
            f"name: b, decide: allow, arguments: {{x: {wide}}}",
        )
        assert found(swapped) == [], (wide, narrow)


def test_what_contradicts_itself_is_found() -> None:
    for predicate in (
        "{equals: 5, max: 1}",
        "{one_of: [1, 2], min: 3}",
        "{equals: a, matches: 'b+'}",
        "{equals: a, not: {equals: a}}",
        "{inside: docs, outside: docs}",
        "{all: {equals: 5, max: 1}}",
    ):
        assert found(rules(f"name: a, decide: ask, arguments: {{x: {predicate}}}")), predicate
    for predicate in ("{min: 1, max: 1}", "{equals: 5, max: 5}", "{inside: a, outside: a/b}"):
        assert found(rules(f"name: a, decide: ask, arguments: {{x: {predicate}}}")) == [], predicate


def test_what_stands_against_the_floor_or_only_allows_in_a_lower_layer_is_found() -> None:
    assert found("effects: {dangerous: allow}\n")
    assert found(rules("name: a, decide: allow, effects: dangerous"))
    assert found("agents: {shop: {tools: {pay: allow}, effects: {write: allow}}}\n") == [
        "agents.shop.effects.write: what a narrowing layer allows changes nothing",
        "agents.shop.tools.pay: what a narrowing layer allows changes nothing",
    ]
    assert found("roles: {x: {rules: [{name: a, decide: allow}]}}\n")
    assert found(rules("name: a, decide: ask, kinds: query, effects: write"))
    assert found("tools: {pay: allow}\n" + rules("name: a, decide: ask"))


def test_names_are_checked_where_the_tools_are_known() -> None:
    assert found("tools: {wipes: deny}\n", names=True) == [
        "tools.wipes: there is no tool 'wipes'; did you mean 'wipe'?"
    ]
    assert found("tools: {wipe: allow}\n", names=True)
    assert found("agents: {shoop: {}}\n", names=True)
    assert found(rules("name: a, decide: ask, tools: 'x*'"), names=True)
    assert found(rules("name: a, decide: ask, tools: pay, effects: read"), names=True)
    assert found(rules("name: a, decide: allow, tools: 'w*'"), names=True)
    redirect = "name: a, decide: redirect, redirect: {tool: nothing}"
    assert found(rules(redirect), names=True)
    assert found(rules("name: a, decide: ask, tools: ['p*', look]"), names=True) == []


@settings(max_examples=60)
@given(layers, st.lists(intents, min_size=4, max_size=8))
def test_a_rule_that_is_called_hidden_really_never_decides(
    policy: Policy, asked: list[Intent]
) -> None:
    file = PolicyFile(path="p", policy=policy)
    hidden = {each.place for each in findings(file) if each.place.startswith("rules.")}
    for intent in asked:
        said = policy.spoken(intent)
        if said is not None and ": " in said.rule:
            name = said.rule.partition(": ")[2]
            if f"rules.{name}" in hidden:
                # it may speak where the floor, or the kind of task, has the last word
                assert weigh(policy, intent).rule != said.rule, "hidden, and it decides"
