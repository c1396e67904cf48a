"""Tools are gathered from wherever they are declared, and each name stands for one."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import pytest

from cairn.errors import ConfigError, ToolDefinitionError
from cairn.tools import builtin, registry
from cairn.tools.registry import collect
from cairn.tools.tool import tool


@tool(effect="read")
def look(order: str) -> str:
    return order


def plain(order: str) -> str:
    return order


@pytest.fixture
def offers(monkeypatch) -> Any:
    """Pretend that installed packages offer these objects as entry points."""

    def offer(**things: Any) -> None:
        module = ModuleType("cairn_test_offers")
        vars(module).update(things)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points = EntryPoints(
            EntryPoint(name.replace("_", "-"), f"{module.__name__}:{name}", registry.GROUP)
            for name in things
        )
        monkeypatch.setattr(registry, "entry_points", points.select)

    return offer


def test_tools_functions_modules_and_names_are_gathered_in_order() -> None:
    found = collect([look, plain, builtin, "cairn.tools.builtin"])
    assert list(found) == [
        "look",
        "plain",
        "ask_user",
        "update_plan",
        "read_artifact",
        "search_history",
        "find_tools",
    ]
    assert found["look"] is look
    assert found["plain"].spec.effect == "dangerous"


def test_an_installed_package_offers_tools_by_name_or_all_together(offers) -> None:
    offers(shop_tools=[look, plain], more=builtin)
    assert list(collect(["shop-tools"])) == ["look", "plain"]
    assert list(collect([], installed=True))[:2] == ["look", "plain"]
    assert len(collect([], installed=True)) == 7
    assert collect([]) == {}


def test_two_tools_of_one_name_are_refused_with_both_origins() -> None:
    @tool(name="look")
    def other(order: str) -> str:
        return order

    with pytest.raises(ToolDefinitionError) as caught:
        collect([look, other])
    assert "'look'" in str(caught.value)
    assert look.origin in str(caught.value)
    assert "other" in str(caught.value)


@pytest.mark.parametrize("wrong", [5, None, dict, {"a": 1}, object()], ids=repr)
def test_what_is_no_tool_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="tools"):
        collect([wrong])


def test_a_list_is_asked_for() -> None:
    for wrong in ("look", 5, None):
        with pytest.raises(ConfigError, match="list"):
            collect(wrong)


def test_a_module_that_is_missing_broken_or_empty_is_named(monkeypatch, tmp_path, offers) -> None:
    (tmp_path / "broken_tools_for_test.py").write_text("1 / 0")
    mute = "class Mute(Exception):\n    def __str__(self):\n        raise SystemExit(3)\nraise Mute"
    (tmp_path / "mute_tools_for_test.py").write_text(mute)
    monkeypatch.syspath_prepend(tmp_path)
    for name in (
        "no_such_module_here",
        "broken_tools_for_test",
        "mute_tools_for_test",
        "json",
        " ",
    ):
        with pytest.raises(ConfigError, match=name):
            collect([name])
    monkeypatch.setattr(
        registry,
        "entry_points",
        EntryPoints([EntryPoint("gone", "no_such_module_here", registry.GROUP)]).select,
    )
    with pytest.raises(ConfigError, match="gone"):
        collect(["gone"])
