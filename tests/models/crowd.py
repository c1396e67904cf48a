"""Many runs at once against a provider that carries only a few: who is let in, and when.

`python -m tests.models.crowd` prints the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from tests.models.wire.bodies import CHAT, text

from cairn import Agent, Runtime
from cairn.core import events as ev
from cairn.core.limits import FREE
from cairn.models.remote import RemoteModel
from cairn.models.traffic import TrafficLane

ROOM = 5
RUNS = 200
ASKED_S = 1
WORK_S = 0.02


@dataclass
class Arrival:
    """One request, as the server saw it."""

    at: float
    who: str
    refused: bool
    beside: int
    """How many were carried at that moment, itself included."""


class NarrowServer:
    """A chat server in a thread of its own; it carries `room` requests and refuses all others.

    Args:
        room: How many at once; 0 refuses everything.
        asked_s: Its Retry-After.
        work_s: How long it takes for a reply.
    """

    def __init__(self, room: int = ROOM, asked_s: int = ASKED_S, work_s: float = WORK_S) -> None:
        self.arrivals: list[Arrival] = []
        self.url = ""
        self._room, self._asked_s, self._work_s = room, asked_s, work_s
        self._inside = 0
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10.0)

    @property
    def refusals(self) -> list[Arrival]:
        """Those that were sent away."""
        return [each for each in self.arrivals if each.refused]

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._up.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = next(
                    int(line.split(":")[1])
                    for line in head.lower().split("\r\n")
                    if line.startswith("content-length:")
                )
                await self._answer(json.loads(await reader.readexactly(size)), writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the server has gone
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, body: Any, writer: asyncio.StreamWriter) -> None:
        who = str(body["messages"][-1]["content"])
        refused = self._inside >= self._room
        carried = self._inside + (not refused)
        self.arrivals.append(Arrival(time.monotonic(), who, refused, carried))
        if refused:
            said = b'{"error": {"message": "Too many requests.", "code": "rate_limit_exceeded"}}'
            more = f"HTTP/1.1 429 No\r\nretry-after: {self._asked_s}"
        else:
            self._inside += 1
            try:
                await asyncio.sleep(self._work_s)
            finally:
                self._inside -= 1
            said = json.dumps(CHAT.whole(text(f"Served: {who}"))).encode()
            more = "HTTP/1.1 200 OK"
        head = f"{more}\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\n\r\n"
        writer.write(head.encode() + said)
        await writer.drain()


@dataclass
class Figures:
    """What was seen of a crowd."""

    ends: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    """`model.requested` events."""
    arrived: int = 0
    refused: int = 0
    most_before: int = 0
    """Most that were on their way at once until the first refusals were in."""
    most_after: int = 0
    """And since."""
    too_soon: int = 0
    """Requests of a run before the wait it was asked for was over."""
    seconds: float = 0.0
    bound: int = 0

    def shown(self) -> str:
        """As one line."""
        return (
            f"{dict(self.ends)}; requests {self.asked} asked, {self.arrived} arrived, "
            f"{self.refused} refused; in flight at most {self.most_before} until the first "
            f"refusals were in, and {self.most_after} since; {self.too_soon} too soon; "
            f"bound {self.bound}; {self.seconds:.1f} s"
        )


class Gauge:
    """Watches a lane: how many are in flight when one enters, once the first refusals are in.

    A burst is on its way before its first refusal is back, so what had entered by then is let end.
    """

    def __init__(self, lane: TrafficLane) -> None:
        self.lane = lane
        self.most_before = self.most_after = 0
        self._burst = 0
        self._admit, self._conclude = lane._admit, lane._conclude
        lane._admit, lane._conclude = self.admit, self.conclude

    def admit(self, *args: Any) -> Any:
        permit = self._admit(*args)
        open_ = self.lane._open
        if self._burst and min(open_) > self._burst:
            self.most_after = max(self.most_after, len(open_))
        else:
            self.most_before = max(self.most_before, len(open_))
        return permit

    def conclude(self, permit: Any, fault: Any, *args: Any) -> None:
        self._conclude(permit, fault, *args)
        if fault is not None and not self._burst:
            self._burst = self.lane._last


def make_model(server: NarrowServer, name: str = "narrow", **more: Any) -> RemoteModel:
    """A model at this server, on an account of its own unless `api_key` says otherwise."""
    more.setdefault("api_key", f"account-at-{server.url}")
    return RemoteModel(f"openai-chat:{name}", base_url=server.url, price=FREE, stream=False, **more)


async def serve(
    folder: Path, model: RemoteModel, names: list[str], fallbacks: tuple[Any, ...] = ()
) -> tuple[Counter[str], list[ev.Entry]]:
    """Drive these runs to their ends with one runtime on one file."""
    agent = Agent("a", model, builtins=(), fallback_models=fallbacks)
    entries: list[ev.Entry] = []
    async with Runtime(folder / "crowd.db", agents=[agent], durability="process") as rt:
        runs = await asyncio.gather(*(rt.run_async("a", name, id=name) for name in names))
        for name in names:
            entries += await rt.trace_async(name)
    for each in (model, *fallbacks):
        await each.close()
    assert all(run.text == f"Served: {run.id}" for run in runs if run.status == "completed")
    return Counter(run.status for run in runs), entries


def too_soon(entries: list[ev.Entry], asked_s: float) -> int:
    """How many requests were made before the wait was over that their refusal asked for."""
    found, until = 0, 0
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.ModelFailed):
            until = event.retry_at
            found += until - entry.at < asked_s * 1e6 - 50_000
        elif isinstance(event, ev.ModelRequested):
            found += entry.at < until
        elif isinstance(event, ev.RunCreated):
            until = 0
    return found


def crowd(folder: Path, runs: int = RUNS) -> Figures:
    """So many runs at once against one narrow server."""
    import_module("pydantic_ai.models.openai")
    with NarrowServer() as server:
        model = make_model(server)
        gauge = Gauge(model.lane)
        begun = time.monotonic()
        ends, entries = asyncio.run(serve(folder, model, [f"r{n}" for n in range(runs)]))
        seconds = time.monotonic() - begun
    return Figures(
        ends=ends,
        asked=sum(isinstance(e.event, ev.ModelRequested) for e in entries),
        arrived=len(server.arrivals),
        refused=len(server.refusals),
        most_before=gauge.most_before,
        most_after=gauge.most_after,
        too_soon=too_soon(entries, ASKED_S) + _knocked_too_soon(server),
        seconds=seconds,
        bound=model.lane.snapshot().bound,
    )


def _knocked_too_soon(server: NarrowServer) -> int:
    """The same by the server's own clock: who came back before its wait was over."""
    last: dict[str, float] = {}
    found = 0
    for each in server.arrivals:
        found += each.at < last.get(each.who, 0.0)
        if each.refused:
            last[each.who] = each.at + ASKED_S - 0.001
    return found


