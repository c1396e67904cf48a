"""The journals of every release are read, verified and folded as on the day they were written."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.core.play import MODEL
from tests.golden.make import FOLDER, INDEX, STORIES, check, main, row_of, write

from cairn.core import events as ev
from cairn.core.codec import decode
from cairn.core.context import faults
from cairn.core.decide import decide
from cairn.core.rules import Rules
from cairn.core.state import transcript

RELEASES = sorted(path.parent for path in FOLDER.glob(f"*/{INDEX}"))


def index(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return found


JOURNALS = [(folder, name) for folder in RELEASES for name in sorted(index(folder))]
IDS = [f"{folder.name}/{name}" for folder, name in JOURNALS]


def types_in(folder: Path) -> set[tuple[int, int]]:
    rows = [
        row_of(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {(row.type, row.v) for row in rows}


@pytest.mark.parametrize(("folder", "name"), JOURNALS, ids=IDS)
def test_a_journal_of_any_release_is_read_verified_and_folded_as_it_was(
    folder: Path, name: str
) -> None:
    state = check(folder, name, index(folder)[name])
    if state is not None:
        assert faults(transcript(state)) == []


@pytest.mark.parametrize(("folder", "name"), JOURNALS, ids=IDS)
def test_a_run_of_any_release_can_be_gone_on_with(folder: Path, name: str) -> None:
    state = check(folder, name, index(folder)[name])
    if state is not None:
        assert decide(state, Rules(tools={}, models=(MODEL,)), state.at) is not None


def test_no_journal_is_missing_and_none_is_left_out_of_the_index() -> None:
    assert RELEASES
    for folder in RELEASES:
        assert {path.stem for path in folder.glob("*.jsonl")} == set(index(folder))


def test_every_version_of_every_event_there_ever_was_stands_in_some_release() -> None:
    written = set().union(*map(types_in, RELEASES))
    assert written == {(kind.TYPE, v) for kind in ev.EVENTS.values() for v in range(1, kind.V + 1)}


def test_what_is_written_today_would_make_a_release(tmp_path: Path) -> None:
    write(tmp_path / "next")
    said = index(tmp_path / "next")
    assert len(said) == len(STORIES) + 2
    for name in said:
        check(tmp_path / "next", name, said[name])
    assert types_in(tmp_path / "next") == {(kind.TYPE, kind.V) for kind in ev.EVENTS.values()}
    again = tmp_path / "again"
    write(again)
    for path in again.iterdir():
        assert path.read_bytes() == (tmp_path / "next" / path.name).read_bytes()


def test_a_release_is_never_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in RELEASES[0].iterdir()}
    assert main([RELEASES[0].name]) == 1
    assert "never written again" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in RELEASES[0].iterdir()}


def test_a_changed_letter_in_a_journal_is_found(tmp_path: Path) -> None:
    folder = RELEASES[0]
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "approved.jsonl").read_text(encoding="utf-8")
    (tmp_path / "approved.jsonl").write_text(text.replace("staging", "serving"), encoding="utf-8")
    with pytest.raises(Exception, match="was changed"):
        check(tmp_path, "approved", index(folder)["approved"])


def test_results_are_kept_to_the_byte() -> None:
    lines = (RELEASES[0] / "answered.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row_of(line) for line in lines]
    event = next(decode(r.type, r.v, r.data or b"") for r in rows if r.type == 41 and r.step == 1)
    assert isinstance(event, ev.ToolCompleted)
    assert event.sources[0].uri == "book.md"
