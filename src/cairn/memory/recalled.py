"""Which facts an event tells: where what was remembered stands in the journal of a run."""

from __future__ import annotations

import re
from collections.abc import Collection

from cairn.core import events as ev
from cairn.core.codec import decode
from cairn.errors import CorruptJournal
from cairn.memory.block import INTRO

TELLING = (ev.MemoryRecalled.TYPE, ev.ModelRequested.TYPE)
"""Types of the events that may tell facts."""
MARK = INTRO.encode()
"""What stands in the data of a request in which a `memory_block` told some."""
_LINE = re.compile(r"^- m([0-9]{1,15}) \(", re.MULTILINE)


def facts_told(event: ev.Event) -> frozenset[int]:
    """Numbers of the facts that an event tells: those of a recall, or of a block of the context."""
    if isinstance(event, ev.MemoryRecalled):
        return frozenset(event.facts)
    if isinstance(event, ev.ModelRequested):
        texts = [block.text for block in event.blocks if INTRO in block.text]
        return frozenset(int(n) for text in texts for n in _LINE.findall(text))
    return frozenset()


def row_tells(number: int, version: int, data: bytes, facts: Collection[int]) -> bool:
    """Whether the event that a row holds tells one of the facts.

    One that cannot be read tells nobody anything; `cairn verify` names it.
    """
    try:
        return not facts_told(decode(number, version, data)).isdisjoint(facts)
    except CorruptJournal:
        return False
