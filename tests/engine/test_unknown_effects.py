"""Effects nobody knows of: never repeated by themselves, settled by a probe, a person or news."""

import asyncio
import threading

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    TurnedClock,
    attempts,
    events,
    names,
    results,
    runtime,
    until,
)

from cairn import (
    NOT_HAPPENED,
    UNKNOWN,
    Context,
    NotDone,
    Refused,
    Runtime,
    ToolError,
    UnknownRun,
    Unsure,
    call,
    happened,
    tool,
)
from cairn.core import events as ev
from cairn.core.rules import GRACE_US
from cairn.errors import ConfigError
from cairn.store.inmemory import InMemoryStore

FAST = 0.05


def dying(ledger: Ledger, error: Exception, **options):
    @tool(**{"effect": "write", **options})
    async def pay(order: str) -> str:
        ledger.add(f"pay {order}")
        if ledger.times(f"pay {order}") == 1:
            raise error
        return f"paid {order}"

    return pay


def hanging(ledger: Ledger, **options):
    """A tool that never ends by itself, the first time."""

    @tool(**{"effect": "write", "timeout": FAST, **options})
    async def pay(order: str) -> str:
        ledger.add(f"pay {order}")
        if ledger.times(f"pay {order}") == 1:
            await asyncio.sleep(60)
        return f"paid {order}"

    return pay


# ---------------------------------------------------------------- what counts as unknown


@pytest.mark.parametrize("error", [TimeoutError("no reply"), ConnectionError("reset"), Unsure("?")])
def test_a_write_that_lost_its_connection_is_unknown_and_waits_for_a_person(error):
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", order="7"), "done"], [dying(ledger, error)])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        assert [(p.id, p.kind) for p in run.pending] == [("r/c1", "in_doubt")]
        assert "Unknown: pay (c1)" in run.text
        for _ in range(2):
            assert (await rt.run_async("a", "task", id="r")).status == "waiting"
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("card refused"), "card refused"),
        (ValueError("odd"), "ValueError: odd"),
        (NotDone("nothing was sent"), "nothing was sent"),
    ],
)
def test_a_write_that_failed_for_certain_is_told_to_the_model(error, words):
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "it failed")
        rt = runtime(model, [dying(ledger, error, retries=0)], clock=TurnedClock())
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        if isinstance(error, NotDone):
            assert results(model.last) == {"c1": "paid 7"}
        else:
            assert words in results(model.last)["c1"]
            assert ledger.lines == ["pay 7"]

    asyncio.run(main())


def test_what_certainly_did_not_happen_is_tried_again_whatever_its_recovery():
    async def main():
        ledger, clock = Ledger(), TurnedClock()
        pay = dying(ledger, NotDone("busy"))
        rt = runtime([call("pay", order="7"), "done"], [pay], clock=clock)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert attempts(await rt.trace_async("r")) == [("c1", 1), ("c1", 2)]

    asyncio.run(main())


def test_a_write_whose_time_is_up_is_unknown_and_is_not_repeated():
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", order="7"), "done"], [hanging(ledger)])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        unknown = events(await rt.trace_async("r"), ev.ToolUnknown)[0]
        assert unknown.reason == "timeout"
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


def test_a_read_whose_time_is_up_is_repeated_and_then_told():
    """The ladder for a read: one more try, then the model is told; nobody is asked."""

    async def main():
        ledger = Ledger()

        @tool(effect="read", timeout=FAST)
        async def look() -> str:
            ledger.add("look")
            await asyncio.sleep(60)
            return "never"

        model = Recorder(call("look"), "I could not look.")
        rt = runtime(model, [look])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert ledger.lines == ["look", "look"]
        assert "no answer from look in 2 attempts (timeout)" in results(model.last)["c1"]

    asyncio.run(main())


