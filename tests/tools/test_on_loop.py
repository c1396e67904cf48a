"""What decisions ask of a deployment's code answers at once, or people are told who did not."""

import asyncio
import functools
import ipaddress
import logging
import operator
import re
import threading
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, field_validator
from pydantic.dataclasses import dataclass as checked_dataclass
from tests.engine.kit import Recorder, until

from cairn import Agent, Policy, Principal, Runtime, Scripted, Secrets, call, tool
from cairn.core import events as ev
from cairn.errors import ToolDefinitionError
from cairn.tools import on_loop
from cairn.tools.on_loop import watched
from cairn.tools.theirs import is_theirs, runs_theirs
from cairn.workspace.paths import conflict_key

ALLOW = Policy(effects={"write": "allow"})


@pytest.fixture
def told(monkeypatch, caplog):
    """What people are told; whoever is called on a loop takes too long here."""
    monkeypatch.setattr(on_loop, "LONG_S", 0.0)
    monkeypatch.setattr(on_loop, "_told", {})
    caplog.set_level(logging.WARNING, "cairn")
    return lambda: [record.getMessage() for record in caplog.records]


def own(value):
    return value


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


class Plain(BaseModel):
    n: int = Field(ge=0)
    at: list[ipaddress.IPv4Address] = Field(default_factory=list)


def run(script, tools=(), **options):
    policy = options.pop("policy", ALLOW)
    secrets = options.pop("secrets", None)
    agent = Agent("a", Scripted(script), tools=tools, **options)
    with Runtime(":memory:", [agent], policy=policy, secrets=secrets) as rt:
        done = rt.run("a", "task", id="r")
        return done, rt.trace("r")


# ---------------------------------------------------------------- who is told of


def test_an_argument_validator_that_holds_up_the_loop_is_told_of_once(told):
    @tool(effect="read")
    async def look(n: Annotated[int, AfterValidator(own)]) -> int:
        return n

    done, _ = run([call("look", n=1), call("look", n=2), "done"], [look])
    assert done.ok
    (said,) = told()
    assert re.match(r"the validators of the tool look took \d+ ms on the event loop", said)
    assert "every run of this process waited" in said


def test_files_that_a_function_names_on_the_loop_are_told_of_once(told):
    @tool(effect="write", binds=lambda arguments: [])
    async def put(n: int) -> int:
        return n

    done, _ = run([call("put", n=1), "done"], [put], policy=Policy(effects={"write": "ask"}))
    assert done.status == "waiting"
    (said,) = told()
    assert said.startswith("binds of the tool put took ")


def test_validators_of_an_output_that_hold_up_the_loop_are_told_of_once(told):
    done, _ = run(['{"n": 1}', '{"n": 2}'], output_type=Even)
    assert done.output.n == 2
    (said,) = told()
    assert said.startswith("the validators of the output type Even took ")


def test_a_function_that_gives_secrets_on_the_loop_is_told_of(told):
    done, _ = run(["done"], secrets=Secrets(lambda principal: {"KEY": "opal-4471-harbour"}))
    assert done.ok
    assert [said[:44] for said in told()] == ["the function of a principal in Secrets took "]


def test_nobody_is_told_of_what_answers_at_once_or_is_asked_in_a_thread(told, monkeypatch):
    @tool(effect="write", conflict_key=lambda arguments: arguments["n"])
    async def put(n: int) -> int:
        return n

    @tool(effect="write", conflict_key="value", binds="value")
    async def keep(value: Plain) -> str:
        return "kept"

    two = [call("put", n="1"), call("put", n="2"), call("keep", value={"n": 1})]
    done, _ = run([two, '{"n": 3}'], [put, keep], output_type=Plain)
    assert (done.output.n, told()) == (3, [])
    monkeypatch.setattr(on_loop, "LONG_S", 60.0)
    assert run(['{"n": 4}'], output_type=Even)[0].output.n == 4
    assert told() == []


def test_a_function_that_does_not_return_is_told_of_while_it_is_still_at_it(told, monkeypatch):
    monkeypatch.setattr(on_loop, "STUCK_S", 0.0)
    monkeypatch.setattr(on_loop, "LOOK_S", 0.001)
    heard = threading.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has been at work for" in record.getMessage():
                heard.set()

    async def main() -> bool:
        return watched("the rule", lambda: heard.wait(10))()

    ear = Ear()
    logging.getLogger("cairn").addHandler(ear)
    try:
        assert asyncio.run(main())
    finally:
        logging.getLogger("cairn").removeHandler(ear)
    assert [said.split(" on the")[0].split(" ")[2] for said in told()] == ["has", "took"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("the validators of the tool pay", "have been"), ("binds of the tool pay", "has been")],
)
def test_one_function_has_been_at_work_and_several_have(monkeypatch, name, said):
    monkeypatch.setattr(on_loop, "STUCK_S", 0.0)
    monkeypatch.setattr(on_loop, "LOOK_S", 0.001)
    monkeypatch.setattr(on_loop, "_told", {})
    lines, heard = [], threading.Event()

    def hear(line: str, *values: object) -> None:
        lines.append(line % values)
        heard.set()

    async def main() -> bool:
        return watched(name, lambda: heard.wait(10))()

    monkeypatch.setattr(on_loop.log, "warning", hear)
    assert asyncio.run(main())
    assert lines[0].startswith(f"{name} {said} at work for ")


