"""What can only be measured from outside a process: syncs as the kernel sees them, and imports."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row

HERE = Path(__file__).resolve().parent
SYNC = re.compile(r"(?:fsync|fdatasync|sync_file_range)\(\d+<([^>]*)>")


# ---------------------------------------------------------------- syncs


def syncs() -> list[Row]:
    """Syncs of a durable one-call turn: runs of different length, watched by strace."""
    how, count = "counted by strace", _traced
    if _traced(1) is None:
        how, count = "no strace here: counted in SQLite's file layer", _shimmed
    (log_a, rest_a), (log_b, rest_b), (log_c, rest_c) = map(count, (20, 120, 620))  # type: ignore[misc]  # None was dealt with
    long = (log_c + rest_c - log_b - rest_b) / 500
    return [
        Row(
            group="durable",
            what="syncs of a one-call turn",
            value=(log_b + rest_b - log_a - rest_a) / 100,
            unit="",
            bound=2,
            note=f"{how}; {long:.3f} over 500 turns, with what checkpoints add",
        )
    ]


def _traced(turns: int) -> tuple[int, int] | None:
    """Syncs of the log, and of other files, in a run of so many turns; None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        log = Path(folder) / "trace"
        command = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        command += [sys.executable, str(HERE / "sections.py"), "turns", folder, str(turns)]
        done = subprocess.run(command, check=False, capture_output=True, timeout=120)
        if done.returncode or not log.exists():
            return None
        return _sorted_out(SYNC.findall(log.read_text(encoding="utf-8", errors="replace")))


def _shimmed(turns: int) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        command = [sys.executable, str(HERE / "syncs.py"), folder, str(turns)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return _sorted_out(done.stdout.split())


def _sorted_out(paths: list[str]) -> tuple[int, int]:
    log = sum(path.endswith("-wal") for path in paths)
    return log, len(paths) - log


# ---------------------------------------------------------------- what importing costs

IMPORTS = {
    "cairn": "import cairn",
    "names": "from cairn import Agent, Runtime, tool",
    "pydantic": "from pydantic import BaseModel",
}
TIMED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def imports(rounds: int = 9) -> list[Row]:
    """CPU of importing, in fresh interpreters that take turns."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for number in range(rounds + 1):
        for name, statement in IMPORTS.items():
            command = [sys.executable, "-c", TIMED.format(statement)]
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ
            )
            if number:  # the first round writes bytecode
                found[name].append(float(done.stdout))
    medians = {name: statistics.median(values) * 1000 for name, values in found.items()}
    rows: list[Row] = []
    for name, bound in (("cairn", 1.5), ("names", None)):
        pairs = zip(found[name], found["pydantic"], strict=True)
        rows.append(
            Row(
                group="import",
                what=f"CPU of `{IMPORTS[name]}`, to `{IMPORTS['pydantic']}`",
                value=statistics.median(ours / theirs for ours, theirs in pairs),
                unit="x",
                bound=bound,
                note=f"{medians[name]:.1f} ms beside {medians['pydantic']:.1f} ms",
            )
        )
    return rows
