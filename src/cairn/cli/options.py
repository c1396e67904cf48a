"""Options and arguments that several commands share."""

from __future__ import annotations

import getpass
import re
import sys
from typing import Annotated

import typer

from cairn.core.limits import GREATEST
from cairn.engine.numbers import MOST_LISTED, MOST_USD
from cairn.errors import ConfigError

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
Project = Annotated[
    str,
    typer.Option(
        "--project", metavar="NAME", help="Whose facts it shares. Default: those of its session."
    ),
]
Message = Annotated[str, typer.Option("-m", "--message", help="Why; the model reads it as typed.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
JsonDone = Annotated[
    bool, typer.Option("--json", help="One JSON object for each thing that was done.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show the result only.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MOST_LISTED, help="How many at most.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]

MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", min=1, max=GREATEST, help="Turns and tasks at most.")
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", min=1, max=GREATEST, help="Tool calls at most.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", min=1, max=GREATEST, help="Tokens at most.")
]
MaxUsd = Annotated[
    float | None,
    typer.Option("--max-usd", min=0.0, max=float(MOST_USD), help="Money at most, in US dollars."),
]
MaxSeconds = Annotated[
    int | None,
    typer.Option(
        "--max-seconds", min=1, max=GREATEST, help="Running time at most, waits excluded."
    ),
]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def who(given: str) -> str:
    """The name a decision is kept under."""
    if given:
        return given
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


def lasting(text: str, option: str, most_days: int = 0) -> int:
    """How long something counts, in seconds; 0 only where nothing was said: for ever.

    Args:
        text: What was typed.
        option: The option it was typed for.
        most_days: The longest; 0 for no bound.

    Raises:
        ConfigError: it is no length of time, no time at all, or longer than this.
    """
    if not text:
        return 0
    seconds = seconds_of(text, option)
    if not seconds or (most_days and seconds > most_days * _UNITS["d"]):
        most = f" of up to {most_days:,}d" if most_days else ""
        fix = f"Give a time{most}, or leave it out: then it counts for ever"
        raise ConfigError(option, f"{text!r} cannot be", fix)
    return seconds


def asks_nobody(*, json: bool, yes: bool) -> None:
    """Refuse to ask somebody in the middle of JSON.

    Raises:
        ConfigError: there is no --yes with --json.
    """
    if json and not yes:
        raise ConfigError("--json", "nobody can be asked in between", "Pass --yes as well")


def spoken(text: str) -> str:
    """What was typed; for `-` what stands on standard input, without the blanks around it."""
    return sys.stdin.read().strip() if text == "-" else text
