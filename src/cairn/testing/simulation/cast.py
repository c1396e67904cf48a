"""Who plays in a simulated world: models that misbehave, tools of every kind, and agents.

Two agents have all the room they need; the others have models with small windows, so that what
they are sent must be condensed, are fed before they begin, or have their tasks classified.

They are made once and hold nothing: what they do is up to the world whose process calls them.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cairn.agent import Agent, Answer
from cairn.block import ContextBlock
from cairn.core.intake import FEW
from cairn.core.limits import Price, Usage
from cairn.core.messages import Text
from cairn.core.policy import Policy
from cairn.core.rules import Need, Rules
from cairn.core.terms import ApprovalTerms
from cairn.crew import prepare
from cairn.errors import ErrorClass, ModelError
from cairn.intake import Intake
from cairn.memory.block import memory_block
from cairn.ports import ModelReply, ModelRequest, OnDelta, ReplyCall
from cairn.testing.simulation.loop import HERE
from cairn.testing.simulation.remembering import SKILL
from cairn.toolkit.remembering import MEMORY_TOOLS
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
    "fetch": "read",
    **{f"weigh_{n}": "read" for n in range(FEW)},
}
SMALL = 10_000
"""Windows up to here are small ones."""
SHORT = 0.35
"""How many tasks of an ordinary world go to who is short of room."""
SAVING = 0.3
"""How many tasks of a world of memory go to who keeps facts when it condenses."""
ORDER = Need(name="order", question="Which one?", pattern=r"task of \w*[02468]\b|second|message")
"""What half of the tasks leave out; who is asked says it."""
PRICE = Price(input=1_000_000, output=2_000_000, version="simulated")


class Outside(Protocol):
    """The world as its cast sees it."""

    async def reply(self, window: int, request: ModelRequest, show: OnDelta | None) -> ModelReply:
        """What a model with such a window says."""
        ...

    async def act(self, ctx: Context[Any], tool: str) -> str:
        """One attempt of a tool."""
        ...

    def words(self, ctx: Context[Any]) -> str:
        """How much a tool has to say beside what it did."""
        ...

    async def probe(self, ctx: Context[Any], tool: str) -> Any:
        """What can be found out about a call's effect."""
        ...

    async def check(self, answer: Answer) -> str | None:
        """What is wrong with an answer."""
        ...


@runtime_checkable
class Mortal(Protocol):
    """A process, as far as its own work may end it."""

    async def crash(self) -> None:
        """It is gone in this very moment."""
        ...

    async def freeze_now(self) -> None:
        """It stands still in this very moment."""
        ...


def world_here() -> Outside:
    """The world of the process that is running."""
    found: Any = HERE.get()
    world: Outside = found.world
    return world


class Player:
    """A model of the simulated world."""

    def __init__(self, name: str, window: int = 128_000) -> None:
        self.name = name
        self.price: Price | None = PRICE
        self.window = window
        self.max_output = 600
        self.timeout_s = MODEL_S

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """See `Model.request`."""
        return await world_here().reply(self.window, request, on_delta)


def _tool(name: str, *, wordy: bool = False, **options: Any) -> Tool[..., Any]:
    async def work(n: int, ctx: Context[Any]) -> str:
        said = await world_here().act(ctx, name)
        return f"{said} {world_here().words(ctx)}" if wordy else said

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
    """The agents of a world; one full of approvals has one more, one of memory its own."""
    if theme == "memory":
        return _keepers()
    plain, careful = _with_room()
    if theme == "approvals":
        return plain, careful, _guarded()
    return plain, careful, *_short_of_room()


def cast_for(theme: str, draw: float) -> tuple[Agent, ...]:
    """Among whom a task's agent is picked, by a number from 0 up to 1."""
    every = agents(theme)
    if theme == "approvals":
        return every
    if theme == "memory":
        return every[2:] if draw < SAVING else every[:2]
    return every[2:] if theme == "context" or draw < SHORT else every[:2]


