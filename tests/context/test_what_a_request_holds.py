"""What a request holds is what its manifest says: tools, summaries of earlier runs, blocks."""

import asyncio

import pytest
from tests.engine.kit import Recorder, events

from cairn import (
    Agent,
    ContextBlock,
    Limits,
    Narrow,
    Policy,
    Rule,
    Runtime,
    Scripted,
    before_model,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.events.model import NO_TOOLS
from cairn.core.policy import Equals
from cairn.core.summaries import SECTIONS
from cairn.engine.load import load

ENDLESS = Limits(steps=500, calls=500, no_progress=500)
HEADS = "\n".join(f"## {name}\nNone" for name in SECTIONS)


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: " + "and so on. " * 60


# ---------------------------------------------------------------- tools on offer


def test_a_request_without_tools_after_one_with_tools_is_told_as_one_without() -> None:
    turns = {2: (), 3: ("look",), 4: ()}

    @before_model
    async def narrows(request):
        wanted = turns.get(request.step)
        return None if wanted is None else Narrow(list(wanted))

    async def main():
        script = [call("look", n=1), "one"]
        model = Recorder(*script, "two")
        agent = Agent("a", Scripted(model), tools=[look], hooks=[narrows])
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "Look.", id="r")
        assert run.status == "completed"
        first, second = events(await rt.trace_async("r"), ev.ModelRequested)
        assert len(model.requests[0].tools) > 1
        assert model.requests[1].tools == ()
        assert (first.tools not in {"", NO_TOOLS}, second.tools) == (True, NO_TOOLS)
        one, two = [await rt.context_async("r", step) for step in (1, 2)]
        assert (one.tools, two.tools) == (first.tools, "")
        assert (await load(rt.store, "r")).tools == ""
        assert two.unchanged < 1, "the tools stand at the beginning, and they are gone"
        again = await rt.replay_async("r")
        assert again.same

    asyncio.run(main())


def test_a_run_that_never_offers_tools_journals_nothing_about_them() -> None:
    async def main():
        rt = Runtime(":memory:", [Agent("a", Scripted(["done"]), builtins=())])
        await rt.run_async("a", "Go.", id="r")
        assert events(await rt.trace_async("r"), ev.ModelRequested)[0].tools == ""

    asyncio.run(main())


def named(name, effect):
    def do(x: str) -> str:
        return x

    do.__doc__ = "It is about the weather."
    return tool(name=name, effect=effect)(do)


def many():
    """More tools than are all offered: reads and writes about the same things."""
    reads = [named(f"read_weather_{n}", "read") for n in range(15)]
    writes = [named(f"set_weather_{n}", "write") for n in range(15)]
    return [*writes, *reads]


def found_by(kind="operate", policy=None, own=None, asked="refund?", **options):
    """What `find_tools` finds about the weather, and what is offered at first."""

    def model(request):
        if request.turn == 0:
            offered.update(t.name for t in request.tools if "weather" in t.name)
            return call("find_tools", query="weather", limit=20)
        result = next(p for m in request.messages for p in m.parts if hasattr(p, "result"))
        found.append(result.result)
        return "done"

    found, offered = [], set()

    async def main():
        agent = Agent("a", Scripted(model), tools=many(), policy=own)
        rt = Runtime(":memory:", [agent], policy=policy or Policy())
        run = await rt.run_async("a", asked, id="r", kind=kind, **options)
        assert run.status == "completed", run.reason
        last = events(await rt.trace_async("r"), ev.ToolsOffered)[-1]
        return {name for name in last.names if name in found[0]}

    return asyncio.run(main()), offered


def test_who_looks_for_tools_in_a_query_finds_those_that_only_read() -> None:
    names, _ = found_by("query")
    assert names
    assert all(name.startswith("read_") for name in names)
    names, _ = found_by("operate", asked="set it")
    assert any(name.startswith("set_") for name in names)


def test_a_query_about_writes_is_offered_reads_at_first() -> None:
    _, offered = found_by("query", asked="set the weather")
    assert len(offered) == 12
    assert all(name.startswith("read_") for name in offered)


