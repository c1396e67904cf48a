"""What comes out of one run, whatever it is, ends that run and neither a worker nor another run."""

import asyncio
import functools
import logging
import signal
import sys

import pytest
from pydantic import BaseModel, field_validator
from tests.engine.kit import beside

from cairn import (
    Agent,
    ConfigError,
    Intake,
    Ladder,
    MemoryRules,
    ModelError,
    Policy,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.ladder import DEFAULT_LADDER
from cairn.engine import advance, drive, perform, worker
from cairn.engine.ends import as_fault, asked_for

ENDS = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]
each_end = pytest.mark.parametrize("error", ENDS)


def worked(agent, **options):
    """How a run of the agent stands, and one of another, once a worker has looked at both."""
    beside_it = Agent("b", Scripted(["fine"]))
    with Runtime(":memory:", [agent, beside_it], **options) as rt:
        rt.enqueue("a", "task", id="r")
        rt.enqueue("b", "task", id="other")
        came = beside(lambda: rt.work(until_idle=True))
        assert came is None, came
        assert rt.get("other").text == "fine"
        return rt.get("r"), rt.trace("r")


def faulty(reply):
    raise ModelError("overloaded", "overloaded")


def ending(error):
    class Ending(Ladder):
        def choose(self, *_):
            raise error

    return Ending(rows=DEFAULT_LADDER.rows)


# ---------------------------------------------------------------- lent code


@each_end
def test_a_tool_whose_exception_has_no_words_fails_its_call_only(error):
    class Mute(Exception):
        def __str__(self):
            raise error

    @tool(effect="read")
    async def look() -> str:
        raise Mute

    @tool(effect="read")
    def stare() -> str:
        raise Mute

    script = [[call("look"), call("stare")], "done"]
    run, trace = worked(Agent("a", Scripted(script), tools=[look, stare]))
    assert (run.status, run.text) == ("completed", "done")
    failed = [e.event for e in trace if isinstance(e.event, ev.ToolFailed)]
    assert {each.message for each in failed} == {"Mute"}


@each_end
def test_a_rule_or_a_project_whose_exception_has_no_words_is_named_by_its_type(error):
    class Mute(Exception):
        def __str__(self):
            raise error

    def fails(*_):
        raise Mute

    ruled = Agent("a", Scripted(["done"]), intake=Intake(rule=fails))
    with Runtime(":memory:", [ruled]) as rt, pytest.raises(ConfigError, match="it raised Mute"):
        rt.run("a", "task")
    rules = MemoryRules(project=fails)
    desk = Agent("a", Scripted([]))
    told = pytest.raises(ConfigError, match="the function failed: Mute")
    with Runtime(":memory:", [desk], memory=rules) as rt, told:
        rt.remember("The shop opens at nine.", principal="ann", scope="project")


@each_end
def test_a_model_or_a_check_whose_exception_has_no_words_is_a_fault_of_its_run(error):
    class Mute(Exception):
        def __str__(self):
            raise error

    def fails(*_):
        raise Mute

    run, _ = worked(Agent("a", Scripted(fails)))
    assert (run.status, run.reason) == ("failed", "the model adapter failed: Mute")
    run, trace = worked(Agent("a", Scripted(["x"], repeat=True), completion_checks=[fails]))
    refused = [e.event for e in trace if isinstance(e.event, ev.StepFailed)]
    assert run.status != "running"
    assert "the check fails failed: Mute" in refused[0].message


@each_end
def test_a_policy_that_would_end_the_process_denies_the_call(error):
    class Ending(Policy):
        def judge(self, *_, **__):
            raise error

    @tool(effect="read")
    async def look() -> str:
        return "seen"

    run, trace = worked(Agent("a", Scripted([call("look"), "done"]), tools=[look]), policy=Ending())
    assert run.text == "done"
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ToolRejected)]
    assert refused.rule.startswith(f"policy failed: {error.__name__}")


@each_end
def test_an_argument_whose_own_text_would_end_the_process_lets_nothing_through(error):
    class Path(BaseModel):
        name: str

        def __str__(self):
            raise error

    @tool(effect="write", binds="path", conflict_key="path")
    async def put(path: Path) -> str:
        return "put"

    script = [[call("put", path={"name": "a"}), call("put", path={"name": "b"})], "done"]
    policy = Policy(effects={"write": "ask"})
    run, trace = worked(Agent("a", Scripted(script), tools=[put]), policy=policy)
    assert run.text == "done"
    refused = [e.event for e in trace if isinstance(e.event, ev.ToolRejected)]
    assert {"cannot be told" in each.message for each in refused} == {True}
    assert len(refused) == 2


