"""From our request to the library's: messages, tools, settings.

The runtime's own call ids go over the wire, as they are unique whatever a provider called its
calls. What a provider wants back unchanged (`opaque`) goes back to that provider only.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.messages import ModelRequest as LibraryRequest
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from cairn.core.messages import Blob, CallPart, Message, Part, Reasoning, ResultPart, Text, Uri
from cairn.errors import ErrorClass, ModelError
from cairn.models.endpoints import Endpoint, Wire
from cairn.models.wire.hardened import FILENAME
from cairn.ports import ModelRequest

PROMPTED = (
    "\n\nGive your final answer as JSON only, with no text around it, "
    "matching this JSON Schema:\n{schema}"
)
_TEXTS = re.compile(
    r"text/|application/(x-)?(json|xml|yaml|toml|javascript|sh|sql|ndjson)$|[\w./-]+\+(json|xml|yaml)$"
)
"""Kinds of files that are text, and so is a picture in SVG."""
_PERHAPS_TEXTS = frozenset({"application/octet-stream", "video/mp2t"})
"""What a file is taken for whose ending says nothing, or `.ts`: its bytes tell what it is."""
_BYTES: dict[Wire, tuple[str, ...]] = {
    "chat": ("image/", "audio/wav", "audio/mpeg", "application/"),
    "responses": ("image/", "application/"),
    "messages": ("image/", "application/pdf"),
    "gemini": ("",),
}
"""Kinds of files that a format has a place for."""
_ADDRESSES: dict[Wire, tuple[str, ...]] = {
    "chat": ("image/",),
    "responses": ("image/", "application/", "text/"),
    "messages": ("image/", "application/pdf"),
    "gemini": (),
}
"""Kinds of files that the providers of a format fetch by themselves; the library would fetch others
from here, which is a request that nobody asked for."""
_GOOGLE_FILES = "https://generativelanguage.googleapis.com/v1beta/files/"


class Prepared(msgspec.Struct, frozen=True):
    """What the library is called with."""

    messages: list[Any]
    settings: dict[str, Any]
    parameters: Any


def prepare(
    request: ModelRequest,
    model: LibraryModel[Any],
    endpoint: Endpoint,
    settings: Mapping[str, Any],
    *,
    cache: bool,
) -> Prepared:
    """The library's messages, settings and parameters for a request."""
    native = request.output_schema is not None and _is_native(request, model, endpoint)
    system = request.system
    if request.output_mode == "schema" and request.output_schema is not None and not native:
        system += PROMPTED.format(schema=json.dumps(request.output_schema, ensure_ascii=False))
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.parameters,
                strict=False,  # the schema is sent as it is
            )
            for tool in request.tools
        ],
        output_mode="native" if native else "text",
        output_object=OutputObjectDefinition(json_schema=request.output_schema or {}, name="answer")
        if native
        else None,
        instruction_parts=[InstructionPart(content=system)] if system else [],
    )
    chosen = {**settings, "max_tokens": request.max_output}
    if request.tools:
        chosen["tool_choice"] = _tool_choice(request.tool_choice)
    chosen |= _cache(request, endpoint) if cache else {}
    if endpoint.wire == "responses":
        chosen.setdefault("openai_store", False)  # the journal is the one record
    return Prepared(messages_of(request.messages, model, endpoint), chosen, parameters)


def _is_native(request: ModelRequest, model: LibraryModel[Any], endpoint: Endpoint) -> bool:
    """Whether the provider itself holds the answer to the schema."""
    if request.output_mode != "schema":
        return False
    profile: Mapping[str, Any] = model.profile
    if endpoint.wire == "gemini" and request.tools:
        return bool(profile.get("google_supports_tool_combination", False))
    return bool(profile.get("supports_json_schema_output", False))


def _tool_choice(choice: str) -> Any:
    return choice if choice in {"auto", "none", "required"} else [choice]


