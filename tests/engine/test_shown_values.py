"""Whatever value is handed in, what refuses it can show it: safely, and in few words."""

import inspect
from functools import partial
from typing import Any

import pytest
from tests.engine.test_wrong_values import Unshowable

from cairn import (
    Agent,
    ApprovalTerms,
    Budget,
    CairnError,
    ContextBlock,
    Ladder,
    Limits,
    McpServer,
    MemoryRules,
    Policy,
    Price,
    RemoteModel,
    Route,
    Rule,
    Runtime,
    Scripted,
    Tier,
    TrafficLimits,
    before_model,
    before_tool,
    tool,
)
from cairn.engine.given import check_call, check_request, commands_of
from cairn.errors import UsageError, safe_repr
from cairn.tools.options import Options


class Whole(int):
    """A whole number of another type."""


VALUES = {
    "endless": 10**5_000,
    "endless, of another type": Whole(10**5_000),
    "minus endless": -(10**5_000),
    "endless in a list": [10**5_000],
    "endless in a mapping": {"a": 10**5_000},
    "endless in a tuple": (10**5_000,),
    "unshowable": Unshowable(),
    "unshowable in a list": [Unshowable()],
    "unshowable in a mapping": {"a": Unshowable()},
}


UNSHOWN = ("nobody can show this", "Exceeds the limit")
"""What is said where a value was to be shown that cannot be."""


def runtime(**options: Any) -> None:
    """Make a runtime, and close it."""
    Runtime(**options).close()


def pay(order: str) -> str:
    """Pay."""
    return order


def hooked(kind: Any, **options: Any) -> None:
    """Declare a hook."""
    kind(**options)(pay)


def declared(**options: Any) -> None:
    """Declare a tool."""
    tool(**{"effect": "write", **options})(pay)


OF_TOOLS = tuple(Options.__annotations__)
MADE: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "Agent": (Agent, {"name": "a", "model": Scripted([])}, Agent),
    "ApprovalTerms": (ApprovalTerms, {}, ApprovalTerms),
    "Budget": (Budget, {"window": "day", "usd": 1}, Budget),
    "ContextBlock": (ContextBlock, {"name": "a", "text": "b"}, ContextBlock),
    "Ladder": (Ladder, {}, Ladder),
    "Limits": (Limits, {}, Limits),
    "McpServer": (McpServer, {"name": "a", "url": "https://example.org"}, McpServer),
    "MemoryRules": (MemoryRules, {}, MemoryRules),
    "Policy": (Policy, {}, Policy),
    "Price": (Price, {}, Price),
    "Route": (Route, {"agent": "a"}, Route),
    "Rule": (Rule, {"name": "a", "decide": "allow"}, Rule),
    "Runtime": (runtime, {"store": ":memory:", "agents": []}, Runtime),
    "Scripted": (Scripted, {"script": []}, Scripted),
    "Tier": (Tier, {}, Tier),
    "TrafficLimits": (TrafficLimits, {}, TrafficLimits),
    "RemoteModel": (RemoteModel, {"name": "openai:gpt-4.1", "api_key": "k"}, RemoteModel),
    "before_model": (partial(hooked, before_model), {"name": "a"}, before_model),
    "before_tool": (partial(hooked, before_tool), {"name": "a"}, before_tool),
    "tool": (declared, {}, OF_TOOLS),
}
"""What people make, with what it needs, and whose parameters are tried."""


def parameters(of: Any) -> list[str]:
    """The names of what it takes."""
    if isinstance(of, tuple):
        return list(of)
    kinds = inspect.Parameter
    return [
        name
        for name, each in inspect.signature(of).parameters.items()
        if each.kind in {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY} and name != "function"
    ]


@pytest.mark.parametrize("what", MADE)
def test_no_value_hides_by_what_it_is_that_it_was_wrong(what: str) -> None:
    make, needed, of = MADE[what]
    strange: list[str] = []
    for name in parameters(of):
        for said, value in VALUES.items():
            try:
                make(**needed | {name: value})
            except CairnError as error:
                if len(str(error)) > 1_000:
                    strange.append(f"{name}: {said}: {len(str(error)):,} characters")
            except OverflowError as error:
                strange.append(f"{name}: {said}: {error}")
            except ValueError as error:
                strange += [f"{name}: {said}: {error!s:.60}" for x in UNSHOWN if x in str(error)]
            except (TypeError, AttributeError):
                pass  # another type than it is declared to be, which is said by Python
    assert not strange, "\n".join(strange)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_name_of_what_is_decided_is_refused_whatever_it_is(value: Any) -> None:
    keys = [value] if value.__hash__ else []  # the others can be no key
    edits: list[Any] = [{"arguments": {key: {}}} for key in keys if not isinstance(key, tuple)]
    for check, given in (
        (check_request, value),
        (check_call, value),
        (tool, value),
        *((commands_of, each) for each in edits),
    ):
        with pytest.raises(UsageError) as caught:
            check(given)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "5"),
        (True, "True"),
        ("a", "'a'"),
        ({"a": [1, None]}, "{'a': [1, None]}"),
        ("two\nlines\0\ud800", r"'two\nlines\x00\ud800'"),
        (10**5_000, "<int of 16,610 bits>"),
        (Whole(10**5_000), "<Whole that cannot be shown>"),
        (Unshowable(), "<Unshowable that cannot be shown>"),
        ([Unshowable(), 7], "[<Unshowable that cannot be shown>, 7]"),
        (range(3), "range(0, 3)"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_value_is_shown_on_one_line_whatever_it_is(value: object, shown: str) -> None:
    assert safe_repr(value) == shown


def test_a_value_is_shown_in_few_characters_however_large_it_is() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    values: list[object] = ["x" * 10**6, b"x" * 10**6, [1] * 10**6, {n: n for n in range(10**5)}]
    for value in (*values, deep, [[["x" * 500] * 50] * 50] * 50, tuple(values)):
        assert len(safe_repr(value)) <= 200
        assert len(safe_repr(value, 20)) <= 20
