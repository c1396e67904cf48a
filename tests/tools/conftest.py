"""What the tests of the tools room share: patient waiting, and a question to a lock file."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait until something is true; only a broken promise takes the ten seconds."""

    def wait(true: Callable[[], object]) -> None:
        give_up = time.monotonic() + 10
        while not true():
            assert time.monotonic() < give_up, "it never came true"
            time.sleep(0.005)

    return wait


@pytest.fixture
def is_free() -> Callable[[Path], bool]:
    """Ask as the store does: can the lock be had alone?"""

    def ask(path: Path) -> bool:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    return ask
