"""Small functions of a deployment that are asked beside the loop hold up no other run.

They are what `memory_block` looks for, the project of `MemoryRules`, what calls touch, and the
validators of an output type where somebody can wait for them.
"""

import asyncio
import logging
import subprocess
import sys
from hashlib import sha256

import pytest
from pydantic import BaseModel, field_validator
from tests.engine.kit import FREE_HAND, Door, Ledger, Watched, attempts, events, until

from cairn import (
    Agent,
    ContextBlock,
    MemoryRules,
    Policy,
    Runtime,
    Scripted,
    call,
    memory_block,
    tool,
)
from cairn import crew as crews
from cairn.core import events as ev
from cairn.engine import host as hosts
from cairn.engine import keys
from cairn.errors import ConfigError
from cairn.toolkit import MEMORY_TOOLS
from cairn.tools import on_loop
from cairn.tools.blocking import MOST_HANGING, Overdue
from cairn.tools.runner import in_a_thread

ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), KeyError("gone")]
ALLOW = Policy(effects={"write": "allow"})


@pytest.fixture(autouse=True)
def nobody_was_told(monkeypatch):
    """What other tests were told of is not kept back from these."""
    monkeypatch.setattr(on_loop, "_told", {})


@pytest.fixture
def door():
    made = Door()
    yield made
    made.opened.set()  # who was left alone there may go


def raising(error):
    def broken(*_):
        raise error

    return broken


def on_a_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def with_another(script, tools=(), memory=None, **options):
    """A runtime with the agent `a`, and one, `b`, that has nothing to wait for."""
    agents = [Agent("a", Scripted(script), tools=tools, **options), Agent("b", Scripted(["hi"]))]
    return Runtime(":memory:", agents, policy=ALLOW, memory=memory)


def keyed(function, ledger=None, **options):
    """A tool whose calls touch what a function says."""
    lines = ledger if ledger is not None else Ledger()
    options = {"effect": "write", **options}

    @tool(name="put", conflict_key=function, **options)
    async def put(shelf: str) -> str:
        return lines.add(shelf)

    return put


TWO = [[call("put", shelf="x"), call("put", shelf="y")], "done"]


def afters(entries):
    """Per reply, behind which calls each of its calls waits."""
    completed = events(entries, ev.ModelCompleted)
    return [[p.after for p in e.parts if hasattr(p, "after")] for e in completed]


def looking(query_from):
    return ContextBlock("known", memory_block(query_from))


def remembering(project, **more):
    script = [call("remember", text="Deploys are on Monday", scope="project"), "done"]
    return with_another(script, MEMORY_TOOLS, MemoryRules(project=project, **more))


class Sum(BaseModel):
    """An output whose validator the deployment wrote."""

    total: int
    looked = staticmethod(lambda: None)

    @field_validator("total")
    @classmethod
    def seen(cls, value: int) -> int:
        if not on_a_loop():  # within a decision it has to answer at once
            cls.looked()
        return value


@pytest.fixture
def summed():
    """Sets what the validator of `Sum` does where it is asked in a thread."""
    yield lambda function: setattr(Sum, "looked", staticmethod(function))
    Sum.looked = staticmethod(lambda: None)


# ---------------------------------------------------------------- others go on meanwhile


def test_what_a_block_looks_for_may_take_its_time_while_another_run_goes_on(door):
    def wanted(briefing):
        return briefing.input if door.wait() else ""

    async def main():
        async with with_another(["done"], context=[looking(wanted)]) as rt:
            await rt.remember_async("Deploys are on Monday", principal="local")
            work = rt.run_async("a", "When are deploys?", id="r")
            assert (await door.beside_another(work, rt.run_async("b", "task"))).ok
            (asked,) = events(await rt.trace_async("r"), ev.ModelRequested)
            assert "Monday" in next(b.text for b in asked.blocks if b.name == "known")

    asyncio.run(main())
    assert door.passed == [True]


def test_a_project_may_take_its_time_while_another_run_goes_on(door):
    async def main():
        async with remembering(lambda who: "shop" if door.wait() else "") as rt:
            work = rt.run_async("a", "task", id="r")
            assert (await door.beside_another(work, rt.run_async("b", "task"))).ok
            (kept,) = await rt.facts_async()
            assert kept.scope.name == "shop"

    asyncio.run(main())
    assert door.passed == [True]


