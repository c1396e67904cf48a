"""A secret that is planted in every place at once is found in none afterwards, in any form."""

import asyncio
import base64
import json
import logging
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.engine.kit import TurnedClock
from tests.secrets.test_finding import ENCODINGS, base64_of
from typer.testing import CliRunner

from cairn import (
    Agent,
    Context,
    Delta,
    Entry,
    Progress,
    Run,
    Runtime,
    Scripted,
    Source,
    Text,
    Unsure,
    call,
    tool,
)
from cairn.cli.entry import app
from cairn.core import events as ev
from cairn.core.encoded import core
from cairn.core.policy import Policy
from cairn.core.secrets import HANDLE, escapes, forms
from cairn.engine.flights import Flights
from cairn.governance.secrets import Secrets
from cairn.ports import ModelReply, ModelRequest, OnDelta
from cairn.store.inmemory import InMemoryStore

POLICY = Policy(tools={"note": "allow", "charge": "ask", "lost": "allow"}, name="t")
UNREGISTERED = "ghp_a8Fk2mQ9xZ4rT7vB1nC6yH3wD5sG0pLjE2uK"
EVERYWHERE = {
    ev.RunCreated,
    ev.InputQueued,
    ev.ModelRequested,
    ev.ModelCompleted,
    ev.ToolCompleted,
    ev.ToolFailed,
    ev.ToolUnknown,
    ev.ToolResolved,
    ev.ArtifactCreated,
    ev.ApprovalRequested,
    ev.ApprovalGranted,
    ev.InputRequested,
    ev.InputAnswered,
    ev.RunPauseRequested,
    ev.PlanUpdated,
}
COMMANDS = ("trace {}", "trace {} --json", "export {}", "verify {}", "audit", "runs", "inbox")


class Slow(Scripted):
    """A script that shows its text in small pieces and keeps what it was asked."""

    def __init__(self, script: Any, piece: int) -> None:
        super().__init__(script)
        self.requests: list[ModelRequest] = []
        self.piece = piece

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        self.requests.append(request)
        reply = await super().request(request)
        text = "".join(p.content for p in reply.parts if isinstance(p, Text))
        for at in range(0, len(text) if on_delta is not None else 0, self.piece):
            assert on_delta is not None
            on_delta(text[at : at + self.piece])
        return reply


def tools_saying(said: str) -> list[Any]:
    """Tools that give the secret away in every way there is."""

    @tool(effect="read", secrets="stripe")
    async def look(what: str, ctx: Context[None]) -> dict[str, Any]:
        ctx.progress(f"looking for {said}")
        return {"found": [said, {said: what}], "large": "x" * 9_000 + said + "y" * 9_000}

    @tool(effect="read", sources=True)
    def cite() -> list[Source]:
        return [Source(uri=f"https://user:{said}@host/a", text=said, span=said, version=said)]

    @tool(effect="write", secrets="stripe")
    def note(text: str) -> str:
        raise ValueError(f"cannot note {text}: {said}")

    @tool(effect="write", secrets="stripe")
    def charge(key: str) -> str:
        return f"charged with {key} and {said}"

    @tool(effect="write")
    def lost(x: int) -> str:
        raise Unsure(f"no answer to {said}")

    return [look, cite, note, charge, lost]


def script_saying(said: str) -> list[Any]:
    half = len(said) // 2
    parts = (Text(f"I read {said[:half]}"), Text(f"{said[half:]} and go on. "), Text(f"so {said}"))
    looking = (call("look", what=said), call("cite"), call("note", text=f"it is {said}"))
    return [
        ModelReply(parts=parts, calls=looking, finish="tool_calls"),
        [f"charging {said}", call("charge", key=f"Bearer {said}")],
        [call("lost", x=1)],
        [call("ask_user", question=f"is {said} right?")],
        f"The key is {said}, and no other.",
        "again",
    ]


async def decide(rt: Runtime, waiting: Any, said: str) -> None:
    """What a person says to it, with the secret in every word they may choose."""
    if waiting.kind == "approval":
        await rt.approve_async(waiting.id, f"as {said} says", by="ann")
    elif waiting.kind == "input":
        await rt.answer_async(waiting.id, f"yes, {said}", by="ann")
    else:
        await rt.resolve_async(
            waiting.id, happened=True, result={"was": said}, evidence=f"saw {said}", by="ann"
        )


