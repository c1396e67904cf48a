"""A store with runs in which people and rules decide, and the commands that look at it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import typer
from typer.testing import CliRunner

from cairn import Agent, Budget, Price, Runtime, Scripted, Usage, call, tool
from cairn.cli import audit_command, budgets_command, keep_commands
from cairn.cli.entry import Commands


class Said:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


Command = Callable[..., Said]


@pytest.fixture
def cairn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run one of the commands on the store `cairn.db` of the test's folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("CAIRN_APP", "CAIRN_STORE"):
        monkeypatch.delenv(name, raising=False)
    app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None)
    for command in (
        audit_command.audit,
        budgets_command.budgets,
        keep_commands.verify,
        keep_commands.export,
    ):
        app.command()(command)

    def run(*words: str) -> Said:
        result = CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


@tool(effect="write")
def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents} cents for {order}"


@tool(effect="read")
def look(what: str = "") -> str:
    """Look something up."""
    return "seen"


def runtime(path: Path, script: list[Any], **options: Any) -> Runtime:
    """A runtime with the agent `shop`, which follows a script."""
    model = Scripted(
        script,
        usage=Usage(input_tokens=100),
        price=Price(input=1_000_000, output=1_000_000),
        max_output=1_000,
    )
    return Runtime(path, agents=[Agent("shop", model, tools=[refund, look])], **options)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three runs: `granted`, `denied` and `stopped`, and a fork, `again`."""
    path = tmp_path_factory.mktemp("written") / "cairn.db"
    asks = [[call("refund", order="7", cents=400), call("look", what="7")], "done"]
    with runtime(path, asks, budgets=[Budget(per="principal", window="month", calls=3)]) as rt:
        rt.run("shop", "go", id="granted", principal="ann")
        rt.approve("granted/1", "fine", by="ada")
        rt.resume("granted")
        rt.run("shop", "go", id="denied", principal="bob")
        rt.deny("denied/1", '=HYPERLINK("http://evil","x")', by="eve")
        rt.resume("denied")
        rt.fork("denied", at=5, id="again", drive=False)
        rt.run("shop", "go", id="stopped", principal="ann")
        rt.approve("stopped/1", by="ada")
        rt.resume("stopped")
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy of that store, to be done with as one likes."""
    shutil.copy(written, tmp_path / "cairn.db")
    return tmp_path / "cairn.db"


def sql(path: Path, *statements: str) -> None:
    """Change the file behind Cairn's back."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