@pytest.mark.parametrize(
    "verb",
    [
        lambda rt: rt.run_async("a", "task", project="shop"),
        lambda rt: rt.remember_async("x", scope="project", project="shop"),
        lambda rt: rt.recall_async("x", project="shop"),
    ],
    ids=["run", "remember", "recall"],
)
def test_a_project_that_is_said_is_looked_at_beside_the_loop(door, verb):
    async def main():
        rules = MemoryRules(project=lambda who: "shop" if door.wait() else "")
        async with with_another(["done"], memory=rules) as rt:
            await door.beside_another(verb(rt), rt.run_async("b", "task"))

    asyncio.run(main())
    assert set(door.passed) == {True}


def test_what_calls_touch_may_take_its_time_while_another_run_goes_on(door):
    def shelf(arguments):
        return arguments["shelf"] if door.wait() else ""

    async def main():
        async with with_another(TWO, [keyed(shelf)]) as rt:
            work = rt.run_async("a", "task", id="r")
            assert (await door.beside_another(work, rt.run_async("b", "task"))).ok
            assert afters(await rt.trace_async("r"))[0] == [(), ()]

    asyncio.run(main())
    assert door.passed == [True, True]


def test_validators_of_an_output_may_take_their_time_before_a_check_and_in_a_result(door, summed):
    checked = []

    async def main():
        checks = [lambda answer: checked.append(answer.output.total)]
        options = {"output_type": Sum, "completion_checks": checks}
        async with with_another(['{"total": 7}'], **options) as rt:
            summed(door.wait)
            work = rt.run_async("a", "task", id="r")
            run = await door.beside_another(work, rt.run_async("b", "task"))
            assert (run.output.total, checked) == (7, [7])

    asyncio.run(main())
    assert door.passed == [True, True]  # for the check, and for the result


# ---------------------------------------------------------------- what breaks


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_function_of_a_block_that_breaks_costs_the_block_and_nothing_else(error):
    async def main():
        async with with_another(["done"], context=[looking(raising(error))]) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert (run.status, run.degraded) == ("completed", ("block:known",))
            (told,) = events(await rt.trace_async("r"), ev.ErrorRaised)
            assert type(error).__name__ in told.message
            assert (await rt.run_async("b", "task")).ok

    asyncio.run(main())


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_project_that_breaks_keeps_nothing_and_is_named(error):
    async def main():
        async with remembering(raising(error)) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            (failed,) = events(await rt.trace_async("r"), ev.ToolFailed)
            assert "MemoryRules.project" in failed.message
            assert type(error).__name__ in failed.message
            assert await rt.facts_async() == []
            with pytest.raises(ConfigError, match=r"MemoryRules\.project"):
                await rt.recall_async("x", project="shop")

    asyncio.run(main())


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_calls_whose_keys_cannot_be_told_keep_their_order(error):
    async def main():
        async with with_another(TWO, [keyed(raising(error))]) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            assert afters(await rt.trace_async("r"))[0] == [(), ("c1",)]

    asyncio.run(main())


@pytest.mark.parametrize("error", [*ENDS, ValueError("no shelf")], ids=lambda e: type(e).__name__)
def test_a_function_for_keys_that_raises_is_told_of_once_for_many_runs(error, caplog):
    caplog.set_level(logging.WARNING, "cairn")
    with with_another(TWO, [keyed(raising(error))]) as rt:
        for _ in range(3):
            assert rt.run("a", "task").ok
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("conflict_key of the tool put told nothing, so its calls keep their ")
    assert type(error).__name__ in said
    assert all(str(each) in said for each in error.args)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_validators_that_would_end_the_process_refuse_the_answer_and_end_nothing(error, summed):
    async def main():
        options = {"output_type": Sum, "completion_checks": [lambda answer: None], "repairs": 0}
        async with with_another(['{"total": 7}'] * 2, **options) as rt:
            summed(raising(error))
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "failed"
            (failed,) = events(await rt.trace_async("r"), ev.StepFailed)
            assert f"the output type Sum raised {type(error).__name__}" in failed.message
            assert (await rt.run_async("b", "task")).ok

    asyncio.run(main())


