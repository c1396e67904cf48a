"""How commands are made: each refuses an option that is given and says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from cairn.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])
MAY_BE_EMPTY = frozenset({"plan", "result"})
"""Options whose empty text is a value: a plan without items, a result that says nothing."""


class Verb(TyperCommand):
    """A command. An option that is given and blank never means what is meant without it."""

    def invoke(self, ctx: Any) -> Any:
        """Run it.

        Raises:
            ConfigError: an option is given and empty or blank; names it.
        """
        for option in self.params:
            if option.param_type_name != "option" or option.name in MAY_BE_EMPTY:
                continue
            source = ctx.get_parameter_source(option.name)
            if source is None or source.name != "COMMANDLINE":
                continue
            given = ctx.params.get(option.name)
            for each in given if isinstance(given, list | tuple) else (given,):
                if isinstance(each, str) and not each.strip():
                    fix = "Give it a value, or leave the option out"
                    raise ConfigError(option.opts[0], "it is empty", fix)
        return super().invoke(ctx)


class Verbs(typer.Typer):
    """A group of commands of the house."""

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Function], Function]:
        """Make a command of a function; see `typer.Typer.command`."""
        kwargs.setdefault("cls", Verb)
        return super().command(*args, **kwargs)
