"""Cairn's side of a trial: a process that carries one case through, and dies where it is told to.

Whether it is the first process or one that goes on after a kill, it does the same: it hands each
turn over under the turn's own run id, and a turn that is done gives its stored result.
"""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from schemas import make_tool
from suites.case import Case, Suite
from worldserver import ask

from cairn import (
    NOT_HAPPENED,
    Agent,
    Context,
    Limits,
    Policy,
    Refused,
    Run,
    Runtime,
    Scripted,
    Tool,
    ToolError,
    call,
    happened,
)
from cairn.store import open_store

Recovery = Literal["probe", "once", "repeat"]
SHORT_S = 3.0
"""How long a tool waits in a trial whose world holds an answer back. Long enough for the slowest
simulator on a busy machine, or calls are late that were not meant to be."""
LONG_S = 0.01
RESULT_BYTES = 1 << 20
"""So that the model reads every result whole, and it can be compared."""
LIMITS = Limits(calls_per_reply=64)
"""Some turns of the truth hold more calls than the default lets a reply have."""
DOUBTS = 40
"""How often a person is asked in one run at most."""


@dataclass
class Job:
    """What this process is to do.

    Attributes:
        world: The socket of the world.
        die: Where it kills itself, and at which passage (from 1) of that place; empty for nowhere.

            * before: a tool was started, and the call was not sent.
            * after: the world has answered, and the tool did not return.
            * outcome: the outcome was just written.
            * reply: the model has answered, and the reply is not written.
    """

    case: Case
    store: str
    world: str
    recovery: Recovery
    short: bool = False
    hurried: bool = False
    die: tuple[str, int] = ("", 0)
    passed: dict[str, int] = field(default_factory=dict)

    def pass_by(self, place: str) -> None:
        """Die if this is the place."""
        self.passed[place] = self.passed.get(place, 0) + 1
        if self.die == (place, self.passed[place]):
            os.kill(os.getpid(), signal.SIGKILL)


class Hurried:
    """The system's clock, except that a long wait is skipped: time then stands later."""

    def __init__(self) -> None:
        self._ahead_us = 0

    def now_us(self) -> int:
        return time.time_ns() // 1_000 + self._ahead_us

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000 + self._ahead_us

    async def sleep(self, seconds: float) -> None:
        if seconds > LONG_S:
            self._ahead_us += int((seconds - LONG_S) * 1e6)
        await asyncio.sleep(min(seconds, LONG_S))


# ---------------------------------------------------------------- tools


async def act(ctx: Context[Job], name: str, arguments: dict[str, Any]) -> Any:
    """Send a call to the world."""
    ctx.deps.pass_by("before")
    asked = {"key": ctx.key, "call": f"{ctx.run_id}/{ctx.call_id}", "tool": name}
    answer = await ask(ctx.deps.world, {"what": "call", "arguments": arguments, **asked})
    ctx.deps.pass_by("after")
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["result"]


async def look(ctx: Context[Job]) -> object:
    """A probe: whether the world has executed the call, and what it answered."""
    found = await ask(ctx.deps.world, {"what": "find", "by": ctx.key})
    return happened(found["result"]) if "result" in found else NOT_HAPPENED


def make_tools(suite: Suite, writers: set[str]) -> dict[tuple[str, Recovery, bool], Tool[..., Any]]:
    """All tools of a suite in each form that a trial may want."""
    made = {}
    for key, offer in suite.offers.items():
        options: dict[str, Any] = {"effect": "read"}
        for recovery in ("probe", "once", "repeat"):
            if key in writers:
                options = {"effect": "write", "recovery": recovery}
                if recovery == "probe":
                    options["probe"] = look
            options["result_bytes"] = RESULT_BYTES
            for short in (False, True):
                timeout = SHORT_S if short else 60.0
                made[key, recovery, short] = make_tool(offer, act, timeout=timeout, **options)
    return made


# ---------------------------------------------------------------- the run


