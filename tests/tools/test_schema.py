"""What a model is told of a tool: complete schemas, and each parameter's own sentence."""

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from cairn.tools.docstrings import parse
from cairn.tools.shapes import fields, find, shape
from cairn.tools.tool import tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


def every_kind(  # noqa: PLR0917 - a model gives them by name
    node: Node,
    colour: Colour,
    point: Point,
    named: Named,
    when: dt.datetime,
    price: Decimal,
    id: uuid.UUID,
    mode: Literal["a", "b"],
    either: int | list[str],
    maybe: str | None = None,
    limit: Annotated[int, Field(ge=1, description="How many at most.")] = 10,
    json: bool = False,
) -> str:
    """Do it all.

    With care.

    Args:
        node: The root.
        maybe (str): Perhaps
            on two lines.
        limit: Not used, the field says it itself.

    Returns:
        Nothing of use.
    """
    return ""


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(references, schema.values()))


def test_b25_a_schema_is_complete_recursion_included() -> None:
    parameters = tool(every_kind).schema.parameters
    defined = {f"#/$defs/{name}" for name in parameters["$defs"]}
    assert references(parameters) == defined
    assert "#/$defs/Node" in references(parameters["$defs"]["Node"])


def test_b25_validation_follows_references_recursion_included() -> None:
    def grow(node: Node) -> str: ...

    check = tool(grow).spec.check
    found = check('{"node": {"name": "a", "children": [{"name": "b", "children": []}]}}')
    assert found == {"node": Node(name="a", children=[Node(name="b")])}
    problem = check('{"node": {"name": "a", "children": [{"nam": "b"}]}}')
    assert "node.children[0].name: missing" in problem.message


def test_names_types_defaults_and_sentences_are_told() -> None:
    schema = tool(every_kind).schema
    told = schema.parameters["properties"]
    assert schema.description == "Do it all.\n\nWith care."
    assert schema.parameters["additionalProperties"] is False
    assert set(schema.parameters["required"]) == set(told) - {"maybe", "limit", "json"}
    assert told["node"]["description"] == "The root."
    assert told["maybe"]["description"] == "Perhaps on two lines."
    assert told["limit"]["description"] == "How many at most."
    assert (told["limit"]["default"], told["limit"]["minimum"]) == (10, 1)
    assert told["maybe"]["default"] is None
    assert told["when"]["format"] == "date-time"
    assert told["json"] == {"type": "boolean", "default": False}
    assert "title" not in schema.parameters


def test_nested_objects_are_closed_unless_their_type_is_open_on_purpose() -> None:
    def closed(point: Point, node: Node) -> str: ...
    def opened(it: Open) -> str: ...

    definitions = tool(closed).schema.parameters["$defs"].values()
    assert all(each["additionalProperties"] is False for each in definitions)
    one = tool(opened)
    assert one.schema.parameters["$defs"]["Open"]["additionalProperties"] is True
    assert one.spec.check('{"it": {"b": 1}}') == {"it": Open(a=0, b=1)}


def test_a_name_the_model_sees_may_differ_from_the_parameter() -> None:
    def find(query: Annotated[str, Field(alias="q")] = "all") -> str: ...

    one = tool(find)
    assert list(one.schema.parameters["properties"]) == ["q"]
    assert one.spec.check('{"q": "x"}') == {"query": "x"}
    assert one.spec.check("{}") == {"query": "all"}


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    def now() -> str: ...

    expected = {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool(now).schema.parameters == expected


def test_a_default_without_json_is_not_shown_but_used() -> None:
    marker = object()

    def odd(a: int, b: Any = marker) -> str: ...

    one = tool(odd)
    assert "default" not in one.schema.parameters["properties"]["b"]
    assert one.spec.check('{"a": 1}') == {"a": 1, "b": marker}


GOOGLE = """Find orders.

Args:
    query (str, optional): What to look for:
        words or a number.
    limit: How many.

Raises:
    ValueError: never.
"""
NUMPY = """Find orders.

Parameters
----------
query : str
    What to look for:
    words or a number.
limit, most : int
    How many.

Returns
-------
str
    The orders.
"""
REST = """Find orders.

:param str query: What to look for:
    words or a number.
:param limit: How many.
:type limit: int
:returns: the orders
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_docstrings_of_every_style_are_understood(docstring: str) -> None:
    about, found = parse(docstring)
    assert about == "Find orders."
    assert found["query"] == "What to look for: words or a number."
    assert found["limit"] == "How many."
    assert found.keys() <= {"query", "limit", "most"}


def test_prose_that_only_looks_like_a_section_stays_prose() -> None:
    about, found = parse("Careful:\n\nit bites.\n\nTime: now\n")
    assert about == "Careful:\n\nit bites.\n\nTime: now"
    assert found == {}
    assert parse(None) == ("", {})
    assert parse("Args:\nnothing indented") == ("", {})


def test_a_shape_is_short_and_readable() -> None:
    root = tool(every_kind).schema.parameters
    said = shape(root, root, 2000)
    assert said.startswith("{node: {name: string, children?: [")
    assert 'colour: "red" | "blue"' in said
    assert "when: string (date-time)" in said
    assert "maybe?: string | null" in said
    assert len(shape(root, root)) <= 240


def test_shapes_of_foreign_schemas_end() -> None:
    looped = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert shape(looped, looped)
    assert find(looped, ["a"]) == []
    tuples = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}
    assert shape(tuples, tuples) == "[string]"
    assert find(tuples, [0]) == [{"type": "string"}]
    assert find(tuples, [5]) == [{"type": "integer"}]
    named = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert shape(named, named) == "{name: integer}"
    assert shape({"const": 5}, {}) == "5"
    assert shape({"enum": list(range(99))}, {}, 1000).count("|") < 20
    assert fields({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, []) == (
        "a",
        "b",
    )
