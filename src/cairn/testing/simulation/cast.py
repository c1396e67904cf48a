"""Who plays in a simulated world: one model that misbehaves, tools of every kind, two agents.

They are made once and hold nothing: what they do is up to the world whose process calls them.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Protocol

from cairn.agent import Agent, Answer, prepare
from cairn.core.limits import Price, Usage
from cairn.core.messages import Text
from cairn.core.policy import Policy
from cairn.core.rules import Rules
from cairn.core.terms import ApprovalTerms
from cairn.errors import ErrorClass, ModelError
from cairn.ports import ModelReply, ModelRequest, OnDelta, ReplyCall
from cairn.testing.simulation.loop import HERE
from cairn.tools.builtin import ask_user
from cairn.tools.context import Context
from cairn.tools.options import Options
from cairn.tools.tool import Tool, make_tool

TIMEOUT_S = 8.0
"""Deadline of one attempt of a tool."""
MODEL_S = 10.0
"""Deadline of one request."""
POLICY = Policy(
    effects={"write": "allow"},
    tools={"refund": "ask", "secret": "deny"},
    name="simulated",
)
KINDS = ("look", "pay", "post", "send", "refund", "wipe", "note", "ship", "secret")
RECOVERIES = {
    "look": "read",
    "pay": "keyed",
    "post": "once",
    "send": "probe",
    "refund": "once",
    "wipe": "once",
    "note": "repeat",
    "ship": "once",
    "pick": "once",
    "secret": "once",
}
PRICE = Price(input=1_000_000, output=2_000_000, version="simulated")


class Outside(Protocol):
    """The world as its cast sees it."""

    async def reply(self, name: str, request: ModelRequest, show: OnDelta | None) -> ModelReply:
        """What a model says."""
        ...

    async def act(self, ctx: Context[Any], tool: str) -> str:
        """One attempt of a tool."""
        ...

    async def probe(self, ctx: Context[Any], tool: str) -> Any:
        """What can be found out about a call's effect."""
        ...

    async def check(self, answer: Answer) -> str | None:
        """What is wrong with an answer."""
        ...


def world_here() -> Outside:
    """The world of the process that is running."""
    found: Any = HERE.get()
    world: Outside = found.world
    return world


