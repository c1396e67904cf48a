"""Edges: odd text everywhere, callers that give up at odd moments, threads, and a busy file."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    TurnedClock,
    Watched,
    events,
    names,
    results,
    runtime,
    texts,
    until,
)

from cairn import (
    NOT_HAPPENED,
    Agent,
    Answer,
    Context,
    ErrorClass,
    Limits,
    ModelError,
    Policy,
    Principal,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.messages import Reasoning, Text
from cairn.core.policy import DEFAULT_POLICY
from cairn.engine.advance import advance
from cairn.errors import ConfigError
from cairn.ports import ModelReply, ReplyCall
from cairn.store.inmemory import InMemoryStore
from cairn.tools.slots import SLOTS

DIRTY = "half \ud83d and zero \x00"
SHOWN = "half � and zero ␀"


def writer(ledger: Ledger):
    @tool(effect="write")
    async def pay(n: int = 1) -> str:
        return ledger.add(f"pay {n}")

    return pay


# ---------------------------------------------------------------- odd text (B57)


@pytest.mark.parametrize("verb", ["approve", "deny", "pause", "cancel", "answer", "resolve"])
def test_what_people_type_is_stored_whatever_it_holds(verb, tmp_path):
    """B57: half an emoji or a zero character stops no decision, and is seen in the journal."""

    async def main():
        @tool(effect="write")
        async def lose() -> str:
            raise TimeoutError

        first = {"answer": call("ask_user", question="?"), "resolve": call("lose")}
        model = Recorder(first.get(verb, call("pay")), "done")
        policy = Policy(tools={"lose": "allow"})
        async with runtime(
            model, [writer(Ledger()), lose], store=tmp_path / "s.db", policy=policy
        ) as rt:
            await rt.run_async("a", "task", id="r")
            match verb:
                case "approve":
                    await rt.approve_async("r/1", DIRTY, by=DIRTY)
                case "deny":
                    await rt.deny_async("r/1", DIRTY, by=DIRTY)
                case "answer":
                    await rt.answer_async("r/1", DIRTY, by=DIRTY)
                case "resolve":
                    await rt.resolve_async("r/c1", happened=True, evidence=DIRTY, by=DIRTY)
                case "pause":
                    await rt.pause_async("r", DIRTY, by=DIRTY)
                case "cancel":
                    await rt.cancel_async("r", DIRTY, by=DIRTY)
            assert SHOWN in str(await rt.trace_async("r"))
            run = await rt.run_async("a", "task", id="r")
            assert run.status in {"completed", "paused", "cancelled"}

    asyncio.run(main())


@pytest.mark.parametrize("field", ["principal", "tenant", "role", "session"])
def test_a_name_that_cannot_be_stored_is_refused_and_never_altered(field):
    """Two names that differ must stay two: cleaning them would open one's session to the other."""

    async def main():
        rt = runtime(["done"])
        who = Principal(
            id=DIRTY if field == "principal" else "ann",
            tenant=DIRTY if field == "tenant" else "",
            roles=(DIRTY,) if field == "role" else (),
        )
        with pytest.raises(ConfigError, match="cannot be stored"):
            await rt.run_async(
                "a", "task", principal=who, session=DIRTY if field == "session" else ""
            )
        assert await rt.runs_async() == []

    asyncio.run(main())


def test_a_reply_that_is_dirty_everywhere_is_stored_and_answered(tmp_path):
    """B57: in text, names, arguments, ids and reasons of the provider."""

    async def main():
        dirty = ModelReply(
            parts=(Text(DIRTY), Reasoning(content=DIRTY, opaque=DIRTY)),
            calls=(ReplyCall(name=DIRTY, arguments=DIRTY, id=DIRTY),),
            finish=DIRTY,
            request_id=DIRTY,
        )
        model = Recorder(dirty, "done")
        async with runtime(model, store=tmp_path / "s.db", instructions=DIRTY) as rt:
            run = await rt.run_async("a", DIRTY, id="r")
            assert run.status == "completed"
            assert await rt.store.verify("r") > 0
        assert model.last.system == SHOWN
        results(model.last)

    asyncio.run(main())


def test_a_fault_told_in_dirty_words_is_stored(tmp_path):
    async def main():
        broken = ModelError(ErrorClass.AUTH, DIRTY, request_id=DIRTY)
        async with runtime([broken], store=tmp_path / "s.db") as rt:
            run = await rt.run_async("a", "task", id="r")
            assert (run.status, run.error_class, run.reason) == ("failed", "auth", SHOWN)

    asyncio.run(main())


