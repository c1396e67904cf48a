"""The last so many requests: what a run was given stays while it goes on, and a steer is none."""

import asyncio
from typing import Any

import pytest
from tests.context.test_compaction import said
from tests.engine.kit import FREE_HAND

from cairn import Agent, ContextBlock, Runtime, Scripted, tool
from cairn.core.policy import DEFAULT_POLICY


@tool(effect="write")
def fetch(q: str) -> str:
    """Fetch."""
    return "fed by the house"


def talk(history: Any, seen: list[str], *, needed: bool = True, ask: bool = False) -> Runtime:
    def model(request: Any) -> str:
        seen.append(said(request))
        return "noted"

    block = ContextBlock("b", tool="fetch", arguments={"q": "$input"}, needed=needed)
    agent = Agent("c", Scripted(model), tools=[fetch], context=[block], history=history)
    return Runtime(":memory:", [agent], policy=DEFAULT_POLICY if ask else FREE_HAND)


@pytest.mark.parametrize("history", [1, 2, "summary"])
@pytest.mark.parametrize("first", ["steer", "approve"])
def test_a_steer_leaves_neither_the_task_of_its_run_nor_what_was_fed_out(
    history: Any, first: str
) -> None:
    async def main() -> None:
        seen: list[str] = []
        async with talk(history, seen, ask=True) as rt:
            run = await rt.send_async("s", "the task itself", agent="c")
            if first == "approve":
                await rt.approve_async(run.pending[0].id)
            await rt.post_async("s", "a steer on the way", mode="steer")
            if first == "steer":
                await rt.approve_async(run.pending[0].id)
            run = await rt.drive_async(run.id)
            assert run.status == "completed"
        for wanted in ("the task itself", "fed by the house", "a steer on the way"):
            assert wanted in seen[-1], wanted

    asyncio.run(main())


def test_a_steer_does_not_count_as_one_of_the_last_requests() -> None:
    async def main() -> None:
        seen: list[str] = []
        async with talk(2, seen) as rt:
            await rt.send_async("s", "request one", agent="c")
            run = await rt.enqueue_async("c", "request two", session="s")
            for n in range(4):
                await rt.edit_async(run, message=f"steer {n} of two")
            assert (await rt.drive_async(run)).status == "completed"
            await rt.send_async("s", "request three")
        assert "request one" not in seen[-1]
        assert all(f"steer {n} of two" in seen[-1] for n in range(4))
        assert "request two" in seen[-1]
        assert "request three" in seen[-1]

    asyncio.run(main())
