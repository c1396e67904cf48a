"""The same call starts a run, goes on with it, recovers it, and gives its result again."""

import asyncio

import pytest
from tests.engine.kit import Ledger, Recorder, names, results, runtime, until

from cairn import Agent, Context, Principal, RunConflict, Runtime, Scripted, call, tool
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import ConfigError, UnknownAgent, UnknownRun
from cairn.store.inmemory import InMemoryStore


def refunds(ledger: Ledger):
    @tool(effect="write")
    def refund(order: str) -> str:
        return ledger.add(f"refunded {order}")

    return refund


def test_the_second_and_third_call_return_the_stored_result_and_execute_nothing():
    async def main():
        ledger, model = Ledger(), Recorder(call("refund", order="7"), "It is paid back.")
        rt = runtime(model, [refunds(ledger)])
        first = await rt.run_async("a", "Refund order 7", id="order-7")
        journal = await rt.trace_async("order-7")
        for _ in range(2):
            again = await rt.run_async("a", "Refund order 7", id="order-7")
            assert again == first
        assert first.status == "completed"
        assert first.text == "It is paid back."
        assert ledger.lines == ["refunded 7"]
        assert len(model.requests) == 2
        assert await rt.trace_async("order-7") == journal

    asyncio.run(main())


def test_a_waiting_run_waits_again_when_called_again_and_goes_on_after_the_approval():
    async def main():
        ledger, model = Ledger(), Recorder(call("refund", order="7"), "done")
        rt = runtime(model, [refunds(ledger)], policy=DEFAULT_POLICY)
        first = await rt.run_async("a", "Refund order 7", id="order-7")
        again = await rt.run_async("a", "Refund order 7", id="order-7")
        assert first.status == again.status == "waiting"
        assert [p.id for p in again.pending] == ["order-7/1"]
        assert len(await rt.pending_async()) == 1
        assert ledger.lines == []
        await rt.client.approve("order-7/1")
        done = await rt.run_async("a", "Refund order 7", id="order-7")
        assert done.status == "completed"
        assert ledger.lines == ["refunded 7"]
        assert len(model.requests) == 2

    asyncio.run(main())


def test_a_run_of_a_session_is_resumed_by_the_same_call():
    """The active run that a session is busy with is the very run that was asked for."""

    async def main():
        ledger = Ledger()
        rt = runtime([call("refund", order="7"), "done"], [refunds(ledger)], policy=DEFAULT_POLICY)
        first = await rt.run_async("a", "Refund", id="order-7", session="s")
        assert first.status == "waiting"
        again = await rt.run_async("a", "Refund", id="order-7", session="s")
        assert again.status == "waiting"
        await rt.client.approve("order-7/1")
        done = await rt.run_async("a", "Refund", id="order-7", session="s")
        assert (done.status, ledger.lines) == ("completed", ["refunded 7"])

    asyncio.run(main())


def test_a_finished_run_of_a_session_is_given_again_while_a_later_one_is_active():
    async def main():
        script = ["one", call("ask_user", question="?"), "two"]
        rt = runtime(lambda request: script[1] if "two" in str(request.messages[-1]) else "one")
        await rt.run_async("a", "first", id="r1", session="s")
        busy = await rt.run_async("a", "two", id="r2", session="s")
        assert busy.status == "waiting"
        again = await rt.run_async("a", "first", id="r1", session="s")
        assert (again.status, again.text) == ("completed", "one")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("agent", "given", "principal"),
    [("a", "another task", "local"), ("b", "task", "local"), ("a", "task", "eve")],
)
def test_another_input_agent_or_principal_under_the_same_id_is_a_conflict(agent, given, principal):
    """B12: the same key with another body conflicts; nothing is started and nothing changes."""

    async def main():
        agents = [Agent("a", Scripted(["done"])), Agent("b", Scripted(["done"]))]
        rt = Runtime(":memory:", agents=agents)
        await rt.run_async("a", "task", id="r")
        before = await rt.trace_async("r")
        with pytest.raises(RunConflict, match="'r' exists"):
            await rt.run_async(agent, given, id="r", principal=principal)
        assert await rt.trace_async("r") == before
        assert len(await rt.runs_async()) == 1

    asyncio.run(main())


def test_the_same_principal_given_as_text_and_as_a_value_is_the_same_task():
    async def main():
        rt = runtime(["done"])
        await rt.run_async("a", "task", id="r", principal="ann")
        again = await rt.run_async("a", "task", id="r", principal=Principal(id="ann"))
        assert again.status == "completed"

    asyncio.run(main())


