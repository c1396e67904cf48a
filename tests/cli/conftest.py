"""A small application in a folder of its own, and the command line over it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

SRC = Path(__file__).parents[2] / "src"
APP = Path(__file__).with_name("desk_app.txt")


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


Cairn = Callable[..., Said]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the application `desk:rt` on the store desk.db, named by CAIRN_APP."""
    (tmp_path / "desk.py").write_text(APP.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_APP", "desk:rt")
    monkeypatch.setenv("CAIRN_STORE", "desk.db")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget(tmp_path)


def forget(folder: Path) -> None:
    """Have the modules of a folder imported anew, as a new process would."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def cairn(desk: Path) -> Cairn:
    """Run a command in this process; each call is a fresh start of the application."""
    from cairn.cli.entry import app

    def run(*words: str, input: str | None = None, **env: str) -> Said:
        forget(desk)
        result = CliRunner().invoke(app, list(words), input=input, env=env or None)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


class Process:
    """A command in a process of its own."""

    def __init__(self, *words: str, **env: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cairn", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1", **env},
        )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def stop_reading(self) -> None:
        """Close our end of its standard output."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdout = None

    def end(self, timeout: float = 20) -> Said:
        out, err = self._process.communicate(timeout=timeout)
        return Said(self._process.returncode, out, err)

    @property
    def running(self) -> bool:
        return self._process.poll() is None


@pytest.fixture
def process(desk: Path) -> Iterator[Callable[..., Process]]:
    """Start commands in processes of their own; what still runs at the end is killed."""
    started: list[Process] = []

    def start(*words: str, **env: str) -> Process:
        started.append(Process(*words, **env))
        return started[-1]

    yield start
    for each in started:
        if each.running:
            each.kill()


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 15) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"it never came: {what}"
        time.sleep(0.02)
