"""Reads a function's signature: its parameters, their types, and where the context goes."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from cairn.core.messages import Record
from cairn.errors import ToolDefinitionError, safe_repr, words_of
from cairn.tools.context import Context

MISSING: Any = inspect.Parameter.empty


class Parameter(Record, gc=True):
    """One argument the model gives; `default` is `MISSING` when it must be given."""

    name: str
    annotation: Any
    default: Any = MISSING


class Signature(Record, gc=True):
    """What a function takes.

    Args:
        parameters: What the model gives, in order.
        context: The parameter that takes the `Context`, empty for none.
        is_async: Whether calling the function gives something to await.
    """

    parameters: tuple[Parameter, ...]
    context: str
    is_async: bool


def refuse(tool: str, problem: str, fix: str) -> ToolDefinitionError:
    """The error for a function that cannot become a tool."""
    return ToolDefinitionError(f"tool {safe_repr(tool)}: {problem}. {fix}")


def read_signature(
    function: Callable[..., Any], tool: str, local_names: Callable[[], Mapping[str, Any]]
) -> Signature:
    """The parameters of a function that is to become the tool `tool`.

    `local_names` gives the names of the scope the tool is declared in; it is asked only when an
    annotation written as text names something that is not global.

    Raises:
        ToolDefinitionError: the signature is not one a model can be told of.
    """
    plain = plain_function(function)
    if inspect.isasyncgenfunction(plain):
        raise refuse(tool, "it is an async generator", "Collect the items and return a list")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise refuse(tool, f"it has no signature ({error})", "Wrap it in a function") from None
    hints = _hints(plain, tool, local_names)
    parameters: list[Parameter] = []
    context = ""
    for name, parameter in signature.parameters.items():
        _check_kind(parameter, tool)
        annotation = hints.get(name, MISSING)
        if annotation is MISSING:
            fix = f"Write {name}: str, or whatever it is"
            if name in ("self", "cls"):
                fix = "Make a tool of the bound method: tool(thing.method)"
            raise refuse(tool, f"the parameter {name!r} has no type", fix)
        if not _is_context(annotation):
            parameters.append(
                Parameter(name=name, annotation=annotation, default=parameter.default)
            )
        elif context:
            raise refuse(tool, f"both {context!r} and {name!r} take the Context", "Remove one")
        else:
            context = name
    is_async = inspect.iscoroutinefunction(plain)
    return Signature(parameters=tuple(parameters), context=context, is_async=is_async)


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind partials and callable objects: what carries annotations and colour."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _hints(
    function: Callable[..., Any], tool: str, local_names: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    noted = dict(getattr(function, "__annotations__", {}))
    noted.pop("return", None)  # nobody needs it, and it often names what is imported for checkers
    holder = types.SimpleNamespace(
        __annotations__=noted,
        __globals__=getattr(inspect.unwrap(function), "__globals__", {}),
    )
    try:
        return typing.get_type_hints(holder, include_extras=True)
    except NameError:
        pass
    except Exception as error:  # annotations are code of the user's and may raise anything
        problem = f"its annotations cannot be read ({words_of(error)})"
        raise refuse(tool, problem, "Correct them") from error
    try:
        names = dict(local_names())
        return typing.get_type_hints(holder, localns=names, include_extras=True)
    except Exception as error:  # annotations are code of the user's and may raise anything
        fix = "Define or import the name above the tool"
        problem = f"its annotations cannot be read ({words_of(error)})"
        raise refuse(tool, problem, fix) from error


def _check_kind(parameter: inspect.Parameter, tool: str) -> None:
    name = parameter.name
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            fix = f"Take a list, as {name}: list[str]"
            raise refuse(tool, f"a model cannot fill *{name}", fix)
        case inspect.Parameter.VAR_KEYWORD:
            fix = f"Take a dict, as {name}: dict[str, str], or name each parameter"
            raise refuse(tool, f"a model cannot fill **{name}", fix)
        case inspect.Parameter.POSITIONAL_ONLY:
            fix = "Remove the / from the signature; tools are called by keyword"
            raise refuse(tool, f"the parameter {name!r} is positional-only", fix)


def _is_context(annotation: object) -> bool:
    """Whether the annotation is `Context`, `Context[Deps]`, or one of them or None."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return any(_is_context(each) for each in typing.get_args(annotation))
    kind = annotation if origin is None else origin
    return isinstance(kind, type) and issubclass(kind, Context)
