"""The same from a shell: roles, changes, grants shown before they are made, takeovers."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cairn.cli import approval_form, decide_commands, grants_command, read_commands, run_commands
from cairn.cli.entry import Commands
from cairn.cli.takeover_command import takeover
from cairn.cli.verbs import Verbs

EDITS = (
    "import pathlib, sys; file = pathlib.Path(sys.argv[1]); "
    "file.write_text(file.read_text().replace(chr(34) + chr(55), chr(34) + chr(56)))"
)
"""An editor that makes order 8 of order 7."""
APP = '''
from typing import Literal

from cairn import Agent, ApprovalTerms, Runtime, Scripted, call, tool


def done(what):
    with open("effects.txt", "a") as file:
        file.write(what + "\\\\n")
    return what


@tool(effect="write")
async def pay(order: str, cents: int = 100, kind: Literal["cash", "card"] = "cash") -> str:
    """Pay money.

    Args:
        order: Which order it is for.
    """
    return done(f"pay {order} {cents} {kind}")


@tool(effect="dangerous")
async def wipe() -> str:
    """Wipe it."""
    return done("wipe")


def make(name, **options):
    script = Scripted([call("pay", order="7"), "done"])
    return Agent(name, script, tools=[pay, wipe], **options)


rt = Runtime("s.db", agents=[make("a"), make("led", approval=ApprovalTerms(roles=("lead",)))])
'''

shell = Verbs(cls=Commands)
for each in (
    run_commands.run,
    run_commands.resume,
    read_commands.inbox,
    read_commands.trace,
    decide_commands.approve,
    decide_commands.deny,
    takeover,
):
    shell.command()(each)
shell.add_typer(grants_command.grants, name="grants")


@pytest.fixture
def cairn(tmp_path, monkeypatch):
    module = f"shop{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{module}.py").write_text(APP.replace("\\\\n", "\\n"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_APP", f"{module}:rt")
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(*arguments, code=0, **options):
        sys.modules.pop(module, None)
        said = CliRunner().invoke(shell, [*arguments], catch_exceptions=False, **options)
        assert said.exit_code == code, f"{said.exit_code}: {said.output} {said.stderr}"
        return said.output + said.stderr

    run.bare = lambda: monkeypatch.delenv("CAIRN_APP")
    return run


def effects():
    path = Path("effects.txt")
    return path.read_text().splitlines() if path.exists() else []


def test_a_role_is_needed_where_the_agent_asks_for_one(cairn):
    cairn("run", "led", "go", "--id", "r", code=5)
    said = cairn("approve", "r/1", "--as", "ann", code=1)
    assert "r/1 needs a person with the role lead, and ann has none" in said
    said = cairn("approve", "r/1", "--as", "ann", "--role", "clerk", code=1)
    assert "and ann has clerk" in said
    cairn("approve", "r/1", "--as", "ann", "--role", "clerk", "--role", "lead")
    cairn("resume", "r")
    assert effects() == ["pay 7 100 cash"]
    assert "as clerk, lead" in cairn("trace", "r")


@pytest.mark.parametrize("with_app", [True, False])
def test_a_request_is_approved_with_other_arguments(cairn, with_app):
    cairn("run", "a", "go", "--id", "r", code=5)
    new = '{"order": "7", "cents": 5}'
    if with_app:
        said = cairn("approve", "r/1", "--arguments", '{"order": "7", "cents": "x"}', code=2)
        assert "cents" in said
    else:
        cairn.bare()
    said = cairn("approve", "r/1", "--arguments", new)
    assert "approved r/1 with" in said
    assert "edited by" in cairn("trace", "r")


def test_the_form_shows_types_defaults_and_words_and_what_comes_back_is_approved(
    cairn, monkeypatch
):
    cairn("run", "a", "go", "--id", "r", code=5)
    shown = []

    def editor(text, **_):
        shown.append(text)
        return text.replace('"order":"7"', '"order":"7","cents":5').replace(
            '"order": "7"', '"order": "7", "cents": 5'
        )

    monkeypatch.setattr(approval_form, "in_editor", editor)
    cairn("approve", "r/1", "--edit")
    (text,) = shown
    assert "# order: string, needed. Which order it is for." in text
    assert "# cents: integer, default 100" in text
    assert '# kind: one of "cash", "card", default "cash"' in text
    cairn("resume", "r")
    assert effects() == ["pay 7 5 cash"]


def test_the_editor_of_the_environment_is_the_one_that_opens(cairn, monkeypatch):
    cairn("run", "a", "go", "--id", "r", code=5)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} -c '{EDITS}'")
    cairn("approve", "r/1", "--edit")
    cairn("resume", "r")
    assert effects() == ["pay 8 100 cash"]


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (None, 1, "nothing was changed, so nothing was decided"),
        ("# only words", 2, "no JSON"),
        ("[1]", 2, "no JSON object"),
    ],
)
def test_an_editor_that_brings_nothing_of_use_decides_nothing(
    cairn, monkeypatch, typed, code, said
):
    cairn("run", "a", "go", "--id", "r", code=5)
    monkeypatch.setattr(approval_form, "in_editor", lambda text: typed)
    assert said in cairn("approve", "r/1", "--edit", code=code)
    assert "r/1" in cairn("inbox")


def test_a_change_is_of_one_request(cairn):
    said = cairn("approve", "r/1", "r/2", "--arguments", "{}", code=2)
    assert "it is of one request" in said


# ---------------------------------------------------------------- grants


@pytest.mark.slow
def test_a_grant_is_shown_and_asked_about_before_it_is_made(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    scope = ("grants", "add", "pay", "--arguments", '{"order": "7"}', "--uses", "2")
    said = cairn(*scope, "--within", "8h", "--as", "ann", "-m", "small", input="n\n", code=1)
    assert 'argument order = "7"' in said
    assert "of 1 requests in the last 1 runs it would have answered 1" in said
    assert "nothing was granted" in said
    assert cairn("grants", "list") == ""
    said = cairn(*scope, "--within", "8h", "--as", "ann", "-m", "small", input="y\n")
    assert "granted: grant 1" in said
    listed = cairn("grants", "list")
    assert "grant 1: live, for 7 h 59 min more, used 0 of 2, made by ann" in listed
    assert "why: small" in listed
    cairn("run", "a", "go", "--id", "r2")
    assert effects() == ["pay 7 100 cash"]
    assert "by grant 1" in cairn("trace", "r2")
    assert "grant 1 is revoked" in cairn("grants", "revoke", "1", "--as", "bob")
    assert "grant 1 had ended before" in cairn("grants", "revoke", "1")
    assert cairn("grants", "list") == ""
    (found,) = map(json.loads, cairn("grants", "list", "--all", "--json").splitlines())
    assert (found["stands"], found["users"], found["revoked_by"]) == ("revoked", ["r2/c1"], "bob")
    cairn("run", "a", "go", "--id", "r3", code=5)


@pytest.mark.slow
def test_the_list_says_how_often_a_grant_without_a_bound_was_used(cairn):
    cairn("grants", "add", "pay", "--yes", "--as", "ann")
    assert "grant 1: live, used 0 in the last 0 runs, made by ann" in cairn("grants", "list")
    for run in ("r1", "r2"):
        cairn("run", "a", "go", "--id", run)
    assert "grant 1: live, used 2 in the last 2 runs, made by ann" in cairn("grants", "list")
    (found,) = map(json.loads, cairn("grants", "list", "--json").splitlines())
    assert (found["used"], found["users"]) == (2, [])


def test_a_misspelt_tool_brings_the_nearest_names(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    said = cairn("grants", "add", "pya", "--yes", code=2)
    assert "Did you mean 'pay'?" in said
    words = ("takeover", "r", "-m", "x", "--as", "ann", "--did", "c1", "--result", "x")
    said = cairn(*words, "--call", "pya", "--arguments", "{}", code=2)
    assert "has no tool 'pya'. Did you mean 'pay'?" in said


def test_what_cannot_be_granted_says_why(cairn):
    assert "wipe is dangerous" in cairn("grants", "add", "wipe", "--yes", code=1)
    assert "no agent has a tool 'nothing'" in cairn("grants", "add", "nothing", "--yes", code=2)
    assert "no length of time" in cairn("grants", "add", "pay", "--within", "soon", code=2)
    cairn("run", "a", "go", "--id", "r", code=5)
    assert "there is no grant 4" in cairn("grants", "revoke", "4", code=2)
    cairn.bare()
    assert "needs the application" in cairn("grants", "add", "pay", "--yes", code=2)


# ---------------------------------------------------------------- takeover


@pytest.mark.slow
def test_a_run_is_taken_over_acted_for_and_handed_back(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    assert "say why" in cairn("takeover", "r", "--as", "ann", code=1)
    said = cairn("takeover", "r", "-m", "wrong order", "--as", "ann")
    assert "run r is ann's" in said
    listed = cairn("inbox")
    assert "r/takeover" in listed
    assert "ann acts in the agent's place" in listed
    assert "cairn takeover r --hand-back" in listed
    cairn("takeover", "r", "--as", "ann", "--did", "c1", "--result", "paid at the desk")
    cairn("takeover", "r", "--as", "ann", "--call", "pay", "--arguments", '{"order": "8"}')
    cairn("resume", "r", code=5)
    cairn("approve", "r/2", "--as", "ann")
    cairn("resume", "r", code=5)
    assert effects() == ["pay 8 100 cash"]
    cairn("takeover", "r", "--as", "ann", "--answer", "all is paid")
    assert "all is paid" in cairn("resume", "r")
    trace = cairn("trace", "r")
    assert "done by hand" in trace
    assert "ann" in trace


def test_handing_back_lets_the_agent_go_on_without_an_application(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    cairn.bare()
    cairn("takeover", "r", "-m", "let me see", "--as", "ann", "--did", "c1", "--result", "paid")
    cairn("takeover", "r", "-m", "it is paid", "--as", "ann", "--hand-back")
    assert "takeover" not in cairn("inbox")


def test_an_empty_name_is_refused_and_not_taken_for_the_login(cairn):
    cairn("run", "led", "go", "--id", "r", code=5)
    for empty in ("", "  "):
        said = cairn("approve", "r/1", "--as", empty, "--role", "lead", code=2)
        assert "--by: it is empty" in said
    assert "r/1" in cairn("inbox")
    assert "approved r/1" in cairn("approve", "r/1", "--role", "lead")


def test_options_that_belong_together_are_asked_for_together(cairn):
    assert "belong together" in cairn("takeover", "r", "--did", "c1", code=2)
    assert "belong together" in cairn("takeover", "r", "--call", "pay", code=2)


def test_the_examples_of_the_page_run_as_they_stand(tmp_path, monkeypatch):
    import re

    page = Path(__file__).parents[2] / "docs" / "approvals.md"
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    exec(compile("\n".join(blocks), str(page), "exec"), {})
