"""The source of functions, to tell one version of an application from another."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Iterable
from types import CodeType
from typing import Any

from cairn.tools.tool import Tool

KEPT = 2_048
"""How many sources a process remembers."""


class Sources:
    """Sources read one after the other; those that cannot be read are remembered by name."""

    def __init__(self) -> None:
        self.unread: list[str] = []

    def read(self, function: Any) -> str:
        """The source of a function, a bound method, a `partial` or an object that is called.

        Cairn's own are named only, for its version says what they are. So are those whose source
        is nowhere: typed at a prompt, or written in C.
        """
        plain = plain_function(function)
        name = name_of(plain)
        if _is_ours(name):
            return name
        text = _text(plain)
        if text is None:
            self.unread.append(name)
            return name
        return f"{name}\n{text}"

    def read_all(self, functions: Iterable[Any]) -> list[str]:
        """The sources of several, sorted, so that their order does not count; none of Cairn's."""
        return sorted(text for text in map(self.read, functions) if not _is_ours(text))


def _is_ours(name: str) -> bool:
    return name.startswith("cairn.")


def plain_function(function: Any) -> Any:
    """What is written down somewhere: the function in a wrapper, or the class of an object."""
    while True:
        if isinstance(function, Tool):
            function = function.function
        elif isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif (
            hasattr(function, "__code__")
            or isinstance(function, type)
            or inspect.isbuiltin(function)
        ):
            return function
        else:
            return type(function)


def name_of(function: Any) -> str:
    """`module.qualname`."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _text(plain: Any) -> str | None:
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        return _of_code(code, code.co_filename, code.co_firstlineno)
    try:
        return inspect.getsource(plain)
    except (OSError, TypeError):
        return None


@functools.lru_cache(maxsize=KEPT)
def _of_code(code: CodeType, filename: str, line: int) -> str | None:
    """Its lines. File and line are part of the key: equal code in two places is two sources.

    `inspect.getsource` finds the same, and looks through all modules for it, which takes
    milliseconds for each function.
    """
    linecache.checkcache(filename)
    lines = linecache.getlines(filename)
    if len(lines) < line:
        return None
    try:
        return "".join(inspect.getblock(lines[line - 1 :]))
    except SyntaxError:  # the file is no longer what was imported
        return None
