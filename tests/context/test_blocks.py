"""Named blocks: what a request holds beside the conversation, within its budget, and why."""

import asyncio

import pytest
from tests.engine.kit import Recorder, events, names, results

from cairn import Agent, ContextBlock, Limits, Policy, Runtime, Scripted, Source, call, tool
from cairn.core import events as ev
from cairn.core.context import END_NOTE
from cairn.errors import ConfigError, UnknownRun


def runtime(model, *, policy=None, **options):
    model = [model] * 9 if isinstance(model, str) else model
    script = model if hasattr(model, "request") else Scripted(model)
    more = {"policy": policy} if policy is not None else {}
    return Runtime(":memory:", [Agent("a", script, **options)], **more)


def test_blocks_stand_behind_the_instructions_in_the_order_they_were_given():
    async def main():
        model = Recorder("done")
        blocks = [ContextBlock("style", "Be brief."), ContextBlock("shop", "We sell tea.")]
        rt = runtime(Scripted(model), instructions="You help.", context=blocks)
        await rt.run_async("a", "hi")
        assert model.last.system == "You help.\n\nBe brief.\n\nWe sell tea."

    asyncio.run(main())


def test_a_block_at_the_end_comes_behind_the_last_message_and_is_no_part_of_the_history():
    async def main():
        model, told = Recorder(call("look"), "done"), iter(["noon", "one o'clock"])

        @tool(effect="read")
        def look() -> str:
            """Look."""
            return "seen"

        block = ContextBlock("time", lambda _: next(told), place="end")
        rt = runtime(Scripted(model), context=[block], tools=[look])
        await rt.run_async("a", "hi", id="r")
        ends = [request.messages[-1].parts[0].content for request in model.requests]
        assert ends == [f"{END_NOTE}\n\nnoon", f"{END_NOTE}\n\none o'clock"]
        assert len(model.requests[1].messages) == 4
        requested = events(await rt.trace_async("r"), ev.ModelRequested)
        assert [[b.text for b in event.blocks] for event in requested] == [
            ["noon"],
            ["one o'clock"],
        ]

    asyncio.run(main())


def test_only_what_changed_of_the_blocks_is_journaled():
    async def main():
        blocks = [ContextBlock("a", "same"), ContextBlock("b", lambda b: f"step {b.step}")]

        @tool(effect="read")
        def look() -> str:
            """Look."""
            return "seen"

        rt = runtime([call("look"), "done"], context=blocks, tools=[look])
        await rt.run_async("a", "hi", id="r")
        requested = events(await rt.trace_async("r"), ev.ModelRequested)
        assert [[b.name for b in event.blocks] for event in requested] == [["a", "b"], ["b"]]

    asyncio.run(main())


@pytest.mark.parametrize(("over", "sent"), [("cut", True), ("out", False)])
def test_a_block_over_its_budget_is_cut_or_left_out_and_the_manifest_says_so(over, sent):
    async def main():
        model = Recorder("done")
        block = ContextBlock("long", "word " * 500, tokens=50, over=over)
        rt = runtime(Scripted(model), context=[block])
        await rt.run_async("a", "hi", id="r")
        assert ("word" in model.last.system) is sent
        assert len(model.last.system) <= 50 * 4
        line = next(x for x in (await rt.context_async("r", 1)).lines if x.name == "long")
        assert line.sent is sent
        assert line.why == f"{over}: about 626 tokens, and 50 are allowed"

    asyncio.run(main())


def test_a_block_that_fails_is_left_out_and_a_needed_one_fails_the_run():
    def breaks(_):
        raise ValueError("no connection")

    async def main():
        model = Recorder("done")
        rt = runtime(Scripted(model), context=[ContextBlock("news", breaks)])
        run = await rt.run_async("a", "hi", id="r")
        assert run.status == "completed"
        (line, *_) = (await rt.context_async("r", 1)).lines
        assert (line.name, line.sent) == ("news", False)
        assert line.why == "failed: ValueError: no connection"
        rt = runtime("done", context=[ContextBlock("news", breaks, needed=True)])
        run = await rt.run_async("a", "hi")
        assert run.status == "failed"
        assert "no connection" in run.reason

    asyncio.run(main())


