"""Law 3, counted: what is committed when, and how often."""

import asyncio
import itertools

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, Watched, names, runtime, until

from cairn import Limits, Runtime, call, tool
from cairn.core.policy import DEFAULT_POLICY


def looker(effect="read"):
    @tool(effect=effect, conflict_key="n")
    async def work(n: int) -> str:
        return f"worked {n}"

    return work


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_turn_of_one_call_costs_exactly_two_commits(effect):
    async def main():
        watched = Watched()
        rt = runtime(
            [*(call("work", n=n) for n in range(10)), "done"], [looker(effect)], store=watched
        )
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        turn = [("tool.completed", "model.requested"), ("model.completed", "tool.started")]
        assert watched.commits == [
            ("model.requested",),
            ("model.completed", "tool.started"),
            *(turn * 9),
            ("tool.completed", "model.requested"),
            ("model.completed", "run.completed"),
        ]

    asyncio.run(main())


def test_a_sync_tool_costs_no_commit_more():
    async def main():
        @tool(effect="write")
        def work(n: int) -> str:
            return f"worked {n}"

        watched = Watched()
        rt = runtime([*(call("work", n=n) for n in range(5)), "done"], [work], store=watched)
        await rt.run_async("a", "task", id="r")
        assert len(watched.commits) == 2 * 5 + 2

    asyncio.run(main())


@pytest.mark.parametrize("k", [2, 3, 8, 16])
def test_a_turn_of_k_parallel_calls_costs_at_most_one_and_k(k):
    async def main():
        watched = Watched()
        gates = [asyncio.Event() for _ in range(k)]

        @tool(effect="read")
        async def work(n: int) -> str:
            await gates[n].wait()
            return f"worked {n}"

        rt = runtime([[call("work", n=n) for n in range(k)], "done"], [work], store=watched)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        for n, gate in enumerate(gates):
            await until(lambda n=n: len(watched.commits) >= 2 + n)
            gate.set()
        await driving
        turn = watched.commits[1:]
        assert turn[0] == ("model.completed", *["tool.started"] * k)
        assert len(turn[:-1]) <= 1 + k
        assert turn[-1] == ("model.completed", "run.completed")

    asyncio.run(main())


def test_calls_that_end_together_share_a_commit():
    async def main():
        watched = Watched()

        @tool(effect="read")
        async def work(n: int) -> str:
            return f"worked {n}"

        rt = runtime([[call("work", n=n) for n in range(8)], "done"], [work], store=watched)
        await rt.run_async("a", "task", id="r")
        assert len(watched.commits) <= 5

    asyncio.run(main())


def test_each_outcome_is_durable_while_its_siblings_are_still_at_work():
    """Siblings are journaled as they arrive: a crash loses none that had ended."""

    async def main():
        watched, gate = Watched(), asyncio.Event()

        @tool(effect="write", conflict_key="n")
        async def work(n: int) -> str:
            if n:
                await gate.wait()
            return f"worked {n}"

        rt = runtime([[call("work", n=0), call("work", n=1)], "done"], [work], store=watched)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: ("tool.completed",) in watched.commits)
        gate.set()
        await driving
        assert watched.commits[2] == ("tool.completed",)

    asyncio.run(main())


def test_an_approval_adds_at_most_three_commits():
    async def main():
        async def cost(policy) -> int:
            watched = Watched()
            submits = 0

            async def count(name, *args, **kwargs):
                nonlocal submits
                submits += name == "submit"

            watched.after = count
            options = {} if policy is None else {"policy": policy}
            rt = runtime([call("work", n=1), "done"], [looker("write")], store=watched, **options)
            run = await rt.run_async("a", "task", id="r")
            if run.status == "waiting":
                await rt.client.approve("r/1")
                run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"
            return len(watched.commits) + submits

        assert await cost(DEFAULT_POLICY) - await cost(None) <= 3

    asyncio.run(main())


def test_a_run_called_again_after_its_end_costs_at_most_a_release():
    async def main():
        watched = Watched()
        rt = runtime(["done"], store=watched)
        await rt.run_async("a", "task", id="r")
        before = len(watched.commits)
        await rt.run_async("a", "task", id="r")
        assert watched.commits[before:] in ([], [()])

    asyncio.run(main())


