"""Everything is bounded, and every bound ends the run with its own name."""

import asyncio
import itertools

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, events, results, runtime, texts

from cairn import Limits, Price, Runtime, Scripted, Usage, call, tool
from cairn.core import events as ev
from cairn.core.limits import MIN_OUTPUT_TOKENS


def looker(ledger: Ledger, answer=None):
    @tool(effect="read")
    async def look(q: str = "") -> str:
        ledger.add(q)
        return answer(len(ledger.lines)) if answer else f"{q} {len(ledger.lines)}"

    return look


def endless(ledger: Ledger, **options):
    """A model that never stops and always learns something new."""
    numbers = itertools.count()
    return runtime(lambda r: call("look", q=str(next(numbers))), [looker(ledger)], **options)


# ---------------------------------------------------------------- steps, calls, time


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_model_that_never_stops_is_stopped_after_exactly_the_allowed_steps(steps):
    """B39: step limit 4 with a model that never stops: the status says which limit."""

    async def main():
        ledger = Ledger()
        run = await endless(ledger).run_async("a", "task", limits=Limits(steps=steps))
        assert (run.status, run.limit, run.steps) == ("stopped", "steps", steps)
        assert len(ledger.lines) == steps
        assert f"steps limit reached: {steps} of {steps}" in run.text

    asyncio.run(main())


def test_a_run_that_ends_with_its_last_step_has_completed():
    """B39: the boundary is written down: the last allowed step may be the answer."""

    async def main():
        rt = runtime([call("look", q="x"), "done"], [looker(Ledger())])
        run = await rt.run_async("a", "task", limits=Limits(steps=2))
        assert (run.status, run.steps) == ("completed", 2)

    asyncio.run(main())


@pytest.mark.parametrize("effect", ["read", "write"])
def test_five_calls_under_a_limit_of_three_run_three_and_answer_the_rest(effect):
    """B39: exactly the allowed number runs, the rest are answered as refused, by name."""

    async def main():
        ledger = Ledger()

        @tool(effect=effect)
        async def work(n: int) -> str:
            return ledger.add(f"work {n}")

        model = Recorder([call("work", n=n) for n in range(5)], "never asked")
        rt = runtime(model, [work])
        run = await rt.run_async("a", "task", id="r", limits=Limits(calls=3))
        assert (run.status, run.limit, run.calls) == ("stopped", "calls", 3)
        assert sorted(ledger.lines) == ["work 0", "work 1", "work 2"]
        rejected = events(await rt.trace_async("r"), ev.ToolRejected)
        assert [(r.call, r.kind, r.rule) for r in rejected] == [
            ("c4", "limit", "calls"),
            ("c5", "limit", "calls"),
        ]
        assert len(model.requests) == 1

    asyncio.run(main())


def test_exactly_as_many_calls_as_allowed_are_no_excess():
    async def main():
        ledger = Ledger()
        lines = [[call("look", q=str(n)) for n in range(3)], "done"]
        run = await runtime(lines, [looker(ledger)]).run_async("a", "t", limits=Limits(calls=3))
        assert (run.status, run.calls) == ("completed", 3)

    asyncio.run(main())


def test_attempts_of_a_call_count_as_one_call():
    async def main():
        from cairn import ToolError

        @tool(effect="read", retries=3)
        async def look() -> str:
            tried.append(1)
            if len(tried) < 4:
                raise ToolError("no")
            return "seen"

        tried: list[int] = []
        rt = runtime([call("look"), "done"], [look], clock=TurnedClock())
        run = await rt.run_async("a", "task", limits=Limits(calls=1))
        assert (run.status, run.calls, len(tried)) == ("completed", 1, 4)

    asyncio.run(main())


