"""A process that drives one run over a socket, and leaves a line for all that happens outside.

Its job comes as JSON: `store`, `traces` (the file for the lines), `url`, `provider`, `model`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from cairn import Agent, Policy, Price, Runtime, tool
from cairn.models.remote import RemoteModel
from cairn.ports import Delta

PRICE = Price(input=3_000_000, output=15_000_000)


async def drive(job: dict[str, Any]) -> None:
    """Carry the run on to its end."""

    def leave(line: str) -> None:
        with open(job["traces"], "a") as file:  # noqa: PTH123 - one short line
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    @tool(effect="write")
    async def post(q: str) -> str:
        """Post it."""
        leave(f"post {q}")
        return "posted"

    model = RemoteModel(
        f"{job['provider']}:{job['model']}",
        base_url=job["url"],
        api_key="k",
        price=PRICE,
        window=50_000,
        max_output=2_000,
    )
    agent = Agent("a", model, tools=[post], builtins=())
    policy = Policy(effects={"write": "allow"})
    async with Runtime(job["store"], agents=[agent], policy=policy) as rt:
        async for what in rt.stream_async("a", "Post tea.", id="r"):
            if isinstance(what, Delta):
                leave(f"delta {what.text}")
        run = await rt.get_async("r")
        leave(f"end {run.status} {run.text}")
    await model.close()


if __name__ == "__main__":
    asyncio.run(drive(json.loads(sys.argv[1])))
