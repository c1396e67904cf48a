"""The world of one trial: a process of its own, so that killing a worker leaves it as it was.

It serves over a Unix socket, one JSON object per line. It drops nothing and remembers everything:
a call that arrives twice is executed twice, and both stand in its log.
"""

import asyncio
import copy
import json
import os
import socket
from pathlib import Path
from typing import Any

from suites.case import Call, Failed, World

LOOK_S = 1.0
LINE_BYTES = 1 << 22


class Serving:
    """A world, what was asked of it, and which answer it holds back."""

    def __init__(self, world: World, late: int) -> None:
        self._world = world
        self._late = late
        self._log: list[dict[str, Any]] = []
        self.over = asyncio.Event()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one question."""
        try:
            asked = json.loads(await reader.readline())
            answer = self._answer(asked)
            if answer is None:
                await reader.read()  # held back until the other side has gone
            else:
                writer.write(json.dumps(answer, default=str).encode() + b"\n")
                await writer.drain()
            if asked["what"] == "close":
                self.over.set()
        except (OSError, ValueError):
            pass  # it was killed while it spoke: whatever arrived whole was done
        finally:
            writer.close()

    def _answer(self, asked: dict[str, Any]) -> Any:
        match asked["what"]:
            case "call":
                return self._call(asked)
            case "find":
                found = [each for each in self._log if asked["by"] in (each["key"], each["call"])]
                return found[-1] if found else {}
            case "judge":
                calls = [Call(**each) for each in asked["calls"]]
                return {"problems": self._world.judge(asked["answer"], calls), "log": self._log}
        return {}

    def _call(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        arguments = copy.deepcopy(asked["arguments"])  # a simulator may keep them and change them
        try:
            answer = {"result": self._world.call(asked["tool"], arguments)}
        except Failed as error:
            answer = {"error": str(error)}
        self._log.append({**asked, **answer})
        return None if len(self._log) == self._late else answer


def serve(world: World, listening: socket.socket, late: int) -> None:
    """Until asked to close, or until nobody is left who could ask.

    Args:
        world: What is served; this process must hold it alone.
        listening: A bound Unix socket.
        late: Which call (from 1) is executed but never answered; 0 for none.
    """
    parent = os.getppid()

    async def until_over() -> None:
        serving = Serving(world, late)
        server = await asyncio.start_unix_server(serving.attend, sock=listening, limit=LINE_BYTES)
        while not serving.over.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(serving.over.wait(), LOOK_S)
            except TimeoutError:
                continue
        server.close()

    asyncio.run(until_over())


async def ask(path: Path | str, asked: dict[str, Any]) -> Any:
    """A question to a world."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_BYTES)
    try:
        writer.write(json.dumps(asked).encode() + b"\n")
        line = await reader.readline()
        if not line:
            raise ConnectionResetError("the world has gone")
        return json.loads(line)
    finally:
        writer.close()
