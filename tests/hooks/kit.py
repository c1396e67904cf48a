"""A shop whose tool pays, on journals that several processes share, with hooks around it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.engine.kit import FREE_HAND, Recorder

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Rule
from cairn.core.policy.predicates import Range
from cairn.core.state import RunState
from cairn.engine.load import load
from cairn.store.inmemory import InMemoryStore

ASKING = Policy()
SMALL = Policy(
    effects={"write": "ask"},
    rules=(Rule(name="small", decide="allow", tools=("pay",), arguments={"cents": Range(max=10)}),),
)
"""Small amounts are allowed, all others are asked about."""


class Shut:
    """Something that fails as soon as anybody asks what it is."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("shut")


def forced(answer: Any, **fields: Any) -> Any:
    """A hook's answer with values in it that its own check would never have let in."""
    for name, value in fields.items():
        msgspec.structs.force_setattr(answer, name, value)
    return answer


@dataclass
class Shop:
    """What was really paid, and the journals of all processes."""

    paid: list[str] = field(default_factory=list)
    journals: InMemoryStore = field(default_factory=InMemoryStore)
    model: Any = None

    def pay(self, **options: Any) -> Any:
        @tool(**{"name": "pay", "effect": "write", **options})
        async def pay(cents: int = 5, to: str = "ann") -> str:
            self.paid.append(f"{cents} {to}")
            return f"paid {cents} to {to}"

        return pay

    def runtime(
        self,
        *script: Any,
        hooks: Sequence[Any] = (),
        own: Sequence[Any] = (),
        policy: Policy = FREE_HAND,
        tools: Sequence[Any] = (),
        **options: Any,
    ) -> Runtime:
        """A process of its own."""
        self.model = Recorder(*(script or (call("pay", cents=5), "done")))
        agent = Agent("a", Scripted(self.model), tools=tools or [self.pay()], hooks=own)
        store = self.journals.beside()
        return Runtime(store, [agent], policy=policy, hooks=hooks, **options)

    async def ran(self, *script: Any, **options: Any) -> Any:
        """A run `r` as far as one process brings it."""
        async with self.runtime(*script, **options) as rt:
            return await rt.run_async("a", "task", id="r")

    async def events(self, kind: type = ev.Event) -> list[Any]:
        """The events of `r` of a kind."""
        entries = await self.journals.beside().read("r")
        return [entry.event for entry in entries if isinstance(entry.event, kind)]

    async def names(self) -> list[str]:
        return [event.NAME for event in await self.events()]

    async def state(self) -> RunState:
        return await load(self.journals.beside(), "r")

    async def die(self, rt: Runtime, driving: "asyncio.Task[Any]") -> None:
        """Have a process end as if it were killed."""
        rt.store.crash()  # type: ignore[attr-defined]  # the store in memory can
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        for each in everything:
            each.cancel()
        await asyncio.gather(driving, *everything, return_exceptions=True)


def rules(events: Sequence[Any]) -> list[str]:
    """The rules that events name."""
    return [event.rule for event in events if getattr(event, "rule", "")]
