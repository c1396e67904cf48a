"""The manifest's total is what is sent, and a budget bounds what stands in the request for it."""

import asyncio
from typing import Any

import pytest
from tests.engine.kit import results

from cairn import Agent, ContextBlock, Limits, Runtime, Scripted, Source, call, memory_block, tool
from cairn.core.limits import estimate_tokens
from cairn.core.sizes import tokens_of

NOTE = 48
"""Tokens that the note on a result which is left out may have: it is sent whatever the budget."""


@tool(effect="read", sources=True)
def handbook(query: str) -> list[Source]:
    """Search the handbook."""
    if "fail" in query:
        raise RuntimeError("down")
    return [
        Source(uri="h#1", text="Within 14 days. " * 900),
        Source(uri="h#2", text="十四天内。" * 99),
    ]


@tool(effect="read")
def plain(query: str) -> str:
    """Search."""
    return "word " * 3_000


@tool(effect="read", taint=["web"])
def web(query: str) -> str:
    """Search."""
    return "word " * 3_000


def size(request: Any) -> int:
    head = estimate_tokens(request.system) if request.system else 0
    return head + sum(map(tokens_of, request.messages))


def ran(asked: str, *blocks: ContextBlock, **options: Any) -> tuple[Any, Any]:
    """The last request, and its manifest."""
    requests: list[Any] = []

    def model(request: Any) -> str:
        requests.append(request)
        return "done"

    async def main() -> Any:
        agent = Agent(
            "a",
            Scripted(model),
            instructions="Be kind.",
            tools=[handbook, plain, web],
            context=list(blocks),
            **options,
        )
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", asked, id="r")
            assert run.status == "completed", run.reason
            return await rt.context_async("r", run.steps)

    held = asyncio.run(main())
    return requests[-1], held


@pytest.mark.parametrize("name", ["handbook", "plain", "web"])
@pytest.mark.parametrize("over", ["cut", "out"])
@pytest.mark.parametrize("asked", ["tea?", "fail"])
@pytest.mark.parametrize("tokens", [1, 60, 3_000])
def test_the_total_of_a_manifest_is_what_is_sent_whatever_became_of_a_fed_block(
    name: str, over: Any, asked: str, tokens: int
) -> None:
    fed = ContextBlock("b", tool=name, arguments={"query": "$input"}, over=over, tokens=tokens)
    end = ContextBlock("now", "it is late", place="end")
    request, held = ran(asked, fed, end)
    assert held.tokens == size(request)
    assert held.tokens == sum(line.tokens for line in held.lines if line.sent)


def test_what_is_sent_in_place_of_a_block_that_is_out_has_a_line_of_its_own() -> None:
    given = {"tool": "handbook", "arguments": {"query": "$input"}}
    _, held = ran("fail", ContextBlock("b", **given))
    out, note = (line for line in held.lines if line.name.startswith("b"))
    assert (out.sent, out.tokens, out.hash) == (False, 0, "")
    assert "down" in out.why
    assert (note.name, note.source, note.sent) == ("b: call and note", "handbook, call c1", True)
    assert note.tokens > 16


@pytest.mark.parametrize("name", ["handbook", "plain", "web"])
@pytest.mark.parametrize("tokens", [1, 20, 60, 90, 120, 400, 2_000])
def test_the_budget_of_a_fed_block_bounds_its_result_with_the_note_and_marks_around_it(
    name: str, tokens: int
) -> None:
    fed = ContextBlock("b", tool=name, arguments={"query": "$input"}, tokens=tokens)
    request, _ = ran("tea?", fed)
    shown = results(request)["c1"]
    least = NOTE + (60 if name == "web" else 0)
    assert estimate_tokens(shown) <= max(tokens, least)


def test_the_total_counts_the_notes_on_what_is_left_out_and_on_a_summary() -> None:
    requests: list[Any] = []

    def model(request: Any) -> Any:
        requests.append(request)
        busy = "many" in str(request.messages[-1].parts) or request.messages[-1].role == "tool"
        return call("plain", query=f"{len(requests)}") if busy and len(requests) < 40 else "done"

    async def main() -> None:
        scripted = Scripted(model, window=8_000, max_output=500)
        limits = Limits(steps=200, no_progress=200)
        for history in (1, "all"):
            agent = Agent("a", scripted, tools=[plain], history=history, limits=limits)
            requests.clear()
            async with Runtime(":memory:", [agent]) as rt:
                await rt.send_async("s", "hello", agent="a")
                run = await rt.send_async("s", "many" if history == "all" else "and?")
                assert run.status == "completed", run.reason
                held = await rt.context_async(run.id, run.steps)
            assert held.tokens == size(requests[-1]), history
            wanted = "summary" if history == "all" else "left out note"
            assert wanted in [line.name for line in held.lines]

    asyncio.run(main())


@pytest.mark.parametrize("tokens", [60, 90, 120, 200])
def test_a_block_of_memory_has_no_more_tokens_than_it_was_given(tokens: int) -> None:
    agent = Agent(
        "a", Scripted(["done"]), context=[ContextBlock("memory", memory_block(tokens=tokens))]
    )
    with Runtime(":memory:", [agent]) as rt:
        for n in range(5):
            rt.remember(f"Tea number {n} is green.")
        rt.run("a", "Which tea is green?", id="r")
        (line,) = (line for line in rt.context("r", 1).lines if line.name == "memory")
    assert line.tokens <= tokens
    assert line.sent is (tokens >= 90)
