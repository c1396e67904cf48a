"""Declaring hooks: what cannot be is refused at once, with the name of the option and the fix."""

from typing import Any

import pytest

from cairn import (
    Agent,
    ConfigError,
    Deny,
    HookCall,
    Rewrite,
    Runtime,
    Scripted,
    before_model,
    before_tool,
    tool,
)
from cairn.hooks import Hook


def look(call: HookCall) -> None:
    """Look on."""


@tool(effect="write")
def refund() -> str:
    return "refunded"


def test_both_forms_of_the_decorator_make_a_hook_that_can_be_called() -> None:
    plain, named = before_tool(look), before_tool(name="n", timeout=1, tools=["refund"])(look)
    assert (plain.name, plain.timeout_s, plain.on_error, plain.tools) == ("look", 5.0, "deny", None)
    assert (named.name, named.timeout_s, named.tools) == ("n", 1.0, ("refund",))
    assert plain.__doc__ == "Look on."
    assert plain(None) is None
    assert before_model(look).on_error == "ignore"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 61}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"on_error": "allow"}, "on_error"),
        ({"name": "two words"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": 7}, "name"),
        ({"tools": []}, "tools"),
        ({"tools": "pay"}, "tools"),
        ({"tools": [7]}, "tools"),
    ],
)
def test_options_that_cannot_be_used_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        before_tool(**options)(look)
    assert raised.value.field.endswith(f".{field}")
    assert raised.value.fix


@pytest.mark.parametrize("given", [None, 7, "a text", Hook, before_tool(look)])
def test_only_functions_become_hooks(given: Any) -> None:
    with pytest.raises(ConfigError):
        before_tool()(given)


@pytest.mark.parametrize(
    "given", [lambda: None, lambda a, b: None, lambda *, call: None], ids=["none", "two", "named"]
)
def test_a_function_that_cannot_take_the_call_is_refused_at_once(given: Any) -> None:
    with pytest.raises(ConfigError, match="one argument"):
        before_tool(name="x")(given)


@pytest.mark.parametrize(
    "given",
    [look, [look], before_tool(look), "a text", 7],
    ids=["function", "functions", "hook", "text", "number"],
)
def test_agents_and_runtimes_take_lists_of_hooks_only(given: Any) -> None:
    with pytest.raises(ConfigError, match="hooks"):
        Agent("a", Scripted([]), hooks=given)
    with pytest.raises(ConfigError, match="hooks"):
        Runtime(":memory:", hooks=given)


def test_two_hooks_of_one_name_are_refused_also_across_runtime_and_agent() -> None:
    one, other = before_tool(name="x")(look), before_model(name="x")(look)
    with pytest.raises(ConfigError, match="two hooks are named 'x'"):
        Agent("a", Scripted([]), hooks=[one, other])
    agent = Agent("a", Scripted([]), hooks=[other])
    with pytest.raises(ConfigError, match="two hooks are named 'x'"):
        Runtime(":memory:", [agent], hooks=[one])


def test_a_misspelt_tool_would_guard_nothing_and_is_refused() -> None:
    guard = before_tool(tools=["refnud"])(look)
    with pytest.raises(ConfigError, match="Did you mean refund"):
        Agent("a", Scripted([]), tools=[refund], hooks=[guard])
    agent = Agent("a", Scripted([]), tools=[refund])
    with pytest.raises(ConfigError, match=r"Runtime\.hooks.*Did you mean refund"):
        Runtime(":memory:", [agent], hooks=[guard])


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (lambda: Deny(5), r"Deny\.reason: it is of type int"),  # type: ignore[arg-type]  # wrong
        (lambda: Rewrite(None), r"Rewrite\.arguments: it is of type NoneType"),  # type: ignore[arg-type]  # wrong
    ],
)
def test_an_answer_that_can_be_none_is_refused_where_it_is_made(made: Any, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        made()


def test_too_many_hooks_are_refused() -> None:
    hooks = [before_tool(name=f"h{n}")(look) for n in range(33)]
    with pytest.raises(ConfigError, match="too many"):
        Agent("a", Scripted([]), hooks=hooks)
