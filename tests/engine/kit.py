"""What the engine tests share: a ledger of effects, a clock to turn, a store to be watched."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from cairn import Agent, Runtime, Scripted
from cairn.core.context import faults
from cairn.core.events import Entry, ToolStarted
from cairn.core.policy import Policy
from cairn.ports import ModelRequest, Store
from cairn.store.inmemory import InMemoryStore

FREE_HAND = Policy(effects={"write": "allow"}, name="test")
"""Writes run unasked."""
DAY_US = 86_400_000_000
HELD_S = 4.0
"""How long a function is held at most that a test should have let go."""
BESIDE_S = 20.0
"""How long work may take in a thread of its own before it counts as hanging."""


class Ledger:
    """What really happened outside, in order: tools write it, tests read it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> str:
        self.lines.append(line)
        return line

    def times(self, line: str) -> int:
        return Counter(self.lines)[line]


class TurnedClock:
    """A clock that only moves when somebody turns it; sleeping turns it."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.now = now_us
        self.slept: list[float] = []

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.turn(seconds)
        await asyncio.sleep(0)

    def turn(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)


class Watched:
    """A store that lets a test see, hold up or refuse what passes through it.

    `before` and `after` are awaited with the method's name and its arguments around each call;
    what `before` raises is raised in the call's place.
    """

    def __init__(self, inner: Store | None = None) -> None:
        self.inner = inner if inner is not None else InMemoryStore()
        self.before: Callable[..., Any] | None = None
        self.after: Callable[..., Any] | None = None
        self.commits: list[tuple[str, ...]] = []
        """Event names of each append, in order; an empty tuple only gave the claim back."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def passed(*args: Any, **kwargs: Any) -> Any:
            if self.before is not None:
                await self.before(name, *args, **kwargs)
            result = await method(*args, **kwargs)
            if name == "append":
                self.commits.append(tuple(e.event.NAME for e in args[2]))
            if self.after is not None:
                await self.after(name, *args, **kwargs)
            return result

        return passed


def runtime(
    script: Any,
    tools: Sequence[Any] = (),
    *,
    store: Any = ":memory:",
    policy: Policy = FREE_HAND,
    clock: Any = None,
    deps: Any = None,
    on_wait: Any = None,
    ladder: Any = None,
    **options: Any,
) -> Runtime:
    """A runtime with one agent, `a`; `script` is a model or what `Scripted` takes."""
    model = script if hasattr(script, "request") else Scripted(script)
    more = {} if ladder is None else {"ladder": ladder}
    return Runtime(
        store,
        agents=[Agent("a", model, tools=tools, **options)],
        policy=policy,
        clock=clock,
        deps=deps,
        on_wait=on_wait,
        **more,
    )


def names(entries: Sequence[Entry]) -> list[str]:
    """The events' names."""
    return [entry.event.NAME for entry in entries]


def events(entries: Sequence[Entry], kind: type) -> list[Any]:
    """The events of one kind."""
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def attempts(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """Call and attempt of every start, in order."""
    return [(e.call, e.attempt) for e in events(entries, ToolStarted)]


def results(request: ModelRequest) -> dict[str, str]:
    """What the model reads of every call, by call id; the list it was sent is well-formed."""
    assert faults(request.messages) == []
    return {
        part.id: part.result
        for message in request.messages
        if message.role == "tool"
        for part in message.parts
    }


def texts(request: ModelRequest, role: str = "user") -> list[str]:
    """The texts of all messages of one role."""
    return [
        part.content
        for message in request.messages
        if message.role == role
        for part in message.parts
        if hasattr(part, "content")
    ]


class Recorder:
    """A script that keeps every request and answers with the next line."""

    def __init__(self, *lines: Any, repeat: bool = False) -> None:
        self.requests: list[ModelRequest] = []
        self.lines = lines
        self.repeat = repeat

    def __call__(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        at = min(request.turn, len(self.lines) - 1) if self.repeat else request.turn
        line = self.lines[at]
        return line(request) if callable(line) else line

    @property
    def last(self) -> ModelRequest:
        return self.requests[-1]


async def until(ready: Callable[[], Any], tries: int = 2_000) -> None:
    """Let the loop turn until something is so."""
    for _ in range(tries):
        found = ready()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never became so")


def beside(work: Callable[[], Any]) -> Any:
    """What comes of sync work, done in a thread so that a loop that hangs is a failure."""
    came: list[Any] = []

    def go() -> None:
        try:
            came.append(work())
        except BaseException as error:  # whatever it is, the test shall see it
            came.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(BESIDE_S)
    assert came, "it never came back"
    return came[0]


class Door:
    """Plain functions wait at it until the event loop has had a turn of its own."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.passed: list[bool] = []
        self._reached = threading.Event()

    def wait(self) -> bool:
        self._reached.set()
        self.passed.append(self.opened.wait(HELD_S))
        return self.passed[-1]

    async def beside(self, work: Any) -> Any:
        """What comes of work while the loop opens the door as soon as somebody waits at it."""
        opening = asyncio.create_task(self._open())
        try:
            return await work
        finally:
            opening.cancel()

    async def beside_another(self, work: Any, another: Any) -> Any:
        """What comes of work that is held at the door until another run is over."""
        held = asyncio.create_task(work)
        await until(self._reached.is_set)
        assert (await another).status == "completed"
        assert not held.done()
        self.opened.set()
        return await held

    async def _open(self) -> None:
        await until(self._reached.is_set)
        self.opened.set()
