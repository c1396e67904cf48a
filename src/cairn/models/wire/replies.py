"""From the library's reply to ours, or to the fault that it hides.

The provider's own finish reason decides, never the library's: where none came, the library says
"stop", and a cut reply would look like a whole one.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage

from cairn.core.limits import Usage
from cairn.core.messages import Blob, Part, Reasoning, Text
from cairn.errors import ErrorClass, ModelError
from cairn.models.usage import disjoint
from cairn.models.wire.requests import opaque_of
from cairn.ports import ModelReply, ReplyCall

FINISH = {
    "stop": "stop",
    "completed": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "incomplete": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "image_safety": "content_filter",
    "sensitive": "content_filter",
    "guardrail_intervened": "content_filter",
}
"""A provider's finish reason, in small letters → the word the core goes by."""

FAULTS = {
    "malformed_function_call": ErrorClass.MALFORMED_OUTPUT,
    "unexpected_tool_call": ErrorClass.MALFORMED_OUTPUT,
    "malformed_response": ErrorClass.MALFORMED_OUTPUT,
    "insufficient_system_resource": ErrorClass.OVERLOADED,
    "network_error": ErrorClass.UNAVAILABLE,
    "error": ErrorClass.UNAVAILABLE,
    "failed": ErrorClass.UNAVAILABLE,
    "cancelled": ErrorClass.STREAM_INTERRUPTED,
    "in_progress": ErrorClass.STREAM_INTERRUPTED,
    "queued": ErrorClass.STREAM_INTERRUPTED,
}
"""Finish reasons that say that the reply is none."""


def reply_of(
    response: ModelResponse,
    provider: str,
    *,
    request_id: str,
    first_token_us: int,
    max_output: int,
    finish_required: bool,
) -> ModelReply:
    """The reply in our form.

    One that used all the tokens it was allowed counts as cut, whatever it says of itself: some
    servers give another reason then, and half a call must not be executed.

    Raises:
        ModelError: it is cut, or its finish reason says that something failed.
    """
    details = response.provider_details or {}
    request_id = request_id or response.provider_response_id or ""
    refusal = details.get("refusal")
    raw = "refusal" if refusal else str(details.get("finish_reason") or "")
    calls, parts = _said(response, provider)
    if not raw and response.finish_reason == "content_filter":
        raw = "content_filter"
    _check(response, raw, request_id, finish_required=finish_required)
    finish = FINISH.get(raw.lower(), raw.lower() or "stop")
    nameless = any(not call.name.strip() for call in calls)
    if finish != "length" and (nameless or (finish == "tool_calls" and not calls)):
        raise ModelError(
            ErrorClass.MALFORMED_OUTPUT,
            "Your last reply announced a tool call without saying the name of the tool.",
            request_id=request_id,
            usage=usage_of(response.usage),
        )
    if refusal and not parts:
        parts = (Text(str(refusal)),)
    usage = usage_of(response.usage)
    if usage is not None and finish in {"stop", "tool_calls"}:
        spent = usage.output_tokens + usage.reasoning_tokens
        finish = "length" if spent >= max_output else finish
    return ModelReply(
        parts=parts,
        calls=calls,
        finish=finish,
        usage=usage,
        request_id=request_id,
        first_token_us=first_token_us,
        model=response.model_name or "",
    )


def _check(response: ModelResponse, raw: str, request_id: str, *, finish_required: bool) -> None:
    fault = FAULTS.get(raw.lower())
    if fault is not None:
        said = f"the provider ended the reply with {raw!r}"
        usage = usage_of(response.usage)
        raise ModelError(fault, said, request_id=request_id, usage=usage)
    cut = not raw and finish_required
    if cut or (response.state != "complete" and FINISH.get(raw.lower()) != "length"):
        raise ModelError(
            ErrorClass.STREAM_INTERRUPTED,
            "the reply broke off before the provider said that it was finished",
            request_id=request_id,
        )


def _said(response: ModelResponse, provider: str) -> tuple[tuple[ReplyCall, ...], tuple[Part, ...]]:
    calls: list[ReplyCall] = []
    parts: list[Part] = []
    for part in response.parts:
        opaque = opaque_of(part, provider)
        match part:
            case TextPart():
                if part.content or opaque:
                    parts.append(Text(part.content, opaque=opaque))
            case ThinkingPart():
                if part.content or opaque:
                    parts.append(Reasoning(content=part.content, opaque=opaque))
            case ToolCallPart():
                calls.append(
                    ReplyCall(
                        name=part.tool_name,
                        arguments=_arguments(part.args),
                        id=part.tool_call_id,
                        opaque=opaque,
                        place=len(parts),
                    )
                )
            case FilePart():
                blob = Blob(mime_type=part.content.media_type, content=part.content.data)
                parts.append(blob)
            case NativeToolCallPart() | NativeToolReturnPart():
                pass  # what the provider did by itself; its answer speaks of it
            case _:
                pass  # kinds that only the provider's own agents make
    return tuple(calls), tuple(parts)


def _arguments(args: Any) -> str:
    """The exact text where the wire carries text, else the same value as JSON."""
    if isinstance(args, str):
        return args
    return json.dumps(args or {}, ensure_ascii=False)


def usage_of(usage: RequestUsage) -> Usage | None:
    """Tokens in disjoint buckets; None when the provider did not say what it used."""
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return None
    details = usage.details or {}
    reasoning = details.get("reasoning_tokens") or details.get("thoughts_tokens") or 0
    return disjoint(
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        reasoning,
        cached_inside=True,
    )
