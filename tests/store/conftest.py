"""What the store's tests share: real processes."""

import subprocess
import sys

import pytest


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
