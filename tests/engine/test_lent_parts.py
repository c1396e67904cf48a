"""What a process lends to a run: computed instructions, dependencies, and who is told of waits."""

import asyncio
import json
import sys

import pytest
from tests.engine.kit import Ledger, Recorder, Watched, events, names, runtime, until

from cairn import Agent, Briefing, Context, Principal, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import ConfigError, DepsFailed, SyncInsideLoop, ToolDefinitionError
from cairn.store.inmemory import InMemoryStore

# ---------------------------------------------------------------- instructions


@pytest.mark.parametrize("is_async", [False, True])
def test_computed_instructions_are_asked_before_every_request_and_journaled_when_changed(is_async):
    async def main():
        asked: list[Briefing] = []

        def text(briefing: Briefing) -> str:
            asked.append(briefing)
            return "Be brief." if briefing.step < 3 else "Be very brief."

        async def text_async(briefing: Briefing) -> str:
            await asyncio.sleep(0)
            return text(briefing)

        @tool(effect="read")
        async def look() -> str:
            return f"seen {len(asked)}"

        model = Recorder(call("look"), call("look"), "done")
        rt = runtime(model, [look], instructions=text_async if is_async else text)
        who = Principal(id="ann", roles=("clerk",))
        run = await rt.run_async("a", "task", id="r", principal=who, session="s")
        assert run.status == "completed"
        assert [b.step for b in asked] == [1, 2, 3]
        assert (asked[0].run, asked[0].agent, asked[0].session) == ("r", "a", "s")
        assert asked[0].principal == who
        assert [r.system for r in model.requests] == ["Be brief.", "Be brief.", "Be very brief."]
        blocks = [
            [b.text for b in r.blocks] for r in events(await rt.trace_async("r"), ev.ModelRequested)
        ]
        assert blocks == [["Be brief."], [], ["Be very brief."]]

    asyncio.run(main())


def test_fixed_instructions_are_journaled_once():
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        rt = runtime([call("look"), "done"], [look], instructions="Be kind.")
        await rt.run_async("a", "task", id="r")
        requested = events(await rt.trace_async("r"), ev.ModelRequested)
        assert [len(r.blocks) for r in requested] == [1, 0]

    asyncio.run(main())


def test_what_is_known_is_committed_before_instructions_are_awaited():
    """Law 3: a tool's outcome is durable before anything else is waited for."""

    async def main():
        watched = Watched()
        durable: list[list[str]] = []

        async def text(briefing: Briefing) -> str:
            durable.append(names(await watched.inner.read("r")))
            return "Be kind."

        @tool(effect="write")
        async def pay() -> str:
            return "paid"

        rt = runtime([call("pay"), "done"], [pay], store=watched, instructions=text)
        await rt.run_async("a", "task", id="r")
        assert durable[1][-1] == "tool.completed"
        assert watched.commits == [
            ("model.requested",),
            ("model.completed", "tool.started"),
            ("tool.completed",),
            ("model.requested",),
            ("model.completed", "run.completed"),
        ]

    asyncio.run(main())


def test_instructions_that_fail_end_the_run_and_say_why():
    async def main():
        def text(briefing: Briefing) -> str:
            raise LookupError("no template")

        run = await runtime(["done"], instructions=text).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "internal")
        assert "LookupError: no template" in run.reason

    asyncio.run(main())


def test_news_that_comes_while_instructions_are_computed_is_acted_on():
    async def main():
        store, begun, gate = InMemoryStore(), asyncio.Event(), asyncio.Event()

        async def text(briefing: Briefing) -> str:
            begun.set()
            await gate.wait()
            return "Be kind."

        model = Recorder("done")
        rt = runtime(model, store=store, instructions=text)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        await Runtime(store.beside()).pause_async("r")
        gate.set()
        assert (await driving).status == "paused"
        assert model.requests == []

    asyncio.run(main())


@pytest.mark.parametrize("hangs", ["instructions", "deps"])
@pytest.mark.parametrize("who", ["somebody", "the caller"])
def test_code_of_the_deployment_that_hangs_does_not_keep_a_run_from_ending(hangs, who):
    """A cancel is heard at every wait, and a caller can always give up."""

    async def main():
        store, begun = InMemoryStore(), asyncio.Event()

        async def hang(*_: object) -> str:
            begun.set()
            await asyncio.sleep(60)
            return "never"

        @tool(effect="read")
        async def look() -> str:
            return "seen"

        lent = {"instructions": hang} if hangs == "instructions" else {"deps": hang}
        rt = runtime([call("look"), "done"], [look], store=store, **lent)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        if who == "somebody":
            run = await Runtime(store.beside()).cancel_async("r")
            assert run.status == (await driving).status == "cancelled"
        else:
            driving.cancel()
            await asyncio.wait({driving})
            assert (await rt.get_async("r")).status in {"queued", "running"}
        assert not (await store.info("r")).leased

    asyncio.run(main())


