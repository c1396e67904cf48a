"""The tools every agent may have."""

import asyncio
from typing import Any

import pytest

from cairn.core.events import PlanUpdated
from cairn.core.messages import PlanItem
from cairn.core.rules import Problem
from cairn.errors import ToolError, UsageError
from cairn.tools.builtin import BUILTIN, PAGE_BYTES, ask_user, read_artifact, update_plan
from cairn.tools.context import Context
from cairn.tools.results import to_json


def test_a_question_is_a_read_that_only_a_person_answers() -> None:
    assert (ask_user.spec.kind, ask_user.spec.effect) == ("question", "read")
    assert ask_user.spec.check('{"question": "Which?"}') == {"question": "Which?"}
    with pytest.raises(UsageError):
        ask_user("Which?")


def test_all_of_them_are_reads() -> None:
    assert {one.spec.effect for one in BUILTIN} == {"read"}
    assert [one.name for one in BUILTIN] == [
        "ask_user",
        "update_plan",
        "read_artifact",
        "search_history",
        "find_tools",
    ]


def test_a_plan_becomes_a_fact_and_the_answer_says_nothing_new() -> None:
    context: Context[Any] = Context()
    arguments = update_plan.spec.check(
        '{"items": [{"text": "look", "status": "done"}, {"text": "pay"}]}'
    )
    said = [update_plan(**update_plan.body.bind(arguments, context)) for _ in range(2)]
    assert said[0] == said[1]
    items = (PlanItem(text="look", status="done"), PlanItem(text="pay"))
    assert context.facts == [PlanUpdated(items=items)] * 2


def test_a_plan_is_bounded() -> None:
    for text in ('{"items": [{"text": ""}]}', '{"items": [{"text": "a", "status": "soon"}]}'):
        assert isinstance(update_plan.spec.check(text), Problem)
    many = '{"items": [' + ", ".join(['{"text": "a"}'] * 51) + "]}"
    assert isinstance(update_plan.spec.check(many), Problem)


def read(text: str, **arguments: Any) -> Any:
    async def artifact(id: str) -> tuple[str, str] | None:
        return ("log", text) if id == "a1" else None

    context: Context[Any] = Context(artifact=artifact, artifacts=2)
    return asyncio.run(read_artifact(ctx=context, **arguments))


def test_an_artifact_is_read_page_by_page_to_its_end() -> None:
    text = "".join(f"line {n} 漢😀\n" for n in range(3000))
    found, offset = "", 0
    while offset is not None:
        page = read(text, id="a1", offset=offset)
        assert len(page["text"]) <= 8000
        assert page["total_chars"] == len(text)
        found += page["text"]
        offset = page["next_offset"]
    assert found == text
    assert read(text, id="a1", offset=10**9)["text"] == ""


def test_an_unknown_artifact_names_the_known_ones() -> None:
    with pytest.raises(ToolError, match="a1, a2"):
        read("", id="a9")
    with pytest.raises(ToolError, match="none yet"):
        asyncio.run(read_artifact(id="a1", ctx=Context()))


def test_a_page_is_never_so_large_that_it_becomes_an_artifact() -> None:
    page = read("\x01" * 50_000, id="a1", limit=20_000)
    assert len(bytes(to_json(page))) < PAGE_BYTES == read_artifact.spec.result_bytes
    assert isinstance(read_artifact.spec.check('{"id": "a1", "limit": 20001}'), Problem)
    assert isinstance(read_artifact.spec.check('{"id": "a1", "offset": -1}'), Problem)
