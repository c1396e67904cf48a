"""Whatever people make takes no value of another type, or says in words which one and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_shown_values import MADE, parameters

from cairn import (
    Agent,
    CairnError,
    Cassette,
    ConfigError,
    ErrorClass,
    Intake,
    Ladder,
    McpServer,
    Need,
    Route,
    Rung,
    Runtime,
    Scripted,
    Secrets,
    Tier,
    memory_block,
)
from cairn.core.policy import (
    AllOf,
    Amount,
    Command,
    Equals,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Range,
    Redirect,
    Spend,
)
from cairn.mcp import ToolOptions
from cairn.sandbox import Limits, Minimum, Sandbox
from cairn.store import open_store
from cairn.toolkit import http_tool, python_tool, shell_tool
from cairn.workspace import Workspace, WorkspaceLimits, Workspaces

OTHERS: dict[str, Any] = {
    "five": 5,
    "minus one": -1,
    "half": 0.5,
    "True": True,
    "None": None,
    "word": "x",
    "bytes": b"x",
    "list": [],
    "list of numbers": [5],
    "list of words": ["x"],
    "tuple of numbers": (1, 2),
    "set": {1},
    "mapping": {},
    "mapping of numbers": {5: 5},
    "mapping of a word": {"a": 5},
    "mapping of a list": {"a": [5]},
    "object": object(),
}
HERE = Path(__file__).parent


def within(make: Callable[[Any], Any], part: Any) -> Any:
    """Make something of a part, which is checked there."""
    return lambda **given: make(part(**given))


def opened(**given: Any) -> None:
    """A runtime with such a route."""
    Runtime(":memory:", [Agent("a", Scripted([]))], routes=[Route(**given)]).close()


MORE: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "AllOf": (AllOf, {"predicates": (Equals(1),)}, AllOf),
    "Amount": (Amount, {"max": 1}, Amount),
    "Cassette": (Cassette, {"path": "none.jsonl", "model": Scripted([])}, Cassette),
    "Command": (Command, {"programs": ("git",)}, Command),
    "Equals": (Equals, {"value": 1}, Equals),
    "Host": (Host, {"hosts": ("a.org",)}, Host),
    "IfGiven": (IfGiven, {"predicate": Equals(1)}, IfGiven),
    "Inside": (Inside, {"roots": ("/a",)}, Inside),
    "Items": (Items, {"mode": "any", "predicate": Equals(1)}, Items),
    "Matches": (Matches, {"pattern": "a"}, Matches),
    "Not": (Not, {"predicate": Equals(1)}, Not),
    "OneOf": (OneOf, {"values": (1,)}, OneOf),
    "Range": (Range, {"max": 1}, Range),
    "Redirect": (Redirect, {"tool": "a"}, Redirect),
    "Spend": (Spend, {"calls": 1}, Spend),
    "Intake": (Intake, {"model": Scripted([])}, Intake),
    "Need": (
        within(lambda need: Intake(needs=[need]), Need),
        {"name": "a", "question": "b?", "pattern": "c"},
        Need,
    ),
    "Rung": (
        within(lambda rung: Ladder(rows={ErrorClass.TIMEOUT: (rung,)}), Rung),
        {"disposition": "retry"},
        Rung,
    ),
    "Route": (opened, {"agent": "a"}, Route),
    "Secrets": (Secrets, {}, Secrets),
    "Tier": (Tier, {"above": 1, "input": 1, "output": 1}, Tier),
    "ToolOptions": (
        within(lambda one: McpServer("a", url="https://a.org", effects={"b": one}), ToolOptions),
        {"effect": "read"},
        ToolOptions,
    ),
    "Limits of a sandbox": (Limits, {}, Limits),
    "Minimum": (Minimum, {"rung": "landlock"}, Minimum),
    "Sandbox": (Sandbox, {}, Sandbox),
    "WorkspaceLimits": (WorkspaceLimits, {}, WorkspaceLimits),
    "Workspaces": (Workspaces, {"base": HERE}, Workspaces),
    "Workspace": (Workspace, {"root": HERE}, Workspace),
    "http_tool": (http_tool, {}, http_tool),
    "memory_block": (memory_block, {}, memory_block),
    "open_store": (open_store, {"url_or_path": ":memory:"}, open_store),
    "python_tool": (python_tool, {}, python_tool),
    "shell_tool": (shell_tool, {}, shell_tool),
}
ALL = MADE | MORE


@pytest.mark.parametrize("what", ALL)
def test_a_value_of_another_type_is_refused_in_words_or_works(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a word can be a path
    make, needed, of = ALL[what]
    strange: list[str] = []
    for name in parameters(of):
        for said, value in OTHERS.items():
            try:
                make(**needed | {name: value})
            except CairnError as error:
                if isinstance(error, ConfigError) and not error.fix:
                    strange.append(f"{name}: {said}: {error} says no fix")
            except Exception as error:  # whatever else it is, is the fault looked for
                strange.append(f"{name}: {said}: {type(error).__name__}: {error!s:.100}")
    assert not strange, "\n".join(strange)
