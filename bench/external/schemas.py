"""Tools from JSON Schema: a function with the signature that the schema describes."""

import inspect
import keyword
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Union

from pydantic import Field
from suites.case import Offer
from typing_extensions import TypedDict

from cairn import Context, Tool, tool

LEFT_OUT: Any = object()
"""The default of what need not be given: the simulator's own default holds."""

PLAIN = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}


def make_tool(offer: Offer, act: Callable[..., Any], **options: Any) -> Tool[..., Any]:
    """A Cairn tool of this name and schema.

    Args:
        offer: What the third party says of it.
        act: An async function of a `Context`, the tool's name, and the arguments as a dict.
        options: Of `@tool`.
    """
    name = offer.name.rpartition("/")[2].replace(".", "_")
    given = offer.parameters
    defs = given.get("$defs", {})
    required = given.get("required", [])
    kinds: dict[str, Any] = {}
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY)]
    for each, schema in given.get("properties", {}).items():
        if keyword.iskeyword(each) or each == "ctx":
            raise ValueError(f"{offer.name}: {each} cannot be a parameter")
        kinds[each] = Annotated[annotation(schema, defs), Field(description=_words(schema))]
        default = inspect.Parameter.empty if each in required else LEFT_OUT
        parameters.append(inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=default))

    async def body(ctx: Context, **arguments: Any) -> Any:
        return await act(ctx, name, {k: v for k, v in arguments.items() if v is not LEFT_OUT})

    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read back
    body.__annotations__ = {"ctx": Context, **kinds}
    body.__doc__ = offer.description
    return tool(name=name, **options)(body)


def annotation(schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    """The type that takes what the schema takes."""
    if "$ref" in schema:
        return annotation(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return Union[tuple(annotation(each, defs) for each in schema["anyOf"])]  # noqa: UP007 - of a list
    if schema.get("enum"):
        return Literal[tuple(schema["enum"])]
    kind = schema.get("type")
    if kind == "array":
        return list[annotation(schema.get("items", {}), defs)]  # type: ignore[misc]  # known at run time
    if kind == "object":
        return _object(schema, defs)
    return PLAIN.get(kind or "", Any)


def _object(schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    if not schema.get("properties"):
        return dict[str, Any]
    required = schema.get("required", [])
    fields = {
        name: annotation(each, defs) if name in required else NotRequired[annotation(each, defs)]
        for name, each in schema["properties"].items()
    }
    make: Any = TypedDict
    return make("Fields", fields)


def _words(schema: dict[str, Any]) -> str:
    return str(schema.get("description", ""))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is of the type its schema names: a second opinion beside Cairn's check."""
    if schema.get("enum") and value not in schema["enum"]:
        return False
    match schema.get("type"):
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            items = schema.get("items", {})
            return isinstance(value, list | tuple) and all(fits(each, items) for each in value)
        case "object":
            fields = schema.get("properties", {})
            return isinstance(value, dict) and all(
                fits(each, fields.get(key, {})) for key, each in value.items()
            )
        case "string" | "boolean" as kind:
            return isinstance(value, PLAIN[kind])
    return True
