"""Numbers and flags that are handed to the verbs and to the command line, with their bounds."""

from __future__ import annotations

import math

from cairn.errors import ConfigError, safe_repr

MOST_LISTED = 1_000_000
"""How many lines a list may be asked for."""
MOST_USD = 1_000_000_000
"""The most money a bound may say, in US dollars: micro-dollars of it fit every store."""
WHOLE = (1 << 63) - 1
"""The greatest whole number that every store keeps."""


def check_whole(field: str, value: object, least: int = -WHOLE, most: int = WHOLE) -> int:
    """The number itself, if it is a whole one within these bounds.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(field, f"{safe_repr(value)} is no whole number", "Give one, as 3")
    if not least <= value <= most:
        said = f"{value} cannot be" if abs(value) <= WHOLE else "no store keeps so large a number"
        fix = "Give a smaller one"
        if least > -WHOLE:
            fix = f"Give {least:,} or more" if most == WHOLE else f"Give {least:,} to {most:,}"
        raise ConfigError(field, said, fix)
    return value


def check_limit(field: str, value: object) -> int:
    """How many lines a list may have at most.

    Raises:
        ConfigError: it is no whole number of 1 to 1,000,000.
    """
    return check_whole(field, value, 1, MOST_LISTED)


def check_number(field: str, value: object) -> float:
    """The number itself, if it is a finite one.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(field, f"{safe_repr(value)} is no number", "Give one, as 0.5")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(field, f"{safe_repr(value)} cannot be", "Give a finite number")
    return value


def check_flag(field: str, value: object) -> bool:
    """The value itself, if it is True or False.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(field, f"{safe_repr(value)} is neither", "Use True or False")
    return value


def micro_usd(field: str, usd: object) -> int:
    """An amount of US dollars in millionths of one.

    Raises:
        ConfigError: it is no number of 0 to 1,000,000,000.
    """
    given = check_number(field, usd)
    if not 0 <= given <= MOST_USD:
        raise ConfigError(field, f"{safe_repr(given, 60)} cannot be", f"Give 0 to {MOST_USD:,}")
    return round(given * 1_000_000)
