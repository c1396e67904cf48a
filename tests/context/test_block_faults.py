"""What a block cannot give is said: in the manifest, in the end of the run, or at construction."""

import asyncio

import pytest
from tests.engine.kit import Recorder, events

from cairn import Agent, ContextBlock, HookRequest, Intake, Runtime, Scripted, before_model, tool
from cairn import call as calls
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.commands import accept
from cairn.core.compaction import summary_faults
from cairn.core.context import faults, messages_of
from cairn.core.gist import Gist, extended, marks_in
from cairn.core.intake import CHOSEN
from cairn.core.messages import CallPart, Message, user
from cairn.core.rules import FIND, ModelSpec
from cairn.core.state import RunState, add_request
from cairn.core.summaries import SECTIONS
from cairn.engine.load import load
from cairn.errors import ConfigError, IllegalTransition, Refused


def ran(*blocks):
    """A run with these blocks, and the manifest of its first request if it made one."""

    async def main():
        model = Recorder("done")
        async with Runtime(":memory:", [Agent("a", Scripted(model), context=blocks)]) as rt:
            run = await rt.run_async("a", "hi", id="r")
            held = await rt.context_async("r", 1) if model.requests else None
            return run, held

    return asyncio.run(main())


def breaks(_):
    raise ValueError("no connection")


def test_a_needed_block_that_fails_is_named_in_the_end_of_the_run():
    run, _ = ran(ContextBlock("news", breaks, needed=True))
    assert (run.status, run.error_class) == ("failed", "dependency_failed")
    assert "the context block news is needed: failed: ValueError: no connection" in run.reason


def test_a_function_that_returns_none_leaves_its_block_out_unless_it_is_needed():
    run, held = ran(ContextBlock("news", lambda _: None))
    assert run.status == "completed"
    (line,) = [each for each in held.lines if each.name == "news"]
    assert (line.sent, line.why) == (False, "it returned None")
    run, _ = ran(ContextBlock("news", lambda _: None, needed=True))
    assert (run.status, run.error_class) == ("failed", "dependency_failed")
    assert "news is needed: it returned None" in run.reason


@pytest.mark.parametrize("given", [7, b"text", ["a", "b"], {"a": 1}], ids=repr)
def test_a_function_that_returns_no_text_is_refused_and_its_block_named(given):
    run, _ = ran(ContextBlock("news", lambda _: given))
    assert (run.status, run.error_class) == ("failed", "dependency_failed")
    assert f"ContextBlock('news').text: its function returned {type(given).__name__}" in run.reason
    assert "Return a text, or None to leave the block out" in run.reason


def test_instructions_that_are_no_text_are_named_with_the_agent_in_the_end_of_the_run():
    with Runtime(":memory:", [Agent("a", Scripted(["x"]), instructions=lambda _: 7)]) as rt:
        run = rt.run("a", "hi")
    assert (run.status, run.error_class) == ("failed", "internal")
    assert "Agent('a').instructions: its function returned int, which is no text" in run.reason


def test_an_empty_text_is_told_as_left_out():
    run, held = ran(ContextBlock("news", lambda _: ""))
    assert run.status == "completed"
    (line,) = [each for each in held.lines if each.name == "news"]
    assert (line.sent, line.why) == (False, "it is empty")


@pytest.mark.parametrize("text", ["word " * 500, lambda _: "word " * 500], ids=["text", "function"])
def test_a_needed_block_that_is_left_out_as_too_long_ends_the_run(text):
    run, _ = ran(ContextBlock("law", text, tokens=50, over="out", needed=True))
    assert (run.status, run.error_class) == ("failed", "dependency_failed")
    assert "the context block law is needed: out: about 626 tokens" in run.reason


NAMES = ("input", "history", "summary", "request", "instructions", "skills")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_the_manifest_uses_is_reserved(name):
    with pytest.raises(ConfigError, match="context"):
        Agent("a", Scripted(["x"]), context=[ContextBlock(name, "x")])


@tool(effect="read")
def search(query: str) -> str:
    """Search."""
    return query


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ContextBlock("h", ""), "its text is empty"),
        (lambda: ContextBlock("h", "x", tokens="200"), "whole number of 1 or more, as tokens=200"),
        (lambda: ContextBlock("h", tool=search), "Give tool='search'"),
        (lambda: ContextBlock("h", "x", needed="no"), "True or False"),
    ],
)
def test_what_is_wrong_with_a_block_is_said_with_the_fix(make, said):
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)


# ---------------------------------------------------------------- hooks, beside the turns


def test_hooks_see_what_is_asked_beside_the_turns_and_have_nothing_to_narrow_there():
    async def main():
        seen: list[HookRequest] = []

        @before_model
        def see(request):
            seen.append(request)
            if request.purpose != "turn":
                raise ValueError("seen")

        @tool(effect="read")
        def look(n: int) -> str:
            """Look."""
            return "and so on " * 60

        def work(request):
            return calls("look", n=request.turn) if request.turn < 30 else "done"

        heads = "\n".join(f"## {name}\nNone" for name in SECTIONS)
        agent = Agent(
            "a",
            Scripted(work, window=6_000, max_output=500),
            tools=[look],
            summary_model=Scripted(lambda _: heads, name="scribe", window=60_000),
            intake=Intake(model=Scripted(lambda _: "operate", name="sorter")),
            hooks=[see],
            limits={"steps": 200, "no_progress": 200},
        )
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", "Look at many.", id="r")
            assert run.status == "completed"
            entries = await rt.trace_async("r")
        made = [event.purpose for event in events(entries, ev.ModelRequested)]
        assert [request.purpose for request in seen] == made
        assert set(made) == {"turn", "summary", "classify"}
        beside = [request for request in seen if request.purpose != "turn"]
        assert {request.tools for request in beside} == {()}
        assert {request.model for request in beside} == {"scribe", "sorter"}
        assert "Look at many." in beside[0].messages[0].parts[0].content
        raised = events(entries, ev.ErrorRaised)
        assert [fault.where for fault in raised] == ["hook:see"] * len(beside)

    asyncio.run(main())


