"""A JSON Schema made so that a grammar can force it, and one of several can share a document.

What grammars cannot express is left out (look-ahead in patterns, very long bounds), and what
says nothing about form too (titles, defaults). Objects are closed unless they say otherwise:
a small model would go on inventing fields. So the result is wider than the schema and has no
room for fields nobody named; the runtime checks against the schema itself in any case.
"""

from __future__ import annotations

import re
from typing import Any

SILENT = frozenset({"title", "default", "examples", "$schema", "$id", "discriminator"})
NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})
BOUNDS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
LONGEST_BOUND = 256
"""Grammars spell repetitions out, and engines refuse long ones."""
NO_GRAMMAR = re.compile(r"\(\?[=!<]|\\[1-9]")
"""Look-around and back references in a pattern."""


def forcible(schema: dict[str, Any], prefix: str, defs: dict[str, Any]) -> dict[str, Any]:
    """A copy whose definitions are moved to `defs`, each under `prefix` and its name.

    Args:
        schema: A whole schema document.
        prefix: What sets its definitions apart from those of others.
        defs: Where they go: the `$defs` of the document the copy becomes a part of.
    """
    for place in ("$defs", "definitions"):
        for name, inner in schema.get(place, {}).items():
            defs[prefix + name] = _walked(inner, prefix)
    rest = {k: v for k, v in schema.items() if k not in ("$defs", "definitions")}
    copy: dict[str, Any] = _walked(rest, prefix)
    if _names_root(schema):
        defs[prefix] = copy
    return copy


def _walked(node: Any, prefix: str, *, closed: bool = True) -> Any:
    if isinstance(node, list):
        return [_inner(item, prefix, closed=closed) for item in node]
    if not isinstance(node, dict):
        return node
    copy: dict[str, Any] = {}
    if closed and "properties" in node and "patternProperties" not in node:
        copy["additionalProperties"] = False
    for key, value in node.items():
        if key in NAMED and isinstance(value, dict):
            copy[key] = {name: _inner(inner, prefix) for name, inner in value.items()}
        elif key in ("const", "enum", "required", "description"):
            copy[key] = value
        elif key == "$ref":
            target = _target(str(value), prefix)
            if target:
                copy[key] = target
        elif not _left_out(key, value):
            copy[key] = _walked(value, prefix, closed=key != "allOf")  # its parts add up
    return copy


def _inner(schema: Any, prefix: str, *, closed: bool = True) -> Any:
    return {} if schema is True else _walked(schema, prefix, closed=closed)


def _left_out(key: str, value: Any) -> bool:
    if key == "pattern":
        return bool(NO_GRAMMAR.search(str(value)))
    if key == "items" and value is True:
        return True
    return key in SILENT or (key in BOUNDS and isinstance(value, int) and value > LONGEST_BOUND)


def _target(ref: str, prefix: str) -> str:
    if ref == "#":
        return f"#/$defs/{prefix}"
    for place in ("#/$defs/", "#/definitions/"):
        if ref.startswith(place):
            return f"#/$defs/{prefix}{ref[len(place) :]}"
    return ""


def _names_root(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == "#" or any(map(_names_root, node.values()))
    return isinstance(node, list) and any(map(_names_root, node))
