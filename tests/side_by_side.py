"""Runs the tests in two processes at once, for two cores: `python tests/side_by_side.py fast`.

The first part of the folders named below is one process, all others are the second. What the first
says is shown as it comes, then what the second said. The last line counts both together.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = {
    "fast": "models cli engine docs examples packaging typing",
    "slow": "testing store reliability secrets mcp core policy workspace",
}
EXPRESSIONS = {
    "fast": "not slow and not kill and not campaign",
    "slow": "(slow or kill) and not campaign",
}
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b")
NOTHING_COLLECTED = 5


def command(which: str, *paths: str) -> list[str]:
    """One of the two runs of pytest."""
    return [sys.executable, "-m", "pytest", "-q", "-m", EXPRESSIONS[which], *paths]


def counts(said: str) -> Counter[str]:
    """What pytest's last line counts."""
    lines = [line for line in said.splitlines() if re.search(r" in [\d.]+s", line)]
    found = COUNT.findall(lines[-1]) if lines else []
    return Counter({word: int(number) for number, word in found})


def main() -> int:
    """Run both; 1 if one of them is not green."""
    which = sys.argv[1]
    folders = [f"tests/{name}" for name in FIRST[which].split()]
    began = time.monotonic()
    rest = command(which, "tests", *(f"--ignore={folder}" for folder in folders))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as kept:
        second = subprocess.Popen(rest, cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        with subprocess.Popen(
            command(which, *folders),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as first:
            said = ""
            for line in first.stdout or ():
                said += line
                print(line, end="", flush=True)
        second.wait()
        kept.seek(0)
        other = kept.read()
    print(other)
    total = counts(said) + counts(other)
    told = ", ".join(f"{total[word]} {word}" for word in sorted(total, key=lambda w: w != "failed"))
    print(f"{told} in {time.monotonic() - began:.2f}s")
    return int(bool({first.returncode, second.returncode} - {0, NOTHING_COLLECTED}))


if __name__ == "__main__":
    sys.exit(main())
