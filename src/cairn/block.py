"""`ContextBlock`: a named piece of what the model is sent beside the conversation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from cairn.core.events import Block
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Principal, Record
from cairn.errors import ConfigError
from cairn.memory.desk import Desk

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
PLACES = ("head", "end")
DEFAULT_TOKENS = 2_000


class Briefing(Record):
    """What a computed piece of the context may go by: it is called before every request.

    Args:
        run: The run's id.
        agent: The agent's name.
        principal: For whom the run works.
        session: The session it is in, empty for none.
        step: Number of the step the request belongs to.
        input: The text of the person's last request.
        memory: What is remembered, as this run may look it up; None where there is no memory.
    """

    run: str
    agent: str
    principal: Principal
    session: str
    step: int
    input: str = ""
    memory: Desk | None = None


Source = str | Callable[[Briefing], "str | Awaitable[str]"]


class ContextBlock:
    """A named piece of the context, with a budget and a place.

    A block has either a text, or a tool that feeds it: the runtime then calls the tool before
    the model is asked for the first time, through the gate, as a step of its own whose sources
    can be cited.

    Args:
        name: Small letters, digits and `_`; its line in the manifest.
        text: The text, or a function of a `Briefing`, sync or async, asked before every request.
        tool: Name of the tool that feeds it.
        arguments: What the tool is called with; `$input` in a text stands for the request.
        tokens: How many tokens it may have.
        place: `head` puts it with the instructions, where it stays cached as long as it does not
            change; `end` behind the last message, for what changes from turn to turn.
        over: What is done with a text that is too long: `cut` it, or leave it `out`.
        needed: Whether the run fails when the text cannot be computed; else it is left out, and
            the manifest says why.

    Raises:
        ConfigError: a value is not usable; the message names it and the fix.
    """

    def __init__(
        self,
        name: str,
        text: Source = "",
        *,
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
        tokens: int = DEFAULT_TOKENS,
        place: Literal["head", "end"] = "head",
        over: Literal["cut", "out"] = "cut",
        needed: bool = False,
    ) -> None:
        where = f"ContextBlock({name!r})"
        if not _is_name(name):
            raise ConfigError(
                "ContextBlock.name", f"{name!r} is no name", "Use small letters, digits and '_'"
            )
        if not (isinstance(text, str) or callable(text)):
            raise ConfigError(f"{where}.text", f"{text!r} is no text", "Give a text or a function")
        if bool(text) == bool(tool):
            raise ConfigError(where, "it has no source, or two", "Give either a text or a tool")
        if not _is_count(tokens):
            raise ConfigError(f"{where}.tokens", f"{tokens!r} is no budget", "Give 1 or more")
        if place not in PLACES:
            raise ConfigError(f"{where}.place", f"{place!r} is no place", "Use head or end")
        if over not in {"cut", "out"}:
            raise ConfigError(f"{where}.over", f"{over!r} cannot be done", "Use cut or out")
        if arguments is not None and not tool:
            raise ConfigError(f"{where}.arguments", "only a tool takes them", "Name the tool")
        self.name = name
        self.text = text
        self.tool = tool
        self.arguments = _encoded(where, arguments if arguments is not None else {})
        self.tokens = tokens
        self.place: Literal["head", "end"] = place
        self.over: Literal["cut", "out"] = over
        self.needed = needed

    def __repr__(self) -> str:
        return f"ContextBlock({self.name!r})"

    @property
    def computed(self) -> bool:
        """Whether its text is asked for before every request."""
        return not isinstance(self.text, str)

    def fitted(self, text: str) -> Block:
        """The block with this text, within its budget."""
        tokens = estimate_tokens(text) if text else 0
        why = ""
        if tokens > self.tokens:
            why = f"{self.over}: about {tokens} tokens, and {self.tokens} are allowed"
            text = _cut(text, self.tokens, tokens) if self.over == "cut" else ""
            tokens = estimate_tokens(text) if text else 0
        source = "computed" if self.computed else "static"
        return Block(
            name=self.name, text=text, place=self.place, source=source, tokens=tokens, why=why
        )

    def missing(self, why: str) -> Block:
        """The block without a text, and why."""
        return Block(name=self.name, place=self.place, source="computed", why=f"failed: {why}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _is_count(tokens: object) -> bool:
    return isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0


def _encoded(where: str, arguments: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(dict(arguments)).decode()
    except (TypeError, ValueError) as error:
        fix = "Give a mapping of names to JSON values"
        raise ConfigError(f"{where}.arguments", str(error), fix) from None


def _cut(text: str, tokens: int, found: int) -> str:
    chars = len(text) * tokens // found
    while chars and estimate_tokens(text[:chars]) > tokens:
        chars = chars * 9 // 10
    return text[:chars]


async def text_of(source: Source, briefing: Briefing) -> str:
    """A block's text for this request."""
    if isinstance(source, str):
        return source
    text = source(briefing)
    return await text if inspect.isawaitable(text) else text