# ---------------------------------------------------------------- what never ends


def test_a_function_of_a_block_that_never_ends_is_left_out_and_named(door, monkeypatch):
    monkeypatch.setattr(hosts, "ASKED_S", 0.05)

    async def main():
        async with with_another(["done"], context=[looking(lambda _: door.wait())]) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            (told,) = events(await rt.trace_async("r"), ev.ErrorRaised)
            assert "memory_block.query_from took longer than 0.05 s" in told.message
            assert "Give what it waits for a time-out" in told.message

    asyncio.run(main())


def test_a_project_that_never_ends_keeps_nothing_and_is_no_doubt(door, monkeypatch):
    monkeypatch.setattr(hosts, "ASKED_S", 0.05)

    async def main():
        async with remembering(lambda who: door.wait()) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            (failed,) = events(await rt.trace_async("r"), ev.ToolFailed)
            assert "MemoryRules.project took longer than 0.05 s" in failed.message

    asyncio.run(main())


def test_keys_that_never_come_cost_overlap_and_are_told(door, monkeypatch, caplog):
    monkeypatch.setattr(keys, "KEYS_S", 0.05)

    async def main():
        async with with_another(TWO, [keyed(lambda arguments: door.wait())]) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            assert afters(await rt.trace_async("r"))[0] == [(), ("c1",)]

    with caplog.at_level(logging.WARNING, "cairn"):
        asyncio.run(main())
    (said,) = [record.getMessage() for record in caplog.records]
    assert "conflict_key of the tool put told nothing" in said
    assert "took longer than" in said


def test_a_function_whose_calls_hang_is_not_asked_for_keys_again_before_one_has_ended(
    door, monkeypatch, caplog
):
    monkeypatch.setattr(keys, "KEYS_S", 0.02)
    asked = []

    async def main():
        async with with_another(TWO, [keyed(lambda a: asked.append(a) or door.wait())]) as rt:
            for _ in range(MOST_HANGING + 1):
                assert (await rt.run_async("a", "task")).ok

    with caplog.at_level(logging.WARNING, "cairn"):
        asyncio.run(main())
    assert len(asked) == MOST_HANGING
    assert f"{MOST_HANGING} earlier calls of it still hang" in caplog.records[-1].getMessage()


def test_an_output_whose_validators_never_end_is_named(door, monkeypatch, summed):
    monkeypatch.setattr(crews, "VALIDATORS_S", 0.05)

    async def main():
        async with with_another(['{"total": 7}'], output_type=Sum) as rt:
            summed(door.wait)
            with pytest.raises(Overdue, match=r"the output type Sum took longer than 0\.05 s"):
                await rt.run_async("a", "task", id="r")
            summed(lambda: None)
            assert (await rt.get_async("r")).output.total == 7

    asyncio.run(main())


# ---------------------------------------------------------------- what it costs, what it keeps


def test_without_functions_of_a_deployment_no_thread_is_begun_for_one():
    begun = []

    class Plain(BaseModel):
        total: int

    def counted(name, work):
        begun.append(name)
        in_a_thread(name, work)

    async def main():
        by_name, reads = keyed("shelf"), keyed(lambda a: a["shelf"], effect="read")
        one = [call("put", shelf="x"), "done"]
        for script, tools in ((TWO, [by_name]), (TWO, [reads]), (one, [keyed(lambda a: "x")])):
            async with with_another(script, tools) as rt:
                rt.host.threads = counted
                assert (await rt.run_async("a", "task")).ok
        options = {"output_type": Plain, "completion_checks": [lambda answer: None]}
        rules = MemoryRules(project="shop")
        context = [ContextBlock("known", memory_block())]
        async with with_another(['{"total": 1}'], memory=rules, context=context, **options) as rt:
            rt.host.threads = counted
            assert (await rt.run_async("a", "task", project="shop")).ok

    asyncio.run(main())
    assert [name for name in begun if "check" not in name] == []


def test_keys_of_a_function_cost_no_commit_and_mean_what_a_parameters_name_means():
    async def commits(key):
        store = Watched()
        agent = Agent("a", Scripted(TWO), tools=[keyed(key)])
        async with Runtime(store, [agent], policy=FREE_HAND) as rt:
            assert (await rt.run_async("a", "task", id="r")).ok
            return store.commits, afters(await rt.trace_async("r"))

    async def main():
        assert await commits(lambda arguments: arguments["shelf"]) == await commits("shelf")

    asyncio.run(main())