def test_a_keyed_write_is_repeated_with_the_same_key():
    async def main():
        keys: list[str] = []

        @tool(effect="write", recovery="keyed", timeout=FAST)
        async def pay(order: str, ctx: Context) -> str:
            keys.append(ctx.key)
            if len(keys) == 1:
                await asyncio.sleep(60)
            return "paid"

        lines = [[call("pay", order="7"), call("pay", order="8")], "done"]
        rt = runtime(lines, [pay])
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert len(keys) == 3
        assert keys[0] == keys[1] != keys[2]

    asyncio.run(main())


def test_a_keyed_write_that_never_answers_ends_with_a_person():
    async def main():
        count = 0

        @tool(effect="write", recovery="keyed", timeout=FAST)
        async def pay(ctx: Context) -> str:
            nonlocal count
            count += 1
            await asyncio.sleep(60)
            return "never"

        rt = runtime([call("pay"), "done"], [pay])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        assert count == 2

    asyncio.run(main())


def test_a_key_the_other_side_no_longer_honours_is_not_used_again():
    async def main():
        ledger, clock = Ledger(), TurnedClock()

        @tool(effect="write", recovery="keyed", key_ttl=60)
        async def pay(ctx: Context) -> str:
            clock.turn(61)
            ledger.add("pay")
            raise TimeoutError

        rt = runtime([call("pay"), "done"], [pay], clock=clock)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason, ledger.lines) == ("waiting", "in_doubt", ["pay"])

    asyncio.run(main())


def test_a_tool_that_is_cancelled_from_inside_is_unknown():
    async def main():
        ledger = Ledger()
        error = asyncio.CancelledError()
        rt = runtime([call("pay", order="7"), "done"], [dying(ledger, error)])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")

    asyncio.run(main())


# ---------------------------------------------------------------- probes


@pytest.mark.parametrize(
    ("answer", "status", "runs", "read"),
    [
        (happened("receipt 9"), "completed", 1, "receipt 9"),
        (NOT_HAPPENED, "completed", 2, "paid 7"),
        (UNKNOWN, "waiting", 1, ""),
        ("nonsense", "waiting", 1, ""),
    ],
)
def test_a_probe_is_asked_and_its_answer_decides(answer, status, runs, read):
    async def main():
        ledger, clock = Ledger(), TurnedClock()
        asked: list[str] = []

        async def find(order: str) -> object:
            asked.append(order)
            return answer

        model = Recorder(call("pay", order="7"), "done")
        pay = dying(ledger, TimeoutError(), recovery="probe", probe=find)
        rt = runtime(model, [pay], clock=clock)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == status
        assert len(ledger.lines) == runs
        assert asked == ["7"]
        if read:
            assert results(model.last) == {"c1": read}
        else:
            assert run.reason == "in_doubt"

    asyncio.run(main())


def test_a_probe_waits_until_the_call_can_no_longer_be_at_work():
    """The probe is not asked before time-out and grace are over."""

    async def main():
        clock, at = TurnedClock(), []

        async def find() -> object:
            at.append(clock.now)
            return NOT_HAPPENED

        ledger = Ledger()

        @tool(effect="write", recovery="probe", probe=find, timeout=10)
        async def pay() -> str:
            ledger.add("pay")
            if len(ledger.lines) == 1:
                raise TimeoutError
            return "paid"

        begun = clock.now
        rt = runtime([call("pay"), "done"], [pay], clock=clock)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert at[0] >= begun + 10_000_000 + GRACE_US

    asyncio.run(main())


@pytest.mark.parametrize("behaviour", ["raise", "hang"])
def test_a_probe_that_raises_or_hangs_leaves_it_to_a_person(behaviour):
    async def main():
        ledger = Ledger()

        async def probe() -> object:
            if behaviour == "raise":
                raise RuntimeError("probe broke")
            return await asyncio.sleep(60)

        @tool(effect="write", recovery="probe", probe=probe, timeout=FAST)
        async def pay() -> str:
            ledger.add("pay")
            raise TimeoutError

        rt = runtime([call("pay"), "done"], [pay], clock=TurnedClock())
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason, ledger.lines) == ("waiting", "in_doubt", ["pay"])

    asyncio.run(main())


