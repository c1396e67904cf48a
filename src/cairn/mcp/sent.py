"""How far a request has come on its way to the server: what is known when no answer comes."""

from __future__ import annotations

from contextvars import ContextVar


class Sent:
    """One request to a server, marked by the wire it goes over.

    Attributes:
        method: Which request is meant.
        begun: Something of it has left us: from here on the server may have acted.
        refused: The server has said that it did not take it at all.
        status: The HTTP status it was answered with, 0 for none.
        problem: What went wrong on the way, in words.
    """

    __slots__ = ("begun", "method", "problem", "refused", "status")

    def __init__(self, method: str) -> None:
        self.method = method
        self.begun = False
        self.refused = False
        self.status = 0
        self.problem = ""

    def begin(self) -> None:
        """Its first byte has left."""
        self.begun = True


SENT: ContextVar[Sent | None] = ContextVar("cairn_mcp_sent", default=None)
"""The request that is being made in this context."""
