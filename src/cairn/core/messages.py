"""What is said between people, model and tools, in the shape of the OpenTelemetry GenAI spec.

A message has a role and parts. Call ids are the runtime's own (`c1`, `c2`, …); the provider's
id is kept as `alias`. The arguments of a call are kept as the exact text the model wrote.
"""

from __future__ import annotations

from typing import Any, Literal, dataclass_transform

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A frozen, keyword-only value; fields at their default are not written."""


class Text(Record, tag_field="type", tag="text", kw_only=False):
    """Plain text; `opaque` is what a provider wants back unchanged with it."""

    content: str
    opaque: str = ""


class Reasoning(Record, tag_field="type", tag="reasoning"):
    """The model's own thinking; `opaque` is what a provider wants back unchanged."""

    content: str = ""
    opaque: str = ""


class CallPart(Record, tag_field="type", tag="tool_call"):
    """A tool call as the model wrote it.

    `after` names earlier calls of the same reply that must end before this one may start;
    `opaque` is what a provider wants back unchanged.
    """

    id: str
    name: str
    arguments: str = "{}"
    alias: str = ""
    after: tuple[str, ...] = ()
    opaque: str = ""


class ResultPart(Record, tag_field="type", tag="tool_call_response"):
    """What the model is told about a call; `ok` is false when it is told of a fault."""

    id: str
    result: str
    ok: bool = True


class Blob(Record, tag_field="type", tag="blob"):
    """An image or another file, as its bytes."""

    mime_type: str
    content: bytes
    name: str = ""


class Uri(Record, tag_field="type", tag="uri"):
    """An image or another file that the provider fetches by itself."""

    uri: str
    mime_type: str = ""


Part = Text | Reasoning | CallPart | ResultPart | Blob | Uri


class Message(Record):
    """One message: a role and its parts."""

    role: Role
    parts: tuple[Part, ...]


class Principal(Record):
    """For whom a run works."""

    id: str = "local"
    roles: tuple[str, ...] = ()
    tenant: str = ""


class Source(Record):
    """Something an answer can cite.

    Args:
        uri: Where it is from.
        text: The passage itself.
        span: Which part of the whole, for example `"12-40"`.
        score: How well it fits, if the tool ranks.
        version: Version or hash of the whole, if known.
    """

    uri: str
    text: str = ""
    span: str = ""
    score: float | None = None
    version: str = ""


class PlanItem(Record):
    """One intention of the plan, and the steps that served it."""

    text: str
    status: Literal["open", "doing", "done", "dropped"] = "open"
    steps: tuple[int, ...] = ()


def user(text: str) -> Message:
    """A user message of plain text."""
    return Message(role="user", parts=(Text(text),))


def text_of(parts: tuple[Part, ...]) -> str:
    """The plain text of a message's parts, in order."""
    found = [p.content for p in parts if type(p) is Text]
    return found[0] if len(found) == 1 else "".join(found)


def calls_of(parts: tuple[Part, ...]) -> tuple[CallPart, ...]:
    """The tool calls among a message's parts, in order."""
    return tuple(p for p in parts if type(p) is CallPart)


def clean(text: str) -> str:
    """Text that any store and provider takes: lone surrogates and NUL visibly replaced."""
    if text.isascii():
        return text.replace("\0", "\u2400") if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\u2400")


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object a call's argument text stands for, or None when it is no object.

    Empty or blank text and `null` mean an empty object: some models send that for tools
    without parameters.
    """
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


UNREADABLE = '{"_unreadable": true}'
"""What stands in a later request for arguments that were no JSON object."""


def sendable(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts with every call's arguments an object, so that any provider takes them."""
    if all(type(p) is not CallPart or _plain_object(p.arguments) for p in parts):
        return parts
    return tuple(_safe(p) if type(p) is CallPart else p for p in parts)


def _plain_object(text: str) -> bool:
    return text[:1] == "{" and parse_object(text) is not None


def _safe(part: CallPart) -> CallPart:
    value = parse_object(part.arguments)
    text = UNREADABLE if value is None else part.arguments.strip()
    return CallPart(
        id=part.id,
        name=part.name,
        arguments=text if text.startswith("{") else "{}",
        alias=part.alias,
        after=part.after,
        opaque=part.opaque,
    )
