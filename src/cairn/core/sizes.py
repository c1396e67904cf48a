"""How large messages are taken to be, in tokens, before anybody has measured them."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.core.limits import estimate_tokens
from cairn.core.messages import Blob, CallPart, Message, Reasoning, ResultPart, Text, Uri
from cairn.core.view import View, sent

CALL_OVERHEAD_TOKENS = 8
IMAGE_TOKENS = 1_600
"""What providers count for an image at most, after scaling it down."""


def tokens_of(message: Message) -> int:
    """Estimated tokens of a message."""
    total = 4
    for part in message.parts:
        if type(part) is Text or type(part) is Reasoning:
            total += estimate_tokens(part.content)
        elif type(part) is ResultPart:
            total += estimate_tokens(part.result) + CALL_OVERHEAD_TOKENS
        elif type(part) is CallPart:
            total += estimate_tokens(part.arguments) + CALL_OVERHEAD_TOKENS
        elif type(part) is Blob:
            total += _tokens_of_blob(part)
        elif type(part) is Uri:
            total += IMAGE_TOKENS
    return total


def _tokens_of_blob(part: Blob) -> int:
    """Providers scale images down to a bounded size; text and pages count by their length."""
    if part.mime_type.startswith("image/"):
        return IMAGE_TOKENS
    return IMAGE_TOKENS + len(part.content) // 4


def size_of(messages: Sequence[Message], view: View, summary: str = "") -> int:
    """Estimated tokens of messages, seen so."""
    return sum(map(tokens_of, sent(messages, view, summary)))


def bulk_of(messages: Sequence[Message], view: View) -> int:
    """How many of the tokens are guesses at files, which providers count in their own ways."""
    parts = (part for m in sent(messages, view) for part in m.parts)
    return sum(_tokens_of_blob(part) for part in parts if type(part) is Blob)
