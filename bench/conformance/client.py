"""The client under test: an agent calls each tool of the suite's server once."""

from __future__ import annotations

import asyncio
import sys

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.mcp import Elicitation, McpServer

ARGUMENTS = {"a": 5, "b": 3}


def accept(asked: Elicitation) -> dict[str, str]:
    """Accept every form, with its defaults."""
    return {}


async def main(url: str) -> None:
    server = McpServer("suite", url=url, on_elicit=accept, timeout_s=20)
    await server.ready()
    calls = []
    for listed in server.listed:
        fields = next(t for t in server.tools() if t.name == listed.name).schema.parameters
        wanted = fields.get("properties", {})
        given = {name: value for name, value in ARGUMENTS.items() if name in wanted}
        calls.append(call(listed.name, **given))
    effects = {each.tool: "read" for each in server.listed}
    await server.close()
    server = McpServer("suite", url=url, on_elicit=accept, timeout_s=20, effects=effects)
    agent = Agent("client", Scripted([*calls, "done"]), tools=[server])
    async with Runtime(":memory:", [agent], policy=Policy()) as runtime:
        run = await runtime.run_async("client", "Call every tool once.", id="r")
        print(run.status, run.text)


asyncio.run(main(sys.argv[-1]))
