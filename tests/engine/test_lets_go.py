"""What has landed is let go at once: nothing waits for the garbage collector."""

import asyncio
import gc
from typing import Any

from cairn import Agent, Runtime, tool
from cairn.models.scripted import Scripted
from cairn.ports import ReplyCall
from cairn.store.inmemory import InMemoryStore
from cairn.tools.context import Context

TURNS = 30


def test_a_call_that_has_landed_leaves_nothing_behind_for_the_garbage_collector() -> None:
    alive: list[int] = []

    @tool(effect="read")
    async def look(n: int) -> str:
        """Look something up."""
        youngest = gc.get_objects(generation=0)  # all others are older than the run
        alive.append(sum(type(each) is Context for each in youngest))
        return f"found {n}"

    def say(request: Any) -> Any:
        more = ReplyCall(name="look", arguments=f'{{"n":{request.turn}}}', id="x")
        return more if request.turn < TURNS else "done"

    agent = Agent("a", Scripted(say), tools=[look], builtins=())

    async def work() -> str:
        async with Runtime(InMemoryStore(), agents=[agent]) as runtime:
            gc.collect()
            gc.disable()
            try:
                result = await runtime.run_async("a", "go", limits={"steps": 50, "calls": 50})
            finally:
                gc.enable()
            return result.status

    assert asyncio.run(work()) == "completed"
    assert len(alive) == TURNS
    assert alive[-1] == alive[0]