def test_a_person_may_settle_a_call_while_its_probe_is_still_asking():
    """The first answer counts; the probe's own comes too late and hurts nobody."""

    async def main():
        ledger, gate, asking = Ledger(), asyncio.Event(), asyncio.Event()

        async def find() -> object:
            asking.set()
            await gate.wait()
            return NOT_HAPPENED

        @tool(effect="write", recovery="probe", probe=find)
        async def pay() -> str:
            ledger.add("pay")
            raise TimeoutError

        @tool(effect="read")
        async def wait_for_gate() -> str:
            gate.set()
            await asyncio.sleep(0.05)
            return "waited"

        clock = TurnedClock()
        model = Recorder(call("pay"), call("wait_for_gate"), "done")
        rt = runtime(model, [pay, wait_for_gate], clock=clock)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await asking.wait()
        await rt.client.resolve("r/c1", "happened", result=b'"seen on the statement"')
        run = await driving
        assert (run.status, run.error_class) == ("completed", "")
        assert results(model.last)["c1"] == "seen on the statement"
        assert ledger.lines == ["pay"]

    asyncio.run(main())


# ---------------------------------------------------------------- resolve


def in_doubt(ledger: Ledger, script, clock=None, **options):
    return runtime(script, [dying(ledger, TimeoutError("lost"), **options)], clock=clock)


def test_a_person_says_it_happened_and_the_model_reads_the_result():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = in_doubt(ledger, model)
        await rt.run_async("a", "task", id="r")
        await rt.resolve_async("r/c1", happened=True, result={"receipt": 9}, by="ann")
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": '{"receipt":9}'}
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("evidence", "read"),
    [
        ("", "Settled: it did happen."),
        ("statement of May", "Settled: it did happen. statement of May"),
    ],
)
def test_without_a_result_the_model_reads_that_it_did_happen(evidence, read):
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = in_doubt(ledger, model)
        await rt.run_async("a", "task", id="r")
        await rt.resolve_async("r/c1", happened=True, evidence=evidence)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert results(model.last) == {"c1": read}

    asyncio.run(main())


def test_a_person_says_it_did_not_happen_and_it_runs_again_once():
    async def main():
        ledger, clock, model = Ledger(), TurnedClock(), Recorder(call("pay", order="7"), "done")
        rt = in_doubt(ledger, model, clock)
        await rt.run_async("a", "task", id="r")
        with pytest.raises(Refused, match=r"may still be at work.* 90 s"):
            await rt.client.resolve("r/c1", "not_happened")
        clock.turn(90)
        await rt.resolve_async("r/c1", happened=False)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "paid 7"}
        assert ledger.lines == ["pay 7", "pay 7"]

    asyncio.run(main())


def test_a_person_gives_up_the_run_fails_and_the_call_stays_listed():
    async def main():
        ledger = Ledger()
        rt = in_doubt(ledger, [call("pay", order="7"), "done"])
        await rt.run_async("a", "task", id="r")
        await rt.resolve_async("r/c1", give_up=True)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "in_doubt")
        assert "whether pay (c1) took effect is unknown" in run.reason
        assert [p.id for p in run.pending] == ["r/c1"]
        assert [p.id for p in await rt.pending_async()] == ["r/c1"]
        settled = await rt.resolve_async("r/c1", happened=True)
        assert (settled.status, settled.pending) == ("failed", ())
        assert await rt.pending_async() == []
        assert "Done: pay (c1)" in settled.text
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "error"),
    [({}, ConfigError), ({"happened": True, "give_up": True}, ConfigError)],
)
def test_a_resolve_says_exactly_one_thing(said, error):
    async def main():
        rt = in_doubt(Ledger(), [call("pay", order="7"), "done"])
        await rt.run_async("a", "task", id="r")
        with pytest.raises(error, match="exactly one thing"):
            await rt.resolve_async("r/c1", **said)

    asyncio.run(main())


