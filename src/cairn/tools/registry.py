"""Gathers tools from wherever they are declared: each name once."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from cairn.errors import ConfigError, ToolDefinitionError
from cairn.tools.tool import Tool, make_tool

GROUP = "cairn.tools"
"""The entry-point group in which installed packages offer tools."""

AnyTool = Tool[..., Any]


def collect(tools: Iterable[object], *, installed: bool = False) -> dict[str, AnyTool]:
    """All tools by name, in the order given.

    Args:
        tools: Each one a tool; a function, which becomes a `dangerous` tool; a module, for all
            tools in it; the dotted name of a module; or the name of an entry point of the group
            `cairn.tools`, which stands for a tool, a module, or a list of them.
        installed: Take all entry points of the group, named or not.

    Raises:
        ToolDefinitionError: two tools have one name.
        ConfigError: something given is no tool, or cannot be imported, or holds no tools.
    """
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise ConfigError("tools", f"{tools!r} is not a list", "Write tools=[...]")
    found: dict[str, AnyTool] = {}
    offered = entry_points(group=GROUP) if installed else ()
    for one in (*_tools(tools), *(tool for each in offered for tool in _loaded(each))):
        known = found.setdefault(one.name, one)
        if known is not one:
            raise ToolDefinitionError(
                f"two tools are named {one.name!r}: {known.origin} and {one.origin}. "
                'Give one of them another name with @tool(name="...")'
            )
    return found


def _tools(items: Iterable[object]) -> Iterator[AnyTool]:
    for item in items:
        match item:
            case Tool():
                yield item
            case str():
                yield from _named(item)
            case ModuleType():
                yield from _of_module(item)
            case list() | tuple():
                yield from _tools(item)
            case _ if callable(item) and not isinstance(item, type):
                yield make_tool(item, {})
            case _:
                fix = "Give tools, functions, modules or their names"
                raise ConfigError("tools", f"{item!r} is no tool", fix)


def _named(name: str) -> Iterator[AnyTool]:
    if offered := entry_points(group=GROUP, name=name):
        for each in offered:
            yield from _loaded(each)
        return
    try:
        module = importlib.import_module(name)
    except Exception as error:  # importing runs the module's own code, which may raise anything
        said = f"{name!r} cannot be imported ({type(error).__name__}: {error})"
        raise ConfigError("tools", said, "Correct the name, or install the package") from error
    yield from _of_module(module)


def entry_points(*, group: str, name: str = "") -> Iterable[Any]:
    """Installed entry points; the machinery is loaded only when something is wanted from it."""
    from importlib.metadata import entry_points as look_up

    return look_up(group=group, name=name) if name else look_up(group=group)


def _loaded(offered: Any) -> Iterator[AnyTool]:
    try:
        loaded = offered.load()
    except Exception as error:  # importing runs the package's own code, which may raise anything
        said = f"the entry point {offered.name!r} cannot be loaded ({error})"
        raise ConfigError("tools", said, "Repair or remove its package") from error
    yield from _tools((loaded,))


def _of_module(module: ModuleType) -> Iterator[AnyTool]:
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        fix = "Decorate its functions with @tool"
        raise ConfigError("tools", f"the module {module.__name__} holds no tools", fix)
    yield from found
