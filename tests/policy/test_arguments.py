"""What a policy asks of arguments is held to the schemas of the tools it speaks of."""

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from cairn import tool
from cairn.governance.arguments import KnownTool, argument_findings, schema_of
from cairn.governance.policy_file import parse_policy
from cairn.governance.schema_paths import place_of


class Kind(Enum):
    NEW = "new"
    OLD = "old"


class Line(BaseModel):
    sku: str
    count: int


class Order(BaseModel):
    id: str
    lines: list[Line]
    extra: dict[str, Any] = {}
    parent: "Order | None" = None


@tool(effect="write")
def pay(order: Order, cents: int, price: str, unit: Literal["EUR", "USD"] = "EUR") -> str:
    """Pay."""
    return f"{order} {cents} {price} {unit}"


@tool(effect="write")
def ship(to: list[str], kind: Kind, fast: bool | None = None, any: Any = None) -> str:
    """Ship."""
    return f"{to} {kind} {fast} {any}"


TOOLS = [
    KnownTool(name=each.name, agent=agent, effect="write", schema=schema_of(each))
    for agent, each in (("shop", pay), ("depot", ship))
]


def said(rules: str, tools: list[KnownTool] | None = None, beyond: tuple[str, ...] = ()) -> Any:
    read = parse_policy("rules:\n" + rules)
    found = argument_findings(read, TOOLS if tools is None else tools, beyond)
    return [(each.level, each.line, each.place, each.problem) for each in found]


def of(tools: str, asked: str) -> Any:
    return [
        (level, problem)
        for level, _, _, problem in said(
            f"  - {{name: r, decide: deny, tools: {tools}, arguments: {{{asked}}}}}\n"
        )
    ]


def test_an_argument_that_no_tool_has_is_said_with_its_line_and_what_was_meant() -> None:
    rules = (
        "  - name: small\n"
        "    decide: allow\n"
        "    tools: pay\n"
        "    arguments:\n"
        "      cents: {max: 5}\n"
        "      order.lnies.sku: {equals: x}\n"
    )
    assert said(rules) == [
        (
            "error",
            7,
            "rules.small.arguments.order.lnies.sku",
            "tool 'pay' has no argument 'order.lnies.sku'; did you mean 'order.lines'?",
        )
    ]
    ((_, _, _, problem),) = said(
        "  - {name: r, decide: deny, tools: pay, arguments: {cnets: {min: 1}}}\n"
    )
    assert problem == "tool 'pay' has no argument 'cnets'; did you mean 'cents'?"


def test_one_tool_that_has_the_argument_is_enough() -> None:
    assert of("[pay, ship]", "cents: {min: 1}") == []
    assert of("'*'", "cents: {min: 1}") == []
    found = of("[pay, ship]", "censt: {min: 1}")
    assert found == [
        ("error", "none of its 2 tools has an argument 'censt'; did you mean 'cents'?")
    ]


def test_only_tools_that_the_rule_can_speak_of_count() -> None:
    rule = "  - {name: r, decide: deny, AGENT, arguments: {cents: {min: 1}}}\n"
    assert said(rule.replace("AGENT", "agents: shop")) == []
    assert said(rule.replace("AGENT", "agents: depot"))[0][0] == "error"
    assert said(rule.replace("AGENT", "effects: read")) == [], (
        "that it covers none is said elsewhere"
    )
    text = (
        "agents:\n  depot:\n    rules:\n"
        "    - {name: r, decide: deny, arguments: {cents: {min: 1}}}\n"
    )
    (found,) = argument_findings(parse_policy(text), TOOLS)
    assert (found.line, found.place) == (4, "agents.depot.rules.r.arguments.cents")


def test_tools_that_are_not_known_may_have_any_argument() -> None:
    rule = "  - {name: r, decide: deny, tools: TOOLS, arguments: {x: {min: 1}}}\n"
    for tools, quiet in (("pay", False), ("s__do", True), ("'s*'", True), ("'*'", True)):
        found = said(rule.replace("TOOLS", tools), beyond=("s__",))
        assert (found == []) is quiet, tools
    assert said("  - {name: r, decide: deny, arguments: {x: {min: 1}}}\n", beyond=("s__",)) == []


