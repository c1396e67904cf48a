"""`LocalModel`: requests to a model file in this process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from cairn.core.limits import FREE, Price, Usage
from cairn.core.messages import Blob, Message, Part, Reasoning, Text, Uri, clean, text_of
from cairn.core.outcomes import CUT
from cairn.errors import ErrorClass, ModelError
from cairn.models.action import AnswerShown, decode, encode, in_words
from cairn.models.forcible import forcible
from cairn.models.local.engine import SCHEMA, Setup, engine
from cairn.ports import ModelReply, ModelRequest, OnDelta

OVERFLOW = "exceed_context_size_error"
HTTP_SERVER_FAULT = 500


class LocalModel:
    """A `Model` that runs a GGUF file by llama.cpp in this process; `open_model` makes it.

    A cancelled or late request ends at the next token, or after the next 64 tokens of its
    prompt; until then it holds its slot. While the answer of an action arrives its text is
    shown; calls and typed answers are not.
    """

    takes_tools = False

    def __init__(
        self, setup: Setup, *, max_output: int, timeout_s: float, sampling: dict[str, Any]
    ) -> None:
        self.name = f"local:{setup.path.name}"
        self.price: Price = FREE
        self.window = setup.window
        self.max_output = max_output
        self.timeout_s = timeout_s
        self._setup = setup
        self._sampling = sampling

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Make one request; it waits for a slot first, and the very first one for the file.

        Raises:
            ModelError: `context_overflow`, `timeout`, `malformed_output` for a reply that is
                no action, `model_not_found` when the file cannot be loaded here,
                `invalid_request` for images and files, `unavailable` for the engine's faults.
        """
        sent = encode(request)
        body = self._body(sent)
        loop = asyncio.get_running_loop()
        show = _shown(request, on_delta)

        def arrived(text: str) -> None:
            if not generation.ended:
                show(text)

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(arrived, text)

        generation = Generation(tell if on_delta is not None else None)
        try:
            async with asyncio.timeout(request.timeout_s):
                await asyncio.wrap_future(engine(self._setup).submit(body, generation.take))
        except TimeoutError as error:
            said = f"no whole reply within {request.timeout_s:g} s"
            raise ModelError(ErrorClass.TIMEOUT, said) from error
        finally:
            generation.ended = True
        reply = generation.reply(self.name)
        if SCHEMA in body:
            _check_forced(reply)
        return decode(reply, request) if request.output_mode == "action" else reply

    def _body(self, sent: ModelRequest) -> dict[str, Any]:
        said = [] if not sent.system else [{"role": "system", "content": clean(sent.system)}]
        said += [{"role": m.role, "content": _plain(m)} for m in in_words(sent.messages)]
        body: dict[str, Any] = {
            "messages": said,
            "max_tokens": min(sent.max_output, self.max_output),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            **self._sampling,
        }
        if sent.output_mode == "schema" and sent.output_schema is not None:
            defs: dict[str, Any] = {}
            schema = forcible(sent.output_schema, "", defs)
            body[SCHEMA] = {**schema, "$defs": defs} if defs else schema
        return body


def _plain(message: Message) -> str:
    if any(isinstance(part, Blob | Uri) for part in message.parts):
        raise ModelError(ErrorClass.INVALID_REQUEST, "a local model takes text only")
    return clean(text_of(message.parts))


def _check_forced(reply: ModelReply) -> None:
    """llama.cpp goes on without a grammar, and says nothing, when it cannot read the schema."""
    if reply.finish in CUT:
        return
    try:
        json.loads(text_of(reply.parts))
    except ValueError as error:
        said = "llama.cpp could not force the reply into the JSON Schema; make the schema simpler"
        raise ModelError(ErrorClass.INVALID_REQUEST, said) from error


def _shown(request: ModelRequest, on_delta: OnDelta | None) -> Callable[[str], None]:
    """What is done with text as it arrives, so that only text of an answer is shown."""
    if on_delta is None or request.output_mode != "action":
        return on_delta or (lambda _text: None)
    if request.output_schema is not None:
        return lambda _text: None
    return AnswerShown(on_delta).feed


class Generation:
    """One reply as it arrives, chunk by chunk, in the engine's thread."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self.ended = False
        """Set when nobody waits for it any more; it then ends with the next chunk."""
        self._tell = tell
        self._begun = time.monotonic_ns()
        self._first_us = 0
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._finish = ""
        self._usage: Usage | None = None
        self._id = ""
        self._error: dict[str, Any] | None = None

    def take(self, chunk: dict[str, Any]) -> bool:
        """The next chunk; true when no more is wanted."""
        if self.ended:
            return True
        if "error" in chunk:
            self._error = chunk["error"]
            return True
        self._id = chunk.get("id", self._id)
        for choice in chunk.get("choices", ()):
            self._finish = choice.get("finish_reason") or self._finish
            self._grow(choice.get("delta", {}))
        if "usage" in chunk:
            self._usage = _usage(chunk["usage"])
        return False

    def _grow(self, delta: dict[str, Any]) -> None:
        text, thought = delta.get("content"), delta.get("reasoning_content")
        if (text or thought) and not self._first_us:
            self._first_us = max((time.monotonic_ns() - self._begun) // 1_000, 1)
        if thought:
            self._thoughts.append(thought)
        if text:
            self._text.append(text)
            if self._tell is not None:
                self._tell(text)

    def reply(self, name: str) -> ModelReply:
        """The whole reply.

        Raises:
            ModelError: the engine failed, or the reply is not whole.
        """
        if self._error is not None:
            raise _fault(self._error)
        if not self._finish:
            said = "the engine ended without a finish reason"
            raise ModelError(ErrorClass.STREAM_INTERRUPTED, said)
        parts: list[Part] = []
        if self._thoughts:
            parts.append(Reasoning(content="".join(self._thoughts)))
        if self._text:
            parts.append(Text("".join(self._text)))
        return ModelReply(
            parts=tuple(parts),
            finish=self._finish,
            usage=self._usage,
            request_id=self._id,
            first_token_us=self._first_us,
            model=name,
        )


def _usage(said: dict[str, Any]) -> Usage:
    cached = (said.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(
        input_tokens=said["prompt_tokens"] - cached,
        cached_tokens=cached,
        output_tokens=said["completion_tokens"],
    )


def _fault(error: dict[str, Any]) -> ModelError:
    message, code = str(error.get("message", error)), error.get("code", HTTP_SERVER_FAULT)
    if error.get("type") == OVERFLOW:
        return ModelError(ErrorClass.CONTEXT_OVERFLOW, message, status=code)
    if isinstance(code, int) and code < HTTP_SERVER_FAULT:
        return ModelError(ErrorClass.INVALID_REQUEST, message, status=code)
    return ModelError(ErrorClass.UNAVAILABLE, message, status=code)
