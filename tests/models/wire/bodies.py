"""One reply, written down in each of the four formats, whole and streamed.

All texts are of our own making; only the shapes are the providers'.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.models.wire.server import SSE, Answer


@dataclass(frozen=True)
class Tokens:
    """What a reply used. `fresh`, `cached` and `written` are the input; no token is in two."""

    fresh: int = 100
    cached: int = 0
    written: int = 0
    spoken: int = 20
    thought: int = 0


@dataclass(frozen=True)
class Said:
    """A reply in nobody's format.

    Args:
        parts: `("text", words)`, `("call", name, arguments, id)`, `("thought", words, mark)`.
        finish: The finish reason in the words of the format; by default its usual one.
        tokens: What it used; None when the provider does not say.
        model: Who answers.
    """

    parts: Sequence[tuple[str, ...]] = (("text", "Good morning."),)
    finish: str | None = ""
    tokens: Tokens | None = field(default_factory=Tokens)
    model: str = "the-model-that-answered"

    @property
    def calls(self) -> bool:
        """Whether it holds a tool call."""
        return any(part[0] == "call" for part in self.parts)


def text(words: str = "Good morning.", **more: Any) -> Said:
    """A reply of words only."""
    return Said(parts=(("text", words),), **more)


def call(arguments: str = '{"q": "tea"}', name: str = "find", id: str = "id_1") -> tuple[str, ...]:
    """A call as a part of a reply."""
    return ("call", name, arguments, id)


def sse(data: object, event: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    shown = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {shown}\n\n".encode()


def halves(words: str) -> list[str]:
    """A text in two pieces, as streams cut it."""
    middle = (len(words) + 1) // 2
    return [piece for piece in (words[:middle], words[middle:]) if piece] or [""]


class Format:
    """How one format writes a reply down."""

    provider = ""
    model = ""
    path = ""
    request_id = "x-request-id"
    stop, tool_calls, length, refused = "stop", "tool_calls", "length", "content_filter"
    ending = 1
    """How many events of a stream stand after the last piece of the reply itself."""

    def finish_of(self, said: Said) -> str | None:
        """The finish reason that is sent."""
        if said.finish is None or said.finish:
            return said.finish
        return self.tool_calls if said.calls else self.stop

    def whole(self, said: Said) -> Any:
        """The body of a reply that is not streamed."""
        raise NotImplementedError

    def events(self, said: Said) -> list[bytes]:
        """The events of a streamed reply."""
        raise NotImplementedError

    def error_event(self, words: str) -> bytes:
        """An event in the middle of a stream that says the provider is overloaded."""
        raise NotImplementedError

    def broken_event(self) -> bytes:
        """An event whose data are cut in the middle of a word."""
        return b"data: {broken\n\n"

    def answer(self, said: Said, *, stream: bool, **more: Any) -> Answer:
        """The reply, ready to be sent."""
        more.setdefault("headers", {self.request_id: "req-1"})
        if stream:
            return Answer(events=self.events(said), kind=SSE, **more)
        return Answer(body=json.dumps(self.whole(said), ensure_ascii=False).encode(), **more)

    def opening(self) -> list[bytes]:
        """A stream that has said something and no finish reason."""
        return self.events(text())[: -self.ending]

    def cut(self, said: Said, *, before: int, **more: Any) -> Answer:
        """The streamed reply without its last events."""
        return Answer(events=self.events(said)[:-before], kind=SSE, **more)

    def __repr__(self) -> str:
        return type(self).__name__.lower()


class Chat(Format):
    """OpenAI's chat completions, and what most others speak."""

    provider, model, path = "openai-chat", "gpt-5-mini", "/v1/chat/completions"
    ending = 3

    def usage(self, tokens: Tokens) -> dict[str, Any]:
        """Cached tokens are inside the prompt, thinking inside the completion."""
        prompt = tokens.fresh + tokens.cached
        completion = tokens.spoken + tokens.thought
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": tokens.cached},
            "completion_tokens_details": {"reasoning_tokens": tokens.thought},
        }

    def whole(self, said: Said) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for kind, first, *rest in said.parts:
            if kind == "text":
                message["content"] = (message["content"] or "") + first
            elif kind == "thought":
                message["reasoning_content"] = first
            else:
                function = {"name": first, "arguments": rest[0]}
                entry = {"id": rest[1], "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(entry)
        choice = {"index": 0, "message": message, "finish_reason": self.finish_of(said)}
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_780_000_000,
            "model": said.model,
            "choices": [choice],
        }
        return body if said.tokens is None else body | {"usage": self.usage(said.tokens)}

    def chunk(self, said: Said, delta: Any, finish: str | None = None, **more: Any) -> bytes:
        """One event with one delta."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_780_000_000,
            "model": said.model,
            "choices": [choice],
        }
        return sse(body | more)

    def events(self, said: Said) -> list[bytes]:
        made = [self.chunk(said, {"role": "assistant", "content": ""})]
        index = 0
        for kind, first, *rest in said.parts:
            if kind == "call":
                begun = {"name": first, "arguments": ""}
                head = {"index": index, "id": rest[1], "type": "function", "function": begun}
                made.append(self.chunk(said, {"tool_calls": [head]}))
                for piece in halves(rest[0]):
                    delta = {"index": index, "function": {"arguments": piece}}
                    made.append(self.chunk(said, {"tool_calls": [delta]}))
                index += 1
                continue
            name = "content" if kind == "text" else "reasoning_content"
            made += [self.chunk(said, {name: piece}) for piece in halves(first)]
        made.append(self.chunk(said, {}, self.finish_of(said)))
        if said.tokens is not None:
            made.append(self.chunk(said, {}, choices=[], usage=self.usage(said.tokens)))
        return [*made, sse("[DONE]")]

    def error_event(self, words: str) -> bytes:
        return sse({"error": {"message": words, "type": "server_error", "code": "overloaded"}})


class Responses(Format):
    """OpenAI's Responses."""

    provider, model, path = "openai", "gpt-5-mini", "/v1/responses"
    stop = tool_calls = "completed"
    length, refused = "max_output_tokens", "content_filter"

    def usage(self, tokens: Tokens) -> dict[str, Any]:
        """Cached tokens are inside the input, thinking inside the output."""
        given, made = tokens.fresh + tokens.cached, tokens.spoken + tokens.thought
        return {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": tokens.thought},
            "total_tokens": given + made,
        }

    def item(self, number: int, part: tuple[str, ...]) -> dict[str, Any]:
        """One item of the output."""
        kind, first, *rest = part
        if kind == "text":
            inner = {"type": "output_text", "text": first, "annotations": []}
            more = {"role": "assistant", "status": "completed", "content": [inner]}
            return {"id": f"msg_{number}", "type": "message", **more}
        if kind == "refusal":
            more = {"role": "assistant", "status": "completed"}
            inner = {"type": "refusal", "refusal": first}
            return {"id": f"msg_{number}", "type": "message", **more, "content": [inner]}
        if kind == "thought":
            summary = [{"type": "summary_text", "text": first}] if first else []
            more = {"summary": summary, "encrypted_content": rest[0]}
            return {"id": f"rs_{number}", "type": "reasoning", **more}
        more = {"call_id": rest[1], "name": first, "arguments": rest[0], "status": "completed"}
        return {"id": f"fc_{number}", "type": "function_call", **more}

    def envelope(self, said: Said, *, ended: bool = True) -> dict[str, Any]:
        """The response object, before or after its end."""
        finish = self.finish_of(said)
        status = finish if ended else "in_progress"
        why = None
        if ended and finish in {"max_output_tokens", "content_filter"}:
            status, why = "incomplete", {"reason": finish}
        items = [self.item(*each) for each in enumerate(said.parts)] if ended else []
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_780_000_000,
            "status": status,
            "incomplete_details": why,
            "error": None,
            "model": said.model,
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": self.usage(said.tokens) if ended and said.tokens else None,
        }

    def whole(self, said: Said) -> Any:
        return self.envelope(said)

    def events(self, said: Said) -> list[bytes]:
        made: list[tuple[str, dict[str, Any]]] = []
        opened = self.envelope(said, ended=False)
        made.append(("response.created", {"response": opened}))
        for number, part in enumerate(said.parts):
            made += self._item_events(number, part)
        ended = self.envelope(said)
        name = ended["status"] if ended["status"] in {"incomplete", "failed"} else "completed"
        made.append((f"response.{name}", {"response": ended}))
        return [
            sse({"type": kind, "sequence_number": at, **data}, kind)
            for at, (kind, data) in enumerate(made)
        ]

    def _item_events(self, number: int, part: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
        item = self.item(number, part)
        where = {"item_id": item["id"], "output_index": number}
        kind, first, *rest = part
        bare = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"])
        began = {**item, "summary": []} if kind == "thought" else {**item, **(bare or {})}
        made = [("response.output_item.added", {"output_index": number, "item": began})]
        spot = where | {"content_index": 0}
        if kind in {"text", "refusal"}:
            name, inner = "output_text" if kind == "text" else "refusal", item["content"][0]
            empty = {**inner, ("text" if kind == "text" else "refusal"): ""}
            made.append(("response.content_part.added", spot | {"part": empty}))
            made += [
                (f"response.{name}.delta", spot | {"delta": piece, "logprobs": []})
                for piece in halves(first)
            ]
            done = {"text": first, "logprobs": []} if kind == "text" else {"refusal": first}
            made.append((f"response.{name}.done", spot | done))
            made.append(("response.content_part.done", spot | {"part": inner}))
        elif kind == "call":
            name = "response.function_call_arguments"
            made += [(f"{name}.delta", where | {"delta": piece}) for piece in halves(rest[0])]
            made.append((f"{name}.done", where | {"name": first, "arguments": rest[0]}))
        elif first:
            spot = where | {"summary_index": 0}
            name = "response.reasoning_summary"
            empty = {"type": "summary_text", "text": ""}
            made.append((f"{name}_part.added", spot | {"part": empty}))
            for piece in halves(first):
                made.append((f"{name}_text.delta", spot | {"delta": piece}))
            made.append((f"{name}_text.done", spot | {"text": first}))
            made.append((f"{name}_part.done", spot | {"part": {**empty, "text": first}}))
        return [*made, ("response.output_item.done", {"output_index": number, "item": item})]

    def error_event(self, words: str) -> bytes:
        data = {"type": "error", "code": "server_is_overloaded", "message": words, "param": None}
        return sse(data | {"sequence_number": 9}, "error")


class Messages(Format):
    """Anthropic's Messages."""

    provider, model, path = "anthropic", "claude-sonnet-5", "/v1/messages?beta=true"
    request_id = "request-id"
    ending = 2
    stop, tool_calls, length, refused = "end_turn", "tool_use", "max_tokens", "refusal"

    def usage(self, tokens: Tokens) -> dict[str, Any]:
        """Cached tokens come on top of the input; thinking is inside the output."""
        return {
            "input_tokens": tokens.fresh,
            "cache_creation_input_tokens": tokens.written,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.spoken + tokens.thought,
        }

    def block(self, part: tuple[str, ...]) -> dict[str, Any]:
        """One block of the content."""
        kind, first, *rest = part
        if kind == "text":
            return {"type": "text", "text": first}
        if kind == "thought":
            return {"type": "thinking", "thinking": first, "signature": rest[0]}
        given = json.loads(rest[0]) if rest[0].strip() else {}
        return {"type": "tool_use", "id": rest[1], "name": first, "input": given}

    def envelope(self, said: Said, content: list[Any], finish: str | None) -> dict[str, Any]:
        """The message object."""
        usage = Tokens(0, 0, 0, 0) if said.tokens is None else said.tokens
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": said.model,
            "content": content,
            "stop_reason": finish,
            "stop_sequence": None,
            "usage": self.usage(usage),
        }

    def whole(self, said: Said) -> Any:
        return self.envelope(said, [self.block(p) for p in said.parts], self.finish_of(said))

    def events(self, said: Said) -> list[bytes]:
        opened = replace(said, tokens=said.tokens and replace(said.tokens, spoken=1, thought=0))
        made = [("message_start", {"message": self.envelope(opened, [], None)})]
        for number, part in enumerate(said.parts):
            made += self._block_events(number, part)
        ended = {"stop_reason": self.finish_of(said), "stop_sequence": None}
        spent = said.tokens.spoken + said.tokens.thought if said.tokens else 0
        made.append(("message_delta", {"delta": ended, "usage": {"output_tokens": spent}}))
        made.append(("message_stop", {}))
        return [sse({"type": kind, **data}, kind) for kind, data in made]

    def broken_event(self) -> bytes:
        return b"event: content_block_delta\ndata: {broken\n\n"

    def _block_events(self, number: int, part: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
        kind, first, *rest = part
        where = {"index": number}
        if kind == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in halves(first)]
        elif kind == "thought":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in halves(first)]
            deltas.append({"type": "signature_delta", "signature": rest[0]})
        else:
            empty = {"type": "tool_use", "id": rest[1], "name": first, "input": {}}
            pieces = halves(rest[0]) if rest[0] else [""]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        made = [("content_block_start", where | {"content_block": empty})]
        made += [("content_block_delta", where | {"delta": delta}) for delta in deltas]
        return [*made, ("content_block_stop", where)]

    def error_event(self, words: str) -> bytes:
        error = {"type": "overloaded_error", "message": words}
        return sse({"type": "error", "error": error, "request_id": "req-2"}, "error")


