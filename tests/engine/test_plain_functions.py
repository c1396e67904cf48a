"""Plain functions of a deployment hold up nobody: neither the loop, nor for ever their own run."""

import asyncio
import contextvars
import re
import time

import pytest
from tests.engine.kit import Door, Recorder, events, texts, until

from cairn import Agent, Context, ContextBlock, Intake, Need, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.intake import missing
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.rules import IntakeRules
from cairn.errors import ConfigError, DepsFailed
from cairn.intake import holds
from cairn.tools import blocking
from cairn.tools.blocking import Overdue, called
from cairn.tools.slots import Slots


@pytest.fixture
def door():
    made = Door()
    yield made
    made.opened.set()  # who was left alone there may go


def made(model, **options):
    script = model if isinstance(model, Recorder) else Recorder(*([model] * 4))
    return Runtime(":memory:", [Agent("a", Scripted(script), **options)])


def paying(on_wait):
    @tool(effect="write")
    async def pay() -> str:
        return "paid"

    agent = Agent("a", Scripted([call("pay"), "done"]), tools=[pay])
    return Runtime(":memory:", [agent], policy=DEFAULT_POLICY, on_wait=on_wait)


# ---------------------------------------------------------------- the loop goes on


def test_a_plain_function_of_a_block_may_block_and_the_loop_goes_on(door):
    async def main():
        model = Recorder("done")
        block = ContextBlock("house", lambda _: "Elm" if door.wait() else "")
        rt = made(model, context=[block])
        assert (await door.beside(rt.run_async("a", "task", id="r"))).ok
        assert "Elm" in model.last.system

    asyncio.run(main())
    assert door.passed == [True]


def test_plain_instructions_may_block_and_the_loop_goes_on(door):
    async def main():
        rt = made("done", instructions=lambda _: "Be kind." if door.wait() else "")
        assert (await door.beside(rt.run_async("a", "task", id="r"))).ok
        door.opened.clear()
        door._reached.clear()
        await door.beside(rt.replay_async("r", prompts=True))

    asyncio.run(main())
    assert door.passed == [True, True]


def test_a_plain_check_may_block_and_the_loop_goes_on(door):
    async def main():
        rt = made("done", completion_checks=[lambda answer: door.wait()])
        assert (await door.beside(rt.run_async("a", "task", id="r"))).ok

    asyncio.run(main())
    assert door.passed == [True]


def test_a_plain_rule_may_block_and_the_loop_goes_on(door):
    async def main():
        rt = made("done", intake=Intake(rule=lambda _: "query" if door.wait() else None))
        run = await door.beside(rt.run_async("a", "task", id="r"))
        created = (await rt.trace_async(run.id))[0].event
        assert (created.kind, created.kind_by) == ("query", "rule")

    asyncio.run(main())
    assert door.passed == [True]


def looking(deps):
    @tool(effect="read")
    async def look(ctx: Context) -> str:
        return str(ctx.deps)

    agent = Agent("a", Scripted([call("look"), "done"]), tools=[look])
    return Runtime(":memory:", [agent], deps=deps)


def test_a_plain_deps_factory_may_block_and_the_loop_goes_on(door):
    async def main():
        rt = looking(lambda principal: door.wait())
        assert (await door.beside(rt.run_async("a", "task", id="r"))).ok

    asyncio.run(main())
    assert door.passed == [True]


def test_a_plain_notifier_may_block_and_the_loop_goes_on(door):
    async def main():
        rt = paying(lambda run: door.wait())
        assert (await door.beside(rt.run_async("a", "task", id="r"))).status == "waiting"

    asyncio.run(main())
    assert door.passed == [True]


# ---------------------------------------------------------------- nobody waits for ever


def test_a_plain_block_that_hangs_is_left_out_and_named(door, monkeypatch):
    monkeypatch.setattr("cairn.engine.attend.TASK_S", 0.1)

    async def main():
        rt = made("done", context=[ContextBlock("house", lambda _: str(door.wait()))])
        assert (await rt.run_async("a", "task", id="r")).ok
        (line,) = [each for each in (await rt.context_async("r", 1)).lines if each.name == "house"]
        assert not line.sent
        assert "the context block house took longer than 0.1 s" in line.why

    asyncio.run(main())
    assert door.passed == [], "the run went on before it answered"


