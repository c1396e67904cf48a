"""What stands at a path of a tool's arguments, by its JSON Schema: whether, and of what type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cairn.core.messages import Record

Schema = Mapping[str, Any]
MOST_STEPS = 2_000
"""Parts of a schema that are looked at for one path; after that anything may be there."""
BRANCHES = ("anyOf", "oneOf", "allOf")
CONDITIONAL = ("then", "else")
NUMBERS = frozenset({"integer", "number"})
NAMED = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Place(Record, gc=True):
    """What may stand at a path.

    Args:
        known: Whether the schema names it.
        open: Whether anything may stand there, because the schema does not say.
        types: JSON types it may have, items of lists in place of the list; empty when that cannot
            be told.
        values: The only values it may have; None when that is not said.
        near: Names that stand where it was looked for and not found.
    """

    known: bool = False
    open: bool = False
    types: frozenset[str] = frozenset()
    values: tuple[Any, ...] | None = None
    near: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        """Whether something can stand there."""
        return self.known or self.open


def place_of(schema: Schema, path: str) -> Place:
    """What stands at the path, names with dots between them, in arguments of this schema.

    A name that is not among `properties` counts as not there unless the schema says in words that
    more is taken: a misspelt one could not be found out otherwise.
    """
    return place_at(schema, path.split("."))


def place_at(schema: Schema, names: Sequence[str]) -> Place:
    """As `place_of`, for names that may have dots in them."""
    walk = _Walk(schema)
    found: list[Any] = [schema]
    before = ""
    for n, name in enumerate(names):
        following: list[Any] = []
        near: dict[str, None] = {}
        for each in walk.opened(found):
            properties = each.get("properties")
            properties = properties if isinstance(properties, Mapping) else {}
            near.update(dict.fromkeys(f"{before}{key}" for key in properties))
            if name in properties:
                following.append(properties[name])
            elif _takes_more(each, is_top=n == 0):
                return Place(open=True)
        if walk.exhausted:
            return Place(open=True)
        if not following:
            return Place(near=tuple(near))
        found, before = following, f"{before}{name}."
    return walk.leaf(found)


def _takes_more(schema: Schema, *, is_top: bool) -> bool:
    if schema.get("additionalProperties") or schema.get("patternProperties"):
        return True
    said = {"properties", "$ref", *BRANCHES, *CONDITIONAL, "additionalProperties"} & set(schema)
    if is_top or said:
        return False
    return "object" in _types(schema) or not _types(schema)


class _Walk:
    """Goes through a schema a stranger may have written: bounded, and by local references only."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.left = MOST_STEPS

    @property
    def exhausted(self) -> bool:
        return self.left <= 0

    def flat(self, schema: Any) -> Iterator[Schema]:
        """The schema and all that it is made of."""
        waiting: list[Any] = [schema]
        while waiting and self.left > 0:
            self.left -= 1
            each = waiting.pop()
            if not isinstance(each, Mapping):
                if each is True:
                    yield {}
                continue
            if isinstance(each.get("$ref"), str):
                waiting.append(self._target(each["$ref"]))
            for key in BRANCHES:
                waiting += each[key] if isinstance(each.get(key), list) else []
            waiting += [each[key] for key in CONDITIONAL if key in each]
            yield each

    def opened(self, schemas: list[Any]) -> Iterator[Schema]:
        """As `flat`, and what stands in lists."""
        for schema in schemas:
            for each in self.flat(schema):
                yield each
                for items in _items(each):
                    yield from self.flat(items)

    def leaf(self, schemas: list[Any]) -> Place:
        """What is said of the values themselves."""
        types: set[str] = set()
        values: list[Any] = []
        unsure, limited = False, True
        for each in self.opened(schemas):
            items = "items" in each or "prefixItems" in each
            given = _types(each) - ({"array"} if items else set())
            composed = any(key in each for key in (*BRANCHES, *CONDITIONAL, "$ref"))
            types |= given
            unsure = unsure or not (given or composed or items)
            if "enum" in each or "const" in each:
                values += _values(each)
            elif given - {"null"}:
                limited = False
        unsure = unsure or self.exhausted
        return Place(
            known=True,
            types=frozenset() if unsure else frozenset(types),
            values=tuple(values) if values and limited and not unsure else None,
        )

    def _target(self, reference: str) -> Any:
        found: Any = self.root
        if not reference.startswith("#"):
            return True
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name, True) if isinstance(found, Mapping) else True
        return found


def _items(schema: Schema) -> Iterator[Any]:
    if "items" in schema:
        yield schema["items"]
    prefix = schema.get("prefixItems")
    yield from prefix if isinstance(prefix, list) else ()


def _types(schema: Schema) -> set[str]:
    said = schema.get("type")
    if isinstance(said, str):
        return {said}
    if isinstance(said, list):
        return {each for each in said if isinstance(each, str)}
    if "enum" in schema or "const" in schema:
        return {NAMED.get(type(each), "object") for each in _values(schema)}
    if "properties" in schema:
        return {"object"}
    return set()


def _values(schema: Schema) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return list(found) if isinstance(found, list) else []