def test_computed_instructions_a_check_and_a_tool_may_say_anything(tmp_path):
    async def main():
        @tool(effect="read")
        async def look() -> str:
            raise ValueError(DIRTY)

        def check(answer: Answer) -> str:
            return "" if answer.text == "better" else DIRTY

        model = Recorder(call("look"), "worse", "better")
        async with runtime(
            model,
            [look],
            store=tmp_path / "s.db",
            instructions=lambda briefing: DIRTY,
            completion_checks=[check],
        ) as rt:
            assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert SHOWN in texts(model.last)[-1]

    asyncio.run(main())


def test_what_cannot_be_written_at_all_still_ends_the_run_and_frees_it(tmp_path, monkeypatch):
    """A fault of the runtime in an outcome itself: the end is written without it."""

    async def main():
        async with runtime(["done"], store=tmp_path / "s.db") as rt:
            monkeypatch.setattr("cairn.engine.perform.clean", lambda text: DIRTY)
            run = await rt.run_async("a", "task", id="r")
            assert (run.status, run.error_class) == ("failed", "internal")
            assert not (await rt.store.info("r")).leased

    asyncio.run(main())


def test_hidden_reasoning_alone_is_no_answer():
    """B30: then only hidden reasoning: a nudge, never an earlier sentence."""

    async def main():
        model = Recorder(ModelReply(parts=(Reasoning(content="hm"),)), "Here it is.")
        run = await runtime(model).run_async("a", "task")
        assert (run.status, run.text, len(model.requests)) == ("completed", "Here it is.", 2)

    asyncio.run(main())


def test_no_steps_at_all_ask_no_model():
    async def main():
        model = Recorder("never")
        run = await runtime(model).run_async("a", "task", limits=Limits(steps=0))
        assert (run.status, run.limit, model.requests) == ("stopped", "steps", [])

    asyncio.run(main())


# ---------------------------------------------------------------- callers that give up


def test_a_caller_that_gives_up_during_a_check_does_not_have_the_answer_refused():
    async def main():
        begun, looked = asyncio.Event(), []

        async def check(answer: Answer) -> None:
            looked.append(answer.text)
            begun.set()
            if len(looked) == 1:
                await asyncio.sleep(60)

        model = Recorder("answer", "never asked")
        rt = runtime(model, completion_checks=[check])
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        driving.cancel()
        await asyncio.wait({driving})
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.text, len(model.requests)) == ("completed", "answer", 1)
        assert looked == ["answer", "answer"]

    asyncio.run(main())


def test_a_caller_that_gives_up_during_a_probe_has_it_asked_again():
    async def main():
        begun, asked, ledger = asyncio.Event(), [], Ledger()

        async def find() -> object:
            asked.append(1)
            begun.set()
            if len(asked) == 1:
                await asyncio.sleep(60)
            return NOT_HAPPENED

        @tool(effect="write", recovery="probe", probe=find)
        async def pay() -> str:
            ledger.add("pay")
            if len(ledger.lines) == 1:
                raise TimeoutError
            return "paid"

        rt = runtime([call("pay"), "done"], [pay], clock=TurnedClock())
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        driving.cancel()
        await asyncio.wait({driving})
        assert not (await rt.store.info("r")).leased
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, len(asked), ledger.lines) == ("completed", 2, ["pay", "pay"])

    asyncio.run(main())


def test_a_caller_that_gives_up_while_the_model_thinks_leaves_a_request_to_be_made_again():
    async def main():
        begun = asyncio.Event()

        async def thinking(request):
            if request.attempt == 1:
                begun.set()
                await asyncio.sleep(60)
            return "done"

        rt = runtime(thinking)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        driving.cancel()
        await asyncio.wait({driving})
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.steps, run.usage.output_tokens) == ("completed", 1, 4096)

    asyncio.run(main())


@pytest.mark.parametrize("where", range(10))
def test_a_caller_that_gives_up_at_any_moment_loses_no_effect_and_doubles_none(where):
    async def main():
        ledger = Ledger()

        @tool(effect="write", recovery="keyed")
        async def pay(n: int, ctx: Context) -> str:
            await asyncio.sleep(0)
            ledger.add(f"key {n} {ctx.key}")
            return f"paid {n}"

        model = Recorder(call("pay", n=1), call("pay", n=2), "done")
        rt = runtime(model, [pay])
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        for _ in range(where * 3):
            await asyncio.sleep(0)
        driving.cancel()
        await asyncio.wait({driving})
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "paid 1", "c2": "paid 2"}
        assert len({line.split()[1:][1] for line in ledger.lines}) == 2

    asyncio.run(main())


