"""What the operator declares about a server's tools, and the server's own settings, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from cairn.core.declaration import Declaration
from cairn.core.events import Effect
from cairn.core.messages import Record
from cairn.core.names import listed
from cairn.errors import ConfigError, safe_repr

NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?!_)){0,29}")
"""Short enough to leave a tool's own name room, and without the `__` that ends it."""
EFFECTS: tuple[str, ...] = get_args(Effect)
MIN_RESULT_BYTES = 256
MIN_PIN = 8
LONGEST_S = 24 * 3600.0


class ToolOptions(Record, metaclass=Declaration):
    """What the operator knows about one tool of a server.

    Args:
        effect: `read`, `write` or `dangerous`: may it run unasked.
        recovery: `repeat` or `once`: may it run again when nobody knows whether it happened.
            Default: `repeat` for a read, else `once`.
        timeout_s: Deadline of one attempt, in seconds. Default: the server's.
        retries: Attempts after a known failure.
        conflict_key: Name of an argument: two writes that differ in it may overlap.
        micro_usd: What a call costs, in millionths of a US dollar.
        result_bytes: A larger result becomes an artifact.
        schema: The beginning of the tool's hash, as `cairn mcp tools` shows it. The declaration
            then holds only for the tool as it was when it was looked at.
    """

    effect: Effect = "dangerous"
    recovery: Literal["", "repeat", "once"] = ""
    timeout_s: float | None = None
    retries: int = 0
    conflict_key: str = ""
    micro_usd: int = 0
    result_bytes: int = 16_384
    schema: str = ""


Declared = str | ToolOptions
"""One word for the effect, or all there is to say."""

UNDECLARED = ToolOptions()


def declared(server: str, effects: Mapping[str, Declared]) -> dict[str, ToolOptions]:
    """The operator's declarations by the name the server gives a tool.

    Raises:
        ConfigError: a word is none, or does not go with another.
    """
    given: object = effects
    where = f"McpServer({safe_repr(server)}).effects"
    if not isinstance(given, Mapping):
        fix = 'Write the effect of each tool: {"find": "read"}'
        raise ConfigError(where, f"{safe_repr(given)} is no mapping", fix)
    return {name: _one(f"{where}[{safe_repr(name)}]", effects[name]) for name in effects}


def _one(where: str, given: object) -> ToolOptions:
    if isinstance(given, str):
        _require(given in EFFECTS, where, given, f"Write {listed(EFFECTS)}, or a ToolOptions")
        return ToolOptions(effect=given)  # type: ignore[arg-type]  # checked in the line above
    if not isinstance(given, ToolOptions):
        raise ConfigError(
            where, f"{safe_repr(given)} declares nothing", "Give a word or a ToolOptions"
        )
    _require(given.effect in EFFECTS, where, given.effect, f"effect is {listed(EFFECTS)}")
    _require(given.recovery in ("", "repeat", "once"), where, given.recovery, "Use repeat or once")
    fine = isinstance(given.conflict_key, str)
    _require(fine, f"{where}.conflict_key", given.conflict_key, "Give the name of an argument")
    fix = "A read can always be repeated: leave recovery out, or declare the effect it has"
    _require(given.effect != "read" or given.recovery != "once", where, given.recovery, fix)
    if given.timeout_s is not None:
        seconds(f"{where}.timeout_s", given.timeout_s)
    for field, least in (("retries", 0), ("micro_usd", 0), ("result_bytes", MIN_RESULT_BYTES)):
        value = getattr(given, field)
        fine = isinstance(value, int) and not isinstance(value, bool) and value >= least
        _require(fine, f"{where}.{field}", value, f"Give a whole number of at least {least}")
    text = isinstance(given.schema, str)
    fine = text and (not given.schema or re.fullmatch(r"[0-9a-f]{8,64}", given.schema) is not None)
    fix = f"Give at least {MIN_PIN} digits of what `cairn mcp tools` shows"
    _require(fine, f"{where}.schema", given.schema, fix)
    return given


def recovery_of(options: ToolOptions) -> Literal["repeat", "once"]:
    """May the tool run again when unsure."""
    return options.recovery or ("repeat" if options.effect == "read" else "once")


# ---------------------------------------------------------------- the server itself


def check_name(name: object) -> str:
    """A server's name. Raises ConfigError."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        fix = "Use a letter, then letters, digits, '-' and single '_', at most 30"
        raise ConfigError("McpServer.name", f"{safe_repr(name)} is no name", fix)
    return name


def check_place(where: str, command: Any, url: object) -> None:
    """Exactly one of a command and an address is given, and it can be one.

    Raises:
        ConfigError: otherwise.
    """
    if command is None or (not command) == (not url):
        fix = 'Give command=["program", ...] or url="https://..."'
        raise ConfigError(where, "it needs one place to be reached at", fix)
    if command:
        words = isinstance(command, Sequence) and not isinstance(command, str | bytes)
        fine = words and all(isinstance(word, str) and "\0" not in word for word in command)
        fix = 'Give a list such as ["npx", "server"]; no shell is involved'
        _require(bool(fine), f"{where}.command", command, fix)
        return
    parts = urlsplit(url) if isinstance(url, str) else None
    fine = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
    _require(fine, f"{where}.url", url, "Give an http or https address")
    if parts is not None and parts.username is not None:
        fix = 'Give headers={"Authorization": ...} instead'
        raise ConfigError(f"{where}.url", "it holds a login, which logs would show", fix)


def folder(where: str, given: object) -> str:
    """The path of a folder. Raises ConfigError."""
    path: object = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    fine = isinstance(path, str) and bool(path) and "\0" not in path
    _require(fine, where, given, "Give the path of a folder")
    return str(path)


def folders(where: str, given: object) -> tuple[str, ...]:
    """The addresses of folders, as the protocol writes them. Raises ConfigError."""
    fine = isinstance(given, list | tuple | set | frozenset)
    _require(fine, where, given, "Give a list of folders")
    each: Any = given
    return tuple(Path(folder(where, one)).resolve().as_uri() for one in each)


def names(where: str, given: object) -> frozenset[str] | None:
    """A set of tool names, None for no opinion. Raises ConfigError."""
    if given is None:
        return None
    fix = "Give a list of tool names"
    if not isinstance(given, list | tuple | set | frozenset):
        raise ConfigError(where, f"{safe_repr(given)} cannot be used", fix)
    found: list[Any] = list(given)
    _require(all(isinstance(each, str) for each in found), where, given, fix)
    return frozenset(found)


def seconds(where: str, value: object) -> float:
    """A length of time in seconds, above 0. Raises ConfigError."""
    fix = "Give a number of seconds above 0, at most a day"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(where, f"{safe_repr(value)} cannot be used", fix)
    _require(0 < value <= LONGEST_S, where, value, fix)
    return float(value)


def texts(where: str, given: Mapping[Any, Any] | None) -> dict[str, str]:
    """A mapping from text to text, as environments and headers are; values are never shown.

    Raises:
        ConfigError: something else stands in it.
    """
    said: object = given
    if not isinstance(said, Mapping | None):
        raise ConfigError(where, "it is no mapping", 'Give text for text, as {"NAME": "value"}')
    found = dict(given or {})
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigError(
                f"{where}[{safe_repr(key)}]", "its value is no text", "Give text for text"
            )
        if any(sign in value or sign in key for sign in "\r\n\0"):
            raise ConfigError(f"{where}[{safe_repr(key)}]", "it holds a line break", "Remove it")
    return found


def _require(fine: bool, where: str, value: object, fix: str) -> None:
    if not fine:
        raise ConfigError(where, f"{safe_repr(value)} cannot be used", fix)
