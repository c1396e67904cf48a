"""The same task done by Cairn and by hand: N turns of one tool call each, then an answer.

The floors are what somebody would write who needs nothing but this one loop. They record the
same payloads as JSON, and nothing else: no hash chain, no index, no lease, no limits.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import apsw
from measure import Cost, Meter

from cairn import Agent, Limits, Runtime, tool
from cairn.models.scripted import Scripted
from cairn.ports import ModelRequest, ReplyCall, Store

KB = 1024
ROOM = Limits(
    steps=1_000_000, calls=1_000_000, running_s=1_000_000, tokens=10**12, micro_usd=10**12
)
"""The benchmarks run longer than any default bound allows."""

OnTurn = Callable[[int], None]


def result_text(n: int, size: int) -> str:
    """A result of `size` characters that differs from turn to turn."""
    return f"{n:08d}".ljust(size, "x")


def arguments_text(n: int) -> str:
    """The arguments the scripted model writes for turn `n`."""
    return f'{{"n":{n}}}'


# ---------------------------------------------------------------- Cairn


def make_agent(
    turns: int, size: int, on_turn: OnTurn | None = None, *, varied: bool = False
) -> Agent:
    """An agent whose scripted model calls one async tool `turns` times.

    Args:
        on_turn: Called inside the tool with the number of the turn.
        varied: Results from half to one and a half times `size` long, `size` on average.
    """

    @tool(effect="read")
    async def look(n: int) -> str:
        """Look something up."""
        if on_turn is not None:
            on_turn(n)
        return result_text(n, size // 2 + n * 37 % (size + 1) if varied else size)

    def say(request: ModelRequest) -> Any:
        if request.turn < turns:
            return ReplyCall(name="look", arguments=arguments_text(request.turn), id="x")
        return "done"

    return Agent("bench", Scripted(say), tools=[look], limits=ROOM, builtins=())


async def cairn_run(store: str | Store, agent: Agent) -> Cost:
    """One run from the task to its result, on a store that is open already."""
    async with Runtime(store, agents=[agent]) as runtime:
        with Meter() as meter:
            await checked(runtime.run_async(agent.name, "go"))
    return meter.cost


async def checked(running: Coroutine[Any, Any, Any]) -> None:
    """Await a run; a benchmark of a run that failed would be worthless."""
    found = await running
    assert found.status == "completed", f"{found.id} is {found.status}: {found.text}"


# ---------------------------------------------------------------- floors


async def _look(n: int, size: int) -> str:
    return result_text(n, size)


async def _model(messages: list[dict[str, Any]], turns: int) -> dict[str, Any]:
    turn = len(messages) // 2
    if turn >= turns:
        return {"role": "assistant", "content": "done"}
    call = {"id": f"c{turn + 1}", "name": "look", "arguments": arguments_text(turn)}
    return {"role": "assistant", "calls": [call]}


async def bare(turns: int, size: int, *, yields: bool = False) -> Cost:
    """The loop by hand, in memory; with `yields`, model and tool each suspend once."""
    with Meter() as meter:
        await _bare(turns, size, yields=yields)
    return meter.cost


async def _bare(turns: int, size: int, *, yields: bool) -> None:
    tools = {"look": _look}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        if yields:
            await asyncio.sleep(0)
        reply = await _model(messages, turns)
        messages.append(reply)
        if "calls" not in reply:
            return
        for call in reply["calls"]:
            arguments = json.loads(call["arguments"])
            if yields:
                await asyncio.sleep(0)
            result = await tools[call["name"]](**arguments, size=size)
            messages.append({"role": "tool", "id": call["id"], "content": result})


INSERT = "INSERT INTO log (run, body) VALUES (?, ?)"


def open_log(path: str | Path) -> apsw.Connection:
    """A file with one table, opened as safely as Cairn opens its own."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, run, body)")
    return connection


async def two_commits(path: str | Path, turns: int, size: int) -> Cost:
    """The loop by hand with two commits a turn: the call before it runs, its result after."""
    connection = open_log(path)
    with Meter() as meter:
        await _two_commits(connection, turns, size)
    connection.close()
    return meter.cost


async def _two_commits(connection: apsw.Connection, turns: int, size: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        reply = await _model(messages, turns)
        messages.append(reply)
        if "calls" not in reply:
            return
        for call in reply["calls"]:
            connection.execute(INSERT, ("r", json.dumps(call)))
            arguments = json.loads(call["arguments"])
            result = await _look(**arguments, size=size)
            message = {"role": "tool", "id": call["id"], "content": result}
            connection.execute(INSERT, ("r", json.dumps(message)))
            messages.append(message)


Insert = tuple[asyncio.Future[None], asyncio.AbstractEventLoop, str, str]


class GroupLog:
    """One writer thread that commits all that waits at once: the floor for many runs."""

    def __init__(self, path: str | Path) -> None:
        self._connection = open_log(path)
        self._queue: SimpleQueue[Insert | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def write(self, run: str, body: str) -> None:
        """Durable when it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._queue.put((future, loop, run, body))
        await future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            batch: list[Insert] = [item]
            while len(batch) < 512:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    self._queue.put(None)
                    break
                batch.append(following)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, [(run, body) for _, _, run, body in batch])
            self._connection.execute("COMMIT")
            batch[0][1].call_soon_threadsafe(_settle, [future for future, *_ in batch])


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def grouped(path: str | Path, runs: int, turns: int, size: int) -> Cost:
    """Many tasks, two barriers a turn each, on one group-committing writer."""
    log = GroupLog(path)

    async def one(run: str) -> None:
        for n in range(turns):
            call = {"id": f"c{n + 1}", "name": "look", "arguments": arguments_text(n)}
            await log.write(run, json.dumps(call))
            result = await _look(n, size)
            await log.write(run, json.dumps({"role": "tool", "content": result}))

    with Meter() as meter:
        await asyncio.gather(*(one(f"r{number}") for number in range(runs)))
    log.close()
    return meter.cost
