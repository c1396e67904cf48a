"""What every verb asks of what it is given, before it does anything: text, numbers, yes or no.

The annotation of a parameter says what it takes. What a verb knows better about a value (that it
is a run's id, a principal, a limit) it checks itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from cairn.engine.given import check_text
from cairn.engine.numbers import MOST_LISTED, WHOLE, check_flag, check_number, check_whole
from cairn.errors import ConfigError, safe_repr
from cairn.memory.facts import MAX_HITS

P = ParamSpec("P")
R = TypeVar("R")
SAID = frozenset({"by", "evidence", "message", "query", "reason", "text", "title"})
"""Words of people: they are made storable, where a name is never altered."""

BOUNDS = {
    "limit": (1, MOST_LISTED),
    "after": (0, WHOLE),
    "concurrency": (1, MOST_LISTED),
}
"""Of whole numbers that are wrong outside them, whatever the run."""
NARROWER = {("recall_async", "limit"): (1, MAX_HITS)}
"""Of one verb's own, where they differ."""
NUMBERED = frozenset({"at", "n", "seq"})
"""Numbers of events and of grants: the verb says of what is none what there is."""


def checked(
    verb: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """The verb, which refuses a value of another type than its annotation says.

    It raises `ConfigError`, which names the parameter. Annotations of several types are left to
    the verb.
    """
    signature = inspect.signature(verb)
    checks = {
        name: check
        for name, parameter in signature.parameters.items()
        if (check := _check_of(verb.__name__, name, str(parameter.annotation))) is not None
    }

    @wraps(verb)
    async def first(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # something is left out or too much: Python says so in its own words
            given = {}
        for name, value in given.items():
            if name in checks:
                checks[name](name, value)
        return await verb(*args, **kwargs)

    return first


def _check_of(verb: str, name: str, annotation: str) -> Callable[[str, object], object] | None:
    match annotation:
        case "str" if name in SAID:
            return _check_said
        case "str":
            return check_text
        case "bool":
            return check_flag
        case "int" if name not in NUMBERED:
            usual = BOUNDS.get(name, (-WHOLE, WHOLE))
            return partial(_check_within, NARROWER.get((verb, name), usual))
        case "float":
            return check_number
    return None


def _check_said(field: str, text: object) -> None:
    if not isinstance(text, str):
        raise ConfigError(field, f"{safe_repr(text)} is no text", "Give a string")


def _check_within(bounds: tuple[int, int], field: str, value: object) -> None:
    check_whole(field, value, *bounds)
