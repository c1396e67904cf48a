"""What a shell tells people: whose decision stands, what is left to do, what was not looked at."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cairn.cli import outcome
from cairn.cli.entry import app
from cairn.engine.clock import SystemClock

APP = '''
from pathlib import Path

from cairn import Agent, ApprovalTerms, Runtime, Scripted, call, tool


@tool(effect="write")
def pay(order: str, cents: int = 100) -> str:
    """Pay money."""
    return f"paid {order} {cents}"


@tool(effect="dangerous", binds="script")
def execute(script: str) -> str:
    """Run a script."""
    return "ran"


def agent(name, *calls, **options):
    return Agent(name, Scripted([*calls, "done"]), tools=[pay, execute], **options)


led = ApprovalTerms(roles=("shift lead",), other_person=True, further=(("ops", "dev"),))
rt = Runtime("s.db", agents=[
    agent("a", call("pay", order="7")),
    agent("bound", call("execute", script="deploy.sh")),
    agent("led", call("pay", order="7"), approval=led),
    agent("brief", call("pay", order="7"), approval=ApprovalTerms(expires_in=60)),
])
'''


class InAnHour(SystemClock):
    def now_us(self):
        return super().now_us() + 3_600_000_000


@pytest.fixture
def cairn(tmp_path, monkeypatch):
    module = f"said{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{module}.py").write_text(APP)
    (tmp_path / "deploy.sh").write_text("echo 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_APP", f"{module}:rt")
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(*words, code=0, **env):
        sys.modules.pop(module, None)
        said = CliRunner().invoke(app, [*words], catch_exceptions=False, env=env or None)
        assert said.exit_code == code, f"{said.exit_code}: {said.output} {said.stderr}"
        return said.stdout + said.stderr

    run.bare = lambda: monkeypatch.delenv("CAIRN_APP")
    run.broken = lambda: Path(f"{module}.py").write_text("raise RuntimeError('no')\n")
    return run


def test_a_no_after_a_yes_says_whose_yes_it_is_since_when_and_what_is_left_to_do(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    cairn("approve", "r/1", "--as", "ann")
    said = cairn("deny", "r/1", "--as", "bob", code=1)
    assert "r/1 was already granted: by ann at 20" in said
    assert "cairn takeover r -m WHY stops the agent, cairn cancel r ends the run" in said
    cairn("resume", "r")
    said = cairn("deny", "r/1", "--as", "bob", code=1)
    assert "by ann at 20" in said
    assert "What it asked about is over" in said


def test_a_yes_after_a_no_says_whose_no_it_is(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    cairn("deny", "r/1", "--as", "ann")
    assert "was already denied: by you at 20" in cairn("approve", "r/1", "--as", "ann", code=1)


def test_other_arguments_after_a_plain_yes_are_told_that_it_was_plain(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    cairn("approve", "r/1", "--as", "ann")
    new = ("approve", "r/1", "--as", "bob", "--arguments", '{"order": "8"}')
    said = cairn(*new, code=1)
    assert "r/1 was already granted, as it was asked, not like this: by ann at 20" in said
    assert "with other arguments" not in said
    assert "cairn edit r" in said


def test_a_takeover_from_a_person_names_them(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    cairn("takeover", "r", "-m", "let me", "--as", "ann")
    said = cairn("takeover", "r", "--as", "bob", code=1)
    assert "say why run r is taken over from ann, who has it" in said
    said = cairn("takeover", "r", "-m", "ann is ill", "--as", "bob")
    assert "run r is bob's; ann had it until now" in said


def test_a_run_that_nobody_took_over_is_not_handed_back(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    said = cairn("takeover", "r", "--hand-back", "--as", "ann", code=1)
    assert "nobody has taken run r over: it is the agent's" in said
    assert "ann" not in said


@pytest.mark.parametrize("spelled", ["cat", "touch"])
def test_an_edit_that_changes_nothing_decides_nothing(cairn, tmp_path, spelled):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\n" + ("touch -d tomorrow $1\n" if spelled == "touch" else ""))
    editor.chmod(0o755)
    cairn("run", "a", "go", "--id", "r", code=5)
    said = cairn("approve", "r/1", "--edit", code=1, EDITOR=str(editor), VISUAL="")
    assert "nothing was changed, so nothing was decided: cairn approve r/1" in said
    assert "r/1" in cairn("inbox")


def test_an_editor_that_is_not_there_is_named_with_the_way_around_it(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    said = cairn("approve", "r/1", "--edit", code=2, EDITOR="no-such-editor", VISUAL="")
    assert "cairn: $EDITOR: no-such-editor: No such file or directory" in said
    assert "pass --arguments JSON" in said


def test_files_that_nobody_looked_at_are_spoken_of_where_there_is_no_application(cairn):
    cairn("run", "bound", "go", "--id", "r", code=5)
    cairn("run", "a", "go", "--id", "free", code=5)
    Path("deploy.sh").write_text("echo 2")
    assert "changed since it was asked: deploy.sh" in cairn("approve", "r/1", code=1)
    cairn.bare()
    said = cairn("approve", "r/1")
    assert "whether the files that r/1 is bound to have changed was not looked at here" in said
    assert "--app module:name" in said
    assert "files" not in cairn("approve", "r/1")
    assert "files" not in cairn("approve", "free/1")


def test_files_that_nobody_looked_at_are_spoken_of_where_the_application_is_broken(cairn):
    cairn("run", "bound", "go", "--id", "r", code=5)
    cairn.broken()
    said = cairn("approve", "r/1", "--store", "s.db")
    assert "approved r/1" in said
    assert "was not looked at here (CAIRN_APP: " in said
    assert "cannot be loaded" in said


def test_the_inbox_says_with_which_options_the_terms_let_somebody_decide(cairn):
    cairn("run", "led", "go", "--id", "r", code=5)
    shown = cairn("inbox")
    assert "cairn approve r/1 --role 'shift lead' --role ROLE --as NAME" in shown
    assert "cairn deny r/1 --role 'shift lead' --role ROLE --as NAME -m REASON" in shown
    cairn("approve", "r/1", "--role", "shift lead", "--role", "ops", "--as", "ann")


def test_the_inbox_offers_no_decision_about_what_has_expired(cairn, monkeypatch):
    cairn("run", "brief", "go", "--id", "r", code=5)
    assert "cairn approve r/1" in cairn("inbox")
    monkeypatch.setattr(outcome, "SystemClock", InAnHour)
    shown = cairn("inbox")
    assert "it has expired: nobody can decide it any more" in shown
    assert "cairn resume r" in shown
    assert "cairn approve" not in shown


def test_a_fork_that_is_not_driven_is_gone_on_with_by_the_configured_application(cairn):
    cairn("run", "a", "go", "--id", "r", code=5)
    said = cairn("fork", "r", "--at", "1", "--no-drive", "--id", "f", code=5)
    assert "To go on: cairn resume f, or cairn work, with" in said
    assert "module:name" not in said
    cairn.bare()
    said = cairn("fork", "r", "--at", "1", "--no-drive", "--id", "g", code=5)
    assert "cairn resume g --app module:name" in said
