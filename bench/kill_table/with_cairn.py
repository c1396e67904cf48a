"""Cairn's rows: the killed tool as a read, keyed, with a probe, and as a write that runs once."""

import asyncio
from typing import Any

import stage

from cairn import Agent, Context, Policy, Runtime, Scripted, call, happened, tool


def make_slow() -> Any:
    """The tool that dies, under the recovery of the setting."""

    async def body() -> str:
        return await asyncio.to_thread(stage.slow)

    async def keyed(ctx: Context) -> str:
        stage.key(ctx.key)
        return await asyncio.to_thread(stage.slow)

    def probe() -> object:
        stage.effect("probe")
        return happened("slow ok")

    match stage.SETTING:
        case "read":
            return tool(name="slow", effect="read")(body)
        case "keyed":
            return tool(
                name="slow", effect="write", recovery="keyed", conflict_key=lambda _: "slow"
            )(keyed)
        case "probe":
            options = {"recovery": "probe", "probe": probe}
            return tool(name="slow", effect="write", conflict_key=lambda _: "slow", **options)(body)
        case _:
            return tool(name="slow", effect="write", conflict_key=lambda _: "slow")(body)


async def model(request: Any) -> Any:
    """The next turn of the scene."""
    stage.effect("m")
    names = stage.TURNS[request.turn]
    return [call(name) for name in names] or "done"


async def main() -> None:
    fast = tool(name="fast", effect="write", conflict_key=lambda _: "fast")(stage.fast)
    agent = Agent("a", Scripted(model), tools=[fast, make_slow()])
    allowed = Policy(effects={"write": "allow"})
    async with Runtime(str(stage.FOLDER / "cairn.db"), [agent], policy=allowed) as rt:
        run = await rt.run_async("a", "task", id="r")
        if run.reason == "in_doubt":
            stage.effect("(waits for a person)")
            (pending,) = run.pending
            await rt.resolve_async(pending.id, happened=True, result="slow ok")
            run = await rt.run_async("a", "task", id="r")
        stage.told(run.status)


asyncio.run(main())
