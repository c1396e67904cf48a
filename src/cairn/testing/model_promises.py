"""What the parts of the model contract share: the other side, and how a model is held to its word.

The suite writes down what the other side says; a test of a model brings it there, over a socket or
in the process. Each request carries a mark, by which the other side knows what to say to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import msgspec

from cairn.core.limits import Usage
from cairn.core.messages import Record, user
from cairn.errors import ErrorClass, ModelError
from cairn.ports import Model, ModelReply, ModelRequest, ReplyCall, ToolSchema

PATIENCE_S = 20.0
"""How long anything may take before it counts as hanging."""
FIND = ToolSchema(
    name="find",
    description="Find things.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
TALLY = Usage(input_tokens=11, output_tokens=7)
_MARK = re.compile(r"mark-[a-z0-9]+-")


class Says(Record):
    """What the other side says to a request.

    Args:
        text: Words of the reply.
        calls: Its tool calls, with the exact text of their arguments.
        finish: stop, length or content_filter.
        usage: What it says it used; None when it does not say.
        fault: It refuses with this class of fault instead, in its own form.
        ending: `whole`; `cut` breaks off in the middle of the text, without a finish reason;
            `hang` says the first half and then nothing more; `garbage` is no reply at all.
    """

    text: str = ""
    calls: tuple[ReplyCall, ...] = ()
    finish: Literal["stop", "length", "content_filter"] = "stop"
    usage: Usage | None = TALLY
    fault: ErrorClass | None = None
    ending: Literal["whole", "cut", "hang", "garbage"] = "whole"


class Far:
    """The other side. Whoever stands for it hands in each request, and says what it is given.

    Args:
        lines: What is said to the request with each mark.
    """

    def __init__(self, **lines: Says) -> None:
        self.lines = lines
        self.heard: list[tuple[str, str]] = []
        """Mark and whole text of each request, in order of arrival."""
        self._arrived = asyncio.Event()

    def hear(self, text: str) -> Says:
        """A request has come, with this text in whatever form; what to say to it."""
        mark = _MARK.findall(text)[-1].split("-")[1]
        self.heard.append((mark, text))
        self._arrived.set()
        return self.lines[mark]

    def times(self, mark: str) -> int:
        """How many requests with this mark have come."""
        return sum(1 for each, _ in self.heard if each == mark)

    def texts(self, mark: str) -> list[str]:
        """The requests with this mark, as they came."""
        return [text for each, text in self.heard if each == mark]

    async def arrival(self) -> None:
        """Until the first request has come."""
        async with asyncio.timeout(PATIENCE_S):
            await self._arrived.wait()


Promise = Callable[[Model, Far], Awaitable[None]]


class ModelPromises:
    """A model to make promises about. Whoever tests one fills in `open`, and says what it can do.

    Attributes:
        exact_arguments: The arguments of a call come back as the text that was said. Otherwise
            as the same JSON value.
        keeps_deadline: It ends a request at `timeout_s` by itself. Otherwise whoever asked
            cancels it then, as the runtime does.
        acts: It can be asked for one JSON action in place of tool calls.
        tells_choice: The other side is told of `tool_choice`.
        says_usage: The other side can leave out what it used.
        faults: What the other side can be made to refuse with.
    """

    exact_arguments = True
    keeps_deadline = True
    acts = True
    tells_choice = True
    says_usage = True
    faults: tuple[ErrorClass, ...] = (
        ErrorClass.RATE_LIMITED,
        ErrorClass.UNAVAILABLE,
        ErrorClass.AUTH,
        ErrorClass.INVALID_REQUEST,
        ErrorClass.MODEL_NOT_FOUND,
    )

    def open(self, far: Far) -> AbstractAsyncContextManager[Model]:
        """A model that speaks with this other side; leaving closes both."""
        raise NotImplementedError

    async def gone(self) -> None:
        """Until the other side has noticed that nobody waits for its answer any more."""

    def keep(self, promise: Promise, **lines: Says) -> None:
        """Hold the model to a promise."""

        async def held() -> None:
            far = Far(**lines)
            async with self.open(far) as model:
                await promise(model, far)

        asyncio.run(held())


def ask(mark: str, words: str = "Say something.", **changes: Any) -> ModelRequest:
    """A request that carries a mark."""
    request = ModelRequest(
        system="You help.", messages=(user(f"{words} mark-{mark}-"),), timeout_s=PATIENCE_S
    )
    return msgspec.structs.replace(request, **changes)


async def refused(model: Model, request: ModelRequest) -> ModelError:
    """The error that the request ends with; a reply, or any other error, breaks the promise."""
    try:
        reply = await model.request(request)
    except ModelError as error:
        return error
    raise AssertionError(f"a ModelError was due, but the reply was {reply!r}")


def text_of(reply: ModelReply) -> str:
    """The words of a reply, joined."""
    return "".join(getattr(part, "content", "") for part in reply.parts)
