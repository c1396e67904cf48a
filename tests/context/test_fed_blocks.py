"""Blocks that a tool feeds: their options hold, and the manifest and the trace tell of them."""

import asyncio
import json

import pytest
from tests.engine.kit import Recorder, events, results

from cairn import (
    Agent,
    ContextBlock,
    NotDone,
    Policy,
    Runtime,
    Scripted,
    Source,
    ToolError,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.limits import estimate_tokens
from cairn.core.views import timeline
from cairn.errors import ConfigError


@tool(effect="read")
def docs(query: str) -> str:
    """Search."""
    return f"{query}: " + "word " * 400 + "THE END"


@tool(effect="read", sources=True)
def cited(query: str) -> list[Source]:
    """Search."""
    return [Source(uri=f"doc:{n}", text="word " * 200) for n in range(6)]


@tool(effect="read")
def broken(query: str = "") -> str:
    """Search."""
    raise ToolError("the index is gone")


@tool(effect="write")
def book(room: str) -> str:
    """Book a room."""
    return "booked"


def block(name="docs", *, tool="docs", arguments=None, **options):
    arguments = {"query": "$input"} if arguments is None else arguments
    return ContextBlock(name, tool=tool, arguments=arguments, **options)


def ran(*script, policy=None, kind="operate", **options):
    """What the model was sent, the run, and its journal."""

    async def main():
        model = Recorder(*script)
        tools = [docs, cited, broken, book]
        agent = Agent("a", Scripted(model), tools=tools, kind=kind, **options)
        more = {"policy": policy} if policy is not None else {}
        async with Runtime(":memory:", [agent], **more) as rt:
            run = await rt.run_async("a", "tea", id="r")
            entries = await rt.trace_async("r")
            step = run.steps
            held = await rt.context_async("r", step) if model.requests else None
            return model, run, entries, held

    return asyncio.run(main())


def line_of(held, name):
    return next(line for line in held.lines if line.name == name)


def test_what_feeds_a_block_is_shortened_to_its_budget_and_can_be_read_whole():
    model, run, entries, held = ran(
        call("read_artifact", id="a1"), "done", context=[block(tokens=120)]
    )
    shown = results(model.requests[0])["c1"]
    assert estimate_tokens(shown) <= 120
    assert 'read_artifact("a1")' in shown
    assert shown.startswith("tea: word")
    (made,) = events(entries, ev.ArtifactCreated)
    assert made.content.endswith("THE END")
    assert "word word" in results(model.last)["c2"]
    assert (run.status, run.degraded) == ("completed", ())
    assert line_of(held, "docs").sent
    assert line_of(held, "docs").why.startswith("cut: about ")


def test_what_feeds_a_block_is_left_out_when_it_is_too_long_and_the_block_says_so():
    model, run, _, held = ran("done", context=[block(tokens=120, over="out")])
    shown = results(model.last)["c1"]
    assert "word word" not in shown
    assert 'read_artifact("a1")' in shown
    assert run.status == "completed"
    assert not line_of(held, "docs").sent
    assert line_of(held, "docs").why.endswith("and 120 are allowed")


@pytest.mark.parametrize("tokens", [90, 200, 700])
def test_sources_that_feed_a_block_keep_its_budget_and_can_still_be_cited(tokens):
    model, run, _, _ = ran("So it is [s1].", context=[block(tool="cited", tokens=tokens)])
    shown = results(model.last)["c1"]
    assert estimate_tokens(shown) <= tokens
    assert 'read_artifact("a1")' in shown
    assert [c.source.uri for c in run.citations] == ["doc:0"]


def test_what_fits_its_block_is_sent_as_it_is():
    model, _, entries, held = ran("done", context=[block()])
    assert results(model.last)["c1"].endswith("THE END")
    assert events(entries, ev.ArtifactCreated) == []
    assert line_of(held, "docs").why == ""


def test_a_needed_block_that_is_too_long_to_be_fed_ends_the_run():
    _, run, _, _ = ran("done", context=[block(tokens=50, over="out", needed=True)])
    assert (run.status, run.error_class) == ("failed", "dependency_failed")
    assert "context block docs" in run.reason


DENIED = Policy(tools={"docs": "deny"})


@pytest.mark.parametrize(
    ("given", "options", "error_class"),
    [
        (block(tool="broken", needed=True), {}, "dependency_failed"),
        (block(needed=True), {"policy": DENIED}, "permission_denied"),
        (
            block(tool="book", arguments={"room": "Elm"}, needed=True),
            {"kind": "query"},
            "permission_denied",
        ),
    ],
    ids=["fails", "denied", "a write in a query"],
)
def test_a_needed_block_that_cannot_be_fed_ends_the_run_and_names_block_and_tool(
    given, options, error_class
):
    model, run, _, _ = ran("done", context=[given], **options)
    assert (run.status, run.error_class) == ("failed", error_class)
    assert f"the context block docs is needed, and {given.tool} (c1)" in run.reason
    assert model.requests == []


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (block(tool="broken"), {}),
        (block(), {"policy": DENIED}),
        (block(tool="book", arguments={"room": "Elm"}), {"kind": "query"}),
    ],
    ids=["fails", "denied", "a write in a query"],
)
def test_a_run_goes_on_without_a_block_that_is_not_needed_and_is_degraded(given, options):
    _, run, _, held = ran("done", context=[given], **options)
    assert run.status == "completed"
    assert "block:docs" in run.degraded
    assert not line_of(held, "docs").sent
    assert line_of(held, "docs").why


