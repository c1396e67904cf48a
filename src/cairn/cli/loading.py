"""The application: found by `module:name`, imported, and its faults said in one line."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, ConfigError, said_by, words_of

if TYPE_CHECKING:
    from cairn.runtime import Runtime


def load_app(name: str, source: str, folders: Sequence[Path]) -> Runtime:
    """The runtime that `module:name` is or makes.

    Args:
        name: As the user wrote it.
        source: Where it was written, for messages.
        folders: Put first on the import path, as `python -m` does.

    Raises:
        ConfigError: it cannot be imported, or is no runtime; the message says what to mend.
    """
    from cairn.runtime import Runtime

    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(
            source, f"{name!r} does not say what to take", "Write it as module:name, as in shop:rt"
        )
    module = _imported(module_name, source, folders)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = ", ".join(sorted(k for k, v in vars(module).items() if isinstance(v, Runtime)))
            hint = f"The runtimes in it are: {known}" if known else "Assign a Runtime to that name"
            raise ConfigError(source, f"module {module_name!r} has no {attribute!r}", hint)
        found = getattr(found, part)
    if not isinstance(found, Runtime) and callable(found):
        found = _made(found, name, source)
    if inspect.iscoroutine(found):
        found.close()  # or the interpreter complains at the end that nobody awaited it
        fix = "Give a Runtime or a plain function that returns one"
        raise ConfigError(source, f"{name!r} is asynchronous", fix)
    if not isinstance(found, Runtime):
        kind = type(found).__name__
        fix = "Name a Runtime or a function that returns one"
        raise ConfigError(source, f"{name!r} is no Runtime but a value of type {kind}", fix)
    return found


def _imported(module: str, source: str, folders: Sequence[Path]) -> Any:
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(module, source, error) from error
        fix = "Run the command in the folder of the module, or install it"
        raise ConfigError(source, f"there is no module {module!r} here", fix) from error
    except Exception as error:  # an application may fail in any way while it is imported
        raise _broken(module, source, error) from error
    except SystemExit as error:
        fix = 'Put what runs things under: if __name__ == "__main__":'
        raise ConfigError(source, f"importing {module!r} ends the process", fix) from error


def _made(factory: Any, name: str, source: str) -> Any:
    try:
        return factory()
    except Exception as error:  # the application's own function may fail in any way
        raise _broken(name, source, error) from error


def _broken(what: str, source: str, error: Exception) -> ConfigError:
    said = said_by(error) if isinstance(error, CairnError) else words_of(error)
    return ConfigError(
        source, f"{what!r} cannot be loaded: {_place(error)}{said.rstrip('.')}", "Mend that first"
    )


def _place(error: Exception) -> str:
    """Where in the application's own code it failed; nothing for code of libraries."""
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '?').name} line {error.lineno}: "
    libraries = (sys.prefix, sys.base_prefix, "<frozen", str(Path(__file__).parents[1]))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(libraries):
            return f"{Path(frame.filename).name} line {frame.lineno}: "
    return ""
