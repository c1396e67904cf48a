"""Hooks and what is not over: kills, waits for people, other versions, effects in doubt."""

import asyncio
from typing import Any

import pytest
from tests.hooks.kit import ASKING, Shop

from cairn import Context, Deny, HookCall, Rewrite, before_tool, call, tool
from cairn.core import events as ev


def adding(seen: list[Any], n: int = 1) -> Any:
    """A hook that is never content: each time it is asked it wants another amount."""

    @before_tool
    def add(call: HookCall) -> Rewrite:
        seen.append((call.arguments["cents"], call.fixed))
        return Rewrite({**call.arguments, "cents": call.arguments["cents"] + n})

    return add


@pytest.mark.parametrize("kind", ["tool.edited", "tool.started"])
def test_a_kill_between_a_hook_and_the_start_changes_nothing_of_what_was_decided(
    kind: str,
) -> None:
    """Dead before the write: asked anew. Dead after it: what the journal says runs, once."""

    async def main() -> None:
        shop, seen = Shop(), []
        rt = shop.runtime(hooks=[adding(seen)])
        inner = rt.store
        append = inner.append
        died = asyncio.Event()

        async def dying(run: str, epoch: int, entries: Any, *more: Any, **options: Any) -> Any:
            if not died.is_set() and any(kind == entry.event.NAME for entry in entries):
                if kind == "tool.edited":  # neither is written
                    died.set()
                    await asyncio.sleep(60)
                await append(run, epoch, entries[:1], *more, **options)  # only the change is
                died.set()
                await asyncio.sleep(60)
            return await append(run, epoch, entries, *more, **options)

        inner.append = dying  # type: ignore[method-assign]  # the process dies in there
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await died.wait()
        await shop.die(rt, driving)
        assert shop.paid == []
        run = await shop.ran(hooks=[adding(seen)])
        assert run.status == "completed"
        assert shop.paid == ["6 ann"]
        edits = await shop.events(ev.ToolEdited)
        assert [event.arguments for event in edits] == ['{"cents":6,"to":"ann"}']
        again = (5, False) if kind == "tool.edited" else (6, True)
        assert seen == [(5, False), again]

    asyncio.run(main())


def test_a_hook_that_says_otherwise_after_the_yes_changes_nothing_but_may_refuse() -> None:
    async def main(*, refuses: bool) -> list[str]:
        shop, seen = Shop(), []
        await shop.ran(hooks=[adding(seen)], policy=ASKING)
        async with shop.runtime(policy=ASKING) as rt:
            await rt.approve_async("r/1")

        @before_tool
        def add(call: HookCall) -> Any:
            seen.append((call.arguments["cents"], call.fixed))
            return Deny("no more") if refuses else Rewrite({**call.arguments, "cents": 99})

        # the same hook as far as its version goes: what it finds outside has changed
        hooks = [adding(seen)]
        hooks[0].function = add.function
        hooks[0].__wrapped__ = adding([]).function
        assert (await shop.ran(hooks=hooks, policy=ASKING)).status == "completed"
        assert seen == [(5, False), (6, True)]
        assert len(await shop.events(ev.ApprovalRequested)) == 1
        return shop.paid

    assert asyncio.run(main(refuses=False)) == ["6 ann"]  # what was approved
    assert asyncio.run(main(refuses=True)) == []


def test_a_hook_that_was_not_there_when_a_person_said_yes_is_asked_and_they_are_asked_again() -> (
    None
):
    async def main() -> None:
        shop, seen = Shop(), []
        await shop.ran(policy=ASKING)
        async with shop.runtime(policy=ASKING) as rt:
            await rt.approve_async("r/1")
        run = await shop.ran(hooks=[adding(seen)], policy=ASKING)
        (pending,) = run.pending
        assert (pending.id, pending.detail) == ("r/2", '{"cents":6,"to":"ann"}')
        assert shop.paid == []
        async with shop.runtime(hooks=[adding(seen)], policy=ASKING) as rt:
            await rt.approve_async("r/2")
            await rt.drive_async("r")
        assert shop.paid == ["6 ann"]
        changed = await shop.events(ev.RunVersionChanged)
        assert [[c.part for c in event.changes] for event in changed] == [["hooks"]]

    asyncio.run(main())


@pytest.mark.parametrize("recovery", ["keyed", "repeat"])
def test_an_effect_in_doubt_that_a_hook_does_not_want_repeated_goes_to_a_person(
    recovery: str,
) -> None:
    async def main() -> None:
        shop, begun = Shop(), asyncio.Event()

        @tool(name="pay", effect="write", recovery=recovery)
        async def hanging(ctx: Context[Any], cents: int = 5) -> str:
            shop.paid.append(ctx.key if recovery == "keyed" else "begun")
            begun.set()
            await asyncio.sleep(60)
            return "never"

        rt = shop.runtime(tools=[hanging])
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        await shop.die(rt, driving)

        @before_tool
        def no(call: HookCall) -> Deny:
            return Deny("not again")

        run = await shop.ran(hooks=[no], tools=[hanging])
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        assert len(shop.paid) == 1
        (asked,) = await shop.events(ev.TakeoverRequested)
        assert "hook:no" in asked.message

    asyncio.run(main())


def test_a_fork_carries_what_hooks_have_changed() -> None:
    async def main() -> None:
        shop, seen = Shop(), []
        async with shop.runtime(hooks=[adding(seen)], policy=ASKING) as rt:
            await rt.run_async("a", "task", id="r")
            head = (await rt.store.info("r")).head
            fork = await rt.fork_async("r", head, id="f")
            (pending,) = fork.pending
            assert pending.detail == '{"cents":6,"to":"ann"}'
            await rt.approve_async("f/1")
            assert (await rt.drive_async("f")).status == "completed"
        assert shop.paid == ["6 ann"]

    asyncio.run(main())


def test_a_changed_hook_is_another_version_and_an_equal_one_is_the_same() -> None:
    async def main() -> None:
        shop = Shop()

        def guard(limit: int) -> Any:
            if limit > 5:

                @before_tool(name="guard")
                def check(call: HookCall) -> Any:
                    return Deny("much") if call.arguments["cents"] > 10 else None

            else:

                @before_tool(name="guard")
                def check(call: HookCall) -> Any:
                    return Deny("much") if call.arguments["cents"] > 5 else None

            return check

        await shop.ran(hooks=[guard(10)], policy=ASKING)
        async with shop.runtime(policy=ASKING) as rt:
            await rt.approve_async("r/1")
        await shop.ran(hooks=[guard(10)], policy=ASKING)
        assert await shop.events(ev.RunVersionChanged) == []
        other = Shop()
        await other.ran(hooks=[guard(10)], policy=ASKING)
        async with other.runtime(policy=ASKING) as rt:
            await rt.approve_async("r/1")
        await other.ran(hooks=[guard(5)], policy=ASKING)
        assert len(await other.events(ev.RunVersionChanged)) == 1
        assert other.paid == ["5 ann"]

    asyncio.run(main())


def test_what_is_journaled_folds_the_same_without_any_hook() -> None:
    async def main() -> None:
        from cairn.core.evolve import fold
        from cairn.core.state import RunState

        shop, seen = Shop(), []
        await shop.ran([call("pay"), call("pay", cents=1)], "done", hooks=[adding(seen)])
        entries = await shop.journals.beside().read("r")
        assert fold(RunState(run="r"), entries).status.value == "completed"

    asyncio.run(main())
