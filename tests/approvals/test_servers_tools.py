"""What people write for a call of a server's tool is held to its schema, in any process."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
import typer
from tests.mcp.kit import RAW
from typer.testing import CliRunner

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.cli import decide_commands, edit_commands, run_commands
from cairn.cli.entry import Commands
from cairn.errors import ConfigError, ToolsUnready
from cairn.mcp import McpServer

TOOLS = [
    {
        "name": "pay",
        "inputSchema": {
            "type": "object",
            "properties": {"cents": {"type": "integer", "description": "How much"}},
            "required": ["cents"],
            "additionalProperties": False,
        },
    }
]
HOW = json.dumps({"tools": TOOLS})
GOOD = {"cents": 5}


def desk(store, *, down=False, required=True):
    """A runtime as a process of its own would have it: it has reached no server yet."""
    command = ["false"] if down else [sys.executable, "-I", "-S", RAW, HOW]
    server = McpServer(
        "shop", command=command, effects={"pay": "write"}, required=required, connect_s=10
    )
    model = Scripted(lambda request: "done" if request.turn else call("shop__pay", cents=4))
    return Runtime(store, [Agent("a", model, tools=[server])], policy=Policy())


@pytest.fixture
def after_waiting(tmp_path):
    """Does something to a run that waits, as another process would."""

    async def whole(work, how):
        store = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.db")
        async with desk(store) as rt:
            assert (await rt.run_async("a", "task", id="r")).reason == "approval"
        async with desk(store, **how) as rt:
            return await work(rt)

    return lambda work, **how: asyncio.run(whole(work, how))


VERBS = {
    "approve": lambda rt, given: rt.approve_async("r/1", by="ann", arguments=given),
    "edit": lambda rt, given: rt.edit_async("r", call="c1", arguments=given, by="ann"),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_new_arguments_that_a_servers_tool_does_not_take_are_refused_at_once(after_waiting, verb):
    with pytest.raises(ConfigError, match="'cnets' is not known; did you mean 'cents'"):
        after_waiting(lambda rt: verb(rt, {"cnets": 5}))


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_new_arguments_are_said_to_be_unchecked_while_the_server_is_down(
    after_waiting, verb, required
):
    run = after_waiting(lambda rt: verb(rt, {"cnets": 5}), down=True, required=required)
    assert "new arguments of c1 were not checked here" in run.note
    assert "shop" in run.note


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_new_arguments_that_were_checked_need_no_note(after_waiting, verb):
    assert after_waiting(lambda rt: verb(rt, GOOD)).note == ""


def test_a_person_can_call_a_servers_tool_that_this_process_has_not_reached(after_waiting):
    async def take(rt):
        calls = [("shop__pay", {"cents": 7})]
        await rt.take_over_async("r", "mine", by="ann", did={"c1": "x"}, calls=calls)
        return [e.event for e in await rt.trace_async("r")][-1]

    event = after_waiting(take)
    assert [part.name for part in event.parts if hasattr(part, "arguments")] == ["shop__pay"]


def test_a_persons_call_of_a_tool_that_is_not_there_names_the_nearest(after_waiting):
    def take(rt):
        return rt.take_over_async("r", "mine", by="ann", calls=[("shop__pya", {"cents": 7})])

    with pytest.raises(ConfigError, match=r"no tool 'shop__pya'.*Did you mean 'shop__pay'\?"):
        after_waiting(take)
    with pytest.raises(ToolsUnready, match=r"shop__pya.*shop"):
        after_waiting(take, down=True)


APP = """
import sys
from cairn import Agent, Runtime, Scripted, call
from cairn.mcp import McpServer

command = {command!r}
shop = McpServer("shop", command=command, effects={{"pay": "write"}}, connect_s=10)
model = Scripted(lambda request: "done" if request.turn else call("shop__pay", cents=4))
rt = Runtime("s.db", [Agent("a", model, tools=[shop])])
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application in a folder, a run of which waits, and a way to run commands in it."""
    app = typer.Typer(cls=Commands)
    for each in (run_commands.run, decide_commands.approve, edit_commands.edit):
        app.command()(each)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("CAIRN_APP", "CAIRN_STORE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "servershop.py"
    file.write_text(APP.format(command=[sys.executable, "-I", "-S", RAW, HOW]))

    def cairn(*words, **env):
        sys.modules.pop("servershop", None)
        done = CliRunner().invoke(app, [*words, "--app", "servershop:rt"], env=env)
        return SimpleNamespace(code=done.exit_code, out=done.stdout, err=done.stderr)

    def goes_down():
        file.write_text(APP.format(command=["false"]))

    assert cairn("run", "a", "go", "--id", "r").code == 5
    yield SimpleNamespace(cairn=cairn, goes_down=goes_down, folder=tmp_path)
    sys.modules.pop("servershop", None)


def test_the_commands_check_arguments_of_a_servers_tool(shop):
    for words in (("approve", "r/1"), ("edit", "r", "--call", "c1")):
        said = shop.cairn(*words, "--arguments", '{"cnets": 5}')
        assert said.code == 2
        assert "did you mean 'cents'" in said.err
    shop.goes_down()
    said = shop.cairn("edit", "r", "--call", "c1", "--arguments", '{"cnets": 5}')
    assert said.code == 0
    assert "were not checked here" in said.err


def test_the_form_of_an_approval_knows_the_types_of_a_servers_tool(shop):
    editor = shop.folder / "editor.sh"
    editor.write_text('#!/bin/sh\ncp "$1" shown.txt\n')
    editor.chmod(0o700)
    shop.cairn("approve", "r/1", "--edit", EDITOR=str(editor), VISUAL=str(editor))
    assert "# cents: integer, needed. How much" in (shop.folder / "shown.txt").read_text()