def test_a_computed_block_reads_the_persons_request():
    async def main():
        model = Recorder("done")

        async def echo(briefing):
            return f"{briefing.principal.id} asked {briefing.input!r}"

        rt = runtime(Scripted(model), context=[ContextBlock("echo", echo)])
        await rt.run_async("a", "where is it?", principal="ann")
        assert model.last.system == "ann asked 'where is it?'"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": "Bad Name", "text": "x"}, "ContextBlock.name"),
        ({"name": "x"}, "ContextBlock('x')"),
        ({"name": "x", "text": "y", "tool": "z"}, "ContextBlock('x')"),
        ({"name": "x", "text": 7}, "ContextBlock('x').text"),
        ({"name": "x", "text": "y", "tokens": 0}, "ContextBlock('x').tokens"),
        ({"name": "x", "text": "y", "tokens": True}, "ContextBlock('x').tokens"),
        ({"name": "x", "text": "y", "place": "middle"}, "ContextBlock('x').place"),
        ({"name": "x", "text": "y", "over": "burn"}, "ContextBlock('x').over"),
        ({"name": "x", "text": "y", "arguments": {}}, "ContextBlock('x').arguments"),
        ({"name": "x", "tool": "t", "arguments": {"a": object()}}, "ContextBlock('x').arguments"),
    ],
    ids=str,
)
def test_a_bad_block_is_refused_with_its_field(options, field):
    with pytest.raises(ConfigError) as caught:
        ContextBlock(**options)
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"context": ["text"]}, "context"),
        ({"context": [ContextBlock("a", "x"), ContextBlock("a", "y")]}, "context"),
        ({"context": [ContextBlock("instructions", "x")]}, "context"),
        ({"context": [ContextBlock("docs", tool="nowhere")]}, "tool"),
        ({"history": 0}, "history"),
        ({"history": "some"}, "history"),
        ({"history": True}, "history"),
        ({"tool_results": "none"}, "tool_results"),
        ({"tool_results": -1}, "tool_results"),
        ({"summary_model": 7}, "summary_model"),
    ],
    ids=str,
)
def test_a_bad_choice_of_an_agent_is_refused_with_its_field(options, field):
    with pytest.raises(ConfigError, match=field):
        Agent("a", Scripted(["x"]), **options)


# ---------------------------------------------------------------- fed before the first call


@tool(effect="read", sources=True)
def search_docs(query: str) -> list[Source]:
    """Search the handbook."""
    return [Source(uri="doc:tea", text=f"Tea is refunded within 14 days. ({query})")]


DOCS = ContextBlock("docs", tool="search_docs", arguments={"query": "$input"})


def test_a_block_is_fed_before_the_model_is_asked_as_a_step_whose_sources_can_be_cited():
    async def main():
        model = Recorder("Within 14 days [s1].")
        rt = runtime(Scripted(model), context=[DOCS], tools=[search_docs])
        run = await rt.run_async("a", "Refund of tea?", id="r")
        assert run.status == "completed"
        assert [c.source.uri for c in run.citations] == ["doc:tea"]
        entries = await rt.trace_async("r")
        assert names(entries)[1:4] == ["turn.fed", "tool.started", "tool.completed"]
        assert [e.step for e in entries[1:4]] == [1, 1, 1]
        assert "Tea is refunded within 14 days. (Refund of tea?)" in results(model.last)["c1"]
        assert run.steps == 2

    asyncio.run(main())


def test_a_feeding_call_passes_the_gate_like_any_other():
    async def main():
        model = Recorder("I could not look.")
        rt = runtime(
            Scripted(model),
            context=[DOCS],
            tools=[search_docs],
            policy=Policy(tools={"search_docs": "deny"}),
        )
        run = await rt.run_async("a", "Refund?", id="r")
        assert run.status == "completed"
        assert "tool.started" not in names(await rt.trace_async("r"))
        assert "not allowed" in results(model.last)["c1"]

    asyncio.run(main())


