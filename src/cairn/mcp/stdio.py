"""The wire to a server that is a process of ours: lines of JSON over its input and output."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from cairn.errors import ConfigError, safe_repr
from cairn.mcp.sent import SENT
from cairn.tools.text import shorten

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of one message; a server that sends a longer one is disconnected."""
MAX_NOISE = 1_000
"""Lines that are no messages; a server that writes more to its output is disconnected."""
CHUNK = 65_536
TAIL_LINES = 20
TAIL_CHARS = 400
GUARD = str(Path(__file__).with_name("guard.py"))
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a server gets of our environment; the rest may hold secrets that are not its own."""
REAP_S = 2.0


class Tail:
    """The last lines of something that may never end."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take in bytes as they come."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:CHUNK]
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        """Take in one line."""
        text = line[: TAIL_CHARS * 4].decode(errors="replace").rstrip()
        if text:
            self.count += 1
            self._lines.append(shorten(text, TAIL_CHARS))

    def text(self, lines: int = 3) -> str:
        """The last of them, joined."""
        kept = [*self._lines]
        if self._rest.strip():
            kept.append(shorten(self._rest[:1600].decode(errors="replace").strip(), TAIL_CHARS))
        return " | ".join(kept[-lines:])


class StdioWire:
    """The process of a server, its pipes, and what it said beside the protocol."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        grace_s: float,
        on_end: Callable[[str], None],
    ) -> None:
        self.errors = Tail()
        self.noise = Tail()
        self._command = list(command)
        self._env = {k: os.environ[k] for k in INHERITED if k in os.environ} | dict(env)
        self._cwd = cwd
        self._grace_s = grace_s
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._guard: subprocess.Popen[bytes] | None = None
        self._lifeline: socket.socket | None = None
        self._broken = ""
        self._writing = asyncio.Lock()
        self._to = self._from = self._err = -1

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._to < 0 or bool(self._broken)

    def told(self) -> str:
        """What the server said last on its error output, and otherwise as noise."""
        return self.errors.text() or self.noise.text()

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, _Out]]:
        """The process at work, and both directions as the SDK wants them.

        Raises:
            OSError, ConfigError: it cannot be started.
        """
        import anyio

        self._start()
        incoming, taken = anyio.create_memory_object_stream[Any](0)
        reader = self._loop.create_task(self._read(incoming))
        try:
            yield taken, _Out(self)
        finally:
            reader.cancel()
            await asyncio.wait({reader})
            incoming.close()
            taken.close()
            await self._end()

    # ---------------------------------------------------------------- the process

    def _start(self) -> None:
        if self._cwd is not None and not Path(self._cwd).is_dir():
            problem = f"there is no folder {safe_repr(self._cwd)} here"
            raise ConfigError("McpServer.cwd", problem, "Make it, or name another")
        program = self._command[0]
        path = self._env.get("PATH", os.defpath)
        if not _findable(program, path, self._cwd):
            fix = "Install it, or write its whole path"
            raise ConfigError(
                "McpServer.command", f"there is no program {safe_repr(program)} here", fix
            )
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-S", GUARD, str(theirs.fileno()), str(self._grace_s)]
            try:
                self._guard = subprocess.Popen(
                    [*argv, *self._command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self._env,
                    cwd=self._cwd,
                    bufsize=0,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except BaseException:  # whatever it is goes on; only our end is closed first
                ours.close()
                raise
        self._lifeline = ours
        ours.setblocking(False)
        self._to, self._from, self._err = (_taken(self._guard, n) for n in _PIPES)
        self._loop.add_reader(self._err, self._hear)

    def _hear(self) -> None:
        try:
            chunk = os.read(self._err, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self.errors.feed(chunk)
        else:
            self._loop.remove_reader(self._err)

    async def _end(self) -> None:
        """Close its input, then let the guard see to the rest: a word, SIGTERM, SIGKILL."""
        self._close("_to")
        self._close("_from")
        pid = self._server_pid()
        if self._lifeline is not None:
            self._lifeline.close()
        guard = self._guard
        if guard is not None:
            until = time.monotonic() + self._grace_s * 2 + REAP_S
            while guard.poll() is None and time.monotonic() < until:  # noqa: ASYNC110 - a child's end wakes nobody here
                await asyncio.sleep(0.005)
            if guard.returncode is None or guard.returncode < 0:  # somebody has killed the guard
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, 9) if pid else None
            if guard.returncode is None:
                guard.kill()
                guard.wait(REAP_S)
        self._loop.remove_reader(self._err)
        self._close("_err")

    def _server_pid(self) -> int:
        try:
            said = self._lifeline.recv(32) if self._lifeline is not None else b""
        except OSError:
            return 0
        number = said.split(b"\n")[0]
        return int(number) if number.isdigit() else 0

    def _close(self, end: str) -> None:
        handle = getattr(self, end)
        if handle >= 0:
            setattr(self, end, -1)
            self._loop.remove_writer(handle)
            self._loop.remove_reader(handle)
            os.close(handle)

    # ---------------------------------------------------------------- reading

    async def _read(self, incoming: Any) -> None:
        why = "the server has closed its output"
        try:
            async with incoming:
                why = await self._take_in(incoming) or why
        except Exception as error:  # whatever it is, the connection is over and must be known so
            why = f"its output cannot be read: {type(error).__name__}: {error}"
        self.stop(why)

    async def _take_in(self, incoming: Any) -> str:
        import anyio

        rest = bytearray()
        while chunk := await self._chunk():
            if b"\n" not in chunk:
                rest += chunk
                lines: list[bytes] = []
            else:
                *lines, left = bytes(rest + chunk).split(b"\n")
                rest = bytearray(left)
            for line in lines:
                if len(line) > MAX_MESSAGE:
                    return f"the server sent a message of {len(line):,} bytes"
                found = _message(line)
                if found is None:
                    self.noise.add(line)
                    if self.noise.count > MAX_NOISE:
                        return f"over {MAX_NOISE} lines of its output were no messages"
                    continue
                try:
                    await incoming.send(found)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return ""
            if len(rest) > MAX_MESSAGE:
                return f"the server sent a message of over {MAX_MESSAGE:,} bytes"
        return ""

    async def _chunk(self) -> bytes:
        while self._from >= 0:
            try:
                return os.read(self._from, CHUNK)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader, self._from)
            except OSError as error:
                if error.errno != errno.EINTR:
                    return b""
        return b""

    async def _ready(self, add: Any, remove: Any, handle: int) -> None:
        ready = self._loop.create_future()
        add(handle, _wake, ready)
        try:
            await ready
        finally:
            remove(handle)

    def stop(self, why: str) -> None:
        """The connection is over."""
        if not self._broken:
            self._broken = why
            self._on_end(why)

    # ---------------------------------------------------------------- writing

    async def write(self, data: bytes, begun: Callable[[], None]) -> None:
        """Send one line whole. `begun` is called once the first byte has left.

        Raises:
            anyio.ClosedResourceError: the server takes nothing any more.
        """
        import anyio

        async with self._writing:
            rest, started = memoryview(data), False
            try:
                while rest:
                    if self.closed:
                        raise anyio.ClosedResourceError
                    try:
                        rest = rest[os.write(self._to, rest[:CHUNK]) :]
                    except BlockingIOError:
                        await self._ready(self._loop.add_writer, self._loop.remove_writer, self._to)
                        continue
                    except OSError as error:
                        self.stop(f"the server takes no input any more ({error.strerror})")
                        raise anyio.ClosedResourceError from error
                    if not started:
                        started = True
                        begun()
            except asyncio.CancelledError:
                if started and rest:
                    self.stop("a message was cut off on its way to the server")
                raise


class _Out:
    """The sending direction, as the SDK wants it."""

    def __init__(self, wire: StdioWire) -> None:
        self._wire = wire

    async def send(self, item: Any) -> None:
        text: str = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        sent = SENT.get()
        mine = sent is not None and getattr(item.message, "method", "") == sent.method
        await self._wire.write(text.encode() + b"\n", sent.begin if sent and mine else _nothing)

    async def aclose(self) -> None:
        """The wire ends with its process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


_PIPES = ("stdin", "stdout", "stderr")


def _taken(child: subprocess.Popen[bytes], name: str) -> int:
    """A pipe's end as a handle of its own, which never blocks."""
    stream = getattr(child, name)
    handle = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(handle, False)
    return handle


def _findable(program: str, path: str, cwd: str | None) -> bool:
    import shutil

    if os.sep in program:
        return os.access(Path(cwd or ".") / program, os.X_OK)
    return shutil.which(program, path=path) is not None


def _message(line: bytes) -> Any:
    """The message a line holds, None for noise."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _nothing() -> None:
    return
