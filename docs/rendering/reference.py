"""The page of public names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
from rendering.spelling import NOTE, documented, fields_table, first_paragraph, signature, table

import cairn
from cairn.errors import CairnError, ErrorClass

MADE_FOR_YOU = {"Context", "Tool"}
"""Classes whose objects the runtime makes; how they are built is no business of a user's."""
ORDER = ("Tasks", "Ground", "Decisions", "Takeovers", "Granting", "Looks")
"""The rooms that a runtime's verbs stand in, in the order of the page."""
OPEN_KINDS = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def reference() -> str:
    """All public names."""
    parts = [
        "# Reference",
        NOTE,
        "Everything that `from cairn import …` gives. Each name is loaded on first use.",
    ]
    homes: dict[str, list[str]] = {}
    for name in cairn.__all__:
        if not name.startswith("_"):
            homes.setdefault(cairn._NAMES[name], []).append(name)  # noqa: SLF001 - the one list
    for home, names in homes.items():
        parts.append(f"## `{home}`")
        parts.append(first_paragraph(importlib.import_module(home)))
        parts += [public_name(name, getattr(cairn, name)) for name in names]
    return "\n\n".join(parts) + "\n"


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
    for base in sorted(ours, key=lambda each: ORDER.index(each.__name__) if cls is not each else 9):
        for name, member in vars(base).items():
            plain_twin = name.endswith("_async") and hasattr(cls, name.removesuffix("_async"))
            if name.startswith("_") or plain_twin:
                continue
            if isinstance(member, property) or inspect.isfunction(member):
                yield name, member, vars(base).get(f"{name}_async")


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