def test_only_an_unknown_call_can_be_resolved():
    async def main():
        ledger = Ledger()
        rt = in_doubt(ledger, [call("pay", order="7"), "done"])
        await rt.run_async("a", "task", id="r")
        with pytest.raises(UnknownRun):
            await rt.resolve_async("r/c2", happened=True)
        with pytest.raises(ConfigError, match="names no call"):
            await rt.resolve_async("r/1", happened=True)
        await rt.resolve_async("r/c1", happened=True)
        await rt.run_async("a", "task", id="r")
        with pytest.raises(Refused, match="not unknown"):
            await rt.resolve_async("r/c1", happened=False)

    asyncio.run(main())


def test_a_large_result_a_person_gives_does_not_fill_the_context():
    """B59: one cap where results enter the context, whoever they come from."""

    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = in_doubt(ledger, model)
        await rt.run_async("a", "task", id="r")
        await rt.resolve_async("r/c1", happened=True, result="x" * 500_000)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert len(results(model.last)["c1"]) < 20_000

    asyncio.run(main())


# ---------------------------------------------------------------- late outcomes


def late_thread(ledger: Ledger, gate: threading.Event, end, **options):
    """A sync tool that runs past its time and ends as `end` says."""

    @tool(**{"effect": "write", "timeout": FAST, **options})
    def pay(order: str) -> str:
        ledger.add(f"pay {order}")
        gate.wait(10)
        if isinstance(end, Exception):
            raise end
        return end

    return pay


def test_a_result_that_comes_late_settles_the_call_and_the_run_goes_on():
    async def main():
        ledger, gate = Ledger(), threading.Event()
        model = Recorder(call("pay", order="7"), "done")
        rt = runtime(model, [late_thread(ledger, gate, "receipt 9")])
        run = await rt.run_async("a", "task", id="r")
        assert run.reason == "in_doubt"
        gate.set()
        await until(lambda: rt.trace_async("r"))

        async def late() -> bool:
            return "tool.late" in names(await rt.trace_async("r"))

        await until(late)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "receipt 9"}
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


@pytest.mark.parametrize("error", [Unsure("?"), TimeoutError("gateway"), ConnectionError("reset")])
def test_a_late_end_that_says_nothing_of_the_effect_leaves_it_unknown(error):
    """Law 4: a time-out after the time-out is no proof that nothing happened."""

    async def main():
        ledger, gate = Ledger(), threading.Event()
        rt = runtime(
            [call("pay", order="7"), "the model believes it failed"],
            [late_thread(ledger, gate, error)],
        )
        await rt.run_async("a", "task", id="r")
        gate.set()
        await asyncio.sleep(0.1)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")

    asyncio.run(main())


def test_a_command_killed_at_the_deadline_leaves_the_effect_unknown():
    async def main():
        ledger, ended = Ledger(), threading.Event()

        @tool(effect="write", timeout=0.2)
        def pay(ctx: Context) -> str:
            ledger.add("pay")
            try:
                return ctx.run(["sleep", "30"]).stdout
            finally:
                ended.set()

        rt = runtime([call("pay"), "the model believes it failed"], [pay])
        await rt.run_async("a", "task", id="r")
        await until(ended.is_set)
        await asyncio.sleep(0.05)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason, ledger.lines) == ("waiting", "in_doubt", ["pay"])

    asyncio.run(main())


def test_a_certain_failure_that_comes_late_is_told_to_the_model():
    async def main():
        ledger, gate = Ledger(), threading.Event()
        model = Recorder(call("pay", order="7"), "it failed")
        rt = runtime(model, [late_thread(ledger, gate, ToolError("card refused"))])
        await rt.run_async("a", "task", id="r")
        gate.set()

        async def late() -> bool:
            return "tool.late" in names(await rt.trace_async("r"))

        await until(late)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert "card refused" in results(model.last)["c1"]

    asyncio.run(main())