# ---------------------------------------------------------------- people and roles


def test_a_person_whose_roles_changed_keeps_the_session():
    async def main():
        rt = runtime([call("ask_user", question="?"), "done"])
        await rt.run_async("a", "x", id="r", session="s", principal=Principal(id="ann"))
        promoted = Principal(id="ann", roles=("admin",))
        run = await rt.send_async("s", "hello", principal=promoted)
        assert (run.id, run.status) == ("r", "waiting")

    asyncio.run(main())


# ---------------------------------------------------------------- threads and files


def test_many_threads_may_use_the_sync_verbs_of_one_runtime_at_once():
    ledger, lock = Ledger(), threading.Lock()

    @tool(effect="write")
    def pay(n: int) -> str:
        with lock:
            return ledger.add(f"pay {n}")

    def script(request):
        return "done" if request.turn else call("pay", n=int(request.run[1:]))

    with runtime(script, [pay]) as rt, ThreadPoolExecutor(12) as pool:
        runs = list(pool.map(lambda n: rt.run("a", "task", id=f"r{n % 20}"), range(40)))
    assert {run.status for run in runs} == {"completed"}
    assert sorted(ledger.lines) == sorted(f"pay {n}" for n in range(20))


def test_ten_runs_write_at_once_while_a_reader_polls_and_none_fails(tmp_path):
    """B52: one file, ten runs, a reader: bounded waits, no run fails from a lock."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        def work(n: int) -> str:
            return ledger.add(f"{n}")

        def script(request):
            return "done" if request.turn == 4 else call("work", n=request.turn)

        async with runtime(script, [work], store=tmp_path / "s.db") as rt:
            reading = True

            async def read():
                while reading:
                    for info in await rt.runs_async():
                        await rt.get_async(info.run)
                    await asyncio.sleep(0)

            reader = asyncio.create_task(read())
            runs = await asyncio.gather(*(rt.run_async("a", "t", id=f"r{n}") for n in range(10)))
            reading = False
            await reader
            assert {run.status for run in runs} == {"completed"}
            assert len(ledger.lines) == 40
            for n in range(10):
                assert await rt.store.verify(f"r{n}") == len(await rt.trace_async(f"r{n}"))

    asyncio.run(main())


@pytest.mark.parametrize("step", [0, 0.0001, -1])
def test_five_messages_in_one_moment_keep_their_order_though_the_clock_steps_back(step):
    """B53: the sequence decides, time is for display and never falls."""

    async def main():
        clock, store = TurnedClock(), InMemoryStore()
        model = Recorder(call("ask_user", question="?"), "done")
        rt = runtime(model, store=store, clock=clock)
        await rt.run_async("a", "first", id="r", session="s")
        for n in range(5):
            clock.turn(step)
            await rt.send_async("s", f"message {n}")
        await rt.answer_async("r/1", "yes")
        assert (await rt.run_async("a", "first", id="r", session="s")).status == "completed"
        assert texts(model.last) == ["first", *(f"message {n}" for n in range(5))]
        times = [entry.at for entry in await rt.trace_async("r")]
        assert times == sorted(times)

    asyncio.run(main())


def test_a_closed_runtime_of_a_file_can_be_opened_again_and_closed_twice(tmp_path):
    rt = runtime(["done"], store=tmp_path / "s.db")
    assert rt.run("a", "task", id="r").status == "completed"
    rt.close()
    again = runtime(["never"], store=tmp_path / "s.db")
    assert again.run("a", "task", id="r").text == "done"
    again.close()


def test_two_agents_of_one_name_are_refused():
    agents = [Agent("a", Scripted(["x"])), Agent("a", Scripted(["y"]))]
    with pytest.raises(ConfigError, match="two agents are named 'a'"):
        Runtime(":memory:", agents=agents)


def test_a_session_on_a_file_goes_on_after_a_process_died_in_it(tmp_path):
    """B13 on a real file: the store itself is fine, not only the copy that is sent."""

    async def main():
        @tool(effect="write")
        async def pay() -> str:
            raise ConnectionError("reset")

        async with runtime([call("pay")], [pay], store=tmp_path / "s.db") as rt:
            await rt.run_async("a", "one", id="r1", session="s")
            await rt.cancel_async("r1")
        for n in range(2):
            model = Recorder("fine")
            async with runtime(model, [pay], store=tmp_path / "s.db") as rt:
                run = await rt.run_async("a", f"again {n}", session="s")
                assert run.status == "completed"
            assert len(results(model.last)) == 1

    asyncio.run(main())


def test_everything_waits_are_listed_over_all_runs(tmp_path):
    async def main():
        rt = runtime([call("pay"), "done"], [writer(Ledger())], policy=DEFAULT_POLICY)
        await asyncio.gather(*(rt.run_async("a", "t", id=f"r{n}") for n in range(5)))
        assert sorted(p.id for p in await rt.pending_async()) == [f"r{n}/1" for n in range(5)]

    asyncio.run(main())


def test_no_thread_slot_is_left_behind_by_calls_that_never_started():
    """A refused, denied or cancelled call holds no thread."""

    async def main():
        @tool(effect="write")
        def pay() -> str:
            return "paid"

        rt = runtime([call("pay"), "done"], [pay], policy=DEFAULT_POLICY)
        await rt.run_async("a", "t", id="r1")
        await rt.deny_async("r1/1")
        await rt.run_async("a", "t", id="r1")
        await rt.run_async("a", "t", id="r2")
        await rt.cancel_async("r2")
        await until(lambda: SLOTS.taken == 0)
        assert names(await rt.trace_async("r1")).count("tool.started") == 0
        assert events(await rt.trace_async("r2"), ev.RunCancelled)

    asyncio.run(main())


# ---------------------------------------------------------------- code that changed meanwhile


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_call_whose_tool_is_gone_after_a_restart_is_settled_and_the_run_goes_on(effect):
    """Deployed anew without the tool: a read is refused, an effect is asked about."""

    async def main():
        store, begun = InMemoryStore(), asyncio.Event()

        @tool(effect=effect)
        async def old() -> str:
            begun.set()
            await asyncio.sleep(60)
            return "never"

        dead = runtime([call("old"), "done"], [old], store=store)
        driving = asyncio.create_task(dead.run_async("a", "t", id="r"))
        await begun.wait()
        store.crash()
        model = Recorder("unused", "done")
        rt = runtime(model, store=store.beside())
        run = await rt.run_async("a", "t", id="r")
        if effect == "write":
            assert (run.status, run.reason) == ("waiting", "in_doubt")
            await rt.resolve_async("r/c1", happened=False)
            run = await rt.run_async("a", "t", id="r")
        assert run.status == "completed"
        assert 'no tool "old"' in results(model.last)["c1"]
        driving.cancel()
        await asyncio.wait({driving})

    asyncio.run(main())


def test_a_run_can_be_advanced_in_slices():
    """A scheduler may give a run its time in small pieces; nothing is done twice."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()
        lines = [*(call("pay", n=n) for n in range(5)), "done"]
        rt = runtime(lines, [writer(ledger)], store=store)
        await rt.enqueue_async("a", "t", id="r")
        kinds = []
        while not kinds or kinds[-1] != "done":
            kinds.append((await advance(store, "r", rt.host, slice_s=1e-6)).kind)
            assert not (await store.info("r")).leased
        assert set(kinds) == {"more", "done"}
        assert ledger.lines == [f"pay {n}" for n in range(5)]

    asyncio.run(main())