def test_a_plain_check_that_hangs_has_not_accepted_and_the_model_is_told(door, monkeypatch):
    monkeypatch.setattr("cairn.engine.drive.TASK_S", 0.1)

    async def main():
        def is_signed(answer):
            return answer.text == "again" or door.wait()

        model = Recorder("done", "again")
        run = await made(model, completion_checks=[is_signed]).run_async("a", "task", id="r")
        assert (run.ok, run.text) == (True, "again")
        assert "the check is_signed gave no answer within 0.1 s" in texts(model.last)[-1]

    asyncio.run(main())
    assert door.passed == []


def test_a_rule_that_hangs_is_refused_by_name_and_makes_no_run(door, monkeypatch):
    monkeypatch.setattr("cairn.intake.RULE_S", 0.1)

    async def main():
        def by_size(text):
            return "query" if door.wait() else None

        rt = made("done", intake=Intake(rule=by_size))
        with pytest.raises(ConfigError, match=r"by_size took longer than 0\.1 s\. Give what"):
            await rt.run_async("a", "task", id="r")
        assert await rt.runs_async() == []

    asyncio.run(main())
    assert door.passed == []


def test_a_plain_deps_factory_that_hangs_is_named_and_leaves_the_run_resumable(door, monkeypatch):
    monkeypatch.setattr("cairn.engine.attend.TASK_S", 0.1)

    async def main():
        rt = looking(lambda principal: door.wait())
        with pytest.raises(DepsFailed, match=r"the deps factory took longer than 0\.1 s"):
            await rt.run_async("a", "task", id="r")
        door.opened.set()
        assert (await rt.run_async("a", "task", id="r")).ok

    asyncio.run(main())


def test_a_plain_deps_factory_that_needs_the_loop_is_told_to_be_async():
    async def main():
        rt = looking(lambda principal: asyncio.get_running_loop())
        with pytest.raises(DepsFailed, match=r"no running event loop.*async def"):
            await rt.run_async("a", "task", id="r")

    asyncio.run(main())


def test_a_notifier_that_hangs_is_left_alone_and_not_told_twice_beside_itself(door, monkeypatch):
    monkeypatch.setattr("cairn.engine.notify.TELL_S", 0.1)
    told = []

    async def main():
        rt = paying(lambda run: told.append(run.id) or door.wait())
        assert (await rt.run_async("a", "task", id="r")).status == "waiting"

    asyncio.run(main())
    assert (told, door.passed) == (["r"], [])


def test_a_notifier_whose_own_time_out_strikes_is_asked_again():
    told = []

    def tell(run):
        told.append(run.id)
        if len(told) == 1:
            raise TimeoutError("the mail server is slow")

    asyncio.run(paying(tell).run_async("a", "task", id="r"))
    assert told == ["r", "r"]


def test_where_no_thread_is_free_it_is_said_what_holds_them(door, monkeypatch):
    monkeypatch.setattr(blocking, "SLOT_WAIT_S", 0.05)
    slots = Slots(1)

    async def main():
        first = asyncio.create_task(called("the check slow", lambda _: door.wait(), 1, slots=slots))
        await until(lambda: slots.taken == 1)
        with pytest.raises(
            TimeoutError, match=r"the block b got no thread.*the check slow"
        ) as told:
            await called("the block b", str, 2, slots=slots)
        assert "time-out" in str(told.value)
        door.opened.set()
        assert await first
        assert await called("the block b", str, 3, slots=slots) == "3"

    asyncio.run(main())


def test_a_thread_that_nobody_waits_for_counts_until_it_ends(door):
    slots = Slots(2)

    async def main():
        with pytest.raises(Overdue, match=r"the block b took longer than 0\.05 s"):
            await called("the block b", lambda _: door.wait(), 1, seconds=0.05, slots=slots)
        assert slots.taken == 1
        door.opened.set()
        await until(lambda: slots.taken == 0)

    asyncio.run(main())


