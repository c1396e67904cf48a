"""Servers for tests, and agents that call their tools."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from cairn import Agent, Context, Policy, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.mcp import McpServer
from cairn.store.inmemory import InMemoryStore

RAW = str(Path(__file__).with_name("raw.py"))
OPEN = Policy(effects={"write": "allow"})


def raw(name="s", effects=None, *, how=None, **more):
    """A server of raw lines that behaves as `how` says."""
    command = [sys.executable, "-I", "-S", RAW, json.dumps(how or {})]
    has_do = any(tool.get("name") == "do" for tool in (how or {}).get("tools", [{"name": "do"}]))
    if effects is None:
        effects = {"do": "write"} if has_do and not (how or {}).get("endless") else {}
    return McpServer(name, command=command, effects=effects, **more)


def agent_of(server, *lines, **more):
    return Agent("a", Scripted([*lines]), tools=[server], builtins=(), **more)


@asynccontextmanager
async def runtime(server, *lines, store=None, policy=OPEN, **more):
    store = store or InMemoryStore()
    async with Runtime(store, [agent_of(server, *lines, **more)], policy=policy) as rt:
        yield rt


async def ran(server, *lines, policy=OPEN, **more):
    """A run of an agent with this server, and its events."""
    async with runtime(server, *lines, policy=policy, **more) as rt:
        run = await rt.run_async("a", "task", id="r")
        return run, [e.event for e in await rt.trace_async("r")]


async def called(server, **arguments):
    """A tool called straight, without a run: what it returns or raises."""
    try:
        await server.ready()
        return await server.tools()[0].function(arguments, Context(run_id="r", call_id="c1"))
    finally:
        await server.close()


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def result(events, number=0):
    return json.loads(bytes(of(events, ev.ToolCompleted)[number].result))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie is dead
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def gone(pid, seconds=15.0):
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


def go(work):
    return asyncio.run(work)


do = call("s__do", n=1)
