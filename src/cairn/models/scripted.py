"""A model that follows a script: for tests, demos and docs. It costs nothing and knows nothing.

Each item of the script answers one request:

    "text"                     a final answer
    call("search", q="x")      one tool call
    [call(...), call(...)]     several calls in one reply; strings in the list are text beside them
    ModelError(...)            this attempt fails
    function                   called with the request; returns any of the above
    ModelReply(...)            a reply in full

The item is picked by the request's turn, which counts the replies this run had before. So a run
that is killed and goes on continues with its script and does not start over.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from cairn.core.limits import FREE, Price, Usage
from cairn.core.messages import Part, Reasoning, Text
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, ErrorClass, ModelError, safe_repr
from cairn.ports import ModelReply, ModelRequest, OnDelta, ReplyCall

Said = str | ReplyCall | Reasoning
Line = Said | Sequence[Said] | ModelReply | ModelError
Cue = Line | Callable[[ModelRequest], "Line | Awaitable[Line]"]


def call(tool: str, /, **arguments: Any) -> ReplyCall:
    """A tool call for a script; `arguments` are written as JSON."""
    return ReplyCall(name=tool, arguments=msgspec.json.encode(arguments).decode())


def _check_script(script: object) -> None:
    fix = 'Give a list, as ["hello"], with an item for each request; or one function'
    if isinstance(script, str):
        fix = f"Write Scripted([{script[:40]!r}]): a list with an item for each request"
    if isinstance(script, str | bytes) or not (isinstance(script, Sequence) or callable(script)):
        raise ConfigError("Scripted.script", f"{safe_repr(script)} is no list of replies", fix)
    if callable(script):
        check_taker("Scripted.script", script, "a ModelRequest")
        return
    for n, cue in enumerate(script):
        if callable(cue):
            check_taker(f"Scripted.script[{n}]", cue, "a ModelRequest")


def _check_tokens(field: str, tokens: object) -> None:
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        fix = "Give a whole number, 1 or more"
        raise ConfigError(f"Scripted.{field}", f"{safe_repr(tokens)} is no number of tokens", fix)


class Scripted:
    """A `Model` that answers each request with the next item of a script.

    Args:
        script: The items, one per request; or one function that answers every request.
        name: How the trace calls it.
        usage: Tokens each reply says it used, when the script does not say.
        price: What those tokens cost; nothing by default.
        repeat: Whether the last item answers all later requests. Otherwise a request past the
            end of the script fails with `invalid_request`.
        window: Tokens of its context window. Default 128,000.
        max_output: Tokens that a reply may have. Default 4,096.
        summarises: Whether it is also asked to condense a conversation; by default a rule does.

    Raises:
        ConfigError: the script is no list and no function, a function takes no request, or a
            number is not one of 1 or more.
    """

    def __init__(
        self,
        script: Sequence[Cue] | Callable[[ModelRequest], Any],
        *,
        name: str = "scripted",
        usage: Usage | None = None,
        price: Price = FREE,
        window: int = 128_000,
        max_output: int = 4_096,
        repeat: bool = False,
        summarises: bool = False,
    ) -> None:
        _check_script(script)
        _check_tokens("window", window)
        _check_tokens("max_output", max_output)
        self.name = name
        self.summarises = summarises
        self.price = price
        self.window = window
        self.max_output = max_output
        self._script = script
        self._usage = usage or Usage()
        self._repeat = repeat

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """The script's answer to this request.

        Raises:
            ModelError: the script says so, or has no item for this turn.
        """
        line: Any = self._cue(request.turn)
        if callable(line):
            line = line(request)
            if not isinstance(line, ReplyCall | str | ModelReply) and inspect.isawaitable(line):
                line = await line
        if isinstance(line, ModelError):
            raise line
        reply = line if isinstance(line, ModelReply) else self._reply(line)
        if on_delta is not None:
            for part in reply.parts:
                if isinstance(part, Text):
                    on_delta(part.content)
        return reply

    def _cue(self, turn: int) -> Any:
        if callable(self._script):
            return self._script
        if turn < len(self._script):
            return self._script[turn]
        if self._repeat and self._script:
            return self._script[-1]
        raise ModelError(
            ErrorClass.INVALID_REQUEST,
            f"the script of {self.name} has {len(self._script)} items; this is turn {turn + 1}",
        )

    def _reply(self, line: Any) -> ModelReply:
        said: Sequence[Any] = line if isinstance(line, list | tuple) else (line,)
        parts: list[Part] = []
        calls: list[ReplyCall] = []
        for item in said:
            if not isinstance(item, Said):
                raise ModelError(
                    ErrorClass.INVALID_REQUEST,
                    f"the script of {self.name} gives {safe_repr(item)}; "
                    "write a text, call(...), a list of them, or a ModelReply",
                )
            if isinstance(item, ReplyCall):
                calls.append(item)
            elif isinstance(item, str):
                parts.append(Text(item))
            else:
                parts.append(item)
        return ModelReply(
            parts=tuple(parts),
            calls=tuple(calls),
            finish="tool_calls" if calls else "stop",
            usage=self._usage,
        )
