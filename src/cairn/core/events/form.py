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
    """A named piece of the context whose text changed with this request; empty text removes it."""

    name: str
    text: str = ""
