"""The values a `RemoteModel` is given, looked at before anything is asked with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from sys import float_info
from typing import Any, NoReturn

from cairn.core.limits import Price
from cairn.errors import ConfigError, safe_repr
from cairn.models.traffic import TrafficLimits

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
SMALLEST_WINDOW = 512
"""Tokens; below, the instructions alone would not fit, and every request would be refused."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


def text(field: str, value: object) -> str:
    """A text; what it is instead is named by its type only, as it may be a key.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, str):
        _refuse(field, f"a {type(value).__name__} cannot be used", "Give a text")
    return value


def number(field: str, value: object) -> Any:
    """A finite number above 0, as seconds are.

    Raises:
        ConfigError: it is none.
    """
    if not _is_number(value) or not value > 0:  # type: ignore[operator]  # a number by now
        _refuse(field, f"{safe_repr(value)} cannot be used", "Give a number > 0")
    return value


def count(field: str, value: object) -> int:
    """A whole number above 0, as tokens are.

    Raises:
        ConfigError: it is none.
    """
    if not _is_whole(value) or not value > 0:  # type: ignore[operator]  # a number by now
        _refuse(field, f"{safe_repr(value)} cannot be used", "Give a whole number > 0")
    return value  # type: ignore[return-value]  # looked at above


def room(window: object, usual: int) -> int:
    """What a reply is given room for when nobody says it: half of a window that is small."""
    return window // 2 if isinstance(window, int) and SMALLEST_WINDOW <= window <= usual else usual


def window(value: object, max_output: int) -> int:
    """A window that has room for more than the reply; 0 has it looked up.

    Raises:
        ConfigError: it has not, is no whole number, or can hold no request at all.
    """
    if _is_whole(value) and 0 < value < SMALLEST_WINDOW:  # type: ignore[operator]  # a number by now
        fix = f"Give the tokens of a request and its reply together, {SMALLEST_WINDOW} at least"
        _refuse("window", f"{safe_repr(value)} is too small for any request", fix)
    if not _is_whole(value) or (value != 0 and not value > max_output):  # type: ignore[operator]  # a number by now
        fix = f"Give more than max_output, which is {max_output:,}, or 0 to have it looked up"
        _refuse("window", f"{safe_repr(value)} cannot be used", fix)
    return value  # type: ignore[return-value]  # looked at above


def switch(field: str, value: object) -> bool:
    """True or False, and nothing that only counts as one.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        _refuse(field, f"{safe_repr(value)} is neither", "Give True or False")
    return value


def price(value: object) -> Price | None:
    """A price, or None to have it looked up.

    Raises:
        ConfigError: it is neither.
    """
    if value is not None and not isinstance(value, Price):
        fix = "Give cairn.Price(input=…, output=…) in micro-USD per million tokens, or leave it out"
        _refuse("price", f"{safe_repr(value)} is no price", fix)
    return value


def traffic(value: object) -> TrafficLimits:
    """Limits; None sets none.

    Raises:
        ConfigError: it is something else.
    """
    if value is not None and not isinstance(value, TrafficLimits):
        _refuse(
            "traffic", f"{safe_repr(value)} sets no limits", "Give cairn.TrafficLimits(in_flight=…)"
        )
    return value or TrafficLimits()


def settings(given: object) -> dict[str, Any]:
    """Settings for each request, each of its own kind.

    Raises:
        ConfigError: there is no such setting, or its value is of another kind.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        _refuse("settings", f"{safe_repr(given)} is no dict", "Give settings={'temperature': 0.2}")
    for name, value in given.items():
        if name not in SETTINGS:
            fix = f"Use {', '.join(sorted(SETTINGS))}"
            _refuse(f"settings.{name}", "there is no such setting", fix)
        fits, wanted = SETTINGS[name]
        if not fits(value):
            _refuse(f"settings.{name}", f"{safe_repr(value)} cannot be used", f"Give {wanted}")
    return dict(given)


def headers(given: object) -> dict[str, str]:
    """Headers for each request. A value is not repeated in a message, as it may be a key.

    Raises:
        ConfigError: a name or a value cannot be sent.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        _refuse("headers", f"a {type(given).__name__} is no dict", "Give headers={'X-Team': 'tea'}")
    for name, value in given.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            fix = "Use letters, digits and -, as in 'X-Team'"
            _refuse("headers", f"{safe_repr(name)} is no name of a header", fix)
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            fix = "Give a text in ASCII without line ends"
            _refuse(f"headers.{name}", "its value cannot be sent", fix)
    return dict(given)


def _refuse(field: str, problem: str, fix: str) -> NoReturn:
    raise ConfigError(f"RemoteModel.{field}", problem, fix)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= float_info.max  # nan never is


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _is_thinking(value: object) -> bool:
    return isinstance(value, bool) or value in EFFORTS


_NUMBER = (_is_number, "a number")
_WHOLE = (_is_whole, "a whole number")
SETTINGS: dict[str, tuple[Callable[[object], bool], str]] = {
    "extra_body": (lambda value: isinstance(value, Mapping), "a dict, which goes into the request"),
    "frequency_penalty": _NUMBER,
    "parallel_tool_calls": (lambda value: isinstance(value, bool), "True or False"),
    "presence_penalty": _NUMBER,
    "seed": _WHOLE,
    "stop_sequences": (_are_texts, "a list of texts"),
    "temperature": _NUMBER,
    "thinking": (_is_thinking, f"True, False, or one of {', '.join(EFFORTS)}"),
    "top_k": _WHOLE,
    "top_p": _NUMBER,
}
"""What requests can be given, whether a value is of its kind, and what that kind is."""
