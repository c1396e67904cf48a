"""One exchange with a web server, at an address that was checked, within time and size."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import Message

from cairn.core.messages import Record
from cairn.errors import ErrorClass, ToolError
from cairn.toolkit.addresses import Address, Network, is_public, read, tells_secrets
from cairn.toolkit.urls import Url, refused

Resolve = Callable[[str, int], Sequence[str]]

CONNECT_S = 10.0
MAX_ADDRESSES = 4
CHUNK = 16_384
CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""How zlib is told to read them."""


class Reply(Record, gc=True):
    """What a server answered.

    Args:
        status: The number.
        headers: As they came.
        body: What was read of it, decompressed.
        truncated: Whether there is more.
    """

    status: int
    headers: Message
    body: bytes
    truncated: bool = False


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host, by the system's own resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def checked(url: Url, resolver: Resolve, allowed: Sequence[Network]) -> list[Address]:
    """The addresses to connect to. One bad one among them refuses all.

    Raises:
        ToolError: the host is not known, or an address does not lie in the open internet. What
            is `allowed` may be closed to it, but not where a cloud keeps credentials.
    """
    if url.literal is not None:
        found: list[Address] = [url.literal]
    else:
        try:
            found = [read(each) for each in resolver(url.host, url.port)]
        except (OSError, UnicodeError) as error:
            raise ToolError(
                f"{url.host} could not be resolved: {error}",
                error_class=ErrorClass.TOOL_UNAVAILABLE,
            ) from None
        except ValueError as error:
            raise refused("address", f"{url.host} has an address that is none: {error}") from None
    if not found:
        raise ToolError(f"{url.host} has no address", error_class=ErrorClass.TOOL_UNAVAILABLE)
    for each in found:
        if tells_secrets(each):
            raise refused("address", f"{url.host} is at {each}, where a cloud keeps credentials")
        if not is_public(each) and not any(each in network for network in allowed):
            raise refused("address", f"{url.host} is at {each}, which is not in the open internet")
    return found[:MAX_ADDRESSES]


def exchange(
    url: Url,
    addresses: Sequence[Address],
    *,
    method: str,
    headers: Mapping[str, str],
    max_bytes: int,
    deadline: float,
    tls: ssl.SSLContext | None,
) -> Reply:
    """Send one request to one of these addresses and read the reply.

    Args:
        url: What to ask for. Its host is named in the request and in the certificate only.
        addresses: Where to connect to; nothing is resolved any more.
        method: `GET` or `HEAD`.
        headers: All that are sent beside `Host`.
        max_bytes: Of the body, sent and decompressed alike.
        deadline: In seconds of `time.monotonic`.
        tls: How certificates are judged; None for the system's own way.

    Raises:
        ToolError: the server cannot be reached, or what it says is no HTTP.
    """
    try:
        raw = _connect(url, addresses, deadline)
        with _until(deadline, raw) as late:
            try:
                reply = _talk(url, raw, method, headers, max_bytes, tls)
            except (OSError, http.client.HTTPException, ValueError, zlib.error):
                if late.is_set():
                    raise TimeoutError("the time was up") from None
                raise
            if late.is_set():  # a connection that was cut looks like the end of a page
                raise TimeoutError("the time was up")
            return reply
    except TimeoutError:
        raise ToolError(
            f"{url.host} did not answer in time", error_class=ErrorClass.TOOL_TIMEOUT
        ) from None
    except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
        detail = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ToolError(
            f"{url.host} could not be read: {detail}", error_class=ErrorClass.TOOL_UNAVAILABLE
        ) from None


def _connect(url: Url, addresses: Sequence[Address], deadline: float) -> socket.socket:
    problem: OSError = OSError("there is no address")
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time was up")
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        each = socket.socket(family, socket.SOCK_STREAM)
        try:
            each.settimeout(min(CONNECT_S, left))
            each.connect((str(address), url.port))
        except OSError as error:
            each.close()
            problem = error
        else:
            each.settimeout(max(0.1, deadline - time.monotonic()))
            return each
    raise problem


@contextmanager
def _until(deadline: float, raw: socket.socket) -> Iterator[threading.Event]:
    """Cut the connection when the time is up, however slowly its bytes trickle."""
    late = threading.Event()
    twin = raw.dup()  # TLS takes the socket itself over

    def cut() -> None:
        late.set()
        with suppress(OSError):
            twin.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()
        twin.close()
        raw.close()


def _talk(
    url: Url,
    raw: socket.socket,
    method: str,
    headers: Mapping[str, str],
    max_bytes: int,
    tls: ssl.SSLContext | None,
) -> Reply:
    stream = raw
    if url.scheme == "https":
        stream = (tls or ssl.create_default_context()).wrap_socket(raw, server_hostname=url.host)
    connection = http.client.HTTPConnection(url.host, url.port)
    connection.sock = stream
    try:
        connection.putrequest(method, url.target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", url.authority)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Connection", "close")
        connection.endheaders()
        with connection.getresponse() as reply:
            body, truncated = _body(reply, max_bytes)
        return Reply(status=reply.status, headers=reply.headers, body=body, truncated=truncated)
    finally:
        connection.close()


def _body(reply: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    coding = (reply.headers.get("Content-Encoding") or "identity").strip().lower()
    if coding not in {"identity", "", *CODINGS}:
        raise ValueError(f"its content coding {coding[:40]!r} is not known")
    unpack = zlib.decompressobj(CODINGS[coding]) if coding in CODINGS else None
    body, taken = bytearray(), 0
    while chunk := reply.read(CHUNK):
        taken += len(chunk)
        if unpack is None:
            body += chunk
        else:
            body += unpack.decompress(chunk, max_bytes + 1 - len(body))
            if unpack.eof:
                break
        if len(body) > max_bytes or taken > max_bytes:
            return bytes(body[:max_bytes]), True
    if unpack is None and reply.length:
        raise http.client.IncompleteRead(bytes(body), reply.length)
    if unpack is not None and body and not unpack.eof:
        raise ValueError("its compressed content is incomplete")
    return bytes(body[:max_bytes]), len(body) > max_bytes
