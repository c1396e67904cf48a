"""What is known of a call that a server did not answer well (law 4)."""

from __future__ import annotations

from typing import Any

from cairn.core.events import Effect
from cairn.errors import ErrorClass, NotDone, ToolError, ToolSignal, Unsure, words_of
from cairn.mcp.sent import Sent
from cairn.tools.text import shorten

CLOSED, TIMED_OUT, UNREADABLE = -32_000, -32_001, -32_700
"""What the SDK says in a server's place when there is no answer; a server may say it too."""
MESSAGE_CHARS = 1_500


class Down(NotDone):
    """The server cannot be reached now: nothing was asked of it."""


def signal_of(server: str, error: Exception, sent: Sent, effect: Effect, told: str) -> ToolSignal:
    """The error as what it says of the effect.

    Args:
        server: The server's name.
        error: What the SDK raised.
        sent: How far the request came.
        effect: The tool's effect, as the operator declared it.
        told: The last the server said beside the protocol.
    """
    if isinstance(error, ToolSignal):
        return error
    said = _words(error, sent, told)
    if not sent.begun:
        return Down(f"MCP server {server}: nothing was sent: {said}")
    if sent.refused or 300 <= sent.status < 400:
        return NotDone(f"MCP server {server} did not take the call: {said}")
    if 400 <= sent.status < 500:  # whatever its body says
        return ToolError(f"MCP server {server} refused the call: {said}")
    if _is_answer(error) and sent.status < 500 and not sent.problem:
        return ToolError(f"MCP server {server}: {said}")
    whole = f"MCP server {server} gave no answer that says what came of it: {said}"
    if effect == "read":
        return ToolError(whole, error_class=ErrorClass.MCP_DISCONNECTED)
    return Unsure(whole)


def _is_answer(error: Exception) -> bool:
    """Whether the server itself said that it failed."""
    from mcp.shared.exceptions import MCPError

    answered = isinstance(error, MCPError)
    return answered and getattr(error, "code", 0) not in {CLOSED, TIMED_OUT, UNREADABLE}


def _words(error: Exception, sent: Sent, told: str) -> str:
    from pydantic import ValidationError

    if sent.problem:
        said = sent.problem
    elif isinstance(error, ValidationError):
        said = f"its answer is not what the protocol says ({error.error_count()} faults)"
    else:
        said = str(error) or type(error).__name__
    if sent.status >= 300:
        said = f"HTTP {sent.status}, {said}"
    return shorten(f"{said}{f' (it said: {told})' if told else ''}", MESSAGE_CHARS)


def failed_call(server: str, said: str, notes: list[str]) -> ToolError:
    """A tool that answered that it failed: known, and told to the model."""
    whole = "\n".join([said or "the tool failed and did not say why", *notes])
    return ToolError(shorten(f"MCP server {server}: {whole}", MESSAGE_CHARS))


def first_of(error: BaseException) -> BaseException:
    """The first real error in the SDK's groups of them."""
    seen: Any = error
    while isinstance(seen, BaseExceptionGroup) and seen.exceptions:
        seen = seen.exceptions[0]
    return seen  # type: ignore[no-any-return]  # groups know no type of what they hold


def sdk_words(error: BaseException) -> str:
    """An error of the SDK in words."""
    return shorten(words_of(first_of(error)), MESSAGE_CHARS)
