"""Options and arguments that several commands share."""

from __future__ import annotations

import getpass
import re
from typing import Annotated

import typer

from cairn.errors import ConfigError


class _Nobody(str):
    """What an explicit, empty `--as` names: nobody, and not the login."""

    __slots__ = ()


def _named(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
    source = ctx.get_parameter_source(param.name or "")
    return _Nobody() if not value and source is not None and source.name == "COMMANDLINE" else value


Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The store. Default: CAIRN_STORE, [tool.cairn] store, the application's, ./cairn.db.",
        show_default=False,
    ),
]
App = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="A Runtime, or a function that makes one. Default: CAIRN_APP, [tool.cairn] app.",
        show_default=False,
    ),
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        "--as",
        metavar="WHO",
        callback=_named,
        help="Who decides. Default: your login name.",
        show_default=False,
    ),
]
Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--role", metavar="ROLE", help="A role of who decides; may be given several times."
    ),
]
ForWhom = Annotated[str, typer.Option("--principal", metavar="ID", help="For whom it works.")]
RolesOfPrincipal = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="A role of theirs; may be given several times."),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Their tenant.")]
Message = Annotated[str, typer.Option("-m", "--message", help="Why; the model reads it as typed.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show the result only.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]

MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", min=1, help="Turns and tasks at most.")
]
MaxCalls = Annotated[int | None, typer.Option("--max-calls", min=1, help="Tool calls at most.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Tokens at most.")]
MaxUsd = Annotated[
    float | None, typer.Option("--max-usd", min=0.0, help="Money at most, in US dollars.")
]
MaxSeconds = Annotated[
    int | None, typer.Option("--max-seconds", min=1, help="Running time at most, waits excluded.")
]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def who(given: str) -> str:
    """The name a decision is kept under."""
    if given or isinstance(given, _Nobody):
        return str(given)
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a user table
        return "cli"


def seconds_of(text: str, option: str) -> int:
    """`30d`, `12h`, `45m`, `90s`, `2w` in seconds.

    Raises:
        ConfigError: it is none of these.
    """
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if found is None:
        raise ConfigError(option, f"{text!r} is no length of time", "Write it as 30d, 12h or 45m")
    return int(found[1]) * _UNITS[found[2]]
