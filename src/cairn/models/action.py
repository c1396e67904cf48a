"""JSON-action mode: for a model without tool calls, each reply is one JSON object.

    {"tool": "search", "arguments": {"query": "refund"}}      one call
    {"answer": "It was refunded on Monday."}                  the final answer

`encode` turns a request into one without tools that says so, `action_schema` is what a server
that can force JSON is given, and `decode` turns the reply back into a call or an answer. Pure
functions, the same for every provider. What is no clear action is refused, never guessed: the
model is told what was wrong and tries again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cairn.core.messages import (
    Message,
    Part,
    Reasoning,
    ResultPart,
    Text,
    calls_of,
    sendable,
    text_of,
    user,
)
from cairn.core.outcomes import CUT, REFUSED
from cairn.errors import ErrorClass, ModelError
from cairn.models.forcible import forcible
from cairn.ports import ModelReply, ModelRequest, ReplyCall, ToolSchema

DEEPEST_FORM = 4
"""Deeper than this a worked form shows an empty object."""


def encode(request: ModelRequest) -> ModelRequest:
    """The request without tools: they are described in words, calls and results are plain text.

    A request in another mode comes back as it is.
    """
    if request.output_mode != "action":
        return request
    told = _instructions(request)
    return msgspec.structs.replace(
        request,
        system=f"{request.system}\n\n{told}" if request.system.strip() else told,
        messages=in_words(request.messages, _answered(request)),
        tools=(),
        tool_choice="auto",
        output_mode="schema",
        output_schema=action_schema(request),
    )


def action_schema(request: ModelRequest) -> dict[str, Any]:
    """JSON Schema of the one object a reply to this request may be.

    It holds what `tool_choice` allows: calls of the tools on offer, the answer, or both. It is
    made to be forced by a grammar, so it is a little wider than the tools' own schemas, which
    the runtime checks afterwards in any case. It may have `anyOf` at its root.
    """
    tools, may_answer = _choices(request)
    defs: dict[str, Any] = {}
    branches = [
        _object(
            tool={"type": "string", "enum": [tool.name]},
            arguments=forcible(tool.parameters, f"t{n}_", defs),
        )
        for n, tool in enumerate(tools)
    ]
    if may_answer:
        typed = request.output_schema
        answer = {"type": "string"} if typed is None else forcible(typed, "answer_", defs)
        branches.append(_object(answer=answer))
    schema: dict[str, Any] = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": defs} if defs else schema


def decode(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """The call or the answer that a reply to the encoded request stands for.

    The object may be fenced and have lines of other text around it, which are dropped; it must
    stand on lines of its own. A reply that was cut, refused or empty comes back as it is: the
    runtime has its own words for those.

    Args:
        reply: What the model said.
        request: The request before `encode`.

    Raises:
        ModelError: `malformed_output`, saying what is wrong with it.
    """
    text = text_of(reply.parts)
    if reply.calls or reply.finish in CUT or reply.finish in REFUSED or not text.strip():
        return reply
    try:
        said = _said(_fields(text), request)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            ErrorClass.MALFORMED_OUTPUT,
            f"Your last reply was not usable and nothing of it was executed: {error}. "
            f"Reply with one JSON object and nothing else: {_forms(request)}.",
            request_id=reply.request_id,
            usage=reply.usage,
        ) from error
    thoughts: tuple[Part, ...] = tuple(p for p in reply.parts if isinstance(p, Reasoning))
    if isinstance(said, ReplyCall):
        return msgspec.structs.replace(reply, parts=thoughts, calls=(said,), finish="tool_calls")
    return msgspec.structs.replace(reply, parts=(*thoughts, Text(said)))


def _choices(request: ModelRequest) -> tuple[tuple[ToolSchema, ...], bool]:
    """The tools that may be called now, and whether an answer may be given."""
    choice = request.tool_choice
    if choice == "none":
        return (), True
    if choice == "auto":
        return request.tools, True
    tools = tuple(t for t in request.tools if choice in ("required", t.name))
    return tools, not tools


def _object(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


# ---------------------------------------------------------------- what the model is told


def _instructions(request: ModelRequest) -> str:
    tools, may_answer = _choices(request)
    lines = ["Reply with one JSON object and nothing else."]
    if tools:
        lines.append(
            'To call a tool: {"tool": "<name>", "arguments": {...}}. One call per reply; '
            "its result comes in the next message."
        )
    if may_answer and request.output_schema is None:
        lines.append('To give the final answer: {"answer": "<text>"}.')
    elif may_answer:
        typed = msgspec.json.encode(request.output_schema).decode()
        lines.append(
            f'To give the final answer: {{"answer": <JSON>}}, with JSON of this schema: {typed}'
        )
    if tools:
        lines.append("The tools:")
        lines.extend(map(_described, tools))
    return "\n".join(lines)


def _described(tool: ToolSchema) -> str:
    form = json.dumps(_form(tool.parameters, tool.parameters), ensure_ascii=False)
    return (
        f"- {tool.name}: {' '.join(tool.description.split())}\n"
        f"  arguments: {msgspec.json.encode(tool.parameters).decode()}\n"
        f"  like this: {_call(tool.name, form)}"
    )


def _form(schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """A value that shows how the schema is filled in."""
    if not isinstance(schema, dict) or depth > DEEPEST_FORM:
        return {}
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    name = str(schema.get("$ref", ""))
    if name.startswith("#/$defs/"):
        return _form(root.get("$defs", {}).get(name[8:]), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _form(schema[key][0], root, depth + 1)
    kind = schema.get("type")
    if kind == "array":
        return [_form(schema["items"], root, depth + 1)] if "items" in schema else []
    if kind in FORMS:
        return FORMS[kind]
    named = schema.get("properties", {})
    return {k: _form(named[k], root, depth + 1) for k in schema.get("required", ()) if k in named}


FORMS = {"string": "...", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def _forms(request: ModelRequest) -> str:
    tools, may_answer = _choices(request)
    forms = []
    if tools:
        forms.append('{"tool": <name>, "arguments": {...}}')
    if may_answer:
        forms.append('{"answer": ...}')
    return " or ".join(forms)


def _call(name: str, arguments: str) -> str:
    return f'{{"tool": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}'


def in_words(
    messages: Sequence[Message], answered: Callable[[str], str] = str
) -> tuple[Message, ...]:
    """The conversation without call parts: calls are JSON actions, results are user messages.

    Several calls of one reply are told one after the other, each with its result, so that the
    history looks the way replies are asked for. Thoughts are left out. Neighbours of the same
    role become one message.

    Args:
        messages: A well-formed conversation.
        answered: How an earlier answer is written; as it was given, by default.
    """
    merged: list[Message] = []
    for message in _unmerged(messages, answered):
        if merged and merged[-1].role == message.role:
            merged[-1] = _joined(merged[-1], message)
        else:
            merged.append(message)
    return tuple(merged)


def _unmerged(messages: Sequence[Message], answered: Callable[[str], str]) -> Iterator[Message]:
    results = {p.id: p for m in messages for p in m.parts if isinstance(p, ResultPart)}
    for message in messages:
        if message.role == "tool":
            continue  # told right behind its call
        if message.role != "assistant":
            yield message
            continue
        text, calls = text_of(message.parts), calls_of(sendable(message.parts))
        if not calls and text.strip():
            yield _assistant(answered(text))
        for call in calls:
            action = _call(call.name, call.arguments)
            yield _assistant(f"{text}\n{action}" if text.strip() else action)
            text = ""
            if call.id in results:
                yield user(_result(results[call.id], call.name))


def _assistant(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text),))


def _answered(request: ModelRequest) -> Callable[[str], str]:
    def written(text: str) -> str:
        if request.output_schema is not None:
            try:
                json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                return f'{{"answer": {text.strip()}}}'
        return f'{{"answer": {json.dumps(text, ensure_ascii=False)}}}'

    return written


def _result(part: ResultPart, name: str) -> str:
    head = "Result of call" if part.ok else "Failed call"
    return f"{head} {part.id} ({name}):\n{part.result}"


def _joined(first: Message, second: Message) -> Message:
    before, after = first.parts[-1:], second.parts[:1]
    if before and after and isinstance(before[0], Text) and isinstance(after[0], Text):
        text = Text(f"{before[0].content}\n\n{after[0].content}")
        return Message(role=first.role, parts=(*first.parts[:-1], text, *second.parts[1:]))
    return Message(role=first.role, parts=(*first.parts, *second.parts))


# ---------------------------------------------------------------- what the model said


FENCE = re.compile(r"\A\s*```(?:json)?(?P<inside>.*?)(?:```)?\s*\Z", re.DOTALL)
LINE_START = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
LINE_END = re.compile(r"[ \t]*$", re.MULTILINE)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"it names {twice[:80]!r} twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)


def _fields(text: str) -> dict[str, tuple[Any, str]]:
    """The fields of the one object in the text: each with its value and its exact text."""
    fenced = FENCE.match(text)
    if fenced:
        text = fenced["inside"].strip()
    found: dict[str, tuple[Any, str]] | None = None
    at = 0
    while start := LINE_START.search(text, at):
        begin = start.end()
        try:
            at = DECODER.raw_decode(text, begin)[1]
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise ValueError(f"its JSON is broken at {where}: {error.msg}") from error
        if not LINE_END.match(text, at):
            raise ValueError("text follows the JSON object on the same line")
        if found is not None:
            raise ValueError("it holds more than one JSON object")
        found = dict(_spans(text, begin))
    if found is None:
        raise ValueError("it holds no JSON object that starts a line")
    return found


def _spans(text: str, at: int) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Each field of the valid object that begins at `at`."""
    at = _next(text, at + 1)
    while text[at] != "}":
        name, at = DECODER.raw_decode(text, at)
        at = _next(text, _next(text, at) + 1)  # over the colon
        value, end = DECODER.raw_decode(text, at)
        yield name, (value, text[at:end])
        at = _next(text, end)
        if text[at] == ",":
            at = _next(text, at + 1)


