"""The stage of the demo: a folder, the processes that work in it, and what was checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from cairn import Runtime

HERE = Path(__file__).resolve().parent
PACE_S = 1.0
PATIENCE_S = 30.0
OPEN = {"tool.started": "started", "tool.unknown": "unknown"}
CLOSED = {"tool.completed", "tool.failed", "tool.rejected", "tool.resolved"}

console = Console(highlight=False, soft_wrap=True)


class Demo:
    """A folder, the processes that work in it, and what was checked.

    Args:
        home: The folder.
        model: `provider:name` of a real model; empty for the script.
        patience_s: How long a process may take.
    """

    def __init__(self, home: Path, model: str = "", patience_s: float = PATIENCE_S) -> None:
        self.home = home
        self.log = home / "effects.jsonl"
        self.store = home / "cairn.db"
        self.patience_s = patience_s
        self.env = {
            **os.environ,
            "TICKETS_HOME": str(home),
            "TICKETS_PACE": str(PACE_S),
            "TICKETS_MODEL": model,
            "CAIRN_STORE": str(self.store),
            "COLUMNS": "92",
        }
        self.checks: list[tuple[str, bool]] = []
        self.chapters = 0

    # ------------------------------------------------------------ telling

    def chapter(self, title: str, *text: str) -> None:
        self.chapters += 1
        console.print(f"\n[bold cyan]{self.chapters}. {escape(title)}[/]")
        for line in text:
            console.print(escape(line))

    def show(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            console.print(f"   [dim]|[/] {escape(line)}")

    def check(self, what: str, holds: bool) -> None:
        self.checks.append((what, holds))
        mark = "[green]ok[/]" if holds else "[bold red]NOT SO[/]"
        console.print(f"   {mark}  {escape(what)}")

    # ------------------------------------------------------------ processes

    def start(self, *args: str) -> subprocess.Popen[str]:
        console.print(f"   [dim]$[/] python examples/tickets/app.py {' '.join(args)}".rstrip())
        return subprocess.Popen(
            [sys.executable, str(HERE / "app.py"), *args],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def finish(self, process: subprocess.Popen[str]) -> int:
        out, _ = process.communicate(timeout=self.patience_s)
        self.show(out)
        console.print(f"   [dim]exit code {process.returncode}[/]")
        return process.returncode

    def kill_when(self, process: subprocess.Popen[str], reached: Callable[[], bool]) -> bool:
        """SIGKILL the process as soon as something is so; whether it was alive until then."""
        deadline = time.monotonic() + self.patience_s
        while not reached():
            if process.poll() is not None or time.monotonic() > deadline:
                self.show(process.communicate()[0])
                return False
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        console.print(f"   [bold red]SIGKILL[/] process {process.pid}: no clean-up, no goodbye")
        return process.returncode == -signal.SIGKILL

    def cairn(self, *args: str) -> tuple[int, str]:
        """Run the command line in a process of its own and show what it prints."""
        console.print(f"   [dim]$[/] cairn {' '.join(args)}")
        done = subprocess.run(
            [sys.executable, "-c", "from cairn.cli import main; main()", *args],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=self.patience_s,
            check=False,
        )
        self.show(done.stdout)
        return done.returncode, done.stdout

    # ------------------------------------------------------------ what is known

    def lines(self) -> list[dict[str, Any]]:
        """What really happened, as the tools and the script wrote it down."""
        if not self.log.exists():
            return []
        whole = self.log.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def did(self) -> Counter[str]:
        """The same, counted; replies by ticket."""
        return Counter(
            f"write_reply {line['ticket']}" if line["did"] == "write_reply" else line["did"]
            for line in self.lines()
        )

    def journal(self, run: str) -> list[Any]:
        with Runtime(self.store) as rt:
            return rt.trace(run)

    def open_calls(self, run: str) -> dict[str, str]:
        """Calls that were started and have no outcome yet, as the journal has it."""
        found: dict[str, str] = {}
        names: dict[str, str] = {}
        for entry in self.journal(run):
            event = entry.event
            if event.NAME == "model.completed":
                names.update({p.id: p.name for p in event.parts if hasattr(p, "arguments")})
            elif event.NAME in OPEN:
                found[event.call] = f"{names[event.call]} ({event.call}): {OPEN[event.NAME]}"
            elif event.NAME in CLOSED:
                found.pop(event.call, None)
        return found
