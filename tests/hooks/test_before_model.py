"""Before a model is asked, hooks may take tools from the offer; they can never add one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.engine.kit import FREE_HAND, Recorder
from tests.hooks.kit import Shop, Shut

from cairn import (
    Agent,
    Deny,
    HookRequest,
    Narrow,
    NotDone,
    Policy,
    Runtime,
    Scripted,
    before_model,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.policy import Redirect, Rule
from cairn.engine.offering import hash_of


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return what


@tool(effect="write")
def note(text: str) -> str:
    """Write something down."""
    return text


OURS = ("pay", "look", "note")


@dataclass(frozen=True)
class Found:
    """What a request offered of our tools, what the journal says of it, and of faults."""

    names: list[str]
    withheld: set[str]
    faults: list[ev.ErrorRaised]
    request: Any


def offer(*hooks: Any, own: Sequence[Any] = ()) -> Found:
    """What a run's first request offers."""

    async def main() -> Found:
        shop = Shop()
        run = await shop.ran("done", hooks=hooks, own=own, tools=[shop.pay(), look, note])
        assert run.status == "completed"
        (requested,) = await shop.events(ev.ModelRequested)
        return Found(
            names=[schema.name for schema in shop.model.last.tools if schema.name in OURS],
            withheld=set(requested.withheld) & set(OURS),
            faults=await shop.events(ev.ErrorRaised),
            request=requested,
        )

    return asyncio.run(main())


def narrows(*tools: str, name: str = "n", **options: Any) -> Any:
    return before_model(name=name, **options)(lambda request: Narrow(list(tools)))


def test_without_hooks_everything_is_offered() -> None:
    found = offer()
    assert found.names == ["pay", "look", "note"]
    assert (found.withheld, found.faults) == (set(), [])


def test_a_hook_takes_tools_away_and_the_journal_says_which() -> None:
    found = offer(narrows("note", "look"))
    assert found.names == ["look", "note"]  # the order stays
    assert found.withheld == {"pay"}
    assert found.request.tools not in {"", offer().request.tools}


def test_a_name_that_is_not_on_offer_adds_nothing_and_none_may_be_left() -> None:
    assert offer(narrows("note", "rm")).names == ["note"]
    empty = offer(narrows())
    assert (empty.names, empty.request.tools) == ([], "")
    assert empty.withheld == set(OURS)


def test_who_looks_for_tools_that_a_hook_withholds_is_not_told_that_all_are_on_offer() -> None:
    async def main() -> None:
        for hooks, said in (([narrows()], "a hook withholds"), ([], "all tools are on offer")):
            shop = Shop()
            script = (call("find_tools", query="pay"), "done")
            await shop.ran(*script, hooks=hooks, tools=[shop.pay(), look, note])
            (failed,) = await shop.events(ev.ToolFailed)
            assert said in failed.message

    asyncio.run(main())


def test_each_hook_sees_what_those_before_it_have_left_and_none_brings_a_tool_back() -> None:
    seen: list[tuple[str, ...]] = []

    @before_model
    async def last(request: HookRequest) -> Narrow:
        seen.append(request.tools)
        return Narrow(OURS)

    found = offer(narrows("look", "pay"), narrows("pay", name="m"), own=[last])
    assert seen == [("pay",)]
    assert found.names == ["pay"]


def test_a_hook_is_shown_the_request_and_can_change_nothing_in_it() -> None:
    seen: list[HookRequest] = []

    @before_model
    def see(request: HookRequest) -> None:
        seen.append(request)

    found = offer(see)
    (request,) = seen
    assert (request.run, request.agent, request.step, request.attempt) == ("r", "a", 1, 1)
    assert (request.purpose, request.kind) == ("turn", "operate")
    assert set(OURS) < set(request.tools)
    assert request.messages[-1].role == "user"
    assert (found.names, found.faults) == (list(OURS), [])
    with pytest.raises(AttributeError):
        request.tools = ()  # type: ignore[misc]  # it must not be possible


