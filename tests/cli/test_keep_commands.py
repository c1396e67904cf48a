"""`export`, `verify`, `prune` and `backup`: a store can be checked, thinned out and copied."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.conftest import Cairn


def check_elsewhere(lines: list[dict[str, Any]]) -> None:
    """The chain, checked with nothing but what an export says of itself."""
    previous = bytes(32)
    for number, line in enumerate(lines, 1):
        assert line["seq"] == number
        fields = ("run", "seq", "at", "step", "actor", "type", "v")
        header = "\n".join(str(line[f]) for f in fields).encode()
        salt = bytes.fromhex(line["salt"])
        digest = sha256(salt + line["data"].encode()).digest()
        previous = sha256(previous + header + digest).digest()
        assert previous.hex() == line["hash"]


def test_an_export_can_be_verified_elsewhere(cairn: Cairn) -> None:
    cairn("run", "hostile", "go", "--id", "a")
    cairn("deny", "a/1", "--by", "ada")
    cairn("resume", "a")
    said = cairn("export", "a")
    assert said.code == 0
    check_elsewhere(said.objects)
    assert said.objects[-1]["name"] == "run.completed"
    assert json.loads(said.objects[0]["data"])["agent"] == "hostile"


def test_an_exported_fork_begins_with_what_it_shares(cairn: Cairn) -> None:
    cairn("run", "endless", "go", "--id", "a")
    cairn("retry", "a", "--id", "b", "--max-steps", "1")
    cairn("retry", "b", "--id", "c", "--max-steps", "1")
    lines = cairn("export", "c").objects
    check_elsewhere(lines)
    assert list(dict.fromkeys(line["run"] for line in lines)) == ["a", "b", "c"]


def test_artifacts_are_exported_as_events(cairn: Cairn) -> None:
    cairn("run", "large", "go", "--id", "a")
    made = next(x for x in cairn("export", "a").objects if x["name"] == "artifact.created")
    assert json.loads(made["data"])["content"] == "x" * 50_000


def test_an_export_goes_to_a_file(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go", "--id", "a")
    said = cairn("export", "a", "-o", "a.jsonl")
    assert said.out == "wrote 4 events of a to a.jsonl\n"
    check_elsewhere([json.loads(line) for line in (desk / "a.jsonl").read_text().splitlines()])
    assert cairn("export", "a", "-o", "nowhere/a.jsonl").code == 2
    assert cairn("export", "nope", "-o", "b.jsonl").code == 2
    assert not (desk / "b.jsonl").exists()


def test_an_export_replaces_a_file_only_when_told_to(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go", "--id", "a")
    (desk / "a.jsonl").write_text("precious")
    said = cairn("export", "a", "-o", "a.jsonl")
    assert said.code == 2
    assert said.err == "cairn: --out: a.jsonl exists. Name another file, or pass --force\n"
    assert (desk / "a.jsonl").read_text() == "precious"
    assert cairn("export", "a", "-o", "a.jsonl", "--force").code == 0
    assert len((desk / "a.jsonl").read_text().splitlines()) == 4
    assert cairn("export", "a", "-o", os.devnull).code == 0, "what is no file holds nothing"


# ---------------------------------------------------------------- verify


def tamper(change: str) -> None:
    """Change the file behind Cairn's back."""
    connection = apsw.Connection("desk.db")
    connection.execute(change)
    connection.close()


def test_verify_counts_what_is_intact(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("run", "quick", "go", "--id", "b")
    assert cairn("verify").out == "intact: 2 journals, 8 events\n"
    assert cairn("verify", "a").out == "intact: 1 journal, 4 events\n"
    assert cairn("verify", "nope").code == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event SET actor = 'mallory' WHERE rowid = (SELECT min(rowid) FROM event)",
        "UPDATE event SET at = at + 1 WHERE rowid = (SELECT min(rowid) + 1 FROM event)",
        "DELETE FROM event WHERE rowid = (SELECT min(rowid) + 1 FROM event)",
    ],
)
def test_verify_finds_what_was_changed_or_removed(cairn: Cairn, change: str) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("run", "quick", "go", "--id", "b")
    tamper(change)
    said = cairn("verify")
    assert said.code == 1
    assert said.err.splitlines()[0].startswith("cairn: a: event")
    assert "1 of 2 journals are not as they were written" in said.err
    assert cairn("verify", "b").code == 0


# ---------------------------------------------------------------- prune and backup


def test_prune_removes_old_ended_runs_and_only_says_so_in_a_dry_run(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("run", "shop", "go", "--id", "b")
    assert cairn("prune", "--older-than", "1h").out == "removed: 0 runs\n"
    assert cairn("prune", "--older-than", "0s", "--dry-run").out == "a\nto be removed: 1 run\n"
    assert cairn("trace", "a").code == 0
    assert cairn("prune", "--older-than", "0s").out == "a\nremoved: 1 run\n"
    assert cairn("trace", "a").code == 2
    assert cairn("trace", "b").code == 0
    assert "2 journals" in cairn("verify").out, "the store's own journal is checked too"


@pytest.mark.parametrize("age", ["30", "d", "1y", "-1d", "1.5h"])
def test_an_age_that_is_none_is_usage(cairn: Cairn, age: str) -> None:
    cairn("run", "quick", "go")
    said = cairn("prune", f"--older-than={age}")
    assert said.code == 2
    assert "Write it as 30d, 12h or 45m" in said.err


def test_an_age_must_be_named(cairn: Cairn) -> None:
    assert cairn("prune").code == 2


def test_a_backup_is_a_whole_store(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    assert cairn("backup", "copy.db").out == "copied to copy.db\n"
    assert cairn("verify", "--store", "copy.db").code == 0
    assert cairn("trace", "a", "--store", "copy.db").code == 0


def test_a_backup_overwrites_nothing(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    (desk / "copy.db").write_text("precious")
    said = cairn("backup", "copy.db")
    assert said.code == 2
    assert (desk / "copy.db").read_text() == "precious"
