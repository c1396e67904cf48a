"""Agents as tools of an MCP server: progress, cancellation, and runs to read (SDK, extra `mcp`)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from cairn.core.events import Entry
from cairn.core.messages import clean
from cairn.core.views.words import words
from cairn.errors import ConfigError, UnknownRun
from cairn.servers.agent_calls import AgentCalls, Told, fresh_id
from cairn.version import __version__

RUN_URI = "cairn://run/"
NOT_FOUND, BAD_PARAMS = -32_002, -32_602
MARK_S = 0.2
"""How long a call that ends early waits to hear whether its client has cancelled it."""
MAX_INPUT = 1_000_000
MODERN = "2026"
"""From this protocol on, a client cancels a request over HTTP by hanging up."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The task, in words."},
        "run_id": {
            "type": "string",
            "pattern": "^[A-Za-z0-9._-]{1,64}$",
            "description": "The same task under the same id is one run: a repeated call starts, "
            "resumes or returns the stored result, and does nothing twice. A fresh one by default.",
        },
    },
    "additionalProperties": False,
}


def build(calls: AgentCalls, name: str = "cairn") -> Any:
    """The SDK's server over these agents.

    Raises:
        ConfigError: the SDK is not installed.
    """
    need_sdk()
    from mcp.server.lowlevel import Server

    front = _Front(calls)
    server: Any = Server(
        name,
        version=__version__,
        instructions="Each tool is an agent. Runs are durable: name a run_id to go on with one.",
        on_list_tools=front.list_tools,
        on_call_tool=front.call_tool,
        on_list_resources=front.list_resources,
        on_list_resource_templates=front.list_templates,
        on_read_resource=front.read_resource,
    )
    server.middleware.append(front.observe)
    return server


async def serve_stdio(calls: AgentCalls, name: str = "cairn") -> None:
    """Serve one client over this process's input and output, until it closes our input.

    What else is printed meanwhile goes to standard error.
    """
    server = build(calls, name)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
    await calls.close()


def need_sdk() -> None:
    """Raise ConfigError when the SDK is missing."""
    try:
        import mcp.server.lowlevel  # noqa: F401 - asked for, not used
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'cairn-runtime[mcp]'"
        raise ConfigError("mcp serve", f"the MCP SDK is missing ({error.name})", fix) from error


class _Front:
    """What the SDK calls."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        self._cancelled: set[tuple[int, str]] = set()

    async def observe(self, ctx: Any, call_next: Any) -> Any:
        """Take note of what a client cancels: the SDK only ends the handler."""
        if ctx.method == "notifications/cancelled" and ctx.params is not None:
            self._cancelled.add((_peer(ctx), str(ctx.params.get("requestId"))))
        return await call_next(ctx)

    async def list_tools(self, ctx: Any, params: Any) -> Any:
        from mcp_types import ListToolsResult, Tool

        tasks = self._calls.tasks
        return ListToolsResult(
            tools=[
                Tool(
                    name=name,
                    description=_about(name),
                    input_schema={**SCHEMA, "required": [] if name in tasks else ["input"]},
                )
                for name in self._calls.agents
            ]
        )

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        from mcp.shared.exceptions import MCPError

        if params.name not in self._calls.agents:
            known = ", ".join(self._calls.agents)
            raise MCPError(BAD_PARAMS, f"there is no agent {params.name!r} here (known: {known})")
        standing = self._calls.tasks.get(params.name)
        given = {**({} if standing is None else {"input": standing}), **(params.arguments or {})}
        if problem := _problem(given):
            return _result(Told(text=problem, data={"error": "InvalidArguments"}, ok=False))
        run = given.get("run_id") or fresh_id()

        async def on_entry(run: str, entry: Entry) -> None:
            said = f"{entry.event.NAME} {words(entry.event)}".rstrip()
            await ctx.session.report_progress(float(entry.seq), None, clean(f"run {run}: {said}"))

        try:
            return _result(
                await self._calls.call(params.name, clean(given["input"]), run, on_entry)
            )
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._ended_early(ctx, run)))
            raise

    async def _ended_early(self, ctx: Any, run: str) -> None:
        """A run is cancelled only when its client said so; one that went away may come back."""
        mark = (_peer(ctx), str(ctx.request_id))
        hung_up = ctx.request is not None and ctx.protocol_version >= MODERN
        if not hung_up and mark not in self._cancelled:
            await asyncio.sleep(MARK_S)
        if hung_up or mark in self._cancelled:
            self._cancelled.discard(mark)
            await self._calls.cancel(run, "cancelled by the MCP client")

    async def list_resources(self, ctx: Any, params: Any) -> Any:
        from mcp_types import ListResourcesResult

        return ListResourcesResult(resources=[])

    async def list_templates(self, ctx: Any, params: Any) -> Any:
        from mcp_types import ListResourceTemplatesResult, ResourceTemplate

        template = ResourceTemplate(
            name="run",
            uri_template=f"{RUN_URI}{{id}}",
            description="How a run stands, and what happened in it.",
            mime_type="application/json",
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        from mcp.shared.exceptions import MCPError
        from mcp_types import ReadResourceResult, TextResourceContents

        uri = str(params.uri)
        code = BAD_PARAMS if ctx.protocol_version >= MODERN else NOT_FOUND
        if not uri.startswith(RUN_URI):
            raise MCPError(code, f"there is no resource {uri!r}")
        try:
            found = await self._calls.look(uri.removeprefix(RUN_URI))
        except (UnknownRun, ConfigError) as error:
            raise MCPError(code, str(error)) from error
        text = json.dumps(found, ensure_ascii=False, default=str)
        contents = TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return ReadResourceResult(contents=[contents])


def _peer(ctx: Any) -> int:
    """Whose request it is: ids are each client's own."""
    request = ctx.request
    held = request.headers.get("mcp-session-id", "") if request is not None else ""
    return hash(held)


def _about(agent: str) -> str:
    return (
        f"Give the agent {agent} a task and get its result. It may take minutes; progress is "
        "reported. If people have to decide something first, the result says what, and names the "
        "run_id with which to go on."
    )


def _problem(given: dict[str, Any]) -> str:
    if extra := sorted(set(given) - set(SCHEMA["properties"])):
        return f"there is no argument {extra[0]!r}; known: input, run_id"
    text = given.get("input")
    if not isinstance(text, str) or not text.strip():
        return "input must be text that says what to do"
    if len(text) > MAX_INPUT:
        return f"input has {len(text):,} characters, more than {MAX_INPUT:,}"
    run = given.get("run_id", "")
    return "" if isinstance(run, str) else "run_id must be text"


def _result(told: Told) -> Any:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(
        content=[TextContent(text=told.text)], structured_content=told.data, is_error=not told.ok
    )