def test_a_run_that_falls_between_two_others_of_its_session_is_not_left_out():
    """B50: state that was read before somebody else's whole turn is not built upon."""

    async def main():
        watched = Watched()
        between = []

        async def another(name, *args, **kwargs):
            if name == "create" and args[0].run == "second" and not between:
                between.append(await rt.run_async("a", "first", id="first", session="s"))

        watched.before = another
        model = Recorder("an answer", repeat=True)
        rt = runtime(model, store=watched)
        run = await rt.run_async("a", "second", id="second", session="s")
        assert run.status == between[0].status == "completed"
        assert texts(model.last) == ["first", "second"]

    asyncio.run(main())


def test_giving_a_run_back_does_not_hide_news_that_came_at_that_moment():
    """The row that workers look at says what the last word said, whoever wrote last."""

    async def main():
        ledger, watched = Ledger(), Watched()
        tools = [writer(ledger)]
        rt = runtime([call("pay", n=1), "done"], tools, store=watched, policy=DEFAULT_POLICY)
        await rt.run_async("a", "t", id="r")
        decided = []

        async def approve_just_before(name, *args, **kwargs):
            if name == "append" and kwargs.get("release") and not args[2] and not decided:
                decided.append(await rt.client.approve("r/1"))

        watched.before = approve_just_before
        await advance(watched, "r", rt.host)
        assert decided
        assert (await watched.info("r")).status == "running"
        assert await watched.runnable(["a"], rt.host.clock.now_us()) == ["r"]
        await rt.work_async(until_idle=True)
        assert ledger.lines == ["pay 1"]

    asyncio.run(main())