def _tools() -> list[Any]:
    return [
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


def _with_room() -> tuple[Agent, Agent]:
    tools = _tools()
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
    return plain, careful


def _guarded() -> Agent:
    return Agent(
        "guarded",
        Player("first"),
        tools=_tools(),
        builtins=(),
        approval=ApprovalTerms(roles=("lead",), other_person=True, expires_in=6.0),
    )


def _short_of_room() -> tuple[Agent, ...]:
    """One whose context a model condenses, one that is fed, one that is sent little at all."""
    tools = [
        _tool("look", effect="read", retries=1, wordy=True),
        _tool("post", effect="write", wordy=True),
        _tool("send", effect="write", recovery="probe", conflict_key="n", settle=1.0),
        _tool("refund", effect="write", conflict_key="n"),
        _tool("note", effect="write", recovery="repeat", conflict_key="n", wordy=True),
        _tool("secret", effect="read"),
        ask_user,
    ]
    condensed = Agent(
        "condensed",
        Player("small", 3_400),
        tools=tools,
        builtins=("read_artifact",),
        fallback_models=[Player("smaller", 2_800)],
        summary_model=Player("scribe", 2_600),
    )
    fed = Agent(
        "fed",
        Player("small", 3_400),
        tools=tools,
        builtins=(),
        context=[
            ContextBlock("ground", tool="look", arguments={"n": 1}),
            ContextBlock("hidden", tool="secret", arguments={"n": 1}),
            ContextBlock("asked", tool="refund", arguments={"n": 3}),
            ContextBlock("manners", "Be brief.", place="end"),
        ],
        history="summary",
        summary_model=None,
        intake=Intake(model=Player("sorter", 2_000)),
    )
    brief = Agent(
        "brief",
        Player("small", 3_400),
        tools=tools,
        builtins=(),
        history=2,
        tool_results=1,
        intake=Intake(needs=[ORDER], model=Player("sorter", 2_000)),
    )
    return condensed, fed, brief


def _keepers() -> tuple[Agent, ...]:
    """Who remembers in a world of memory.

    One is short of room and searches, one has more tools than it is shown at once, and one keeps
    what its summaries say is to be remembered.
    """
    many = [_tool(f"weigh_{n}", effect="read") for n in range(FEW)]
    tools = [
        *MEMORY_TOOLS,
        _tool("look", effect="read", retries=1, wordy=True),
        _tool("fetch", effect="read", taint="web", wordy=True),
        _tool("post", effect="write"),
        _tool("refund", effect="write", conflict_key="n"),
        _tool("secret", effect="read"),
    ]
    keeper = Agent(
        "keeper",
        Player("small", 5_200),
        tools=tools,
        builtins=("update_plan", "search_history"),
        history=2,
        summary_model=None,
    )
    clerk = Agent(
        "clerk",
        Player("first"),
        tools=[*tools, *many],
        builtins=("update_plan",),
        skills=[_skills()],
        context=[
            ContextBlock("known", memory_block(), place="end"),
            ContextBlock("asked", tool="recall", arguments={"query": "kiwi"}),
        ],
    )
    saver = Agent(
        "saver",
        Player("small", 4_200),
        tools=tools,
        builtins=("update_plan", "search_history"),
        summary_model=Player("scribe", 4_000),
        keeps_facts=True,
    )
    return keeper, clerk, saver


@cache
def _skills() -> Path:
    """A folder with a skill; it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-skills-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "picking").mkdir()
    (folder / "picking" / "SKILL.md").write_text(SKILL)
    return folder


@cache
def rules(theme: str = "") -> dict[str, Rules]:
    """By which rules the agents are driven."""
    themes = ("memory",) if theme == "memory" else ("", "approvals")
    every = {agent.name: agent for each in themes for agent in agents(each)}
    return {name: prepare(agent, POLICY).rules for name, agent in every.items()}


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
EXCESS = Usage(input_tokens=5_000, output_tokens=4_000)
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
OF_SMALL = {**MODEL_FAULTS, "model: context_overflow": 0.05}
"""The same of a model with a small window."""


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
            return ModelReply(parts=reply.parts, calls=reply.calls, usage=EXCESS)
    return ModelReply(parts=reply.parts, calls=calls, finish="tool_calls", usage=reply.usage)