@pytest.mark.parametrize(
    "asked",
    [
        "order.id: {matches: 'a+'}",
        "order.lines.count: {min: 1}",
        "order.extra.whatever: {min: 1}",
        "order.parent.parent.lines.sku: {equals: a}",
        "cents: {amount: {max: 5, currency: EUR, currency_argument: unit}}",
        "unit: {one_of: [EUR, GBP]}",
        "cents: {equals: 5.0}",
        "order.id: {equals: null}",
    ],
)
def test_what_an_argument_can_be_is_not_complained_of(asked: str) -> None:
    assert of("pay", asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        "to: {all: {matches: 'a+'}}",
        "to: {inside: docs}",
        "to: {command: {programs: git}}",
        "fast: {equals: true}",
        "kind: {equals: old}",
        "any: {min: 1}",
        "any.thing: {min: 1}",
    ],
)
def test_what_items_and_choices_can_be_is_not_complained_of(asked: str) -> None:
    assert of("ship", asked) == []


@pytest.mark.parametrize(
    ("tools", "asked", "level", "problem"),
    [
        ("pay", "price: {min: 1}", "error", "min and max want a number, and it is string"),
        ("pay", "price: {not: {max: 1}, optional: true}", "error", "want a number"),
        ("pay", "price: {amount: {max: 1}}", "warning", "only texts like '9.50'"),
        ("ship", "fast: {amount: {max: 1}}", "error", "an amount is a number, and it is boolean"),
        ("pay", "cents: {matches: 'a'}", "error", "it wants text, and it is integer"),
        ("pay", "cents: {inside: docs}", "error", "it wants text"),
        ("pay", "cents: {host: a.org}", "error", "it wants text"),
        ("ship", "fast: {command: {programs: git}}", "error", "a command is text"),
        ("pay", "cents: {equals: '5'}", "error", "it is integer, and never '5'"),
        ("pay", "cents: {equals: true}", "error", "it is integer, and never True"),
        ("pay", "unit: {one_of: [eur, usd]}", "error", "one of 'EUR', 'USD', and never 'eur'"),
        ("ship", "kind: {equals: newer}", "error", "one of 'new', 'old'"),
        (
            "pay",
            "cents: {amount: {max: 5, currency: EUR, currency_argument: unitt}}",
            "error",
            "no argument 'unitt'; did you mean 'unit'?",
        ),
    ],
    ids=range(13),
)
def test_a_predicate_that_no_value_of_the_argument_fits_is_said(
    tools: str, asked: str, level: str, problem: str
) -> None:
    ((found, text),) = of(tools, asked)
    assert found == level
    assert problem in text


def test_what_a_redirect_takes_and_gives_is_looked_at() -> None:
    rule = "  - {name: r, decide: redirect, tools: pay, redirect: {tool: ship, arguments: ARGS}}\n"
    assert said(rule.replace("ARGS", "{to: {from: order.id}, kind: {value: new}}")) == []
    assert said(rule.replace("ARGS", "{to: {from: order.lines.0.sku}}")) == []
    (found,) = said(rule.replace("ARGS", "{ot: {value: 5}}"))
    assert found[:3] == ("error", 2, "rules.r.redirect.arguments.ot")
    (found,) = said(rule.replace("ARGS", "{to: {from: ordr.id}}"))
    assert "no argument 'ordr.id'" in found[3]


@pytest.mark.parametrize(
    ("schema", "path", "there"),
    [
        ({"type": "object"}, "x", False),
        ({"type": "object", "additionalProperties": True}, "x", True),
        ({"type": "object", "patternProperties": {"^x": {}}}, "x", True),
        ({"anyOf": [{"properties": {"x": {}}}, {"properties": {"y": {}}}]}, "y", True),
        ({"if": {}, "then": {"properties": {"x": {}}}}, "x", True),
        ({"properties": {"x": {"type": "object"}}}, "x.y", True),
        ({"properties": {"x": {"type": "object", "properties": {}}}}, "x.y", False),
        ({"properties": {"x": {"type": "string"}}}, "x.y", False),
        ({"properties": {"x": {}}}, "x.y", True),
        ({"properties": {"x": True}}, "x.y", True),
        ({"properties": {"x": {"$ref": "https://a.org"}}}, "x.y", True),
        ({"properties": {"x": {"$ref": "#/properties/x"}}}, "x.y", True),
        ({"properties": 5}, "x", False),
    ],
    ids=range(13),
)
def test_where_a_schema_does_not_say_anything_may_stand_there(
    schema: dict[str, Any], path: str, there: bool
) -> None:
    assert place_of(schema, path).there is there
