"""A model that classifies never takes what the first turn needs: then the kind stays as it was."""

import asyncio
from typing import Any

import pytest
from tests.engine.kit import events

from cairn import Agent, ContextBlock, Intake, Runtime, Scripted, tool
from cairn.core import events as ev


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def ran(limits: dict[str, Any], **options: Any) -> tuple[Any, list[Any], ev.TaskClassified]:
    async def main() -> Any:
        sorter = Scripted(lambda _: "query", name="sorter")
        agent = Agent(
            "a", Scripted(lambda _: "done"), tools=[look], intake=Intake(model=sorter), **options
        )
        async with Runtime(":memory:", [agent]) as rt:
            run = await rt.run_async("a", "What is it?", id="r", limits=limits)
            return run, await rt.trace_async("r")

    run, entries = asyncio.run(main())
    asked = [event.purpose for event in events(entries, ev.ModelRequested)]
    (classified,) = events(entries, ev.TaskClassified)
    return run, asked, classified


def test_the_last_step_of_a_run_is_for_its_answer_and_the_kind_stays() -> None:
    run, asked, classified = ran({"steps": 1})
    assert (run.status, asked) == ("completed", ["turn"])
    assert (classified.kind, classified.by) == ("operate", "none")
    said = "too little is left of the limit steps for a classifier and the turn after it"
    assert classified.why == said


def test_with_enough_left_for_both_a_model_is_asked() -> None:
    run, asked, classified = ran({"steps": 2})
    assert (run.status, asked) == ("completed", ["classify", "turn"])
    assert (classified.kind, classified.by) == ("query", "model")


@pytest.mark.parametrize(("steps", "wanted"), [(2, "none"), (3, "model")])
def test_the_step_in_which_a_block_is_fed_counts_too(steps: int, wanted: str) -> None:
    run, _, classified = ran({"steps": steps}, context=[ContextBlock("b", tool="look")])
    assert (run.status, classified.by) == ("completed", wanted)


def test_a_classifier_leaves_the_tokens_of_the_first_turn() -> None:
    least = next(n for n in range(100, 9_000, 50) if ran_well(n))
    _, asked, classified = ran({"tokens": least})
    assert (asked, classified.by) == (["turn"], "none")
    assert "the limit tokens" in classified.why
    _, asked, classified = ran({"tokens": least + 3_000})
    assert (asked, classified.by) == (["classify", "turn"], "model")


def ran_well(tokens: int) -> bool:
    return bool(ran({"tokens": tokens})[0].status == "completed")
