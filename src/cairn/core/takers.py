"""Functions that a deployment lends, looked at when they are given and not when they are called."""

from __future__ import annotations

import inspect
from typing import Any

from cairn.errors import ConfigError


def check_taker(field: str, function: Any, what: str) -> None:
    """Refuse a function that cannot be called with one argument.

    Args:
        field: The option it was given as, for the message.
        function: What is to be called.
        what: What it is called with, as `a Briefing`.

    Raises:
        ConfigError: it takes no argument, or needs more.
    """
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        said = f"{name_of(function)} cannot be called with one argument"
        raise ConfigError(field, said, f"Give a function of {what}") from None
    except ValueError:
        pass  # some callables of C have no signature to be read


def name_of(function: object) -> str:
    """How a function is called in messages."""
    return str(getattr(function, "__name__", type(function).__name__))