def test_who_looks_ends_when_there_is_nothing_to_look_at_and_begins_anew(monkeypatch):
    monkeypatch.setattr(on_loop, "LOOK_S", 0.001)
    monkeypatch.setattr(on_loop, "LOOKS", 1)
    seen = []

    async def main() -> None:
        for _ in range(2):
            watched("the rule", lambda: seen.append(on_loop._looking))()
            await until(lambda: on_loop._looking is None)

    asyncio.run(main())
    assert None not in seen
    assert len(set(map(id, seen))) == 2


# ---------------------------------------------------------------- what it raises


ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_validator_that_would_end_the_process_refuses_the_arguments(error):
    def ends(value: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise error
        return value

    @tool(effect="read")
    async def look(n: Annotated[int, AfterValidator(ends)]) -> int:
        return n

    model = Recorder(call("look", n=1), "done")
    done, trace = run(model, [look])
    assert done.ok
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ToolRejected)]
    said = f"the validators of the tool look raised {type(error).__name__}"
    assert (refused.kind, said in refused.message) == ("invalid", True)


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_function_of_files_that_would_end_the_process_lets_nothing_through(error):
    def ends(arguments: Any) -> Any:
        raise error

    @tool(effect="write", binds=ends)
    async def put(n: int) -> int:
        return n

    done, trace = run([call("put", n=1), "done"], [put], policy=Policy(effects={"write": "ask"}))
    assert done.ok
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ToolRejected)]
    assert f"binds of the tool put raised {type(error).__name__}" in refused.message


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_validators_of_an_output_that_would_end_the_process_refuse_the_answer(error):
    class Ending(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def end(cls, value: int) -> int:
            if value == 1:
                raise error
            return value

    done, trace = run(['{"n": 1}', '{"n": 2}'], output_type=Ending)
    assert (done.status, done.output.n) == ("completed", 2)
    (refused,) = [e.event for e in trace if isinstance(e.event, ev.ModelRejected)]
    said = f"the validators of the output type Ending raised {type(error).__name__}"
    assert said in refused.note


def test_what_it_raises_elsewhere_is_its_own_and_what_it_gives_is_given():
    def ends(value: int) -> int:
        if value:
            raise SystemExit(value)
        return value

    function = watched("the rule", ends)
    assert function.__wrapped__ is ends
    assert function(0) == 0
    with pytest.raises(SystemExit):
        function(3)


@pytest.mark.parametrize("option", ["conflict_key", "binds"])
def test_a_function_that_decisions_ask_cannot_be_async(option):
    async def later(arguments: Any) -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match=f"{option}=.* is async"):

        @tool(effect="write", **{option: later})
        async def put(n: int) -> int:
            return n


# ---------------------------------------------------------------- whose it is


def test_functions_of_ours_of_pythons_types_and_of_pydantic_are_no_deployments():
    ours = [conflict_key, str.strip, "x".join, operator.itemgetter("n"), len, Principal]
    assert not any(map(is_theirs, ours))
    theirs = [own, functools.partial(own, 1), lambda: 1, Even(n=2).even, run]
    assert all(map(is_theirs, theirs))


@dataclass
class Pair:
    a: int
    b: "Plain | None" = None


@checked_dataclass
class Made:
    a: int

    def __post_init__(self) -> None:
        own(self.a)


class Begun(BaseModel):
    n: int

    def model_post_init(self, context: Any) -> None:
        own(self.n)


class Built(BaseModel):
    n: int

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class Tree(BaseModel):
    n: int = 0
    more: "list[Tree]" = []
    _seen: bool = False


class Later(BaseModel):
    n: int = Field(default_factory=lambda: 1)


@pytest.mark.parametrize("kind", [int, list[Plain], Plain, Pair, Tree, dict[str, Plain | None]])
def test_types_without_validators_of_a_deployment_stay_on_the_loop(kind):
    assert not runs_theirs(TypeAdapter(kind).core_schema)


@pytest.mark.parametrize(
    "kind",
    [Even, list[Even], Made, Begun, Built, Later, Annotated[int, AfterValidator(own)]],
)
def test_types_with_validators_of_a_deployment_are_known(kind):
    assert runs_theirs(TypeAdapter(kind).core_schema)