def two_loops(folder: Path, runs: int = 40) -> Figures:
    """Two runtimes in two threads, each with its own loop, file and model; one account."""
    import_module("pydantic_ai.models.openai")
    found = Figures()
    with NarrowServer() as server:
        models = [make_model(server, api_key="the-same-account") for _ in range(2)]
        gauge = Gauge(models[0].lane)
        assert models[0].lane is models[1].lane

        def one(number: int) -> None:
            place = folder / str(number)
            place.mkdir()
            names = [f"t{number}r{n}" for n in range(runs)]
            ends, entries = asyncio.run(serve(place, models[number], names))
            found.ends += ends
            found.asked += sum(isinstance(e.event, ev.ModelRequested) for e in entries)
            found.too_soon += too_soon(entries, ASKED_S)

        begun = time.monotonic()
        threads = [threading.Thread(target=one, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found.seconds = time.monotonic() - begun
    found.arrived, found.refused = len(server.arrivals), len(server.refusals)
    found.too_soon += _knocked_too_soon(server)
    found.most_before, found.most_after = gauge.most_before, gauge.most_after
    found.bound = models[0].lane.snapshot().bound
    return found


def main() -> int:
    """Print the figures; 1 if a promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        one = crowd(Path(folder))
        print(f"{RUNS} runs, room for {ROOM}, Retry-After {ASKED_S}: {one.shown()}")
        two = two_loops(Path(folder))
        print(f"2 × 40 runs in two threads, one account: {two.shown()}")
    kept = all(f.most_after <= ROOM and not f.too_soon and f.asked == f.arrived for f in (one, two))
    return 0 if kept and set(one.ends) == set(two.ends) == {"completed"} else 1


if __name__ == "__main__":
    sys.exit(main())
