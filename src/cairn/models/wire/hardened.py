"""The library's model classes, with what they hide or change undone.

Each override stands for a contract in `tests/models`; the library's version is pinned, and the
pin moves only when those tests pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openai.types.chat import ChatCompletionMessageFunctionToolCallParam, chat_completion_chunk
from openai.types.responses import ResponseFunctionToolCallParam
from pydantic_ai.messages import ModelResponseStreamEvent, ToolCallPart
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIResponsesModel,
    OpenAIStreamedResponse,
)


class ChatStream(OpenAIStreamedResponse):
    """A chat stream that keeps two calls apart although the server gives them one index."""

    def _map_tool_call_delta(
        self, choice: chat_completion_chunk.Choice
    ) -> Iterable[ModelResponseStreamEvent]:
        places: CallPlaces = self.__dict__.setdefault("_places", CallPlaces())
        for delta in choice.delta.tool_calls or []:
            name = delta.function.name if delta.function is not None else None
            delta.index = places.place(delta.index, delta.id or "", name or "")
        return super()._map_tool_call_delta(choice)


class CallPlaces:
    """Which call a streamed piece belongs to: by its id, or else by the last one at its index."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, str, str]] = {}
        self._by_id: dict[tuple[int, str], int] = {}
        self._count = 0

    def place(self, index: int, call_id: str, name: str) -> int:
        """The number of its call; a new id, or another name, begins a new one."""
        if (index, call_id) in self._by_id:
            return self._by_id[index, call_id]
        place, known_id, known_name = self._open.get(index, (-1, "", ""))
        other_id = bool(call_id and known_id)
        other_name = bool(name and known_name and name != known_name)
        if place < 0 or other_id or other_name:
            place, known_id, known_name = self._count, "", ""
            self._count += 1
        self._open[index] = (place, call_id or known_id, known_name or name)
        if call_id:
            self._by_id[index, call_id] = place
        return place


class ChatModel(OpenAIChatModel):
    """Chat completions: arguments of old calls go back byte for byte."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return ChatStream

    @staticmethod
    def _map_tool_call(t: ToolCallPart) -> ChatCompletionMessageFunctionToolCallParam:
        mapped = OpenAIChatModel._map_tool_call(t)  # noqa: SLF001 - the hook that is overridden
        if isinstance(t.args, str):
            mapped["function"]["arguments"] = t.args
        return mapped


class ResponsesModel(OpenAIResponsesModel):
    """Responses: arguments of old calls go back byte for byte."""

    def _map_function_call(
        self, item: ToolCallPart, *args: Any, **kwargs: Any
    ) -> ResponseFunctionToolCallParam:
        mapped = super()._map_function_call(item, *args, **kwargs)
        if isinstance(item.args, str):
            mapped["arguments"] = item.args
        return mapped
