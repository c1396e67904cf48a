"""A tool that is denied, and every way by which a call of it can come to be executed.

A path is a function of a `Desk`: it has the tool asked for in its own way, under a policy, or a
hook in its place, that denies it by then. What it says it `covers` are the verbs and commands that
it goes through.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cairn import (
    Agent,
    Context,
    ContextBlock,
    Deny,
    HookCall,
    Policy,
    Route,
    Runtime,
    Scripted,
    before_tool,
    tool,
)
from cairn.core.events import Entry
from cairn.core.policy import Rule
from cairn.ports import RunFilter
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore

DENIES = Rule(name="closed", decide="deny", tools=("pay",))
CLOSED = Policy(effects={"write": "allow"}, rules=(DENIES,))
CLOSED_ASKING = Policy(rules=(DENIES,))
OPEN = Policy(effects={"write": "allow"})
ASKING = Policy()
SAYS = "deployment: closed"
HOOK_SAYS = "hook:closed"


@dataclass(frozen=True)
class Way:
    """One way to a call.

    Attributes:
        walk: What is done.
        covers: Verbs and commands that it goes through.
        says: The rule that the journal must name.
        slow: Whether it takes a good part of a second.
    """

    walk: Callable[["Desk"], Any]
    covers: tuple[str, ...]
    says: str
    slow: bool = False


PATHS: dict[str, Way] = {}


def path(
    *covers: str, says: str = SAYS, slow: bool = False
) -> Callable[[Callable[["Desk"], Any]], Any]:
    """Register a way to a call; its name is the function's."""

    def register(walk: Callable[["Desk"], Any]) -> Callable[["Desk"], Any]:
        assert walk.__name__ not in PATHS
        PATHS[walk.__name__] = Way(walk, covers, says, slow)
        return walk

    return register


@dataclass
class Desk:
    """Journals that several processes share, and what really happened.

    Attributes:
        folder: An empty folder.
        hooked: Whether a hook denies what the policy would.
        done: Effects of the denied tool, in order.
        told: What a path shows beside the journal, such as a replay.
    """

    folder: Path
    hooked: bool = False
    done: list[str] = field(default_factory=list)
    told: str = ""
    journals: Any = field(default_factory=InMemoryStore)
    _before: dict[str, int] = field(default_factory=dict)
    _begun: int = 0

    def pay(self, **options: Any) -> Any:
        """The tool in question."""

        @tool(**{"name": "pay", "effect": "write", **options})
        async def pay(ctx: Context[Any], order: str = "7") -> str:
            self.done.append(order)
            return f"paid {order}"

        return pay

    def note(self, **options: Any) -> Any:
        """A tool that may be called."""

        @tool(**{"name": "note", "effect": "write", **options})
        async def note(text: str = "") -> str:
            return "noted"

        return note

    def runtime(
        self,
        *script: Any,
        policy: Policy = CLOSED,
        own: Policy | None = None,
        tools: Sequence[Any] = (),
        clock: Any = None,
        routes: Sequence[Route] = (),
        context: Sequence[ContextBlock] = (),
    ) -> Runtime:
        """A process of its own on the journals, with an agent `a`; `own` is the agent's policy."""
        model = script[0] if hasattr(script[0], "request") else Scripted([*script])
        hooks, own_hooks = [], []
        if self.hooked:
            policy, hooks = by_hook(policy)
            own, own_hooks = by_hook(own) if own is not None else (None, [])
        offered = tools or [self.pay(), self.note()]
        agents = [Agent("a", model, tools=offered, policy=own, hooks=own_hooks, context=context)]
        store = self.journals.beside()
        return Runtime(store, agents, policy=policy, clock=clock, hooks=hooks, routes=routes)

    async def entries(self) -> dict[str, list[Entry]]:
        """All journals of runs."""
        file = self.folder / "shop.db"
        store = open_store(file) if file.exists() else self.journals.beside()
        try:
            runs = await store.runs(RunFilter(limit=1_000))
            return {info.run: await store.read(info.run) for info in runs}
        finally:
            await store.close()

    async def from_now_on(self) -> None:
        """What was done up to here was allowed."""
        self._before = {run: len(found) for run, found in (await self.entries()).items()}
        self._begun = len(self.done)

    async def seen(self) -> tuple[list[str], list[Any]]:
        """Effects since then, and events."""
        found = await self.entries()
        events = [e.event for run in found for e in found[run][self._before.get(run, 0) :]]
        return self.done[self._begun :], events

    async def die(self, runtime: Runtime, driving: asyncio.Task[Any]) -> None:
        """Have a process end as if it were killed."""
        runtime.store.crash()  # type: ignore[attr-defined]  # the store in memory can
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        for each in everything:
            each.cancel()
        await asyncio.gather(driving, *everything, return_exceptions=True)


def by_hook(policy: Policy) -> tuple[Policy, list[Any]]:
    """The policy without what it denies by name, and the hook that denies it in its place."""
    denied = {name for name, verdict in policy.tools.items() if verdict == "deny"}
    tools = {name: verdict for name, verdict in policy.tools.items() if name not in denied}
    rules = tuple(rule for rule in policy.rules if rule is not DENIES)
    if len(rules) < len(policy.rules):
        denied |= {"pay"}
    if not denied:
        return policy, []

    @before_tool
    def closed(call: HookCall) -> Deny | None:
        return Deny("it is closed") if call.tool in denied else None

    return replace(policy, tools=tools, rules=rules), [closed]


def walk(desk: Desk, way: Way) -> tuple[list[str], list[Any]]:
    """Go a way, in a loop of its own or in none where the verbs are sync; what came of it."""
    if inspect.iscoroutinefunction(way.walk):
        asyncio.run(way.walk(desk))
    else:
        way.walk(desk)
    return asyncio.run(desk.seen())


async def ended(runtime: Runtime, run: str) -> None:
    """Wait until a run that is driven in the background is over."""
    for _ in range(3_000):
        if (await runtime.get_async(run)).status in {"completed", "failed", "stopped"}:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"{run} does not end")


async def asked(desk: Desk, *script: Any) -> None:
    """A run `r` whose first call waits for a person."""
    async with desk.runtime(*script, policy=ASKING) as runtime:
        run = await runtime.run_async("a", "t", id="r")
        assert run.reason == "approval", run
    await desk.from_now_on()
