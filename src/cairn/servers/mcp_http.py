"""The MCP server over streamable HTTP: for this machine by default, and never for a web page."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from typing import Any

from cairn.errors import ConfigError
from cairn.servers.agent_calls import AgentCalls
from cairn.servers.mcp import build

PATH = "/mcp"
MIN_TOKEN = 16
GRACE_S = 10


def app(
    calls: AgentCalls,
    *,
    host: str = "127.0.0.1",
    port: int,
    token: str = "",
    allowed_hosts: Sequence[str] = (),
    name: str = "cairn",
) -> Any:
    """The ASGI application. Host and Origin are checked, so that no web page can reach it.

    Args:
        host, port: Where it will listen.
        token: What a client must send as `Authorization: Bearer …`; needed beyond this machine.
        allowed_hosts: Further values of Host it may be called by, as `agents.example:8080`.

    Raises:
        ConfigError: it would be open to everybody, or the SDK is missing.
    """
    check_guarded(host, token)
    local = is_local(host)
    server = build(calls, name)
    from mcp.server.transport_security import TransportSecuritySettings

    names = ["127.0.0.1", "localhost", "[::1]"] if local else [host]
    hosts = [*(f"{each}:{port}" for each in names), *allowed_hosts]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{each}" for each in hosts for scheme in ("http", "https")],
    )
    made = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=security, host=host
    )
    return _guarded(made, token) if token else made


def check_guarded(host: str, token: str) -> None:
    """Refuse to listen where everybody could call.

    Raises:
        ConfigError: others can reach the host and there is no token, or it is too weak.
    """
    if not is_local(host) and not token:
        fix = "Set a token, or listen on 127.0.0.1"
        raise ConfigError("mcp serve --host", f"{host} can be reached by others", fix)
    if token and (len(token) < MIN_TOKEN or not token.isascii() or " " in token):
        fix = f"Use at least {MIN_TOKEN} letters, digits and signs"
        raise ConfigError("mcp serve token", "it is too short, or holds blanks", fix)


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _guarded(inner: Any, token: str) -> Any:
    """The application behind a token."""
    wanted = b"Bearer " + token.encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, wanted):
                await _refuse(send)
                return
        await inner(scope, receive, send)

    return guarded


async def _refuse(send: Any) -> None:
    headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def serve_http(
    calls: AgentCalls,
    *,
    host: str = "127.0.0.1",
    port: int,
    token: str = "",
    allowed_hosts: Sequence[str] = (),
    name: str = "cairn",
) -> None:
    """Serve until SIGINT or SIGTERM; then what is in flight lands. Arguments as for `app`.

    Raises:
        ConfigError: as `app`.
    """
    made = app(calls, host=host, port=port, token=token, allowed_hosts=allowed_hosts, name=name)
    import uvicorn

    config = uvicorn.Config(
        made,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    await uvicorn.Server(config).serve()
    await calls.close()
