"""The ways to a call that lead through the command line, each command a fresh start."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.governance.desk import Desk, path
from typer.testing import CliRunner

APP = """
import os
from pathlib import Path
from cairn import Agent, Deny, ErrorClass, ModelError, Policy, Runtime, Scripted, before_tool
from cairn import call, tool
from cairn.core.policy import Rule
from cairn.engine.clock import SystemClock
from cairn.errors import Unsure

class Earlier(SystemClock):  # what was begun an hour ago is not at work any more
    def now_us(self):
        return super().now_us() - 3_600_000_000

@tool(effect="write")
def pay(order: str = "7") -> str:
    with Path("done.txt").open("a") as file:
        file.write(order + "\\n")
    if order == "unsure":
        raise Unsure("the line went dead")
    return "paid"

policies = {
    "open": Policy(effects={"write": "allow"}),
    "asking": Policy(),
    "closed": Policy(rules=(Rule(name="closed", decide="deny", tools=("pay",)),)),
}
scripts = {
    "a": [call("pay"), "done"],
    "unsure": [call("pay", order="unsure"), "done"],
    "asks": [call("ask_user", question="now?"), call("pay"), "done"],
    "fails": [ModelError(ErrorClass.AUTH, "no"), call("pay"), "done"],
}
hooks = []
if os.environ["SHOP"] == "closed" and os.environ["BY_HOOK"]:
    @before_tool(tools=["pay"])
    def closed(call):
        return Deny("it is closed")

    hooks, policies["closed"] = [closed], policies["open"]
rt = Runtime(
    "shop.db",
    [Agent(name, Scripted(script), tools=[pay]) for name, script in scripts.items()],
    policy=policies[os.environ["SHOP"]],
    hooks=hooks,
    clock=Earlier() if os.environ["SHOP"] == "open" else None,
)
"""


WELL = (0, 5, 6)
"""Exit codes of a run that is over, waits, or is paused."""


class Shell:
    """The command `cairn` in the folder of an application."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def __call__(
        self, *words: str, shop: str = "closed", input: str | None = None, ends: Any = WELL
    ) -> Any:
        """Run a command under one of the application's policies."""
        from cairn.cli.entry import app

        sys.modules.pop("governed_shop", None)
        env = {"SHOP": shop, "BY_HOOK": "1" if self.desk.hooked else ""}
        found = CliRunner().invoke(app, list(words), input=input, env=env)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        assert found.exit_code in ends, f"{words}: {found.stderr}"
        return found

    def done(self) -> list[str]:
        file = self.desk.folder / "done.txt"
        return file.read_text().split() if file.exists() else []


@contextmanager
def shell(desk: Desk) -> Iterator[Shell]:
    """In the application's folder; what was done there is told to the desk at the end."""
    (desk.folder / "governed_shop.py").write_text(APP, encoding="utf-8")
    before, folder = Path.cwd(), str(desk.folder)
    named = {"CAIRN_APP": "governed_shop:rt", "CAIRN_STORE": "shop.db"}
    os.chdir(folder)
    try:
        with (
            patch.dict(os.environ, named),
            patch.object(sys, "path", [folder, *sys.path]),
            patch.object(sys, "dont_write_bytecode", new=True),
        ):
            cairn = Shell(desk)
            yield cairn
            desk.done += cairn.done()
    finally:
        sys.modules.pop("governed_shop", None)
        os.chdir(before)


@path("cli run")
def cli_run(desk: Desk) -> None:
    with shell(desk) as cairn:
        assert cairn("run", "a", "t").exit_code == 0


@path("cli chat", slow=True)
def cli_chat(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("chat", "a", input="t\n/quit\n")


@path("cli sessions post", slow=True)
def cli_sessions_post(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("sessions", "post", "s", "hello", "--agent", "a")
        cairn("work", "--until-idle")


@path("cli work", slow=True)
def cli_work(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("approve", "r/1", shop="asking")
        cairn("work", "--until-idle")


@path("cli approve", "cli run")
def cli_approve(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("approve", "r/1")
        assert cairn("run", "a", "t", "--id", "r").exit_code == 0


@path("cli approve", slow=True)
def cli_approve_with_a_change(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("approve", "r/1", "--arguments", '{"order": "8"}')
        assert cairn("run", "a", "t", "--id", "r").exit_code == 0


@path("cli edit", slow=True)
def cli_edit(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("edit", "r", "--call", "c1", "--arguments", '{"order": "8"}')
        assert cairn("run", "a", "t", "--id", "r").exit_code == 0


@path("cli resume", slow=True)
def cli_resume(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("pause", "r")
        cairn("approve", "r/1")
        assert cairn("resume", "r").exit_code == 0


@path("cli answer", slow=True)
def cli_answer(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "asks", "t", "--id", "r")
        cairn("answer", "r/1", "yes")
        assert cairn("run", "asks", "t", "--id", "r").exit_code == 0


@path("cli retry", slow=True)
def cli_retry(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "fails", "t", "--id", "r", shop="open", ends=(1,))
        assert cairn("retry", "r").exit_code == 0


@path("cli fork", slow=True)
def cli_fork(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        assert cairn("fork", "r", "--at", "1").exit_code == 0


@path("cli takeover", slow=True)
def cli_takeover(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="asking")
        cairn("takeover", "r", "-m", "by hand", "--did", "c1", "--result", "paid", "--as", "ann")
        cairn("takeover", "r", "--call", "pay", "--arguments", "{}", "--as", "ann")
        cairn("run", "a", "t", "--id", "r")


@path("cli resolve", slow=True)
def cli_resolve(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "unsure", "t", "--id", "r", shop="open")
        assert cairn.done() == ["unsure"]
        (desk.folder / "done.txt").unlink()
        cairn("resolve", "r/c1", "--not-happened")
        cairn("run", "unsure", "t", "--id", "r")


@path("cli grants add", slow=True)
def cli_grants(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("grants", "add", "pay", "--uses", "2", "--yes", shop="asking", ends=(0,))
        assert cairn("run", "a", "t", "--id", "r").exit_code == 0


@path("cli replay", slow=True)
def cli_replay(desk: Desk) -> None:
    with shell(desk) as cairn:
        cairn("run", "a", "t", "--id", "r", shop="open")
        assert cairn.done() == ["7"]
        (desk.folder / "done.txt").unlink()
        desk.told = cairn("replay", "r", ends=(0, 1)).output
