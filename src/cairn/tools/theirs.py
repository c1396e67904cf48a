"""Which functions are a deployment's own: those of which nobody knows whether they block."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

KNOWN = frozenset({"cairn", "pydantic", "pydantic_core", "annotated_types", "builtins", "operator"})
KNOWN |= {"collections", "datetime", "decimal", "enum", "fractions", "ipaddress", "pathlib", "re"}
KNOWN |= {"typing", "typing_extensions", "uuid"}
"""Packages whose functions answer at once, as validators of types have them."""
_UNUSED = frozenset({"metadata", "ref", "serialization"})
"""What stands in a schema and is not called when something is validated."""


def is_async(function: Any) -> bool:
    """Whether a call of it only makes a coroutine, and so cannot block."""
    called = getattr(function, "__call__", None)  # noqa: B004 - an object's own method is meant
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def is_theirs(function: object) -> bool:
    """Whether a function, a bound method, a `partial` or a callable object is the deployment's."""
    while isinstance(function, partial):
        function = function.func
    module = getattr(getattr(function, "__func__", function), "__module__", None)
    if not isinstance(module, str):
        return False  # a method of a type that is written in C
    return module.partition(".")[0] not in KNOWN


def runs_theirs(schema: object) -> bool:
    """Whether validating by a core schema of pydantic's calls a function of the deployment's."""
    waiting, seen = [schema], set()
    while waiting:
        each: Any = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Mapping):
            if _is_called(each):
                return True
            waiting += [value for name, value in each.items() if name not in _UNUSED]
        elif isinstance(each, list | tuple):
            waiting += each
        elif callable(each) and not isinstance(each, type) and is_theirs(each):
            return True
    return False


def _is_called(node: Mapping[Any, Any]) -> bool:
    """Whether a model or a dataclass is made by a method that the deployment wrote."""
    if node.get("custom_init"):
        return True
    hook = node.get("post_init")
    if hook is True:  # of a dataclass
        hook = "__post_init__"
    return isinstance(hook, str) and is_theirs(getattr(node.get("cls"), hook, None))