def test_a_person_who_denies_what_a_needed_block_is_fed_with_ends_the_run():
    async def main():
        agent = Agent("a", Scripted(["done"]), tools=[docs], context=[block(needed=True)])
        policy = Policy(tools={"docs": "ask"})
        async with Runtime(":memory:", [agent], policy=policy) as rt:
            run = await rt.run_async("a", "tea", id="r")
            await rt.deny_async(run.pending[0].id, "no")
            run = await rt.resume_async("r")
            assert (run.status, run.error_class) == ("failed", "permission_denied")
            assert "docs (c1)" in run.reason

    asyncio.run(main())


def test_the_manifest_names_what_was_fed_and_the_trace_says_fed():
    _, _, entries, held = ran("done", context=[block(), block("more", tool="cited")])
    docs_line, more = line_of(held, "docs"), line_of(held, "more")
    assert docs_line.source == "docs, call c1"
    assert more.source == "cited, call c2"
    assert docs_line.sent
    assert docs_line.hash
    assert [line.name for line in held.lines] == ["input", "docs", "more"]
    assert held.tokens == sum(line.tokens for line in held.lines)
    first, second = timeline(entries, "r").steps
    assert (first.status, first.fed) == ("completed", ("docs", "more"))
    assert (second.status, second.fed) == ("completed", ())


def test_what_was_fed_and_is_condensed_by_now_is_told_as_left_out():
    @tool(effect="read")
    def look(n: int) -> str:
        """Look."""
        return "seen " * 60

    async def main():
        script = Scripted(
            lambda r: call("look", n=r.turn) if r.turn < 60 else "done",
            window=6_000,
            max_output=500,
        )
        limits = {"steps": 200, "calls": 500, "no_progress": 200}
        agent = Agent("a", script, tools=[docs, look], context=[block(tokens=50)], limits=limits)
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", "tea", id="r")
            held = await rt.context_async("r", run.steps)
            assert line_of(held, "docs").why.startswith("condensed in event ")
            assert not line_of(held, "docs").sent

    asyncio.run(main())


def test_a_journal_that_does_not_name_the_blocks_still_reads():
    old = ev.TurnFed(parts=())
    assert old.blocks == ()
    assert ev.ToolCompleted(call="c1").why == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"qurey": "$input"}, "there is no argument 'qurey'; did you mean query?"),
        ({}, "query is missing"),
        ({"query": 7}, "do not fit"),
    ],
    ids=["misspelt", "missing", "another type"],
)
def test_arguments_that_the_tool_cannot_take_are_refused_at_once(arguments, said):
    with pytest.raises(ConfigError) as caught:
        Agent("a", Scripted(["x"]), tools=[docs], context=[block(arguments=arguments)])
    assert "context['docs'].arguments" in str(caught.value)
    assert said in str(caught.value)


def test_a_place_that_a_tools_result_cannot_have_is_refused():
    with pytest.raises(ConfigError, match=r"place.*Leave place out"):
        block(place="end")


def test_only_the_whole_word_stands_for_the_request():
    arguments = {"query": "$inputs $input. $input_x 关于$input的"}
    _, _, entries, _ = ran("done", context=[block(arguments=arguments)])
    (fed,) = events(entries, ev.TurnFed)
    assert json.loads(fed.parts[0].arguments) == {"query": "$inputs tea. $input_x 关于tea的"}
    assert fed.blocks == ("docs",)


def test_a_tool_that_says_it_did_nothing_degrades_as_one_that_fails():
    @tool(effect="read")
    def away() -> str:
        """Look."""
        raise NotDone("closed")

    async def main():
        given = ContextBlock("news", tool="away")
        agent = Agent("a", Scripted(["done"]), tools=[away], context=[given])
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", "tea", id="r")
            assert (run.status, run.degraded) == ("completed", ("block:news",))

    asyncio.run(main())


@tool(effect="read")
def shelf(n: int, share: float, old: bool, rooms: list[str], word: str = "") -> str:
    """Look at a shelf."""
    return "books"


FITTING = {"n": "$input", "share": "0.$input", "old": "$input", "rooms": [], "word": "no $input"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": "no $input"}, "n takes no text like 'no $input'"),
        ({"share": "$input %"}, "share takes no text like '$input %'"),
        ({"old": "not $input"}, "old takes no text like 'not $input'"),
        ({"rooms": "$input"}, "rooms takes no text like '$input'"),
    ],
)
def test_a_text_that_no_request_makes_a_value_of_the_argument_is_refused_at_once(wrong, said):
    def made(arguments):
        block = ContextBlock("shelf", tool="shelf", arguments=arguments)
        return Agent("a", Scripted([]), tools=[shelf], context=[block])

    made(FITTING)
    with pytest.raises(ConfigError) as refused:
        made(FITTING | wrong)
    assert said in str(refused.value)
