"""A server that is not required and not there: the run goes on, and says so."""

import asyncio
import sys

import pytest
from tests.mcp.kit import RAW, go, of, ran, raw

from cairn import Agent, Runtime, Scripted
from cairn.core import events as ev
from cairn.errors import ErrorClass, ToolsUnready
from cairn.mcp import McpServer
from cairn.store.inmemory import InMemoryStore

ABSENT = {
    "no such program": {"command": ["no-such-program"]},
    "it ends at once": {"command": ["false"]},
    "no such folder": {"command": [sys.executable, RAW, "{}"], "cwd": "no-such-folder"},
    "nobody listens": {"url": "http://127.0.0.1:9/mcp"},
}


@pytest.mark.parametrize("how", ABSENT.values(), ids=ABSENT)
def test_a_run_goes_on_without_a_server_that_is_not_required_and_says_so(how):
    run, events = go(ran(McpServer("crm", **how, required=False, connect_s=10), "done"))
    assert (run.status, run.text, run.degraded) == ("completed", "done", ("mcp:crm",))
    (raised,) = of(events, ev.ErrorRaised)
    assert (raised.error_class, raised.where) == (ErrorClass.MCP_DISCONNECTED, "mcp:crm")
    assert raised.message
    (end,) = of(events, ev.RunCompleted)
    assert end.degraded == ("mcp:crm",)


@pytest.mark.parametrize("how", ABSENT.values(), ids=ABSENT)
def test_a_run_does_not_begin_without_a_server_that_is_required(how):
    with pytest.raises(ToolsUnready):
        go(ran(McpServer("crm", **how, connect_s=10), "done"))


def test_a_folder_that_is_not_there_is_named_as_the_field_it_is():
    with pytest.raises(ToolsUnready, match=r"McpServer\.cwd: there is no folder 'no-such-folder'"):
        go(ran(McpServer("crm", **ABSENT["no such folder"]), "done"))


def test_it_is_said_once_however_often_the_run_is_driven():
    async def main():
        store = InMemoryStore()
        server = McpServer("crm", command=["false"], required=False)
        other = raw("s")
        agent = Agent("a", Scripted(["done"]), tools=[server, other])
        async with Runtime(store, [agent]) as rt:
            await rt.start_async("a", "task", id="r")
            for _ in range(3):
                run = await rt.drive_async("r")
            raised = of([e.event for e in await rt.trace_async("r")], ev.ErrorRaised)
            return run.degraded, len(raised)

    assert asyncio.run(main()) == (("mcp:crm",), 1)


def test_a_server_that_is_there_leaves_no_word():
    run, events = go(ran(raw("s", required=False), "done"))
    assert run.degraded == ()
    assert of(events, ev.ErrorRaised) == []