def test_an_intent_is_durable_before_the_effect():
    """The tool, and the model, find their own intent in the store."""

    async def main():
        watched = Watched()
        found: list[str] = []

        @tool(effect="write")
        async def work(n: int) -> str:
            found.append(names(await watched.inner.read("r"))[-1])
            return "worked"

        async def model(request):
            found.append(names(await watched.inner.read("r"))[-1])
            return "done" if request.turn else call("work", n=1)

        await runtime(model, [work], store=watched).run_async("a", "task", id="r")
        assert found == ["model.requested", "tool.started", "model.requested"]

    asyncio.run(main())


@pytest.mark.parametrize("wait", ["back-off", "approval", "question"])
def test_an_outcome_is_committed_before_anything_is_waited_for(wait):
    """Law 3: outcomes never wait in memory for a back-off, a person or a rate permit."""

    async def main():
        from cairn import ErrorClass, ModelError

        watched, clock = Watched(), TurnedClock()
        seen: list[str] = []
        plain_sleep = clock.sleep

        async def sleep(seconds):
            seen.extend(names(await watched.inner.read("r")))
            await plain_sleep(seconds)

        clock.sleep = sleep
        second = {
            "back-off": ModelError(ErrorClass.OVERLOADED, "529"),
            "approval": call("work", n=2),
            "question": call("ask_user", question="?"),
        }[wait]
        rt = runtime(
            [call("free", n=1), second, "done"],
            [looker("write"), tool(name="free", effect="read")(looker().function)],
            policy=DEFAULT_POLICY,
            store=watched,
            clock=clock,
        )
        run = await rt.run_async("a", "task", id="r")
        if wait == "back-off":
            assert (run.status, seen[-1]) == ("completed", "model.failed")
        else:
            assert run.status == "waiting"
            stored = names(await watched.inner.read("r"))
            assert stored.count("model.completed") == 2
            assert not (await watched.inner.info("r")).leased

    asyncio.run(main())


def test_a_one_call_turn_writes_at_most_five_events_and_grows_by_its_own_size():
    """B11: bytes per turn follow the size of that turn, at turn 10 as at turn 400."""

    async def main():
        import msgspec

        numbers = itertools.count()
        wide = Limits(steps=400, calls=400)
        rt = runtime(lambda r: call("work", n=next(numbers)), [looker()], limits=wide)
        await rt.run_async("a", "task", id="r")
        trace = await rt.trace_async("r")
        by_step: dict[int, int] = {}
        events_by_step: dict[int, int] = {}
        for entry in trace:
            size = len(msgspec.json.encode(entry.event))
            by_step[entry.step] = by_step.get(entry.step, 0) + size
            events_by_step[entry.step] = events_by_step.get(entry.step, 0) + 1
        assert max(events_by_step[n] for n in range(1, 401)) <= 5
        assert abs(by_step[399] - by_step[10]) <= by_step[10] * 0.03 + 16

    asyncio.run(main())


def test_two_hundred_runs_at_once_are_each_driven_once():
    async def main():
        ledger, watched = Ledger(), Watched()

        @tool(effect="write")
        async def work(n: int) -> str:
            return ledger.add(f"{n}")

        model = Recorder(lambda r: call("work", n=int(r.run[1:])), "done")
        rt = runtime(model, [work], store=watched)
        runs = await asyncio.gather(*(rt.run_async("a", "t", id=f"r{n}") for n in range(200)))
        assert {r.status for r in runs} == {"completed"}
        assert sorted(map(int, ledger.lines)) == list(range(200))
        assert len(watched.commits) == 4 * 200

    asyncio.run(main())


def test_a_claim_is_free_as_soon_as_a_run_settles():
    async def main():
        watched = Watched()
        rt = runtime([call("ask_user", question="?"), "done"], store=watched)
        await rt.run_async("a", "task", id="r")
        assert not (await watched.inner.info("r")).leased
        assert watched.commits[-1][-1] == "input.requested"
        await Runtime(watched.inner.beside()).answer_async("r/1", "yes")
        await rt.run_async("a", "task", id="r")
        assert not (await watched.inner.info("r")).leased

    asyncio.run(main())
