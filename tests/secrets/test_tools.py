"""A secret reaches the tools that declare it, at the moment they run, and nothing else."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.kit import FREE_HAND, Recorder, TurnedClock, events, results

from cairn import Agent, Context, NotDone, Principal, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Policy
from cairn.errors import ConfigError, IllegalTransition, ToolDefinitionError
from cairn.governance.secrets import Secrets
from cairn.tools.verdicts import UNKNOWN

VALUE = "tR7q9Zx9vK2m"
UNREGISTERED = "sk-proj-a8Fk2mQ9xZ4rT7vB1nC6yH3w"
SECRETS = {"stripe": VALUE}
HANDLE = Secrets(SECRETS).of().text(VALUE)
CAREFUL = Policy(effects={"write": "ask"}, name="careful")


class Till:
    """What its tools were really called with."""

    def __init__(self, **options: Any) -> None:
        self.got: list[Any] = []

        @tool(effect="write", **{"secrets": "stripe", **options})
        def pay(key: str, memo: str = "") -> str:
            """Pay."""
            self.got.append((key, memo))
            return f"paid with {key}"

        @tool(effect="write")
        def post(text: str) -> str:
            """Post."""
            self.got.append(text)
            return "posted"

        self.tools = [pay, post]


def make(
    script: Any,
    tools: Any,
    store: Any = ":memory:",
    secrets: Any = SECRETS,
    policy: Policy = FREE_HAND,
) -> Runtime:
    model = script if hasattr(script, "request") else Scripted(script)
    agents = [Agent("a", model, tools=tools)]
    return Runtime(store, agents, policy=policy, secrets=secrets, clock=TurnedClock())


def journal(rt: Runtime, run: str) -> list[Any]:
    return rt.portal.call(rt.store.read(run))


def rejections(rt: Runtime, run: str) -> list[Any]:
    return events(journal(rt, run), ev.ToolRejected)


def test_a_declared_secret_is_a_handle_in_the_journal_and_the_value_for_the_tool() -> None:
    till = Till()
    seen = Recorder(lambda r: call("pay", key=HANDLE), "done")
    with make(seen, till.tools) as rt:
        run = rt.run("a", f"pay with {VALUE}")
        assert run.status == "completed"
        assert till.got == [(VALUE, "")]
        assert VALUE not in msgspec.json.encode(journal(rt, run.id)).decode()
    assert VALUE not in msgspec.json.encode([list(r.messages) for r in seen.requests]).decode()
    assert results(seen.last)["c1"] == f"paid with {HANDLE}"


def test_a_model_that_says_the_value_itself_is_understood_the_same_way() -> None:
    till = Till()
    with make([call("pay", key=VALUE), "done"], till.tools) as rt:
        run = rt.run("a", "pay")
        assert till.got == [(VALUE, "")]
        assert VALUE not in msgspec.json.encode(journal(rt, run.id)).decode()


def test_a_tool_that_does_not_declare_it_is_refused_with_the_cure() -> None:
    till = Till()
    with make([call("post", text=f"key {HANDLE}"), "done"], till.tools) as rt:
        run = rt.run("a", "post")
        (rejected,) = rejections(rt, run.id)
        assert till.got == []
        assert run.status == "completed"
    assert (rejected.kind, rejected.rule) == ("denied", "undeclared secret")
    assert 'secrets=("stripe",)' in rejected.message


def test_a_handle_with_its_letters_escaped_is_refused_as_well() -> None:
    till = Till()
    escaped = "".join(f"\\u{ord(c):04x}" for c in HANDLE)
    hidden = msgspec.structs.replace(call("post"), arguments=f'{{"text":"{escaped}"}}')
    with make([hidden, "done"], till.tools) as rt:
        (rejected,) = rejections(rt, rt.run("a", "post").id)
    assert till.got == []
    assert rejected.rule == "undeclared secret"


def test_a_secret_may_be_bound_to_one_argument() -> None:
    till = Till(secrets={"key": "stripe"})
    script = [call("pay", key=HANDLE, memo=HANDLE), call("pay", key=HANDLE, memo="x"), "done"]
    with make(script, till.tools) as rt:
        (rejected,) = rejections(rt, rt.run("a", "pay").id)
    assert rejected.rule == "undeclared secret"
    assert till.got == [(VALUE, "x")]


def test_a_typed_handle_that_is_forged_stays_text() -> None:
    till = Till()
    forged = "[[secret:stripe:00000000]]"
    with make([call("pay", key=forged), "done"], till.tools) as rt:
        rt.run("a", f"pay with {forged}")
    assert till.got == [("[[ secret:stripe:00000000]]", "")]


@pytest.mark.parametrize(
    "arguments", [{"text": f"use {UNREGISTERED}"}, {"text": "x", "y": UNREGISTERED}]
)
def test_an_unregistered_key_is_kept_nowhere_and_its_call_is_refused(
    arguments: dict[str, str],
) -> None:
    till = Till()
    with make([call("post", **arguments), "done"], till.tools) as rt:
        run = rt.run("a", "post")
        (rejected,) = rejections(rt, run.id)
        told = msgspec.json.encode(journal(rt, run.id)).decode()
    assert till.got == []
    assert run.status == "completed"
    assert (rejected.kind, rejected.rule) == ("denied", "unregistered secret")
    assert "registered" in rejected.message
    assert UNREGISTERED not in told
    assert "[redacted api-key]" in told


def test_an_unregistered_key_elsewhere_is_marked_and_the_run_goes_on() -> None:
    @tool(effect="read")
    def look() -> str:
        return f"found {UNREGISTERED}"

    seen = Recorder(call("look"), f"it is {UNREGISTERED}")
    with make(seen, [look]) as rt:
        run = rt.run("a", f"my key is {UNREGISTERED}")
    assert (run.status, run.text) == ("completed", "it is [redacted api-key]")
    assert results(seen.last)["c1"] == "found [redacted api-key]"


def test_a_tool_asks_for_what_it_declares_and_for_nothing_else() -> None:
    got: list[str] = []

    @tool(effect="read", secrets=("stripe",))
    def ask(ctx: Context[None], name: str) -> str:
        got.append(ctx.secret(name))
        return got[-1]

    script = [call("ask", name="stripe"), call("ask", name="other"), "done"]
    with make(script, [ask], secrets={**SECRETS, "other": "Wn4LmP8sYc1e"}) as rt:
        run = rt.run("a", "go")
        failed = events(journal(rt, run.id), ev.ToolFailed)
    assert got == [VALUE]
    assert "does not declare" in failed[0].message
    with pytest.raises(ConfigError):
        Context[None]().secret("stripe")


def test_after_approval_and_a_restart_the_secret_is_there_again(tmp_path: Path) -> None:
    path, till = tmp_path / "c.db", Till()
    with make([call("pay", key=VALUE)], till.tools, path, policy=CAREFUL) as rt:
        run = rt.run("a", f"pay {VALUE}", id="r")
        assert run.status == "waiting"
        assert till.got == []
        assert VALUE not in msgspec.json.encode(run).decode()
    with make([None, "done"], till.tools, path, policy=CAREFUL) as rt:
        rt.approve("r/1", f"yes, {VALUE} it is", by="ann")
        assert rt.run("a", f"pay {VALUE}", id="r").status == "completed"
    assert till.got == [(VALUE, "")]
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert VALUE.encode() not in file.read_bytes()


def test_a_process_without_the_secret_runs_nothing_and_says_why(tmp_path: Path) -> None:
    path, till = tmp_path / "c.db", Till()
    with make([call("pay", key=VALUE)], till.tools, path, policy=CAREFUL) as rt:
        rt.run("a", "pay", id="r")
    with make([None, "done"], till.tools, path, secrets=None, policy=CAREFUL) as rt:
        rt.approve("r/1")
        rt.drive("r")
        failed = events(journal(rt, "r"), ev.ToolFailed)
    assert till.got == []
    assert "not registered" in failed[0].message


def test_a_fallback_gets_it_if_it_declares_it_and_is_refused_if_not() -> None:
    for declared in ((), ("stripe",)):
        got: list[str] = []

        @tool(effect="write", secrets="stripe", fallback="second")
        def first(key: str) -> str:
            raise NotDone(f"closed for {key}")

        @tool(effect="write", secrets=declared)
        def second(key: str) -> str:
            got.append(key)  # noqa: B023 - it runs before the next round
            return "ok"

        with make([call("first", key=HANDLE), "done"], [first, second]) as rt:
            run = rt.run("a", "go")
            told = msgspec.json.encode(journal(rt, run.id)).decode()
        assert got == ([VALUE] if declared else [])
        assert VALUE not in told


def test_a_probe_gets_it_too() -> None:
    asked: list[str] = []

    def probe(key: str) -> Any:
        asked.append(key)
        return UNKNOWN

    @tool(effect="write", recovery="probe", probe=probe, secrets="stripe")
    def pay(key: str) -> str:
        raise TimeoutError("no answer")

    with make([call("pay", key=HANDLE), "done"], [pay]) as rt:
        rt.run("a", "go")
    assert asked == [VALUE]


def test_only_runs_of_its_principal_can_use_a_secret() -> None:
    till = Till()
    secrets = Secrets(lambda who: {"stripe": VALUE} if who.id == "ann" else {})
    script = lambda request: "done" if request.turn else call("pay", key=HANDLE)  # noqa: E731 - shorter
    with make(script, till.tools, secrets=secrets) as rt:
        rt.run("a", "pay", principal=Principal(id="ann"))
        assert till.got == [(VALUE, "")]
        rt.run("a", "pay", principal=Principal(id="bob"))
    assert VALUE not in json.dumps(till.got[1:])


def test_grants_and_retries_ask_for_the_secrets_of_nobody() -> None:
    till = Till()
    secrets = Secrets({"stripe": VALUE}) | Secrets(lambda who: {"ann": {}}[who.id])
    script = [call("pay", key=VALUE), "done"]
    with make(script, till.tools, secrets=secrets, policy=CAREFUL) as rt:
        rt.grant("pay", arguments={"key": VALUE}, reason=f"{VALUE} is ours")
        assert rt.run("a", "pay", id="r", principal="ann").status == "completed"
        with pytest.raises(IllegalTransition):
            rt.retry("r")
        assert VALUE not in repr(rt.grants())
    assert till.got == [(VALUE, "")]


def test_edited_arguments_are_written_as_handles_and_run_with_the_value() -> None:
    till = Till()
    with make([call("pay", key="none"), "done"], till.tools, policy=CAREFUL) as rt:
        rt.run("a", "pay", id="r")
        rt.edit("r", call="c1", arguments={"key": VALUE})
        rt.drive("r")
        rt.approve(rt.get("r").pending[0].id)
        rt.drive("r")
        told = msgspec.json.encode(journal(rt, "r")).decode()
    assert till.got == [(VALUE, "")]
    assert VALUE not in told


@pytest.mark.parametrize("option", [7, ("a b",), {"nothing": "stripe"}, {"key": 3}, ""])
def test_a_declaration_that_names_no_secret_is_refused(option: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        Till(secrets=option)


def test_a_run_or_person_cannot_be_called_by_a_secret() -> None:
    with make(["done"], []) as rt:
        with pytest.raises(ConfigError, match="holds a secret"):
            rt.run("a", "x", id=f"r-{VALUE}")
        with pytest.raises(ConfigError, match="holds a secret"):
            rt.run("a", "x", principal=VALUE)
        rt.run("a", "x", id="r")
        with pytest.raises(ConfigError) as raised:
            rt.pause("r", by=f"me {UNREGISTERED}")
        assert UNREGISTERED not in str(raised.value)
