"""What was asked of a model, and what came."""

from __future__ import annotations

from typing import Literal

from cairn.core.events.form import Block, Disposition, Event
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import Part
from cairn.core.view import View
from cairn.errors import ErrorClass

Purpose = Literal["turn", "summary", "classify"]
"""What a request is for: the agent's next turn, a summary, or the kind of the task."""
NO_TOOLS = "none"
"""In place of a hash, which has other letters: from here on no tools are offered."""


class ModelRequested(Event):
    """A request is about to be sent: what it reserves, and what of the context changed."""

    TYPE = 30
    NAME = "model.requested"
    model: str
    reserved: Reservation
    attempt: int = 1
    blocks: tuple[Block, ...] = ()
    messages: int = 0  # how many of the folded history the request holds
    tools: str = ""  # hash of the tool schemas offered, when it changed; NO_TOOLS for none
    tool_choice: str = "auto"
    output_mode: Literal["text", "schema", "action"] = "text"
    view: View | None = None  # what of the history is sent, when that changed
    purpose: Purpose = "turn"
    cut: int = 0  # a summary: of the messages before this one
    withheld: tuple[str, ...] = ()  # tools that hooks have taken from the offer
    fallback: int = 0  # which of the models it is made to, where those before have no room for it


class ModelCompleted(Event):
    """A whole, well-formed reply."""

    TYPE = 31
    NAME = "model.completed"
    parts: tuple[Part, ...]
    usage: Usage = Usage()
    finish: str = "stop"
    latency_us: int = 0
    first_token_us: int = 0
    request_id: str = ""
    price: str = ""
    model: str = ""  # which model answered, if not by the name it was asked under
    measured: bool = True  # whether the provider said what it used; else the reservation stands


class ModelFailed(Event):
    """No usable reply; `disposition` says what the ladder does, `note` what the model is told.

    A call whose process died is charged at its reservation, said by `usage`.
    """

    TYPE = 32
    NAME = "model.failed"
    error_class: ErrorClass
    message: str
    disposition: Disposition
    note: str = ""
    usage: Usage = Usage()
    latency_us: int = 0
    retry_at: int = 0
    request_id: str = ""
    lost: bool = False  # the process died inside the call; whether a reply came is not known
    status: int = 0  # of HTTP, 0 if there was none
    asked_us: int = 0  # how long the provider asked to wait
    fallback: int = 0  # which of the models is switched to, where that is not just the next
    measured: bool = True  # whether `usage` is what was used; else it is the reservation


class ModelRejected(Event):
    """The reply was well-formed, but cannot be the final answer; the model is told `note`."""

    TYPE = 33
    NAME = "model.rejected"
    error_class: ErrorClass
    disposition: Disposition
    note: str