async def live(store: Any, said: str, secrets: Secrets, piece: int, out: list[Any]) -> None:
    """A run in which the secret stands in every place; what can be seen of it goes to `out`."""
    model = Slow(script_saying(said), piece)
    instructions = f"You know {said}."
    agent = Agent("a", model, instructions=lambda _: instructions, tools=tools_saying(said))
    rt = Runtime(
        store, [agent], policy=POLICY, secrets=secrets, on_wait=out.append, clock=TurnedClock()
    )
    async with rt:

        async def follow() -> None:
            out.extend([what async for what in rt.watch_async("r")])

        await rt.enqueue_async("a", f"Use {said} please", id="r", session="s")
        await rt.edit_async("r", message=f"and {said} again")
        await follow()
        await rt.pause_async("r", f"because of {said}")
        await rt.resume_async("r")
        await rt.edit_async("r", plan=[f"do {said}"])
        for _ in range(6):
            for waiting in await rt.pending_async():
                out.append(waiting)
                await decide(rt, waiting, said)
            await follow()
        await rt.grant_async("note", arguments={"text": said}, reason=f"for {said}")
        out += [await rt.get_async("r"), await rt.trace_async("r"), await rt.grants_async()]
        out += [list(model.requests), [r.system for r in model.requests]]
        fork = await rt.fork_async("r", 1, edits={"message": f"but {said}"}, id="f")
        out += [fork, await rt.trace_async("f")]
        out += [str(row.data) for run in ("r", "f", "store") for row in await rt.store.rows(run)]
        told = {type(entry.event) for entry in await rt.trace_async("r")}
        seen = {type(what) for what in out}
        assert not secrets.names or seen >= {Delta, Progress, Entry, Run}
        assert not secrets.names or told >= EVERYWHERE, "it stood in all of these"


def plain(what: Any) -> str:
    """All of it as text, as it is kept and as Python shows it."""
    return f"{what!r}\n{msgspec.json.encode(what, enc_hook=repr).decode()}"


def traces_of(secret: str) -> set[str]:
    """The secret in every form, each also in hex and in base64 as it may stand there."""
    once = {f for f in {*forms(secret), *escapes(secret)} if len(f) >= 6}
    raws = [form.encode() for form in once]
    twice = {core(base64.b64encode, raw, shift) for raw in raws for shift in range(3)}
    twice |= {raw.hex() for raw in raws} | {raw.hex().upper() for raw in raws}
    return once | {form for form in twice if len(form) >= 8} | {"\u3164".join(secret)}


def found_in(data: bytes | str, secret: str) -> list[str]:
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    return [form for form in traces_of(secret) if form.encode() in raw]


