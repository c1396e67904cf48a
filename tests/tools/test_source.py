"""The version of an application is its code, not the way its file was started."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.tools.source import Sources

APPLICATION = """
from pydantic import BaseModel

from cairn import NOT_HAPPENED, Agent, Policy, Scripted, tool
from cairn.crew import prepare


class Receipt(BaseModel):
    total: int


def is_there(order: str):
    return NOT_HAPPENED


@tool(effect="write", recovery="probe", probe=is_there, conflict_key=lambda given: given["order"])
def refund(order: str) -> str:
    \"\"\"Pay back.\"\"\"
    return order


def checked(answer):
    return answer.output.total > 0


def told(briefing):
    return "Be kind."


class Mine(Policy):
    def spoken(self, intent):
        return super().spoken(intent)


agent = Agent(
    "shop",
    Scripted(["done"]),
    tools=[refund],
    instructions=told,
    output_type=Receipt,
    completion_checks=[checked],
)


def show():
    print(prepare(agent, Mine()).fingerprint)


if __name__ == "__main__":
    show()
"""


@pytest.fixture
def fingerprint(tmp_path: Path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shop.py").write_text(APPLICATION)

    def ask(*argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Fingerprint(")
        return done.stdout

    return ask


def test_a_file_that_is_run_is_the_same_version_as_one_that_is_imported(fingerprint) -> None:
    imported = fingerprint("-c", "import pkg.shop; pkg.shop.show()")
    assert fingerprint("pkg/shop.py") == imported
    assert fingerprint("-m", "pkg.shop") == imported
    alone = "import sys; sys.path.insert(0, 'pkg'); import shop; shop.show()"
    assert fingerprint("-c", alone) == imported


def test_a_file_that_says_something_else_is_another_version(fingerprint, tmp_path: Path) -> None:
    before = fingerprint("pkg/shop.py")
    file = tmp_path / "pkg" / "shop.py"
    file.write_text(file.read_text().replace("    return order\n", "    return order.strip()\n"))
    assert fingerprint("pkg/shop.py") != before


def test_a_module_of_ones_own_that_is_called_like_cairn_is_read_all_the_same(
    fingerprint, tmp_path: Path
) -> None:
    (tmp_path / "pkg" / "cairn.py").write_text(APPLICATION)
    show = ("-c", "import pkg.cairn; pkg.cairn.show()")
    before = fingerprint(*show)
    file = tmp_path / "pkg" / "cairn.py"
    file.write_text(file.read_text().replace("    return order\n", "    return order.strip()\n"))
    assert fingerprint(*show) != before


@pytest.mark.parametrize("written", ["x = (\n", 'x = """\n', 'x = "\n', "it isn't\n", "0b2\n"])
@pytest.mark.parametrize("what", ["def f():\n    return 1\n", "class f:\n    x = 1\n"])
def test_a_file_that_is_no_python_any_more_is_named_and_stops_nothing(
    tmp_path: Path, monkeypatch, what: str, written: str
) -> None:
    file = tmp_path / "edited.py"
    file.write_text(what)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "edited", raising=False)
    imported = importlib.import_module("edited").f
    file.write_text(written)
    sources = Sources()
    said = sources.read(imported)
    # Python 3.11 finds a function in some lines that newer ones cannot read.
    found = f"edited.f\n{written}"
    assert (said, sources.unread) in [("edited.f", ["edited.f"]), (found, [])]
