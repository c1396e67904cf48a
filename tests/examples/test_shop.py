"""The shop example, in real processes: three executions, effects counted outside."""

import subprocess
import sys
from pathlib import Path

import pytest

from cairn import Runtime

ROOT = Path(__file__).resolve().parents[2]
SHOP = ROOT / "examples" / "shop" / "shop.py"
COUNTING = """
import runpy, sys
from cairn.models import scripted
asked = scripted.Scripted.request
async def request(self, request, on_delta=None):
    with open("asked.txt", "a") as file:
        file.write(f"{request.turn}\\n")
    return await asked(self, request, on_delta)
scripted.Scripted.request = request
runpy.run_path(sys.argv[1], run_name="__main__")
"""

pytestmark = pytest.mark.slow


def execute(folder: Path) -> list[str]:
    """Run shop.py in a process of its own, with its model requests counted in a file."""
    argv = [sys.executable, "-c", COUNTING, str(SHOP)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def cairn(folder: Path, *args: str) -> str:
    argv = [sys.executable, "-c", "from cairn.cli import main; main()", *args]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def count(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_three_executions_pay_once_and_ask_the_model_twice(tmp_path: Path) -> None:
    first = execute(tmp_path)
    assert first[0] == "waiting"
    assert "cairn approve order-7/1" in first[-1]
    assert (count(tmp_path, "payments.txt"), count(tmp_path, "asked.txt")) == (0, 1)

    again = execute(tmp_path)
    assert again == first
    assert (count(tmp_path, "payments.txt"), count(tmp_path, "asked.txt")) == (0, 1)

    cairn(tmp_path, "approve", "order-7/1", "--by", "lead")
    second = execute(tmp_path)
    assert second == ["completed", "Order 7: 4 euros were paid back."]
    assert (count(tmp_path, "payments.txt"), count(tmp_path, "asked.txt")) == (1, 2)

    third = execute(tmp_path)
    assert third == second
    assert (count(tmp_path, "payments.txt"), count(tmp_path, "asked.txt")) == (1, 2)
    assert (tmp_path / "payments.txt").read_text() == "order 7: 400 cents\n"


def test_the_decision_needs_no_code_and_is_kept_with_who_took_it(tmp_path: Path) -> None:
    execute(tmp_path)
    assert "order-7/1" in cairn(tmp_path, "inbox")
    cairn(tmp_path, "approve", "order-7/1", "--by", "lead")
    with Runtime(tmp_path / "cairn.db") as rt:
        (granted,) = [e for e in rt.trace("order-7") if e.event.NAME == "approval.granted"]
    assert granted.actor == "lead"
