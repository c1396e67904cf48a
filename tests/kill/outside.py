"""The world outside the runtime: a file that every effect, model call and look adds a line to.

Lines are appended with one write each, so that several processes may share the file. A SIGKILL
does not lose what was written; nothing is synced here, for no power fails.
"""

import fcntl
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def add_line(path: Path, line: str) -> None:
    """One line, whole."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def lines_of(path: Path) -> list[list[str]]:
    """The file's lines in words; none if it is not there."""
    return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Effect:
    """One thing that happened: which tool, for which call, under which key."""

    tool: str
    run: str
    call: str
    attempt: int
    key: str


class World:
    """A folder with what happened, and what the store has acknowledged."""

    def __init__(self, place: Path) -> None:
        self._effects = place / "effects"
        self._acks = place / "acks"
        self._facts = place / "facts"
        self._counting = place / "counting"

    def act(self, ctx: Any) -> None:
        """An effect happens."""
        line = f"{ctx.tool} {ctx.run_id} {ctx.call_id} {ctx.attempt} {ctx.key}"
        add_line(self._effects, line)

    def ask(self, run: str, turn: int) -> None:
        """A model is asked."""
        add_line(self._effects, f"m {run} t{turn} 0 -")

    def acknowledge(self, run: str, seq: int) -> None:
        """The store said that a run is durable up to here."""
        add_line(self._acks, f"{run} {seq}")

    def remember(self, n: int, tool: str, run: str, call: str, key: str) -> None:
        """Memory said that a fact is kept, or gone: that is what such a call does to the world.

        Memory is not told of attempts, so they are counted here, one process at a time: who was
        frozen may wake up and do it in the same moment as who took over from it.
        """
        add_line(self._facts, f"{n} {tool}")
        if not run:
            return
        with self._counting.open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            attempt = 1 + sum((e.run, e.call) == (run, call) for e in self.effects())
            add_line(self._effects, f"{tool} {run} {call} {attempt} {key}")

    def remembered(self) -> set[int]:
        """The numbers of the facts that were acknowledged."""
        return {int(n) for n, tool in lines_of(self._facts) if tool == "remember"}

    def happened(self, run: str, call: str) -> bool:
        """Whether a call has had its effect."""
        return any((e.run, e.call) == (run, call) for e in self.effects())

    def effects(self) -> list[Effect]:
        """All that happened, model calls left out."""
        return [
            Effect(tool, run, call, int(attempt), key)
            for tool, run, call, attempt, key in lines_of(self._effects)
            if tool != "m"
        ]

    def asked(self) -> Counter[str]:
        """How often a model was asked, by run."""
        return Counter(words[1] for words in lines_of(self._effects) if words[0] == "m")

    def acknowledged(self) -> dict[str, int]:
        """The last seq that was acknowledged, by run."""
        found: dict[str, int] = {}
        for run, seq in lines_of(self._acks):
            found[run] = max(found.get(run, 0), int(seq))
        return found


class Fuse:
    """Counts the points that processes pass, and kills the process that passes the n-th.

    Args:
        path: A file with the names of the points passed so far, over all processes.
        burns_at: Which point is fatal; 0 for none.
    """

    def __init__(self, path: Path, burns_at: int = 0) -> None:
        self._path = path
        self._burns_at = burns_at
        self._guard = threading.Lock()
        self._passed = len(lines_of(path))

    def meet(self, point: str) -> None:
        """Pass a point, or die there."""
        with self._guard:
            add_line(self._path, point)
            self._passed += 1
            if self._passed == self._burns_at:
                os.kill(os.getpid(), signal.SIGKILL)

    async def wait(self, point: str) -> None:
        """As `meet`; a campaign loses time here instead."""
        self.meet(point)


WRITES = ("create", "claim", "append", "submit", "keep", "set_budgets", "erase", "prune")
"""What changes a store; sessions are moved by `keep`."""
MEMORY_WRITES = ("keep", "review", "forget", "erase")
"""What changes its memory."""


class WatchedStore:
    """A store with a point before and after each write; what it acknowledges is noted outside."""

    def __init__(self, inner: Any, world: World, fuse: Fuse) -> None:
        self._inner = inner
        self._world = world
        self._fuse = fuse

    def memory(self, *given: Any) -> Any:
        return WatchedMemory(self._inner.memory(*given), self._world, self._fuse)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in WRITES:
            return method

        async def passed(*args: Any, **kwargs: Any) -> Any:
            self._fuse.meet(f"{name}.before")
            result = await method(*args, **kwargs)
            self._note(name, args, result)
            self._fuse.meet(f"{name}.after")
            return result

        return passed

    def _note(self, name: str, args: Sequence[Any], result: Any) -> None:
        match name:
            case "create" if result is None:
                self._world.acknowledge(args[0].run, args[1][-1].seq)
            case "append" if args[2]:
                self._world.acknowledge(args[0], args[2][-1].seq)
            case "submit" if result[1] is not None:
                self._world.acknowledge(args[0], result[1].seq)


class WatchedMemory:
    """A store's memory with a point before and after each change."""

    def __init__(self, inner: Any, world: World, fuse: Fuse) -> None:
        self._inner = inner
        self._world = world
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in MEMORY_WRITES:
            return method

        async def passed(*args: Any, **kwargs: Any) -> Any:
            self._fuse.meet(f"memory.{name}.before")
            result = await method(*args, **kwargs)
            if name == "keep":
                new, key = args[:2]
                self._world.remember(result.n, "remember", new.run, new.call, key or "-")
            elif name == "forget":
                run, _, call = kwargs["reason"].partition("/")
                self._world.remember(args[0], "forget", run, call, f"forget-{run}-{call}")
            self._fuse.meet(f"memory.{name}.after")
            return result

        return passed
