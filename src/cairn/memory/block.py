"""What is known, as text: for the tools' results, and as a block of the context.

The same facts always make the same bytes, so that a block that has not changed stays in the
provider's cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from cairn.core.fence import fenced
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Principal, clean
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, safe_repr
from cairn.memory.desk import FROM_MEMORY, MAX_TOKENS, Desk
from cairn.memory.facts import MAX_HITS, Fact

INTRO = "What is remembered from earlier, by people or by trusted runs; it may be out of date:"
SECOND_US = 1_000_000
QueryFrom = str | Callable[[Any], str]


def line_of(fact: Fact, principal: Principal) -> str:
    """A fact on lines of its own: its id, whose it is, since when, how far to trust it.

    What follows its first line is marked: no text can look like a second fact that is trusted more.
    Tags are not told, for they stand where that is said.
    """
    content = fact.content
    notes = [content.scope.kind, fact.trust_for(principal), _day(content.created_at)]
    if content.expires_at:
        notes.append(f"until {_day(content.expires_at)}")
    if content.taint and fact.trust == "untrusted":
        notes.append(f"from {', '.join(content.taint)}")
    body = "\n  | ".join(fact.text.splitlines())
    return f"- {fact.id} ({'; '.join(notes)}): {body}"


def _day(us: int) -> str:
    try:
        return datetime.fromtimestamp(us // SECOND_US, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # a clock that is beyond all calendars
        return f"{us} µs"


def memory_block(
    query_from: QueryFrom = "input",
    *,
    limit: int = 5,
    tokens: int = 500,
) -> Callable[[Any], Awaitable[str]]:
    """A block of the context: the trusted facts that fit what the run is about.

    Untrusted facts are never in it: they taint a run, and a run is tainted by calls only. A model
    gets at them with the tool `recall`.

    Args:
        query_from: What is looked for: `input` for the run's latest input (`briefing.input`), a
            function of the briefing (a plain one runs in a thread, for at most 10 seconds), or
            any other text as it stands.
        limit: Facts at most. Default 5.
        tokens: Tokens of the whole block at most, estimated, with the marks around it; where not
            one fact fits, the block is empty. Default 500.

    Returns:
        An async function of a briefing, which has `memory` (a `Desk`, or None) and `input`; it
        gives the block's text, empty when nothing is known.

    Raises:
        ConfigError: a value is not usable.
    """
    _check_count("memory_block.limit", limit, MAX_HITS)
    _check_count("memory_block.tokens", tokens, MAX_TOKENS)
    given: object = query_from
    if not callable(given) and not isinstance(given, str):
        fix = "Give input, a text, or a function of a briefing"
        raise ConfigError("memory_block.query_from", f"{safe_repr(given)} is none", fix)
    if callable(given):
        check_taker("memory_block.query_from", given, "a Briefing")
    if isinstance(given, str) and (not given.strip() or clean(given) != given):
        fix = "Give input, or the words to look for"
        raise ConfigError("memory_block.query_from", f"{safe_repr(given)} finds nothing", fix)

    async def block(briefing: Any) -> str:
        desk: Desk | None = getattr(briefing, "memory", None)
        if desk is None:
            return ""
        if callable(query_from):
            query = await desk.asks("memory_block.query_from", query_from, briefing)
        else:
            query = str(getattr(briefing, "input", "")) if query_from == "input" else query_from
        # untrusted facts that fit better must not push out what may be told
        told = await desk.recall(query, "all", MAX_HITS, MAX_TOKENS)
        trusted = [hit.fact for hit in told.hits if desk.trusts(hit.fact)]
        return text_of_block(_within(trusted[:limit], tokens, desk.principal), desk.principal)

    return block


def _check_count(field: str, value: object, most: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:  # type: ignore[operator]  # it is a number by now
        raise ConfigError(
            field, f"{safe_repr(value)} cannot be", f"Give a whole number of 1 to {most}"
        )


def _within(facts: Sequence[Fact], tokens: int, principal: Principal) -> list[Fact]:
    """The facts whose text, with all that stands around it, has no more than so many tokens."""
    chosen: list[Fact] = []
    for fact in facts:
        if estimate_tokens(text_of_block([*chosen, fact], principal)) <= tokens:
            chosen.append(fact)
    return chosen


def text_of_block(facts: Sequence[Fact], principal: Principal) -> str:
    """The block's text, fenced as data; in the order of the facts' numbers, which is stable."""
    if not facts:
        return ""
    lines = [line_of(fact, principal) for fact in sorted(facts, key=lambda fact: fact.n)]
    seed = ",".join(fact.id for fact in facts)
    body = fenced("\n".join(lines), (FROM_MEMORY,), seed)
    return f"{INTRO}\n{body}"
