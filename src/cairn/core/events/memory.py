"""What became of facts that outlive a run: kept, reviewed, recalled, forgotten."""

from __future__ import annotations

from typing import Literal

from cairn.core.events.form import Event


class MemoryReviewed(Event):
    """A person said what becomes of a fact: from here on it counts with this trust, or is gone."""

    TYPE = 230
    NAME = "memory.reviewed"
    fact: int
    hash: str
    verdict: Literal["accepted", "rejected"]
    trust: Literal["", "owner", "agent", "untrusted"] = ""  # of an accepted one
    supersedes: int = 0  # the fact that it replaces from here on
    reason: str = ""
    restores: tuple[int, ...] = ()  # what a rejected one had replaced, and what lives again
    confirms: int = 0  # the live fact of the same words that counts in its place
    also: tuple[int, ...] = ()  # facts of the same words whose place the one that counts took too
    whose: tuple[str, ...] = ()  # of a rejected one, as in `MemoryForgotten`


class MemoryForgotten(Event):
    """A fact was removed; its hash stays, and says nothing of it without the salt that went too.

    `whose` says for whom it was kept, and whose scope alone it was in, only to who knows the id:
    SHA-256 of the fact's hash, the id and the tenant, with a NUL between the last two.
    """

    TYPE = 231
    NAME = "memory.forgotten"
    fact: int
    hash: str
    expired: bool = False  # its time was up, and nobody asked for it
    reason: str = ""
    whose: tuple[str, ...] = ()


class MemoryErased(Event):
    """All facts kept for one principal were removed; who it was shows only to who knows the id.

    `whose` is SHA-256 of `salt` (hex, both), the id and the tenant, with a NUL between the two.
    """

    TYPE = 232
    NAME = "memory.erased"
    facts: tuple[int, ...]
    reason: str = ""
    restores: tuple[int, ...] = ()  # facts of others that they had replaced, and that live again
    moves: tuple[tuple[int, int], ...] = ()
    """Facts of others that they had replaced, each with the one that has replaced it now."""
    whose: str = ""
    salt: str = ""


class MemoryKept(Event):
    """A fact was kept: its hash, and how far it is trusted. What it says stands in no journal."""

    TYPE = 233
    NAME = "memory.kept"
    fact: int
    hash: str  # of salt and content
    trust: Literal["owner", "agent", "untrusted"]
    waits: bool = False  # for a review, and is recalled only after it
    key: str = ""  # of the call that kept it
    supersedes: int = 0  # the fact that it replaced
    also: tuple[int, ...] = ()  # facts of the same words whose place it took too


class MemoryRecalled(Event):
    """Which facts a call is told of, and the taint they bring; in one write with its outcome."""

    TYPE = 234
    NAME = "memory.recalled"
    call: str
    facts: tuple[int, ...] = ()
    taint: tuple[str, ...] = ()
    """In place of `memory:unchecked`, which says that nobody knows what came."""
    degraded: str = ""
