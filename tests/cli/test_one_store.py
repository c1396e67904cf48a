"""All commands find the store in one way: of a name, of the environment, of the application."""

import shutil
import sys
from pathlib import Path

import pytest
import typer
from tests.cli.conftest import APP, SRC, Cairn, Said, forget
from typer.main import get_group
from typer.testing import CliRunner

from cairn.cli.entry import app

WORDS: dict[str, tuple[str, ...]] = {
    "run": ("quick", "go", "--id", "late"),
    "chat": ("quick",),
    "runs": (),
    "trace": ("done",),
    "inbox": (),
    "replay": ("done",),
    "approve": ("shop/1",),
    "deny": ("shop/1",),
    "answer": ("asker/1", "This one."),
    "resolve": ("unsure/c1", "--happened"),
    "pause": ("shop",),
    "resume": ("done",),
    "cancel": ("shop",),
    "retry": ("broken",),
    "edit": ("shop", "-m", "hurry"),
    "takeover": ("shop", "-m", "let me"),
    "fork": ("shop", "--at", "1", "--no-drive"),
    "work": ("--until-idle",),
    "budgets": (),
    "audit": ("--run", "done"),
    "export": ("done",),
    "verify": ("done",),
    "prune": ("--older-than", "0s"),
    "erase": ("--principal", "nobody", "--yes"),
    "backup": ("copy.db",),
    "doctor": (),
    "context show": ("done", "1"),
    "context undo": ("shop",),
    "grants list": ("--all",),
    "grants add": ("refund", "--yes"),
    "grants revoke": ("1",),
    "policy explain": ("done/c1",),
    "policy test": ("policy.yaml",),
    "memory list": (),
    "memory search": ("anything",),
    "sessions list": (),
}
"""Words with which each command does something in a store where these runs are."""
NEED_NONE = {
    *("models", "policy check", "mcp serve", "mcp tools", "skills list", "skills check"),
    *("workspace list", "workspace diff"),
}
"""Commands that look at no run; `mcp serve` works until it is ended."""
ALIKE = {"memory", "sessions"}
"""Groups whose commands have one way in, so that one of them stands for all."""
ENDS = {"retry": 1, "fork": 5, "context undo": 1, "erase": 1}
"""Exit codes that are not 0 though the store was found."""


def names(group: typer.core.TyperGroup, *before: str) -> set[str]:
    found: set[str] = set()
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found |= names(command, *before, name) if inner else {" ".join((*before, name))}  # type: ignore[arg-type]  # it has commands
    return found


def test_the_table_names_every_command() -> None:
    found = names(get_group(app))
    alike = {name for name in found if name.partition(" ")[0] in ALIKE}
    assert set(WORDS) | NEED_NONE | alike == found


def test_no_command_opens_a_store_by_itself() -> None:
    for file in (SRC / "cairn" / "cli").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "open_store(" not in text or file.name == "place.py", file.name
        assert "inspect_store(" not in text or file.name == "inspecting.py", file.name


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs of every kind, filled once and copied for each test."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "desk.py").write_text(APP.read_text(encoding="utf-8"), encoding="utf-8")
    fill = [("run", agent, "go", "--id", agent) for agent in ("shop", "asker", "unsure", "broken")]
    fill += [("run", "shop", "go", "--id", "done"), ("approve", "unsure/1", "done/1")]
    fill += [("resume", "unsure"), ("resume", "done"), ("grants", "add", "refund", "--yes")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("CAIRN_APP", "desk:rt")
        patch.setenv("CAIRN_STORE", "desk.db")
        for words in fill:
            forget(folder)
            assert CliRunner().invoke(app, list(words)).exit_code in {0, 1, 5}
        CliRunner().invoke(app, ["backup", "whole.db"])
        forget(folder)
    return folder / "whole.db"


MISSING = ("no run", "no store", "no request", "no call", "no grant", "no agent", "no such")


def works(said: Said, command: str) -> None:
    for word in MISSING:
        assert word not in said.err, said
    assert "no runs" not in said.out
    assert said.code == ENDS.get(command, 0), said


@pytest.mark.parametrize("command", sorted(WORDS))
def test_every_command_finds_the_store_that_is_the_applications_own(
    cairn: Cairn, desk: Path, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shutil.copy(store, desk / "desk.db")
    monkeypatch.delenv("CAIRN_STORE")
    (desk / "policy.yaml").write_text("version: 1\nrules: []\n")
    works(cairn(*command.split(), *WORDS[command], input=""), command)
    assert not (desk / "cairn.db").exists()


@pytest.mark.parametrize("command", sorted(WORDS))
def test_every_command_takes_a_named_store_before_the_applications(
    cairn: Cairn, desk: Path, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shutil.copy(store, desk / "named.db")
    monkeypatch.setenv("CAIRN_STORE", "named.db")
    (desk / "policy.yaml").write_text("version: 1\nrules: []\n")
    works(cairn(*command.split(), *WORDS[command], input=""), command)


@pytest.mark.parametrize("command", ["inbox", "grants list", "verify"])
def test_an_application_in_the_project_file_brings_its_store_as_well(
    cairn: Cairn, desk: Path, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shutil.copy(store, desk / "desk.db")
    for name in ("CAIRN_STORE", "CAIRN_APP"):
        monkeypatch.delenv(name)
    (desk / "pyproject.toml").write_text('[tool.cairn]\napp = "desk:rt"\n')
    works(cairn(*command.split(), *WORDS[command]), command)


def test_an_application_on_the_named_store_keeps_the_options_it_was_made_with(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cairn.cli.place import locate, open_app

    (desk / "quickly.py").write_text(
        "import cairn\nagent = cairn.Agent('a', cairn.Scripted(['x']))\n"
        "rt = cairn.Runtime('quick.db', agents=[agent], durability='process')\n"
    )
    monkeypatch.setenv("CAIRN_STORE", "./quick.db")
    runtime = open_app(locate("", "quickly:rt"))
    assert runtime.store.settings.durability == "process"  # type: ignore[attr-defined]  # it is SQLite
    runtime.close()
