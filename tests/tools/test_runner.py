"""A tool's function runs alone: bounded in time, and whatever it raises stays its own."""

import asyncio
import contextvars
import threading
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import Unsure
from cairn.tools.context import Context
from cairn.tools.results import UnserialisableResult, to_json
from cairn.tools.runner import Finished, abandoned, start
from cairn.tools.slots import Slots
from cairn.tools.tool import Body, tool

SHORT = 0.02
"""A time-out that a hanging tool is meant to run into, in seconds."""


def body(function: Any) -> Body:
    return tool(function).body


def run(function: Any, seconds: float | None = 10.0, slots: Slots | None = None) -> Any:
    """Run a function without arguments to its outcome, on a loop of its own."""

    async def main() -> Finished | None:
        held = slots or Slots()
        assert held.try_acquire()
        return await start(body(function), {}, Context(), slots=held).outcome(seconds)

    return asyncio.run(main())


def test_what_a_function_returns_is_its_outcome() -> None:
    async def slow() -> int:
        await asyncio.sleep(0)
        return 1

    def quick() -> int:
        return 2

    assert run(slow) == Finished(ok=True, value=1)
    assert run(quick) == Finished(ok=True, value=2)
    assert run(quick, None) == Finished(ok=True, value=2)


def test_arguments_context_and_context_variables_arrive() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def sync(order: str, ctx: Context[str]) -> tuple[str, str, str]:
        return order, ctx.deps, variable.get()

    async def main() -> Finished | None:
        variable.set("seen")
        slots = Slots()
        await slots.acquire()
        context = Context(deps="deps")
        return await start(body(sync), {"order": "7"}, context, slots=slots).outcome(10)

    assert asyncio.run(main()) == Finished(ok=True, value=("7", "deps", "seen"))


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), StopIteration(4), TimeoutError()]
)
def test_whatever_is_raised_ends_this_call_and_nothing_else(error: BaseException) -> None:
    def sync() -> None:
        raise error

    async def coro() -> None:
        raise error

    finished = run(sync)
    assert not finished.ok
    assert finished.value is error
    finished = run(coro)
    assert not finished.ok
    assert type(finished.value) in (type(error), RuntimeError)  # Python's own rule: StopIteration


def test_a_function_that_cancels_itself_has_failed() -> None:
    async def coro() -> None:
        raise asyncio.CancelledError

    finished = run(coro)
    assert not finished.ok
    assert isinstance(finished.value, asyncio.CancelledError)


def test_items_of_a_generator_are_made_where_the_function_runs() -> None:
    made_in: list[str] = []

    def many() -> Any:
        for n in range(3):
            made_in.append(threading.current_thread().name)
            yield n

    assert run(many) == Finished(ok=True, value=[0, 1, 2])
    assert threading.current_thread().name not in made_in

    def endless() -> Any:
        while True:
            yield 1

    assert isinstance(run(endless).value, UnserialisableResult)


def test_a_sync_function_that_gives_a_coroutine_is_told_so() -> None:
    async def later() -> None: ...

    def wrong() -> Any:
        return later()

    assert "async def" in str(run(wrong).value)


def test_a_result_can_be_finished_where_the_function_runs() -> None:
    async def main() -> Finished | None:
        async def coro() -> Any:
            return {"a": 1}

        return await start(body(coro), {}, Context(), finish=to_json).outcome(10)

    finished = asyncio.run(main())
    assert finished is not None
    assert bytes(finished.value) == b'{"a":1}'


def test_the_context_is_closed_when_the_function_has_ended() -> None:
    async def main() -> None:
        async def coro(ctx: Context) -> None:
            assert not ctx.closed

        context = Context()
        await start(body(coro), {}, context).outcome(10)
        assert context.closed

    asyncio.run(main())


# --- time-outs, row B75 of the bug log


def test_b75_an_async_tool_is_cancelled_and_its_clean_up_bounded() -> None:
    async def main() -> None:
        release = asyncio.Event()
        late: list[tuple[bool, Any]] = []

        async def stubborn() -> str:
            try:
                await asyncio.sleep(60)
            finally:
                await release.wait()
            return "never"

        one = start(body(stubborn), {}, Context(), on_late=lambda ok, v: late.append((ok, v)))
        assert await one.outcome(SHORT, cleanup=SHORT) is None
        assert one.abandoned
        assert one in abandoned()
        release.set()
        await asyncio.wait({one._task})
        assert one not in abandoned()
        assert late == []  # cancelled as it was told: nothing came of it

    asyncio.run(main())


