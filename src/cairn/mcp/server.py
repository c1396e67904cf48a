"""`McpServer`: a server as an agent is given it. Connects on first use, keeps, reconnects, ends."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from cairn.core.events import ArtifactCreated
from cairn.core.messages import Message
from cairn.core.names import listed as listed_names
from cairn.errors import ConfigError, ToolError, UnknownTools
from cairn.mcp.asking import OnElicit, answering
from cairn.mcp.connection import Connection, Offer, Settings, Wire, Work, marked
from cairn.mcp.faults import Down, failed_call, sdk_words, signal_of
from cairn.mcp.http import HttpWire
from cairn.mcp.options import (
    Declared,
    check_name,
    check_place,
    declared,
    folder,
    folders,
    names,
    seconds,
    texts,
)
from cairn.mcp.results import Kept, contents, message_of, resource_of, text_of, value_of
from cairn.mcp.sent import Sent
from cairn.mcp.shelf import LIST, READ, Listed, Rules, Shelf, misnamed, stock
from cairn.mcp.side import Side, refuse_on_a_loop
from cairn.mcp.stdio import StdioWire
from cairn.tools.context import Context
from cairn.tools.text import shorten
from cairn.tools.tool import Tool

BACKOFF_S = 0.25
MAX_BACKOFF_S = 30.0
PATIENCE_S = 2.0
"""How long a call waits for the next attempt to connect before it says that the server is down."""
RESTARTS = 12
WINDOW_S = 600.0
"""So many connections may be made in this time; then the server is left alone."""
RELIST_S = 1.0
"""A server that says all the time that its tools have changed is asked no more often than this."""
LISTED = 200
GRACE_S = 2.0

log = logging.getLogger("cairn")


class McpServer:
    """A Model Context Protocol server whose tools an agent may use: `Agent(tools=[server])`.

    Its tools are called `name__tool`. Each is `dangerous` and never repeated by itself, until
    `effects` says otherwise; what the server says about effects is shown and never trusted.

    Args:
        name: How it is called here; begins the names of its tools.
        command: Program and arguments of a server that is started here, speaking over its input
            and output. No shell is involved.
        url: Address of a server that speaks streamable HTTP.
        env: Added to the few variables a started server gets; it does not get ours.
        cwd: Working folder of a started server.
        headers: Sent with each HTTP request; never logged.
        effects: What the operator knows, by the names the server gives: `read`, `write`,
            `dangerous`, or a `ToolOptions`.
        timeout_s: Deadline of one call, in seconds. Default 60.
        connect_s: How long starting and connecting may take, in seconds. Default 30.
        only, exclude: Names of tools that alone are offered, or are not. A name in these or in
            `effects` that the server does not have is refused when it is reached.
        roots: Folders the server is told it may work in; it is not held to that.
        on_elicit: Answers what the server asks during a call; by default it is declined.
        required: Whether a run fails to start while the server cannot be reached. Otherwise it
            goes on without its tools, and says so (`degraded`).

    Raises:
        ConfigError: a value is not usable.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        effects: Mapping[str, Declared] | None = None,
        timeout_s: float = 60.0,
        connect_s: float = 30.0,
        only: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        roots: Sequence[str | os.PathLike[str]] = (),
        on_elicit: OnElicit | None = None,
        required: bool = True,
    ) -> None:
        self.name = check_name(name)
        where = f"McpServer({name!r})"
        check_place(where, command, url)
        self._command = tuple(command)
        self._url = url
        self._env = texts(f"{where}.env", env)
        self._cwd = folder(f"{where}.cwd", cwd) if cwd is not None else None
        self._headers = texts(f"{where}.headers", headers)
        self.required = required
        timeout_s = seconds(f"{where}.timeout_s", timeout_s)
        self._rules = Rules(
            server=name,
            effects=declared(name, effects or {}),
            only=names(f"{where}.only", only),
            exclude=names(f"{where}.exclude", exclude) or frozenset(),
            timeout_s=timeout_s,
            settle_s=GRACE_S * 2 if command else timeout_s,
            first={},
        )
        self._settings = Settings(
            name=name,
            wire=self._wire,
            connect_s=seconds(f"{where}.connect_s", connect_s),
            roots=folders(f"{where}.roots", roots),
            on_elicit=answering(f"{where}.on_elicit", on_elicit),
            on_list=self._list_changed,
        )
        self._side = Side(name)
        self._shelf: Shelf | None = None
        self._version = 0
        self._info = ""
        self.fault = ""
        """Why a server that is not required was not reached."""
        self._begin()

    def _begin(self) -> None:
        """As before the first connection; what was learnt of the tools stays."""
        self._connection: Connection | None = None
        self._lock: asyncio.Lock | None = None
        self._stale = False
        self._relisted = -RELIST_S
        self._attempts: deque[float] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        if self._command:
            return f"McpServer({self.name!r}, command={self._command[0]!r})"
        parts = urlsplit(self._url)
        return f"McpServer({self.name!r}, url='{parts.scheme}://{parts.netloc}{parts.path}')"

    # ---------------------------------------------------------------- what agents need

    @property
    def version(self) -> int:
        """Goes up when what it offers has changed; 0 before it was ever reached."""
        return self._version

    @property
    def prefix(self) -> str:
        """How the names of all its tools begin."""
        return f"{self.name}__"

    @property
    def labels(self) -> frozenset[str]:
        """The taint that all of its results bring."""
        return frozenset({f"mcp:{self.name}"})

    @property
    def left_out(self) -> frozenset[str]:
        """What its tools that are not offered would be called; empty before `ready`."""
        return self._shelf.left_out if self._shelf is not None else frozenset()

    def tools(self) -> tuple[Tool[..., Any], ...]:
        """Its tools as they were last listed; none before `ready`."""
        return self._shelf.tools if self._shelf is not None else ()

    @property
    def listed(self) -> tuple[Listed, ...]:
        """Each tool the server named, and what became of it; empty before `ready`."""
        return self._shelf.listed if self._shelf is not None else ()

    @property
    def info(self) -> str:
        """What the server calls itself, and the protocol's version."""
        return self._info

    async def ready(self) -> None:
        """Connect and list its tools, if that was never done; from any loop.

        Raises:
            Down: it cannot be reached, and is required.
            UnknownTools: `effects`, `only` or `exclude` names a tool that it does not have.
            ConfigError: its program or the SDK is missing, and it is required.
        """
        if self._shelf is not None:
            return
        try:
            await self._side.run(self._connected)
        except (Down, ConfigError) as error:
            if self.required or isinstance(error, UnknownTools):
                raise
            self.fault = str(error)
            log.warning("going on without its tools: %s", error)

    async def close(self) -> None:
        """End the connection and the server's process; the next call makes new ones."""
        if not self._side.begun:
            return
        await self._side.run(self._disconnect)
        self._side.stop()
        self._begin()

    # ---------------------------------------------------------------- for the developer

    async def prompt_async(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> tuple[Message, ...]:
        """A prompt of the server, filled in: messages, all of them data from a stranger.

        Raises:
            ToolError, NotDone: the server has no such prompt, or cannot be reached.
        """
        given = {str(key): str(value) for key, value in (arguments or {}).items()}
        found = await self._side.run(
            lambda: self._asked(
                "prompts/get", lambda conn, work: conn.prompt(name, given, work), "read", ""
            )
        )
        return tuple(message_of(each) for each in found.messages)

    def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """A prompt of the server, filled in: messages, all of them data from a stranger."""
        refuse_on_a_loop("prompt")
        return asyncio.run(self.prompt_async(name, arguments))

    # ---------------------------------------------------------------- the connection

    def _wire(self, on_end: Callable[[str], None]) -> Wire:
        if self._url:
            return HttpWire(self._url, self._headers, on_end)
        return StdioWire(
            self._command, env=self._env, cwd=self._cwd, grace_s=GRACE_S, on_end=on_end
        )

    async def _connected(self) -> Connection:
        """A living connection whose list of tools is fresh.

        Raises:
            Down, ConfigError: there is none.
        """
        if self._lock is None:
            _need_sdk()
            self._lock = asyncio.Lock()
        async with self._lock:
            found = self._connection
            if found is None or not found.alive:
                found = await self._reconnect(found)
            elif self._stale:
                await self._relist(found)
            return found

    async def _reconnect(self, old: Connection | None) -> Connection:
        loop = asyncio.get_running_loop()
        if old is not None:
            log.info("MCP server %s is connected anew: %s", self.name, old.why)
            await old.close()
        await self._take_turn(loop.time(), old)
        self._attempts.append(loop.time())
        new = Connection(self._settings)
        offer = await new.start()
        try:
            self._take(offer)
        except UnknownTools:  # nothing of it is offered, so that nothing of it can be called
            await new.close()
            raise
        self._connection = new
        self._info = f"{offer.info.strip()}, protocol {offer.version}"
        return new

    async def _take_turn(self, now: float, old: Connection | None) -> None:
        """Wait for the next attempt, if that is soon.

        Raises:
            Down: it is not.
        """
        while self._attempts and self._attempts[0] < now - WINDOW_S:
            self._attempts.popleft()
        made = len(self._attempts)
        if not made:
            return
        rest = self._attempts[-1] + min(BACKOFF_S * 2 ** (made - 2), MAX_BACKOFF_S) - now
        if made >= RESTARTS:
            rest = self._attempts[0] + WINDOW_S - now
        if rest > PATIENCE_S:
            why = f"; it last ended because: {old.why}" if old is not None else ""
            said = f"MCP server {self.name} is left alone for {rest:.0f} s after {made} attempts"
            raise Down(shorten(said + why, 1_000))
        if made > 1 and rest > 0:
            await asyncio.sleep(rest)

    async def _relist(self, connection: Connection) -> None:
        """Take in what it offers now. A list that cannot be had makes the connection useless."""
        self._stale = False
        self._relisted = asyncio.get_running_loop().time()
        known = self._shelf
        try:
            async with asyncio.timeout(self._settings.connect_s):
                tools = await connection.tools()
        except Exception as error:  # whatever the SDK raises, the old list is no longer true
            self._stale = True
            await connection.close()
            raise Down(
                f"MCP server {self.name} does not list its tools: {sdk_words(error)}"
            ) from error
        resources = known is not None and any(t.name == self._full(LIST) for t in known.tools)
        self._take(Offer(tools=tools, resources=resources, prompts=False, version="", info=""))

    def _take(self, offer: Offer) -> None:
        """What it offers now; the version goes up if that is not what it was.

        A declared tool may be gone later on: nothing of it can be called then. One that is new
        under another name has no declaration, and so is dangerous.

        Raises:
            UnknownTools: the first time, when it does not have what is declared of it.
        """
        work = {LIST: self._list_resources, READ: self._read_resource}
        shelf = stock(offer, self._rules, self._call, work)
        missing = misnamed(self._rules, shelf.names)
        if self._shelf is None:
            if missing:
                raise UnknownTools.of(missing)
        elif shelf.digest != self._shelf.digest:
            log.warning("MCP server %s offers other tools than before", self.name)
            if missing:
                gone = listed_names(sorted({name for _, name, _, _ in missing}))
                log.warning("MCP server %s has no longer, though declared: %s", self.name, gone)
        changed = self._shelf is None or shelf.digest != self._shelf.digest
        self._shelf = shelf
        self._version += changed

    def _list_changed(self) -> None:
        if self._stale:
            return
        self._stale = True
        task = asyncio.get_running_loop().create_task(self._refresh())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refresh(self) -> None:
        """Look at the new list soon, so that the next turn can offer it."""
        rest = self._relisted + RELIST_S - asyncio.get_running_loop().time()
        await asyncio.sleep(max(rest, 0.0))
        try:
            if self._stale and self._connection is not None and self._connection.alive:
                await self._connected()
        except (Down, ConfigError) as error:
            log.warning("%s", error)

    async def _disconnect(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._connection is not None:
            await self._connection.close()

    # ---------------------------------------------------------------- calls

    async def _call(
        self, tool: str, listed: Listed, arguments: dict[str, Any], ctx: Context[Any]
    ) -> Any:
        work = Work(label=f"{ctx.run_id}/{ctx.call_id}", notes=[])
        loop = asyncio.get_running_loop()

        def progress(message: str, fraction: float | None) -> None:
            with suppress(RuntimeError):  # the run's loop is closed: nobody looks any more
                loop.call_soon_threadsafe(ctx.progress, message, fraction)

        async def ask(connection: Connection, work: Work) -> Any:
            self._check_unchanged(listed)
            return await connection.call(tool, arguments, work, progress)

        async def whole() -> Any:
            result = await self._asked("tools/call", ask, listed.effect, work.label, work)
            if self._tasks:  # a list that the call changed stands in the very next request
                await asyncio.wait(self._tasks, timeout=min(RELIST_S, (ctx.remaining() or 8) / 8))
            if result.is_error:
                raise failed_call(self.name, text_of(result), work.notes)
            return value_of(result, work.notes, _keeper(ctx))

        return await self._side.run(whole)

    def _check_unchanged(self, listed: Listed) -> None:
        """Refuse to call what is not any more what was offered, shown and perhaps approved.

        Raises:
            ToolError: it is not.
        """
        now = next((each for each in self.listed if each.tool == listed.tool), None)
        if now is None or now.refused:
            raise ToolError(f"{listed.name} is no longer offered by its server; it was not called")
        if now.hash != listed.hash:
            raise ToolError(
                f"{listed.name} has changed at its server since it was offered; it was not called. "
                "Its new form is offered from the next turn on, and needs a new decision"
            )

    async def _asked(
        self,
        method: str,
        ask: Callable[[Connection, Work], Coroutine[Any, Any, Any]],
        effect: str,
        label: str,
        work: Work | None = None,
    ) -> Any:
        """One request of ours, with what is known when it fails.

        Raises:
            ToolError, NotDone, Unsure: as `faults` says.
        """
        sent = Sent(method)
        try:
            connection = await self._connected()
        except ConfigError as error:
            raise Down(str(error)) from error
        try:
            asked = ask(connection, work or Work(label=label, notes=[]))
            return await marked(sent, asked)
        except Exception as error:  # all that the SDK raises is told apart in one place
            told = "" if connection.alive else connection.told()
            if not connection.alive and not sent.problem and sent.status == 0:
                sent.problem = connection.why
            raise signal_of(self.name, error, sent, effect, told) from error  # type: ignore[arg-type]  # one of three

    async def _list_resources(self, arguments: dict[str, Any], ctx: Context[Any]) -> Any:
        async def ask(connection: Connection, work: Work) -> Any:
            return await connection.resources()

        found = await self._side.run(
            lambda: self._asked("resources/list", ask, "read", f"{ctx.run_id}/{ctx.call_id}")
        )
        return [resource_of(each) for each in found[:LISTED]]

    async def _read_resource(self, arguments: dict[str, Any], ctx: Context[Any]) -> Any:
        async def ask(connection: Connection, work: Work) -> Any:
            return await connection.read(arguments["uri"], work)

        found = await self._side.run(
            lambda: self._asked("resources/read", ask, "read", f"{ctx.run_id}/{ctx.call_id}")
        )
        return [contents(each, _keeper(ctx)) for each in found.contents[:LISTED]]

    def _full(self, name: str) -> str:
        return f"{self.name}__{name}"


def _keeper(ctx: Context[Any]) -> Kept:
    """Makes artifacts of files; their ids are given where the outcome is recorded."""

    def keep(media_type: str, encoded: str, size: int) -> str:
        made = sum(isinstance(fact, ArtifactCreated) for fact in ctx.facts)
        name = f"{ctx.tool}-{ctx.call_id}-{made + 1}"
        ctx.facts.append(
            ArtifactCreated(
                id="",
                name=name,
                media_type=media_type,
                size=size,
                content=encoded,
                base64=True,
            )
        )
        return name

    return keep


def _need_sdk() -> None:
    try:
        import mcp.client
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'cairn-runtime[mcp]'"
        raise ConfigError("McpServer", f"the MCP SDK is missing ({error.name})", fix) from error
    if not hasattr(mcp, "Client"):
        fix = "Install it anew: pip install 'cairn-runtime[mcp]'"
        raise ConfigError("McpServer", "the installed MCP SDK is older than 2", fix)
