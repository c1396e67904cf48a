"""`doctor` on what a deployment brings: servers of tools, workspace, policy, secrets, sandbox."""

import json
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cairn, Said
from tests.mcp.kit import RAW

from cairn.cli import doctor_deployment

APP = """
import sys
from cairn import Agent, Runtime, Scripted
from cairn.mcp import McpServer

crm = McpServer("crm", {crm}, connect_s=10)
agents = [Agent("a", Scripted(["x"]), tools=[crm]), Agent("b", Scripted(["x"]), tools=[crm])]
rt = Runtime("s.db", agents, {more})
"""
HOW = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("do", "ask")]}
THERE = f"command={[sys.executable, '-I', '-S', RAW, json.dumps(HOW)]!r}"


@pytest.fixture
def doctor(cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs it on an application of this server and these options of the runtime."""
    monkeypatch.delenv("CAIRN_APP")

    def run(crm: str = THERE, more: str = "") -> Said:
        (desk / "crmdesk.py").write_text(APP.format(crm=crm, more=more))
        sys.modules.pop("crmdesk", None)
        return cairn("doctor", "--app", "crmdesk:rt")

    yield run
    sys.modules.pop("crmdesk", None)


def lines(said: Said, what: str) -> list[str]:
    return [line for line in said.out.splitlines() if f"· {what} ·" in line]


def test_a_server_that_is_reached_is_told_with_its_tools(doctor) -> None:
    said = doctor()
    assert said.code == 0, said
    (line,) = lines(said, "server crm")
    assert line.startswith("ok")
    assert "reached" in line
    assert "2 tools, of agents a, b" in line
    (line,) = lines(said, "agent a")
    assert "crm__do (dangerous), crm__ask (dangerous)" in line


def test_a_required_server_that_cannot_be_reached_is_a_problem(doctor) -> None:
    said = doctor('command=["no-such-program"]')
    assert said.code == 1
    (line,) = lines(said, "server crm")
    assert line.startswith("problem")
    assert "there is no program 'no-such-program'" in line


def test_a_server_that_is_not_required_is_a_note_when_it_is_not_there(doctor) -> None:
    said = doctor('command=["no-such-program"], required=False')
    assert said.code == 0
    (line,) = lines(said, "server crm")
    assert line.startswith("note")
    assert "runs go on without its tools" in line


def test_a_misspelt_declaration_is_a_problem_even_so(doctor) -> None:
    said = doctor(f'{THERE}, required=False, effects={{"od": "read"}}')
    assert said.code == 1
    (line,) = lines(said, "server crm")
    assert "no tool 'od'" in line


def test_a_server_that_never_answers_is_not_waited_for_longer_than_the_bound(
    doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_deployment, "SERVER_S", 0.5)
    said = doctor('command=["sleep", "60"]')
    assert said.code == 1
    assert "not reached within" in lines(said, "server crm")[0]


def test_workspace_policy_secrets_and_sandbox_are_told(doctor, desk: Path) -> None:
    (desk / "p.yaml").write_text("tools: {crm__do: deny}\n")
    value = "Qz9-prod.7hKx3RmVw82b"
    more = f'policy="p.yaml", workspace="work", secrets={{"bank": "{value}"}}, sandbox="landlock"'
    said = doctor(more=more)
    assert "work" in lines(said, "workspace")[0]
    assert "file p.yaml" in lines(said, "policy")[0]
    assert lines(said, "secrets")[0].endswith("bank")
    assert value not in said.out + said.err
    assert "at least landlock" in lines(said, "least sandbox")[0]


def test_what_is_not_set_is_told_too(doctor) -> None:
    said = doctor()
    assert "none" in lines(said, "workspace")[0]
    assert "default" in lines(said, "policy")[0]
    assert "none registered" in lines(said, "secrets")[0]
    assert "no rung" in lines(said, "least sandbox")[0]


def test_a_policy_that_names_what_a_server_does_not_have_is_a_problem(doctor, desk: Path) -> None:
    (desk / "p.yaml").write_text("tools: {crm__od: deny}\n")
    said = doctor(more='policy="p.yaml"')
    assert said.code == 1
    assert "Did you mean 'crm__do'?" in lines(said, "agent a")[0]