def test_an_outcome_in_the_moment_of_the_time_out_is_not_lost():
    """An async tool that finishes while it cleans up: its result settles the call."""

    async def main():
        ledger = Ledger()

        @tool(effect="write", timeout=FAST)
        async def pay(order: str) -> str:
            ledger.add(f"pay {order}")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "committed all the same"
            return "never"

        for store in (InMemoryStore(),):
            model = Recorder(call("pay", order="7"), "done")
            rt = runtime(model, [pay], store=store)
            run = await rt.run_async("a", "task", id="r")

            async def over(rt=rt) -> bool:
                return (await rt.run_async("a", "task", id="r")).status == "completed"

            await until(over, 50)
            assert results(model.last) == {"c1": "committed all the same"}
            assert run.status in {"waiting", "completed"}

    asyncio.run(main())


def test_a_late_result_is_capped_like_every_other():
    """B59: also what comes late does not fill the context."""

    async def main():
        ledger, gate = Ledger(), threading.Event()
        model = Recorder(call("pay", order="7"), "done")
        rt = runtime(model, [late_thread(ledger, gate, "x" * 500_000)])
        await rt.run_async("a", "task", id="r")
        gate.set()

        async def over() -> bool:
            return (await rt.run_async("a", "task", id="r")).status == "completed"

        await until(over)
        assert len(results(model.last)["c1"]) < 20_000

    asyncio.run(main())


def test_a_late_result_after_the_end_of_the_run_is_kept_and_settles_what_was_listed():
    async def main():
        ledger, gate = Ledger(), threading.Event()
        rt = runtime([call("pay", order="7"), "done"], [late_thread(ledger, gate, "receipt 9")])
        await rt.run_async("a", "task", id="r")
        cancelled = await rt.cancel_async("r")
        assert (cancelled.status, [p.id for p in cancelled.pending]) == ("cancelled", ["r/c1"])
        gate.set()

        async def late() -> bool:
            return not (await rt.get_async("r")).pending

        await until(late)
        run = await rt.get_async("r")
        assert run.status == "cancelled"
        assert names(await rt.trace_async("r"))[-1] == "tool.late"

    asyncio.run(main())


def test_a_timed_out_tool_cannot_write_any_more_and_its_process_is_ended():
    """B75: the result comes within limit plus grace; what still runs is tracked."""

    async def main():
        ledger = Ledger()

        @tool(effect="read", timeout=0.1)
        async def slow_to_leave() -> str:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
            return "never"

        model = Recorder(call("slow_to_leave"), "done")
        rt = runtime(model, [slow_to_leave])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert "2 attempts (timeout)" in results(model.last)["c1"]
        assert ledger.lines == []

    asyncio.run(main())


@pytest.mark.slow
def test_a_tool_that_will_not_leave_is_left_behind_after_a_bounded_wait():
    """B75: a clean-up of a minute does not hold the run up."""

    async def main():
        @tool(effect="read", timeout=0.1)
        async def stubborn() -> str:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.shield(asyncio.sleep(60))
            return "never"

        rt = runtime([call("stubborn"), "done"], [stubborn])
        assert (await rt.run_async("a", "task", id="r")).status == "completed"

    asyncio.run(main())


def test_a_second_process_reads_of_an_unknown_call_and_can_settle_it_without_the_agent():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        model = Recorder(call("pay", order="7"), "done")
        rt = runtime(model, [dying(ledger, TimeoutError())], store=store)
        await rt.run_async("a", "task", id="r")
        other = Runtime(store.beside())
        assert [p.id for p in await other.pending_async()] == ["r/c1"]
        await other.resolve_async("r/c1", happened=True, result="ok")
        assert (await rt.run_async("a", "task", id="r")).status == "completed"

    asyncio.run(main())
