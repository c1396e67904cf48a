"""What the runs of the sweep and of the campaign do: a script for the model, tools, and people.

Each scene is one agent under its own name. All have the same tools, one of every recovery, and
every tool says outside the runtime what it did.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.kill.outside import World

from cairn import (
    NOT_HAPPENED,
    Agent,
    Answer,
    Context,
    ContextBlock,
    ErrorClass,
    IllegalTransition,
    Intake,
    Ladder,
    MemoryRules,
    ModelError,
    NotDone,
    Policy,
    Refused,
    Rung,
    Runtime,
    Scripted,
    ToolError,
    call,
    happened,
    tool,
)
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.messages import Text
from cairn.engine.granting import grants_of, make_grant
from cairn.engine.load import load
from cairn.toolkit import MEMORY_TOOLS

SHORT_S = 0.02
POLICY = Policy(effects={"write": "allow"}, tools={"refund": "ask"})
LADDER = Ladder(rows={ErrorClass.UNAVAILABLE: (Rung("retry", 5, 20_000), Rung("end"))})
RULES = MemoryRules(review="all")
KIWI, PLUM = "A kiwi is ripe.", "A plum is blue."
TOOL_S = 5.0
"""How long a tool may take: with the grace, how long a verdict on a frozen one must wait."""


def unready(request: Any) -> Any:
    """A fault that passes: the next attempt is made a little later, and counts as the next turn."""
    raise ModelError(ErrorClass.UNAVAILABLE, "try again")


def broken(request: Any) -> Any:
    """A fault that ends the run; whoever goes on with it as another run has the next turn."""
    raise ModelError(ErrorClass.INVALID_REQUEST, "no")


Person = Callable[[Runtime, str], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """A kind of run.

    Args:
        script: What the model says, by turn.
        ends: How it may end when nobody else meddles.
        person: What somebody does while it waits, before deciding what it asks.
        follows: What begins when it has ended: another run of its session, or a retry.
        exact: How often each tool has had its effect in the end, where that is certain.
        denies: Whether people refuse the second request.
        window: Of the model, in tokens, where it is too small for all that is said.
        options: Of its agent, beside what all have.
        remembers: Whether it has the tools of memory.
        facts: What is remembered in the end, and how far it is trusted.
    """

    script: tuple[Any, ...]
    ends: tuple[str, ...] = ("completed",)
    person: Person | None = None
    session: bool = False
    retried: bool = False
    exact: dict[str, int] = field(default_factory=dict)
    denies: bool = False
    window: int = 128_000
    options: Callable[[], dict[str, Any]] = dict
    remembers: bool = False
    facts: dict[str, str] = field(default_factory=dict)


HEADINGS = "Goal, Constraints, Key evidence, Done, Decisions, Open, Next, Exact identifiers"
SUMMARY = "\n".join(f"## {name}\nNone" for name in HEADINGS.split(", "))


def beside(said: Callable[[int], str]) -> Scripted:
    """A model that is asked beside the turns; what it says goes by how often it was asked."""

    async def model(request: Any) -> str:
        await STAGE.fuse.wait("beside.before")
        STAGE.world.ask(request.run, request.turn)
        await STAGE.fuse.wait("beside.after")
        return said(request.turn)

    return Scripted(model, name="beside", window=8_000, summarises=True)


def condensing() -> dict[str, Any]:
    """A model condenses, and its first summary is never of any use."""
    return {"summary_model": beside(lambda turn: SUMMARY if turn else "It went well.")}


def flushing() -> dict[str, Any]:
    """A model condenses, and each time it says the same is to be remembered."""
    said = f"{SUMMARY}\n## To remember\n- {KIWI}\n- {PLUM}\n- {KIWI}"
    return {"summary_model": beside(lambda turn: said), "keeps_facts": True}


def feeding() -> dict[str, Any]:
    """A read, a write and a call that a person must allow come before the model is asked."""
    fed = [("ground", "look", 1), ("noted", "post", 2), ("paid", "refund", 3)]
    blocks = [ContextBlock(name, tool=by, arguments={"n": n}) for name, by, n in fed]
    return {"context": blocks, "intake": Intake(model=beside(lambda turn: "operate"))}


async def trace_has(rt: Runtime, run: str, kind: type[ev.Event]) -> bool:
    return any(isinstance(e.event, kind) for e in await rt.trace_async(run))


async def cancels(rt: Runtime, run: str) -> None:
    await rt.client.submit(run, cmd.Cancel(reason="enough"))


async def steers(rt: Runtime, run: str) -> None:
    """Say something while the run waits, once."""
    if not await trace_has(rt, run, ev.InputQueued):
        await rt.client.submit(run, cmd.Queue(parts=(Text("mind the gap"),)))


async def pauses(rt: Runtime, run: str) -> None:
    """Pause it, decide in the pause, and let it go on."""
    if not await trace_has(rt, run, ev.RunPauseRequested):
        await rt.client.submit(run, cmd.Pause())
    await decide(rt, run, None)
    await rt.client.submit(run, cmd.Resume())


async def changes(rt: Runtime, run: str) -> None:
    """Approve the first request with other arguments: one decision, one write."""
    for pending in (await rt.get_async(run)).pending:
        if pending.kind == "approval" and '"n":1' in pending.detail.replace(" ", ""):
            with suppress(Refused):
                await rt.client.approve(pending.id, actor="ann", arguments='{"n": 9}')


async def grants(rt: Runtime, run: str) -> None:
    """Let one more refund run without being asked, once."""
    if (await grants_of(rt.store)).known:
        return
    scope = ev.GrantMade(n=0, tool="refund", effect="write", arguments='{"n":2}', uses=1)
    await make_grant(rt.store, rt.host.clock, scope, "ann")


async def undoes(rt: Runtime, run: str) -> None:
    """Take back what was condensed, once."""
    if not await trace_has(rt, run, ev.ContextRestored):
        await rt.client.submit(run, cmd.Restore(), "ann")


async def accepts(rt: Runtime, run: str) -> None:
    """Accept every fact that waits for somebody to look at it."""
    for fact in await rt.facts_async(state="waiting"):
        await rt.accept_fact_async(fact.id, by="ann", trust="owner")


async def acts(rt: Runtime, run: str) -> None:
    """Do the call by hand in the agent's place, make another one, and hand back."""
    state = await load(rt.store, run)
    by = {"by": "ann"}
    if not await trace_has(rt, run, ev.TakeoverBegun):
        await rt.client.submit(run, cmd.TakeOver(reason="it is stuck", **by))
    elif state.taken and state.calls:
        with suppress(Refused):
            await rt.client.submit(run, cmd.DoneByHand(call="c1", **by))
    elif state.taken and not await trace_has(rt, run, ev.TakeoverTurn):
        await rt.client.submit(run, cmd.TakeTurn(calls=(("post", '{"n":2}'),), **by))
    elif state.taken:
        await rt.client.submit(run, cmd.HandBack(**by))


