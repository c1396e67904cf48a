"""`search_history` finds what is not sent any more, and nothing that whoever asks reads anyway."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.kit import results

from cairn import Agent, Runtime, Scripted, call
from cairn.core.finding import passages, search
from cairn.core.messages import CallPart, Message, ResultPart, Text, user
from cairn.core.view import WHOLE, View, sent
from cairn.tools.builtin import NONE_FOUND

TURNS = [
    user("my order number is ZX-99"),
    Message(role="assistant", parts=(Text("noted"), CallPart(id="c1", name="look"))),
    Message(role="tool", parts=(ResultPart(id="c1", result="order number " + "word " * 400),)),
    user("what was my order number?"),
    Message(role="assistant", parts=(Text("I look"), CallPart(id="c2", name="look"))),
    Message(role="tool", parts=(ResultPart(id="c2", result="the order number is short"),)),
]


def test_the_request_that_asks_is_not_found_and_what_it_asks_for_is() -> None:
    async def main() -> None:
        asked: list[Any] = []

        def model(request: Any) -> Any:
            asked.append(request)
            if request.messages[-1].role == "tool":
                return "so it is"
            last = request.messages[-1].parts[-1].content
            return call("search_history", query=last, limit=1) if "?" in last else "noted"

        async with Runtime(":memory:", [Agent("t", Scripted(model), history=1)]) as rt:
            await rt.send_async("s", "My order number is ZX-99.", agent="t")
            await rt.send_async("s", "hello")
            await rt.send_async("s", "What was my order number?")
        (found,) = results(asked[-1]).values()
        assert "ZX-99" in found
        assert "What was" not in found

    asyncio.run(main())


def test_what_is_sent_as_it_is_is_not_found_and_what_is_shortened_is() -> None:
    view = View(start=1, whole=5, kept=200)
    assert [each.id for each in search(TURNS, "order number", 9, view)] == ["c1", "m1"]
    asked = View(start=5, asked=0)
    assert {each.id for each in search(TURNS, "order number", 9, asked)} == {"c1", "m4"}
    assert len(search(TURNS, "order number", 9)) == 4
    assert len(search(TURNS, "order number", 9, WHOLE)) == 4, "nothing is left out"


@given(
    start=st.integers(0, 6),
    asked=st.sampled_from([-1, 0, 3]),
    whole=st.integers(0, 6),
    kept=st.sampled_from([20, 200, 5_000]),
)
def test_each_passage_is_either_sent_whole_or_can_be_found(
    start: int, asked: int, whole: int, kept: int
) -> None:
    view = View(
        start=start, summary=3, asked=asked if asked < start else -1, whole=whole, kept=kept
    )
    held = sent(TURNS, view)
    parts = [part for message in held for part in message.parts]
    found = {id_ for id_, _, _ in passages(TURNS, view)}
    for n, message in enumerate(TURNS, 1):
        if message.role == "tool":
            assert (message.parts[0].id in found) is (message.parts[0] not in parts)
        else:
            assert (f"m{n}" in found) is (message not in held)


def test_a_search_that_finds_nothing_else_says_what_was_not_searched() -> None:
    async def main() -> None:
        asked: list[Any] = []

        def model(request: Any) -> Any:
            asked.append(request)
            last = request.messages[-1]
            wanted = last.role == "user" and "tea" in last.parts[0].content
            return call("search_history", query="green tea") if wanted else "done"

        async with Runtime(":memory:", [Agent("t", Scripted(model), history=1)]) as rt:
            await rt.send_async("s", "hello", agent="t")
            assert (await rt.send_async("s", "green tea, please")).status == "completed"
        (found,) = results(asked[-1]).values()
        assert NONE_FOUND in found

    asyncio.run(main())
