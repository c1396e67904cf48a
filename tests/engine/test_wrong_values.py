"""Every verb of a runtime refuses what it cannot use with an error of the house, and says why."""

import asyncio
import inspect
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from cairn import Agent, CairnError, ConfigError, Route, Runtime, Scripted, call, tool
from cairn.engine.given import RunOptions
from cairn.runtime.grants import GrantOptions
from cairn.runtime.sessions import Posted
from cairn.tools.builtin import ask_user

OPTIONS = {"options": RunOptions, "scope": GrantOptions}
"""Where a verb takes its options as keywords, what these are."""
GOOD: dict[str, Any] = {
    "agent": "a",
    "input": "hello",
    "run": "done",
    "session": "s",
    "new": "other",
    "to": "done",
    "title": "A title",
    "text": "hello",
    "query": "tea",
    "fact": "m1",
    "principal": "local",
    "request": "ask/1",
    "call": "done/c1",
    "at": 1,
    "seq": 1,
    "step": 1,
    "n": 1,
    "artifact": "a1",
    "tool": "pay",
    "by": "ann",
    "name": "a",
    "posted": Posted(session="s", run="done", seq=1, how="started"),
}
"""What a verb is given for what it needs, while another of its parameters is wrong."""
ALSO: dict[str, dict[str, Any]] = {
    "work_async": {"until_idle": True},
    "edit_async": {"run": "ask", "message": "hurry"},
    "resolve_async": {"happened": True},
    "answer_async": {"request": "question/1"},
    "resume_async": {"run": "done"},
    "retry_async": {"run": "failed"},
    "take_over_async": {"run": "ask", "reason": "let me"},
    "hand_back_async": {"run": "ask"},
    "route": {"channel": "mail"},
    "receive_async": {"channel": "mail"},
    "accept_async": {"channel": "mail"},
}


class Unshowable:
    """Raises wherever it is to be shown."""

    def __repr__(self) -> str:
        raise ValueError("nobody can show this")


WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "five": 5,
    "minus one": -1,
    "huge": 10**30,
    "endless": 10**5_000,
    "endless and negative": -(10**5_000),
    "list of an endless one": [10**5_000],
    "unshowable": Unshowable(),
    "list of an unshowable one": [Unshowable()],
    "half": 0.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "empty": "",
    "blank": "  ",
    "word": "x",
    "surrogate": "\ud800",
    "nul": "a\0b",
    "long": "x" * 100_000,
    "bytes": b"x",
    "list": [],
    "list of numbers": [1],
    "tuple of numbers": (1,),
    "mapping": {"a": 1},
    "mapping of numbers": {1: object()},
    "object": object(),
}


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


def runtime(store: Path) -> Runtime:
    """A runtime whose agents end, ask, and fail."""
    agents = [
        Agent("a", Scripted(lambda request: "done"), tools=[pay]),
        Agent("asks", Scripted(lambda request: call("pay", order="7")), tools=[pay]),
        Agent(
            "wonders", Scripted(lambda request: call("ask_user", question="?")), tools=[ask_user]
        ),
        Agent("fails", Scripted([])),
    ]
    return Runtime(store, agents, routes=[Route(agent="a")])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of every kind, a session and a fact."""
    file = tmp_path_factory.mktemp("filled") / "cairn.db"
    with runtime(file) as rt:
        rt.run("a", "hello", id="done", session="s")
        rt.run("asks", "pay", id="ask")
        rt.run("wonders", "help", id="question")
        rt.run("fails", "hello", id="failed")
        rt.remember("tea at four")
    return file


def verbs() -> list[str]:
    """The public verbs of a runtime, each once: the async form where there are two."""
    found = [name for name in dir(Runtime) if not name.startswith("_")]
    found = [name for name in found if callable(getattr(Runtime, name))]
    twins = {f"{name}_async" for name in found}
    return [name for name in found if name in twins or f"{name}_async" not in found]


def parameters(verb: str) -> list[str]:
    """The names that a verb takes."""
    found: list[str] = []
    for name, parameter in inspect.signature(getattr(Runtime, verb)).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found += get_type_hints(OPTIONS[name])
        elif name != "self":
            found.append(name)
    return found


IN_A_LOOP_OF_THEIR_OWN = {"stream", "watch"}
"""Sync forms without a verb of their own: what they take goes to the async one."""
CASES = [
    (verb, name)
    for verb in verbs()
    if verb not in IN_A_LOOP_OF_THEIR_OWN
    for name in parameters(verb)
]


def needed(verb: str) -> dict[str, Any]:
    """What a verb is given for the parameters that have no default."""
    empty = inspect.Parameter.empty
    of = inspect.signature(getattr(Runtime, verb)).parameters.items()
    names = [n for n, p in of if p.default is empty and n in GOOD]
    return {name: GOOD[name] for name in names} | ALSO.get(verb, {})


async def done(what: Any) -> None:
    """Wait for what a verb gave."""
    if inspect.isawaitable(what):
        await what
    elif isinstance(what, AsyncIterator):
        async for _ in what:
            pass


@pytest.mark.parametrize(("verb", "name"), CASES, ids=[f"{verb}-{name}" for verb, name in CASES])
def test_a_wrong_value_is_refused_in_words_or_works(
    verb: str, name: str, filled: Path, tmp_path: Path
) -> None:
    strange: list[str] = []
    shutil.copy(filled, tmp_path / "cairn.db")

    async def each() -> None:
        async with runtime(tmp_path / "cairn.db") as rt:
            for said, value in WRONG.items():
                given = needed(verb) | {name: value}
                try:
                    async with asyncio.timeout(20):
                        await done(getattr(rt, verb)(**given))
                except CairnError as error:
                    if isinstance(error, ConfigError) and not error.fix:
                        strange.append(f"{said}: {error} says no fix")
                except BaseException as error:  # whatever else it is, is the fault looked for
                    strange.append(f"{said}: {type(error).__name__}: {error!s:.100}")

    asyncio.run(each())
    assert not strange, "\n".join(strange)


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_a_wrong_bound_is_refused_in_words_or_works(value: Any) -> None:
    with Runtime(":memory:", [Agent("a", Scripted(lambda request: "done"))]) as rt:
        for limits in ({"steps": value}, {value if isinstance(value, str) else 5: 1}):
            fields: list[str] = []
            try:
                rt.run("a", "hello", limits=limits)
            except ConfigError as error:
                fields.append(error.field)
            assert all(field.startswith("limits") for field in fields)


def test_a_refusal_names_the_parameter_and_what_to_do() -> None:
    with Runtime(":memory:", [Agent("a", Scripted(lambda request: "done"))]) as rt:
        run = rt.send("s", "hello", agent="a").id
        for field, refused in (
            ("title", lambda: rt.title_session("s", 5)),
            ("limit", lambda: rt.sessions(limit="x")),
            ("limit", lambda: rt.sessions(limit=-1)),
            ("limit", lambda: rt.runs(limit=10**30)),
            ("limit", lambda: rt.runs(limit="x")),
            ("step", lambda: rt.context(run, "1")),
            ("after", lambda: rt.trace(run, after="x")),
            ("after", lambda: list(rt.watch(run, "x"))),
            ("run", lambda: list(rt.watch(5))),
            ("new", lambda: rt.fork_session("s", None)),
            ("until_idle", lambda: rt.work(until_idle=None)),
            ("shared", lambda: rt.erase("local", shared="yes")),
        ):
            with pytest.raises(ConfigError) as caught:
                refused()
            assert caught.value.field == field
            assert caught.value.fix
