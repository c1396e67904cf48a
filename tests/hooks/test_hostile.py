"""Hooks that fail in every way there is: the call is refused, the run goes on, and it is said."""

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
from tests.engine.kit import results, until
from tests.hooks.kit import Shop, Shut, forced

from cairn import Deny, HookCall, Narrow, Rewrite, before_tool, call
from cairn.core import events as ev
from cairn.engine.asking import THREADS

SOON = 0.05


class Odd:
    """Something that no hook may return, and whose own text fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Leaving(dict[str, Any]):
    """Arguments that end the process when they are read."""

    def items(self) -> Any:
        sys.exit(3)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def loop_in_itself() -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    arguments["self"] = arguments
    return arguments


def raises(error: BaseException) -> Any:
    def hook(call: HookCall) -> None:
        raise error

    return hook


def araises(error: BaseException) -> Any:
    async def hook(call: HookCall) -> None:
        raise error

    return hook


def returns(value: Any) -> Any:
    return lambda call: value


def mutates(call: HookCall) -> None:
    call.arguments["cents"] = 1_000_000  # type: ignore[index]  # it must not be possible


def replaces(call: HookCall) -> None:
    call.tool = "other"  # type: ignore[misc]  # it must not be possible


async def stubborn(call: HookCall) -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            return


def leaves(call: HookCall) -> None:
    sys.exit(3)


async def awaited() -> None:
    """What a plain function gives away by mistake."""


HOSTILE: dict[str, tuple[Any, str]] = {
    "raises": (raises(ValueError("boom")), "ValueError: boom"),
    "raises async": (araises(ValueError("boom")), "ValueError: boom"),
    "exits": (leaves, "SystemExit"),
    "exits async": (araises(SystemExit(3)), "SystemExit"),
    "interrupts": (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "interrupts async": (araises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "cancels itself": (araises(asyncio.CancelledError()), "CancelledError"),
    "cannot be told": (raises(Unspeakable()), "Unspeakable"),
    "hangs": (lambda call: time.sleep(0.3), "no answer within 0.05 s"),
    "hangs async": (stubborn, "no answer within 0.05 s"),
    "returns a word": (returns("deny"), "returned str"),
    "returns true": (returns(True), "returned bool"),
    "returns nonsense": (returns(Odd()), "returned Odd"),
    "returns what is for models": (returns(Narrow(["pay"])), "returned Narrow"),
    "forgets to await": (lambda call: awaited(), "declare it with async def"),
    "denies without a word": (returns(Deny("")), "denied without a reason"),
    "denies with a number": (returns(forced(Deny("no"), reason=7)), "denied without a reason"),
    "mutates": (mutates, "TypeError"),
    "replaces": (replaces, "AttributeError"),
    "returns what cannot be looked at": (returns(Shut()), "RuntimeError: shut"),
    "denies with what cannot be looked at": (
        returns(forced(Deny("no"), reason=Shut())),
        "RuntimeError: shut",
    ),
    "writes what exits": (returns(Rewrite(Leaving(cents=1))), "SystemExit"),
    "writes a list": (returns(forced(Rewrite({}), arguments=[1])), "no mapping of names"),
    "writes odd names": (returns(Rewrite({1: 2})), "no mapping of names"),  # type: ignore[dict-item]  # wrong
    "writes no JSON": (returns(Rewrite({"cents": Odd()})), "no JSON"),
    "writes a circle": (returns(Rewrite(loop_in_itself())), "no JSON"),
    "writes too much": (returns(Rewrite({"to": "x" * (2 << 20)})), "bytes"),
    "writes what does not fit": (returns(Rewrite({"cents": "many"})), "do not fit"),
    "writes what is not there": (returns(Rewrite({"euros": 1})), "do not fit"),
}


async def threads_end() -> None:
    """Wait until no thread of a hook is left, those of earlier tests included."""
    await until(lambda: THREADS.taken == 0)


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hook_that_fails_refuses_the_call_and_never_ends_the_run(which: str) -> None:
    async def main() -> None:
        function, said = HOSTILE[which]
        shop = Shop()
        run = await shop.ran(hooks=[before_tool(name="guard", timeout=SOON)(function)])
        assert (run.status, run.text) == ("completed", "done")
        assert shop.paid == []
        (raised,) = await shop.events(ev.ErrorRaised)
        assert raised.where == "hook:guard"
        assert said in raised.message
        (rejected,) = await shop.events(ev.ToolRejected)
        assert rejected.rule == "hook:guard"
        assert said not in results(shop.model.last)["c1"]  # the deployment's faults are its own

    asyncio.run(main())


@pytest.mark.parametrize("which", HOSTILE)
def test_one_that_may_be_ignored_is_and_the_fault_is_recorded_all_the_same(which: str) -> None:
    async def main() -> None:
        function, said = HOSTILE[which]
        guard = before_tool(name="guard", timeout=SOON, on_error="ignore")(function)
        shop = Shop()
        run = await shop.ran(hooks=[guard])
        assert run.status == "completed"
        assert shop.paid == ["5 ann"]  # as the model wrote it, whatever the hook tried
        (raised,) = await shop.events(ev.ErrorRaised)
        assert said in raised.message

    asyncio.run(main())


def test_hooks_behind_one_that_is_ignored_are_still_asked() -> None:
    async def main() -> None:
        ignored = before_tool(name="broken", on_error="ignore")(raises(ValueError("boom")))
        shop = Shop()
        await shop.ran(hooks=[ignored, before_tool(name="guard")(returns(Deny("no")))])
        assert shop.paid == []

    asyncio.run(main())


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    async def main() -> None:
        def slow(call: HookCall) -> Deny:
            time.sleep(0.15)
            return Deny("too late")

        shop = Shop()
        guard = before_tool(name="slow", timeout=SOON, on_error="ignore")(slow)
        await shop.ran(hooks=[guard])
        await asyncio.sleep(0.2)
        assert shop.paid == ["5 ann"]
        assert await shop.events(ev.ToolRejected) == []

    asyncio.run(main())


def test_a_plain_function_runs_beside_the_loop_and_its_thread_is_given_back() -> None:
    async def main() -> None:
        threads: list[str] = []
        turned = 0
        meanwhile = 0

        def slow(call: HookCall) -> None:
            nonlocal meanwhile
            threads.append(threading.current_thread().name)
            before = turned
            time.sleep(0.3)
            meanwhile = turned - before

        async def turn() -> None:
            nonlocal turned
            while True:
                turned += 1
                await asyncio.sleep(0.005)

        shop = Shop()
        turning = asyncio.create_task(turn())
        await shop.ran(hooks=[before_tool(slow)])
        turning.cancel()
        assert threads == ["cairn-hook-slow"]
        assert meanwhile > 1
        await threads_end()
        assert shop.paid == ["5 ann"]

    asyncio.run(main())


def test_threads_of_hooks_that_hang_are_bounded_and_those_without_one_are_refused() -> None:
    async def main() -> None:
        await threads_end()
        freed = threading.Event()
        entered: list[str] = []

        def hang(call: HookCall) -> None:
            entered.append(call.run)
            freed.wait(20)

        hooks = [before_tool(name=f"h{n}", timeout=SOON, on_error="ignore")(hang) for n in range(8)]
        shop = Shop()
        calls = [call("pay", cents=n) for n in range(5)]
        try:
            await shop.ran(calls, "done", hooks=hooks)
            assert len(entered) == 32
            messages = [event.message for event in await shop.events(ev.ErrorRaised)]
            assert len(messages) == 40
        finally:
            freed.set()
        await threads_end()

    asyncio.run(main())


def test_a_run_that_is_cancelled_does_not_wait_for_a_hook() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @before_tool(timeout=30)
        async def waits(call: HookCall) -> None:
            begun.set()
            await asyncio.sleep(30)

        shop = Shop()
        async with shop.runtime(hooks=[waits]) as rt:
            driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
            await begun.wait()
            started = time.monotonic()
            await rt.cancel_async("r")
            run = await driving
            assert run.status == "cancelled"
            assert time.monotonic() - started < 5
        assert shop.paid == []

    asyncio.run(main())


def test_a_pause_while_a_hook_is_asked_holds_the_call_and_resume_asks_anew() -> None:
    async def main() -> None:
        begun = asyncio.Event()
        asked = 0

        @before_tool(timeout=30)
        async def waits(call: HookCall) -> None:
            nonlocal asked
            asked += 1
            begun.set()
            if asked == 1:
                await asyncio.sleep(30)

        shop = Shop()
        async with shop.runtime(hooks=[waits]) as rt:
            driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
            await begun.wait()
            await rt.pause_async("r")
            assert (await driving).status == "paused"
            assert shop.paid == []
            assert (await rt.resume_async("r")).status == "completed"
        assert (asked, shop.paid) == (2, ["5 ann"])

    asyncio.run(main())


def test_a_hook_that_fails_between_two_calls_loses_neither_the_result_nor_the_call() -> None:
    async def main() -> None:
        @before_tool(tools=["pay"])
        def fails(call: HookCall) -> None:
            if call.arguments["cents"] == 2:
                raise ValueError("boom")

        shop = Shop()
        script = ([call("pay", cents=1), call("pay", cents=2), call("pay", cents=3)], "done")
        await shop.ran(*script, hooks=[fails])
        assert shop.paid == ["1 ann", "3 ann"]
        told = results(shop.model.last)
        assert (told["c1"], told["c3"]) == ("paid 1 to ann", "paid 3 to ann")
        assert told["c2"].startswith("Not executed.")

    asyncio.run(main())