# ---------------------------------------------------------------- as before


def test_what_a_plain_function_raises_or_gives_to_await_is_what_comes_of_it():
    async def later(value):
        await asyncio.sleep(0)
        return value * 2

    def breaks(_):
        raise TimeoutError("its own")

    async def main():
        assert await called("f", lambda n: later(n + 1), 1) == 4
        assert await called("f", later, 3) == 6
        with pytest.raises(TimeoutError, match="its own"):
            await called("f", breaks, 1, seconds=9)

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_would_end_the_process_ends_a_check_and_nothing_else(error):
    async def main():
        def leaves(answer):
            raise error

        rt = made("done", completion_checks=[leaves], repairs=0)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "malformed_output")
        (failed,) = events(await rt.trace_async("r"), ev.StepFailed)
        assert f"the check leaves raised {type(error).__name__}" in failed.message

    asyncio.run(main())


def test_a_plain_function_sees_the_context_variables_of_whoever_drives_the_run():
    whose = contextvars.ContextVar("whose", default="nobody")

    async def main():
        whose.set("ann")
        model = Recorder("done")
        rt = made(model, context=[ContextBlock("who", lambda _: f"For {whose.get()}.")])
        assert (await rt.run_async("a", "task", id="r")).ok
        assert "For ann." in model.last.system

    asyncio.run(main())


# ---------------------------------------------------------------- patterns


CATASTROPHIC = Need(name="end", question="Where does it end?", pattern=r"(\w+\s?)+:")


def test_no_pattern_of_a_need_costs_more_than_the_text_is_long():
    begun = time.thread_time()
    rules = IntakeRules(needs=(CATASTROPHIC,), holds=holds)
    assert missing(rules, "a" * 25) == (CATASTROPHIC,)
    assert missing(rules, "a" * 20_000) == (CATASTROPHIC,)
    assert missing(rules, "a b c:") == ()
    assert time.thread_time() - begun < 1


def test_an_agent_looks_for_its_needs_in_linear_time():
    async def main():
        rt = made("done", intake=Intake(needs=[CATASTROPHIC]))
        begun = time.thread_time()
        run = await rt.run_async("a", "a" * 25, id="r")
        assert (run.status, run.pending[0].question) == ("waiting", CATASTROPHIC.question)
        assert time.thread_time() - begun < 1

    asyncio.run(main())


BEYOND = [r"(?=.*AB)\d", r"(\w)\1", r"(?<!x)AB", r"AB\Z", r"(?>a+)b", r"a++b", r"[+*]?+b"]
OTHERWISE = [r"[a-z&&b]", r"[a-z--b]", r"x[[a]]", r"[a~~b]", r"[]&&a]"]


@pytest.mark.filterwarnings("ignore:Possible (set|nested)")
@pytest.mark.parametrize("pattern", [*BEYOND, *OTHERWISE])
def test_a_pattern_that_is_not_read_as_python_reads_it_is_refused_by_name_when_it_is_given(pattern):
    with pytest.raises(ConfigError, match=r"Need\('order'\)\.pattern: .* linear time"):
        Intake(needs=[Need(name="order", question="Which?", pattern=pattern)])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\bab-\d{4}\b", "It is AB-4711."),
        (r"^AB-\d+$", "ab-1\n"),
        (r"(?m)^straße \w+$", "Hm\nSTRASSE\nStraße Höhe\nyes"),
        (r"(?x) ab - \d  # an order", "AB-1"),
        (r"订单\s*(?P<n>\d+)", "订单 42"),
        (r"\++[+*]+\{\}+[\[\]\-a-z]{2,}", "+++{}[]"),
        (r"a.c|x+?y", "xxy"),
    ],
)
def test_a_pattern_finds_what_pythons_own_search_finds(pattern, text):
    Intake(needs=[Need(name="order", question="Which?", pattern=pattern)])
    assert re.search(pattern, text, re.IGNORECASE)
    assert holds(pattern, text)
