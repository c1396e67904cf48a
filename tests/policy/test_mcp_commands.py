"""`cairn policy` over an application whose tools are brought by an MCP server."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.mcp.kit import RAW
from typer.testing import CliRunner

from cairn.cli.entry import Commands
from cairn.cli.policy_command import policy

TOOLS = [
    {
        "name": "pay",
        "inputSchema": {
            "type": "object",
            "properties": {"cents": {"type": "integer"}, "note": {"type": "string"}},
        },
    },
    {"name": "find", "inputSchema": {"type": "object"}},
    {"name": "wipe", "inputSchema": {"type": "object"}},
]
APP = """
import json, os, sys
from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.mcp import McpServer

command = {command!r} if not os.path.exists("down") else ["false"]
shop = McpServer("shop", command=command, effects={{"find": "read"}}, exclude=["wipe"])
script = [call("shop__find"), "done"]
agents = [Agent("a", Scripted(script), tools=[shop])]
rt = Runtime("s.db", agents, policy=Policy(effects={{"write": "allow"}}))
"""
GOOD = """
tools: {shop__find: allow, shop__wipe: deny}
rules:
  - {name: big, decide: deny, tools: shop__pay, arguments: {cents: {min: 100}}}
"""
BAD = """
tools: {shop__fnid: deny}
rules:
  - {name: big, decide: deny, tools: shop__pay, arguments: {cnets: {min: 100}}}
  - {name: low, decide: deny, tools: shop__pay, arguments: {note: {min: 100}}}
  - {name: mild, decide: allow, tools: shop__pay}
  - {name: money, decide: deny, tools: shop__pay, arguments: {note: {amount: {min: 9}}}}
