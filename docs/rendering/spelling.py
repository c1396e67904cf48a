"""How code is told in Markdown: tables, types, signatures, and what docstrings say."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from cairn.core.ladder import ALWAYS
from cairn.core.messages import Record

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SRC = ROOT / "src" / "cairn"
NOTE = "<!-- Written by docs/generate.py from the code; `make docs` writes it again. -->"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(c) for c in row) + " |" for row in lines)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def first_paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    doc = inspect.cleandoc(getattr(thing, "__doc__", "") or "")
    return " ".join(doc.split("\n\n")[0].split())


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def attribute_docs(cls: type) -> dict[str, str]:
    """The text that stands as a string below a field in its class."""
    found: dict[str, str] = {}
    path = Path(str(inspect.getsourcefile(cls)))
    for node in ast.walk(parsed(path)):
        if not (isinstance(node, ast.ClassDef) and node.name == cls.__name__):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def documented(thing: Any, section: str) -> dict[str, str]:
    """What a section of a docstring, such as `Args`, says of each name."""
    doc = inspect.cleandoc(thing.__doc__ or "")
    found: dict[str, str] = {}
    part = re.search(rf"^{section}:\n((?:[ ]{{4}}.*\n?|\n)*)", doc, re.MULTILINE)
    items = re.findall(
        r"^(\w[\w, ]*): (.*(?:\n {4,}.*)*)", textwrap.dedent(part[1]) if part else "", re.MULTILINE
    )
    for names, text in items:
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found


def spelled(kind: Any) -> str:
    """A type as one writes it."""
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{value}`" for value in typing.get_args(kind))
    if isinstance(kind, types.GenericAlias):
        inner = ", ".join("…" if a is Ellipsis else spelled(a) for a in typing.get_args(kind))
        return f"{kind.__origin__.__name__} of {inner.removesuffix(', …')}"
    if isinstance(kind, types.UnionType):
        return " or ".join("nothing" if k is type(None) else spelled(k) for k in kind.__args__)
    return getattr(kind, "__name__", str(kind).removeprefix("typing."))


def fields_table(cls: type[msgspec.Struct]) -> str:
    about = {**documented(cls, "Args"), **attribute_docs(cls)}
    annotations = {
        n: a
        for base in reversed(cls.__mro__)
        for n, a in vars(base).get("__annotations__", {}).items()
    }
    rows = [
        (
            f"`{field.name}`",
            f"`{annotations[field.name]}`",
            default_of(field),
            about.get(field.name, ""),
        )
        for field in msgspec.structs.fields(cls)
    ]
    return table(("field", "type", "default", ""), rows) if rows else ""


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    if field.default is msgspec.NODEFAULT:
        return "required"
    if isinstance(field.default, msgspec.Raw):
        return f"`{bytes(field.default).decode()}`"
    if isinstance(field.default, Record):
        return f"`{type(field.default).__name__}()`"
    return "always" if field.default == ALWAYS else f"`{field.default!r}`"


def signature(name: str, function: Any) -> str:
    """A call as one would write it, with types."""
    given = inspect.signature(function)
    shown, starred = [], False
    for each in given.parameters.values():
        if each.name == "self" or each.name.startswith("_"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        shown.append(parameter(each))
    result = (
        ""
        if given.return_annotation in (given.empty, "None", None)
        else f" -> {plain(given.return_annotation)}"
    )
    flat = f"{name}({', '.join(shown)}){result}"
    if len(flat) <= 96:
        return flat
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    kind = "" if each.annotation is each.empty else f": {plain(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    value = each.default
    is_record = isinstance(value, Record)
    if inspect.isfunction(value):
        return f"{stars}{each.name}{kind} = {value.__name__}"
    if is_record or type(value).__module__.startswith("cairn"):
        text = f"{type(value).__name__}()" if is_record else "…"
    else:
        text = "…" if type(value) is object else repr(value)
    return f"{stars}{each.name}{kind} = {text}" if kind else f"{stars}{each.name}={text}"


def plain(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else spelled(annotation)
