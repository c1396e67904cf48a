"""The tools of an application for the policy commands, also those that MCP servers bring."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.core.names import listed
from cairn.core.policy import Policy
from cairn.errors import ConfigError, NotDone, ToolsUnready
from cairn.governance.arguments import KnownTool, schema_of
from cairn.governance.tool_names import could_offer, is_known
from cairn.tools.registry import ToolServer

if TYPE_CHECKING:
    from cairn.runtime import Runtime

OFFLINE = "--offline goes on without it"
OfflineOption = Annotated[
    bool,
    typer.Option("--offline", help="Reach no MCP server; what they bring is then not known."),
]


async def reach(servers: Iterable[ToolServer]) -> dict[ToolServer, str]:
    """Reach servers of tools; why, for those that cannot be."""
    wanted = [server for server in dict.fromkeys(servers) if not is_known(server)]
    told = await asyncio.gather(*(_reached(server) for server in wanted))
    return {server: said for server, said in zip(wanted, told, strict=True) if said}


async def _reached(server: ToolServer) -> str:
    try:
        await server.ready()
    except (NotDone, ConfigError) as error:
        return str(error)
    return "" if is_known(server) else f"MCP server {server.name} cannot be reached"


async def reach_all(servers: Iterable[ToolServer], what: str) -> None:
    """Reach servers of tools, all of them.

    Args:
        servers: Those that are needed.
        what: What cannot be told without them, for the message.

    Raises:
        ToolsUnready: one cannot be reached.
    """
    failed = await reach(servers)
    if failed:
        raise ToolsUnready(f"{'; '.join(failed.values())}. {what}; {OFFLINE}")


def servers_of(runtime: Runtime, agents: Collection[str] | None = None) -> list[ToolServer]:
    """The servers of these agents, or of all."""
    known = runtime.host.agents
    names = known if agents is None else [name for name in agents if name in known]
    return list(dict.fromkeys(s for name in names for s in known[name].servers))


def tools_of(runtime: Runtime) -> list[KnownTool]:
    """All tools of all agents, as far as they are known.

    Raises:
        ToolDefinitionError: a server's tool has the name of another.
    """
    return [
        KnownTool(name=name, agent=agent.name, effect=tool.spec.effect, schema=schema_of(tool))
        for agent in runtime.host.agents.values()
        for name, tool in agent.stocked().tools.items()
    ]


def left_out(servers: Iterable[ToolServer]) -> set[str]:
    """What tools that servers have, and that are not offered, would be called."""
    return {name for server in servers for name in getattr(server, "left_out", ())}


def unchecked(policy: Policy, servers: Collection[ToolServer], known: Collection[str]) -> list[str]:
    """The tools that a policy names and that these servers could have."""
    names = [name for kind, name, _ in policy.names() if kind == "tool" and name not in known]
    return sorted({n for n in names if any(could_offer(server, n) for server in servers)})


def words_of(names: Collection[str]) -> str:
    """Names that were not checked, in words."""
    if not names:
        return "its tools and their arguments were not checked"
    return f"these names were not checked: {listed(sorted(names))}"
