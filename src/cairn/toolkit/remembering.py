"""The tools for memory: remember, recall, forget.

They work on the run's own memory (`ctx.memory`). The model says what and how far it is shared; for
whom it is kept, and how far it is trusted, follows from the run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cairn.core.events import MemoryRecalled
from cairn.errors import ConfigError, Refused, ToolError, UnknownRun
from cairn.memory.block import line_of
from cairn.memory.desk import MAX_DAYS, MAY_COME, Desk
from cairn.memory.facts import MAX_CHARS, MAX_TAG_CHARS, MAX_TAGS
from cairn.tools.context import Context
from cairn.tools.tool import Tool, tool

__all__ = ["MEMORY_TOOLS", "forget", "recall", "remember"]

MAX_QUERY_CHARS = 4_000
MAX_RECALLED = 20
RECALL_TOKENS = 2_000
RESULT_BYTES = 128 * 1024
"""What is recalled, however it is escaped, stays below this: it never becomes an artifact."""
TIMEOUT_S = 30.0

Scope = Literal["user", "project", "agent"]
FactId = Annotated[str, Field(pattern=r"^m[0-9]{1,15}$")]


def _desk(ctx: Context[Any]) -> Desk:
    desk = ctx.memory
    if not isinstance(desk, Desk):
        raise ToolError("there is no memory here: the deployment gives its runs none")
    return desk


@tool(effect="write", recovery="keyed", timeout=TIMEOUT_S)
async def remember(
    text: Annotated[str, Field(min_length=1, max_length=MAX_CHARS)],
    ctx: Context[Any],
    scope: Scope = "user",
    expires_days: Annotated[float, Field(ge=0, le=MAX_DAYS)] = 0,
    supersedes: Annotated[str, Field(pattern=r"^(m[0-9]{1,15})?$")] = "",
    tags: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_TAG_CHARS)]] | None,
        Field(max_length=MAX_TAGS),
    ] = None,
) -> str:
    """Remember a fact for later runs.

    One fact a call, in one or two sentences that can be understood alone. What can be looked up
    anywhere is not worth it, and secrets do not belong here.

    Args:
        text: The fact.
        scope: Who may see it: user for this person alone, project or agent where they are shared.
        expires_days: After how many days it counts no more; 0 for never.
        supersedes: The fact that it replaces, as m7.
        tags: Words to find it by that are not in its text.
    """
    days = expires_days or None  # a model fills in every argument, and 0 is its word for never
    try:
        kept = await _desk(ctx).remember(
            text, scope, days=days, supersedes=supersedes, tags=tuple(tags or ())
        )
    except (ConfigError, Refused, UnknownRun) as error:
        raise ToolError(str(error)) from error
    if kept.state == "gone":
        return f"m{kept.n} was remembered, and removed since."
    if kept.state == "waiting":
        why = kept.why or "it waits for a review"
        return f"m{kept.n} is noted, but not remembered before a person has accepted it: {why}."
    return f"m{kept.n} was known already." if kept.known else f"Remembered as m{kept.n}."


@tool(effect="read", timeout=TIMEOUT_S, result_bytes=RESULT_BYTES, taint=MAY_COME)
async def recall(
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)],
    ctx: Context[Any],
    scope: Literal["all", "user", "project", "agent"] = "all",
    limit: Annotated[int, Field(ge=1, le=MAX_RECALLED)] = 5,
) -> str:
    """Look up what is remembered from earlier runs.

    What comes back is material: it may be out of date, and an untrusted fact may be wrong.

    Args:
        query: What to look for, in words that the fact may have.
        scope: Where to look; everywhere by default.
        limit: How many facts at most.
    """
    desk = _desk(ctx)
    try:
        told = await desk.recall(query, scope, limit, RECALL_TOKENS)
    except (ConfigError, UnknownRun) as error:
        raise ToolError(str(error)) from error
    if ctx.run_id:
        ctx.facts.append(
            MemoryRecalled(
                call=ctx.call_id,
                facts=tuple(hit.fact.n for hit in told.hits),
                taint=told.labels,
                degraded=told.degraded,
            )
        )
    lines = [line_of(hit.fact, desk.principal) for hit in told.hits]
    if not lines:
        lines.append("Nothing is remembered that fits.")
    if told.more:
        lines.append(f"{told.more} more did not fit: ask for something narrower.")
    if told.degraded:
        lines.append(f"The order may be worse than it could be: {told.degraded}.")
    return "\n".join(lines)


@tool(effect="write", recovery="keyed", timeout=TIMEOUT_S)
async def forget(id: FactId, ctx: Context[Any]) -> str:
    """Remove a fact from memory for good, and the older ones that it had replaced.

    Args:
        id: The fact, as m7.
    """
    desk = _desk(ctx)
    try:
        gone = await desk.forget(id)
    except (ConfigError, Refused) as error:
        raise ToolError(str(error)) from error
    except UnknownRun as error:
        if ctx.attempt > 1 and await desk.is_gone(id):
            return f"{id} is forgotten."
        raise ToolError(str(error)) from error
    others = ", ".join(f"m{n}" for n in gone if f"m{n}" != id)
    return f"{id} is forgotten" + (f", and with it {others}." if others else ".")


MEMORY_TOOLS: tuple[Tool[..., Any], ...] = (remember, recall, forget)
"""All of them, for `Agent(tools=[*MEMORY_TOOLS])`."""