def test_keys_that_look_like_what_is_kept_nowhere_are_told_apart_all_the_same():
    def hashed(arguments):
        return sha256(arguments["shelf"].encode()).hexdigest()

    def token(arguments):
        return f"sk-ant-{hashed(arguments)}"

    async def main():
        for function in (hashed, token):
            async with with_another(TWO, [keyed(function)]) as rt:
                assert (await rt.run_async("a", "task", id="r")).ok
                assert afters(await rt.trace_async("r"))[0] == [(), ()]

    asyncio.run(main())


def test_a_reply_that_has_come_is_not_lost_while_somebody_asks_what_its_calls_touch(door):
    ledger = Ledger()

    async def main():
        async with with_another(TWO, [keyed(lambda a: door.wait(), ledger)]) as rt:
            work = asyncio.create_task(rt.run_async("a", "task", id="r"))
            await until(door._reached.is_set)
            assert events(await rt.trace_async("r"), ev.ToolStarted) == []  # it is no effect
            await rt.cancel_async("r", reason="enough")
            assert (await work).status == "cancelled"
            (completed,) = events(await rt.trace_async("r"), ev.ModelCompleted)
            assert [p.after for p in completed.parts] == [(), ("c1",)]
            assert ledger.lines == []

    asyncio.run(main())


KILLED = """
import os, sys
from cairn import Agent, Policy, Runtime, Scripted, call, tool

def dies(arguments):
    if sys.argv[2] == sys.argv[3]:
        os._exit(9)
    return {"key": arguments["shelf"], "binds": []}[sys.argv[3]]

def options():
    own = {"key": "conflict_key", "binds": "binds"}[sys.argv[3]]
    return {"effect": "write", own: dies}

@tool(**options())
def put(shelf: str) -> str:
    with open(sys.argv[1] + ".put", "a") as file:
        file.write(shelf)
    return shelf

model = Scripted([[call("put", shelf="x"), call("put", shelf="y")], "done"])
effect = "allow" if sys.argv[3] == "key" else "ask"
agent, policy = Agent("a", model, tools=[put]), Policy(effects={"write": effect})
with Runtime(sys.argv[1], [agent], policy=policy) as rt:
    while asked := rt.run("a", "task", id="r").pending:
        rt.approve(asked[0].id, by="ann")
    print(rt.get("r").status)
"""


@pytest.mark.parametrize("own", ["key", "binds"])
def test_a_process_that_dies_within_such_a_function_repeats_no_effect(tmp_path, own):
    def life(dying):
        place = str(tmp_path / "cairn.db")
        work = [sys.executable, "-c", KILLED, place, dying, own]
        return subprocess.run(work, capture_output=True, text=True, check=False, timeout=60)

    assert life(own).returncode == 9
    assert not (tmp_path / "cairn.db.put").exists()
    again = life("nobody")
    assert again.stdout.strip() == "completed", again.stderr
    assert sorted((tmp_path / "cairn.db.put").read_text()) == ["x", "y"]
    with Runtime(str(tmp_path / "cairn.db"), []) as rt:
        assert attempts(rt.trace("r")) == [("c1", 1), ("c2", 1)]


def test_a_driver_that_stops_meanwhile_keeps_the_reply_and_the_next_one_makes_each_call_once(door):
    ledger = Ledger()

    async def main():
        store = Watched().inner
        agents = [Agent("a", Scripted(TWO), tools=[keyed(lambda a: door.wait(), ledger)])]
        first = Runtime(store, agents, policy=FREE_HAND)
        work = asyncio.create_task(first.run_async("a", "task", id="r"))
        await until(door._reached.is_set)
        work.cancel()
        await asyncio.wait({work})
        door.opened.set()
        assert ledger.lines == []
        assert (await first.run_async("a", "task", id="r")).ok
        assert sorted(ledger.lines) == ["x", "y"]
        requests = events(await first.trace_async("r"), ev.ModelRequested)
        assert len(requests) == 2
        await first.close_async()

    asyncio.run(main())
