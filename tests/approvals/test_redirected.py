"""A call that the policy has redirected is shown as what will run, and as what was asked for."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cairn import Agent, Budget, Policy, Runtime, Scripted, call, tool
from cairn.cli.entry import app
from cairn.cli.teller import LineTeller
from cairn.core.commands import Resume
from cairn.core.policy import From, Redirect, Rule, Value

APP = "shop_redirects"


@tool(effect="write")
def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return "sent"


@tool(effect="write")
def draft_mail(to: str, note: str) -> str:
    """Draft a mail."""
    return "drafted"


RULE = Rule(
    name="drafts not mail",
    decide="redirect",
    tools=("send_mail",),
    reason="a person sends it",
    redirect=Redirect(
        tool="draft_mail", arguments={"to": From(path="to"), "note": Value(value="held")}
    ),
)


def runtime(store: str = ":memory:") -> Runtime:
    script = [call("send_mail", to="ann", body="hi"), "done"]
    agent = Agent("ops", Scripted(script), tools=[send_mail, draft_mail])
    return Runtime(store, [agent], policy=Policy(rules=(RULE,)))


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.delenv("CAIRN_STORE", raising=False)
    with runtime("s.db") as rt:
        assert rt.run("ops", "t", id="r").status == "waiting"

    def said(*words: str) -> Any:
        return CliRunner().invoke(app, [*words, "--store", "s.db"])

    return said


def test_the_inbox_says_in_place_of_what_and_why(say: Any) -> None:
    out = say("inbox").stdout
    assert 'draft_mail({"to":"ann","note":"held"})' in out
    assert "redirected  in place of send_mail: a person sends it" in out
    told = json.loads(say("inbox", "--json").stdout)
    assert (told["tool"], told["instead_of"]) == ("draft_mail", "send_mail")
    assert told["redirected"] == "a person sends it"


def test_what_waits_says_it_wherever_it_is_read() -> None:
    with runtime() as rt:
        run = rt.run("ops", "t", id="r")
        (item,) = rt.pending()
        assert run.pending == (item,)
        assert (item.tool, item.instead_of, item.redirected) == (
            "draft_mail",
            "send_mail",
            "a person sends it",
        )


def test_a_request_is_told_however_far_its_turn_lies_back() -> None:
    with runtime() as rt:
        rt.run("ops", "t", id="r")
        for _ in range(40):
            rt.pause("r")
            rt.portal.call(rt.client.submit("r", Resume()))
        (item,) = rt.pending()
        assert (item.instead_of, item.rule) == ("send_mail", "default: write")


def test_the_audit_finds_it_under_both_names(say: Any) -> None:
    for name in ("send_mail", "draft_mail"):
        said = say("audit", "--tool", name, "--json")
        lines = [json.loads(line) for line in said.stdout.splitlines()]
        assert [line["decision"] for line in lines] == ["redirected", "asked"], name
        assert {(line["tool"], line["instead_of"]) for line in lines} == {
            ("draft_mail", "send_mail")
        }
    assert "draft_mail in place of send_mail redirected" in say("audit").stdout


def test_the_trace_shows_the_new_call_and_names_the_old_tool(say: Any) -> None:
    out = say("trace", "r").stdout
    assert 'c1 draft_mail({"to":"ann","note":"held"})' in out
    assert "in place of send_mail" in out


def test_a_line_of_the_live_log_names_the_tool_that_will_run() -> None:
    with runtime() as rt:
        rt.run("ops", "t", id="r")
        teller = LineTeller()
        lines = [teller.tell(entry) for entry in rt.trace("r")]
    asked = next(line for line in lines if "approval.requested" in line)
    assert "draft_mail" in asked
    assert "send_mail" not in asked


# ---------------------------------------------------------------- filters that match nothing


def test_a_decision_that_is_none_is_refused_with_those_there_are(say: Any) -> None:
    said = say("audit", "--decision", "dennied")
    assert said.exit_code == 2
    assert "'dennied' is no decision. Did you mean 'denied'?" in said.stderr
    assert "budget stop" in said.stderr
    assert say("audit", "--decision", "limit").exit_code == 0  # the first word of several


@pytest.mark.parametrize("option", ["tool", "agent", "principal", "who"])
def test_a_name_that_no_record_has_is_said(say: Any, option: str) -> None:
    said = say("audit", f"--{option}", "sned_mail")
    assert (said.exit_code, said.stdout) == (0, "")
    assert f"no record names {option} 'sned_mail'" in said.stderr
    assert "no record" not in say("audit", "--tool", "send_mail", "--decision", "denied").stderr


def test_a_policy_is_not_tried_on_the_runs_of_an_agent_that_is_not_there(say: Any) -> None:
    Path("p.yaml").write_text("effects: {write: ask}\n")
    said = say("policy", "test", "p.yaml", "--agent", "opss")
    assert said.exit_code != 0
    assert "agent 'opss'; did you mean 'ops'?" in said.stderr
    assert say("policy", "test", "p.yaml", "--agent", "ops").exit_code == 0


def test_a_budget_of_an_agent_without_runs_is_said(say: Any) -> None:
    budgets = [Budget(calls=1, name=name, only={"agent": name}) for name in ("ops", "opps")]
    with Runtime("s.db", [Agent("ops", Scripted(["done"]))], budgets=budgets) as rt:
        rt.budgets()
    said = say("budgets")
    assert said.exit_code == 0
    assert "budget opps counts agent 'opps', of which there is no run here" in said.stderr
    assert "budget ops" not in said.stderr


def test_check_names_a_misspelt_label(say: Any, tmp_path: Path, monkeypatch: Any) -> None:
    Path(f"{APP}.py").write_text(
        "from cairn import Agent, Runtime, Scripted, tool\n"
        "@tool(effect='read', taint='web')\n"
        "def look() -> str:\n    'Look.'\n    return ''\n"
        "rt = Runtime('s.db', [Agent('a', Scripted(['x']), tools=[look])])\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("p.yaml").write_text("rules:\n  - {name: a, decide: deny, taint: [web, wbe]}\n")
    said = CliRunner().invoke(app, ["policy", "check", "p.yaml", "--app", f"{APP}:rt"])
    sys.modules.pop(APP, None)
    assert said.exit_code == 1
    assert said.stdout.startswith("p.yaml:2: rules.a.taint.wbe: nothing brings this label")
    assert "Did you mean 'web'?" in said.stdout
    Path("p.yaml").write_text("labels: wbe\nrules:\n  - {name: a, decide: deny, taint: wbe}\n")
    said = CliRunner().invoke(app, ["policy", "check", "p.yaml", "--app", f"{APP}:rt"])
    sys.modules.pop(APP, None)
    assert said.exit_code == 0