# ---------------------------------------------------------------- taking a compaction back


def test_a_compaction_can_be_taken_back_while_a_call_waits_for_a_person():
    async def main():
        @tool(effect="read")
        def look(n: int) -> str:
            """Look."""
            return "and so on " * 60

        @tool(effect="write")
        def pay(cents: int) -> str:
            """Pay."""
            return "paid"

        def work(request):
            if request.turn < 30:
                return calls("look", n=request.turn)
            return calls("pay", cents=5) if request.turn == 30 else "done"

        limits = {"steps": 200, "no_progress": 200}
        scripted = Scripted(work, window=6_000, max_output=500)
        agent = Agent("a", scripted, tools=[look, pay], limits=limits)
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", "Look at many.", id="r")
            assert run.status == "waiting"
            before = (await load(rt.store, "r")).view.start
            await rt.restore_context_async("r")
            state = await load(rt.store, "r")
            assert state.view.start < before
            await rt.approve_async(run.pending[0].id)
            run = await rt.resume_async("r")
            assert run.status == "completed"
            assert faults(messages_of(await load(rt.store, "r"))) == []
            with pytest.raises(IllegalTransition, match=r"run r is over \(completed\)"):
                await rt.restore_context_async("r")

    asyncio.run(main())


def test_a_compaction_is_not_taken_back_under_a_request_that_was_made_of_it():
    from cairn.core.state import Condensed
    from cairn.core.view import View

    before = Condensed(seq=3, view=View(), summary="", by_model=False, gist=Gist())
    asked = ev.ModelRequested(model="m", reserved=None)  # type: ignore[arg-type]  # of no interest
    state = RunState(run="r", compactions=(before,), request=asked)
    with pytest.raises(Refused, match="try again when the reply is there"):
        accept(state, cmd.Restore(), 0)


# ---------------------------------------------------------------- paths, headings, tools


@pytest.mark.parametrize(
    "path",
    [
        "/etc/foo",
        "/etc/foo/",
        "~/x",
        "~ann/x.txt",
        "./rel",
        "../up/rel",
        "src/cairn/x.py",
        "C:\\tmp\\a",
        "C:/data/a",
        "\\\\srv\\share\\f.txt",
        "/srv/jürgen/x.txt",
        "file:///etc/x",
        f"/srv/{'0a' * 40}/{'b' * 90}",
    ],
)
def test_paths_are_kept_from_their_beginning_to_their_end(path):
    for text in (path, f"look at {path}, please", f"请打开 {path} 然后", f'"{path}"'):
        assert path in marks_in(text)


def test_paths_in_the_arguments_of_a_call_are_kept_without_the_escapes_of_json():
    said = Message(
        role="assistant",
        parts=(
            CallPart(id="c1", name="f", arguments='{"a":["C:\\\\tmp\\\\a",{"b":"x\\n/etc/b"}]}'),
        ),
    )
    gist = extended(Gist(), [user("do"), said], [0], 2)
    assert gist.marks == ("C:\\tmp\\a", "/etc/b")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["/", "a", "a/", "\\", "a\\", "~", ".", "C:\\", "a@", "-", "a" * 129 + "/", "a://"]
)
def test_no_text_takes_long_to_be_searched_for_paths(text):
    for _ in range(20):
        marks_in(text * 20_000)


@pytest.mark.parametrize("form", ["{}", "{}:", "**{}**", "## {}"])
def test_headings_of_a_summary_may_be_plain_lines(form):
    state = add_request(RunState(run="r"), user("word " * 900))
    lines = [f"{form.format(name)}\nNone" for name in SECTIONS]
    assert summary_faults(state, "\n".join(lines), 1, ModelSpec(name="m")) == ""
    wrong = summary_faults(state, "\n".join(lines[1:]), 1, ModelSpec(name="m"))
    assert "lacks the headings Goal" in wrong
    assert "a line of its own" in wrong


def test_a_heading_in_the_middle_of_a_line_is_none():
    state = add_request(RunState(run="r"), user("word " * 900))
    text = "; ".join(f"{name}: None" for name in SECTIONS)
    assert "lacks the headings" in summary_faults(state, text, 1, ModelSpec(name="m"))


def many(count, effect):
    def make(n):
        @tool(effect=effect, name=f"{effect}_zebra_{n}")
        def one() -> str:
            """Zebra."""
            return "done"

        return one

    return [make(n) for n in range(count)]


@pytest.mark.parametrize(("kind", "effect"), [("operate", "write"), ("query", "read")])
def test_of_many_tools_some_and_the_search_are_offered_even_if_none_fits_the_request(kind, effect):
    async def main():
        model = Recorder("done")
        tools = [*many(30, "write"), *many(30, "read")]
        agent = Agent("a", Scripted(model), tools=tools, builtins=(), kind=kind)
        async with Runtime(":memory:", [agent]) as rt:
            assert (await rt.run_async("a", "???", id="r")).status == "completed"
        names = [schema.name for schema in model.last.tools]
        assert FIND in names
        assert names[:CHOSEN] == [f"{effect}_zebra_{n}" for n in range(CHOSEN)]

    asyncio.run(main())


def test_few_tools_bring_no_search_with_them():
    agent = Agent("a", Scripted(["x"]), tools=many(24, "read"), builtins=())
    assert FIND not in agent.tools
