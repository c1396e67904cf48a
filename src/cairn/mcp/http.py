"""The wire to a server at an address: streamable HTTP, with bounds and with marks on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.core.messages import Record
from cairn.mcp.sent import SENT, Sent
from cairn.mcp.stdio import MAX_MESSAGE

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 10.0
QUIET_S = 300.0
"""How long a stream may stay silent; each call has a deadline of its own besides."""
SESSION = "mcp-session-id"
KINDS = ("application/json", "text/event-stream")
BODY = 8 * 1024 * 1024
"""Bytes of an answer that is no stream."""


class HttpWire:
    """What connects to one address."""

    def __init__(self, url: str, headers: Mapping[str, str], on_end: Callable[[str], None]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._on_end = on_end

    @property
    def closed(self) -> bool:
        """Nothing is known before something was tried."""
        return False

    def told(self) -> str:
        """A server at an address has no output of its own."""
        return ""

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Both directions, as the SDK wants them."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        client = httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(CONNECT_S, read=QUIET_S),
            transport=_marking(self._on_end),
        )
        async with (
            client,
            streamable_http_client(
                self._url, http_client=client, max_sse_event_size=MAX_MESSAGE
            ) as streams,
        ):
            yield streams

    def stop(self, why: str) -> None:
        """The connection is over."""
        self._on_end(why)


def _marking(on_end: Callable[[str], None]) -> Any:
    """A transport that says how far each request came, and turns faults into answers.

    The SDK ends the whole connection, with all its calls, when one request raises; so a fault of
    one request becomes an error answer to that one.
    """
    import httpx2

    unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)

    class Marking(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            sent = _meant(request)
            try:
                response = await super().handle_async_request(request)
            except unsent as error:
                sent.problem = _words(error)
                return _fault(request, sent.problem)
            except httpx2.TransportError as error:
                sent.begin()
                sent.problem = _words(error)
                return _fault(request, sent.problem)
            sent.begin()
            sent.status = response.status_code
            post = request.method == "POST"  # a stream of its own may simply not be offered
            if post and response.status_code == 404 and SESSION in request.headers:
                sent.refused = True
                on_end("the server has ended the session")
            kind = response.headers.get("content-type", "").lower()
            if response.status_code == 202 or not kind.startswith(KINDS):
                sent.problem = f"it was answered with HTTP {response.status_code} {kind!r}"
            limit = 0 if kind.startswith("text/event-stream") else BODY
            response.stream = _bounded(httpx2, response.stream, limit, sent)
            return response

    return Marking()


class _Head(Record):
    method: str = ""


_head = msgspec.json.Decoder(_Head)


def _meant(request: Any) -> Sent:
    """The mark of the request that is under way; other messages get one that nobody reads."""
    sent = SENT.get()
    if sent is None or request.method != "POST":
        return Sent("")
    try:
        method = _head.decode(request.content).method
    except msgspec.DecodeError:
        return Sent("")
    return sent if method == sent.method else Sent("")


def _fault(request: httpx2.Request, said: str) -> httpx2.Response:
    import httpx2

    return httpx2.Response(599, request=request, text=said)


def _bounded(httpx2: Any, stream: Any, limit: int, sent: Sent) -> Any:
    """The stream, ended by an error the SDK expects when it is too long or breaks."""

    class Bounded(httpx2.AsyncByteStream):  # type: ignore[misc]  # loaded on first use
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            try:
                async for chunk in stream:
                    size += len(chunk)
                    if limit and size > limit:
                        sent.problem = f"the answer is longer than {limit} bytes"
                        raise httpx2.StreamError(sent.problem)
                    yield chunk
            except httpx2.TransportError as error:
                sent.problem = _words(error)
                raise httpx2.StreamError(sent.problem) from error

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
