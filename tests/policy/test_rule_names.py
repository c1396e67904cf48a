"""Labels, arguments and secrets that are misspelt are refused when the runtime is made."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.kit import RAW

from cairn import Agent, ApprovalTerms, Budget, ConfigError, Policy, Runtime, Scripted, call, tool
from cairn.core.policy import Amount, From, Range, Redirect, Rule
from cairn.errors import UnknownArguments, UnknownLabels
from cairn.governance.policy_file import PolicyFileError, parse_policy
from cairn.governance.secrets import Secrets
from cairn.mcp import McpServer
from cairn.mcp.options import ToolOptions


@tool(effect="read", taint="web")
def look() -> str:
    """Look."""
    return "x"


@tool(effect="write")
def pay(cents: int, note: str = "") -> str:
    """Pay."""
    return "paid"


@tool(effect="write", secrets=("bank",))
def login() -> str:
    """Log in."""
    return "in"


def runtime(*rules: Rule, tools: Any = (look, pay), **options: Any) -> Runtime:
    agent = Agent("a", Scripted(["done"]), tools=list(tools), **options.pop("agent", {}))
    options.setdefault("policy", Policy(rules=rules, labels=options.pop("labels", ())))
    return Runtime(":memory:", [agent], **options)


def rule(**fields: Any) -> Rule:
    return Rule(name="no", decide="deny", **fields)


# ---------------------------------------------------------------- labels


def test_a_misspelt_label_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownLabels, match=r"rules\.no\.taint\.wbe.*Did you mean 'web'\?") as told:
        runtime(rule(tools=("pay",), taint=("wbe",)))
    assert told.value.names == ("wbe",)


@pytest.mark.parametrize("label", ["memory:untrustd", "mcp:shpo", "mpc:*", "wbe*"])
def test_labels_of_memory_and_of_servers_are_known_beforehand(label: str) -> None:
    shop = McpServer("shop", command=["false"])
    with pytest.raises(UnknownLabels, match="nothing brings this label"):
        runtime(rule(taint=(label,)), tools=(look, shop))


@pytest.mark.parametrize(
    "label",
    [
        *("web", "w*", "memory", "memory:*", "memory:untrusted", "memory:unchecked"),
        *("mcp:shop", "mcp:*", "any", "none"),
    ],
)
def test_labels_that_something_brings_are_taken(label: str) -> None:
    shop = McpServer("shop", command=["false"])
    runtime(rule(taint=(label,)), tools=(look, shop)).close()


def test_labels_from_elsewhere_are_declared_in_the_policy() -> None:
    runtime(rule(taint=("erp",)), labels=("erp",)).close()
    own = {"policy": Policy(rules=(rule(taint=("erp",)),))}
    runtime(labels=("erp",), agent=own).close()
    with pytest.raises(UnknownLabels, match=r"Agent\('a'\)\.policy.*'erp'"):
        runtime(agent=own)
    text = "labels: [erp]\nrules: [{name: never, decide: deny, taint: erp}]"
    runtime(policy=parse_policy(text).policy).close()


@pytest.mark.parametrize("labels", ["erp", [5], (5,), 5])
def test_labels_are_a_tuple_of_texts(labels: Any) -> None:
    with pytest.raises(ConfigError, match="labels"):
        Policy(labels=labels)


def test_a_label_of_another_agents_tool_may_come_in_by_the_session() -> None:
    narrowed = Policy(rules=(rule(taint=("web",)),))
    agents = [
        Agent("reader", Scripted(["done"]), tools=[look]),
        Agent("payer", Scripted(["done"]), tools=[pay], policy=narrowed),
    ]
    Runtime(":memory:", agents).close()


def test_a_run_with_a_misspelt_label_or_argument_does_not_begin() -> None:
    with runtime() as rt:
        with pytest.raises(UnknownLabels, match="Did you mean 'web'"):
            rt.run("a", "t", policy=Policy(rules=(rule(taint=("wbe",)),)))
        narrowed = Policy(rules=(rule(tools=("pay",), arguments={"cnets": Range(min=1)}),))
        with pytest.raises(UnknownArguments, match="Did you mean 'cents'"):
            rt.run("a", "t", policy=narrowed)
        assert rt.runs() == []


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "fields",
    [
        {"arguments": {"cnets": Range(min=1)}},
        {"arguments": {"cents": Amount(max=9, currency="EUR", currency_argument="nte")}},
        {
            "decide": "redirect",
            "redirect": Redirect(tool="pay", arguments={"cnts": From(path="x")}),
        },
    ],
)
def test_a_misspelt_argument_is_refused_when_the_runtime_is_made(fields: dict[str, Any]) -> None:
    made = Rule(**{"name": "no", "decide": "deny", "tools": ("pay",), **fields})
    with pytest.raises(UnknownArguments, match=r"tool 'pay' has no argument.*Did you mean"):
        runtime(made)


def test_arguments_that_one_of_the_tools_has_are_taken() -> None:
    runtime(rule(arguments={"cents": Range(min=1)})).close()
    runtime(rule(tools=("*",), arguments={"note": Range(min=1)})).close()  # types: policy check


def test_the_line_of_a_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "rules:\n"
        "  - {name: a, decide: deny, tools: pay, arguments: {cnets: {min: 1}}}\n"
        "  - {name: b, decide: deny, tools: pay, arguments: {noet: {equals: x}}}\n"
    )
    with pytest.raises(UnknownArguments) as told:
        runtime(policy=file)
    first, second = str(told.value).splitlines()
    assert (f"({file}:2)" in first, f"({file}:3)" in second) == (True, True)
    file.write_text("rules:\n  - name: a\n    decide: deny\n    taint: wbe\n")
    with pytest.raises(UnknownLabels, match=r"p\.yaml:2\)"):
        runtime(policy=file)


def test_an_argument_of_a_servers_tool_is_looked_for_when_it_was_reached() -> None:
    listed = [{"name": "pay", "inputSchema": {"type": "object", "properties": {"cents": {}}}}]
    command = [sys.executable, "-I", "-S", RAW, json.dumps({"tools": listed})]

    async def begun(path: str) -> str:
        shop = McpServer("shop", command=command)
        rt = runtime(rule(tools=("shop__pay",), arguments={path: Range(min=1)}), tools=(shop,))
        try:
            return (await rt.run_async("a", "t")).status
        finally:
            await rt.close_async()

    with pytest.raises(UnknownArguments, match=r"shop__pay.*Did you mean 'cents'"):
        asyncio.run(begun("cnets"))
    assert asyncio.run(begun("cents")) == "completed"


@pytest.mark.parametrize("kind", [Range, Amount])
def test_a_range_in_which_nothing_lies_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="nothing is 5 or more and 1 or less"):
        kind(min=5, max=1)


# ---------------------------------------------------------------- secrets and budgets


def test_a_secret_that_was_registered_under_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tool 'login'\.secrets.*'bank'.*Did you mean 'bnk'"):
        runtime(tools=(login,), secrets={"bnk": "long-enough-value"})
    runtime(tools=(login,), secrets={"bank": "long-enough-value"}).close()
    runtime(tools=(login,)).close()  # none are registered: the call says so


def test_secrets_of_principals_are_looked_for_at_the_call() -> None:
    runtime(tools=(login,), secrets=Secrets(lambda who: {})).close()


def test_a_budget_of_an_agent_that_is_not_here_is_said(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "cairn"):
        runtime(budgets=[Budget(calls=1, only={"agent": "a"})]).close()
        assert caplog.messages == []
        shop = Agent("shop", Scripted(["done"]))
        only = {"agent": ["shpo", "shop", "x"]}
        Runtime(":memory:", [shop], budgets=[Budget(calls=1, name="b", only=only)]).close()
    assert caplog.messages == [
        "budget b counts agent 'shpo', which is not here; did you mean 'shop'?",
        "budget b counts agent 'x', which is not here; another process may have it",
    ]


# ---------------------------------------------------------------- what is misspelt in Python


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Policy(tools=("pay",)), r"policy\.tools: \('pay',\) is no mapping"),
        (lambda: Policy(agents=["a"]), r"policy\.agents: \['a'\] is no mapping"),
        (lambda: Policy(rule=()), r"Policy\.rule: there is no such field. Did you mean 'rules'\?"),
        (lambda: rule(tool=("pay",)), r"Rule\.tool: .*Did you mean 'tools'\?"),
        (lambda: ToolOptions(efect="read"), r"ToolOptions\.efect: .*Did you mean 'effect'\?"),
        (lambda: McpServer("s", command=["x"], effects=["x"]), r"effects: \['x'\] is no mapping"),
        (lambda: ApprovalTerms(expires_in="1h"), "Give seconds as a number"),
    ],
)
def test_what_cannot_be_is_a_typed_error_with_the_fix(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (lambda rt: rt.take_over("r", "x", by="ann", did="c1"), "did: 'c1' is no mapping"),
        (lambda rt: rt.take_over("r", "x", by="ann", did={"c1": object()}), r"did\.c1: "),
        (lambda rt: rt.take_over("r", "x", by="ann", answer=object()), "answer: "),
        (lambda rt: rt.take_over("r", 5, by="ann"), "reason: 5 is no text"),
        (lambda rt: rt.hand_back("r", 5, by="ann"), "message: 5 is no text"),
        (lambda rt: rt.approve("r/1", 6), "message: 6 is no text"),
        (lambda rt: rt.deny("r/1", 7), "message: 7 is no text"),
        (lambda rt: rt.revoke_grant("1"), "'1' is no number of a grant"),
        (lambda rt: rt.revoke_grant(True), "True is no number of a grant"),
    ],
)
def test_a_verb_that_is_given_something_else_says_which_field(verb: Any, said: str) -> None:
    agent = Agent("a", Scripted([call("pay", cents=1), "done"]), tools=[pay])
    with Runtime(":memory:", [agent]) as rt:
        rt.run("a", "t", id="r")
        before = rt.trace("r")
        with pytest.raises(ConfigError, match=said):
            verb(rt)
        assert rt.trace("r") == before


# ---------------------------------------------------------------- fixes in files


def faults(text: str) -> str:
    with pytest.raises(PolicyFileError) as told:
        parse_policy(text)
    return str(told.value)


@pytest.mark.parametrize(
    ("approval", "said"),
    [
        ("{other_person: yes}", "Write true"),
        ("{other_person: 'yes'}", "Write true or false, without quotes"),
        ("{other_person: no}", "Write false"),
        ("{expires_in: 1h}", "a length of time is a number of seconds: Write 3600"),
        ("{expires_in: 90m}", "Write 5400"),
        ("{expires_in: soon}", "Write a number without quotes: 3600 is an hour"),
    ],
)
def test_what_is_to_be_written_instead_is_what_will_do(approval: str, said: str) -> None:
    text = f"rules: [{{name: a, decide: ask, tools: pay, approval: {approval}}}]"
    assert said in faults(text)


def test_a_predicates_own_word_without_its_name_is_told_where_it_belongs() -> None:
    text = "rules: [{name: a, decide: deny, tools: shell, arguments: {command: {programs: git}}}]"
    told = faults(text)
    assert "It belongs inside command: write command: {programs: ...}" in told
    right = text.replace("{programs: git}", "{command: {programs: git}}")
    assert parse_policy(right).policy.rules[0].arguments["command"]
    amount = "rules: [{name: a, decide: deny, arguments: {cents: {currency: EUR}}}]"
    assert "write amount: {currency: ...}" in faults(amount)


def test_an_agent_that_is_not_there_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("effects: {write: ask}\nagents:\n  aa: {effects: {write: deny}}\n")
    with pytest.raises(ConfigError, match=r"agents\.aa: there is no agent 'aa' .*p\.yaml:3\)"):
        runtime(policy=file)