SCENES: dict[str, Scene] = {
    "one-by-one": Scene(
        (
            call("look", n=1),
            call("post", n=2),
            call("pay", n=3),
            call("send", n=4),
            call("post_sync", n=5),
            "done",
        ),
        exact={"post": 1, "send": 1, "post_sync": 1},
    ),
    "parallel": Scene(
        (
            [call("look", n=1), call("look", n=2), call("look", n=3), call("post", n=4)],
            [call("post", n=5), call("pay", n=6), call("post_sync", n=7), call("send", n=8)],
            "done",
        ),
        exact={"post": 2, "send": 1, "post_sync": 1},
    ),
    "approval": Scene(
        (
            [call("look", n=1), call("refund", n=2)],
            [call("refund", n=3), call("post", n=4)],
            "done",
        ),
        exact={"refund": 1, "post": 1},
        denies=True,
    ),
    "changed": Scene(
        (call("refund", n=1), call("post", n=3), "done"),
        person=changes,
        exact={"refund": 1, "post": 1},
    ),
    "granted": Scene(
        (call("refund", n=1), call("refund", n=2), call("refund", n=2), "done"),
        person=grants,
        exact={"refund": 3},
    ),
    "taken-over": Scene((call("refund", n=1), "done"), person=acts, exact={"refund": 0, "post": 1}),
    "cancel-parked": Scene(
        ([call("post", n=1), call("refund", n=2)], "done"),
        ends=("cancelled",),
        person=cancels,
        exact={"refund": 0},
    ),
    "cancel-in-flight": Scene(
        ([call("look", n=1), call("leave", n=2)], "done"),
        ends=("cancelled", "completed"),  # who dies before the cancel was written did not cancel
        exact={"leave": 1},
    ),
    "retry-at": Scene(
        (call("flaky", n=1), unready, call("post", n=2), "done"),
        exact={"flaky": 1, "post": 1},
    ),
    "input": Scene(
        ([call("ask_user", question="which?"), call("post", n=1)], "done"),
        exact={"post": 1},
    ),
    "steering": Scene(
        (call("refund", n=1), call("post", n=2), "done"),
        person=steers,
        session=True,
        exact={"refund": 1},
    ),
    "check": Scene((call("post", n=1), "draft", "done"), exact={"post": 1}),
    "fallback": Scene((call("primary", n=1), "done"), exact={"backup": 1, "primary": 0}),
    "paused": Scene(
        (call("refund", n=1), call("look", n=2), "done"), person=pauses, exact={"refund": 1}
    ),
    "retried": Scene(
        (call("post", n=1), broken, "done"), ends=("failed",), retried=True, exact={"post": 1}
    ),
    "condensed": Scene(
        (
            [call("wide", n=1), call("post", n=2)],
            [call("wide", n=3), call("pay", n=4)],
            [call("wide", n=5), call("send", n=6)],
            call("wide", n=7),
            "done",
        ),
        window=3_600,
        options=condensing,
        exact={"post": 1, "send": 1},
    ),
    "flushed": Scene(
        (
            [call("wide", n=1), call("post", n=2), call("wide", n=3)],
            [call("wide", n=4), call("wide", n=5)],
            [call("wide", n=6), call("refund", n=7)],
            call("recall", query="plum"),
            "done",
        ),
        window=4_400,
        options=flushing,
        person=accepts,
        remembers=True,
        exact={"post": 1, "refund": 1},
        facts={KIWI: "owner", PLUM: "owner"},
    ),
    "undone": Scene(
        (call("wide", n=1), call("wide", n=2), call("refund", n=3), "done"),
        person=undoes,
        window=3_000,
        options=lambda: {"summary_model": None},
        exact={"refund": 1},
    ),
    "remembered": Scene(
        (
            [call("remember", text=KIWI), call("remember", text=PLUM), call("refund", n=1)],
            [call("recall", query="plum"), call("forget", id="m1")],
            "done",
        ),
        person=accepts,
        remembers=True,
        exact={"refund": 1},
        facts={PLUM: "owner"},
    ),
    "fed": Scene((call("post", n=4), "done"), options=feeding, exact={"post": 2, "refund": 1}),
    "artifact": Scene((call("large", n=1), call("post", n=2), "done"), exact={"post": 1}),
}


