"""The source of functions, to tell one version of an application from another."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Iterable
from pathlib import PurePath
from tokenize import TokenError
from types import CodeType
from typing import Any

from cairn.tools.tool import Tool

MAIN = ("__main__", "__mp_main__")
"""How Python calls the module of the program itself, in it and in the processes it spawns."""
KEPT = 2_048
"""How many sources a process remembers."""
OTHER_TEXT = (SyntaxError, TokenError)
"""What reading raises where a file is no longer what was imported. Which one depends on Python."""


class Sources:
    """Sources read one after the other; those that cannot be read are remembered by name."""

    def __init__(self) -> None:
        self.unread: list[str] = []

    def read(self, function: Any) -> str:
        """The source of a function, a bound method, a `partial` or an object that is called.

        Cairn's own are named only, for its version says what they are. So are those whose source
        is nowhere: typed at a prompt, or written in C. Of the module only the last name counts: a
        file that is run as a script is the same version as one that is imported.
        """
        plain = plain_function(function)
        name = name_of(plain)
        if _is_ours(plain):
            return name
        text = _text(plain)
        if text is None:
            self.unread.append(name)
            return name
        return f"{name}\n{text}"

    def read_all(self, functions: Iterable[Any]) -> list[str]:
        """The sources of several, sorted, so that their order does not count; none of Cairn's."""
        theirs = (each for each in functions if not _is_ours(plain_function(each)))
        return sorted(map(self.read, theirs))


def _is_ours(plain: Any) -> bool:
    return f"{getattr(plain, '__module__', None)}.".startswith("cairn.")


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


def name_of(plain: Any) -> str:
    """`module.qualname`; what is not Cairn's has the last name of its module alone."""
    module = getattr(plain, "__module__", None) or "?"
    if not _is_ours(plain):
        module = _file_name(module) if module in MAIN else module.rpartition(".")[2]
    return f"{module}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"


def _file_name(main: str) -> str:
    """What the module that runs as the program would be called if it were imported."""
    file = getattr(sys.modules.get(main), "__file__", None)
    if not file:
        return main
    path = PurePath(file)
    return path.parent.name if path.stem == "__init__" else path.stem


def _text(plain: Any) -> str | None:
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        return _of_code(code, code.co_filename, code.co_firstlineno)
    try:
        return inspect.getsource(plain)
    except (OSError, TypeError, *OTHER_TEXT):
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
    except OTHER_TEXT:
        return None
