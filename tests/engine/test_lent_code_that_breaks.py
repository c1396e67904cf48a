"""Code of a deployment that breaks or hangs costs itself, and neither the loop nor others."""

import asyncio
import threading
import time

import pytest
from tests.engine.kit import Recorder, beside, events, until

from cairn import (
    Agent,
    ContextBlock,
    Intake,
    MemoryRules,
    Runtime,
    Scripted,
    before_tool,
    call,
    memory_block,
    tool,
)
from cairn.core import events as ev
from cairn.engine.portal import Portal
from cairn.errors import ConfigError
from cairn.mcp import McpServer
from cairn.mcp.asking import Elicitation, answer
from cairn.tools.blocking import MOST_HANGING, called, contained
from cairn.tools.slots import Slots

LONG_S = 10.0
ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


def raises(error):
    def function(*_):
        raise error

    return function


def raises_async(error):
    async def function(*_):
        raise error

    return function


class Broken:
    name, dimensions = "broken", 4

    def __init__(self, error):
        self.error = error

    async def embed(self, texts):
        raise self.error


def ran(agent, **options):
    with Runtime(":memory:", [agent], **options) as rt:
        return rt.run("a", "hi there", id="r")


# ---------------------------------------------------------------- what would end the loop


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("which", ["block", "query", "project", "embedder"])
def test_what_would_end_the_loop_costs_the_block_and_no_more(which, error):
    block = {"block": raises_async(error), "query": memory_block(raises(error))}
    rules = {
        "project": MemoryRules(project=raises(error)),
        "embedder": MemoryRules(embedder=Broken(error)),
    }
    agent = Agent(
        "a", Scripted(["done"]), context=[ContextBlock("m", block.get(which, memory_block()))]
    )
    run = beside(lambda: ran(agent, memory=rules.get(which)))
    assert (run.status, run.text) == ("completed", "done")


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [raises, raises_async])
def test_what_would_end_the_loop_is_a_fault_of_the_model_and_no_cancelling(how, error):
    run = beside(lambda: ran(Agent("a", Scripted(how(error)))))
    assert (run.status, run.error_class) == ("failed", "internal")
    assert type(error).__name__ in run.reason


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [raises, raises_async])
def test_a_check_that_would_end_the_loop_has_not_accepted_the_answer(how, error):
    agent = Agent("a", Scripted(["x"], repeat=True), completion_checks=[how(error)])
    run = beside(lambda: ran(agent))
    assert (run.status, run.error_class) == ("failed", "malformed_output")
    assert f"the check function raised {type(error).__name__}" in run.reason


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [raises, raises_async])
def test_a_rule_that_would_end_the_loop_is_told_as_a_setting_that_fails(how, error):
    came = beside(lambda: ran(Agent("a", Scripted(["x"]), intake=Intake(rule=how(error)))))
    assert isinstance(came, ConfigError)
    assert f"the rule function raised {type(error).__name__}" in str(came)


def test_a_block_that_cancels_its_own_task_is_left_out():
    async def cancels(briefing):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    agent = Agent("a", Scripted(["done"]), context=[ContextBlock("b", cancels)])
    run = beside(lambda: ran(agent))
    assert (run.status, run.degraded) == ("completed", ("block:b",))


