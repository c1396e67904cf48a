"""The machinery of the kill tests: real processes on a real file, and what they left behind."""

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

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.zygote"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._news = threading.Condition()
        self._started: list[int] = []
        self._ended: dict[int, int] = {}
        self._alive: set[int] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            said = json.loads(line)
            with self._news:
                if "started" in said:
                    self._started.append(said["started"])
                    self._alive.add(said["started"])
                else:
                    self._ended[said["ended"]] = said["status"]
                    self._alive.discard(said["ended"])
                self._news.notify_all()

    def start(self, job: dict[str, Any]) -> int:
        with self._news:
            before = len(self._started)
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            assert self._news.wait_for(lambda: len(self._started) > before, PATIENCE_S)
            return self._started[-1]

    def wait(self, pid: int, patience_s: float = PATIENCE_S) -> int:
        with self._news:
            assert self._news.wait_for(lambda: pid in self._ended, patience_s), "it does not end"
            return self._ended[pid]

    def close(self) -> None:
        for pid in list(self._alive):
            os.kill(pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._process.stdout.close()


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

    def start(self, script: str, **more: Any) -> "Started":
        job = self.job(script, **more)
        return Started(self._zygote, self._zygote.start(job), Path(job["result"]))

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


class Started:
    """A process at work."""

    def __init__(self, zygote: Zygote, pid: int, path: Path) -> None:
        self._zygote = zygote
        self._path = path
        self.pid = pid

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        return self._zygote.wait(self.pid, patience_s)

    def result(self) -> dict[str, Any]:
        assert self.wait() == 0
        return json.loads(self._path.read_text())

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL


@pytest.fixture(scope="session")
def zygote():
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def bench(zygote, tmp_path):
    return Bench(zygote, tmp_path)
