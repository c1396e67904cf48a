"""A raw HTTP server on the loopback: it says exactly what a test tells it to, and nothing else.

    answer = Answer(events=[b"data: 1\\n\\n"], end="drop")
    async with Loopback(answer) as server:
        ...  # speak to server.url
    server.seen  # what was received, one entry for each request

Nothing is parsed beyond what is needed to read a request; nothing is added to what is sent.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

JSON = "application/json"
SSE = "text/event-stream"
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Answer:
    """What is sent for one request.

    Args:
        body: The whole body of an answer that is not streamed.
        status: Its HTTP status.
        headers: Sent beside content type and length.
        kind: The content type.
        events: Pieces of a streamed body, each one chunk of its own.
        end: How a streamed body ends: `whole` closes it as HTTP wants it, `drop` tears the
            connection down before that, `hang` sends nothing more until the client goes away.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = JSON
    events: Sequence[bytes] | None = None
    end: Literal["whole", "drop", "hang"] = "whole"


SILENCE = Answer(end="hang")
"""The request is read and never answered: not even a status line comes."""


@dataclass
class Seen:
    """One request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all that the answer says was sent."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client closed the connection while the answer hung."""

    @property
    def body(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.raw)


class Loopback:
    """Answers each request with the next answer; the last one is said again and again.

    Args:
        answers: In order; or one function that gets the request and says the answer.
    """

    def __init__(self, *answers: Answer | Callable[[Seen], Answer]) -> None:
        self._answers = answers
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def request(self, number: int = 0) -> Seen:
        """The request of this number, once it has arrived."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen) > number)
        return self.seen[number]

    def hang_up(self) -> None:
        """Close all connections; new ones are taken."""
        for task in list(self._tasks):
            task.cancel()

    async def closed(self) -> None:
        """Until no connection is open any more."""
        async with asyncio.timeout(PATIENCE_S):
            while self._tasks:
                await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test has gone
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; whether the connection may be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(method, path, headers, raw)
        async with self._arrived:
            self.seen.append(seen)
            self._arrived.notify_all()
        answer = self._answer(seen)
        for piece in _pieces(answer):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        seen.sent.set()
        if answer.end == "hang":
            with suppress(ConnectionError):  # it went without reading all of it
                await reader.read()
            seen.gone.set()
        if answer.end == "drop":
            writer.transport.abort()
        return answer.end == "whole"

    def _answer(self, seen: Seen) -> Answer:
        answer = self._answers[min(len(self.seen), len(self._answers)) - 1]
        return answer if isinstance(answer, Answer) else answer(seen)


def _pieces(answer: Answer) -> list[bytes]:
    if answer is SILENCE:
        return []
    length = (
        "transfer-encoding: chunked"
        if answer.events is not None
        else f"content-length: {len(answer.body)}"
    )
    more = [f"{name}: {value}" for name, value in answer.headers.items()]
    lines = [f"HTTP/1.1 {answer.status} Said", f"content-type: {answer.kind}", length, *more]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    if answer.events is None:
        return [head + answer.body]
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in answer.events]
    return [head, *chunks, *([b"0\r\n\r\n"] if answer.end == "whole" else [])]
