"""A loopback server that speaks OpenAI's chat format, as far as our own client needs it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cairn.models.endpoints import ENDPOINTS

NOWHERE = "http://127.0.0.1:9/v1"
"""A port that nobody listens on."""


def forget_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys and no addresses of providers, and no servers of one's own on their usual ports."""
    for endpoint in ENDPOINTS.values():
        for name in (*endpoint.keys, endpoint.url_key):
            if name:
                monkeypatch.delenv(name, raising=False)
        if endpoint.free_key and endpoint.base_url:
            monkeypatch.setenv(endpoint.url_key, NOWHERE)


@dataclass
class Said:
    """What the server answers one request with.

    Args:
        text: The text of the reply.
        calls: Names and arguments of the tools it calls.
        finish: The finish reason, if not the usual one.
        status: Another than 200 makes it an error with `text` as its message.
        code: The error's code.
        headers: Sent beside the usual ones.
        kind: Another content type makes `text` the whole body.
    """

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    finish: str = ""
    status: int = 200
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = ""

    @property
    def reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


class ChatServer:
    """What it answers with, and what it was asked.

    Args:
        answer: Gets the body of a request and says the answer.
        models: What it lists as its models; None makes it answer 404.
        key: The key it wants; empty for none.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Said] = lambda _: Said("ok"),
        models: tuple[str, ...] | None = (),
        key: str = "",
    ) -> None:
        self.answer = answer
        self.models = models
        self.key = key
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["ChatServer"]:
        """Serve on a port of its own."""
        server = _Threads(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Threads(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of the server."""


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            server.paths.append(self.path)
            if server.key and self.headers["Authorization"] != f"Bearer {server.key}":
                self._send(401, {"error": {"message": "no such key"}})
            elif server.models is None:
                self._send(404, {"error": {"message": "no such page"}})
            else:
                self._send(200, {"object": "list", "data": [{"id": m} for m in server.models]})

        def do_POST(self) -> None:
            server.paths.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append(body)
            said = server.answer(body)
            if said.kind:
                self._page(said)
            elif said.status != 200:
                error = {"error": {"message": said.text, "code": said.code}}
                self._send(said.status, error, said.headers)
            else:
                self._stream(said, len(json.dumps(body)) // 4)

        def _send(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
            body = json.dumps(data).encode()
            self._head(status, "application/json", headers or {})
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _page(self, said: Said) -> None:
            self._head(said.status, said.kind, said.headers)
            self.send_header("Content-Length", str(len(said.text)))
            self.end_headers()
            self.wfile.write(said.text.encode())

        def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Connection": "close", **headers}.items():
                self.send_header(name, value)

        def _stream(self, said: Said, tokens: int) -> None:
            self._head(200, "text/event-stream", {"x-request-id": "req-7", **said.headers})
            self.end_headers()
            for chunk in _chunks(said, tokens):
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

    return Handler


def _chunks(said: Said, tokens: int) -> Iterator[dict[str, Any]]:
    about = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "toy-1"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": said.text}]
    deltas += [
        {
            "tool_calls": [
                {
                    "index": at,
                    "id": f"call_{at}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
            ]
        }
        for at, (name, arguments) in enumerate(said.calls)
    ]
    for delta in deltas:
        yield {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": said.reason}]}
    usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": tokens + 3}
    yield {**about, "choices": [], "usage": usage}
