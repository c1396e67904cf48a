"""`ContextBlock`: a named piece of what the model is sent beside the conversation."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from cairn.core.events import Block
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Principal, Record, clean
from cairn.core.names import nearest
from cairn.core.rules import INPUT, Feed, Problem
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, safe_repr, words_of
from cairn.memory.block import memory_block
from cairn.memory.desk import Desk
from cairn.tools.blocking import called
from cairn.tools.runner import Threads, in_a_thread

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NUMBER = re.compile(r"\s*[+-]?[\d_.]+(?:[eE][+-]?\d+)?\s*")
PLACES = ("head", "end")
DEFAULT_TOKENS = 2_000
EMPTY = "it is empty"


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


RESERVED = ("instructions", "skills", "input", "request", "history", "summary")
"""Names in a manifest of what requests hold beside the blocks of a user."""
Source = str | Callable[[Briefing], "str | Awaitable[str | None] | None"]


class ContextBlock:
    """A named piece of the context, with a budget and a place.

    A block has either a text, or a tool that feeds it: the runtime then calls the tool before
    the model is asked for the first time, through the gate, as a step of its own whose sources
    can be cited.

    Args:
        name: Small letters, digits and `_`; its line in the manifest.
        text: The text, or a function of a `Briefing`, asked before every request for at most
            60 seconds. It is sync (it then runs in a thread) or async.
        tool: Name of the tool that feeds it. What it gives stands in the conversation.
        arguments: What the tool is called with; `$input` in a text stands for the request.
        tokens: How many tokens of it the model is sent. The whole of what a tool gave can be read
            with `read_artifact`.
        place: Of a text: `head` puts it with the instructions, where it stays cached as long as
            it does not change; `end` behind the last message, for what changes from turn to turn.
        over: What is done with a text that is too long: `cut` it, or leave it `out`.
        needed: Whether the run fails when there is no text: it cannot be computed, the call of
            the tool fails or is refused, or it is too long and left out. Else the block is left
            out, the manifest says why, and where its function or its tool has failed the run is
            degraded by `block:NAME`.

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
        where = f"ContextBlock({safe_repr(name)})"
        if not _is_name(name):
            raise ConfigError(
                "ContextBlock.name",
                f"{safe_repr(name)} is no name",
                "Use small letters, digits and '_'",
            )
        if not (isinstance(text, str) or callable(text)):
            raise ConfigError(
                f"{where}.text", f"{safe_repr(text)} is no text", "Give a text or a function"
            )
        _check_source(where, text)
        named: object = tool
        if not isinstance(named, str):
            name = getattr(named, "name", None) or "search"
            raise ConfigError(
                f"{where}.tool", f"{safe_repr(named)} is no name", f"Give tool={safe_repr(name)}"
            )
        if not text and not tool:
            fix = "Give a text, a function of a Briefing, or tool='NAME'"
            raise ConfigError(where, "its text is empty, and no tool feeds it", fix)
        if text and tool:
            raise ConfigError(where, "it has two sources", "Give either a text or a tool")
        if not _is_count(tokens):
            fix = "Give a whole number of 1 or more, as tokens=200"
            raise ConfigError(f"{where}.tokens", f"{safe_repr(tokens)} is no budget", fix)
        if place not in PLACES:
            raise ConfigError(
                f"{where}.place", f"{safe_repr(place)} is no place", "Use head or end"
            )
        if over not in ("cut", "out"):  # a tuple: what is given may have no hash
            raise ConfigError(
                f"{where}.over", f"{safe_repr(over)} cannot be done", "Use cut or out"
            )
        if tool and place != "head":
            fix = "Leave place out: what a tool gives stands in the conversation"
            raise ConfigError(f"{where}.place", f"{safe_repr(place)} is for texts", fix)
        if not isinstance(needed, bool):
            raise ConfigError(
                f"{where}.needed", f"{safe_repr(needed)} is no answer", "Use True or False"
            )
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

    @property
    def feed(self) -> Feed:
        """The call that feeds it."""
        return Feed(
            tool=self.tool,
            arguments=self.arguments,
            block=self.name,
            tokens=self.tokens,
            over=self.over,
            needed=self.needed,
        )

    def fitted(self, text: str) -> Block:
        """The block with this text, within its budget."""
        tokens = estimate_tokens(text) if text else 0
        why = "" if text else EMPTY
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
        return Block(name=self.name, place=self.place, source="computed", why=why)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _is_count(tokens: object) -> bool:
    return isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0


