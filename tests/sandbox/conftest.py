"""What the tests of the sandbox share: the rungs of this machine, and commands behind them."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cairn.sandbox import Ended, Limits, Rung, Sandbox, probe
from cairn.tools.context import Context

FAST = Limits(wall_s=15.0)


class Told(NamedTuple):
    """What a command printed, and how it ended."""

    stdout: str
    ended: Ended


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `rung` runs on every rung this machine reaches.

    What is the same supervisor on each rung is tried on the strongest in the fast suite, and on
    the others in the slow one. A rung out of reach is told by test_ladder.py.
    """
    if "rung" in metafunc.fixturenames:
        rungs = reached()
        alike = metafunc.module.__name__.endswith("test_bounds")
        later = [
            pytest.param(each, marks=pytest.mark.slow) if alike else each for each in rungs[1:]
        ]
        metafunc.parametrize("rung", [*rungs[:1], *later])


def reached() -> list[Rung]:
    return [each.rung for each in probe() if each.reached]


def behind(
    rung: Rung,
    argv: list[str],
    workspace: Path | None,
    *,
    limits: Limits = FAST,
    lock: Path | None = None,
    stdin: bytes | None = None,
    context: Context[Any] | None = None,
    **more: Any,
) -> Told:
    """Run a command as the tools do."""
    sandbox = Sandbox(rung, limits=limits, **more)
    launch = sandbox.prepare(argv, workspace=workspace, stdin=stdin)
    context = context or Context(lock_path=str(lock or ""))
    done = context.run(
        launch.argv,
        input=launch.input,
        env=launch.env,
        cwd=launch.cwd,
        max_output=limits.output_bytes,
    )
    return Told(done.stdout, launch.read(done.returncode, done.stderr))


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "workspace").mkdir()
        yield Path(folder) / "workspace"


@pytest.fixture
def shell(rung: Rung, workspace: Path) -> Callable[..., Told]:
    """Run a shell command in the workspace."""
    return lambda command, **more: behind(rung, ["/bin/sh", "-c", command], workspace, **more)


@pytest.fixture
def code(rung: Rung, workspace: Path) -> Callable[..., Told]:
    """Run Python code in the workspace."""
    python = Sandbox(rung).python(workspace)
    return lambda text, **more: behind(rung, [python, "-I", "-S", "-c", text], workspace, **more)


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
