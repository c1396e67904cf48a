"""Retry: a new run that goes on from just before the end of a failed, stopped or cancelled one."""

import asyncio
import threading

import pytest
from tests.engine.kit import Ledger, Recorder, events, names, results, runtime, until

from cairn import ErrorClass, Limits, ModelError, RunConflict, UnknownRun, call, tool
from cairn.core import events as ev
from cairn.engine.load import load
from cairn.errors import IllegalTransition


def payer(ledger: Ledger):
    @tool(effect="write")
    async def pay(n: int) -> str:
        return ledger.add(f"pay {n}")

    return pay


def test_a_retry_goes_on_before_the_end_and_repeats_no_finished_effect():
    async def main():
        ledger = Ledger()
        broken = ModelError(ErrorClass.AUTH, "key expired")
        lines = [call("pay", n=1), broken, "after all"]
        model = Recorder(*lines)
        rt = runtime(model, [payer(ledger)])
        failed = await rt.run_async("a", "task", id="r")
        assert (failed.status, failed.error_class) == ("failed", "auth")
        retried = await rt.retry_async("r", id="r-2")
        assert (retried.id, retried.status, retried.text) == ("r-2", "completed", "after all")
        assert ledger.lines == ["pay 1"]
        assert results(model.last) == {"c1": "pay 1"}
        assert (await rt.get_async("r")).status == "failed"
        forked = events(await rt.trace_async("r-2"), ev.RunForked)[0]
        assert (forked.parent, forked.reason) == ("r", "retry")
        await rt.store.verify("r-2")

    asyncio.run(main())


def test_a_retry_with_the_same_id_is_the_same_retry():
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", n=1), ModelError(ErrorClass.AUTH, "no"), "ok"], [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        first = await rt.retry_async("r", id="r-2")
        again = await rt.retry_async("r", id="r-2")
        assert again == first
        assert len(await rt.runs_async()) == 2
        await rt.run_async("a", "other", id="x")
        with pytest.raises(RunConflict, match="is no retry"):
            await rt.retry_async("r", id="x")

    asyncio.run(main())


def test_a_retry_with_the_same_id_and_other_limits_is_a_conflict():
    async def main():
        rt = runtime([ModelError(ErrorClass.AUTH, "no"), "ok"], [])
        await rt.run_async("a", "task", id="r")
        wide = Limits(steps=90)
        first = await rt.retry_async("r", id="wide", limits=wide)
        assert await rt.retry_async("r", id="wide", limits=wide) == first
        assert await rt.retry_async("r", id="wide") == first, "who gives no limits goes on with it"
        with pytest.raises(RunConflict, match="was made with other limits"):
            await rt.retry_async("r", id="wide", limits={"steps": 91})
        old = (await load(rt.store, "r")).limits
        await rt.retry_async("r", id="old")
        assert (await rt.retry_async("r", id="old", limits=old)).id == "old"
        with pytest.raises(RunConflict):
            await rt.retry_async("r", id="old", limits=wide)

    asyncio.run(main())


def test_only_an_ended_run_that_did_not_complete_can_be_retried():
    async def main():
        rt = runtime([call("ask_user", question="?"), "ok"])
        with pytest.raises(UnknownRun):
            await rt.retry_async("r")
        await rt.run_async("a", "task", id="r")
        with pytest.raises(IllegalTransition, match="waiting"):
            await rt.retry_async("r")
        await rt.answer_async("r/1", "x")
        await rt.run_async("a", "task", id="r")
        with pytest.raises(IllegalTransition, match="completed"):
            await rt.retry_async("r")

    asyncio.run(main())


def test_a_stopped_run_is_retried_with_wider_limits_and_starts_counting_at_zero():
    async def main():
        ledger = Ledger()
        lines = [call("pay", n=n) for n in range(6)]
        rt = runtime([*lines, "done"], [payer(ledger)])
        stopped = await rt.run_async("a", "task", id="r", limits=Limits(steps=3))
        assert (stopped.status, stopped.limit, stopped.steps) == ("stopped", "steps", 3)
        again = await rt.retry_async("r", id="r-2")
        assert (again.status, again.steps) == ("stopped", 3)
        done = await rt.retry_async("r-2", id="r-3", limits=Limits(steps=10))
        assert done.status == "completed"
        assert ledger.lines == [f"pay {n}" for n in range(6)]

    asyncio.run(main())


