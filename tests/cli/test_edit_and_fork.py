"""`edit` what comes next, `fork` from an earlier event, and `trace --at`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Cairn, Process, wait_for

Start = Callable[..., Process]


def effects() -> list[str]:
    path = Path("effects.txt")
    return path.read_text().splitlines() if path.exists() else []


def seq(cairn: Cairn, run: str, name: str) -> int:
    """The number of the first event of this name."""
    events = cairn("trace", run, "--json").objects
    return next(int(e["seq"]) for e in events if e["name"] == name)


# ---------------------------------------------------------------- edit


def test_a_call_is_edited_without_an_application_and_the_edit_is_kept_with_who(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "shop", "go", "--id", "r")
    cairn("approve", "r/1")
    monkeypatch.delenv("CAIRN_APP")
    arguments = '{"order": "7", "cents": 4}'
    said = cairn("edit", "r", "--call", "c1", "--arguments", arguments, "--by", "ada")
    assert said.code == 0
    assert f"edited r/c1: the arguments are {arguments}" in said.out
    assert "run r can go on: cairn resume r" in said.out
    monkeypatch.setenv("CAIRN_APP", "desk:rt")
    assert cairn("resume", "r").code == 5
    assert cairn("approve", "r/1").code == 1, "the old approval is void"
    cairn("approve", "r/2")
    assert cairn("resume", "r").code == 0
    assert effects() == ["refund 7 4"]
    tree = cairn("trace", "r").out
    assert "edited by ada" in tree
    assert 'the arguments were {"order":"7","cents":400}' in " ".join(tree.split())
    assert "void" in tree


def test_an_edit_is_checked_at_once_where_the_application_is_known(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "r")
    said = cairn("edit", "r", "--call", "r/c1", "--arguments", '{"order": "7", "cents": "many"}')
    assert said.code == 2
    assert "arguments of c1" in said.err
    assert len(cairn("trace", "r", "--json").objects) == seq(cairn, "r", "approval.requested")


def test_plan_and_message_are_edited_from_text_file_and_standard_input(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "r")
    Path("plan.txt").write_text("[x] look\n[>] pay\n")
    assert cairn("edit", "r", "--plan", "plan.txt").code == 0
    assert cairn("edit", "r", "--plan", "-", input="[ ] rest\n").code == 0
    said = cairn("edit", "r", "--plan", "sing", "-m", "be quick")
    assert said.code == 0
    made = [e["data"] for e in cairn("trace", "r", "--json").objects if e["type"] in {70, 100}]
    assert [[i["text"] for i in plan["items"]] for plan in made[:3]] == [
        ["look", "pay"],
        ["rest"],
        ["sing"],
    ]
    assert made[3]["parts"][0]["content"] == "be quick"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--call", "c1"), 2),
        (("--arguments", "{}"), 2),
        (("--call", "c9", "--arguments", "{}"), 2),
        (("--call", "c1", "--arguments", "{"), 2),
        (("--plan", "x"), 1),
    ],
)
def test_an_edit_that_cannot_be_is_said_in_one_line(
    cairn: Cairn, words: tuple[str, ...], code: int
) -> None:
    cairn("run", "shop", "go", "--id", "r")
    if words[:1] == ("--plan",):
        cairn("cancel", "r")
    said = cairn("edit", "r", *words)
    assert said.code == code
    assert len(said.err.splitlines()) == 1


def test_a_call_that_has_run_can_no_longer_be_edited(cairn: Cairn) -> None:
    cairn("run", "both", "go", "--id", "r")
    cairn("approve", "r/1")
    cairn("resume", "r")
    said = cairn("edit", "r", "--call", "c1", "--arguments", '{"order": "9", "cents": 9}')
    assert said.code == 1
    assert "r/c1 has ended" in said.err
    assert effects() == ["refund 1 1"]


@pytest.mark.slow
def test_a_live_run_is_paused_edited_and_resumed_from_beside_the_process_that_drives_it(
    cairn: Cairn, process: Start
) -> None:
    """A worker drives, another process decides on the same file; what was edited runs."""
    cairn("run", "both", "go", "--id", "r")
    worker = process("work")
    alone = {"CAIRN_APP": ""}
    assert cairn("pause", "r", **alone).code == 0
    edit = ("edit", "r", "--call", "c1", "--arguments", '{"order": "1", "cents": 77}')
    assert cairn(*edit, "--by", "ada", **alone).code == 0
    assert cairn("approve", "r/2", **alone).code == 0
    assert effects() == []
    assert cairn("resume", "r", **alone).code == 5
    wait_for(lambda: "r/3" in cairn("inbox", "--json").out, "the new request")
    assert cairn("approve", "r/3", **alone).code == 0
    wait_for(lambda: cairn("runs", "--json").objects[0]["status"] == "completed", "the end")
    worker.kill()
    assert effects() == ["refund 1 77", "refund 2 2"]
    assert cairn("verify", "r").code == 0


# ---------------------------------------------------------------- fork


def test_a_fork_shows_what_stays_done_and_wants_a_yes_for_it(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "r")
    cairn("approve", "r/1")
    cairn("resume", "r")
    at = str(seq(cairn, "r", "approval.requested"))
    refused = cairn("fork", "r", "--at", at, "--id", "f")
    assert refused.code == 1
    assert 'refund({"order":"7","cents":400}) done' in refused.out
    assert "--yes" in refused.err
    assert len(cairn("runs", "--json").objects) == 1
    forked = cairn("fork", "r", "--at", at, "--id", "f", "--yes", "--by", "ada")
    assert forked.code == 5
    assert "stays done" in forked.out
    assert "f/1" in cairn("inbox").out
    cairn("approve", "f/1")
    assert cairn("resume", "f").code == 0
    assert effects() == ["refund 7 400"] * 2
    assert f"fork of r at event {at}" in cairn("trace", "f").out


def test_a_fork_with_edits_runs_what_was_edited(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "r")
    at = str(seq(cairn, "r", "approval.requested"))
    edits = ("--call", "c1", "--arguments", '{"order": "8", "cents": 1}', "-m", "less", "--plan")
    said = cairn("fork", "r", "--at", at, "--id", "f", *edits, "[>] pay", "--no-drive")
    assert said.code == 5
    assert effects() == []
    assert cairn("resume", "f").code == 5
    cairn("approve", "f/2")
    assert cairn("resume", "f").code == 0
    assert effects() == ["refund 8 1"]
    names = [e["name"] for e in cairn("trace", "f", "--json").objects][int(at) :]
    assert names[:4] == ["run.forked", "tool.edited", "plan.updated", "input.queued"]


def test_a_fork_where_something_was_in_the_air_names_where_it_may_be_made(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "r")
    said = cairn("fork", "r", "--at", "2")
    assert said.code == 1
    assert "the nearest events that will do: 1 or 3" in said.err
    assert cairn("fork", "r", "--at", "9").code == 2
    assert cairn("fork", "r", "--at", "1", "--id", "f").code == 0


# ---------------------------------------------------------------- looking back


def test_a_trace_at_an_event_is_the_run_as_it_stood_then(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "r")
    cairn("edit", "r", "--plan", "[>] pay back")
    cairn("approve", "r/1")
    cairn("resume", "r")
    asked = seq(cairn, "r", "approval.requested")
    then = cairn("trace", "r", "--at", str(asked)).out
    assert f"at event {asked}" in then
    assert "waits: r/1" in then
    assert "1 of 50 steps" in then
    assert "0 of 200 calls" in then
    assert "pay back" not in then
    assert "Order 7 is paid back" not in then
    assert "[>] pay back" in cairn("trace", "r", "--at", str(asked + 1)).out
    assert len(cairn("trace", "r", "--at", "3", "--json").objects) == 3
    assert "Order 7 is paid back" in cairn("trace", "r").out


@pytest.mark.parametrize("at", ["0", "-3", "999"])
def test_a_trace_at_no_event_names_the_events_there_are(cairn: Cairn, at: str) -> None:
    cairn("run", "quick", "go", "--id", "r")
    said = cairn("trace", "r", "--at", at)
    assert said.code == 2
    assert "its events are 1 to 4" in said.err
