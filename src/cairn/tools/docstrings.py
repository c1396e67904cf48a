"""Reads a function's docstring: what it says of the whole, and of each parameter.

Google, NumPy and reST styles are understood. The description is what stands before the first
section; a model is told that, and the sentence about a parameter beside the parameter.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from itertools import pairwise

PARAMETER_HEADS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
    | {"other parameters"}
)
OTHER_HEADS = frozenset(
    {"returns", "return", "yields", "yield", "raises", "raise", "except", "exceptions", "warns"}
    | {"note", "notes", "example", "examples", "warning", "warnings", "references", "see also"}
    | {"attributes"}
)
GOOGLE_HEAD = re.compile(r"([A-Za-z][A-Za-z ]*):\s*$")
GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
NUMPY_RULE = re.compile(r"-{3,}\s*$")
NUMPY_ITEM = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
REST_FIELD = re.compile(r":([a-z]+)(?:\s+([^:]*?))?\s*:(?:\s+(.*)|$)")
REST_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The description, and what is said about each parameter, from a docstring of any style."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    heads = [at for at in range(len(lines)) if _style(lines, at)]
    about = lines[: heads[0]] if heads else lines
    found: dict[str, str] = {}
    for at, end in pairwise([*heads, len(lines)]):
        match _style(lines, at):
            case "google":
                found |= _google(lines[at + 1 : end])
            case "numpy":
                found |= _numpy(lines[at + 2 : end])
            case "rest":
                found |= _rest(lines[at:end])
    return "\n".join(about).strip(), found


def _style(lines: list[str], at: int) -> str:
    """How a section that starts on this line is written; empty if none starts here.

    `other` is a section that is not about parameters.
    """
    line = lines[at]
    if REST_FIELD.match(line):
        return "rest"
    if google := GOOGLE_HEAD.match(line):
        return _named(google[1], "google")
    if at + 1 < len(lines) and NUMPY_RULE.match(lines[at + 1]):
        return _named(line, "numpy")
    return ""


def _named(head: str, style: str) -> str:
    name = head.strip().lower()
    if name in PARAMETER_HEADS:
        return style
    return "other" if name in OTHER_HEADS else ""


def _items(body: list[str]) -> list[tuple[str, list[str]]]:
    """The body as items: a line at the left edge, and the deeper lines that belong to it."""
    items: list[tuple[str, list[str]]] = []
    for line in textwrap.dedent("\n".join(body)).splitlines():
        if line and not line[0].isspace():
            items.append((line, []))
        elif items:
            items[-1][1].append(line)
    return items


def _google(body: list[str]) -> dict[str, str]:
    indented = []
    for line in body:  # the section ends with the first line that is not indented
        if line and not line[0].isspace():
            break
        indented.append(line)
    found = {}
    for line, more in _items(indented):
        if item := GOOGLE_ITEM.match(line):
            found[item[1]] = _joined([item[2], *more])
    return found


def _numpy(body: list[str]) -> dict[str, str]:
    found = {}
    for line, more in _items(body):
        if item := NUMPY_ITEM.match(line):
            for name in item[1].split(","):
                found[name.strip().lstrip("*")] = _joined(more)
    return found


def _rest(body: list[str]) -> dict[str, str]:
    field = REST_FIELD.match(body[0])
    if field is None or field[1] not in REST_PARAMETERS or not field[2]:
        return {}
    more = []
    for line in body[1:]:
        if not line or not line[0].isspace():
            break
        more.append(line)
    return {field[2].split()[-1].lstrip("*"): _joined([field[3] or "", *more])}


def _joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
