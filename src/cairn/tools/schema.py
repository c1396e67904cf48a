"""From a signature to a JSON Schema and a validator, by way of pydantic.

pydantic is loaded when the first tool is declared, not before: `import cairn` stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NotRequired

from cairn.core.messages import Record
from cairn.errors import said_by, words_of
from cairn.tools.on_loop import watched
from cairn.tools.shapes import Schema
from cairn.tools.signature import MISSING, Parameter, Signature, refuse
from cairn.tools.theirs import runs_theirs

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Validate = Callable[[str | bytes], dict[str, Any]]
"""From JSON text to typed arguments; raises pydantic's ValidationError."""


class Arguments(Record, gc=True):
    """How a tool's arguments look and how they are read.

    Args:
        parameters: JSON Schema of the whole object, references complete.
        validate: Reads JSON text strictly; what is not given is not in the result.
        defaults: Values of the parameters that need not be given.
        some: As `validate`, where none of them needs to be given; made when it is asked for.
    """

    parameters: Schema
    validate: Validate
    defaults: dict[str, Any]
    some: Callable[[], Validate]


def arguments_of(signature: Signature, tool: str, about: dict[str, str]) -> Arguments:
    """Schema and validator for what a model gives to the tool.

    `about` holds a sentence for some of the parameters.

    Raises:
        ToolDefinitionError: a type has no JSON Schema; the message names the parameter.
    """
    for parameter in signature.parameters:
        _check_default(parameter, tool)
    parameters = {each.name: each for each in signature.parameters}
    adapter, schema = _adapter(parameters, tool)
    for name, field in schema.get("properties", {}).items():
        if sentence := about.get(name):
            field.setdefault("description", sentence)
        known = parameters.get(name)  # none when an alias stands here
        if known is not None and known.default is not MISSING:
            _show_default(field, known.default)
    closed = not _has_open_object(schema)
    if closed:
        _close_objects(schema)
    return Arguments(
        parameters=schema,
        validate=_validator(adapter, tool, closed=closed),
        defaults={n: p.default for n, p in parameters.items() if p.default is not MISSING},
        some=cache(lambda: _validator(_build(parameters, whole=False)[0], tool, closed=closed)),
    )


def _check_default(parameter: Parameter, tool: str) -> None:
    from pydantic.fields import FieldInfo

    if isinstance(parameter.default, FieldInfo):
        fix = f"Write {parameter.name}: Annotated[type, Field(...)] = default"
        problem = f"the default of {parameter.name!r} is a Field, which a direct call would pass on"
        raise refuse(tool, problem, fix)


def _adapter(parameters: dict[str, Parameter], tool: str) -> tuple[TypeAdapter[Any], Schema]:
    try:
        return _build(parameters)
    except Exception as error:  # types bring schema hooks of their own, which raise anything
        for name, parameter in parameters.items():
            try:
                _build({name: parameter})
            except Exception as inner:  # as above; this one says which parameter it is
                reason = said_by(inner).partition("\n")[0] or type(inner).__name__
                fix = "Use plain types, enums, dataclasses or pydantic models"
                problem = f"the type of the parameter {name!r} has no JSON Schema ({reason})"
                raise refuse(tool, problem, fix) from inner
        problem = f"its parameters have no JSON Schema ({words_of(error)})"
        raise refuse(tool, problem, "Rename one") from error


def _build(
    parameters: dict[str, Parameter], *, whole: bool = True
) -> tuple[TypeAdapter[Any], Schema]:
    """An adapter for the parameters as a closed TypedDict; not `whole`, none need be given.

    A TypedDict takes any parameter name (a model reserves `json`, `copy` and `_x`) and its
    validator returns just the keyword arguments that were given.
    """
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema
    from typing_extensions import TypedDict

    class Untitled(GenerateJsonSchema):
        """No `title: Order` beside `order`: it costs tokens and says nothing."""

        def field_title_should_be_set(self, schema: object) -> bool:
            return False

    needed = {
        name: each.annotation if whole and each.default is MISSING else NotRequired[each.annotation]
        for name, each in parameters.items()
    }
    make: Any = TypedDict  # a checker allows no fields that are known at run time only
    arguments = make("arguments", needed)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[Any] = TypeAdapter(arguments)
    schema = adapter.json_schema(mode="validation", schema_generator=Untitled)
    schema.pop("title", None)
    return adapter, {"type": "object", "properties": {}, **schema}


def _validator(adapter: TypeAdapter[Any], tool: str, *, closed: bool) -> Validate:
    """Strict: no text becomes a number, no number a truth value; see `arguments` for mending."""
    validate_json: Any = adapter.validator.validate_json
    if runs_theirs(adapter.core_schema):
        validate_json = watched(f"the validators of the tool {tool}", validate_json)
    if not closed:
        return lambda text: validate_json(text, strict=True)
    return lambda text: validate_json(text, strict=True, extra="forbid")


def _show_default(field: Schema, default: object) -> None:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        field.setdefault("default", to_jsonable_python(default))
    except (PydanticSerializationError, ValueError, RecursionError):
        return  # a default that has no JSON is simply not shown


def _objects(schema: object) -> list[Schema]:
    """Every object schema with named fields, wherever it stands."""
    found: list[Schema] = []
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            if isinstance(each.get("properties"), dict) and each.get("type") == "object":
                found.append(each)
            waiting += each.values()
    return found


def _has_open_object(schema: Schema) -> bool:
    """Whether a nested type says on purpose that it takes more than its fields."""
    return any(each.get("additionalProperties", False) is not False for each in _objects(schema))


def _close_objects(schema: Schema) -> None:
    for each in _objects(schema):
        each["additionalProperties"] = False
