"""A client per provider and event loop, and the library's model on top of it.

A connection pool belongs to the loop it was made in, and every runtime has a loop of its own. So
each loop gets its own client, closed by whoever closes the model in that loop.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any

import httpx2
from pydantic_ai.models import Model as LibraryModel

from cairn.core.messages import Record
from cairn.models.endpoints import NO_KEY, Endpoint
from cairn.models.hiding import Hider, secrets_of

CONNECT_S = 15.0
POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)
"""The lanes bound what is in flight; a pool that made requests wait would hide it from them."""


class Arrived:
    """What HTTP itself brought for one request, beside what the library makes of it."""

    __slots__ = ("headers", "response")

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        """In small letters; the library drops those of a success."""
        self.response: httpx2.Response | None = None

    @property
    def request_id(self) -> str:
        """What the provider calls the exchange, empty if it does not say."""
        return self.headers.get("x-request-id") or self.headers.get("request-id") or ""

    async def close(self) -> None:
        """Let the connection go: after an error in a stream some libraries keep it."""
        if self.response is not None and not self.response.is_closed:
            await self.response.aclose()


arrived: ContextVar[Arrived | None] = ContextVar("arrived", default=None)
"""Where what comes for this task's request is noted."""


class Address(Record):
    """All that a client is made from.

    Args:
        endpoint: The provider.
        model: Its model's name.
        base_url: Where requests go.
        key: The API key.
        stall_s: How long the wire may be silent.
        finish_required: Whether a reply without a finish reason is a cut one.
        headers: More headers for every request.
    """

    endpoint: Endpoint
    model: str
    base_url: str
    key: str
    stall_s: float
    finish_required: bool = True
    headers: Mapping[str, str] = {}


class Connection:
    """The library's model for one loop, and the HTTP client it speaks through.

    `hide` takes out of a text what nobody may read there: the key, whole and in part.
    """

    __slots__ = ("hide", "http", "model")

    def __init__(self, address: Address) -> None:
        key = "" if address.key == NO_KEY else address.key
        self.hide = Hider(secrets_of(key, address.headers)).text
        timeout = httpx2.Timeout(address.stall_s, connect=min(CONNECT_S, address.stall_s))
        self.http = httpx2.AsyncClient(
            timeout=timeout,
            verify=_trusted(),
            limits=POOL,
            headers=dict(address.headers),
            event_hooks={"response": [_note]},
        )
        self.model: LibraryModel[Any] = _MODELS[address.endpoint.wire](address, self.http)

    async def close(self) -> None:
        """Give its connections back."""
        await self.http.aclose()


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The authorities; they take a tenth of a second to load, and any loop may share them."""
    return httpx2.create_ssl_context()


async def _note(response: httpx2.Response) -> None:
    found = arrived.get()
    if found is not None:
        found.response = response
        found.headers.update({name.lower(): value for name, value in response.headers.items()})


def _openai_client(address: Address, http: httpx2.AsyncClient) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(
        base_url=address.base_url,
        api_key=address.key,
        timeout=http.timeout,  # else it takes a usual one for none given, and waits
        max_retries=0,
        http_client=http,
    )


def _openai_provider(address: Address, http: httpx2.AsyncClient) -> Any:
    """The provider class that knows this provider's peculiarities, around our own client."""
    client = _openai_client(address, http)
    endpoint = address.endpoint
    if endpoint.provider in {"openai", "openai-chat"}:
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIProvider(openai_client=client)
    if endpoint.profile:
        module, _, name = endpoint.profile.partition(":")
        return getattr(import_module(f"pydantic_ai.providers.{module}"), name)(openai_client=client)
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    return OpenAICompatibleProvider(endpoint.provider, openai_client=client)


def _chat(address: Address, http: httpx2.AsyncClient) -> LibraryModel[Any]:
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    from cairn.models.wire.hardened import ChatModel

    profile = OpenAIModelProfile(
        openai_chat_streaming_requires_finish_reason=address.finish_required,
        thinking_tags=("\0", "\1"),  # text is text, whatever tags it holds
    )
    if address.endpoint.max_tokens:
        profile["openai_chat_supports_max_completion_tokens"] = False
    return ChatModel(address.model, provider=_openai_provider(address, http), profile=profile)


def _responses(address: Address, http: httpx2.AsyncClient) -> LibraryModel[Any]:
    from cairn.models.wire.hardened import ResponsesModel

    return ResponsesModel(address.model, provider=_openai_provider(address, http))


def _messages(address: Address, http: httpx2.AsyncClient) -> LibraryModel[Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        base_url=address.base_url,
        api_key=address.key,
        timeout=http.timeout,
        max_retries=0,
        http_client=http,
    )
    return AnthropicModel(address.model, provider=AnthropicProvider(anthropic_client=client))


def _gemini(address: Address, http: httpx2.AsyncClient) -> LibraryModel[Any]:
    from google.genai import Client
    from google.genai.types import HttpOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    trusted = {"verify": _trusted(), "ssl": _trusted()}  # for clients it makes and never uses
    options = HttpOptions(
        base_url=address.base_url,
        timeout=max(1, int(address.stall_s * 1000)),  # 0 would be none at all
        httpx_async_client=http,
        client_args=trusted,
        async_client_args=trusted,
    )
    client = Client(vertexai=False, api_key=address.key, http_options=options)
    return GoogleModel(address.model, provider=GoogleProvider(client=client))


_MODELS = {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}