def test_the_same_id_created_at_the_same_moment_many_times_is_one_run():
    """B12: created again and again at once, in one process and in two: one run, one effect."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()
        model = Recorder(call("refund", order="7"), "done")
        rts = [runtime(model, [refunds(ledger)], store=s) for s in (store, store.beside())]
        runs = [rts[n % 2].run_async("a", "Refund", id="order-7") for n in range(10)]
        found = await asyncio.gather(*runs)
        assert {r.status for r in found} == {"completed"}
        assert {r.text for r in found} == {"done"}
        assert ledger.lines == ["refunded 7"]
        assert len(model.requests) == 2

    asyncio.run(main())


@pytest.mark.parametrize("bad", ["store", "a/b", "", "x" * 65, "ü", "a b"])
def test_an_id_that_is_none_is_refused_before_anything_is_written(bad):
    async def main():
        rt = runtime(["done"])
        if bad:
            with pytest.raises(ConfigError, match="is no run id"):
                await rt.run_async("a", "task", id=bad)
            assert await rt.runs_async() == []
        else:
            assert (await rt.run_async("a", "task", id=bad)).id

    asyncio.run(main())


def test_an_unknown_agent_is_named_before_a_run_is_made():
    async def main():
        rt = runtime(["done"])
        with pytest.raises(UnknownAgent, match=r"'shop'.*known: a"):
            await rt.run_async("shop", "task", id="r")
        with pytest.raises(UnknownRun):
            await rt.get_async("r")

    asyncio.run(main())


def test_a_process_that_does_not_know_the_agent_gives_the_claim_back():
    async def main():
        store = InMemoryStore()
        ledger = Ledger()
        rt = runtime([call("refund", order="7"), "done"], [refunds(ledger)], store=store)
        await rt.enqueue_async("a", "Refund", id="r")
        stranger = Runtime(store.beside(), agents=[Agent("b", Scripted(["no"]))])
        for _ in range(2):
            with pytest.raises(UnknownAgent):
                await stranger.drive_async("r")
        assert (await stranger.get_async("r")).status == "queued"
        assert (await rt.run_async("a", "Refund", id="r")).status == "completed"
        assert ledger.lines == ["refunded 7"]

    asyncio.run(main())


def test_many_runs_at_once_in_one_process_do_not_mix_anything_up():
    async def main():
        ledger = Ledger()
        seen: dict[str, set[str]] = {}

        @tool(effect="write", recovery="keyed")
        async def pay(order: str, ctx: Context) -> str:
            await asyncio.sleep(0)
            seen.setdefault(ctx.run_id, set()).add(order)
            return ledger.add(f"paid {order} of {ctx.run_id} for {ctx.principal.id}")

        def model(request):
            if request.turn < 3:
                return call("pay", order=f"{request.run}-{request.turn}")
            return f"{request.run} read {sorted(results(request).values())}"

        rt = runtime(model, [pay])
        runs = await asyncio.gather(
            *(rt.run_async("a", f"task {n}", id=f"r{n}", principal=f"p{n}") for n in range(40))
        )
        for n, run in enumerate(runs):
            assert run.status == "completed"
            paid = [f"paid r{n}-{t} of r{n} for p{n}" for t in range(3)]
            assert run.text == f"r{n} read {paid}"
            assert seen[f"r{n}"] == {f"r{n}-{t}" for t in range(3)}
        assert len(ledger.lines) == 120

    asyncio.run(main())


def test_a_run_that_another_process_drives_is_followed_to_its_result():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        gate = asyncio.Event()

        @tool(effect="write")
        async def slow() -> str:
            await gate.wait()
            return ledger.add("slow")

        one, two = (
            runtime([call("slow"), "done"], [slow], store=s) for s in (store, store.beside())
        )
        driver = asyncio.create_task(one.run_async("a", "task", id="r"))
        await until(lambda: "r" in store.journals.runs and store.journals.runs["r"].head >= 4)
        follower = asyncio.create_task(two.run_async("a", "task", id="r"))
        await asyncio.sleep(0.02)
        assert not follower.done()
        gate.set()
        assert (await follower).text == (await driver).text == "done"
        assert ledger.lines == ["slow"]

    asyncio.run(main())


def test_a_started_run_goes_on_in_the_background_and_run_waits_for_it():
    async def main():
        ledger = Ledger()
        rt = runtime([call("refund", order="7"), "done"], [refunds(ledger)])
        run = await rt.start_async("a", "Refund", id="r")
        assert run == "r"
        done = await rt.run_async("a", "Refund", id="r")
        assert done.status == "completed"
        assert ledger.lines == ["refunded 7"]
        assert names(await rt.trace_async("r"))[-1] == "run.completed"

    asyncio.run(main())


def test_sync_and_async_verbs_are_the_same_and_a_sync_one_inside_a_loop_says_so():
    from cairn.errors import SyncInsideLoop

    rt = runtime(["done"])
    assert rt.run("a", "task", id="r").text == "done"
    assert rt.get("r").text == "done"

    async def main():
        with pytest.raises(SyncInsideLoop, match="run_async"):
            rt.run("a", "task", id="r")
        with pytest.raises(SyncInsideLoop):
            next(rt.stream("a", "task", id="r"))

    asyncio.run(main())
    rt.close()


def test_a_sync_tool_may_use_the_runtime_that_runs_it():
    ledger = Ledger()

    @tool(effect="read")
    def ask_other(question: str) -> str:
        return rt.run("b", question, id="inner").text

    rt = Runtime(
        ":memory:",
        agents=[
            Agent("a", Scripted([call("ask_other", question="q"), "outer"]), tools=[ask_other]),
            Agent("b", Scripted(["inner says yes"])),
        ],
    )
    assert rt.run("a", "task", id="outer").text == "outer"
    assert rt.get("inner").text == "inner says yes"
    rt.close()
    assert ledger.lines == []
