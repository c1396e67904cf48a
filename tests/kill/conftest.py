"""The machinery of the kill tests: real processes on a real file, and what they left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 25.0


class Zygote:
    """Starts processes and knows how each has ended."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", "tests.kill.zygote"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._news = threading.Condition()
        self._jobs = 0
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            said = json.loads(line)
            with self._news:
                if "started" in said:
                    self._pids[said["job"]] = said["started"]
                else:
                    self._ended[said["job"]] = said["ended"]
                self._news.notify_all()

    def start(self, job: dict[str, Any]) -> "Started":
        with self._news:
            number = self._jobs
            self._jobs += 1
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            assert self._news.wait_for(lambda: number in self._pids, PATIENCE_S)
            return Started(self, number, self._pids[number], Path(job["result"]))

    def wait(self, number: int, patience_s: float = PATIENCE_S) -> int:
        with self._news:
            assert self._news.wait_for(lambda: number in self._ended, patience_s), "it does not end"
            return self._ended[number]

    def signal(self, number: int, what: signal.Signals) -> None:
        """Raises ProcessLookupError for one that has ended: its id may be another's by now."""
        with self._news:
            if number in self._ended:
                raise ProcessLookupError(f"job {number} has ended with {self._ended[number]}")
            os.kill(self._pids[number], what)

    def close(self) -> None:
        for number in set(self._pids) - set(self._ended):
            with contextlib.suppress(ProcessLookupError):
                self.signal(number, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._process.stdout.close()


class Started:
    """A process at work."""

    def __init__(self, zygote: Zygote, number: int, pid: int, path: Path) -> None:
        self._zygote = zygote
        self._number = number
        self._path = path
        self.pid = pid

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        return self._zygote.wait(self._number, patience_s)

    def result(self) -> dict[str, Any]:
        assert self.wait() == 0
        return json.loads(self._path.read_text())

    def signal(self, what: signal.Signals) -> None:
        self._zygote.signal(self._number, what)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL


class Bench:
    """One run on one file, and the processes that drive it."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self._results = 0
        self.folder = folder
        self.store = str(folder / "store.db")
        self.effects = folder / "effects"
        self.effects.touch()

    def job(self, script: str, **more: Any) -> dict[str, Any]:
        self._results += 1
        result = str(self.folder / f"result{self._results}")
        given = {"store": self.store, "effects": str(self.effects), "result": result}
        return {**given, "script": script, **more}

    def start(self, script: str, **more: Any) -> Started:
        return self._zygote.start(self.job(script, **more))

    def run(self, script: str, **more: Any) -> dict[str, Any]:
        """A process that must end by itself; how the run stands."""
        return self.start(script, **more).result()

    def dies(self, script: str, **more: Any) -> None:
        """A process that must die by SIGKILL."""
        assert self.start(script, **more).wait() == -signal.SIGKILL

    @property
    def lines(self) -> list[str]:
        return self.effects.read_text().splitlines()

    def marks(self) -> int:
        """Where the effects file ends now, to look at what came after."""
        return len(self.lines)

    def counts(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.lines)


@pytest.fixture(scope="session")
def zygote():
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def bench(zygote, tmp_path):
    return Bench(zygote, tmp_path)
