"""`doctor`: it looks at everything, makes nothing, and exits 1 exactly when something is wrong."""

import struct
from pathlib import Path

import pytest
from tests.cli.conftest import Cairn, Said


def line(said: Said, what: str) -> str:
    return next(x for x in said.out.splitlines() if f"· {what} ·" in x)


def test_a_sound_machine_store_and_application_are_all_ok(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    said = cairn("doctor")
    assert said.code == 0, said
    assert "problem" not in said.out
    for what in ("python", "sqlite", "filesystem", "disk", "store", "file mode", "file", "app"):
        assert line(said, what).startswith("ok"), what
    assert "0600" in line(said, "file mode")
    assert "journal mode wal" in line(said, "file")
    assert "1 waiting; 0 driven now" in line(said, "runs")
    assert "1 wait for people: cairn inbox" in line(said, "inbox")
    assert "refund (write)" in line(said, "agent shop")


def test_a_store_that_is_not_there_yet_is_no_problem_and_is_not_made(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("doctor")
    assert said.code == 0
    assert line(said, "store").startswith("note")
    assert [p.name for p in desk.iterdir()] == ["desk.py"]


def test_a_store_that_was_named_must_be_there(cairn: Cairn) -> None:
    assert cairn("doctor", "--store", "nowhere.db").code == 1


def test_a_file_that_others_can_read_is_a_problem(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    (desk / "desk.db").chmod(0o644)
    said = cairn("doctor")
    assert said.code == 1
    assert "chmod 600 desk.db" in line(said, "file mode")


def test_a_file_that_is_no_store_is_a_problem(cairn: Cairn, desk: Path) -> None:
    (desk / "other.db").write_text("not a database, only some text of sufficient length" * 9)
    (desk / "other.db").chmod(0o600)
    said = cairn("doctor", "--store", "other.db")
    assert said.code == 1
    assert "is not a store" in said.out


def test_a_store_of_a_newer_cairn_is_a_problem_for_every_command(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    with (desk / "desk.db").open("r+b") as file:
        file.seek(60)
        file.write(struct.pack(">i", 99))
    said = cairn("doctor")
    assert said.code == 1
    assert "this Cairn knows" in said.out
    assert cairn("runs").code == 1


def test_runs_that_nobody_drives_are_named(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("approve", "a/1")
    said = cairn("doctor")
    assert said.code == 0
    assert "1 could go on and nobody drives them: a" in said.out


def test_a_broken_application_or_agent_is_a_problem(cairn: Cairn, desk: Path) -> None:
    (desk / "bad.py").write_text("raise RuntimeError('no database password')\n")
    said = cairn("doctor", "--app", "bad:rt")
    assert said.code == 1
    assert "no database password" in line(said, "app")
    (desk / "odd.py").write_text(
        "import cairn\nrt = cairn.Runtime('odd.db', agents=[cairn.Agent('a', 'nobody:m')])\n"
    )
    said = cairn("doctor", "--app", "odd:rt")
    assert said.code == 1
    assert "there is no provider 'nobody'" in said.out
    (desk / "empty.py").write_text("import cairn\nrt = cairn.Runtime('odd.db')\n")
    assert cairn("doctor", "--app", "empty:rt").code == 1


def test_a_damaged_file_is_a_problem_and_no_traceback(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    content = (desk / "desk.db").read_bytes()
    (desk / "desk.db").write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    said = cairn("doctor", "--store", "desk.db")
    assert said.code == 1
    assert "problem · store · desk.db is damaged" in " ".join(said.out.split())
