"""What a hook may do before a tool runs: refuse the call, change it, or only look. Never grant."""

import asyncio
from typing import Any

import pytest
from tests.engine.kit import FREE_HAND, results
from tests.hooks.kit import ASKING, SMALL, Shop, rules

from cairn import (
    ApprovalTerms,
    Deny,
    HookCall,
    NotDone,
    Policy,
    Rewrite,
    ToolError,
    before_tool,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.policy import Redirect, Rule
from cairn.core.policy.predicates import Equals


@before_tool
def cap(call: HookCall) -> Any:
    return Rewrite({**call.arguments, "cents": 5}) if call.arguments["cents"] > 5 else None


@before_tool
async def closed(call: HookCall) -> Deny:
    return Deny("the till is closed")


def test_a_denied_call_does_not_start_and_model_and_journal_are_told_why() -> None:
    async def main() -> None:
        shop = Shop()
        run = await shop.ran(hooks=[closed])
        assert (run.status, run.text) == ("completed", "done")
        (rejected,) = await shop.events(ev.ToolRejected)
        assert (rejected.kind, rejected.rule) == ("denied", "hook:closed")
        assert "the till is closed" in results(shop.model.last)["c1"]
        assert await shop.events(ev.ToolStarted) == []
        assert shop.paid == []

    asyncio.run(main())


def test_a_changed_call_runs_changed_once_and_the_model_is_told_what_ran() -> None:
    async def main() -> None:
        shop = Shop()
        await shop.ran(call("pay", cents=900), "done", hooks=[cap])
        assert shop.paid == ["5 ann"]
        (edited,) = await shop.events(ev.ToolEdited)
        assert (edited.rule, edited.arguments) == ("hook:cap", '{"cents":5,"to":"ann"}')
        told = results(shop.model.last)["c1"]
        assert told.startswith("[runtime] The hook cap of this deployment changed the arguments")
        assert '{"cents":5,"to":"ann"}' in told
        assert told.endswith("paid 5 to ann")
        names = await shop.names()
        assert names.index("tool.edited") < names.index("tool.started")

    asyncio.run(main())


def test_a_hook_that_says_nothing_is_shown_the_call_and_leaves_no_trace() -> None:
    async def main() -> None:
        seen: list[HookCall] = []

        @before_tool
        def look(call: HookCall) -> None:
            seen.append(call)

        quiet, hooked = Shop(), Shop()
        await quiet.ran()
        await hooked.ran(hooks=[look])
        assert await quiet.names() == await hooked.names()
        (one,) = seen
        assert (one.tool, one.asked, one.effect, one.attempt) == ("pay", "pay", "write", 1)
        assert dict(one.arguments) == {"cents": 5, "to": "ann"}  # defaults filled in
        assert (one.run, one.call, one.agent, one.kind) == ("r", "c1", "a", "operate")
        assert one.principal.id == "local"
        assert not one.fixed

    asyncio.run(main())


def test_hooks_of_the_runtime_come_first_each_sees_what_was_changed_and_a_no_ends_it() -> None:
    async def main() -> None:
        seen: list[tuple[str, int]] = []

        def adds(name: str) -> Any:
            @before_tool(name=name)
            def add(call: HookCall) -> Rewrite:
                seen.append((name, call.arguments["cents"]))
                return Rewrite({**call.arguments, "cents": call.arguments["cents"] + 1})

            return add

        shop = Shop()
        await shop.ran(hooks=[adds("one"), adds("two")], own=[adds("three")])
        assert seen == [("one", 5), ("two", 6), ("three", 7)]
        assert shop.paid == ["8 ann"]
        assert [e.rule for e in await shop.events(ev.ToolEdited)] == [
            "hook:one",
            "hook:two",
            "hook:three",
        ]
        seen.clear()
        other = Shop()
        await other.ran(hooks=[adds("one"), closed], own=[adds("three")])
        assert seen == [("one", 5)]
        assert other.paid == []

    asyncio.run(main())


def test_a_failed_check_stops_every_tool_it_guards_also_while_the_reply_is_streamed() -> None:
    """B78: the check fails at once, the model asks for tools in the same turn: none starts."""

    async def main(*, streamed: bool) -> None:
        shop = Shop()
        failed = asyncio.Event()

        @before_tool
        async def guard(call: HookCall) -> Deny:
            failed.set()
            return Deny("known to be bad")

        script = ([call("pay", cents=1), call("pay", cents=2), call("pay", cents=3)], "done")
        async with shop.runtime(*script, hooks=[guard]) as rt:
            if streamed:
                async for _ in rt.stream_async("a", "task", id="r"):
                    assert shop.paid == []
            else:
                await rt.run_async("a", "task", id="r")
        assert failed.is_set()
        assert shop.paid == []
        assert await shop.events(ev.ToolStarted) == []
        assert len(await shop.events(ev.ToolRejected)) == 3

    asyncio.run(main(streamed=True))
    asyncio.run(main(streamed=False))


def test_one_denied_call_holds_back_no_other_of_the_turn() -> None:
    async def main() -> None:
        shop = Shop()

        @before_tool
        def not_bob(call: HookCall) -> Any:
            return Deny("not bob") if call.arguments["to"] == "bob" else None

        script = ([call("pay", to="ann"), call("pay", to="bob"), call("pay", to="cyd")], "done")
        await shop.ran(*script, hooks=[not_bob])
        assert shop.paid == ["5 ann", "5 cyd"]

    asyncio.run(main())


def test_a_hook_is_asked_about_the_tools_it_names_only() -> None:
    async def main() -> None:
        shop = Shop()
        seen: list[str] = []

        @tool(effect="write")
        def note(text: str) -> str:
            return text

        @before_tool(tools=["note", "update_plan", "ask_user"])
        def look(call: HookCall) -> Any:
            seen.append(call.tool)
            return Deny("ask nobody") if call.tool == "ask_user" else None

        calls = [
            call("pay"),
            call("note", text="x"),
            call("update_plan", items=[]),
            call("ask_user", question="may I?"),
        ]
        run = await shop.ran(calls, "done", hooks=[look], tools=[shop.pay(), note])
        assert run.status == "completed"  # and not waiting for an answer
        assert sorted(seen) == ["ask_user", "note", "update_plan"]
        assert rules(await shop.events(ev.ToolRejected)) == ["hook:look"]

    asyncio.run(main())


# ---------------------------------------------------------------- it never grants


def test_what_the_policy_denies_is_denied_before_any_hook_is_asked() -> None:
    async def main() -> None:
        asked: list[str] = []

        @before_tool
        def grant(call: HookCall) -> Rewrite:
            asked.append(call.call)
            return Rewrite({"cents": 1, "to": "ann"})

        shop = Shop()
        await shop.ran(hooks=[grant], policy=Policy(tools={"pay": "deny"}))
        assert asked == []
        assert shop.paid == []

    asyncio.run(main())


def test_a_call_that_is_changed_into_one_the_policy_denies_does_not_run() -> None:
    async def main() -> None:
        shop = Shop()
        bob = Rule(
            name="no bob", decide="deny", tools=("pay",), arguments={"to": Equals(value="bob")}
        )
        policy = Policy(effects={"write": "allow"}, rules=(bob,))

        @before_tool
        def to_bob(call: HookCall) -> Rewrite:
            return Rewrite({**call.arguments, "to": "bob"})

        await shop.ran(hooks=[to_bob], policy=policy)
        assert shop.paid == []
        assert rules(await shop.events(ev.ToolRejected)) == ["deployment: no bob"]

    asyncio.run(main())


def test_a_person_approves_what_will_run_and_is_asked_once() -> None:
    async def main() -> None:
        shop = Shop()
        run = await shop.ran(call("pay", cents=900), "done", hooks=[cap], policy=ASKING)
        (pending,) = run.pending
        assert pending.detail == '{"cents":5,"to":"ann"}'
        async with shop.runtime(call("pay", cents=900), "done", hooks=[cap], policy=ASKING) as rt:
            await rt.approve_async("r/1")
            assert (await rt.drive_async("r")).status == "completed"
        assert shop.paid == ["5 ann"]
        assert len(await shop.events(ev.ApprovalRequested)) == 1

    asyncio.run(main())


def test_what_had_to_be_asked_about_still_is_though_the_changed_call_would_be_allowed() -> None:
    async def main() -> None:
        shop = Shop()
        script = (call("pay", cents=900), "done")
        run = await shop.ran(*script, hooks=[cap], policy=SMALL)
        assert run.reason == "approval"
        assert shop.paid == []
        async with shop.runtime(*script, hooks=[cap], policy=SMALL) as rt:
            await rt.approve_async("r/1")
            assert (await rt.drive_async("r")).status == "completed"
        assert shop.paid == ["5 ann"]
        (started,) = await shop.events(ev.ToolStarted)
        assert started.rule == "approval 1"

    asyncio.run(main())


def test_a_run_that_takes_no_approvals_gains_nothing_by_a_change() -> None:
    async def main() -> None:
        shop = Shop()
        async with shop.runtime(call("pay", cents=900), "d", hooks=[cap], policy=SMALL) as rt:
            await rt.run_async("a", "task", id="r", approvals="none")
        assert shop.paid == []

    asyncio.run(main())


def test_the_terms_of_the_call_as_it_was_hold_for_the_changed_one() -> None:
    async def main() -> None:
        shop = Shop()
        lead = ApprovalTerms(roles=("lead",))
        large = Rule(name="large", decide="ask", tools=("pay",), effects=("write",), approval=lead)
        small = SMALL.rules[0]
        policy = Policy(effects={"write": "ask"}, rules=(small, large))
        run = await shop.ran(call("pay", cents=900), "done", hooks=[cap], policy=policy)
        assert run.reason == "approval"
        (asked,) = await shop.events(ev.ApprovalRequested)
        assert asked.terms is not None
        assert asked.terms.roles == ("lead",)

    asyncio.run(main())


def test_a_standing_grant_answers_for_the_call_it_was_made_for_and_for_no_changed_one() -> None:
    async def main() -> None:
        shop = Shop()

        @before_tool
        def to_bob(call: HookCall) -> Rewrite:
            return Rewrite({**call.arguments, "to": "bob"})

        async with shop.runtime(hooks=[to_bob], policy=ASKING) as rt:
            await rt.grant_async("pay", arguments={"to": "ann"}, by="eve")
            run = await rt.run_async("a", "task", id="r")
            assert run.reason == "approval"
        assert shop.paid == []

    asyncio.run(main())


def test_a_redirected_call_is_seen_as_what_it_becomes() -> None:
    async def main() -> None:
        shop = Shop()

        @tool(effect="write")
        def wire(cents: int, to: str) -> str:
            shop.paid.append("wired")
            return "wired"

        rule = Rule(name="no", decide="redirect", tools=("wire",), redirect=Redirect(tool="pay"))
        policy = Policy(effects={"write": "allow"}, rules=(rule,))
        seen: list[tuple[str, str]] = []

        @before_tool
        def look(call: HookCall) -> Any:
            seen.append((call.asked, call.tool))
            return Rewrite({**call.arguments, "cents": 1})

        script = (call("wire", cents=3, to="ann"), "done")
        await shop.ran(*script, hooks=[look], policy=policy, tools=[wire, shop.pay()])
        assert seen == [("wire", "pay")]
        assert shop.paid == ["1 ann"]

    asyncio.run(main())


def test_a_fallback_is_seen_before_it_stands_in_and_may_be_refused_but_not_changed() -> None:
    async def main(answer: Any) -> list[str]:
        shop = Shop()

        @tool(effect="write", fallback="pay")
        async def wire(cents: int = 3) -> str:
            raise ToolError("the line is down")

        seen: list[tuple[str, int, bool]] = []

        @before_tool
        def look(call: HookCall) -> Any:
            seen.append((call.tool, call.attempt, call.fixed))
            return answer if call.tool == "pay" else None

        run = await shop.ran(call("wire"), "done", hooks=[look], tools=[wire, shop.pay()])
        assert run.status == "completed"
        assert seen == [("wire", 1, False), ("pay", 2, True)]
        assert await shop.events(ev.ToolEdited) == []
        return shop.paid

    assert asyncio.run(main(None)) == ["5 ann"]
    assert asyncio.run(main(Deny("no"))) == []
    assert asyncio.run(main(Rewrite({"cents": 1, "to": "bob"}))) == []


def test_every_attempt_is_seen_and_its_arguments_stay() -> None:
    async def main() -> None:
        shop = Shop()
        tried: list[int] = []

        @tool(effect="write", retries=3, backoff=0.001)
        async def flaky(cents: int = 1) -> str:
            tried.append(cents)
            if len(tried) < 3:
                raise NotDone("not now")
            return "done"

        seen: list[tuple[int, bool]] = []

        @before_tool
        def more(call: HookCall) -> Rewrite:
            seen.append((call.attempt, call.fixed))
            return Rewrite({"cents": call.arguments["cents"] + 1})

        await shop.ran(call("flaky"), "done", hooks=[more], tools=[flaky])
        assert tried == [2, 2, 2]
        assert seen == [(1, False), (2, True), (3, True)]

    asyncio.run(main())


@pytest.mark.parametrize("edit", ["while asked", "with the yes"])
def test_what_a_person_changes_is_seen_again_and_asked_again_when_a_hook_changes_it(
    edit: str,
) -> None:
    async def main() -> None:
        shop = Shop()
        options: Any = {"hooks": [cap], "policy": ASKING}
        await shop.ran(**options)
        async with shop.runtime(**options) as rt:
            if edit == "while asked":
                await rt.edit_async("r", call="c1", arguments={"cents": 70}, by="eve")
            else:
                await rt.approve_async("r/1", arguments={"cents": 70}, by="eve")
            run = await rt.drive_async("r")
            (pending,) = run.pending
            assert (pending.id, pending.detail) == ("r/2", '{"cents":5,"to":"ann"}')
            assert shop.paid == []
            await rt.approve_async("r/2")
            assert (await rt.drive_async("r")).status == "completed"
        assert shop.paid == ["5 ann"]

    asyncio.run(main())


def test_a_person_who_acts_in_the_agents_place_passes_the_same_hooks() -> None:
    async def main() -> None:
        shop = Shop()
        await shop.ran(policy=ASKING)
        async with shop.runtime(hooks=[closed], policy=FREE_HAND) as rt:
            await rt.take_over_async("r", "by hand", by="eve", did={"c1": "paid at the desk"})
            await rt.take_over_async("r", by="eve", calls=[("pay", {"cents": 8})])
            await rt.drive_async("r")
        assert shop.paid == []
        assert rules(await shop.events(ev.ToolRejected)) == ["hook:closed"]

    asyncio.run(main())


def test_a_replay_takes_what_hooks_said_as_it_was_recorded() -> None:
    async def main() -> None:
        @before_tool
        def some(call: HookCall) -> Any:
            if call.arguments["to"] == "bob":
                return Deny("not bob")
            return Rewrite({**call.arguments, "cents": 1})

        shop = Shop()
        script = ([call("pay", to="bob"), call("pay", cents=9)], "done")
        await shop.ran(*script, hooks=[some])
        async with shop.runtime(*script) as rt:  # no hook is there any more
            assert (await rt.replay_async("r")).same

    asyncio.run(main())


def test_a_hook_sees_handles_in_place_of_secrets_and_what_it_says_is_redacted() -> None:
    async def main() -> None:
        seen: list[Any] = []
        shop = Shop()

        @tool(effect="write", secrets=("token",))
        async def send(key: str) -> str:
            shop.paid.append(key)
            return "sent"

        @before_tool
        def look(call: HookCall) -> Any:
            seen.append(call.arguments["key"])
            return Deny("it was topsecretvalue1 all along") if len(seen) > 1 else None

        secrets = {"token": "topsecretvalue1"}
        script = ([call("send", key="topsecretvalue1"), call("send", key="other")], "done")
        await shop.ran(*script, hooks=[look], tools=[send], secrets=secrets)
        assert shop.paid == ["topsecretvalue1"]  # the tool itself gets it
        assert "topsecretvalue1" not in str(seen)
        assert "topsecretvalue1" not in str(await shop.events())

    asyncio.run(main())