# ---------------------------------------------------------------- tools


class Stage:
    """What the tools of this process act on; set by each child, for the agents are made before.

    Attributes:
        world: Where effects go.
        fuse: What is met at each point: `meet` at once, `wait` in a coroutine.
        client: Of the runtime that drives.
    """

    world: World
    fuse: Any
    client: Any


STAGE = Stage()


def make_tools(stage: Stage) -> list[Any]:
    """One tool of each recovery, and a few that do not simply return."""

    async def act(ctx: Context) -> str:
        await stage.fuse.wait(f"{ctx.tool}.before")
        stage.world.act(ctx)
        await stage.fuse.wait(f"{ctx.tool}.after")
        return f"{ctx.tool} ok"

    async def body(n: int, ctx: Context) -> str:
        return await act(ctx)

    def post_sync(n: int, ctx: Context) -> str:
        stage.fuse.meet("post_sync.before")
        stage.world.act(ctx)
        stage.fuse.meet("post_sync.after")
        return "post_sync ok"

    async def find(n: int, ctx: Context) -> object:
        await stage.fuse.wait("probe.before")
        there = stage.world.happened(ctx.run_id, ctx.call_id)
        await stage.fuse.wait("probe.after")
        return happened("send ok") if there else NOT_HAPPENED

    async def flaky(n: int, ctx: Context) -> str:
        if ctx.attempt == 1:
            stage.fuse.meet("flaky.refused")
            raise NotDone("busy")
        return await act(ctx)

    async def primary(n: int, ctx: Context) -> str:
        await stage.fuse.wait("primary.before")
        raise ToolError("out of order")

    async def leave(n: int, ctx: Context) -> str:
        said = await act(ctx)
        await stage.client.submit(ctx.run_id, cmd.Cancel(reason="by its own tool"))
        await asyncio.sleep(TOOL_S)  # cut short by the cancel
        return said

    async def large(n: int, ctx: Context) -> str:
        await act(ctx)
        return "x" * 40_000

    async def wide(n: int, ctx: Context) -> str:
        return f"{await act(ctx)} {'and so on ' * 400}"

    def write(name: str, **options: Any) -> Any:
        given = {"effect": "write", "timeout": TOOL_S, "conflict_key": "n", **options}
        return tool(name=name, **given)

    return [
        tool(name="look", effect="read", timeout=TOOL_S)(body),
        write("post")(body),
        write("refund")(body),
        write("backup")(body),
        write("pay", recovery="keyed")(body),
        write("send", recovery="probe", probe=find)(body),
        write("post_sync", conflict_key="n")(post_sync),
        write("flaky", retries=3, backoff=SHORT_S)(flaky),
        write("primary", fallback="backup")(primary),
        write("leave")(leave),
        tool(name="large", effect="read", timeout=TOOL_S)(large),
        tool(name="wide", effect="read", timeout=TOOL_S)(wide),
    ]


