"""`cairn policy check | explain | test`, over an application with one recorded run."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.policy.test_backtest import shop
from typer.testing import CliRunner

from cairn.cli.entry import Commands
from cairn.cli.policy_command import policy

APP = """
from pathlib import Path
from tests.policy.test_backtest import shop

rt = shop(Path(__file__).parent)
"""
FILE = """
effects: {write: allow}
rules:
  - name: tainted
    decide: deny
    tools: pay
    taint: any
    reason: it has read the web
  - name: big
    decide: redirect
    tools: pay
    arguments: {cents: {min: 1000}}
    redirect: {tool: draft}
"""


class Said:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an application, its store with the run `r`, and the policy p.yaml."""
    (tmp_path / "policyshop.py").write_text(APP)
    (tmp_path / "p.yaml").write_text(FILE)
    rt = shop(tmp_path)
    rt.run("a", "task", id="r")
    rt.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("policyshop", None)


Cairn = Callable[..., Said]


@pytest.fixture
def cairn(desk: Path) -> Cairn:
    app = typer.Typer(cls=Commands, no_args_is_help=True)
    app.add_typer(policy, name="policy")

    def run(*words: str) -> Said:
        sys.modules.pop("policyshop", None)
        result = CliRunner().invoke(app, ["policy", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


# ---------------------------------------------------------------- check


def test_a_good_file_is_said_to_be_good(cairn: Cairn) -> None:
    said = cairn("check", "p.yaml")
    assert (said.code, said.out) == (
        0,
        "p.yaml: 2 rules, nothing wrong; names of tools were not checked (that needs --app)\n",
    )
    said = cairn("check", "p.yaml", "--app", "policyshop:rt")
    assert (said.code, said.out) == (0, "p.yaml: 2 rules, nothing wrong\n")


def test_faults_are_said_with_their_lines_and_all_at_once(cairn: Cairn, desk: Path) -> None:
    (desk / "bad.yaml").write_text("tools: {pay: perhaps}\nefects: {}\n")
    said = cairn("check", "bad.yaml")
    assert said.code == 1
    assert said.out.splitlines() == [
        "bad.yaml:1: tools.pay: 'perhaps' is no decision: Write allow, ask or deny",
        "bad.yaml:2: efects: there is no such field: Did you mean effects?",
    ]
    assert [o["line"] for o in cairn("check", "bad.yaml", "--json").objects] == [1, 2]
    assert cairn("check", "none.yaml").code == 2


def test_rules_that_can_never_matter_are_said(cairn: Cairn, desk: Path) -> None:
    (desk / "odd.yaml").write_text(FILE + "  - {name: late, decide: ask, tools: pey}\n")
    assert cairn("check", "odd.yaml").code == 0
    said = cairn("check", "odd.yaml", "--app", "policyshop:rt")
    assert said.code == 1
    assert said.out.startswith("odd.yaml:14: rules.late.tools.pey: there is no tool 'pey'")
    (found,) = cairn("check", "odd.yaml", "--app", "policyshop:rt", "--json").objects
    assert (found["level"], found["line"]) == ("never", 14)


# ---------------------------------------------------------------- explain


def test_nothing_is_concluded_of_a_tool_that_is_not_there(cairn: Cairn) -> None:
    said = cairn("explain", "--tool", "pya", "--app", "policyshop:rt")
    assert said.code == 1
    assert "no verdict: " in said.out
    assert "has no tool 'pya'. Did you mean 'pay'?" in said.out
    assert "so:" not in said.out
    said = cairn("explain", "--tool", "nosuch", "--app", "policyshop:rt", "--json")
    (found,) = said.objects
    assert (said.code, found["decision"], found["layers"]) == (1, "", [])
    assert "The tools are" in found["problem"]


def test_a_recorded_call_is_explained_layer_by_layer(cairn: Cairn) -> None:
    said = cairn("explain", "r/c4", "--policy", "p.yaml", "--app", "policyshop:rt")
    assert said.code == 0
    assert said.out.splitlines() == [
        'r/c4 pay {"order":"3"}',
        "  recorded in event 14: allow by test: effect write",
        "  the policy of now:",
        "    deployment  deny by deployment: tainted (it has read the web)",
        "    floor       silent",
        "  so: deny by deployment: tainted (it has read the web), other than then",
    ]
    said = cairn("explain", "r/c4", "--app", "policyshop:rt")
    assert said.out.splitlines()[-1] == "  so: allow by test: effect write, as then"
    (found,) = cairn("explain", "r/c2", "--policy", "p.yaml", "--json").objects
    assert (found["was"], found["now"], found["verdict"]["redirect"]) == (
        "allow",
        "redirect",
        "draft",
    )
    assert [layer["layer"] for layer in found["layers"]] == ["deployment", "floor"]


def test_a_call_that_was_not_made_is_explained(cairn: Cairn) -> None:
    words = ("explain", "--tool", "pay", "--arguments", '{"order": "7", "cents": 5000}')
    said = cairn(*words, "--policy", "p.yaml", "--app", "policyshop:rt")
    assert said.out.splitlines()[-1] == "  so: redirect to draft by deployment: big"
    said = cairn(*words, "--policy", "p.yaml", "--app", "policyshop:rt", "--taint", "web", "--json")
    assert said.objects[0]["decision"] == "deny"
    said = cairn(*words, "--policy", "p.yaml", "--effect", "write", "--kind", "query")
    assert said.out.splitlines()[-1] == "  so: deny by task kind: query"
    said = cairn("explain", "--tool", "pay", "--policy", "p.yaml", "--app", "policyshop:rt")
    assert "the call is invalid before it is judged" in said.out
    said = cairn("explain", "--tool", "wipe", "--policy", "p.yaml")
    assert said.out.splitlines()[-1] == "  so: ask by default: dangerous"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "one call"),
        (("r/c1", "--tool", "pay"), "one call"),
        (("--tool", "pay"), "no policy is known"),
        (("r/c1",), "no policy is known"),
        (("r/c9", "--policy", "p.yaml"), "was never judged"),
        (("nobody/c1", "--policy", "p.yaml"), "nobody"),
        (("--tool", "pay", "--arguments", "[]", "--policy", "p.yaml"), "no JSON object"),
        (("--tool", "pay", "--effect", "none", "--policy", "p.yaml"), "is none"),
        (("--tool", "pay", "--kind", "none", "--policy", "p.yaml"), "unknown"),
    ],
    ids=range(9),
)
def test_what_cannot_be_explained_is_said(cairn: Cairn, words: tuple[str, ...], why: str) -> None:
    said = cairn("explain", *words)
    assert said.code == 2
    assert why in said.err


