"""Facts as they stand at a moment: in a store `live` lasts until it is removed."""

from __future__ import annotations

import msgspec

from cairn.errors import ConfigError, safe_repr
from cairn.memory.facts import Fact, FactFilter
from cairn.memory.port import Memory

STATES = ("live", "expired", "waiting", "superseded")
"""Which facts may be asked for."""


def as_of(fact: Fact, now: int) -> Fact:
    """The fact as it stands then: a live one whose time is up is `expired`."""
    if fact.state == "live" and fact.expired(now):
        return msgspec.structs.replace(fact, state="expired")
    return fact


async def facts_as_of(memory: Memory, where: FactFilter, now: int) -> list[Fact]:
    """Facts by what they are at a moment, the oldest first.

    Args:
        memory: Where they are kept. What is live there may have expired.
        where: Which; of a state that they have at that moment.
        now: The moment, in microseconds since 1970.
    """
    state = "live" if where.state == "expired" else where.state
    found: list[Fact] = []
    after = where.after
    while True:
        rows = await memory.facts(msgspec.structs.replace(where, state=state, after=after))
        told = [as_of(fact, now) for fact in rows]
        found += [fact for fact in told if where.state in {"", fact.state}]
        if not where.limit or len(rows) < where.limit:
            return found
        if len(found) >= where.limit:
            return found[: where.limit]
        after = rows[-1].n


def state_of(text: str, field: str) -> str:
    """The state that is asked for; empty for all.

    Raises:
        ConfigError: it is none.
    """
    if text in {"", *STATES}:
        return text
    fix = f"Use {', '.join(STATES[:-1])} or {STATES[-1]}"
    raise ConfigError(field, f"{safe_repr(text)} is none", fix)
