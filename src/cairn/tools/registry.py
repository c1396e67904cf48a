"""Gathers tools from wherever they are declared: each name once."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from cairn.errors import ConfigError, ToolDefinitionError, safe_repr, words_of
from cairn.tools.tool import Tool, make_tool

GROUP = "cairn.tools"
"""The entry-point group in which installed packages offer tools."""

AnyTool = Tool[..., Any]


@runtime_checkable
class ToolServer(Protocol):
    """Something whose tools are known only once it was reached: a server of tools.

    It must never let what it offers change without its `version` going up.
    """

    @property
    def name(self) -> str:
        """How it is called; no two of an agent share a name."""
        ...

    @property
    def version(self) -> int:
        """Goes up whenever what it offers has changed; 0 before it was ever reached."""
        ...

    def tools(self) -> tuple[AnyTool, ...]:
        """What it offers, as far as that is known."""
        ...

    async def ready(self) -> None:
        """Reach it, if it was never reached. Raises `NotDone` or `ConfigError`."""
        ...

    async def close(self) -> None:
        """Give back what it holds; it can be reached again."""
        ...


def servers_in(tools: Iterable[object], field: str = "tools") -> tuple[ToolServer, ...]:
    """The servers among what an agent is given as tools; `field` is how messages call them.

    Raises:
        ConfigError: two of them have one name.
    """
    found = tuple(one for one in tools if isinstance(one, ToolServer))
    names = [server.name for server in found]
    if len(set(names)) != len(names):
        fix = "Give each server a name of its own"
        raise ConfigError(field, f"two servers of tools share a name: {sorted(names)}", fix)
    return found


def collect(
    tools: Iterable[object], *, installed: bool = False, field: str = "tools"
) -> dict[str, AnyTool]:
    """All tools by name, in the order given.

    Args:
        tools: Each one a tool; a function, which becomes a `dangerous` tool; a module, for all
            tools in it; the dotted name of a module; or the name of an entry point of the group
            `cairn.tools`, which stands for a tool, a module, or a list of them.
        installed: Take all entry points of the group, named or not.
        field: How the option is called in messages.

    Raises:
        ToolDefinitionError: two tools have one name.
        ConfigError: something given is no tool, or cannot be imported, or holds no tools.
    """
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise ConfigError(field, f"{safe_repr(tools)} is not a list", "Write tools=[...]")
    found: dict[str, AnyTool] = {}
    offered = entry_points(group=GROUP) if installed else ()
    for one in (*_tools(tools, field), *(t for each in offered for t in _loaded(each, field))):
        known = found.setdefault(one.name, one)
        if known is not one:
            raise ToolDefinitionError(
                f"two tools are named {one.name!r}: {known.origin} and {one.origin}. "
                'Give one of them another name with @tool(name="...")'
            )
    return found


def _tools(items: Iterable[object], field: str) -> Iterator[AnyTool]:
    for item in items:
        match item:
            case Tool():
                yield item
            case str():
                yield from _named(item, field)
            case ModuleType():
                yield from _of_module(item, field)
            case list() | tuple():
                yield from _tools(item, field)
            case ToolServer():
                continue  # what it offers is known once it was reached
            case _ if callable(item) and not isinstance(item, type):
                yield make_tool(item, {})
            case _:
                fix = "Give tools, functions, modules or their names"
                raise ConfigError(field, f"{safe_repr(item)} is no tool", fix)


def _named(name: str, field: str) -> Iterator[AnyTool]:
    if offered := entry_points(group=GROUP, name=name):
        for each in offered:
            yield from _loaded(each, field)
        return
    try:
        module = importlib.import_module(name)
    except Exception as error:  # importing runs the module's own code, which may raise anything
        said = f"{safe_repr(name)} cannot be imported ({words_of(error)})"
        fix = "Give the tool itself, without quotes; or correct the module's name, or install it"
        raise ConfigError(field, said, fix) from error
    yield from _of_module(module, field)


def entry_points(*, group: str, name: str = "") -> Iterable[Any]:
    """Installed entry points; the machinery is loaded only when something is wanted from it."""
    from importlib.metadata import entry_points as look_up

    return look_up(group=group, name=name) if name else look_up(group=group)


def _loaded(offered: Any, field: str) -> Iterator[AnyTool]:
    try:
        loaded = offered.load()
    except Exception as error:  # importing runs the package's own code, which may raise anything
        said = f"the entry point {offered.name!r} cannot be loaded ({words_of(error)})"
        raise ConfigError(field, said, "Repair or remove its package") from error
    yield from _tools((loaded,), field)


def _of_module(module: ModuleType, field: str) -> Iterator[AnyTool]:
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        fix = "Decorate its functions with @tool"
        raise ConfigError(field, f"the module {module.__name__} holds no tools", fix)
    yield from found
