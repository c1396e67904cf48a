"""The form of a fact, and the words that facts share."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from cairn.core.messages import Record
from cairn.core.policy.form import Effect, TaskKind

__all__ = ["EMPTY", "Block", "Disposition", "Effect", "Event", "Recovery", "RunRef", "TaskKind"]

Disposition = Literal["retry", "repair", "switch", "degrade", "ask_user", "takeover", "end"]
Recovery = Literal["repeat", "keyed", "probe", "once"]
EMPTY = msgspec.Raw(b"null")


class Event(Record, gc=False):
    """The base of all facts; never recorded itself."""

    TYPE: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    V: ClassVar[int] = 1


class RunRef(Record):
    """A place in another run's journal."""

    run: str
    seq: int


class Block(Record):
    """A named piece of the context that changed with this request.

    Args:
        name: Its name.
        text: What is sent; empty text removes it.
        place: `head` for the instructions, `end` for behind the last message.
        source: Where it is from.
        tokens: How many it is estimated at.
        why: Why it is shortened or left out; empty for a block that is in, whole.
    """

    name: str
    text: str = ""
    place: Literal["head", "end"] = "head"
    source: str = ""
    tokens: int = 0
    why: str = ""
