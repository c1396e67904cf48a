"""How long a provider asked to wait, in any of the forms in which providers say it.

In this order, the first that can be read wins:

    Retry-After             seconds or an HTTP date: the explicit wish
    retry-after-ms          milliseconds, from OpenAI and Azure
    RetryInfo in the body   Google: `"retryDelay": "39s"`
    words in the body       "Please try again in 6m0s", "retry after 12 seconds"
    limits that reset       only of those of which nothing remains; the latest counts

Every form is rounded up, never down: knocking a moment too soon costs another refusal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from email.utils import parsedate_to_datetime

LOOKED_AT = 64_000
"""Characters of a body that are searched."""

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_UNIT = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)"
_STEP = re.compile(rf"({_NUMBER})\s*({_UNIT})(?![a-z])\s*", re.IGNORECASE)
_SECONDS = {"ms": "0.001", "s": "1", "m": "60", "h": "3600", "d": "86400"}
_DELAY = re.compile(rf"""retryDelay\\*["']?\s*:\s*\\*["']?({_NUMBER})s\b""")
_WORDS = re.compile(
    rf"\b(?:(?:re)?try(?:ing)?(?: again)? (?:in|after)|wait(?: for)?) "
    rf"((?:{_NUMBER}\s*{_UNIT}(?![a-z])\s*)+)",
    re.IGNORECASE,
)
_RESET = re.compile(
    r"x-ratelimit-reset-(?P<counted>requests|tokens)"
    r"|anthropic-(?:ratelimit|priority)-(?P<dated>[a-z-]+)-reset"
)


def retry_after_s(headers: Mapping[str, str], body: str, now_s: float) -> float | None:
    """Seconds to wait before the next try, or None if the provider said nothing readable.

    Args:
        headers: Of the reply; names in any case.
        body: Its text.
        now_s: Seconds since 1970, UTC; dates are counted from it.

    Returns:
        A finite number, at least 0. It is not capped here: a day is told as a day.
    """
    named = {name.lower(): value.strip() for name, value in headers.items()}
    text = body[:LOOKED_AT]
    for found in (
        _seconds(named.get("retry-after", "")),
        _http_date(named.get("retry-after", ""), now_s),
        _milliseconds(named.get("retry-after-ms", "")),
        _google(text),
        _spoken(text),
        _resets(named, now_s),
    ):
        if found is not None:
            return found
    return None


def _up(seconds: Decimal) -> float:
    """To the next millisecond."""
    return float(seconds.quantize(Decimal("0.001"), ROUND_CEILING))


def _number(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(_NUMBER, text) else None


def _seconds(text: str) -> float | None:
    number = _number(text)
    return None if number is None else _up(number)


def _milliseconds(text: str) -> float | None:
    number = _number(text)
    return None if number is None else _up(number / 1000)


def _google(text: str) -> float | None:
    delays = [_up(Decimal(delay)) for delay in _DELAY.findall(text)]
    return max(delays, default=None)


def _spoken(text: str) -> float | None:
    found = _WORDS.search(text)
    return None if found is None else _duration(found[1])


def _duration(text: str) -> float | None:
    """`1h2m3s`, `20ms`, `1.5 seconds`."""
    total, end = Decimal(0), 0
    for step in _STEP.finditer(text):
        if step.start() != end:
            return None
        end = step.end()
        unit = step[2].lower()
        total += Decimal(step[1]) * Decimal(
            _SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
        )
    return _up(total) if text and end == len(text) else None


def _until(moment: datetime, now_s: float) -> float | None:
    """Whole seconds from now, 0 if it has passed."""
    if not math.isfinite(now_s):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return float(max(0, math.ceil(moment.timestamp() - now_s)))


def _http_date(text: str, now_s: float) -> float | None:
    try:
        return _until(parsedate_to_datetime(text), now_s)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _rfc_3339(text: str, now_s: float) -> float | None:
    try:
        return _until(datetime.fromisoformat(text), now_s)
    except (ValueError, OverflowError):
        return None


def _resets(named: Mapping[str, str], now_s: float) -> float | None:
    """When the last of the limits that are used up is open again."""
    waits = []
    for name, value in named.items():
        found = _RESET.fullmatch(name)
        if found is None or _number(named.get(_remaining(name), "")) != 0:
            continue
        if found["dated"]:
            waits.append(_rfc_3339(value, now_s))
        else:
            # A bare number this short is seconds; a longer one would be a moment, in some unit.
            waits.append(_seconds(value) if len(value) < 7 else None)
            waits.append(_duration(value))
    return max((wait for wait in waits if wait is not None), default=None)


def _remaining(name: str) -> str:
    """The header that says how much is left of what this one says when it resets."""
    if name.startswith("anthropic-"):
        return f"{name.removesuffix('-reset')}-remaining"
    return name.replace("-reset-", "-remaining-")