def test_running_time_counts_work_and_not_waits():
    async def main():
        clock = TurnedClock()

        @tool(effect="read")
        async def work(n: int) -> str:
            clock.turn(20)
            return f"worked {n}"

        lines = [
            call("work", n=1),
            call("ask_user", question="?"),
            *(call("work", n=n) for n in range(2, 9)),
        ]
        rt = runtime(lines, [work], clock=clock)
        run = await rt.run_async("a", "task", id="r", limits=Limits(running_s=60))
        assert run.status == "waiting"
        clock.turn(86_400)
        await rt.answer_async("r/1", "yes")
        run = await rt.drive_async("r")
        assert (run.status, run.limit) == ("stopped", "running_s")
        assert run.calls == 3

    asyncio.run(main())


def test_a_slow_model_uses_running_time_up_too():
    async def main():
        clock = TurnedClock()

        def slow(request):
            clock.turn(25)
            return call("look", q=str(request.turn))

        rt = runtime(slow, [looker(Ledger())], clock=clock)
        run = await rt.run_async("a", "task", limits=Limits(running_s=60))
        assert (run.status, run.limit, run.steps) == ("stopped", "running_s", 3)

    asyncio.run(main())


# ---------------------------------------------------------------- tokens and money


def test_tokens_are_reserved_before_and_settled_after():
    async def main():
        usage = Usage(input_tokens=100, output_tokens=50)
        numbers = itertools.count()
        model = Scripted(lambda r: call("look", q=str(next(numbers))), usage=usage)
        rt = runtime(model, [looker(Ledger())])
        run = await rt.run_async("a", "task", id="r", limits=Limits(tokens=2_000))
        assert (run.status, run.limit) == ("stopped", "tokens")
        assert run.usage.tokens <= 2_000
        requested = events(await rt.trace_async("r"), ev.ModelRequested)
        assert requested[0].reserved.tokens <= 2_000
        outputs = [r.reserved.output_tokens for r in requested]
        assert outputs == sorted(outputs, reverse=True)
        assert outputs[-1] >= MIN_OUTPUT_TOKENS

    asyncio.run(main())


def test_a_limit_of_tokens_that_cannot_hold_the_first_request_asks_no_model():
    async def main():
        model = Recorder("never")
        run = await runtime(model).run_async("a", "task", limits=Limits(tokens=100))
        assert (run.status, run.limit, model.requests) == ("stopped", "tokens", [])

    asyncio.run(main())


def test_money_is_never_exceeded_by_a_model_that_keeps_to_its_output_limit():
    async def main():
        price = Price(input=1_000_000, output=10_000_000)
        numbers = itertools.count()

        class Honest(Scripted):
            async def request(self, request, on_delta=None):
                assert request.max_output <= 4096
                reply = await super().request(request, on_delta)
                from msgspec.structs import replace

                used = Usage(input_tokens=50, output_tokens=request.max_output)
                return replace(reply, usage=used)

        model = Honest(lambda r: call("look", q=str(next(numbers))), price=price)
        rt = runtime(model, [looker(Ledger())])
        run = await rt.run_async("a", "task", id="r", limits=Limits(micro_usd=100_000))
        assert (run.status, run.limit) == ("stopped", "micro_usd")
        assert 50_000 < run.usage.micro_usd <= 100_000
        assert f"{run.usage.micro_usd} of 100000" in run.text

    asyncio.run(main())


def test_an_excess_of_money_is_recorded_and_ends_the_run():
    async def main():
        price = Price(input=1_000_000, output=10_000_000)
        model = Scripted(
            [call("look", q="1"), "never"], price=price, usage=Usage(output_tokens=50_000)
        )
        rt = runtime(model, [looker(Ledger())])
        run = await rt.run_async("a", "task", limits=Limits(micro_usd=100_000))
        assert (run.status, run.limit) == ("stopped", "micro_usd")
        assert run.usage.micro_usd == 500_000

    asyncio.run(main())


def test_a_free_model_is_not_stopped_by_a_limit_of_money():
    async def main():
        run = await runtime(["done"]).run_async("a", "task", limits=Limits(micro_usd=0))
        assert run.status == "completed"

    asyncio.run(main())