@pytest.mark.parametrize(
    "policies",
    [
        {"policy": Policy(effects={"write": "deny"})},
        {"own": Policy(effects={"write": "deny"})},
        {"policy": Policy(rules=(Rule(name="none", decide="deny", tools=("set_*",)),))},
        {"policy": Policy(agents={"a": Policy(effects={"write": "deny"})})},
    ],
    ids=["deployment", "agent", "rule", "part"],
)
def test_no_tool_is_found_that_the_policy_denies_whatever_it_is_called_with(policies) -> None:
    names, offered = found_by(asked="set the weather", **policies)
    assert not any(name.startswith("set_") for name in (*names, *offered))


class Own(Policy):
    """A policy in code: what it says is known only of a call."""

    def judge(self, tool, effect, arguments):
        assert arguments, "it is asked without a call"
        return super().judge(tool, effect, arguments)


def some(decide):
    """A rule about some arguments of what sets the weather."""
    return Rule(name="s", decide=decide, tools=("set_*",), arguments={"x": Equals(value="Rome")})


@pytest.mark.parametrize(
    "policy",
    [
        Policy(effects={"write": "deny"}, rules=(some("ask"),)),
        Policy(rules=(some("deny"),)),
        Own(),
    ],
    ids=["some are asked about", "some are denied", "a policy in code"],
)
def test_a_tool_that_may_be_called_with_some_arguments_is_found(policy) -> None:
    names, _ = found_by(asked="refund?", policy=policy)
    assert any(name.startswith("set_") for name in names)


# ---------------------------------------------------------------- summaries of earlier runs


def test_the_manifest_names_the_run_in_which_something_was_condensed() -> None:
    def model(request):
        return call("look", n=request.turn) if request.turn < 30 else "done"

    async def main():
        small = Scripted(model, window=6_000, max_output=500)
        agent = Agent("a", small, tools=[look], limits=ENDLESS, summary_model=None)
        rt = Runtime(":memory:", [agent])
        await rt.run_async("a", "Look at many.", id="r1", session="s")
        last = [e for e in await rt.trace_async("r1") if isinstance(e.event, ev.ContextCompacted)]
        await rt.run_async("a", "And now?", id="r2", session="s")
        held = await rt.context_async("r2", 1)
        place = f"event {last[-1].seq} of run r1"
        out = next(line for line in held.lines if not line.sent)
        assert out.why == f"condensed in {place}"
        assert next(line for line in held.lines if line.name == "summary").source == place
        entries = await rt.trace_async("r2")
        own = next(e for e in entries if isinstance(e.event, ev.ContextCompacted))
        after = next(e.step for e in entries if e.seq > own.seq and e.step)
        held = await rt.context_async("r2", after)
        out = next(line for line in held.lines if not line.sent)
        assert out.why == f"condensed in event {own.seq} of run r2"

    asyncio.run(main())


# ---------------------------------------------------------------- computed blocks


def chat(block, window=2_400, summary=None, asked="Hello. " + "word " * 600, **options):
    """One run of an agent with a small window and a computed block; its events."""

    async def main():
        model = Scripted(lambda _: "Well.", window=window, max_output=300)
        agent = Agent("a", model, context=[block], builtins=(), summary_model=summary, **options)
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", asked, id="r")
        return run, await rt.trace_async("r"), await rt.replay_async("r")

    return asyncio.run(main())


def test_a_short_computed_block_takes_no_more_room_than_its_text() -> None:
    short = ContextBlock("hours", lambda briefing: "Until six.", place="end")
    run, entries, again = chat(short)
    assert run.status == "completed", run.reason
    (asked,) = events(entries, ev.ModelRequested)
    none = ContextBlock("hours", "Until six.", place="end")
    _, plain, _ = chat(none)
    (other,) = events(plain, ev.ModelRequested)
    assert abs(asked.reserved.input_tokens - other.reserved.input_tokens) <= 4
    assert again.same
    assert again.changes == ()