@functools.cache
def all_agents() -> list[Agent]:
    """One for each scene. A warm parent makes them once, for making the schemas takes long."""
    stage = STAGE

    def model_of(scene: Scene) -> Scripted:
        async def model(request: Any) -> Any:
            await stage.fuse.wait("model.before")
            stage.world.ask(request.run, request.turn)
            await stage.fuse.wait("model.after")
            line = scene.script[request.turn]
            return line(request) if callable(line) else line

        return Scripted(model, window=scene.window, max_output=600)

    async def thorough(answer: Answer) -> str | None:
        await stage.fuse.wait("check.before")
        fault = "say more" if answer.text == "draft" else None
        await stage.fuse.wait("check.after")
        return fault

    tools = make_tools(stage)
    return [
        Agent(
            name,
            model_of(scene),
            tools=[*tools, *MEMORY_TOOLS] if scene.remembers else tools,
            completion_checks=[thorough] if name == "check" else [],
            **scene.options(),
        )
        for name, scene in SCENES.items()
    ]


# ---------------------------------------------------------------- people


async def decide(rt: Runtime, run: str, world: World | None, *, denies: bool = False) -> None:
    """Decide all that a run waits for, as the world is. A verdict may be too early; then later."""
    for pending in (await rt.get_async(run)).pending:
        try:
            await _decide(rt, pending, world, denies=denies)
        except (Refused, IllegalTransition):
            continue  # it is too early for it, or somebody was faster


async def _decide(rt: Runtime, pending: Any, world: World | None, *, denies: bool) -> None:
    if pending.id.endswith("/takeover"):
        return  # who has it in hand goes on with it
    run = pending.id.rpartition("/")[0]
    if pending.kind == "approval" and await trace_has(rt, run, ev.TakeoverBegun):
        return
    match pending.kind:
        case "approval" if denies and '"n":3' in pending.detail.replace(" ", ""):
            await rt.client.deny(pending.id, "not this one")
        case "approval":
            await rt.client.approve(pending.id)
        case "input":
            await rt.client.answer(pending.id, "the second")
        case _ if world is not None:
            run, _, call_id = pending.id.partition("/")
            there = world.happened(run, call_id)
            await rt.client.resolve(pending.id, "happened" if there else "not_happened")