def test_b75_a_tool_that_swallows_its_cancellation_is_late() -> None:
    async def main() -> None:
        late: list[tuple[bool, Any]] = []

        async def swallow() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "done after all"

        one = start(body(swallow), {}, Context(), on_late=lambda ok, v: late.append((ok, v)))
        assert await one.outcome(SHORT) is None
        assert late == []  # first the time-out is told, then what came after it
        await asyncio.sleep(0)
        assert late == [(True, "done after all")]
        assert abandoned() == ()

    asyncio.run(main())


def test_b75_an_error_in_the_clean_up_is_late_as_well() -> None:
    async def main() -> None:
        late: list[tuple[bool, Any]] = []

        async def clumsy() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise ValueError("clean-up")

        one = start(body(clumsy), {}, Context(), on_late=lambda ok, v: late.append((ok, v)))
        assert await one.outcome(SHORT) is None
        await asyncio.sleep(0)
        assert [(ok, str(value)) for ok, value in late] == [(False, "clean-up")]

    asyncio.run(main())


def test_b75_a_blocked_thread_is_left_counted_and_reported_once() -> None:
    async def main() -> None:
        release = threading.Event()
        slots = Slots(1)
        late: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()

        def blocked() -> str:
            release.wait(20)
            return "late"

        await slots.acquire()
        one = start(
            body(blocked),
            {},
            Context(),
            slots=slots,
            on_late=lambda ok, v: late.put_nowait((ok, v)),
        )
        assert await one.outcome(SHORT) is None
        assert one in abandoned()
        assert not slots.try_acquire()
        release.set()
        assert await late.get() == (True, "late")
        await slots.acquire()
        assert one not in abandoned()
        assert late.empty()

    asyncio.run(main())


def test_b75_a_process_of_the_tool_is_killed_at_the_time_out(tmp_path: Path, is_free) -> None:
    lock = tmp_path / "c1.lock"

    async def main() -> None:
        slots = Slots()
        late: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()

        def spawn(ctx: Context) -> str:
            return ctx.run(["sh", "-c", "sleep 60 & wait"]).stdout

        await slots.acquire()
        context = Context(lock_path=str(lock))
        one = start(
            body(spawn), {}, context, slots=slots, on_late=lambda ok, v: late.put_nowait((ok, v))
        )
        assert await one.outcome(0.1) is None
        ok, error = await late.get()
        assert not ok
        assert isinstance(error, Unsure)

    asyncio.run(main())
    assert is_free(lock)


def test_b75_cancelling_the_wait_leaves_the_tool_alone_likewise() -> None:
    async def main() -> None:
        late: list[Any] = []
        begun = asyncio.Event()

        async def swallow() -> str:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "after all"

        context = Context()
        one = start(body(swallow), {}, context, on_late=lambda ok, v: late.append(v))
        waiting = asyncio.create_task(one.outcome(60))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert context.closed
        await asyncio.wait({one._task})
        assert late == ["after all"]

    asyncio.run(main())


def test_b75_an_outcome_in_the_moment_of_cancellation_is_not_lost() -> None:
    async def main() -> None:
        late: list[Any] = []

        async def end(waiting: "asyncio.Task[Any]") -> str:
            waiting.cancel()
            return "just in time"

        async def wait() -> Any:
            return await one.outcome(60)

        waiting = asyncio.create_task(wait())
        context = Context()
        bound = {"waiting": waiting}
        one = start(Body(end, is_async=True), bound, context, on_late=lambda ok, v: late.append(v))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        assert late == ["just in time"]

    asyncio.run(main())


def test_a_tool_abandoned_before_it_began_has_no_outcome() -> None:
    async def main() -> None:
        began: list[bool] = []
        done: list[Any] = []

        async def coro() -> None:
            began.append(True)

        one = start(body(coro), {}, Context(), on_done=done.append)
        one.abandon()
        one.abandon()
        await asyncio.wait({one._task})
        assert (began, done) == ([], [None])
        assert abandoned() == ()

    asyncio.run(main())