def _check_source(where: str, text: object) -> None:
    if isinstance(text, str) and clean(text) != text:
        fix = "Use text without NUL or surrogates"
        raise ConfigError(f"{where}.text", "it cannot be stored", fix)
    if text is memory_block:
        fix = "Write memory_block(), which makes the function"
        raise ConfigError(f"{where}.text", "memory_block is named, not called", fix)
    if not isinstance(text, str):
        check_taker(f"{where}.text", text, "a Briefing")


def _encoded(where: str, arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        fix = 'Give a mapping as {"query": "$input"}'
        raise ConfigError(f"{where}.arguments", f"{safe_repr(arguments)} is none", fix)
    try:
        return msgspec.json.encode(dict(arguments)).decode()
    except (TypeError, ValueError) as error:
        fix = "Give a mapping of names to JSON values"
        raise ConfigError(f"{where}.arguments", words_of(error), fix) from None


def _cut(text: str, tokens: int, found: int) -> str:
    chars = len(text) * tokens // found
    while chars and estimate_tokens(text[:chars]) > tokens:
        chars = chars * 9 // 10
    return text[:chars]


async def text_of(
    source: Callable[[Briefing], Any],
    briefing: Briefing,
    name: str,
    *,
    seconds: float | None = None,
    threads: Threads = in_a_thread,
) -> Any:
    """What a block's function gives for this request; it may be no text.

    Args:
        source: The function; a plain one gets a thread of its own, so it may block.
        briefing: What it may go by.
        name: What it is called in messages.
        seconds: How long it may take; None where the caller sees to that.
        threads: What a plain function runs in.
    """
    return await called(name, source, briefing, seconds=seconds, threads=threads)


def check_fed(where: str, feeds: Iterable[Feed], tools: Mapping[str, Any]) -> None:
    """Refuse arguments that a tool which feeds a block cannot take, as far as that is known.

    Args:
        where: Of the blocks, for messages.
        feeds: The calls.
        tools: The tools that are known, by name.

    Raises:
        ConfigError: an argument is missing, or there is none of this name, or it does not fit.
    """
    for feed in feeds:
        tool = tools.get(feed.tool)
        if tool is not None and (wrong := _misfit(feed, tool)):
            fields = tool.schema.parameters.get("properties", {})
            known = f"It takes {', '.join(fields)}" if fields else "It takes none"
            raise ConfigError(f"{where}[{feed.block!r}].arguments", f"{feed.tool}: {wrong}", known)


def _never(name: str, value: object, field: object) -> str:
    """Why a text with the request in it can be no value of this argument, whatever is asked."""
    if not (isinstance(value, str) and INPUT.search(value) and isinstance(field, Mapping)):
        return ""
    kind = field.get("type")
    number = NUMBER.fullmatch(INPUT.sub("1", value)) is not None
    alone = not INPUT.sub("", value).strip()
    fine = {"integer": number, "number": number, "boolean": alone, "array": False, "object": False}
    return "" if fine.get(str(kind), True) else f"{name} takes no text like {value!r:.80}"


def _misfit(feed: Feed, tool: Any) -> str:
    given = msgspec.json.decode(feed.arguments)
    schema = tool.schema.parameters
    fields = schema.get("properties", {})
    if schema.get("additionalProperties") is False:
        for name in given:
            if name not in fields:
                close = nearest(name, fields)
                meant = f"; did you mean {' or '.join(close)}?" if close else ""
                return f"there is no argument {name!r}{meant}"
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if INPUT.search(feed.arguments):  # what it will be is not known yet
        return next(filter(None, (_never(n, v, fields.get(n)) for n, v in given.items())), "")
    found = tool.spec.check(feed.arguments)
    return found.message if isinstance(found, Problem) else ""
