"""`mcp`: offer agents to MCP clients, and look at what a server of tools would bring."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cairn.cli import options
from cairn.cli.outcome import print_json
from cairn.cli.paint import console
from cairn.cli.place import locate, open_app
from cairn.cli.plain import visible_line
from cairn.cli.say import complain, print_line
from cairn.cli.verbs import Verbs
from cairn.core.messages import Principal
from cairn.errors import ConfigError, NotDone
from cairn.mcp import McpServer
from cairn.mcp.shelf import Listed

if TYPE_CHECKING:
    from cairn.runtime import Runtime

TOKEN = "CAIRN_MCP_TOKEN"  # noqa: S105 - the name of a variable, no secret
HASH_SHOWN = 12

app = Verbs(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Offer agents to MCP clients, or see what servers would bring.",
)


@app.command()
def serve(
    *,
    http: Annotated[
        int | None,
        typer.Option("--http", metavar="PORT", min=1, max=65_535, help="Serve HTTP there."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME:PORT", help="A further name it is called by."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", help="An agent to offer, repeatable. Default: all."),
    ] = None,
    principal: Annotated[str, typer.Option("--principal", help="For whom the runs work.")] = "mcp",
    role: Annotated[list[str] | None, typer.Option("--role", help="A role of that one.")] = None,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Offer the application's agents as tools of an MCP server.

    Without --http one client is served over standard input and output. With it, the token in the
    variable CAIRN_MCP_TOKEN is asked of every client, if there is one; beyond this machine there
    must be one. Runs are journaled in the application's store.
    """
    place = locate(store, app)
    with _output_kept_clean(wanted=http is None):
        runtime = open_app(place)
    who = Principal(id=principal, roles=tuple(role or ()))
    asyncio.run(_serve(runtime, tuple(agent or ()), who, host, http, tuple(allow_host or ())))


@contextlib.contextmanager
def _output_kept_clean(*, wanted: bool) -> Iterator[None]:
    """What the application prints while it is loaded must not reach a client on our output."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


async def _serve(
    runtime: Runtime,
    agents: tuple[str, ...],
    principal: Principal,
    host: str,
    port: int | None,
    allowed: tuple[str, ...],
) -> None:
    from cairn.servers.agent_calls import AgentCalls
    from cairn.servers.mcp import serve_stdio
    from cairn.servers.mcp_http import PATH, check_guarded, serve_http

    try:
        calls = AgentCalls(runtime, agents, principal)
        if port is None:
            await serve_stdio(calls)
            return
        token = os.environ.get(TOKEN, "")
        check_guarded(host, token)  # before anybody is told that it serves
        complain(f"serving {', '.join(calls.agents)} at http://{host}:{port}{PATH}")
        await serve_http(calls, host=host, port=port, token=token, allowed_hosts=allowed)
    finally:
        await runtime.close_async()


@app.command()
def tools(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="Whose servers. Default: all agents'.")
    ] = "",
    *,
    command: Annotated[
        str, typer.Option("--command", help="Instead: a server to start, as one line.")
    ] = "",
    url: Annotated[str, typer.Option("--url", help="Instead: the address of a server.")] = "",
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List the tools that MCP servers bring, with the effect each is treated as.

    Servers are started and asked for their lists; no tool is called. The hash changes with
    anything a server says of a tool: ToolOptions(schema=…) holds a declaration to it. What the
    server itself says of effects is shown last, and nobody goes by it.
    """
    if command or url:
        found = [McpServer("server", command=shlex.split(command), url=url)]
    else:
        runtime = open_app(locate(store, app))
        names = [agent] if agent else sorted(runtime.host.agents)
        offered = [s for name in names for s in runtime.agent(name).servers]
        found = [s for s in dict.fromkeys(offered) if isinstance(s, McpServer)]
    if not found:
        print_line("no agent here has an MCP server")
        return
    if not asyncio.run(_show(found, json=json)):
        raise typer.Exit(1)


async def _show(servers: list[McpServer], *, json: bool) -> bool:
    fine = True
    for server in servers:
        try:
            await server.ready()
        except (NotDone, ConfigError) as error:
            complain(str(error))
            fine = False
        else:
            _print(server, json=json)
        finally:
            await server.close()
    return fine


def _ours(server: McpServer) -> list[Listed]:
    """The tools an agent gets that the server did not name: reading its resources."""
    named = {each.name for each in server.listed}
    return [
        Listed(
            tool=tool.name.removeprefix(server.prefix),
            name=tool.name,
            effect=tool.spec.effect,
            recovery=tool.spec.recovery,
            why="the server has resources",
            description=tool.schema.description,
        )
        for tool in server.tools()
        if tool.name not in named
    ]


def _print(server: McpServer, *, json: bool) -> None:
    listed = [*server.listed, *_ours(server)]
    if json:
        for each in listed:
            print_json({"server": server.name, **msgspec.structs.asdict(each)})
        return
    from rich.table import Table
    from rich.text import Text

    print_line(f"{server.name}: {visible_line(server.info, 200)}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "effect", "why", "hash", "the server says"):
        table.add_column(title, overflow="fold")
    for each in listed:
        name = each.name or visible_line(each.tool, 80)
        why = f"left out: {each.refused}" if each.refused else each.why
        effect = "" if each.refused else f"{each.effect}, {each.recovery}"
        cells = (name, effect, why, each.hash[:HASH_SHOWN], ", ".join(each.hints))
        table.add_row(*(Text(visible_line(cell, 200)) for cell in cells))
    console(table=True).print(table)