def test_who_is_really_cancelled_is_not_held():
    async def main():
        async def waits():
            await asyncio.sleep(60)

        task = asyncio.create_task(contained("it", waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_what_is_awaited_can_be_closed_from_outside_and_from_another_task():
    closed = []

    async def waits():
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    def began_within_a_task():
        loop, work = asyncio.new_event_loop(), contained("it", waits())
        task = loop.create_task(work)
        task._log_destroy_pending = False  # it is left undone on purpose
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return work

    async def from_another_task():
        left.pop().close()

    left = [began_within_a_task(), began_within_a_task()]
    asyncio.run(from_another_task())
    left.pop().close()  # where no loop runs any more
    assert closed == [True, True]


def test_the_background_loop_outlives_a_task_that_would_end_it():
    async def leaves():
        raise SystemExit(3)

    async def answers():
        return 42

    portal = Portal(lambda _: None)
    assert isinstance(beside(lambda: portal.call(leaves())), SystemExit)
    assert beside(lambda: portal.call(answers())) == 42
    beside(portal.close)


# ---------------------------------------------------------------- one that hangs


def test_one_function_has_at_most_half_of_the_threads_and_others_the_rest():
    opened, slots = threading.Event(), Slots(4)

    async def main():
        def hangs(_):
            return opened.wait(LONG_S)

        calls = [asyncio.create_task(called("bad", hangs, n, slots=slots)) for n in range(5)]
        await until(lambda: slots.taken == 2)
        await asyncio.sleep(0.05)
        assert slots.taken == 2
        assert await asyncio.wait_for(called("good", str, 7, slots=slots), 1) == "7"
        opened.set()
        assert await asyncio.gather(*calls) == [True] * 5
        await until(lambda: slots.taken == 0)

    asyncio.run(main())


def test_a_function_whose_calls_hang_is_refused_at_once_by_name_and_asked_again_when_they_end():
    opened, slots = threading.Event(), Slots(64)

    async def main():
        def hangs(_):
            return opened.wait(LONG_S)

        for n in range(MOST_HANGING):
            with pytest.raises(TimeoutError, match="took longer"):
                await called("bad", hangs, n, seconds=0.02, slots=slots)
        await asyncio.sleep(0.02)
        with pytest.raises(TimeoutError, match="bad was not called: 4 earlier calls of it still"):
            await called("bad", hangs, 5, seconds=LONG_S, slots=slots)
        assert slots.taken == MOST_HANGING
        assert await called("good", str, 7, slots=slots) == "7"
        opened.set()
        await until(lambda: slots.taken == 0)
        assert await called("bad", hangs, 6, slots=slots)

    asyncio.run(main())


def test_calls_that_nobody_waits_for_any_more_are_no_reason_to_refuse_while_their_time_runs():
    opened, slots = threading.Event(), Slots(64)

    async def main():
        def slow(_):
            return opened.wait(LONG_S)

        for n in range(MOST_HANGING + 2):
            task = asyncio.create_task(called("slow", slow, n, slots=slots))
            await until(lambda n=n: slots.taken == n + 1)
            task.cancel()
        opened.set()
        assert await called("slow", slow, 9, slots=slots)

    asyncio.run(main())


def test_a_hook_that_hangs_starves_itself_and_no_other_and_is_named():
    opened = threading.Event()

    @tool(effect="read")
    async def look(n: int) -> str:
        return str(n)

    @before_tool(timeout=0.02, on_error="ignore")
    def hangs(_):
        opened.wait(LONG_S)

    @before_tool
    def fine(_):
        return None

    async def main():
        calls = [call("look", n=n) for n in range(12)]
        bad = Agent("bad", Scripted([*calls[:6], *calls[6:], "done"]), tools=[look], hooks=[hangs])
        good = Agent("good", Scripted([calls[0], "done"]), tools=[look], hooks=[fine])
        async with Runtime(":memory:", [bad, good]) as rt:
            assert (await rt.run_async("bad", "x", id="b")).ok
            said = [e.message for e in events(await rt.trace_async("b"), ev.ErrorRaised)]
            assert said[:4] == ["it gave no answer within 0.02 s"] * 4
            assert len(said) == 12
            assert all("hook-hangs was not called: 4 earlier calls" in each for each in said[5:])
            assert (await rt.run_async("good", "x", id="g")).ok
            assert events(await rt.trace_async("g"), ev.ErrorRaised) == []

    try:
        asyncio.run(main())
    finally:
        opened.set()


def test_a_hook_that_got_no_thread_is_not_blamed_and_those_that_hold_them_are_named(monkeypatch):
    opened, slots = threading.Event(), Slots(2)
    monkeypatch.setattr("cairn.engine.asking.THREADS", slots)

    @tool(effect="read")
    async def look() -> str:
        return "seen"

    @before_tool(timeout=0.05)
    def fine(_):
        return None

    async def main():
        def hangs(_):
            opened.wait(LONG_S)

        def hangs_too(_):
            opened.wait(LONG_S)

        held = [
            asyncio.create_task(called(f"hook-{f.__name__}", f, 1, slots=slots))
            for f in (hangs, hangs_too)
        ]
        await until(lambda: slots.taken == 2)
        agent = Agent("a", Scripted([call("look"), "done"]), tools=[look], hooks=[fine])
        async with Runtime(":memory:", [agent]) as rt:
            await rt.run_async("a", "x", id="r")
            (raised,) = events(await rt.trace_async("r"), ev.ErrorRaised)
        assert "hook-fine got no thread within 0.05 s" in raised.message
        assert "hook-hangs (1)" in raised.message
        assert "hook-hangs_too (1)" in raised.message
        opened.set()
        await asyncio.gather(*held)

    try:
        asyncio.run(main())
    finally:
        opened.set()


def test_an_operators_answer_is_made_in_a_thread_that_no_end_of_the_process_waits_for():
    threads = []

    def answers(asked):
        threads.append(threading.current_thread())
        return {"colour": "red"}

    said = asyncio.run(answer(Elicitation(server="s", message="Which?"), answers))
    assert said == ("accept", {"colour": "red"})
    assert threads[0].daemon


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [raises, raises_async])
def test_an_operators_answer_that_would_end_the_loop_has_failed(how, error):
    async def main():
        return await answer(Elicitation(server="s", message="Which?"), how(error))

    assert beside(lambda: asyncio.run(main())) == ("cancel", {})


# ---------------------------------------------------------------- what cannot be called


def nothing():
    return ""


def two(a, b):
    return ""


MADE = {
    r"ContextBlock\('b'\)\.text": lambda f: ContextBlock("b", f),
    r"Agent\('a'\)\.instructions": lambda f: Agent("a", Scripted([]), instructions=f),
    r"Agent\('a'\)\.completion_checks": lambda f: Agent("a", Scripted([]), completion_checks=[f]),
    r"Intake\.rule": lambda f: Intake(rule=f),
    r"Runtime\.on_wait": lambda f: Runtime(":memory:", on_wait=f),
    r"memory_block\.query_from": memory_block,
    r"MemoryRules\.project": lambda f: MemoryRules(project=f),
    r"Scripted\.script": Scripted,
    r"Scripted\.script\[1\]": lambda f: Scripted(["x", f]),
    r"McpServer\('s'\)\.on_elicit": lambda f: McpServer("s", command=["x"], on_elicit=f),
}


@pytest.mark.parametrize("function", [nothing, two])
@pytest.mark.parametrize("field", MADE)
def test_a_function_that_cannot_be_called_with_what_it_gets_is_refused_when_given(field, function):
    with pytest.raises(ConfigError, match=rf"^{field}: {function.__name__} cannot be .* Give a f"):
        MADE[field](function)


def by_name(*, principal):
    return principal


@pytest.mark.parametrize("factory", [two, by_name])
def test_a_factory_that_needs_more_than_a_principal_is_refused_when_given(factory, tmp_path):
    with pytest.raises(ConfigError, match=r"^Runtime\.deps: .* Give a function of one Principal"):
        Runtime(tmp_path / "new.db", deps=factory)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- what is seen of it


def test_a_block_whose_function_fails_degrades_the_run_and_is_told_once():
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        script = Recorder(call("look"), "done")
        broken = ContextBlock("house", raises(LookupError("no house")))
        empty = ContextBlock("garden", lambda _: None)
        agent = Agent("a", Scripted(script), tools=[look], context=[broken, empty])
        rt = Runtime(":memory:", [agent])
        run = await rt.run_async("a", "task", id="r")
        assert (run.ok, run.degraded) == (True, ("block:house",))
        entries = await rt.trace_async("r")
        (raised,) = events(entries, ev.ErrorRaised)
        assert (raised.where, raised.error_class) == ("block:house", "dependency_failed")
        assert "LookupError: no house" in raised.message
        assert (await rt.replay_async("r")).same

    asyncio.run(main())


def test_a_run_whose_first_block_takes_its_time_is_shown_as_driven():
    async def main():
        begun, gate = asyncio.Event(), asyncio.Event()

        async def slow(briefing):
            begun.set()
            await gate.wait()
            return "Elm"

        agent = Agent("a", Scripted(["done"]), context=[ContextBlock("house", slow)])
        rt = Runtime(":memory:", [agent])
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await begun.wait()
        (info,) = await rt.runs_async()
        assert (info.status, info.leased) == ("queued", True)
        gate.set()
        assert (await driving).ok

    begun_at = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun_at < LONG_S