def test_a_cancelled_run_is_retried_where_it_was():
    async def main():
        ledger = Ledger()
        model = Recorder(call("pay", n=1), call("ask_user", question="?"), "done")
        rt = runtime(model, [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        await rt.cancel_async("r")
        again = await rt.retry_async("r", id="r-2")
        assert (again.status, again.reason) == ("waiting", "input")
        await rt.answer_async(again.pending[0].id, "yes")
        assert (await rt.drive_async("r-2")).status == "completed"
        assert ledger.lines == ["pay 1"]
        assert len(model.requests) == 3

    asyncio.run(main())


def test_an_effect_nobody_knows_of_is_not_repeated_by_a_retry():
    """Law 4 holds across a fork: the new run waits for a person, too."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            ledger.add("pay")
            raise TimeoutError

        rt = runtime([call("pay"), "done"], [pay])
        await rt.run_async("a", "task", id="r")
        await rt.resolve_async("r/c1", give_up=True)
        assert (await rt.run_async("a", "task", id="r")).status == "failed"
        again = await rt.retry_async("r", id="r-2")
        assert (again.status, again.reason) == ("waiting", "in_doubt")
        await rt.resolve_async("r-2/c1", happened=True)
        assert (await rt.drive_async("r-2")).status == "completed"
        assert ledger.lines == ["pay"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["late", "resolved"])
def test_what_came_out_about_an_effect_after_the_end_is_known_to_the_retry(how):
    """The journal knows that it happened: nobody is asked again, and nobody can say otherwise."""

    async def main():
        ledger, gate = Ledger(), threading.Event()

        @tool(effect="write", timeout=0.05)
        def pay() -> str:
            ledger.add("pay")
            gate.wait(10)
            return "receipt 9"

        model = Recorder(call("pay"), "done")
        rt = runtime(model, [pay])
        await rt.run_async("a", "task", id="r")
        await rt.cancel_async("r")
        if how == "resolved":
            await rt.resolve_async("r/c1", happened=True, result="receipt 9")
        gate.set()

        async def late() -> bool:
            return names(await rt.trace_async("r"))[-1] == "tool.late"

        await until(late)
        again = await rt.retry_async("r", id="r-2")
        assert again.status == "completed"
        assert results(model.last) == {"c1": "receipt 9"}
        assert ledger.lines == ["pay"]
        assert await rt.store.verify("r-2") > 0

    asyncio.run(main())


def test_a_keyed_call_keeps_its_key_in_a_retry():
    async def main():
        from cairn import Context

        keys = []

        @tool(effect="write", recovery="keyed", timeout=0.05)
        async def pay(ctx: Context) -> str:
            keys.append(ctx.key)
            if len(keys) < 3:
                await asyncio.sleep(60)
            return "paid"

        rt = runtime([call("pay"), "done"], [pay])
        run = await rt.run_async("a", "task", id="r")
        assert run.reason == "in_doubt"
        await rt.cancel_async("r")
        again = await rt.retry_async("r", id="r-2")
        assert again.status == "waiting"
        assert len(set(keys)) == 1

    asyncio.run(main())


def test_a_call_with_a_new_id_in_a_retry_has_a_key_of_its_own():
    async def main():
        from cairn import Context

        keys = []

        @tool(effect="write", recovery="keyed")
        async def pay(ctx: Context) -> str:
            keys.append(ctx.key)
            return "paid"

        broken = ModelError(ErrorClass.AUTH, "no")
        lines = [call("pay"), broken, call("pay"), "done"]
        rt = runtime(lines, [pay])
        await rt.run_async("a", "task", id="r")
        assert (await rt.retry_async("r", id="r-2")).status == "completed"
        assert (await rt.retry_async("r", id="r-3")).status == "completed"
        assert len(keys) == 3
        assert len(set(keys)) == 3  # c2 of one retry is not c2 of the other

    asyncio.run(main())


def test_a_retry_of_a_retry_reads_the_whole_conversation():
    async def main():
        ledger = Ledger()
        no = ModelError(ErrorClass.AUTH, "no")
        model = Recorder(call("pay", n=1), no, call("pay", n=2), no, "done")
        rt = runtime(model, [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        await rt.retry_async("r", id="r-2")
        done = await rt.retry_async("r-2", id="r-3")
        assert done.status == "completed"
        assert results(model.last) == {"c1": "pay 1", "c2": "pay 2"}
        assert ledger.lines == ["pay 1", "pay 2"]
        assert names(await rt.trace_async("r-3"))[-1] == "run.completed"

    asyncio.run(main())


def test_a_retried_run_of_a_session_is_its_newest_and_the_next_run_goes_on_from_it():
    async def main():
        store_model = Recorder(ModelError(ErrorClass.AUTH, "no"), "answer one", "answer two")
        rt = runtime(store_model)
        await rt.run_async("a", "one", id="r1", session="s")
        assert (await rt.retry_async("r1", id="r1b")).text == "answer one"
        following = Recorder("answer two")
        rt2 = runtime(following, store=rt.store)
        await rt2.run_async("a", "two", id="r2", session="s")
        from tests.engine.kit import texts

        assert texts(following.last) == ["one", "two"]
        assert texts(following.last, "assistant") == ["answer one"]

    asyncio.run(main())
