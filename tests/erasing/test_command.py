"""`cairn erase` shows what will go, asks, and exports first; other commands say what is gone."""

import json
import stat

import pytest
from tests.erasing.kit import ANN, BOB, Garden, found, live, runtime
from typer.testing import CliRunner

from cairn.cli.entry import app


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A store with the words of two principals."""
    monkeypatch.chdir(tmp_path)
    for name in ("CAIRN_APP", "CAIRN_STORE", "CAIRN_SECRETS"):
        monkeypatch.delenv(name, raising=False)
    gardens = []
    for who in (ANN, BOB):
        garden = Garden(who.id)
        with runtime(tmp_path / "cairn.db", tmp_path / "work", garden) as rt:
            live(rt, who, garden)
        gardens.append(garden)
    return gardens


def cairn(*words, typed=None):
    """What a command prints, and its exit code."""
    result = CliRunner().invoke(app, [*words], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output, result.exit_code


THEIRS = ("--principal", "ann", "--tenant", "acme")


def test_what_will_go_is_shown_and_nothing_goes_without_a_yes(planted, tmp_path):
    ann, _ = planted
    before = found(tmp_path, ann.words)
    told, code = cairn("erase", *THEIRS, typed="n\n")
    assert code == 1
    assert "ann of acme: 4 runs" in told
    assert "2 facts, 1 grant" in told
    assert "ann-1  shop  completed" in told
    assert "workspaces, if there are any, stay" in told
    assert "nothing was erased" in told
    assert found(tmp_path, ann.words) == before


def test_with_a_yes_it_is_exported_first_and_gone_then(planted, tmp_path):
    ann, bob = planted
    told, code = cairn("erase", *THEIRS, "--export", "ann.jsonl", "--as", "dpo", typed="y\n")
    assert (code, "erased: 4 runs" in told) == (0, True)
    export = tmp_path / "ann.jsonl"
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    assert lines[0] == {"kind": "principal", "id": "ann", "tenant": "acme"}
    assert ann.words["answer"] in export.read_text()
    export.unlink()
    left = found(tmp_path, ann.words)
    assert left <= {"file", "filename", "session"}, "workspaces need the application"
    assert found(tmp_path, bob.words) == set(bob.words)
    told, code = cairn("verify")
    assert (code, "ann-1: erased, as the store's journal says" in told) == (0, True)
    assert "erased" in cairn("runs")[0]
    assert "principal erased" in cairn("audit")[0]
    told, code = cairn("trace", "ann-1")
    assert (code, "run 'ann-1' was erased" in told) == (2, True)
    assert cairn("trace", "store")[1] == 0
    told, code = cairn("erase", *THEIRS, "--yes")
    assert (code, "erased: 0 runs" in told) == (0, True)


def test_a_file_that_is_there_is_not_written_over_and_nothing_is_erased(planted, tmp_path):
    ann, _ = planted
    (tmp_path / "there").write_text("mine")
    told, code = cairn("erase", *THEIRS, "--export", "there", "--yes")
    assert (code, "there exists" in told) == (2, True)
    assert (tmp_path / "there").read_text() == "mine"
    assert found(tmp_path, ann.words) == set(ann.words)


@pytest.mark.usefixtures("planted")
def test_an_export_alone_changes_nothing_and_goes_to_standard_output_or_a_file(tmp_path):
    told, code = cairn("export", *THEIRS)
    kinds = [json.loads(line)["kind"] for line in told.splitlines()]
    assert (code, kinds[:3]) == (0, ["principal", "run", "event"])
    told, code = cairn("export", *THEIRS, "-o", "ann.jsonl")
    assert (code, f"wrote {len(kinds)} lines" in told) == (0, True)
    assert cairn("export", *THEIRS, "-o", "ann.jsonl")[1] == 2
    assert cairn("export", *THEIRS, "-o", "ann.jsonl", "--force")[1] == 0
    assert cairn("export", "ann-1", *THEIRS)[1] == 2
    assert len((tmp_path / "ann.jsonl").read_text().splitlines()) == len(kinds)


def test_a_store_that_is_not_there_is_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told, code = cairn("erase", "--principal", "ann", "--store", "none.db", "--yes")
    assert (code, "there is no store" in told) == (2, True)
    assert not (tmp_path / "none.db").exists()