def warm(folder: Path) -> None:
    """Load what a run loads on first use, so that a forked worker has it already."""
    agent = Agent("warm", Scripted(["warm"]))
    with Runtime(folder / "warm.db", agents=[agent]) as rt:
        rt.run("warm", "Be warm", id="warm")


class Watched:
    """A store whose process may die just after the n-th outcome was written."""

    def __init__(self, inner: Any, job: Job) -> None:
        self._inner = inner
        self._job = job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, run: str, epoch: int, entries: Any, *args: Any, **more: Any) -> None:
        await self._inner.append(run, epoch, entries, *args, **more)
        for entry in entries:
            if entry.event.NAME in ("tool.completed", "tool.failed"):
                self._job.pass_by("outcome")


def make_agents(job: Job, tools: dict[Any, Tool[..., Any]], read: list[Any]) -> list[Agent]:
    """One agent per turn, with the tools offered in that turn and its part of the truth."""

    def agent(at: int) -> Agent:
        turn = job.case.turns[at]

        def answer(request: Any) -> Any:
            if request.turn < len(turn.replies):
                said = [call(c.tool, **c.arguments) for c in turn.replies[request.turn]]
            else:
                said = [turn.answer]
            if at == len(job.case.turns) - 1:
                parts = [p for m in request.messages for p in m.parts if hasattr(p, "result")]
                read[:] = [[part.result, part.ok] for part in parts]
            job.pass_by("reply")
            return said

        offered = [tools[key, job.recovery, job.short] for key in turn.offered]
        return Agent(f"turn-{at}", Scripted(answer), tools=offered, limits=LIMITS)

    return [agent(at) for at in range(len(job.case.turns))]


async def carry_through(job: Job, tools: dict[Any, Tool[..., Any]]) -> dict[str, Any]:
    """Every turn of the case; what came of it."""
    read: list[Any] = []
    agents = make_agents(job, tools, read)
    store = Watched(open_store(job.store), job)
    policy = Policy(effects={"write": "allow"})
    asked = 0
    clock = Hurried() if job.hurried else None
    async with Runtime(store, agents=agents, deps=job, policy=policy, clock=clock) as rt:
        for at, turn in enumerate(job.case.turns):
            task = {"id": f"{job.case.id}.{at}", "session": job.case.id}
            run = await rt.run_async(f"turn-{at}", turn.user, **task)
            while run.reason == "in_doubt" and asked < DOUBTS:
                asked += await settle(rt, run, job)
                run = await rt.run_async(f"turn-{at}", turn.user, **task)
            if (run.status, run.text) != ("completed", turn.answer):
                return {"stuck": f"turn {at} is {run.status} {run.reason} {run.limit}: {run.text}"}
        events = []
        for at in range(len(agents)):
            events += [entry.event for entry in await rt.trace_async(f"{job.case.id}.{at}")]
            await rt.store.verify(f"{job.case.id}.{at}")
    return {
        "read": read,
        "asked": asked,
        "rejected": sum(event.NAME == "tool.rejected" for event in events),
        "timeouts": sum(timed_out(event) for event in events),
    }


def timed_out(event: Any) -> bool:
    """Whether the event says that a tool's time was up."""
    if event.NAME == "tool.unknown":
        return bool(event.reason == "timeout")
    return bool(event.NAME == "tool.failed" and event.error_class == "tool_timeout")


async def settle(rt: Runtime, run: Run, job: Job) -> int:
    """The person who is asked: looks at the world's log and says what it says."""
    for pending in run.pending:
        found = await ask(job.world, {"what": "find", "by": pending.id})
        if "result" in found:
            await rt.resolve_async(pending.id, happened=True, result=found["result"], by="operator")
            continue
        try:
            await rt.resolve_async(pending.id, happened=False, by="operator")
        except Refused:  # it may still be at work: the person waits, and is asked again
            await rt.host.clock.sleep(SHORT_S)
    return len(run.pending)
