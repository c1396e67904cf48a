"""What is said of a request that is not on the tape: the nearest one, and how it differs."""

from __future__ import annotations

import os
import re
from difflib import SequenceMatcher, unified_diff

from cairn.models.cassette.asked import Asked, written
from cairn.models.cassette.redaction import SECRET_NAMES
from cairn.models.cassette.tape import Exchange, Tape
from cairn.ports import ModelRequest

MOST_COMPARED = 400
"""Lines on either side, after what both begin and end with; more would take long."""
MOST_LINES = 24
MOST_CHARACTERS = 2_400
LOOKED_AT = 500
"""Characters of a message that are compared to see which exchange is nearest."""

HINT = "Record what is new with CAIRN_CASSETTE=extend, or all anew with CAIRN_CASSETTE=record."
_NAMED = re.compile(rf"«(\w+(?:{'|'.join(SECRET_NAMES)}))»")


def unexpected(tape: Tape, asked: Asked, request: ModelRequest) -> str:
    """The message: which cassette, which exchange is nearest, a short diff, and what to do."""
    head = f"the cassette {tape.name} has no answer to this request"
    if not tape.exchanges:
        return f"{head}: there is no exchange on it. {HINT}"
    if same := tape.same(asked):
        failed = ", ".join(f"{one.number} (attempt {one.attempt})" for one in same[:8])
        return (
            f"{head}: this is attempt {request.attempt}, and the same request is on it only as "
            f"failed exchanges: {failed}. {HINT}"
        )
    nearest = max(tape.exchanges, key=lambda one: _likeness(one.asked, asked))
    diff = _diff(nearest.asked, asked, f"exchange {nearest.number}")
    line = f", line {nearest.line}" if nearest.line else ""
    return (
        f"{head}. Nearest is exchange {nearest.number} of {len(tape.exchanges)}{line}:\n"
        f"{diff}\n{_absent(diff)}{HINT}"
    )


def headline(exchange: Exchange) -> str:
    """An exchange on one short line."""
    last = exchange.asked.messages[-1] if exchange.asked.messages else {"role": "", "parts": ()}
    told = Asked(messages=[last]).lines()[2:3]
    line = f" (line {exchange.line})" if exchange.line else ""
    return f"exchange {exchange.number}{line}: {''.join(told)[:100]}"


def _likeness(one: Asked, other: Asked) -> tuple[float, float]:
    shared = 0
    for left, right in zip(one.digests, other.digests, strict=False):
        if left != right:
            break
        shared += 1
    longest = max(len(one.messages), len(other.messages), 1)
    score = 3 * shared / longest + (one.system == other.system) + (one.tools == other.tools)
    score += 0.5 * (one.output_schema == other.output_schema)
    left, right = (written(a.messages[shared : shared + 1])[:LOOKED_AT] for a in (one, other))
    return score, SequenceMatcher(None, left, right).quick_ratio()


def _diff(taped: Asked, now: Asked, where: str) -> str:
    before, after = taped.lines(), now.lines()
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    start = max(start - 1, 0)
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    left = before[start : len(before) - end][:MOST_COMPARED]
    right = after[start : len(after) - end][:MOST_COMPARED]
    lines = list(unified_diff(left, right, f"on the tape, {where}", "asked now", n=1, lineterm=""))
    lines = [line for line in lines if not line.startswith("@@")]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES} more lines"]
    text = "\n".join(lines)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _absent(diff: str) -> str:
    """A secret can only be matched where its value is known: say whose is not."""
    names = {
        name
        for line in diff.splitlines()
        if line.startswith("-")
        for name in _NAMED.findall(line)
        if name not in os.environ
    }
    if not names:
        return ""
    return (
        f"{', '.join(sorted(names))} was set where this was recorded, so its value was replaced, "
        "and is not set here. "
    )
