"""What becomes of the context: it is compacted, taken back, or fed before the model is asked."""

from __future__ import annotations

from typing import Literal

from cairn.core.events.form import Block, Event, TaskKind
from cairn.core.messages import CallPart


class ContextCompacted(Event):
    """From here on a summary stands for the messages before `start`; the journal keeps them."""

    TYPE = 140
    NAME = "context.compacted"
    start: int
    text: str
    by: Literal["model", "rule"]
    before: int  # tokens of the messages as they were sent, and as they are sent from here on
    after: int
    asked: int = -1  # a user's request before `start` that is sent all the same
    whole: int = 0  # the first message whose tool results are sent whole
    kept: int = 0  # how many characters are sent of each result before that
    why: str = ""  # why a rule wrote the summary, where a model was to write it
    keep: tuple[str, ...] = ()  # what the model says is to be remembered, one fact each


class ContextRestored(Event):
    """A person took the last compaction back: what was sent before it is sent again."""

    TYPE = 141
    NAME = "context.restored"
    of: int  # seq of the `context.compacted`


class TurnFed(Event):
    """The runtime's own calls before the model is asked: what they bring is context."""

    TYPE = 142
    NAME = "turn.fed"
    parts: tuple[CallPart, ...]
    blocks: tuple[str, ...] = ()  # the context block that each of them feeds


class ContextUpdated(Event):
    """Blocks have changed, and with them the request is no longer what was decided on."""

    TYPE = 143
    NAME = "context.updated"
    blocks: tuple[Block, ...] = ()  # those that changed


class TurnKept(Event):
    """The runtime's own calls beside the conversation: they keep the facts of a summary."""

    TYPE = 144
    NAME = "turn.kept"
    of: int  # seq of the `context.compacted`
    parts: tuple[CallPart, ...] = ()
    why: str = ""  # why some or all of its facts are not kept


class TaskClassified(Event):
    """What kind of task it is, said before work starts; it only ever narrows."""

    TYPE = 150
    NAME = "task.classified"
    kind: TaskKind
    by: str  # `model`, or `none` where it said no kind (once written `rule`)
    why: str = ""  # what the model said, where that was no kind


class ToolsOffered(Event):
    """Which of many tools the model is offered from here on, beside those always there."""

    TYPE = 151
    NAME = "tools.offered"
    names: tuple[str, ...]
    why: Literal["request", "search"]