def test_what_tools_cost_counts_and_is_checked_before_they_start():
    """B40 in small: calls that start together do not each see the whole rest."""

    async def main():
        ledger = Ledger()

        @tool(effect="read", cost=0.4)
        async def pay_per_call(n: int) -> str:
            return ledger.add(f"{n}")

        rt = runtime([[call("pay_per_call", n=n) for n in range(4)], "never"], [pay_per_call])
        run = await rt.run_async("a", "task", limits=Limits(micro_usd=1_000_000))
        assert (run.status, run.limit) == ("stopped", "micro_usd")
        assert (len(ledger.lines), run.usage.micro_usd) == (2, 800_000)

    asyncio.run(main())


def test_limits_of_a_run_only_narrow_those_of_its_agent():
    async def main():
        for own, given, expected in ((3, 10, 3), (10, 3, 3), (5, 5, 5)):
            rt = endless(Ledger(), limits=Limits(steps=own))
            run = await rt.run_async("a", "task", limits=Limits(steps=given))
            assert run.steps == expected

    asyncio.run(main())


# ---------------------------------------------------------------- errors and progress


def test_turns_in_a_row_that_only_err_fail_the_run():
    async def main():
        @tool(effect="read")
        async def broken(n: int) -> str:
            raise ValueError(f"no {n}")

        rt = runtime(lambda r: call("broken", n=r.turn), [broken])
        run = await rt.run_async(
            "a", "task", id="r", limits=Limits(errors_in_row=4, no_progress=50)
        )
        assert run.status == "failed"
        assert (run.steps, run.error_class) == (4, "limit_reached")
        assert "4 turns in a row ended in errors" in run.text
        (reached,) = events(await rt.trace_async("r"), ev.LimitReached)
        assert reached.limit == "errors_in_row"

    asyncio.run(main())


def test_an_error_that_was_overcome_does_not_count_any_more():
    async def main():
        @tool(effect="read")
        async def shaky(n: int) -> str:
            if n % 2:
                raise ValueError("odd")
            return f"even {n}"

        lines = [*(call("shaky", n=n) for n in range(12)), "done"]
        run = await runtime(lines, [shaky]).run_async("a", "t", limits=Limits(errors_in_row=2))
        assert run.status == "completed"

    asyncio.run(main())


def guarded(script, tools, **limits):
    return runtime(script, tools), Limits(**limits)


def test_the_same_call_for_ever_is_hinted_blocked_and_stopped():
    """B37: the model is told, then repeats are refused, then the run stops with its own reason."""

    async def main():
        ledger = Ledger()
        model = Recorder(call("look", q="x"), repeat=True)
        rt = runtime(model, [looker(ledger, lambda n: "the same")])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.limit) == ("stopped", "no_progress")
        warned = [w.level for w in events(await rt.trace_async("r"), ev.LimitWarned)]
        assert warned == ["hint", "block"]
        assert len(ledger.lines) == 5
        assert len(model.requests) == 6
        assert any("brought nothing new" in t for t in texts(model.last))
        rejected = events(await rt.trace_async("r"), ev.ToolRejected)
        assert [r.kind for r in rejected] == ["loop"]

    asyncio.run(main())


@pytest.mark.parametrize("spelling", ["same", "other key order"])
def test_two_calls_in_turn_are_found_whatever_the_order_of_their_keys(spelling):
    """B37: A, B, A, B, … is a loop though no call follows itself."""

    async def main():
        @tool(effect="read")
        async def read(a: int = 0, b: int = 0) -> str:
            return "text"

        @tool(effect="write")
        async def write(a: int = 0, b: int = 0) -> str:
            return "written"

        from cairn.ports import ReplyCall

        def turn(request):
            name = "write" if request.turn % 2 else "read"
            other = spelling != "same" and request.turn % 4 > 1
            return ReplyCall(name=name, arguments='{"b":2,"a":1}' if other else '{"a":1, "b":2}')

        run = await runtime(turn, [read, write]).run_async("a", "task")
        assert (run.status, run.limit) == ("stopped", "no_progress")
        assert run.steps < 12

    asyncio.run(main())


