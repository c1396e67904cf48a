"""The public names as users write them. Never run: the type checker reads it, strictly."""

from __future__ import annotations

from typing import assert_type

from cairn import (
    NOT_HAPPENED,
    Agent,
    Answer,
    Briefing,
    Context,
    Delta,
    Discard,
    Entry,
    Limits,
    Policy,
    Principal,
    Progress,
    Run,
    Runtime,
    Scripted,
    Source,
    call,
    happened,
    tool,
)


class Shop:
    """What the tools get as `ctx.deps`."""

    def pay(self, order: str, cents: int, key: str) -> str:
        return f"{order} {cents} {key}"


@tool(effect="write", recovery="keyed", timeout=10)
def refund(order: str, cents: int, ctx: Context[Shop]) -> str:
    """Pay money back."""
    return ctx.deps.pay(order, cents, ctx.key)


def was_paid(order: str) -> object:
    return happened("paid") if order else NOT_HAPPENED


@tool(effect="write", recovery="probe", probe=was_paid)
async def transfer(order: str) -> str:
    """Move money."""
    return order


@tool(effect="read", sources=True)
async def search(words: str) -> list[Source]:
    """Search."""
    return [Source(uri="a", text=words)]


def instructions(briefing: Briefing) -> str:
    return f"You work for {briefing.principal.id}."


async def complete(answer: Answer) -> str | None:
    return None if answer.text else "say something"


agent = Agent(
    "shop",
    Scripted([call("refund", order="7", cents=400), "Done."]),
    instructions=instructions,
    tools=[refund, transfer, search],
    limits=Limits(steps=10),
    completion_checks=[complete],
)


def sync_use() -> None:
    with Runtime("cairn.db", agents=[agent], deps=Shop(), policy=Policy()) as rt:
        run = rt.run("shop", "Refund order 7", id="order-7", principal=Principal(id="u1"))
        assert_type(run, Run)
        assert_type(run.status, str)
        assert_type(run.text, str)
        assert_type(rt.start("shop", "x"), str)
        assert_type(rt.approve("order-7/1", by="boss"), Run)
        assert_type(rt.resolve("order-7/c1", happened=False), Run)
        assert_type(rt.trace("order-7"), list[Entry])
        for what in rt.stream("shop", "x"):
            assert_type(what, Entry | Delta | Discard | Progress)


async def async_use(rt: Runtime) -> None:
    assert_type(await rt.run_async("shop", "x"), Run)
    assert_type(await rt.send_async("s1", "hello", agent="shop"), Run)
    async for what in rt.stream_async("shop", "x"):
        assert_type(what, Entry | Delta | Discard | Progress)
    assert_type(refund("7", 400, Context[Shop](deps=Shop())), str)
