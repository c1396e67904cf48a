"""What `doctor` says of a deployment: servers of tools, workspace, policy, secrets, sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from cairn.cli.hints import shown_path
from cairn.cli.plain import count, visible_line
from cairn.core.messages import Record
from cairn.core.names import listed
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import CairnError
from cairn.governance.policy_file import file_of
from cairn.governance.tool_names import is_known
from cairn.tools.registry import ToolServer

if TYPE_CHECKING:
    from cairn.runtime import Runtime

SERVER_S = 15.0
"""How long a server may take to be reached, however long the application would wait for it."""
WIDTH = 400
Level = Literal["ok", "note", "problem"]


class Finding(Record):
    """One thing that was looked at."""

    level: Level
    what: str
    text: str


def deployment(runtime: Runtime) -> Iterator[Finding]:
    """What the application decides for all its agents."""
    host = runtime.host
    places = host.workspaces
    text = "none: tools for files have none to work in"
    if places is not None:
        where = getattr(places, "base", None) or getattr(places, "root", None)
        text = shown_path(str(where)) if where is not None else type(places).__name__
    yield Finding(level="ok", what="workspace", text=text)
    policy = host.policy
    file = file_of(policy)
    text = f"of the application ({type(policy).__name__})"
    if file is not None:
        text = f"file {shown_path(str(file.path))}"
    elif policy is DEFAULT_POLICY:
        text = "default: reads run unasked, all else is asked about"
    yield Finding(level="ok", what="policy", text=text)
    names = host.secrets.names
    yield Finding(level="ok", what="secrets", text=listed(names) or "none registered")
    yield from _minimum(runtime)


def _minimum(runtime: Runtime) -> Iterator[Finding]:
    minimum = runtime.host.walls.minimum
    if minimum is None:
        text = "the application asks for no rung: commands run behind the strongest that is reached"
        yield Finding(level="ok", what="least sandbox", text=text)
        return
    level: Level = "ok"
    text = f"the application asks for at least {minimum.rung}"
    for agent in runtime.host.agents.values():
        try:
            runtime.portal.call(runtime.host.walls.ready(agent))
        except CairnError as error:
            level, text = "problem", str(error)
    yield Finding(level=level, what="least sandbox", text=text)


def servers(runtime: Runtime) -> Iterator[Finding]:
    """Each server of tools, reached now or not; those that are not required may be absent."""
    users: dict[ToolServer, list[str]] = {}
    for name in sorted(runtime.host.agents):
        for server in runtime.host.agents[name].servers:
            users.setdefault(server, []).append(name)
    if not users:
        return
    told = runtime.portal.call(_reach([*users]))
    for (server, agents), fault in zip(users.items(), told, strict=True):
        whose = f"of {'agent' if len(agents) == 1 else 'agents'} {', '.join(agents)}"
        what = f"server {server.name}"
        if not fault:
            info = visible_line(str(getattr(server, "info", "")), 200)
            said = f"reached ({info})" if info else "reached"
            text = f"{said}, {count(len(server.tools()), 'tool')}, {whose}"
            yield Finding(level="ok", what=what, text=text)
            continue
        optional = not getattr(server, "required", True) and fault.absent
        text = f"{visible_line(fault.said, WIDTH)} ({whose})"
        text += "; runs go on without its tools" if optional else ""
        yield Finding(level="note" if optional else "problem", what=what, text=text)


class Fault(Record):
    """Why a server cannot be used; `absent`: because it is not there."""

    said: str
    absent: bool = True


async def _reach(wanted: list[ToolServer]) -> list[Fault | None]:
    return await asyncio.gather(*map(_reached, wanted))


async def _reached(server: ToolServer) -> Fault | None:
    try:
        async with asyncio.timeout(SERVER_S):
            await server.ready()
    except TimeoutError:
        return Fault(said=f"not reached within {SERVER_S:.0f} s")
    except CairnError as error:
        return Fault(said=str(error), absent=False)
    if is_known(server):
        return None
    return Fault(said=str(getattr(server, "fault", "")) or "it cannot be reached")
