"""The library's model classes, with what they hide or change undone.

Each override stands for a contract in `tests/models`; the library's version is pinned, and the
pin moves only when those tests pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openai.types import CompletionUsage
from openai.types.chat import (
    ChatCompletionChunk,
    ChatCompletionMessageFunctionToolCallParam,
    chat_completion_chunk,
)
from openai.types.responses import ResponseFunctionToolCallParam
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    BinaryContent,
    ModelResponse,
    ModelResponseStreamEvent,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIResponsesModel,
    OpenAIStreamedResponse,
)
from pydantic_ai.usage import RequestUsage

FILENAME = "filename"
"""Under which a file's own name lies in what the library keeps for a vendor."""


class ChatStream(OpenAIStreamedResponse):
    """A chat stream that keeps two calls apart although the server gives them one index.

    Of usage the last word counts: some servers repeat it with every chunk, and Groq says it in a
    place of its own.
    """

    def _map_usage(self, response: ChatCompletionChunk) -> RequestUsage:
        if response.usage is None:
            elsewhere = (response.model_extra or {}).get("x_groq") or {}
            if found := elsewhere.get("usage"):
                response.usage = CompletionUsage.construct(**found)
        return super()._map_usage(response)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        super()._add_usage(usage, reported=reported, cumulative=cumulative or reported)

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
    """Chat completions: arguments of old calls go back byte for byte, files keep their names.

    Calls may lack their type or id, as Mistral's and those of some local servers do.
    """

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return ChatStream

    def _validate_completion(self, response: Any) -> Any:
        if not response.choices:  # an error under status 200, as routers send it
            raise UnexpectedModelBehavior(
                "the reply holds no choice", response.model_dump_json(exclude_none=True)
            )
        for choice in response.choices:
            for call in choice.message.tool_calls or ():
                call.type = call.type or "function"
                call.id = call.id or ""
        return super()._validate_completion(response)

    async def _map_binary_content_item(self, item: BinaryContent) -> Any:
        mapped: Any = await super()._map_binary_content_item(item)
        if name := (item.vendor_metadata or {}).get(FILENAME):
            mapped["file"]["filename"] = name
        return mapped

    @staticmethod
    def _map_tool_call(t: ToolCallPart) -> ChatCompletionMessageFunctionToolCallParam:
        mapped = OpenAIChatModel._map_tool_call(t)  # noqa: SLF001 - the hook that is overridden
        if isinstance(t.args, str):
            mapped["function"]["arguments"] = t.args
        return mapped


class ResponsesModel(OpenAIResponsesModel):
    """Responses: arguments of old calls go back byte for byte, files keep their names.

    A search that the provider made by itself may come without a word of what it was.
    """

    def _process_response(self, response: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        response.output = [
            item
            for item in response.output
            if item.type != "web_search_call" or item.action is not None
        ]
        return super()._process_response(response, *args, **kwargs)

    async def _map_user_prompt(self, part: UserPromptPart) -> Any:
        mapped: Any = await super()._map_user_prompt(part)
        if not isinstance(part.content, str):
            for item, made in zip(part.content, mapped["content"], strict=True):
                metadata = item.vendor_metadata if isinstance(item, BinaryContent) else None
                if name := (metadata or {}).get(FILENAME):
                    made["filename"] = name
        return mapped

    def _map_function_call(
        self, item: ToolCallPart, *args: Any, **kwargs: Any
    ) -> ResponseFunctionToolCallParam:
        mapped = super()._map_function_call(item, *args, **kwargs)
        if isinstance(item.args, str):
            mapped["arguments"] = item.args
        return mapped
