"""What the store's tests share: real processes, and the contract's assertions rewritten."""

import subprocess
import sys

import pytest

for part in ("journals", "claims", "commands", "lists", "retention", "story"):
    pytest.register_assert_rewrite(f"cairn.testing.store_{part}")


@pytest.fixture
def spawn():
    """Starts Python programs as processes of their own; none outlives the test."""
    started = []

    def start(program, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