class Player:
    """A model of the simulated world."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.price: Price | None = PRICE
        self.window = 128_000
        self.max_output = 600
        self.timeout_s = MODEL_S

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """See `Model.request`."""
        return await world_here().reply(self.name, request, on_delta)


def _tool(name: str, **options: Any) -> Tool[..., Any]:
    async def work(n: int, ctx: Context[Any]) -> str:
        return await world_here().act(ctx, name)

    async def find(n: int, ctx: Context[Any]) -> Any:
        return await world_here().probe(ctx, name)

    work.__doc__ = f"Simulated {name}."
    if options.get("recovery") == "probe":
        options["probe"] = find
    given: Options = {"name": name, "timeout": TIMEOUT_S, **options}  # type: ignore[typeddict-item]  # made here
    made: Tool[..., Any] = make_tool(work, given)
    return made


async def complete(answer: Answer) -> str | None:
    """A completion check that the world may let fail."""
    return await world_here().check(answer)


@cache
def agents(theme: str = "") -> tuple[Agent, ...]:
    """The agents of every simulated world; one full of approvals has one more."""
    tools = [
        _tool("look", effect="read", retries=1),
        _tool("pay", effect="write", recovery="keyed", retries=1, conflict_key="n"),
        _tool("post", effect="write"),
        _tool("send", effect="write", recovery="probe", conflict_key="n", settle=1.0),
        _tool("refund", effect="write", conflict_key="n"),
        _tool("wipe", effect="dangerous"),
        _tool("note", effect="write", recovery="repeat", conflict_key="n", micro_usd=500),
        _tool("ship", effect="write", fallback="pick", conflict_key="n"),
        _tool("pick", effect="write", conflict_key="n"),
        _tool("secret", effect="read"),
        ask_user,
    ]
    plain = Agent("plain", Player("first"), tools=tools, builtins=(), approval_days=7)
    careful = Agent(
        "careful",
        Player("first"),
        tools=tools,
        builtins=(),
        instructions="Be careful.",
        fallback_models=[Player("second")],
        completion_checks=[complete],
        approval_days=0.0005,
        on_loop="ask",
        repairs=2,
    )
    if theme != "approvals":
        return plain, careful
    guarded = Agent(
        "guarded",
        Player("first"),
        tools=tools,
        builtins=(),
        approval=ApprovalTerms(roles=("lead",), other_person=True, expires_in=6.0),
    )
    return plain, careful, guarded


@cache
def rules() -> dict[str, Rules]:
    """By which rules the agents are driven."""
    return {agent.name: prepare(agent, POLICY).rules for agent in agents("approvals")}


async def misbehave(kind: str, draw: Any) -> ModelReply | None:
    """What a faulty model does in place of its reply; None when it only dawdles."""
    what = kind.removeprefix("model: ")
    match what:
        case "hangs":
            await asyncio.sleep(1_000)
        case "dawdles":
            await asyncio.sleep(MODEL_S - 0.5)
        case "late":
            await _stubborn()
        case "empty":
            return ModelReply(usage=USED)
        case "cut at the limit":
            return ModelReply(parts=(Text("and then"),), finish="length", usage=USED)
        case "refused":
            return ModelReply(parts=(Text("no"),), finish="content_filter", usage=USED)
        case "malformed":
            raise ModelError(ErrorClass.MALFORMED_OUTPUT, "no JSON", usage=USED)
        case "raises a time-out":
            raise TimeoutError("read timed out")
        case "nameless call":
            return ModelReply(calls=(ReplyCall(name=" "),), usage=USED)
        case _:
            after = draw() * 20 if draw() < 0.5 else None
            raise ModelError(ErrorClass(what), "simulated", retry_after_s=after)
    return None


async def _stubborn() -> None:
    """Does not let itself be cancelled at once."""
    try:
        await asyncio.sleep(MODEL_S + 1)
    except asyncio.CancelledError:
        await asyncio.sleep(4)
        raise


USED = Usage(input_tokens=120, output_tokens=30)
CLASSES = (
    "rate_limited",
    "quota_exhausted",
    "overloaded",
    "unavailable",
    "timeout",
    "network",
    "stream_interrupted",
    "context_overflow",
    "request_too_large",
    "invalid_request",
    "auth",
    "model_not_found",
    "content_filtered",
)
RARE = {"context_overflow", "request_too_large", "invalid_request", "content_filtered"}
WAYS = ("hangs", "dawdles", "late", "empty", "cut at the limit", "refused", "malformed")
ODD = ("raises a time-out", "nameless call")
SKEWED = ("bad arguments", "unknown tool", "too many calls", "repeated ids", "no usage", "excess")
MODEL_FAULTS = {
    **{f"model: {each}": 0.002 if each in RARE else 0.012 for each in CLASSES},
    **{f"model: {each}": 0.01 for each in (*WAYS, *ODD)},
    **{f"reply: {each}": 0.012 for each in SKEWED},
}
"""How likely each way of a model to go wrong is, per request."""


def skewed(kind: str, reply: ModelReply) -> ModelReply:
    """A whole reply with something wrong in it."""
    calls = reply.calls or (ReplyCall(name="look", arguments='{"n":1}'),)
    match kind.removeprefix("reply: "):
        case "bad arguments":
            calls = (*calls[:-1], ReplyCall(name=calls[-1].name, arguments='{"n": "x'))
        case "unknown tool":
            calls = (*calls, ReplyCall(name="nothing"))
        case "too many calls":
            calls = calls * 20
        case "repeated ids":
            calls = tuple(ReplyCall(name=c.name, arguments=c.arguments, id="same") for c in calls)
            calls = (*calls, calls[0])
        case "no usage":
            return ModelReply(parts=reply.parts, calls=reply.calls, usage=None)
        case "excess":
            used = Usage(input_tokens=5_000, output_tokens=4_000)
            return ModelReply(parts=reply.parts, calls=reply.calls, usage=used)
    return ModelReply(parts=reply.parts, calls=calls, finish="tool_calls", usage=reply.usage)