class Gemini(Format):
    """Google's generateContent."""

    provider, model = "google", "gemini-2.5-flash"
    path = "/v1beta/models/gemini-2.5-flash"
    stop, tool_calls, length, refused = "STOP", "STOP", "MAX_TOKENS", "SAFETY"

    def usage(self, tokens: Tokens) -> dict[str, Any]:
        """Cached tokens are inside the prompt, thinking beside the candidates."""
        given = tokens.fresh + tokens.cached
        found = {
            "promptTokenCount": given,
            "candidatesTokenCount": tokens.spoken,
            "totalTokenCount": given + tokens.spoken + tokens.thought,
        }
        found |= {"cachedContentTokenCount": tokens.cached} if tokens.cached else {}
        return found | ({"thoughtsTokenCount": tokens.thought} if tokens.thought else {})

    def part(self, part: tuple[str, ...]) -> dict[str, Any]:
        """One part of the content."""
        kind, first, *rest = part
        if kind == "text":
            return {"text": first}
        if kind == "thought":
            return {"text": first, "thought": True}
        given = json.loads(rest[0]) if rest[0].strip() else {}
        made: dict[str, Any] = {"functionCall": {"name": first, "args": given}}
        return made | ({"thoughtSignature": rest[2]} if len(rest) > 2 else {})

    def envelope(self, said: Said, parts: list[Any], finish: str | None) -> dict[str, Any]:
        """One response object."""
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "modelVersion": said.model, "responseId": "req-1"}

    def whole(self, said: Said) -> Any:
        body = self.envelope(said, [self.part(p) for p in said.parts], self.finish_of(said))
        return body if said.tokens is None else body | {"usageMetadata": self.usage(said.tokens)}

    def events(self, said: Said) -> list[bytes]:
        """Google escapes all that is no ASCII, and its library needs it to."""
        pieces: list[tuple[str, ...]] = []
        for part in said.parts:
            kind, first, *rest = part
            split = kind in {"text", "thought"}
            pieces += [(kind, half, *rest) for half in halves(first)] if split else [part]
        made = [self.envelope(said, [self.part(piece)], None) for piece in pieces]
        last = self.envelope(said, [], self.finish_of(said))
        made.append(
            last if said.tokens is None else {**last, "usageMetadata": self.usage(said.tokens)}
        )
        return [sse(json.dumps(each)) for each in made]

    def error_event(self, words: str) -> bytes:
        return sse({"error": {"code": 503, "message": words, "status": "UNAVAILABLE"}})


CHAT, RESPONSES, MESSAGES, GEMINI = Chat(), Responses(), Messages(), Gemini()
FORMATS: tuple[Format, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)
