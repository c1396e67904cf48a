"""What kind of fault a failed model call was, decided by neutral facts and one table.

Adapters say what they know as a `Signal`; `fault_table` holds the rows and their order.
An error inside an open stream has no status of its own: one that a library guessed is ignored.
"""

from __future__ import annotations

import functools
import re
from html import unescape
from typing import Any

import msgspec

from cairn.core.messages import Record
from cairn.errors import ErrorClass
from cairn.models.fault_table import TABLE, Row

KINDS = frozenset(
    {
        *("rate_limit", "quota", "overloaded", "unavailable", "server"),
        *("request_timeout", "timeout", "connection", "interrupted", "bad_reply"),
        *("context_window", "auth", "not_found", "rejected", "content_filter"),
    }
)
"""The typed facts a client library can give."""
NOT_A_REPLY = "not with a reply of this format; is the address right?"
"""What is said of a success that is a page: whoever answered is no provider."""
LOOKED_AT = 4_000
"""Characters of a provider's words that are kept and read; what matters stands at their start."""


class Signal(Record):
    """What is known of a failed exchange, as neutral facts.

    Args:
        provider: `openai`, `anthropic`, `google`, `compatible` … ; for people, it decides nothing.
        kind: The typed fact from the client library, one of `KINDS`, or nothing.
        status: The HTTP status; None if there was none or an error event was given a guessed one.
        code: The provider's own code, type and status words, the most telling first, with spaces
            between them. A number of three digits among them is the status the body speaks of.
        message: The provider's words.
        in_stream: It came as an event inside a stream that had opened with 200.
        started: A part of the reply had already arrived.
    """

    provider: str = ""
    kind: str = ""
    status: int | None = None
    code: str = ""
    message: str = ""
    in_stream: bool = False
    started: bool = False


_CODE_KEYS = (
    *("code", "type", "status", "reason", "error_type"),
    *("limit_source", "quotaId", "quota_limit"),
)
_WORD_KEYS = ("message", "msg", "detail", "error", "raw")
_NESTED_KEYS = ("error", "errors", "response", "innererror", "details", "violations", "metadata")
_DEEPEST = 10
_AS_STATUS = {"rejected": 400, "server": 500, "unavailable": 503}
_ALWAYS_STATUS = {"rate_limit": 429, "quota": 429, "auth": 403, "not_found": 404}


def classify(signal: Signal) -> ErrorClass:
    """The class of a failed exchange, one that the ladder has a row for.

    Args:
        signal: What is known of it. Any text will do; this never raises.
    """
    return deciding_row(signal).error_class


def deciding_row(signal: Signal) -> Row:
    """The row of `TABLE` that decides, for those who want to know why."""
    codes = signal.code.lower().split()
    status = _status(signal, codes)
    # The text of a success that could not be read may be the model's own: it accuses nobody.
    words = "" if signal.kind == "bad_reply" and not status else signal.message[:LOOKED_AT]
    opened = signal.in_stream or signal.started
    for row in TABLE:
        if (
            (not row.opened or opened)
            and (not row.kinds or signal.kind in row.kinds)
            and (not row.statuses or status in row.statuses)
            and (not row.code or any(_pattern(row.code).fullmatch(code) for code in codes))
            and (not row.words or _pattern(row.words).search(words))
            and not (row.unless and _pattern(row.unless).search(words))
        ):
            return row
    return TABLE[-1]


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.DOTALL)


def _status(signal: Signal, codes: list[str]) -> int:
    """The status that counts: the body's, then a typed kind's, then the exchange's; 0 if none."""
    for code in codes:
        if re.fullmatch(r"[45][0-9]{2}", code):
            return int(code)
    if signal.kind == "auth" and signal.status in {401, 407}:
        return signal.status
    if signal.kind in _ALWAYS_STATUS:
        return _ALWAYS_STATUS[signal.kind]
    if signal.in_stream:
        return 0
    if signal.status is not None and signal.status >= 300:
        return signal.status
    return _AS_STATUS.get(signal.kind, 0)


def signal_from_body(
    provider: str,
    status: int | None,
    body: str,
    *,
    kind: str = "",
    in_stream: bool = False,
    started: bool = False,
) -> Signal:
    """A signal with code and message read from the text of a reply, in any provider's shape.

    Args:
        provider: As in `Signal`.
        status: The HTTP status, None if there was none.
        body: The text: JSON, HTML (only its title is kept), plain text or nothing.
        kind: The typed fact, if any. A success status becomes `bad_reply`.
        in_stream: As in `Signal`.
        started: As in `Signal`.
    """
    codes: list[str] = []
    words: list[str] = []
    _read(body, codes, words, depth=0)
    if not (kind or in_stream or status is None) and 200 <= status < 300:
        kind = "bad_reply"
    return Signal(
        provider=provider,
        kind=kind,
        status=status,
        code=" ".join(dict.fromkeys("_".join(c.split()) for c in codes if c.strip())),
        message=" · ".join(dict.fromkeys(words))[:LOOKED_AT],
        in_stream=in_stream,
        started=started,
    )


def _read(body: str, codes: list[str], words: list[str], *, depth: int) -> None:
    """Collect codes and words of a body, and of the body that it may quote."""
    text = body.strip()
    if text.startswith("<"):
        title = re.search(r"<title[^<>]*>([^<]*)", text[:100_000], re.IGNORECASE)
        words.append(unescape(title[1]).strip() if title else "a page of HTML without a title")
        return
    try:
        data = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        if text:
            words.append(text)
        return
    _collect(data, codes, words, depth)


def _collect(data: Any, codes: list[str], words: list[str], depth: int) -> None:
    if depth > _DEEPEST:
        return
    if isinstance(data, list):
        for item in data[:20]:
            _collect(item, codes, words, depth + 1)
    elif isinstance(data, str):
        if data.lstrip()[:1] in {"{", "["}:
            _read(data, codes, words, depth=depth + 1)
        elif data.strip():
            words.append(data.strip())
    elif isinstance(data, dict):
        codes.extend(_codes(data))
        nested = [key for key in _NESTED_KEYS if isinstance(data.get(key), dict | list)]
        for key in (*(key for key in _WORD_KEYS if key not in nested), *nested):
            _collect(data.get(key), codes, words, depth + 1)


def _codes(data: dict[str, Any]) -> list[str]:
    """What stands where providers put codes; numbers as text."""
    found = []
    for key in _CODE_KEYS:
        value = data.get(key)
        if isinstance(value, str) and value != "error":
            found.append(value)
        elif isinstance(value, int) and 1 < value < 1_000_000:
            found.append(str(value))
    return found