def _next(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _said(fields: dict[str, tuple[Any, str]], request: ModelRequest) -> ReplyCall | str:
    """The call, or the text of the answer."""
    if "tool" in fields and fields.keys() <= {"tool", "arguments"}:
        return _said_call(fields, request)
    if fields.keys() != {"answer"}:
        named = ", ".join(map(repr, fields)) or "none"
        raise ValueError(f"its fields are {named[:200]}, which is neither a call nor an answer")
    if not _choices(request)[1]:
        raise ValueError("a tool must be called now, and it is an answer")
    value, exact = fields["answer"]
    if request.output_schema is not None:
        return exact
    if value is None:
        raise ValueError("its answer is null")
    return value if isinstance(value, str) else exact


def _said_call(fields: dict[str, tuple[Any, str]], request: ModelRequest) -> ReplyCall:
    name = fields["tool"][0]
    value, exact = fields.get("arguments", ({}, "{}"))
    if not isinstance(name, str):
        raise ValueError("the tool's name must be a string")  # noqa: TRY004 - of the text
    if not isinstance(value, dict):
        raise ValueError("the arguments must be a JSON object")  # noqa: TRY004 - of the text
    choice = request.tool_choice
    if choice == "none":
        raise ValueError("no tool may be called now")
    if choice not in ("auto", "required", name):
        raise ValueError(f"the tool {choice!r} must be called now")
    return ReplyCall(name=name, arguments=exact)


# ---------------------------------------------------------------- the answer as it arrives


OPENING = re.compile(r'\s*(?:```(?:json)?\s*)?\{\s*"answer"\s*:\s*"')
WHOLE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
OPENING_CHARS = 64


class AnswerShown:
    """Shows the text of an untyped answer while its JSON arrives, and nothing of a call.

    Args:
        show: Called with each piece of the answer's text.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._held = ""
        self._inside: bool | None = None

    def feed(self, piece: str) -> None:
        """The next piece of the reply, as it came."""
        if self._inside is False:
            return
        self._held += piece
        if self._inside is None:
            opening = OPENING.match(self._held)
            if opening is None:
                if len(self._held) > OPENING_CHARS:
                    self._inside = False
                return
            self._inside = True
            self._held = self._held[opening.end() :]
        whole = WHOLE.match(self._held)
        end = whole.end() if whole is not None else 0
        if end:
            self._show(json.loads(f'"{self._held[:end]}"', strict=False))
        self._held = self._held[end:]
        if self._held.startswith('"'):
            self._inside = False