@pytest.mark.parametrize("hangs", ["instructions", "deps"])
def test_code_of_the_deployment_has_a_deadline(hangs, monkeypatch):
    async def main():
        monkeypatch.setattr("cairn.engine.attend.TASK_S", 0.1)

        async def hang(*_: object) -> str:
            await asyncio.sleep(60)
            return "never"

        @tool(effect="read")
        async def look() -> str:
            return "seen"

        if hangs == "deps":
            rt = runtime([call("look"), "done"], [look], deps=hang)
            with pytest.raises(DepsFailed, match="the deps factory took longer"):
                await rt.run_async("a", "task", id="r")
        else:
            rt = runtime(["done"], instructions=hang)
            run = await rt.run_async("a", "task", id="r")
            assert (run.status, run.error_class) == ("failed", "internal")
            assert "the instructions of agent a took longer than 0.1 s" in run.reason

    asyncio.run(main())


# ---------------------------------------------------------------- dependencies


class Bank:
    """Something that cannot and must not be written anywhere."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.lock = asyncio.Lock()


@pytest.mark.parametrize("kind", ["value", "nothing", "principal", "async"])
def test_tools_get_the_deployments_own_objects(kind):
    async def main():
        made: list[Bank] = []

        def make(principal: Principal) -> Bank:
            made.append(Bank(principal.id))
            return made[-1]

        async def make_async(principal: Principal) -> Bank:
            await asyncio.sleep(0)
            return make(principal)

        deps = {
            "value": Bank("ann"),
            "nothing": lambda: make(Principal(id="ann")),
            "principal": make,
            "async": make_async,
        }[kind]

        @tool(effect="read")
        async def owner(ctx: Context[Bank]) -> str:
            return ctx.deps.owner

        @tool(effect="read")
        def owner_in_thread(ctx: Context[Bank]) -> str:
            return ctx.deps.owner

        lines = [[call("owner"), call("owner_in_thread")], call("owner"), "done"]
        rt = runtime(lines, [owner, owner_in_thread], deps=deps)
        run = await rt.run_async("a", "task", id="r", principal="ann")
        assert run.status == "completed"
        trace = await rt.trace_async("r")
        assert {bytes(e.result) for e in events(trace, ev.ToolCompleted)} == {b'"ann"'}
        assert "Bank" not in str(trace)
        assert len(made) == (0 if kind == "value" else 1)

    asyncio.run(main())


def test_dependencies_are_made_anew_by_the_process_that_goes_on():
    async def main():
        store, made = InMemoryStore(), []

        @tool(effect="write")
        async def pay(ctx: Context) -> str:
            return ctx.deps

        for process in ("one", "two"):
            rt = runtime(
                [call("pay"), "done"],
                [pay],
                store=store.beside(),
                policy=DEFAULT_POLICY,
                deps=lambda process=process: made.append(process) or process,
            )
            run = await rt.run_async("a", "task", id="r")
            if run.status == "waiting":
                assert made == []
                await rt.client.approve("r/1")
        assert (run.status, made) == ("completed", ["two"])

    asyncio.run(main())


def test_the_models_reply_is_committed_before_dependencies_are_made():
    """Law 3: a factory may take its time; a paid reply is not lost meanwhile."""

    async def main():
        watched = Watched()
        durable: list[str] = []

        async def slow() -> str:
            durable.extend(names(await watched.inner.read("r")))
            return "deps"

        @tool(effect="read")
        async def look(ctx: Context) -> str:
            return ctx.deps

        rt = runtime([call("look"), "done"], [look], store=watched, deps=slow)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert durable[-1] == "model.completed"

    asyncio.run(main())


def test_without_a_factory_the_first_call_costs_no_commit_more():
    async def main():
        watched = Watched()

        @tool(effect="read")
        async def look() -> str:
            return "seen"

        rt = runtime([call("look"), "done"], [look], store=watched, deps={"a": 1})
        await rt.run_async("a", "task", id="r")
        assert watched.commits[1] == ("model.completed", "tool.started")

    asyncio.run(main())


def test_a_factory_of_too_many_arguments_is_refused_when_it_is_given_and_names_the_fix():
    @tool(effect="read")
    async def look(ctx: Context) -> str:
        return "seen"

    with pytest.raises(ConfigError, match=r"needs 2 arguments. Give a function of one Principal"):
        runtime([call("look"), "done"], [look], deps=lambda a, b: None)


def test_a_factory_that_fails_leaves_the_run_resumable_with_its_paid_reply():
    async def main():
        tries: list[int] = []

        def flaky() -> str:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("no database")
            return "bank"

        @tool(effect="write")
        async def pay(ctx: Context) -> str:
            return f"paid by {ctx.deps}"

        model = Recorder(call("pay"), "done")
        rt = runtime(model, [pay], deps=flaky)
        with pytest.raises(DepsFailed, match="OSError: no database"):
            await rt.run_async("a", "task", id="r")
        assert names(await rt.trace_async("r"))[-1] == "model.completed"
        assert not (await rt.store.info("r")).leased
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, len(model.requests)) == ("completed", 2)

    asyncio.run(main())


def test_a_probe_gets_the_dependencies_too():
    async def main():
        from tests.engine.kit import TurnedClock

        async def find(ctx: Context) -> object:
            seen.append(ctx.deps)
            from cairn import happened

            return happened("found")

        seen: list[str] = []

        @tool(effect="write", recovery="probe", probe=find)
        async def pay() -> str:
            raise TimeoutError

        rt = runtime([call("pay"), "done"], [pay], deps=lambda: "bank", clock=TurnedClock())
        assert (await rt.run_async("a", "task")).status == "completed"
        assert seen == ["bank"]

    asyncio.run(main())


# ---------------------------------------------------------------- being told


def asking(on_wait, script=None, **options):
    ledger = Ledger()

    @tool(effect="write")
    async def pay(n: int = 1) -> str:
        return ledger.add(f"pay {n}")

    lines = script or [call("pay"), "done"]
    rt = runtime(lines, [pay], policy=DEFAULT_POLICY, on_wait=on_wait, **options)
    return rt, ledger


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_is_told_what_waits(is_async):
    async def main():
        told = []

        async def tell(run) -> None:
            told.append(run)

        rt, _ = asking(tell if is_async else told.append)
        run = await rt.run_async("a", "task", id="r")
        assert [t.id for t in told] == ["r"]
        assert told[0].status == "waiting"
        assert told[0].pending == run.pending
        await rt.client.approve("r/1")
        await rt.run_async("a", "task", id="r")
        assert len(told) == 1

    asyncio.run(main())


def test_a_command_gets_the_run_as_json(tmp_path):
    out = tmp_path / "told.json"

    async def main():
        program = (
            "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
        )
        rt, _ = asking([sys.executable, "-S", "-c", program, str(out)])
        await rt.run_async("a", "task", id="r")

    asyncio.run(main())
    told = json.loads(out.read_bytes())
    assert (told["id"], told["status"]) == ("r", "waiting")
    assert told["pending"][0]["id"] == "r/1"


def refusing(run) -> None:
    raise ToolDefinitionError("one of the house's own errors")


def breaking(run) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("on_wait", [breaking, refusing, ["false"], ["/no/such/program"]])
def test_a_notifier_that_fails_hurts_nobody(on_wait, monkeypatch):
    async def main():
        monkeypatch.setattr("cairn.engine.notify.TRIES", 1)
        rt, ledger = asking(on_wait)
        assert (await rt.run_async("a", "task", id="r")).status == "waiting"
        await rt.client.approve("r/1")
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay 1"]

    asyncio.run(main())


def test_a_notifier_that_uses_a_sync_verb_in_the_loop_hurts_nobody(monkeypatch):
    async def main():
        monkeypatch.setattr("cairn.engine.notify.TRIES", 1)
        problems = []

        async def tell(run) -> None:
            try:
                rt.approve(run.pending[0].id)
            except SyncInsideLoop as error:
                problems.append(error)
                raise

        rt, _ = asking(tell)
        assert (await rt.run_async("a", "task", id="r")).status == "waiting"
        assert len(problems) == 1

    asyncio.run(main())


def test_a_plain_notifier_may_use_the_sync_verbs_for_it_is_not_called_in_the_loop():
    async def main():
        rt, ledger = asking(lambda run: rt.approve(run.pending[0].id))
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay 1"]

    asyncio.run(main())


def test_people_are_told_again_by_a_worker_when_the_process_died_before_it_told_them():
    """At least once: waits that exist when a worker starts are told."""

    async def main():
        store = InMemoryStore()
        rt, _ = asking(None, store=store)
        await rt.run_async("a", "task", id="r")
        told = []
        worker, _ = asking(lambda run: told.append(run.id), store=store.beside())
        await worker.work_async(until_idle=True)
        assert told == ["r"]

    asyncio.run(main())


@pytest.mark.parametrize("on_wait", ["notify.sh", "ftp://x", "mailto:me"])
def test_what_can_be_told_to_nobody_is_refused(on_wait):
    with pytest.raises(ConfigError, match=r"Runtime\.on_wait"):
        Runtime(":memory:", agents=[Agent("a", Scripted(["x"]))], on_wait=on_wait)


# ---------------------------------------------------------------- workers


def test_a_worker_drives_every_run_there_are_agents_for_and_goes_idle():
    async def main():
        store, ledger = InMemoryStore(), Ledger()

        @tool(effect="write")
        async def pay(n: int) -> str:
            return ledger.add(f"pay {n}")

        client = Runtime(
            store.beside(),
            agents=[Agent("a", Scripted(["never"])), Agent("b", Scripted(["never"]))],
        )
        for n in range(5):
            await client.enqueue_async("a" if n else "b", f"{n}", id=f"r{n}")
        worker = runtime(
            lambda r: call("pay", n=int(r.run[1:])) if not r.turn else "done", [pay], store=store
        )
        await worker.work_async(until_idle=True)
        statuses = {i.run: i.status for i in await worker.runs_async()}
        assert statuses == {"r0": "queued", **{f"r{n}": "completed" for n in range(1, 5)}}
        assert sorted(ledger.lines) == [f"pay {n}" for n in range(1, 5)]

    asyncio.run(main())


def test_a_runtime_that_has_worked_until_idle_can_still_run_and_work():
    async def main():
        rt = runtime(["done"])
        await rt.work_async(until_idle=True)
        assert (await rt.run_async("a", "one", id="r1")).status == "completed"
        await rt.enqueue_async("a", "two", id="r2")
        await rt.work_async(until_idle=True)
        assert (await rt.get_async("r2")).status == "completed"

    asyncio.run(main())


def test_a_worker_that_is_stopped_from_outside_leaves_a_usable_runtime():
    async def main():
        rt = runtime(["done"])
        working = asyncio.create_task(rt.work_async())
        await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (await rt.run_async("a", "one", id="r1")).status == "completed"

    asyncio.run(main())


def test_a_worker_picks_a_run_up_when_it_is_handed_over_elsewhere():
    async def main():
        store = InMemoryStore()
        worker = runtime(["done"], store=store)
        working = asyncio.create_task(worker.work_async())
        client = runtime(["never"], store=store.beside())
        await client.enqueue_async("a", "t", id="r")

        async def done() -> bool:
            return (await client.get_async("r")).status == "completed"

        await until(done)
        working.cancel()
        await asyncio.wait({working})

    asyncio.run(main())


def test_a_worker_leaves_a_run_it_cannot_drive_alone_and_drives_the_others():
    """An agent that cannot be made ready does not keep a worker spinning."""

    async def main():
        class NoType:
            pass

        store = InMemoryStore()
        good, bad = (
            Agent("good", Scripted(["done"])),
            Agent("bad", Scripted(["x"]), output_type=NoType),
        )
        starter = Runtime(store, agents=[good, Agent("bad", Scripted(["x"]))])
        for name in ("bad", "good"):
            await starter.enqueue_async(name, "t", id=name)
        worker = Runtime(store.beside(), agents=[good, bad])
        async with asyncio.timeout(5):
            await worker.work_async(until_idle=True)
        assert (await starter.get_async("good")).status == "completed"
        assert (await starter.get_async("bad")).status == "queued"
        assert not (await store.info("bad")).leased

    asyncio.run(main())


def test_two_workers_share_the_runs_and_do_each_once():
    async def main():
        store, ledger = InMemoryStore(), Ledger()

        @tool(effect="write")
        async def pay(n: int) -> str:
            await asyncio.sleep(0)
            return ledger.add(f"pay {n}")

        def script(request):
            return call("pay", n=int(request.run[1:])) if not request.turn else "done"

        workers = [runtime(script, [pay], store=store.beside()) for _ in range(3)]
        for n in range(20):
            await workers[0].enqueue_async("a", "t", id=f"r{n}")
        await asyncio.gather(*(w.work_async(until_idle=True) for w in workers))
        await workers[0].work_async(until_idle=True)
        assert {i.status for i in await workers[0].runs_async()} == {"completed"}
        assert sorted(ledger.lines) == sorted(f"pay {n}" for n in range(20))

    asyncio.run(main())
