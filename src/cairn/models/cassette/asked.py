"""What a model would see of a request: the part of it that is matched and recorded.

Left out is what no model sees or what differs between two runs of one program: run id, step,
turn, attempt, deadline, and the output limit, which sinks with what is left of the budget.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from cairn.core.messages import Blob, CallPart, Message, Part
from cairn.models.cassette.redaction import Redactor
from cairn.ports import ModelRequest

SLICE = 160
"""Longer lines are shown in slices, so that a change in the middle of one can be seen."""
REMEMBERED = 1024
"""Messages of one cassette that are not read again."""


class Asked:
    """A request in the form that is compared: redacted, JSON values only."""

    def __init__(
        self,
        *,
        system: str = "",
        messages: Sequence[Any] = (),
        tools: Sequence[Any] = (),
        tool_choice: str = "auto",
        output_mode: str = "text",
        output_schema: Any = None,
        digests: Sequence[str] | None = None,
    ) -> None:
        self.system = system
        self.messages = tuple(messages)
        self.tools = tuple(tools)
        self.tool_choice = tool_choice
        self.output_mode = output_mode
        self.output_schema = output_schema
        self.digests = tuple(map(digest, self.messages) if digests is None else digests)
        """One for each message."""

    @cached_property
    def digest(self) -> str:
        """Equal for two requests that a model cannot tell apart."""
        return digest(
            [
                self.system,
                self.digests,
                self.tools,
                self.tool_choice,
                self.output_mode,
                self.output_schema,
            ]
        )

    def lines(self) -> list[str]:
        """The request for people to read and to compare."""
        told = [f"system: {line}" for line in self.system.splitlines()]
        told += [f"tool: {written(tool)}" for tool in self.tools]
        told.append(f"tool_choice: {self.tool_choice}")
        told.append(f"output: {self.output_mode}")
        if self.output_schema is not None:
            told.append(f"output schema: {written(self.output_schema)}")
        for message in self.messages:
            told += _message_lines(message)
        return [line[n : n + SLICE] for line in told for n in range(0, len(line) or 1, SLICE)]


class Reader:
    """Brings requests into that form. A conversation grows, so a message is read only once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._read = lru_cache(maxsize=REMEMBERED)(self._message)

    def asked(self, request: ModelRequest) -> Asked:
        """What of a request counts, with its secrets replaced."""
        redactor = self._redactor
        read = [self._read(message) for message in request.messages]
        return Asked(
            system=redactor.text(request.system),
            messages=[message for message, _ in read],
            digests=[known for _, known in read],
            tools=[redacted_tool(msgspec.to_builtins(t), redactor) for t in request.tools],
            tool_choice=request.tool_choice,
            output_mode=request.output_mode,
            output_schema=redactor.tree(request.output_schema),
        )

    def _message(self, message: Message) -> tuple[dict[str, Any], str]:
        parts = [_part(part, self._redactor) for part in message.parts]
        value = {"role": message.role, "parts": parts}
        return value, digest(value)


def digest(value: Any) -> str:
    """A hash of a JSON value; the order of names in an object does not count."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def written(value: Any) -> str:
    """A JSON value on one line, readable in any language."""
    return json.dumps(value, ensure_ascii=False)


def redacted_tool(tool: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A tool's values redacted."""
    return {name: redactor.tree(value) for name, value in tool.items()}


def redacted_message(message: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A recorded message, redacted once more by what is known here and now."""
    return {**message, "parts": [_redacted_part(part, redactor) for part in message["parts"]]}


def _part(part: Part, redactor: Redactor) -> dict[str, Any]:
    if isinstance(part, Blob):
        return {
            "type": "blob",
            "mime_type": redactor.text(part.mime_type),
            "name": redactor.text(part.name),
            "sha256": sha256(part.content).hexdigest(),
            "bytes": len(part.content),
        }
    plain: dict[str, Any] = msgspec.to_builtins(part)
    if isinstance(part, CallPart):  # names for the runtime's and the provider's own use
        plain.pop("alias", None)
        plain.pop("after", None)
    if opaque := plain.pop("opaque", ""):
        plain["opaque_sha256"] = sha256(redactor.text(opaque).encode(errors="replace")).hexdigest()
    return _redacted_part(plain, redactor)


def _redacted_part(part: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    arguments = part.get("arguments")
    hidden = {name: v if name == "type" else redactor.tree(v) for name, v in part.items()}
    if isinstance(arguments, str):
        hidden["arguments"] = redactor.arguments(arguments)
    return hidden


def _message_lines(message: dict[str, Any]) -> list[str]:
    told = []
    for part in message["parts"]:
        rest = dict(part)
        kind = rest.pop("type")
        text = rest.pop("result" if kind == "tool_call_response" else "content", "")
        if kind != "text" or rest or not text:
            told.append(f"{message['role']} {kind}: {written(rest)}")
        told += [f"{message['role']}: {line}" for line in str(text).splitlines()]
    return told
