"""A JSON Schema as a few words for a model: `{order: string, cents: integer, note?: string}`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from cairn.tools.text import preview, shorten

Schema = dict[str, Any]
SHAPE_CHARS = 240
DEPTH = 4
"""How many levels of objects, lists and references are written out; deeper ones are named."""
WIDTH = 16
"""How many fields or alternatives are written out; a foreign schema may have any number."""


def shape(schema: Schema, root: Schema, limit: int = SHAPE_CHARS) -> str:
    """What the schema wants, in at most `limit` characters. `root` holds the `$defs`."""
    return shorten(_shape(schema, root, DEPTH), limit)


def find(root: Schema, path: Sequence[str | int]) -> list[Schema]:
    """The schemas that may apply at a path below `root`: several for a union, none if unknown."""
    found = _variants(root, root)
    for part in path:
        found = [inner for outer in found for inner in _step(outer, part, root)]
    return found


def fields(root: Schema, path: Sequence[str | int]) -> tuple[str, ...]:
    """Names of the fields that an object at this path may have."""
    names = (name for schema in find(root, path) for name in schema.get("properties", ()))
    return tuple(dict.fromkeys(names))


def _variants(schema: object, root: Schema) -> list[Schema]:
    """The schema without references and unions: each alternative by itself."""
    found: list[Schema] = []
    waiting, seen = [schema], set()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict) or id(each) in seen:
            continue
        seen.add(id(each))
        inner = [x for key in ("anyOf", "oneOf", "allOf") for x in each.get(key, ())]
        if "$ref" in each:
            inner.append(resolve(each, root))
        waiting += reversed(inner)
        if not inner:
            found.append(each)
    return found


def resolve(schema: Schema, root: Schema) -> Schema:
    """The definition a `$ref` names; an empty schema if it names none of ours."""
    name = str(schema.get("$ref", "")).rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    found = root.get("$defs", {}).get(name)
    return found if isinstance(found, dict) else {}


def _step(schema: Schema, part: str | int, root: Schema) -> Iterable[Schema]:
    inner: Any
    if isinstance(part, str):
        inner = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    else:
        prefix = schema.get("prefixItems", [])
        inner = prefix[part] if part < len(prefix) else schema.get("items")
    return _variants(inner, root)


def _shape(schema: object, root: Schema, depth: int) -> str:
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _shape(resolve(schema, root), root, depth - 1) if depth else name
    for key in ("anyOf", "oneOf"):
        if key in schema:
            each_shape = (_shape(each, root, depth) for each in schema[key][:WIDTH])
            return " | ".join(dict.fromkeys(each_shape))
    if "const" in schema:
        return preview(schema["const"])
    if "enum" in schema:
        return " | ".join(preview(each) for each in schema["enum"][:WIDTH])
    match schema.get("type"):
        case "object":
            return _object(schema, root, depth)
        case "array":
            return _array(schema, root, depth)
        case "string" if "format" in schema:
            return f"string ({schema['format']})"
        case str(kind):
            return kind
    return "anything"


def _object(schema: Schema, root: Schema, depth: int) -> str:
    if not depth:
        return "object"
    if properties := schema.get("properties"):
        required = schema.get("required", ())
        inner = (
            f"{name}{'' if name in required else '?'}: {_shape(each, root, depth - 1)}"
            for name, each in islice(properties.items(), WIDTH)
        )
        return "{" + ", ".join(inner) + "}"
    values = schema.get("additionalProperties")
    return f"{{name: {_shape(values, root, depth - 1)}}}" if isinstance(values, dict) else "object"


def _array(schema: Schema, root: Schema, depth: int) -> str:
    if not depth:
        return "list"
    if prefix := schema.get("prefixItems"):
        return "[" + ", ".join(_shape(each, root, depth - 1) for each in prefix[:WIDTH]) + "]"
    return f"[{_shape(schema.get('items'), root, depth - 1)}, …]"
