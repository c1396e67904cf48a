"""The tools every agent may have: ask a person, keep a plan, read a large result.

Importing this module loads pydantic, as every declaration of a tool does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from cairn.core.events import PlanUpdated, ToolsOffered
from cairn.core.messages import PlanItem
from cairn.core.names import listed
from cairn.errors import ToolError, UsageError
from cairn.tools.context import Context
from cairn.tools.text import preview
from cairn.tools.tool import Tool, make_tool, tool

MAX_PLAN_ITEMS = 50
MAX_PLAN_CHARS = 500
PAGE_CHARS = 8_000
MAX_PAGE_CHARS = 20_000
MAX_FOUND = 20
NONE_FOUND = "Nothing else fits. What you are sent as it is has not been searched: read it there."
PAGE_BYTES = 256 * 1024
"""A page, however it is escaped, stays below this: what is read never becomes an artifact again."""


@dataclass(frozen=True, kw_only=True)
class PlanItemIn:
    """One intention, in few words, and how far it is."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_PLAN_CHARS)]
    status: Literal["open", "doing", "done", "dropped"] = "open"


def _ask_user(question: str) -> str:
    """Ask the person you work for, and wait for the answer.

    Ask only what you cannot find out yourself, and everything you need at once.

    Args:
        question: The whole question; the person sees nothing else of what you think.
    """
    raise UsageError(f"ask_user is answered by a person, not called: {question}")


ask_user: Tool[[str], str] = make_tool(
    _ask_user, {"name": "ask_user", "effect": "read"}, kind="question"
)


@tool(effect="read")
def update_plan(
    items: Annotated[list[PlanItemIn], Field(max_length=MAX_PLAN_ITEMS)], ctx: Context[Any]
) -> str:
    """Write down your plan, whole: it replaces the one before.

    Args:
        items: All intentions, in order, done ones included.
    """
    plan = tuple(PlanItem(text=each.text, status=each.status) for each in items)
    ctx.facts.append(PlanUpdated(items=plan))
    return "The plan is noted."


@tool(effect="read", result_bytes=PAGE_BYTES)
async def read_artifact(
    id: str,
    ctx: Context[Any],
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_CHARS)] = PAGE_CHARS,
) -> dict[str, Any]:
    """Read a part of a stored result, a file, or something said earlier.

    Args:
        id: As it was named, for example a3, or c12 for what call c12 returned.
        offset: The first character to read.
        limit: How many characters to read.
    """
    found = await ctx.artifact(id) if ctx.artifact is not None else None
    if found is None:
        known = [f"a{number}" for number in range(1, ctx.artifacts + 1)]
        there = f"There are {listed(known)}" if known else "There are none yet"
        raise ToolError(f"there is no artifact {preview(id)}. {there}")
    name, content = found
    text = content[offset : offset + limit]
    end = offset + len(text)
    return {
        "id": id,
        "name": name,
        "offset": offset,
        "text": text,
        "next_offset": end if end < len(content) else None,
        "total_chars": len(content),
    }


@tool(effect="read")
def search_history(
    query: str,
    ctx: Context[Any],
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 5,
) -> dict[str, Any]:
    """Search what was said and found in this conversation and is not sent to you any more.

    Args:
        query: Words of what you look for, as they may have been used.
        limit: How many passages to show; read_artifact reads the whole of one by its id.
    """
    if ctx.history is None:
        raise ToolError("there is no history here")
    found = ctx.history(query, limit)
    if not found:
        return {"found": [], "note": NONE_FOUND}
    return {"found": [{"id": each.id, "role": each.role, "text": each.text} for each in found]}


@tool(effect="read")
def find_tools(
    query: str,
    ctx: Context[Any],
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 5,
) -> dict[str, Any]:
    """Look for a tool that is not on offer yet; what is found can be called from the next turn on.

    Args:
        query: What the tool should do, in a few words.
        limit: How many tools to show.
    """
    if ctx.tools is None:
        raise ToolError("all tools are on offer already")
    found = ctx.tools(query, limit)
    if found:
        ctx.facts.append(ToolsOffered(names=tuple(found), why="search"))
    return {"found": [{"name": name, "description": said} for name, said in found.items()]}


BUILTIN: tuple[Tool[..., Any], ...] = (
    ask_user,
    update_plan,
    read_artifact,
    search_history,
    find_tools,
)
"""All of them."""