def _cache(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """Where a provider wants to be told which prefix to keep."""
    if endpoint.wire == "messages":
        return {
            "anthropic_cache_instructions": bool(request.system),
            "anthropic_cache_tool_definitions": bool(request.tools),
            "anthropic_cache_messages": True,
        }
    if endpoint.cache_key:
        prefix = msgspec.json.encode((request.system, request.tools))
        return {"openai_prompt_cache_key": sha256(prefix).hexdigest()[:32]}
    return {}


# ---------------------------------------------------------------- messages


def messages_of(
    messages: Sequence[Message], model: LibraryModel[Any], endpoint: Endpoint
) -> list[ModelMessage]:
    """The conversation in the library's form; neighbours of one side become one message."""
    made: list[ModelMessage] = []
    names: dict[str, str] = {}
    thinks = _takes_thinking_back(model, endpoint)
    for message in messages:
        if message.role == "assistant":
            said = [p for p in message.parts if thinks or not isinstance(p, Reasoning)]
            parts = [p for part in said for p in _reply_part(part, model, endpoint, names)]
            if parts:
                made.append(ModelResponse(parts=parts, provider_name=model.system))
            continue
        given = _request_parts(message, names, endpoint)
        last = made[-1] if made else None
        if isinstance(last, LibraryRequest):
            last.parts = [*last.parts, *given]
        else:
            made.append(LibraryRequest(parts=given))
    return made


def _takes_thinking_back(model: LibraryModel[Any], endpoint: Endpoint) -> bool:
    """Whether the provider wants its own thinking back, and has a place for it."""
    if endpoint.wire != "responses":
        return True
    profile: Mapping[str, Any] = model.profile
    return bool(profile.get("openai_supports_encrypted_reasoning_content", False))


def _request_parts(message: Message, names: Mapping[str, str], endpoint: Endpoint) -> list[Any]:
    parts: list[Any] = []
    content: list[UserContent] = []
    says_failed = endpoint.wire == "messages"
    for part in message.parts:
        if isinstance(part, ResultPart):
            parts.append(
                ToolReturnPart(
                    tool_name=names.get(part.id, "unknown"),
                    content=part.result,
                    tool_call_id=part.id,
                    # only this format has a mark for it; the others would wrap the text
                    outcome="failed" if says_failed and not part.ok else "success",
                )
            )
        else:
            content.append(_user_content(part, endpoint))
    if content:
        alone = content[0] if len(content) == 1 else None
        parts.append(UserPromptPart(content=alone if isinstance(alone, str) else content))
    return parts


def _user_content(part: Part, endpoint: Endpoint) -> UserContent:
    said = f"a user message cannot hold a {type(part).__name__}"
    match part:
        case Text():
            return part.content
        case Blob() if _is_text(part):
            return _as_text(part)
        case Blob():
            if part.mime_type.startswith(_BYTES[endpoint.wire]):
                return _as_bytes(part, endpoint)
            said = f"{endpoint.provider} takes no file of the kind {part.mime_type}"
        case Uri():
            if _is_fetched(part, endpoint):
                return _url(part)
            said = f"{endpoint.provider} does not fetch {part.uri[:200]}: send the file itself"
    raise ModelError(ErrorClass.INVALID_REQUEST, said)


def _is_fetched(part: Uri, endpoint: Endpoint) -> bool:
    """Whether the provider fetches it by itself."""
    if endpoint.wire == "gemini":
        return part.uri.startswith(_GOOGLE_FILES)
    return (_kind(part) or "image/").startswith(_ADDRESSES[endpoint.wire])


def _kind(part: Uri) -> str:
    """What stands at an address, as its ending says where nobody else does."""
    return part.mime_type or mimetypes.guess_type(urlsplit(part.uri).path)[0] or ""


def _is_text(part: Blob) -> bool:
    if _TEXTS.match(part.mime_type):
        return True
    if part.mime_type not in _PERHAPS_TEXTS or b"\0" in part.content:
        return False
    try:
        part.content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(part: Blob) -> str:
    """A text file in words: every model reads text, only some take files."""
    try:
        text = part.content.decode()
    except UnicodeDecodeError as error:
        said = f"the file {part.name or part.mime_type} is no UTF-8 text: convert it to UTF-8"
        raise ModelError(ErrorClass.INVALID_REQUEST, said) from error
    name = f" {part.name}" if part.name else ""
    return f"File{name} ({part.mime_type}):\n{text}"


def _as_bytes(part: Blob, endpoint: Endpoint) -> BinaryContent:
    """A file as it is; its name goes along where the format has a place for one."""
    named = endpoint.wire in {"chat", "responses"} and part.name
    is_document = part.mime_type.startswith("application/")
    return BinaryContent(
        data=part.content,
        media_type=part.mime_type,
        vendor_metadata={FILENAME: part.name} if named and is_document else None,
    )


def _url(part: Uri) -> UserContent:
    media_type = _kind(part) or None
    kind = (media_type or "").partition("/")[0]
    if kind == "audio":
        return AudioUrl(url=part.uri, media_type=media_type)
    if kind == "video":
        return VideoUrl(url=part.uri, media_type=media_type)
    if kind in {"image", ""}:
        return ImageUrl(url=part.uri, media_type=media_type)
    return DocumentUrl(url=part.uri, media_type=media_type)


# ---------------------------------------------------------------- what the model said before


def _reply_part(
    part: Part, model: LibraryModel[Any], endpoint: Endpoint, names: dict[str, str]
) -> list[ModelResponsePart]:
    opaque = part.opaque if isinstance(part, Text | Reasoning | CallPart) else ""
    kept = kept_of(opaque, model, endpoint)
    match part:
        case Text():
            return [TextPart(part.content, **kept)] if part.content or kept else []
        case Reasoning():
            # thinking of another provider, or without a mark of its own, means nothing to this one
            return [ThinkingPart(part.content, **kept)] if kept else []
        case CallPart():
            names[part.id] = part.name
            return [
                ToolCallPart(tool_name=part.name, args=part.arguments, tool_call_id=part.id, **kept)
            ]
    return []


FIELDS = ("id", "signature", "provider_details")


def opaque_of(part: Any, provider: str) -> str:
    """What a provider wants back with a part of its reply, empty for nothing."""
    kept = {name: value for name in FIELDS if (value := getattr(part, name, None))}
    if not kept:
        return ""
    return msgspec.json.encode({"provider": provider, **kept}, enc_hook=str).decode()


def kept_of(opaque: str, model: LibraryModel[Any], endpoint: Endpoint) -> dict[str, Any]:
    """The fields that go back with a part, empty if they are another provider's."""
    if not opaque:
        return {}
    try:
        kept = msgspec.json.decode(opaque, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    if kept.pop("provider", None) != endpoint.provider:
        return {}
    return {"provider_name": model.system} | {k: v for k, v in kept.items() if k in FIELDS}