"""


class Desk:
    """A folder with the application and a way to run the commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = typer.Typer(cls=Commands, no_args_is_help=True)
        self.app.add_typer(policy, name="policy")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def say(self, *words: str) -> Any:
        sys.modules.pop("mcpshop", None)
        result = CliRunner().invoke(self.app, ["policy", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    found = Desk(tmp_path)
    command = [sys.executable, "-I", "-S", RAW, json.dumps({"tools": TOOLS})]
    found.write("mcpshop.py", APP.format(command=command))
    found.write("good.yaml", GOOD)
    found.write("bad.yaml", BAD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.delenv("CAIRN_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield found
    sys.modules.pop("mcpshop", None)


def test_check_knows_names_effects_and_arguments_of_tools_that_servers_bring(desk: Desk) -> None:
    said = desk.say("check", "good.yaml", "--app", "mcpshop:rt")
    assert (said.exit_code, said.stdout) == (0, "good.yaml: 1 rule, nothing wrong\n")
    said = desk.say("check", "bad.yaml", "--app", "mcpshop:rt")
    assert said.exit_code == 1
    lines = said.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"bad.yaml:{n}:" for n in (2, 4, 5, 6, 7)]
    assert "did you mean 'shop__find'?" in lines[0]
    assert "rules.big.arguments.cnets: tool 'shop__pay' has no argument" in lines[1]
    assert "did you mean 'cents'?" in lines[1]
    assert "min and max want a number, and it is string" in lines[2]
    assert "its tools are dangerous" in lines[3]
    assert lines[4].startswith("bad.yaml:7: warning: rules.money.arguments.note: an amount")
    objects = [
        json.loads(line)
        for line in desk.say(
            "check", "bad.yaml", "--app", "mcpshop:rt", "--json"
        ).stdout.splitlines()
    ]
    assert [o["level"] for o in objects] == ["never", "error", "error", "never", "warning"]


def test_a_warning_alone_is_said_and_no_failure(desk: Desk) -> None:
    desk.write("w.yaml", "rules:\n" + BAD.splitlines(keepends=True)[-1])
    said = desk.say("check", "w.yaml", "--app", "mcpshop:rt")
    assert said.exit_code == 0
    assert said.stdout.splitlines()[-1] == "w.yaml: 1 rule, 1 warning"


def test_a_server_that_cannot_be_reached_is_an_error_that_names_what_was_not_checked(
    desk: Desk,
) -> None:
    desk.write("down", "")
    said = desk.say("check", "bad.yaml", "--app", "mcpshop:rt")
    assert said.exit_code == 1
    assert "MCP server shop cannot be reached" in said.stderr
    assert "these names were not checked: shop__fnid, shop__pay" in said.stderr
    assert "--offline" in said.stderr
    (found,) = map(
        json.loads,
        desk.say("check", "bad.yaml", "--app", "mcpshop:rt", "--json").stdout.splitlines(),
    )
    assert (found["level"], found["names"]) == ("unchecked", ["shop__fnid", "shop__pay"])
    said = desk.say("check", "good.yaml", "--app", "mcpshop:rt", "--offline")
    assert said.exit_code == 0
    assert "1 rule, nothing wrong; shop was not reached: these names were not" in said.stdout


def test_offline_names_that_no_server_could_have_are_still_found(desk: Desk) -> None:
    desk.write("down", "")
    desk.write(
        "o.yaml", "tools: {find: deny}\nrules: [{name: all, decide: ask, tools: 'shop__*'}]\n"
    )
    said = desk.say("check", "o.yaml", "--app", "mcpshop:rt", "--offline")
    assert said.exit_code == 1
    assert said.stdout.startswith("o.yaml:1: tools.find: there is no tool 'find'")
    assert len(said.stdout.splitlines()) == 1


def test_a_fault_in_the_shape_hides_no_name_and_no_argument(desk: Desk) -> None:
    desk.write(
        "f.yaml",
        "rules:\n"
        "  - name: a\n"
        "    decide: perhaps\n"
        "    tools: [shop__pay, shop__pya, 5]\n"
        "    arguments: {cnets: {min: 1}, note: {matches: '('}}\n",
    )
    lines = desk.say("check", "f.yaml", "--app", "mcpshop:rt").stdout.splitlines()
    assert [line.rpartition(": ")[0] for line in lines[:3]] == [
        "f.yaml:3: rules[1].decide: 'perhaps' is no decision",
        "f.yaml:4: rules[1].tools[3]: it is a number, not text",
        "f.yaml:5: rules[1].arguments.note.matches: a group is not closed",
    ]
    assert lines[3].startswith("f.yaml:2: rules.a.tools.shop__pya: there is no tool")
    assert lines[4].startswith("f.yaml:5: rules.a.arguments.cnets: tool 'shop__pay' has no")
    assert len(lines) == 5


def test_explain_knows_effect_and_schema_of_a_servers_tool(desk: Desk) -> None:
    words = ("explain", "--tool", "shop__find", "--app", "mcpshop:rt")
    assert desk.say(*words).stdout.splitlines()[-1] == "  so: allow by default: read"
    words = ("explain", "--tool", "shop__pay", "--app", "mcpshop:rt", "--arguments")
    assert "invalid before it is judged" in desk.say(*words, '{"cents": "x"}').stdout
    desk.write("down", "")
    said = desk.say(*words, "{}")
    assert said.exit_code == 1
    assert "So the tool 'shop__pay' is not known; --offline goes on" in said.stderr
    said = desk.say(*words, "{}", "--offline")
    assert said.exit_code == 0
    assert "agent 'a' has no tool 'shop__pay'" in said.stdout


def test_recorded_calls_of_a_servers_tools_are_judged_as_they_are_declared(desk: Desk) -> None:
    import importlib

    rt = importlib.import_module("mcpshop").rt
    assert rt.run("a", "task", id="r").status == "completed"
    rt.close()
    desk.write("p.yaml", "effects: {read: deny}\n")
    for words in (("test", "p.yaml", "--runs", "r"), ("explain", "r/c1", "--policy", "p.yaml")):
        said = desk.say(*words, "--json", "--app", "mcpshop:rt")
        first = json.loads(said.stdout.splitlines()[0])
        assert (first["tool"], first["effect"], first["now"]) == ("shop__find", "read", "deny")
        assert first["assumed"] == ""
    desk.write("down", "")
    for words in (("test", "p.yaml", "--runs", "r"), ("explain", "r/c1", "--policy", "p.yaml")):
        said = desk.say(*words, "--app", "mcpshop:rt")
        assert said.exit_code == 1
        assert "needed to judge calls of agent 'a'; --offline goes on" in said.stderr
        said = desk.say(*words, "--json", "--app", "mcpshop:rt", "--offline")
        assert json.loads(said.stdout.splitlines()[0])["assumed"] != ""
