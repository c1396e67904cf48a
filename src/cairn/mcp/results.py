"""What a server answers, as a value the journal takes: text, data, and files by their names."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Protocol

import msgspec

from cairn.core.messages import Blob, Message, Role, Text, clean
from cairn.tools.text import shorten

MAX_PARTS = 200
MAX_BASE64 = 16 * 1024 * 1024
"""A file larger than this is not kept."""


class Kept(Protocol):
    """Keeps a file beside the result, and says under which name."""

    def __call__(self, media_type: str, encoded: str, size: int) -> str:
        """The name it is kept under."""
        ...


def value_of(result: Any, notes: list[str], keep: Kept) -> Any:
    """What a call returned: plain text where there is nothing else, otherwise an object.

    Args:
        result: The server's `CallToolResult`.
        notes: What happened during the call that the model should know.
        keep: Called for each file that is no text.
    """
    parts = [_part(each, keep) for each in result.content[:MAX_PARTS]]
    left = len(result.content) - len(parts)
    text = "\n".join(part for part in parts if isinstance(part, str))
    files = [part for part in parts if not isinstance(part, str)]
    data = result.structured_content
    whole: dict[str, Any] = {}
    if data is not None:
        whole["data"] = data
        if not files and not notes and not left and _same(text, data):
            return data
    if text and not (data is not None and _same(text, data)):
        whole["text"] = text
    if files:
        whole["files"] = files
    if left:
        whole["left_out"] = f"{left} more parts"
    if notes:
        whole["notes"] = notes
    return text if set(whole) <= {"text"} else whole


def text_of(result: Any) -> str:
    """The words of an answer, for a fault."""
    parts = [_part(each, _dropped) for each in result.content[:MAX_PARTS]]
    return "\n".join(part for part in parts if isinstance(part, str))


def _dropped(media_type: str, encoded: str, size: int) -> str:
    return ""


def _part(part: Any, keep: Kept) -> str | dict[str, Any]:
    match part.type:
        case "text":
            return clean(part.text)
        case "image" | "audio":
            return _file(part.type, part.mime_type, part.data, keep)
        case "resource":
            return contents(part.resource, keep)
        case "resource_link":
            return _link(part)
        case other:
            return {"kind": clean(str(other)), "note": "not understood here"}


def _link(part: Any) -> dict[str, Any]:
    link = {"kind": "link", "uri": shorten(str(part.uri), 2_000)}
    if part.name:
        link["name"] = shorten(part.name, 200)
    if part.description:
        link["description"] = shorten(part.description, 1_000)
    return link


def contents(resource: Any, keep: Kept = _dropped) -> dict[str, Any]:
    """A resource's contents: text as it is, anything else kept beside the result."""
    found: dict[str, Any] = {"kind": "resource", "uri": shorten(str(resource.uri), 2_000)}
    text = getattr(resource, "text", None)
    if text is not None:
        found["text"] = clean(text)
        return found
    return {**found, **_file("resource", resource.mime_type or "", resource.blob, keep)}


def _file(kind: str, mime_type: str, encoded: str, keep: Kept) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind, "media_type": shorten(mime_type, 100)}
    if len(encoded) > MAX_BASE64:
        return {**found, "note": f"{len(encoded):,} characters of base64 are not kept"}
    try:
        size = len(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        return {**found, "note": "its base64 cannot be read"}
    return {**found, "bytes": size, "kept_as": keep(found["media_type"], encoded, size)}


def _same(text: str, data: Any) -> bool:
    """Whether the text only says the data once more, as servers do for older clients."""
    try:
        return bool(msgspec.json.decode(text) == data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def resource_of(each: Any) -> dict[str, str]:
    """A resource as a list of them tells it: its address, its name, what it is about."""
    said = {"uri": str(each.uri), "name": each.name, "about": each.description or ""}
    return {key: shorten(value, 500) for key, value in said.items() if value}


def message_of(each: Any) -> Message:
    """A message of a filled-in prompt."""
    role: Role = "assistant" if each.role == "assistant" else "user"
    block = each.content
    if block.type == "text":
        return Message(role=role, parts=(Text(block.text),))
    if block.type in {"image", "audio"}:
        content = base64.b64decode(block.data)
        return Message(role=role, parts=(Blob(mime_type=block.mime_type, content=content),))
    held = contents(block.resource) if block.type == "resource" else {"text": str(block.uri)}
    return Message(role=role, parts=(Text(str(held.get("text") or held.get("note") or held)),))
