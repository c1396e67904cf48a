"""What is known of a call that feeds a context block before the model is asked."""

from __future__ import annotations

from cairn.core.messages import Record
from cairn.errors import ErrorClass


class Fed(Record):
    """A call that feeds a context block.

    Args:
        block: The block.
        call: The call.
        tool: The tool it was made to.
        at: The message that holds the call; the next one holds its result.
        fault: Why there is none, as a class.
        why: Why the block is cut or left out, in words.
        out: Whether it is left out.
    """

    block: str
    call: str
    tool: str
    at: int
    fault: ErrorClass | None = None
    why: str = ""
    out: bool = False
