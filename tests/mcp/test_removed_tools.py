"""A tool that its server takes away is an ordinary unknown tool from then on."""

import asyncio

from tests.mcp.kit import do, go, of, raw

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev

OTHER = [{"name": "other", "inputSchema": {"type": "object"}}]


def test_a_call_to_a_tool_that_the_server_has_removed_is_an_unknown_tool_and_not_sent():
    """B68."""
    server = raw(how={"call": "change", "then_listed": OTHER})

    async def main():
        @tool(effect="read")
        async def pause() -> str:
            async with asyncio.timeout(20):
                while [each.tool for each in server.listed] != ["other"]:  # noqa: ASYNC110 - it changes in another thread
                    await asyncio.sleep(0.02)
            return "ok"

        script = [do, call("pause"), call("pause"), do, "fine"]
        agent = Agent("a", Scripted(script), tools=[server, pause])
        policy = Policy(effects={"write": "allow"})
        async with Runtime(":memory:", [agent], policy=policy) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"
            events = [e.event for e in await rt.trace_async("r")]
        rejected = of(events, ev.ToolRejected)
        assert [each.error_class.value for each in rejected] == ["unknown_tool"]
        assert "s__other" in rejected[0].message
        assert len(of(events, ev.ToolStarted)) == 3

    go(main())
