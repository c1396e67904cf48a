"""Entries follow each other: what a store checks before it takes them in."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.core.events import Entry
from cairn.errors import IllegalTransition


def check_gapless(run: str, head: int, entries: Sequence[Entry]) -> None:
    """Refuse entries that would leave a gap.

    Raises:
        IllegalTransition: an entry does not follow the one before it.
    """
    for entry in entries:
        head += 1
        if entry.seq != head:
            raise IllegalTransition(f"{run}: event {entry.seq} cannot stand where {head} must")