def test_reads_that_change_their_arguments_and_get_the_same_answer_are_found():
    async def main():
        rt = endless_same = runtime(
            lambda r: call("look", q=str(r.turn)), [looker(Ledger(), lambda n: "nothing here")]
        )
        run = await endless_same.run_async("a", "task")
        assert (run.status, run.limit) == ("stopped", "no_progress")
        assert run.steps < 10
        assert rt is endless_same

    asyncio.run(main())


def test_honest_polling_with_changing_results_is_no_loop():
    """B38: polling with changing results raises no alarm."""

    async def main():
        ledger = Ledger()
        lines = [*(call("look", q="status") for _ in range(30)), "finished"]
        rt = runtime(lines, [looker(ledger, lambda n: f"{n} %")])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, len(ledger.lines)) == ("completed", 30)
        assert not events(await rt.trace_async("r"), ev.LimitWarned)

    asyncio.run(main())


def test_writes_with_other_arguments_and_the_same_answer_are_no_loop():
    """B38: attach(a), attach(b), attach(c), each returning true."""

    async def main():
        @tool(effect="write")
        async def attach(name: str) -> bool:
            return True

        lines = [*(call("attach", name=f"file {n}") for n in range(12)), "done"]
        rt = runtime(lines, [attach])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert not events(await rt.trace_async("r"), ev.LimitWarned)

    asyncio.run(main())


def test_a_hint_that_helps_is_forgotten():
    async def main():
        ledger = Ledger()
        lines = [
            *(call("look", q="x") for _ in range(4)),
            *(call("look", q=f"{n}") for n in range(8)),
            "done",
        ]
        rt = runtime(lines, [looker(ledger, lambda n: "same" if n < 5 else f"new {n}")])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert [w.level for w in events(await rt.trace_async("r"), ev.LimitWarned)] == ["hint"]

    asyncio.run(main())


def test_replies_that_stay_empty_fail_the_run():
    async def main():
        model = Recorder([], repeat=True)
        run = await runtime(model).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "empty_output")
        assert len(model.requests) == 3

    asyncio.run(main())


def test_the_guard_remembers_across_a_restart():
    async def main():
        from cairn.store.inmemory import InMemoryStore

        store, ledger = InMemoryStore(), Ledger()
        asked = 0
        for _ in range(10):
            rt = runtime(
                lambda r: [call("look", q="x"), call("ask_user", question="go on?")],
                [looker(ledger, lambda n: "same")],
                store=store.beside(),
            )
            run = await rt.run_async("a", "task", id="r")
            if run.status != "waiting":
                break
            asked += 1
            await rt.client.answer(run.pending[0].id, "yes")
        assert (run.status, run.limit) == ("stopped", "no_progress")
        assert asked <= 7

    asyncio.run(main())


def test_limits_hold_for_each_run_alone():
    async def main():
        ledger = Ledger()
        rt = endless(ledger)
        runs = await asyncio.gather(
            *(rt.run_async("a", "t", limits=Limits(steps=3)) for _ in range(4))
        )
        assert {r.steps for r in runs} == {3}

    asyncio.run(main())


def test_a_stopped_run_says_what_was_done_and_what_not():
    async def main():
        @tool(effect="write")
        async def pay(n: int) -> str:
            return f"paid {n}"

        rt = runtime([[call("pay", n=1), call("pay", n=2), call("pay", n=3)], "x"], [pay])
        run = await rt.run_async("a", "task", limits=Limits(calls=2))
        assert run.text.splitlines()[0].endswith("stopped. calls limit reached: 2 of 2.")
        assert "Done: pay (c1), pay (c2)" in run.text
        assert "Not done: pay (c3)" in run.text
        assert results is not None

    asyncio.run(main())


def test_two_runtimes_with_one_store_see_the_same_limits():
    async def main():
        from cairn.store.inmemory import InMemoryStore

        store = InMemoryStore()
        rt = runtime(
            [call("ask_user", question="?"), *(call("look", q=str(n)) for n in range(9))],
            [looker(Ledger())],
            store=store,
        )
        await rt.run_async("a", "task", id="r", limits=Limits(steps=2))
        await Runtime(store.beside()).answer_async("r/1", "yes")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.limit, run.steps) == ("stopped", "steps", 2)

    asyncio.run(main())
