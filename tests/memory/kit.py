"""What the tests of memory share: facts, a clock that is set by hand, and runs with its tools."""

import asyncio

import msgspec

from cairn import Agent, Policy, Principal, Runtime, Scripted
from cairn.memory import NewFact
from cairn.memory.facts import user_scope
from cairn.store import inspect_store, open_store
from cairn.store.inmemory import InMemoryStore, Journals
from cairn.toolkit import MEMORY_TOOLS

NOW = 1_750_000_000_000_000
DAY = 86_400_000_000
ALLOW = Policy(tools={"remember": "allow", "forget": "allow"})
ANN = Principal(id="ann")
BOB = Principal(id="bob")


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self):
        self.now = NOW

    def now_us(self):
        return self.now

    def monotonic_us(self):
        return self.now

    async def sleep(self, seconds):
        self.now += round(seconds * 1e6)


def fact(text, principal=ANN, scope=None, **more):
    return NewFact(
        text=text,
        scope=scope or user_scope(principal),
        principal=principal.id,
        **{"trust": "agent", **more},
    )


def runtime(store, script, *, tools=(), policy=ALLOW, agent="desk", **more):
    """A runtime with one agent that has the tools of memory and says what the script has.

    `Journals` in place of a store outlive the runtime.
    """
    if isinstance(store, Journals):
        store = InMemoryStore(store)
    model = Scripted(script)
    worker = Agent(agent, model, tools=[*MEMORY_TOOLS, *tools])
    return Runtime(store, [worker], policy=policy, **more)


def told(run_trace, tool):
    """What the model was told by the calls of a tool, whole."""
    calls, found = {}, []
    for entry in run_trace:
        event = entry.event
        for part in getattr(event, "parts", ()):
            if getattr(part, "name", "") == tool:
                calls[part.id] = True
        if event.NAME == "tool.completed" and event.call in calls:
            found.append(msgspec.json.decode(event.result))
        if event.NAME == "tool.failed" and event.call in calls:
            found.append(event.message)
    return found


def within(path, work, embedding=None):
    """What an async function of a memory and its store does, in a store opened for it."""

    async def whole():
        store = open_store(path)
        try:
            return await work(store.memory(embedding), store)
        finally:
            await store.close()

    return asyncio.run(whole())


def looked(path):
    with inspect_store(path) as look:
        found = [f for run in look.journals() for f in look.inspect(run).findings]
        return [str(f) for f in [*found, *look.strays()]]
