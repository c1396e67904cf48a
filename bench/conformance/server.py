"""The server under test: agents named after the suite's tools, over streamable HTTP."""

from __future__ import annotations

import asyncio
import sys

from cairn import Agent, ErrorClass, ModelError, Runtime, Scripted
from cairn.servers.agent_calls import AgentCalls
from cairn.servers.mcp_http import serve_http

SIMPLE = "This is a simple text response for testing."
FAULT = ModelError(
    ErrorClass.INVALID_REQUEST, "This tool intentionally returns an error for testing"
)


async def main(port: int) -> None:
    agents = [
        Agent("test_simple_text", Scripted([SIMPLE])),
        Agent("test_error_handling", Scripted([FAULT])),
        Agent("test_tool_with_progress", Scripted(["done"])),
    ]
    async with Runtime(":memory:", agents) as runtime:
        tasks = {agent.name: "Do what you are there for." for agent in agents}
        await serve_http(AgentCalls(runtime, tasks=tasks), port=port)


asyncio.run(main(int(sys.argv[1])))
