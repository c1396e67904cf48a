"""A retry that nobody names is one run, however often and by however many it is asked for."""

import asyncio

import pytest
from tests.engine.kit import Ledger, runtime

from cairn import (
    Agent,
    ErrorClass,
    Limits,
    ModelError,
    Policy,
    RunConflict,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.errors import IllegalTransition

NO = ModelError(ErrorClass.AUTH, "key expired")


def payer(ledger: Ledger):
    @tool(effect="write")
    async def pay(n: int) -> str:
        return ledger.add(f"pay {n}")

    return pay


def test_two_retries_of_one_run_at_the_same_time_are_one_run_that_writes_once():
    async def main():
        ledger = Ledger()
        rt = runtime([NO, call("pay", n=1), "done"], [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        first, second = await asyncio.gather(rt.retry_async("r"), rt.retry_async("r"))
        assert first.id == second.id
        assert first.status == second.status == "completed"
        assert ledger.lines == ["pay 1"]
        assert len(await rt.runs_async()) == 2

    asyncio.run(main())


def test_two_processes_that_retry_one_run_at_the_same_time_make_one_run(tmp_path):
    ledger = Ledger()

    def process():
        model = Scripted([NO, call("pay", n=1), "done"])
        agent = Agent("a", model, tools=[payer(ledger)])
        return Runtime(tmp_path / "cairn.db", agents=[agent], policy=Policy(tools={"pay": "allow"}))

    async def main():
        one, other = process(), process()
        await one.run_async("a", "task", id="r")
        for _ in range(3):
            made = await asyncio.gather(*(rt.client.retry("r") for rt in (one, other)))
            assert len(set(made)) == 1
        assert len(await other.runs_async()) == 2
        done = await asyncio.gather(one.retry_async("r"), other.retry_async("r"))
        assert [run.text for run in done] == ["done", "done"]
        assert ledger.lines == ["pay 1"]
        await one.close_async()
        await other.close_async()

    asyncio.run(main())


def test_a_retry_that_is_not_over_is_gone_on_with_by_the_next_one():
    async def main():
        ledger = Ledger()
        lines = [call("pay", n=1), NO, call("ask_user", question="?"), call("pay", n=2), "done"]
        rt = runtime(lines, [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        waiting = await rt.retry_async("r")
        assert (waiting.status, waiting.reason) == ("waiting", "input")
        assert (await rt.retry_async("r")).id == waiting.id
        await rt.answer_async(waiting.pending[0].id, "go on")
        done = await rt.retry_async("r")
        assert (done.id, done.status) == (waiting.id, "completed")
        assert (await rt.retry_async("r")).text == done.text, "its stored result"
        assert ledger.lines == ["pay 1", "pay 2"]

    asyncio.run(main())


def test_a_retry_that_ended_badly_is_the_one_to_be_retried():
    async def main():
        ledger = Ledger()
        rt = runtime([NO, call("pay", n=1), NO, "done"], [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        failed = await rt.retry_async("r")
        assert failed.status == "failed"
        with pytest.raises(IllegalTransition, match=f"was retried as {failed.id}, which is failed"):
            await rt.retry_async("r", limits={"steps": 9})
        done = await rt.retry_async(failed.id)
        assert (done.status, ledger.lines) == ("completed", ["pay 1"])
        assert done.id not in {failed.id, "r"}
        assert (await rt.retry_async(failed.id)).id == done.id

    asyncio.run(main())


def test_other_limits_for_a_retry_that_is_there_are_a_conflict():
    async def main():
        rt = runtime([NO, call("ask_user", question="?"), "done"])
        await rt.run_async("a", "task", id="r")
        waiting = await rt.retry_async("r", limits=Limits(steps=9))
        assert (await rt.retry_async("r", limits={"steps": 9})).id == waiting.id
        with pytest.raises(RunConflict, match="was made with other limits"):
            await rt.retry_async("r", limits={"steps": 10})

    asyncio.run(main())


def test_a_retry_with_an_id_of_its_own_and_a_fork_remain_free():
    async def main():
        rt = runtime([NO, "one", "two", "three"])
        await rt.run_async("a", "task", id="r")
        end = (await rt.store.info("r")).head
        made = [await rt.retry_async("r"), await rt.retry_async("r", id="mine")]
        made.append(await rt.fork_async("r", at=end - 1))
        assert len({run.id for run in made}) == 3
        assert {run.status for run in made} == {"completed"}

    asyncio.run(main())


def test_retries_of_different_runs_and_in_different_stores_have_different_ids():
    async def main():
        ids = set()
        for _ in range(2):
            rt = runtime([NO, NO, "one", "two"])
            for run in ("r", "s"):
                await rt.run_async("a", "task", id=run)
                ids.add(await rt.client.retry(run))
        assert len(ids) >= 2
        assert all(len(made) == 20 for made in ids)

    asyncio.run(main())


def test_a_retry_in_a_session_is_found_again_until_the_session_goes_on():
    async def main():
        rt = runtime([NO, "one", "two"])
        await rt.run_async("a", "hello", id="r", session="s")
        done = await rt.retry_async("r")
        assert (await rt.retry_async("r")).id == done.id
        await rt.run_async("a", "more", id="next", session="s")
        assert (await rt.retry_async("r")).id == done.id, "it is looked up, and nothing is done"

    asyncio.run(main())