def test_a_feeding_call_may_wait_for_a_person_before_the_model_is_asked():
    async def main():
        model = Recorder("done")
        rt = runtime(
            Scripted(model),
            context=[DOCS],
            tools=[search_docs],
            policy=Policy(tools={"search_docs": "ask"}),
        )
        run = await rt.run_async("a", "Refund?", id="r")
        assert (run.status, model.requests) == ("waiting", [])
        await rt.approve_async(run.pending[0].id)
        assert (await rt.run_async("a", "Refund?", id="r")).status == "completed"

    asyncio.run(main())


def test_a_run_is_fed_once_however_often_it_is_interrupted_and_again_in_the_sessions_next_run():
    async def main():
        model = Recorder("one", "two")
        rt = runtime(lambda request: "ok", context=[DOCS], tools=[search_docs])
        await rt.run_async("a", "first?", id="r1", session="s")
        await rt.run_async("a", "second?", id="r2", session="s")
        assert model.requests == []
        for run, asked in (("r1", "first?"), ("r2", "second?")):
            fed = events(await rt.trace_async(run), ev.TurnFed)
            assert [part.arguments for event in fed for part in event.parts] == [
                f'{{"query":"{asked}"}}'
            ]

    asyncio.run(main())


# ---------------------------------------------------------------- the manifest


def test_the_manifest_names_every_piece_of_a_request_in_the_order_it_is_sent():
    async def main():
        @tool(effect="read")
        def look(n: int) -> str:
            """Look."""
            return "seen " * 60

        rt = runtime(
            Scripted(
                lambda r: call("look", n=r.turn) if r.turn < 90 else "done",
                window=6_000,
                max_output=500,
            ),
            instructions="You help.",
            context=[ContextBlock("now", lambda b: f"step {b.step}", place="end")],
            tools=[look],
            limits=Limits(steps=1_000, calls=1_000, no_progress=1_000),
        )
        run = await rt.run_async("a", "Look at many.", id="r")
        assert run.status == "completed"
        found = await rt.context_async("r", run.steps)
        assert [line.name for line in found.lines] == [
            "instructions",
            "earlier messages",
            "summary",
            "request",
            "history",
            "now",
        ] or [line.name for line in found.lines][:4] == [
            "instructions",
            "earlier messages",
            "summary",
            "request",
        ]
        out = [line for line in found.lines if not line.sent]
        assert [line.name for line in out] == ["earlier messages"]
        assert out[0].why.startswith("condensed in event ")
        assert all(len(line.hash) == 12 for line in found.lines if line.sent)
        assert found.tokens == sum(line.tokens for line in found.lines if line.sent)
        with pytest.raises(UnknownRun, match="made no model request in step 10000"):
            await rt.context_async("r", 10_000)

    asyncio.run(main())


def test_the_beginning_of_a_request_stays_byte_for_byte_the_same_from_turn_to_turn():
    async def main():
        @tool(effect="read")
        def look(n: int) -> str:
            """Look."""
            return "seen"

        script = [*(call("look", n=n) for n in range(6)), "done"]
        rt = runtime(
            script,
            instructions="You help. " * 100,
            context=[ContextBlock("now", lambda b: f"step {b.step}", place="end")],
            tools=[look],
        )
        run = await rt.run_async("a", "Look.", id="r")
        shares = [(await rt.context_async("r", step)).unchanged for step in range(1, run.steps + 1)]
        assert shares[0] == 1.0
        assert all(share > 0.8 for share in shares)
        still = runtime(script, instructions="You help. " * 100, tools=[look])
        run = await still.run_async("a", "Look.", id="r")
        shares = [
            (await still.context_async("r", step)).unchanged for step in range(1, run.steps + 1)
        ]
        assert shares == [1.0] * run.steps

    asyncio.run(main())
