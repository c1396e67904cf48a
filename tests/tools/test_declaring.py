"""What `@tool` makes of a function, and what it refuses, each time with the way out."""

import functools
import subprocess
import sys
from typing import Annotated, Any

import pytest
from pydantic import Field

from cairn.core.rules import SECOND_US
from cairn.errors import ToolDefinitionError
from cairn.tools.context import Context
from cairn.tools.tool import Tool, make_tool, tool
from cairn.tools.verdicts import NOT_HAPPENED, UNKNOWN, Happened, happened, verdict_of


def pay(order: str, cents: int = 5) -> str:
    """Pay."""
    return f"{order}:{cents}"


def refused(function: Any, **options: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        make_tool(function, options)
    return str(caught.value)


def test_a_bare_tool_is_dangerous_and_runs_once() -> None:
    spec = tool(pay).spec
    assert (spec.name, spec.effect, spec.recovery, spec.kind) == (
        "pay",
        "dangerous",
        "once",
        "call",
    )
    assert (spec.timeout_us, spec.retries, spec.micro_usd) == (60 * SECOND_US, 0, 0)
    assert spec.result_bytes == 16_384


def test_a_read_may_be_repeated_and_a_write_may_not() -> None:
    assert tool(effect="read")(pay).spec.recovery == "repeat"
    assert tool(effect="write")(pay).spec.recovery == "once"


def test_a_tool_is_still_the_function_it_was() -> None:
    one = tool(effect="read")(pay)
    assert isinstance(one, Tool)
    assert one("a", cents=2) == "a:2"
    assert (one.__name__, one.__doc__, one.name) == ("pay", "Pay.", "pay")
    assert "read" in repr(one)
    assert one.origin.endswith("pay")


def test_every_option_arrives_in_the_spec() -> None:
    other = tool(effect="read", name="other")(pay)
    spec = tool(
        name="pay-out",
        effect="write",
        recovery="repeat",
        timeout=1.5,
        conflict_key="order",
        fallback=other,
        retries=3,
        backoff=0.25,
        cost=0.0000015,
        result_bytes=1000,
        settle=2,
        sources=True,
    )(pay).spec
    assert spec.name == "pay-out"
    assert spec.timeout_us == 1_500_000
    assert spec.conflict_key is not None
    assert spec.conflict_key({"order": "7", "cents": 1}) == "7"
    assert (spec.fallback, spec.retries, spec.backoff_us) == ("other", 3, 250_000)
    assert spec.micro_usd == 2  # rounded up: money is never undercounted
    assert (spec.result_bytes, spec.settle_us, spec.sources) == (1000, 2 * SECOND_US, True)
    assert tool(micro_usd=7)(pay).spec.micro_usd == 7
    assert tool(cost=0.1)(pay).spec.micro_usd == 100_000


def test_a_conflict_key_may_be_a_function_of_the_arguments() -> None:
    spec = tool(conflict_key=lambda arguments: arguments["order"].lower())(pay).spec
    assert spec.conflict_key is not None
    assert spec.conflict_key({"order": "A"}) == "a"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "reads"}, ["effect='reads'", "read, write, dangerous"]),
        ({"effect": "read", "recovery": "once"}, ["recovery='once'", "read"]),
        ({"recovery": "always"}, ["recovery='always'", "repeat, keyed, probe, once"]),
        ({"recovery": "keyed"}, ["ctx: Context", "ctx.key"]),
        ({"recovery": "probe"}, ["probe="]),
        ({"probe": pay}, ["probe=", "remove"]),
        ({"key_ttl": 5}, ["key_ttl", "keyed"]),
        ({"timeout": 0}, ["timeout=0", "more than 0"]),
        ({"timeout": float("nan")}, ["timeout=nan"]),
        ({"timeout": "5"}, ["timeout='5'"]),
        ({"settle": -1}, ["settle=-1"]),
        ({"retries": -1}, ["retries=-1"]),
        ({"retries": True}, ["retries=True"]),
        ({"result_bytes": 10}, ["result_bytes=10", "256"]),
        ({"cost": -1}, ["cost=-1"]),
        ({"cost": 1, "micro_usd": 1}, ["cost=", "micro_usd="]),
        ({"fallback": 5}, ["fallback=5"]),
        ({"fallback": "pay"}, ["its own fallback"]),
        ({"conflict_key": "oder"}, ["conflict_key='oder'", "order, cents"]),
        ({"conflict_key": 5}, ["conflict_key=5"]),
        ({"efect": "read"}, ["'efect'", "effect="]),
        ({"zzz": 1}, ["'zzz'", "timeout"]),
        ({"name": "two words"}, ["name="]),
        ({"name": "7up"}, ["name="]),
        ({"name": "x" * 65}, ["name="]),
    ],
)
def test_an_impossible_option_is_refused_with_tool_problem_and_fix(
    options: dict[str, Any], words: list[str]
) -> None:
    said = refused(pay, **options)
    assert options.get("name", "pay") in said
    assert [word for word in words if word not in said] == []


