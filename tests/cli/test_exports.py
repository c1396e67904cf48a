"""An export is evidence only as it was written: what was altered in its file is found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cairn

Line = dict[str, Any]


def words(line: Line) -> None:
    line["data"] = line["data"].replace("go", "no")


def field(name: str, value: Any) -> Callable[[Line], None]:
    def change(line: Line) -> None:
        line[name] = value

    return change


def left_out(name: str) -> Callable[[Line], None]:
    def change(line: Line) -> None:
        del line[name]

    return change


ALTERED: dict[str, Callable[[Line], None]] = {
    "words": words,
    "no words": field("data", None),
    "salt": field("salt", "00" * 16),
    "no salt": left_out("salt"),
    "salt that is none": field("salt", "x"),
    "time": field("at", 1),
    "step": field("step", 9),
    "actor": field("actor", "eve"),
    "version": field("v", 2),
    "name": field("name", "run.failed"),
}


def alter(file: Path, change: Callable[[Line], None], number: int = 0) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines[number])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def talk(cairn: Cairn) -> Path:
    cairn("run", "quick", "go", "--id", "a", "--session", "s")
    cairn("run", "quick", "go on", "--id", "b", "--session", "s")
    assert cairn("sessions", "export", "s", "out").code == 0
    return Path("out", "events.jsonl")


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_an_altered_export_of_a_session_is_no_evidence(
    cairn: Cairn, change: Callable[[Line], None]
) -> None:
    file = talk(cairn)
    whole = cairn("verify", "--heads", str(file))
    assert (whole.code, "8 exported hashes" in whole.out) == (0, True)
    alter(file, change)
    said = cairn("verify", "--heads", str(file))
    assert said.code == 1, said
    assert "a: event 1 does not say in the export what its hash is of" in said.err
    assert "not as they were written" not in said.err  # the store is
    (found,) = [x for x in cairn("verify", "--heads", str(file), "--json").objects if not x["ok"]]
    assert found["findings"][0]["kind"] == "export"


def test_an_altered_export_of_a_run_or_a_principal_is_found_too(cairn: Cairn) -> None:
    cairn("run", "endless", "go", "--id", "a")
    cairn("retry", "a", "--id", "b", "--max-steps", "1")
    for words_of in (("b",), ("--principal", "local")):
        file = Path("export.jsonl")
        cairn("export", *words_of, "-o", str(file), "--force")
        events = [x for x in map(json.loads, file.read_text().splitlines()) if x.get("salt")]
        file.write_text("".join(json.dumps(line) + "\n" for line in events))
        assert cairn("verify", "--heads", str(file)).code == 0
        alter(file, field("data", '{"forged":true}'), -1)
        assert cairn("verify", "--heads", str(file)).code == 1


@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_words_of_a_run_that_is_gone_are_checked_by_the_file_alone(
    cairn: Cairn, number: int
) -> None:
    file = talk(cairn)
    assert "removed: 2 runs" in cairn("sessions", "prune", "s").out
    assert cairn("verify", "--heads", str(file)).code == 0
    alter(file, field("data", '{"forged":true}'), number)
    assert cairn("verify", "--heads", str(file)).code == 1


def test_what_was_erased_since_is_as_it_was_exported(cairn: Cairn) -> None:
    file = talk(cairn)
    assert cairn("erase", "--principal", "local", "--yes").code == 0
    assert cairn("verify", "--heads", str(file)).code == 0
    alter(file, words)
    assert cairn("verify", "--heads", str(file)).code == 1


def test_heads_and_audits_are_taken_as_before(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("export", "--heads", "-o", "heads.jsonl")
    cairn("audit", "--json", "-o", "audit.jsonl")
    assert cairn("verify", "--heads", "heads.jsonl").code == 0


def whole_principal(cairn: Cairn) -> Path:
    """All that is kept of somebody, of which some lines are events and others are not."""
    talk(cairn)
    cairn("memory", "add", "tea at four")
    cairn("export", "--principal", "local", "-o", "local.jsonl")
    return Path("local.jsonl")


def test_a_whole_export_of_a_principal_is_compared_where_it_holds_events(cairn: Cairn) -> None:
    file = whole_principal(cairn)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    events = sum(line["kind"] in {"event", "note"} for line in lines)
    said = cairn("verify", "--heads", str(file))
    assert said.code == 0, said
    assert f"{events} exported hashes" in said.out
    assert f"{len(lines) - events} lines of local.jsonl carry no hash" in said.err
    assert all(each["ok"] for each in cairn("verify", "--heads", str(file), "--json").objects)
    first = next(n for n, line in enumerate(lines) if line["kind"] == "event")
    alter(file, words, first)
    said = cairn("verify", "--heads", str(file))
    assert (said.code, "does not say in the export" in said.err) == (1, True)


def test_an_event_without_its_hash_is_no_line_that_has_none(cairn: Cairn) -> None:
    file = whole_principal(cairn)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    first = next(n for n, line in enumerate(lines) if line["kind"] == "event")
    alter(file, left_out("hash"), first)
    said = cairn("verify", "--heads", str(file))
    assert (said.code, f"line {first + 1} of local.jsonl is no exported hash" in said.err) == (
        2,
        True,
    )


def test_an_export_in_which_no_line_carries_a_hash_is_nothing_to_compare_with(cairn: Cairn) -> None:
    file = whole_principal(cairn)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(x) + "\n" for x in lines if "hash" not in x))
    said = cairn("verify", "--heads", str(file))
    assert (said.code, "no line of local.jsonl carries a hash" in said.err) == (2, True)