# ---------------------------------------------------------------- test


def test_a_policy_is_tried_on_recorded_runs(cairn: Cairn, desk: Path) -> None:
    before = (desk / "s.db").read_bytes()
    said = cairn("test", "p.yaml", "--runs", "all", "--app", "policyshop:rt")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].split() == ["call", "tool", "was", "by", "now", "by"]
    assert lines[1].split()[:2] == ["r/c2", "pay"]
    assert lines[2].split()[:2] == ["r/c4", "pay"]
    assert lines[-1] == "1 run, 4 decisions: 1 from allow to redirect, 1 from allow to deny"
    assert (desk / "s.db").read_bytes() == before, "nothing is written"
    assert cairn("test", "p.yaml", "--runs", "r", "--strict").code == 1
    words = ("test", "p.yaml", "--runs", "r,r", "--all", "--json", "--app", "policyshop:rt")
    *rows, total = cairn(*words).objects
    assert len(rows) == 8
    assert (total["runs"], total["calls"], total["table"]["allow"]["deny"]) == (2, 8, 2)
    assert [row["now"] for row in rows[:4]] == ["allow", "redirect", "allow", "deny"]


def test_a_policy_that_changes_nothing_says_so(cairn: Cairn, desk: Path) -> None:
    (desk / "same.yaml").write_text("effects: {write: allow}\n")
    said = cairn("test", "same.yaml", "--strict", "--app", "policyshop:rt")
    assert (said.code, said.out) == (0, "1 run, 4 decisions: none would change\n")
    said = cairn("test", "same.yaml")
    assert said.out.splitlines()[1].startswith("4 of them on assumptions")
    assert cairn("test", "same.yaml", "--runs", "nobody").code == 2
    assert cairn("test", "same.yaml", "--agent", "other").code == 2
