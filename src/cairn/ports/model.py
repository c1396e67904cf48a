"""What a language model promises, what it is asked, and the lane that its requests wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from cairn.core.limits import Price, Usage
from cairn.core.messages import Message, Part, Record
from cairn.errors import ErrorClass


class ToolSchema(Record):
    """A tool as the model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(Record, gc=True):
    """One request, complete. A model adds nothing of its own to it.

    Args:
        system: Instruction blocks, joined.
        messages: The conversation, well-formed: every call answered exactly once.
        tools: What is offered; empty for none.
        tool_choice: auto, none, required, or a tool's name.
        output_schema: JSON Schema of the final answer, if it is typed.
        max_output: Output tokens at most.
        timeout_s: Deadline of the whole call.
        turn: How many model outcomes this run had before; a scripted model picks by it.
        run, step, attempt: Where in the trace it stands.
    """

    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...] = ()
    tool_choice: str = "auto"
    output_mode: Literal["text", "schema", "action"] = "text"
    output_schema: dict[str, Any] | None = None
    max_output: int = 4096
    timeout_s: float = 120.0
    turn: int = 0
    run: str = ""
    step: int = 0
    attempt: int = 1


class ReplyCall(Record):
    """A tool call as the provider gave it; `arguments` is its exact text.

    `opaque` is what the provider wants back with the call in later requests. `place` is how many
    parts of the reply came before it; negative for all of them.
    """

    name: str
    arguments: str = "{}"
    id: str = ""
    opaque: str = ""
    place: int = -1


class ModelReply(Record):
    """What came back, whole. A cut or refused reply is an error, never a reply.

    Args:
        parts: Text and reasoning, in order.
        calls: Tool calls, in order.
        finish: The provider's own reason: stop, tool_calls, length, content_filter, …
        usage: Tokens in disjoint buckets; cost is added by the runtime. None when the provider
            did not say: the request is then charged at its reservation.
        request_id: The provider's id of the exchange.
        first_token_us: Time to the first token, 0 when not streamed.
        model: Which model answered, as the provider says it.
    """

    parts: tuple[Part, ...] = ()
    calls: tuple[ReplyCall, ...] = ()
    finish: str = "stop"
    usage: Usage | None = Usage()
    request_id: str = ""
    first_token_us: int = 0
    model: str = ""


OnDelta = Callable[[str], None]


class Permit(Protocol):
    """Leave to make one request; it must be closed once, however the request ended."""

    def close(
        self, fault: ErrorClass | None = None, *, retry_after_s: float = 0.0, tokens: int = 0
    ) -> None:
        """The request has ended.

        Args:
            fault: What went wrong, None for a reply. A fault that is not the provider's
                (cancelled, internal) says nothing of the provider.
            retry_after_s: How long the provider asked to wait, 0 if it did not.
            tokens: What it used, 0 if that is not known.
        """
        ...


class Lane(Protocol):
    """The way to one provider, shared by all runs of the process, whatever loop they run in."""

    def try_enter(self, tokens: int) -> Permit | None:
        """Leave at once, or None while others are ahead or the provider needs a rest.

        Args:
            tokens: What the request reserves, for limits on tokens per minute.
        """
        ...

    async def enter(self, tokens: int) -> Permit:
        """As `try_enter`, first come, first served. Cancelling it leaves no trace."""
        ...


class Model(Protocol):
    """A language model.

    It must never: retry by itself, hand out a partial reply as whole, keep state between
    requests that a restart would lose, or raise anything but `ModelError` for a fault of the
    other side.

    Beside what stands here a model may say `takes_tools = False` (it answers with one JSON
    action in place of tool calls), `timeout_s` (deadline of one request, 120 by default), and
    `lane` (a `Lane` that requests wait for). It may have `check()`, which raises `ConfigError`
    when it could not be asked here, an async `ready()` that loads what a first request needs, and
    `close()`, sync or async, which gives back what it holds open in the running loop. `price` None
    is an unknown price.
    """

    @property
    def name(self) -> str:
        """How the trace calls it, `provider:name` for a provider's."""
        ...

    @property
    def price(self) -> Price | None:
        """What its tokens cost; None when nobody knows."""
        ...

    @property
    def window(self) -> int:
        """How many tokens a request and its reply may have together."""
        ...

    @property
    def max_output(self) -> int:
        """How many tokens a reply is given room for, at most."""
        ...

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Make one request. `on_delta` is called with text as it arrives.

        Raises:
            ModelError: with the class the ladder decides by.
        """
        ...
