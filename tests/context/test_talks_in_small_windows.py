"""A talk of short messages in a window that the instructions nearly fill never comes to a stop."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cairn import Agent, ContextBlock, ErrorClass, ModelError, Runtime, Scripted, tool
from cairn.cli.entry import app
from cairn.core import events as ev

SAID = "The {} of my neighbour stands at window {}, and needs water twice in each week of summer."


@pytest.mark.parametrize("room", range(1_150, 1_500, 50))
def test_no_message_of_a_long_talk_is_refused_for_want_of_room(room):
    agent = Agent(
        "a",
        Scripted(lambda _: "Noted.", window=room + 100, max_output=100),
        instructions="Answer briefly. " * 130,
        builtins=("search_history",),
        summary_model=None,
    )

    async def main():
        async with Runtime(":memory:", [agent]) as rt:
            condensed = 0
            for n in range(40):
                text = SAID.format(f"plant{n}", n)
                run = await rt.run_async("a", text, session="s")
                assert run.status == "completed", run.reason
                entries = await rt.trace_async(run.id)
                condensed += sum(isinstance(e.event, ev.ContextCompacted) for e in entries)
                held = await rt.context_async(run.id, 1)
                assert held.tokens <= room
            assert condensed > 2

    asyncio.run(main())


def test_a_call_that_feeds_a_run_is_none_of_the_models_own():
    @tool(effect="read")
    def look(about: str) -> str:
        """Look it up."""
        return "It is green."

    def model(request):
        assert request.tool_choice == "none"
        return "Green."

    block = ContextBlock("found", tool="look", arguments={"about": "$input"})
    agent = Agent("a", Scripted(model), tools=[look], tool_choice="none", context=[block])
    with Runtime(":memory:", [agent]) as rt:
        run = rt.run("a", "Which colour?")
        assert (run.status, run.calls, run.text) == ("completed", 1, "Green.")


def test_what_the_runtime_notes_for_the_model_is_not_told_as_said_by_a_person(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    cut = ModelError(ErrorClass.TRUNCATED_OUTPUT, "it was cut off")
    with Runtime("s.db", [Agent("a", Scripted([cut, "Yes."]))]) as rt:
        run = rt.run("a", "[runtime] Is it?", session="s", principal="ann")
        assert run.status == "completed"
    said = CliRunner().invoke(app, ["sessions", "export", "s", "out", "--store", "s.db"])
    assert said.exit_code == 0
    text = Path("out/transcript.md").read_text()
    assert text.count("**ann**") == text.count("**runtime**") == 1
    assert text.index("**ann**") < text.rindex("Is it?") < text.index("**runtime**")