class Shouted(logging.Handler):
    """Every record, whole, as it reaches a handler."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__!r}")


@pytest.fixture(scope="module")
def log() -> Iterator[Shouted]:
    handler = Shouted()
    logger = logging.getLogger("cairn")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


SECRET = st.text('abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789-_/+=é"\\ %', min_size=8)
TWICE = ("hex in base64 1", "base64 0 in base64 2", "URL in base64 0", "JSON in hex")
WRITTEN = st.sampled_from(
    ["as it is", "JSON", "URL", "URL twice", "hex", "base64 0", "base64 2", "with fillers", *TWICE]
)


def as_written(secret: str, how: str) -> str:
    """A secret, encoded; what is said to stand in base64 or hex is encoded before."""
    if " in " in how:
        inner, outer = how.split(" in ")
        return as_written(as_written(secret, inner), outer)
    if how.startswith("base64"):
        return base64_of(f"{secret}~", int(how[-1]), url=False, padded=True)
    return "\u3164".join(secret) if how == "with fillers" else ENCODINGS[how](secret)


def plant(secret: str, written: str, piece: int, log: Shouted, *, cli: bool) -> None:
    """Plant it, and look for it everywhere."""
    said = as_written(secret, written)
    log.lines.clear()
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.db")
        asyncio.run(live(path, said, Secrets({"stripe": secret}), piece, out))
        if cli:
            for command in COMMANDS:
                words = [*command.format("r").split(), "--store", str(path)]
                result = CliRunner().invoke(app, words)
                assert result.exit_code in {0, 5}, result.output
                out.append(result.output)
        for file in filter(Path.is_file, Path(folder).rglob("*")):
            assert not found_in(file.read_bytes(), secret), file.name
    told = "\n".join(map(plain, out))
    assert HANDLE.search(told), "it was there, as a handle"
    assert not found_in(told, secret)
    assert not found_in("\n".join(log.lines), secret)


@settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(SECRET.map(lambda s: f"Zq{s[:20]}Kx"), WRITTEN, st.integers(1, 9))
def test_a_planted_secret_is_found_nowhere(
    log: Shouted, secret: str, written: str, piece: int
) -> None:
    plant(secret, written, piece, log, cli=False)


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(SECRET.map(lambda s: f"Zq{s[:20]}Kx"), WRITTEN, st.integers(1, 9))
def test_a_planted_secret_is_found_nowhere_in_many_forms(
    log: Shouted, secret: str, written: str, piece: int
) -> None:
    plant(secret, written, piece, log, cli=False)


def test_the_command_line_shows_nothing_of_it_either(log: Shouted) -> None:
    plant('Zq7/é+"canary 9Kx', "as it is", 3, log, cli=True)


@pytest.mark.parametrize("written", [*TWICE, "with fillers"])
def test_a_secret_that_was_encoded_twice_is_found_nowhere(log: Shouted, written: str) -> None:
    plant('Zq7/é+"canary 9Kx', written, 5, log, cli=written == TWICE[0])


def test_rows_in_memory_hold_nothing_of_it(log: Shouted) -> None:
    secret, store, out = "Zq7canary9Kx", InMemoryStore(), list[Any]()
    asyncio.run(live(store, secret, Secrets({"stripe": secret}), 2, out))
    assert not found_in(plain(out), secret)


def test_what_one_path_forgets_is_redacted_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret, store, out = "Zq7canary9Kx", InMemoryStore(), list[Any]()

    def forgets(flights: Flights) -> list[Any]:
        landed, flights._landed = flights._landed, []
        return landed

    monkeypatch.setattr(Flights, "landed", forgets)
    asyncio.run(live(store, secret, Secrets({"stripe": secret}), 2, out))
    assert HANDLE.search(plain(out)), "it was there, as a handle"
    assert not found_in(plain(out), secret)


def test_a_key_that_nobody_registered_is_found_nowhere_either(log: Shouted) -> None:
    out: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder, "c.db"), UNREGISTERED, Secrets(), 4, out))
        for file in filter(Path.is_file, Path(folder).rglob("*")):
            assert UNREGISTERED[:20].encode() not in file.read_bytes()
    assert UNREGISTERED[:20] not in "\n".join(map(plain, out))
    assert "[redacted github-token]" in json.dumps(plain(out))


def test_the_deltas_together_say_what_the_journal_says() -> None:
    secret = "Zq7canary9Kx"
    model = Slow([f"The key {secret} opens it."], 2)
    out: list[Any] = []

    async def go() -> str:
        async with Runtime(":memory:", [Agent("a", model)], secrets={"stripe": secret}) as rt:
            out.extend([what async for what in rt.stream_async("a", "go", id="r")])
            return (await rt.get_async("r")).text

    text = asyncio.run(go())
    assert "".join(d.text for d in out if not isinstance(d, Entry)) == text
    assert text.startswith("The key [[secret:stripe:")


def test_an_error_that_is_raised_to_the_caller_says_nothing_of_it() -> None:
    secret = "Zq7canary9Kx"

    def deps() -> None:
        raise RuntimeError(f"cannot connect with {secret}")

    @tool(effect="read")
    def look() -> str:
        return "x"

    agents = [Agent("a", Scripted([call("look")]), tools=[look])]
    with Runtime(":memory:", agents, deps=deps, secrets={"stripe": secret}) as rt:
        with pytest.raises(Exception, match="deps factory failed") as raised:
            rt.run("a", "go")
        error: BaseException | None = raised.value
        while error is not None:
            assert secret not in f"{error!r} {error}"
            error = error.__cause__ or error.__context__


def test_nothing_is_left_of_a_secret_that_a_long_result_was_cut_in() -> None:
    secret = "Zq7canary9Kx"

    @tool(effect="read", result_bytes=2_000)
    def long() -> str:
        return secret * 3_000

    @tool(effect="read")
    def fail() -> str:
        raise ValueError(secret * 1_000)

    model = Slow([[call("long"), call("fail")], secret * 1_000 + "cut", "done"], 500)

    async def go() -> str:
        agents = [Agent("a", model, tools=[long, fail])]
        async with Runtime(":memory:", agents, secrets={"stripe": secret}) as rt:
            run = await rt.run_async("a", secret * 1_000, id="r")
            return plain([run, await rt.trace_async("r"), *model.requests])

    assert "Zq7c" not in asyncio.run(go())


def test_an_outcome_that_comes_too_late_is_redacted_too() -> None:
    secret, gate = "Zq7canary9Kx", threading.Event()

    @tool(effect="write", timeout=0.05, result_bytes=2_000)
    def slow() -> str:
        gate.wait(10)
        return secret * 1_000

    async def go() -> str:
        agents = [Agent("a", Scripted([call("slow"), "done"]), tools=[slow])]
        allow = Policy(tools={"slow": "allow"})
        async with Runtime(":memory:", agents, policy=allow, secrets={"stripe": secret}) as rt:
            await rt.run_async("a", "go", id="r")
            gate.set()
            trace: list[Any] = []
            for _ in range(1_000):
                trace = await rt.trace_async("r")
                if any(isinstance(entry.event, ev.ToolLate) for entry in trace):
                    return plain(trace)
                await asyncio.sleep(0.005)
            raise AssertionError("it never came")

    told = asyncio.run(go())
    assert HANDLE.search(told)
    assert "Zq7c" not in told


def test_computed_instructions_that_hold_a_secret_are_written_once() -> None:
    secret, model = "Zq7canary9Kx", Slow([[call("look")], "done"], 5)

    @tool(effect="read")
    def look() -> str:
        return "x"

    agent = Agent("a", model, instructions=lambda _: f"The key is {secret}", tools=[look])
    with Runtime(":memory:", [agent], secrets={"stripe": secret}) as rt:
        rt.run("a", "go", id="r")
        asked = [e.event for e in rt.trace("r") if isinstance(e.event, ev.ModelRequested)]
    assert [len(event.blocks) for event in asked] == [1, 0]
    assert all("[[secret:stripe:" in request.system for request in model.requests)


def test_starting_the_same_task_again_is_the_same_run() -> None:
    secret = "Zq7canary9Kx"
    with Runtime(":memory:", [Agent("a", Scripted(["done"]))], secrets={"s": secret}) as rt:
        first = rt.run("a", f"use {secret}", id="r")
        assert rt.run("a", f"use {secret}", id="r") == first
