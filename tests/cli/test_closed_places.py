"""Where this user may not write, every command says so in a line; none ends in a traceback."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import SRC, Cairn, Said

from cairn.errors import ConfigError
from cairn.store.sqlite import filesystem

NOBODY = 65534
BY_AN_ORDINARY_USER = f"""
import os, sys
from typer.testing import CliRunner
from cairn.cli.entry import app
from cairn import Runtime

folder, mode, *words = sys.argv[1:]
if os.getuid() == 0:  # load all that is needed while it can still be read, then step down
    os.chmod(folder, 0o755)
    CliRunner().invoke(app, words if words[0] != "open" else ["runs", "--store", "fine/x.db"])
    os.setgroups([])
    os.setgid({NOBODY})
    os.chown(folder, {NOBODY}, {NOBODY})
    os.setuid({NOBODY})
os.chmod(folder, int(mode, 8))
if words[0] == "open":
    try:
        Runtime(words[1])
    except Exception as error:
        print(type(error).__name__, getattr(error, "field", ""), error)
else:
    app(words, prog_name="cairn")
"""
READING = (("runs",), ("trace", "a"), ("inbox",), ("export", "a"))


@pytest.fixture
def store(cairn: Cairn) -> Iterator[Path]:
    """A store with a run, in a folder that others can reach."""
    cairn("run", "quick", "go", "--id", "a")
    outer = Path(tempfile.mkdtemp())
    outer.chmod(0o755)
    folder = outer / "fine"
    folder.mkdir()
    cairn("backup", str(folder / "x.db"))
    if os.getuid() == 0:
        os.chown(folder / "x.db", NOBODY, NOBODY)
    yield folder / "x.db"
    folder.chmod(0o755)
    shutil.rmtree(outer)


Ordinary = Callable[..., Said]


@pytest.fixture
def ordinary(store: Path, monkeypatch: pytest.MonkeyPatch) -> Ordinary:
    """Run a command as a user who is not root, while the store's folder has this mode."""
    monkeypatch.delenv("CAIRN_APP")
    monkeypatch.chdir(store.parent.parent)

    def run(mode: int, *words: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-c", BY_AN_ORDINARY_USER, str(store.parent), oct(mode), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "100"},
            timeout=25,
            check=False,
        )
        store.parent.chmod(0o755)
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.slow
def test_doctor_lists_the_problems_of_a_read_only_folder_and_exits_1(ordinary: Ordinary) -> None:
    said = ordinary(0o555, "doctor", "--store", "fine/x.db")
    assert said.code == 1, said
    assert said.err == ""
    assert "is not writable" in said.out
    assert "its folder cannot be written by this user" in said.out
    assert all(x[:7].strip() in {"ok", "note", "problem"} for x in said.out.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("words", READING)
def test_reading_a_store_in_a_read_only_folder_is_one_clear_line(
    ordinary: Ordinary, words: tuple[str, ...]
) -> None:
    said = ordinary(0o555, *words, "--store", "fine/x.db")
    assert said.code == 2, said
    assert said.out == ""
    assert "even reading a store needs to make files beside it" in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.slow
def test_a_store_in_a_read_only_folder_can_be_verified_for_that_makes_no_files(
    ordinary: Ordinary,
) -> None:
    said = ordinary(0o555, "verify", "--store", "fine/x.db")
    assert said.code == 0, said
    assert "intact" in said.out


@pytest.mark.slow
def test_a_store_behind_a_closed_folder_is_said_to_be_out_of_reach(ordinary: Ordinary) -> None:
    said = ordinary(0o000, "runs", "--store", "fine/x.db")
    assert said.code == 2, said
    assert "x.db cannot be reached by this user (Permission denied)" in said.err
    assert len(said.err.splitlines()) == 1
    for path in ("fine/x.db", "fine/deeper/x.db"):
        said = ordinary(0o000, "doctor", "--store", path)
        assert said.code == 1, said
        assert said.err == ""
        assert "cannot be reached by this user" in said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "path"),
    [
        (0o000, "fine/x.db"),
        (0o000, "fine/deeper/x.db"),
        (0o555, "fine/new.db"),
        (0o555, "fine/x.db"),
    ],
)
def test_a_runtime_where_this_user_may_not_write_is_a_config_error_that_names_the_store(
    ordinary: Ordinary, mode: int, path: str
) -> None:
    said = ordinary(mode, "open", path)
    assert said.out.startswith("ConfigError store store: "), said
    assert "this user" in said.out
    assert "have its owner" in said.out.lower()


# ---------------------------------------------------------------- without another user


def test_a_folder_that_may_not_be_written_is_named_whether_there_is_a_store_in_it_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.db").touch()
    monkeypatch.setattr(filesystem.os, "access", lambda path, mode: str(path) != str(tmp_path))
    with pytest.raises(ConfigError, match="even reading a store") as caught:
        filesystem.check_place(str(tmp_path / "x.db"))
    assert caught.value.field == "store"
    with pytest.raises(ConfigError, match=f"the folder {tmp_path} cannot be written by this user"):
        filesystem.check_place(str(tmp_path / "new.db"))


def test_a_path_that_cannot_be_looked_at_is_a_config_error(
    tmp_path: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = str(tmp_path / ("x" * 300))
    with pytest.raises(ConfigError, match=r"cannot be reached by this user \(File name too long\)"):
        filesystem.check_place(long)
    said = cairn("runs", "--store", long)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    said = cairn("doctor", "--store", long)
    assert (said.code, said.err) == (1, "")