def test_who_asks_to_be_called_is_called_once_in_time_or_not() -> None:
    async def main() -> None:
        done: list[Any] = []

        async def quick() -> int:
            return 1

        async def swallow() -> int:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 2

        for function, leave in ((quick, False), (swallow, True)):
            one = start(body(function), {}, Context(), on_done=done.append)
            await asyncio.sleep(0)
            if leave:
                one.abandon()
            await asyncio.wait({one._task})
        assert done == [Finished(ok=True, value=1), Finished(ok=True, value=2)]

    asyncio.run(main())


def test_an_outcome_after_the_loop_is_closed_is_reported_in_the_thread(until) -> None:
    release = threading.Event()
    late: list[Any] = []
    slots = Slots(1)

    def blocked() -> str:
        release.wait(20)
        return "late"

    async def main() -> None:
        await slots.acquire()
        on_late = lambda ok, value: late.append((ok, value))  # noqa: E731 - read beside its use
        one = start(body(blocked), {}, Context(), slots=slots, on_late=on_late)
        assert await one.outcome(SHORT) is None

    asyncio.run(main())
    release.set()
    until(lambda: slots.taken == 0)
    assert late == [(True, "late")]
    assert abandoned() == ()


def test_a_thread_the_system_refuses_means_that_nothing_was_done(monkeypatch) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    def sync() -> None: ...

    slots = Slots(1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    finished = run(sync, slots=slots)
    assert type(finished.value).__name__ == "NotDone"
    assert slots.taken == 0


# --- threads and slots


def test_no_call_sees_the_thread_variables_of_another() -> None:
    local = threading.local()

    def sync() -> bool:
        seen = hasattr(local, "secret")
        local.secret = "of this call's principal"
        return seen

    assert [run(sync).value for _ in range(3)] == [False, False, False]


def test_calls_at_the_same_time_have_threads_of_their_own() -> None:
    async def main() -> None:
        slots = Slots()
        meet = threading.Barrier(8, timeout=10)

        def sync() -> None:
            meet.wait()

        waits = []
        for _ in range(8):
            await slots.acquire()
            waits.append(start(body(sync), {}, Context(), slots=slots).outcome(10))
        assert all(each.ok for each in await asyncio.gather(*waits))

    asyncio.run(main())


def test_slots_are_given_in_the_order_they_were_asked_for() -> None:
    async def main() -> None:
        slots = Slots(1)
        await slots.acquire()
        assert not slots.try_acquire()
        order: list[str] = []
        got = asyncio.Semaphore(0)

        async def want(name: str) -> None:
            await slots.acquire()
            order.append(name)
            got.release()

        tasks = [asyncio.create_task(want(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        for _ in range(2):
            slots.release()
            await got.acquire()
        assert order == ["a", "c"]
        slots.release()
        assert slots.taken == 0

    asyncio.run(main())


def test_a_slot_given_to_who_was_cancelled_meanwhile_is_not_lost() -> None:
    async def main() -> None:
        for pause in range(3):
            slots = Slots(1)
            await slots.acquire()
            task = asyncio.create_task(slots.acquire())
            await asyncio.sleep(0)
            slots.release()
            for _ in range(pause):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                slots.release()
            except asyncio.CancelledError:
                pass
            await asyncio.sleep(0)
            assert slots.taken == 0

    asyncio.run(main())


def test_slots_are_shared_by_loops_and_threads() -> None:
    slots = Slots(3)
    most, now, lock = [0], [0], threading.Lock()

    async def worker() -> None:
        for _ in range(20):
            await slots.acquire()
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            await asyncio.sleep(0)
            with lock:
                now[0] -= 1
            slots.release()

    async def several() -> None:
        await asyncio.gather(*(worker() for _ in range(4)))

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most[0] <= 3
    assert slots.taken == 0


def test_a_waiter_on_a_closed_loop_is_passed_over() -> None:
    slots = Slots(1)
    loop = asyncio.new_event_loop()
    assert slots.try_acquire()
    waiting = loop.create_task(slots.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False
    loop.close()
    slots.release()
    assert slots.taken == 0