@pytest.mark.parametrize("raised", [KeyError("ZZZ"), ZeroDivisionError("no rate"), TypeError("x")])
def test_an_answer_whose_validator_raises_anything_is_mended_by_the_model(raised):
    class Sum(BaseModel):
        currency: str

        @field_validator("currency")
        @classmethod
        def known(cls, value):
            if value == "ZZZ":
                raise raised
            return value

    script = ['{"currency": "ZZZ"}', '{"currency": "EUR"}']
    run, trace = worked(Agent("a", Scripted(script), output_type=Sum))
    assert (run.status, run.output.currency) == ("completed", "EUR")
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ModelRejected)]
    said = f"the validators of the output type Sum raised {type(raised).__name__}"
    assert said in refused.note


def test_an_answer_that_is_refused_for_no_words_of_its_own_is_named_and_bounded():
    class Long(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def fits(cls, value):
            if value == 1:
                raise OSError("\ud800" + "x" * 100_000)
            return value

    run, trace = worked(Agent("a", Scripted(['{"n": 1}', '{"n": 2}']), output_type=Long))
    assert run.output.n == 2
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ModelRejected)]
    assert "Long raised OSError" in refused.note
    assert len(refused.note) < 2_000


def test_a_result_is_shown_though_validators_raise_by_now():
    seen = []

    class Once(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def first(cls, value):
            if seen:
                raise KeyError(value)
            seen.append(value)
            return value

    run, _ = worked(Agent("a", Scripted(['{"n": 1}']), output_type=Once))
    assert (run.status, run.text, run.output) == ("completed", '{"n": 1}', None)


# ---------------------------------------------------------------- the backstop


@each_end
def test_a_decision_that_would_end_the_process_is_an_internal_failure_of_one_run(error, caplog):
    caplog.set_level(logging.ERROR, "cairn")
    run, trace = worked(Agent("a", Scripted(faulty)), ladder=ending(error))
    assert (run.status, run.error_class) == ("failed", "internal")
    assert f"came to {error.__name__}" in run.reason
    assert trace[-1].event.NAME == "run.failed"


@each_end
def test_a_journal_whose_folding_would_end_the_process_is_left_alone_for_a_while(
    error, caplog, monkeypatch
):
    load, tried = advance.load, []

    async def loaded(store, run):
        if run == "r":
            tried.append(run)
            raise error
        return await load(store, run)

    monkeypatch.setattr(advance, "load", loaded)
    run, _ = worked(Agent("a", Scripted(["done"])))
    assert (run.status, tried) == ("queued", ["r"])
    assert f"run r is left alone for {worker.BACKOFF_S:g} s: RuntimeError: run r came to " in (
        caplog.text
    )


@pytest.mark.parametrize("error", [*ENDS, ValueError])
@pytest.mark.parametrize("flight", ["model", "check"])
def test_a_flight_that_is_gone_without_an_outcome_fails_its_run(flight, error, caplog, monkeypatch):
    async def gone(*_):
        raise error

    if flight == "model":
        monkeypatch.setattr(perform.ModelCall, "make", gone)
    else:
        monkeypatch.setattr(drive, "perform_task", gone)
    caplog.set_level(logging.CRITICAL, "cairn")
    checked = Agent("a", Scripted(["done"]), completion_checks=[lambda _: None])
    with Runtime(":memory:", [checked]) as rt:
        run = beside(lambda: rt.run("a", "task", id="r"))
        assert (run.status, run.error_class) == ("failed", "internal")
        assert error.__name__ in run.reason
        told = [entry.event.NAME for entry in rt.trace("r")]
    assert told[-2:] == ["model.failed" if flight == "model" else "step.lost", "run.failed"]


def test_a_run_whose_end_cannot_be_written_is_given_back(monkeypatch):
    async def fails(self, error):
        raise SystemExit(3)

    def decides(*_):
        raise KeyError

    monkeypatch.setattr(advance.Drive, "fail", fails)
    monkeypatch.setattr(drive, "decide", decides)
    with Runtime(":memory:", [Agent("a", Scripted(["done"]))]) as rt:
        came = beside(lambda: rt.run("a", "task", id="r"))
        assert isinstance(came, RuntimeError)
        assert "run r came to SystemExit: 3" in str(came)
        monkeypatch.undo()
        assert rt.cancel("r").status == "cancelled"


@each_end
def test_what_an_ended_run_left_unread_does_not_end_the_worker(error, caplog, monkeypatch):
    async def unread(self, agents):
        return ["r"]

    async def take_over(store, run, host):
        raise error

    with Runtime(":memory:", [Agent("b", Scripted(["fine"]))]) as rt:
        monkeypatch.setattr(type(rt.store), "unread", unread)
        monkeypatch.setattr(worker, "take_over", take_over)
        rt.enqueue("b", "task", id="other")
        assert beside(lambda: rt.work(until_idle=True)) is None
        assert rt.get("other").text == "fine"
    assert caplog.text.count("left unread waits") == 1


@each_end
def test_an_error_behind_that_has_no_words_hides_nothing_of_what_came_of_a_run(error, monkeypatch):
    class Mute(Exception):
        def __str__(self):
            raise error

        __repr__ = __str__

    async def load(store, run):
        raise ValueError("broken") from Mute()

    monkeypatch.setattr(advance, "load", load)
    with Runtime(":memory:", [Agent("a", Scripted(["done"]))], secrets={"KEY": "opal-4471"}) as rt:
        came = beside(lambda: rt.run("a", "task", id="r"))
    assert (type(came), str(came)) == (ValueError, "broken")


@each_end
def test_a_run_that_is_driven_in_the_background_says_what_it_came_to(error, caplog, monkeypatch):
    async def load(store, run):
        raise error

    monkeypatch.setattr(advance, "load", load)
    with Runtime(":memory:", [Agent("a", Scripted(["done"]))]) as rt:
        beside(lambda: rt.start("a", "task", id="r"))
    assert "run r is no longer driven in the background: RuntimeError: run r came to" in caplog.text


# ---------------------------------------------------------------- what was asked for


def test_a_driver_that_is_really_cancelled_gives_its_run_back():
    async def main():
        begun = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            begun.set()
            await asyncio.sleep(60)
            return "never"

        async with Runtime(":memory:", [Agent("a", Scripted([call("wait")]), tools=[wait])]) as rt:
            driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
            await begun.wait()
            driving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await driving
            told = [entry.event.NAME for entry in await rt.trace_async("r")]
            assert "run.failed" not in told
            assert (await rt.get_async("r")).status == "running"

    asyncio.run(main())


def test_only_who_cancels_a_task_or_closes_it_has_asked_for_its_end():
    async def main():
        task = asyncio.current_task()
        assert not asked_for(asyncio.CancelledError(), task)
        assert not asked_for(GeneratorExit(), task)
        task.cancel()
        assert asked_for(asyncio.CancelledError(), task)
        task.uncancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        return task

    task = asyncio.run(main())
    assert asked_for(GeneratorExit(), task)  # from outside, where no loop runs


def raised(work):
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError


class Leaving:
    def __call__(self, *_):
        sys.exit(3)

    def leave(self, *_):
        sys.exit(3)


HANDLERS = {
    "a function": lambda *_: sys.exit(3),
    "an object": Leaving(),
    "a method": Leaving().leave,
    "a partial": functools.partial(Leaving().leave, 1),
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_a_signal_that_ends_the_process_is_asked_for_and_code_that_exits_is_not(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        error = raised(lambda: signal.raise_signal(signal.SIGUSR1))
        assert isinstance(error, SystemExit)
        assert asked_for(error, None)
        assert not asked_for(raised(lambda: sys.exit(3)), None)
        assert beside(lambda: asked_for(error, None)) is False
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert asked_for(KeyboardInterrupt(), None)
    assert beside(lambda: asked_for(KeyboardInterrupt(), None)) is False


def test_a_fault_keeps_what_it_was():
    error, end = ValueError("x"), SystemExit(3)
    assert as_fault(error, "run r") is error
    fault = as_fault(end, "run r")
    assert (fault.__cause__, str(fault)) == (
        end,
        "run r came to SystemExit: 3, which nobody had asked for",
    )
