"""One request from end to end: sent once, read whole, closed at once when it is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model as LibraryModel

from cairn.errors import ErrorClass, ModelError
from cairn.models.endpoints import Endpoint
from cairn.models.wire.clients import Arrived, Connection, arrived
from cairn.models.wire.faults import fault_of, is_clean
from cairn.models.wire.replies import reply_of
from cairn.models.wire.requests import Prepared, prepare
from cairn.ports import ModelReply, ModelRequest, OnDelta


class Exchange:
    """A request to a provider, made once.

    Args:
        connection: Whom to speak through.
        endpoint: The provider.
        settings: Sampling settings and the like, in the library's words.
        stream: Whether to have the reply streamed.
        cache: Whether to mark the prefix for the provider's cache.
        finish_required: Whether a reply without a finish reason is a cut one.
    """

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        settings: Mapping[str, Any],
        *,
        stream: bool,
        cache: bool,
        finish_required: bool,
    ) -> None:
        self._model: LibraryModel[Any] = connection.model
        self._hide = connection.hide
        self._endpoint = endpoint
        self._settings = settings
        self._streams = stream
        self._cache = cache
        self._finish_required = finish_required
        self._arrived = Arrived()
        self._begun = 0.0
        self._first_us = 0
        self._started = False

    async def make(self, request: ModelRequest, on_delta: OnDelta | None) -> ModelReply:
        """Send it and read the whole reply.

        Raises:
            ModelError: the provider, the wire or the reply was at fault.
        """
        prepared = prepare(request, self._model, self._endpoint, self._settings, cache=self._cache)
        self._begun = time.monotonic()
        token = arrived.set(self._arrived)
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._response(prepared, on_delta)
        except ModelError:
            raise
        except TimeoutError as error:
            said = f"{self._endpoint.provider}: no whole reply within {request.timeout_s:g} s"
            raise ModelError(ErrorClass.TIMEOUT, said, request_id=self._request_id) from error
        except Exception as error:  # whatever the library raises is told apart in one place
            headers = self._arrived.headers
            fault = fault_of(
                error, self._endpoint.provider, headers, started=self._started, hide=self._hide
            )
            if fault is None:
                raise
            raise fault from (error if is_clean(error, self._hide) else None)
        finally:
            arrived.reset(token)
            await self._arrived.close()
        return reply_of(
            response,
            self._endpoint.provider,
            request_id=self._request_id,
            first_token_us=self._first_us,
            max_output=request.max_output,
            finish_required=self._finish_required,
        )

    @property
    def _request_id(self) -> str:
        return self._hide(self._arrived.request_id)

    async def _response(self, prepared: Prepared, on_delta: OnDelta | None) -> ModelResponse:
        messages, parameters = prepared.messages, prepared.parameters
        settings: Any = prepared.settings  # the library's typed dict has no such form to build
        if not self._streams:
            return await self._model.request(messages, settings, parameters)
        async with self._model.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                if not self._started:
                    self._started = True
                    self._first_us = max(1, int((time.monotonic() - self._begun) * 1e6))
                text = _text_of(event) if on_delta is not None else ""
                if on_delta is not None and text:
                    on_delta(text)
            return stream.get()


def _text_of(event: object) -> str:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""