def test_a_parameter_no_model_can_fill_is_refused_by_name() -> None:
    def star(*rest: str) -> None: ...
    def stars(**rest: str) -> None: ...
    def slash(first: str, /) -> None: ...
    def bare(first) -> None: ...
    def two(a: Context, b: Context[int]) -> None: ...
    def field(limit: int = Field(5)) -> None: ...
    def odd(where: Tool) -> None: ...

    class Shop:
        def method(self, order: str) -> None: ...

    assert "*rest" in refused(star)
    assert "**rest" in refused(stars)
    assert "'first'" in refused(slash)
    assert "'first'" in refused(bare)
    assert "first: str" in refused(bare)
    assert "'a'" in refused(two)
    assert "'limit'" in refused(field)
    assert "'where'" in refused(odd)
    assert "bound method" in refused(Shop.method)


def test_what_is_no_function_is_refused() -> None:
    assert "function" in refused(5)
    assert "function" in refused(dict)
    assert "name=" in refused(functools.partial(pay, cents=3))

    async def many(n: int):
        yield n

    assert "async generator" in refused(many)


def test_partials_methods_and_callable_objects_can_be_tools() -> None:
    class Shop:
        def find(self, order: str) -> str:
            """Find an order."""
            return order

        async def __call__(self, order: str) -> str:
            """Call."""
            return order

    method = tool(effect="read")(Shop().find)
    assert method.spec.check('{"order": "a"}') == {"order": "a"}
    assert (method.name, method.schema.description) == ("find", "Find an order.")
    thing = tool(name="shop")(Shop())
    assert thing.body.is_async
    assert thing.schema.description == "Call."
    fixed = tool(name="fixed")(functools.partial(pay, order="a"))
    assert fixed.spec.check("{}") == {"order": "a", "cents": 5}


def test_the_context_is_found_by_its_type_and_hidden_from_the_model() -> None:
    def first(ctx: Context, order: str) -> str: ...
    def last(order: str, here: "Context[dict[str, int]]") -> str: ...
    def maybe(order: str, here: Context | None = None) -> str: ...
    def noted(order: str, here: Annotated[Context, "x"]) -> str: ...

    for function, name in ((first, "ctx"), (last, "here"), (maybe, "here"), (noted, "here")):
        one = make_tool(function, {"recovery": "keyed"})
        assert one.body.context == name
        assert list(one.schema.parameters["properties"]) == ["order"]
        context = Context(key="k")
        assert one.body.bind({"order": "a"}, context) == {"order": "a", name: context}


def test_a_key_may_have_an_end() -> None:
    def send(ctx: Context) -> None: ...

    assert tool(recovery="keyed", key_ttl=60)(send).spec.key_ttl_us == 60 * SECOND_US


def test_a_probe_is_given_the_arguments_it_names() -> None:
    async def look(order: str, ctx: Context) -> Any:
        return happened(order)

    one = tool(recovery="probe", probe=look)(pay)
    assert one.probe is not None
    assert one.probe.is_async
    context = Context()
    bound = one.probe.bind({"order": "7", "cents": 1}, context)
    assert bound == {"order": "7", "ctx": context}


def test_a_probe_that_wants_other_arguments_is_refused() -> None:
    def look(oder: str) -> Any: ...

    assert "'oder'" in refused(pay, recovery="probe", probe=look)
    assert "probe=5" in refused(pay, recovery="probe", probe=5)
    assert "probe of tool 'pay'" in refused(pay, recovery="probe", probe=lambda order: order)


def test_only_a_verdict_is_a_verdict() -> None:
    assert verdict_of(happened(3)) == Happened(result=3)
    assert verdict_of(NOT_HAPPENED) is NOT_HAPPENED
    for answer in (None, True, False, "happened", Happened):
        assert verdict_of(answer) is UNKNOWN


def test_types_of_the_declaring_function_are_found_even_as_text() -> None:
    from dataclasses import dataclass

    @dataclass
    class Order:
        id: str

    @tool
    def ship(order: "Order") -> str:
        return order.id

    assert ship.spec.check('{"order": {"id": "a"}}') == {"order": Order("a")}


def test_a_return_type_that_only_checkers_know_is_no_hindrance() -> None:
    def ship(order: str) -> "OnlyForCheckers": ...  # noqa: F821 - that is what is tested

    assert make_tool(ship, {}).spec.check('{"order": "a"}') == {"order": "a"}


def test_a_type_that_does_not_exist_is_named() -> None:
    def ship(order: "Odrer") -> str: ...  # noqa: F821 - that is what is tested

    assert "Odrer" in refused(ship)


def test_declaring_nothing_costs_no_pydantic() -> None:
    code = (
        "import sys, cairn.tools.tool, cairn.tools.runner, cairn.tools.registry;"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Mute(Exception):
    """An exception whose own text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Schemaless:
    """A type whose schema cannot be made."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise Mute


class Nameless(type):
    """Its types have no name that an annotation could be read from."""

    def __or__(cls, other: Any) -> Any:
        raise Mute


class Odd(metaclass=Nameless):
    """A type of that kind."""


def test_a_type_whose_fault_has_no_words_is_told_by_the_type_of_the_fault() -> None:
    def look(what: Schemaless) -> str:
        return "seen"

    def stare(what: "Odd | int") -> str:
        return "seen"

    assert "the type of the parameter 'what' has no JSON Schema (Mute)" in refused(look)
    assert "its annotations cannot be read (Mute)" in refused(stare)
