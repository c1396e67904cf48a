"""The page of public names."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from rendering.spelling import (
    NOTE,
    documented,
    fields_table,
    first_paragraph,
    parsed,
    signature,
    table,
)

import cairn
from cairn.errors import CairnError, ErrorClass
from cairn.tools.tool import Tool

MADE_FOR_YOU = {"Context", "Tool"}
"""Classes whose objects the runtime makes; how they are built is no business of a user's."""
ORDER = ("Tasks", "Ground", "Decisions", "Takeovers", "Granting", "Remembering", "Looks")
"""The rooms that a runtime's verbs stand in, in the order of the page."""
ABOUT = """\
Everything that `from cairn import …` gives, each name loaded on first use; behind it what
`cairn.core.policy`, `cairn.workspace`, `cairn.sandbox` and `cairn.toolkit` give."""
ROOMS = ("cairn.core.policy", "cairn.workspace", "cairn.sandbox", "cairn.toolkit")
"""What else is public: all that these name, where it is not among the names of `cairn` already."""
OPEN_KINDS = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def reference() -> str:
    """All public names."""
    parts = [
        "# Reference",
        NOTE,
        ABOUT,
    ]
    homes: dict[str, list[str]] = {}
    for name in cairn.__all__:
        if not name.startswith("_"):
            homes.setdefault(cairn._NAMES[name], []).append(name)  # noqa: SLF001 - the one list
    for home, names in homes.items():
        parts.append(f"## `{home}`")
        parts.append(first_paragraph(importlib.import_module(home)))
        parts += [public_name(name, getattr(cairn, name)) for name in names]
    for home in ROOMS:
        room = importlib.import_module(home)
        parts += [f"## `from {home} import …`", first_paragraph(room)]
        told = [
            name for name in room.__all__ if getattr(cairn, name, None) is not getattr(room, name)
        ]
        parts += [room_name(home, name, getattr(room, name)) for name in told]
    return "\n\n".join(parts) + "\n"


def room_name(home: str, name: str, thing: Any) -> str:
    """A public name of a room, which may also be a tool, a type or a value."""
    if isinstance(thing, Tool):
        said = first_paragraph(thing.function)
        return f"### `{name}`\n\n{said} A tool; see [built-in tools](toolkit.md#{name})."
    if inspect.isclass(thing) and issubclass(thing, msgspec.Struct):
        resolvable(thing, home)
        shown = [member_entry(name, *each) for each in members(thing) if each[0] != "test"]
        parts = [f"### `{name}`", first_paragraph(thing), fields_table(thing), *shown]
        return "\n\n".join(filter(None, parts))
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return public_name(name, thing)
    about = module_docs(home).get(name, "")
    shown = value_told(thing)
    return "\n\n".join(filter(None, [f"### `{name}`", about, shown]))


def resolvable(cls: type, home: str) -> None:
    """Let the types of its fields be found that its module imports for type checkers only."""
    room, own = vars(importlib.import_module(home)), vars(importlib.import_module(cls.__module__))
    for name in room["__all__"]:
        own.setdefault(name, room[name])


def value_told(thing: Any) -> str:
    """A value or the alias of a type, as one would write it."""
    if typing.get_origin(thing) is typing.Literal:
        return "One of " + ", ".join(f"`{each}`" for each in typing.get_args(thing)) + "."
    if isinstance(thing, types.UnionType):
        return "One of " + ", ".join(f"`{each.__name__}`" for each in thing.__args__) + "."
    if isinstance(thing, tuple) and all(isinstance(each, Tool) for each in thing):
        return ", ".join(f"`{each.name}`" for each in thing) + "."
    return f"`{thing!r}`"


def module_docs(home: str) -> dict[str, str]:
    """What stands as a string below a value, in the module it comes from or one of its room."""
    found: dict[str, str] = {}
    folder = Path(str(importlib.import_module(home).__file__)).parent
    for path in sorted(folder.glob("*.py")):
        body = parsed(path).body
        for node, text in pairwise(body):
            if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
                continue
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = " ".join(str(text.value.value).split())
    return found


def public_name(name: str, thing: Any) -> str:
    if name == "ErrorClass":
        kinds = ", ".join(f"`{each.value}`" for each in ErrorClass)
        return f"### `{name}`\n\n{first_paragraph(thing)}\n\n{kinds}"
    if inspect.isclass(thing) and issubclass(thing, msgspec.Struct):
        return f"### `{name}`\n\n{first_paragraph(thing)}\n\n{fields_table(thing)}".rstrip()
    if inspect.isclass(thing):
        return class_entry(name, thing)
    if inspect.isfunction(thing):
        return f"### `{name}`\n\n```text\n{signature(name, thing)}\n```\n\n{first_paragraph(thing)}"
    return f"### `{name}`\n\n{first_paragraph(type(thing))}"


def class_entry(name: str, cls: type) -> str:
    parts = [f"### `{name}`"]
    if "__init__" in vars(cls) and name not in MADE_FOR_YOU:
        parts.append(f"```text\n{signature(name, cls.__init__)}\n```")
    base = cls.__mro__[1].__name__
    kind = f" A `{base}`." if issubclass(cls, CairnError) and cls is not CairnError else ""
    parts.append(first_paragraph(cls) + kind)
    for section, head in (("Args", "argument"), ("Attributes", "attribute")):
        if about := documented(cls, section):
            parts.append(table((head, ""), [(f"`{k}`", v) for k, v in about.items()]))
    if not issubclass(cls, CairnError):
        parts += [member_entry(name, *each) for each in members(cls)]
    return "\n\n".join(parts)


def members(cls: type) -> Iterator[tuple[str, Any, Any]]:
    """The public members of a class, each with the coroutine that is its twin, if it has one."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("cairn.runtime")] or [cls]
    for base in sorted(ours, key=lambda each: (each is cls, place_of(each.__name__))):
        for name, member in vars(base).items():
            plain_twin = name.endswith("_async") and hasattr(cls, name.removesuffix("_async"))
            if name.startswith("_") or plain_twin:
                continue
            if isinstance(member, property) or inspect.isfunction(member):
                yield name, member, vars(base).get(f"{name}_async")


def place_of(room: str) -> int:
    return ORDER.index(room) if room in ORDER else len(ORDER)


def member_entry(owner: str, name: str, member: Any, twin: Any) -> str:
    if isinstance(member, property):
        return f"#### `{owner}.{name}`\n\n{first_paragraph(member.fget)}"
    kinds = {each.kind for each in inspect.signature(member).parameters.values()}
    told = member if twin is None or not kinds & OPEN_KINDS else twin
    also = f" Twin: `{name}_async`." if twin is not None else ""
    shown = signature(name, told).replace("-> AsyncIterator[", "-> Iterator[")
    parts = [f"#### `{owner}.{name}`", f"```text\n{shown}\n```", first_paragraph(told) + also]
    if about := documented(told, "Args"):
        parts.append(table(("argument", ""), [(f"`{k}`", v) for k, v in about.items()]))
    return "\n\n".join(parts)
