"""Runs the tests in two processes at once, for two cores: `python tests/side_by_side.py fast`.

The folders are dealt out in the shares below. Who is done with one takes the next, so that both are
busy to the end on any machine; what takes longest stands first, what is short and evens out stands
last. What the first process says is shown as it comes, then what the second said. The last line
counts all together.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REST = ""
"""The share of all folders that no other share names."""
SHARES = {
    "fast": ("cli engine testing", REST, "core context", "models docs examples"),
    "slow": ("testing", "kill", REST, "cli examples", "models", "reliability store"),
}
EXPRESSIONS = {
    "fast": "not slow and not kill and not campaign",
    "slow": "(slow or kill) and not campaign",
}
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b")
NOTHING_COLLECTED = 5


def paths(which: str, share: str) -> list[str]:
    """What pytest is told of the folders of a share."""
    if share != REST:
        return [f"tests/{name}" for name in share.split()]
    named = " ".join(SHARES[which]).split()
    return ["tests", *(f"--ignore=tests/{name}" for name in named)]


def counts(said: str) -> Counter[str]:
    """What pytest's last line counts."""
    lines = [line for line in said.splitlines() if re.search(r" in [\d.]+s", line)]
    found = COUNT.findall(lines[-1]) if lines else []
    return Counter({word: int(number) for number, word in found})


class Side:
    """One process after the other, as long as there are shares; what they said and returned."""

    def __init__(self, which: str, shares: deque[str], *, shown: bool) -> None:
        self.which = which
        self.shares = shares
        self.shown = shown
        self.said: list[str] = []
        self.codes: set[int] = set()

    def run(self) -> None:
        """Take shares until none is left."""
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", EXPRESSIONS[self.which]]
        while True:
            try:
                share = self.shares.popleft()
            except IndexError:
                return
            said = ""
            with subprocess.Popen(
                [*pytest, *paths(self.which, share)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            ) as process:
                for line in process.stdout or ():
                    said += line
                    if self.shown:
                        print(line, end="", flush=True)
            self.said.append(said)
            self.codes.add(process.returncode)


def main() -> int:
    """Run all shares; 1 if one of them is not green."""
    which = sys.argv[1]
    began = time.monotonic()
    shares = deque(SHARES[which])
    first, second = Side(which, shares, shown=True), Side(which, shares, shown=False)
    beside = threading.Thread(target=second.run, daemon=True)
    beside.start()
    first.run()
    beside.join()
    print(*second.said, sep="\n")
    total = sum(map(counts, [*first.said, *second.said]), Counter())
    told = ", ".join(f"{total[word]} {word}" for word in sorted(total, key=lambda w: w != "failed"))
    print(f"{told} in {time.monotonic() - began:.2f}s")
    whole = len(first.said) + len(second.said) == len(SHARES[which])
    return int(not whole or bool((first.codes | second.codes) - {0, NOTHING_COLLECTED}))


if __name__ == "__main__":
    sys.exit(main())