def test_a_long_computed_block_is_reserved_as_it_is_and_no_longer_than_its_budget() -> None:
    def reserved(letters, tokens=500):
        block = ContextBlock("list", lambda briefing: "a" * letters, tokens=tokens)
        _, entries, again = chat(block, window=8_000)
        assert again.changes == ()
        return events(entries, ev.ModelRequested)[0].reserved.input_tokens

    none, some, most = reserved(4), reserved(1_000), reserved(40_000)
    assert 250 <= some - none <= 250 * 1.3 + 5
    assert 450 <= most - none <= 500 * 1.3 + 5


def test_a_block_that_leaves_no_room_ends_the_run_at_the_window_and_is_in_the_journal() -> None:
    block = ContextBlock("list", lambda briefing: "a" * 8_000)
    run, entries, again = chat(block)
    assert (run.status, run.limit) == ("stopped", "window")
    (told,) = events(entries, ev.ContextUpdated)
    assert [(b.name, b.tokens) for b in told.blocks] == [("list", 2_000)]
    assert events(entries, ev.ModelRequested) == []
    assert again.same, "the same is decided again, of the same blocks"


@pytest.mark.parametrize("summary", ["rule", "model"])
def test_what_grows_is_made_room_for_and_the_request_stays_in_the_window(summary) -> None:
    sizes = []

    def growing(briefing):
        return "b" * (40 * briefing.step if briefing.step < 60 else 40)

    def model(request):
        text = "".join(getattr(p, "content", "") for m in request.messages for p in m.parts)
        held = sum(len(getattr(p, "result", "")) for m in request.messages for p in m.parts)
        sizes.append((len(text) + held) // 4 + request.max_output)
        return call("look", n=request.turn) if request.turn < 80 else "done"

    async def main():
        small = Scripted(model, window=6_000, max_output=500)
        scribe = Scripted(lambda _: HEADS, name="scribe", summarises=True)
        block = ContextBlock("list", growing, place="end", tokens=3_000)
        agent = Agent(
            "a",
            small,
            tools=[look],
            context=[block],
            limits=ENDLESS,
            summary_model=scribe if summary == "model" else None,
        )
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "Look at all.", id="r")
        assert run.status == "completed", run.reason
        assert max(sizes) <= 6_000
        entries = await rt.trace_async("r")
        by = {event.by for event in events(entries, ev.ContextCompacted)}
        assert by == {summary}
        again = await rt.replay_async("r")
        assert again.same, again.divergence
        last = max(e.step for e in entries)
        held = await rt.context_async("r", last)
        assert next(line for line in held.lines if line.name == "list").tokens == 11

    asyncio.run(main())


def test_computed_instructions_count_too() -> None:
    def long(briefing):
        return "c" * 8_000

    async def main():
        model = Scripted(lambda _: "Well.", window=2_400, max_output=300)
        rt = Runtime(":memory:", [Agent("a", model, instructions=long, builtins=())])
        run = await rt.run_async("a", "Hello. " + "word " * 600, id="r")
        assert (run.status, run.limit) == ("stopped", "window")

    asyncio.run(main())


def test_blocks_that_are_too_much_for_the_first_model_take_the_request_to_a_larger_one() -> None:
    async def main():
        small = Scripted(lambda _: "Small.", window=2_400, max_output=300, name="small")
        large = Scripted(lambda _: "Large.", window=20_000, max_output=300, name="large")
        block = ContextBlock("list", lambda briefing: "a" * 8_000)
        agent = Agent("a", small, fallback_models=[large], context=[block], builtins=())
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "Hello. " + "word " * 600, id="r")
        assert (run.status, run.text) == ("completed", "Large.")
        entries = await rt.trace_async("r")
        assert [e.model for e in events(entries, ev.ModelRequested)] == ["large"]
        assert events(entries, ev.ContextUpdated) == []
        assert (await rt.replay_async("r")).same

    asyncio.run(main())