def test_a_hook_is_shown_what_is_sent_and_not_what_is_left_out_of_it() -> None:
    async def main() -> None:
        seen: list[HookRequest] = []

        @before_model
        def see(request: HookRequest) -> None:
            seen.append(request)

        model = Recorder(lambda request: "done")
        agent = Agent("a", Scripted(model), hooks=[see], history=1)
        async with Runtime(":memory:", [agent]) as rt:
            for n in range(3):
                await rt.run_async("a", f"request {n}", id=f"r{n}", session="s")
        assert list(seen[-1].messages) == list(model.requests[-1].messages)

    asyncio.run(main())


def test_hooks_are_asked_before_every_request() -> None:
    async def main() -> None:
        steps: list[int] = []

        @before_model
        def first_only(request: HookRequest) -> Narrow | None:
            steps.append(request.step)
            return Narrow(["pay"]) if request.step == 1 else None

        shop = Shop()
        tools = [shop.pay(), look, note]
        await shop.ran(call("pay"), call("look", what="x"), "done", hooks=[first_only], tools=tools)
        assert steps == [1, 2, 3]
        one, two, three = await shop.events(ev.ModelRequested)
        assert set(one.withheld) >= {"look", "note"}
        assert two.withheld == three.withheld == ()
        assert two.tools != one.tools
        assert three.tools == ""  # as before

    asyncio.run(main())


BROKEN: dict[str, Any] = {
    "raises": lambda request: 1 // 0,
    "denies": lambda request: Deny("no"),
    "returns names": lambda request: ["look"],
    "returns a name": lambda request: Narrow("look"),
    "returns numbers": lambda request: Narrow([1]),  # type: ignore[list-item]  # what is wrong
    "returns what cannot be looked at": lambda request: Narrow(Shut()),  # type: ignore[arg-type]  # the same
    "returns nothing in it": lambda request: Narrow(None),  # type: ignore[arg-type]  # the same
}


@pytest.mark.parametrize("which", BROKEN)
def test_a_hook_that_fails_is_recorded_and_narrows_nothing_or_all_as_declared(which: str) -> None:
    ignored = offer(before_model(name="b")(BROKEN[which]))
    assert ignored.names == list(OURS)
    assert [fault.where for fault in ignored.faults] == ["hook:b"]
    strict = before_model(name="b", on_error="deny")(BROKEN[which])
    found = offer(strict, narrows("look"))
    assert (found.names, len(found.faults)) == ([], 1)


def test_a_hook_that_hangs_does_not_hold_the_request() -> None:
    @before_model(timeout=0.05)
    async def hangs(request: HookRequest) -> None:
        await asyncio.sleep(60)

    found = offer(hangs)
    assert found.names == list(OURS)
    assert "no answer within 0.05 s" in found.faults[0].message


def test_equal_offers_have_equal_hashes_and_none_has_an_empty_one() -> None:
    schemas = (look.schema, note.schema)
    assert hash_of(schemas) == hash_of(schemas) != hash_of(schemas[:1])
    assert hash_of(()) == ""


REDIRECTING = Policy(
    tools={"note": "allow"},
    rules=(Rule(name="r", decide="redirect", tools=("pay",), redirect=Redirect(tool="note")),),
)


@pytest.mark.parametrize("how", ["as its fallback", "by a redirect"])
@pytest.mark.parametrize("withheld", [True, False])
def test_a_withheld_tool_runs_in_the_place_of_no_other(how: str, withheld: bool) -> None:
    async def main() -> None:
        noted = []

        @tool(name="note", effect="write")
        async def noting(cents: int) -> str:
            noted.append(cents)
            return "noted"

        @tool(name="pay", effect="write", fallback=noting, retries=0)
        async def failing(cents: int) -> str:
            raise NotDone("the bank is shut")

        hooks = [narrows("pay", "note") if not withheld else narrows("pay")]
        policy = REDIRECTING if how == "by a redirect" else FREE_HAND
        shop, tools = Shop(), [failing, noting]
        run = await shop.ran(call("pay", cents=5), "done", hooks=hooks, policy=policy, tools=tools)
        assert run.text == "done"
        assert noted == ([] if withheld else [5])
        refused = [event.rule for event in await shop.events(ev.ToolRejected)]
        assert refused == (["withheld by a hook"] if withheld else [])

    asyncio.run(main())
