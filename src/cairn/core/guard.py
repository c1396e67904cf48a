"""The progress guard: it tells whether a run still gets anywhere.

A turn makes progress when a write is called with arguments not used in the last `WINDOW`
turns, or a read brings a result not seen in them. So the same call for ever, A-B-A-B, and
reads that change their arguments and get the same answer are found; polling with changing
results and three different attachments that all answer "true" are not.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from cairn.core.messages import Record, parse_object

WINDOW = 8
"""How many turns back the guard looks."""
HINT, BLOCK, STOP = 0, 1, 2
"""Rungs of the guard's ladder, in turns after the limit is reached."""


class Guard(Record):
    """What the guard remembers: two windows of keys, and the turns without progress."""

    seen: tuple[frozenset[bytes], ...] = ()
    asked: tuple[frozenset[bytes], ...] = ()
    stale: int = 0
    rung: int = -1

    def closed(self, made: frozenset[bytes], asked: frozenset[bytes]) -> Guard:
        """The guard after a turn that made these results and asked these calls."""
        fresh = any(not any(key in turn for turn in self.seen) for key in made)
        return Guard(
            seen=(*self.seen[1 - WINDOW :], made),
            asked=(*self.asked[1 - WINDOW :], asked),
            stale=0 if fresh else self.stale + 1,
            rung=-1 if fresh else self.rung,
        )

    def repeats(self, key: bytes) -> bool:
        """Whether this very call was made in the window."""
        return any(key in turn for turn in self.asked)


def call_key(tool: str, arguments: str) -> bytes:
    """Identity of a call: the tool and its arguments, whatever their spacing and key order."""
    return _digest(tool, canonical(arguments))


def result_key(tool: str, result: str) -> bytes:
    """Identity of what a read brought."""
    return _digest(tool, result.encode("utf-8", "replace"))


def canonical(arguments: str) -> bytes:
    """Argument text with sorted keys and no spaces; text that is no object stays as it is."""
    value = parse_object(arguments)
    if value is None:
        return arguments.encode("utf-8", "replace")
    return msgspec.json.encode(value, order="sorted")


def _digest(tool: str, payload: bytes) -> bytes:
    return blake2b(tool.encode("utf-8", "replace") + b"\0" + payload, digest_size=12).digest()
