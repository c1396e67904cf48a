"""Decisions: approve, deny, answer, resolve, pause, cancel need the store and nothing else."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cairn


@pytest.fixture
def bare(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runs that wait; and from here on there is no application."""
    for agent in ("shop", "asker", "unsure", "both"):
        cairn("run", agent, "go", "--id", agent)
    cairn("approve", "unsure/1")
    cairn("resume", "unsure")
    monkeypatch.delenv("CAIRN_APP")
    Path("desk.py").unlink()


def status(cairn: Cairn, run: str) -> str:
    found = {r["run"]: r["status"] for r in cairn("runs", "--json").objects}
    return str(found[run])


@pytest.mark.usefixtures("bare")
def test_an_approval_is_kept_with_who_when_and_why(cairn: Cairn) -> None:
    said = cairn("approve", "shop/1", "-m", "order is known", "--by", "ada")
    assert said.code == 0
    assert 'approved shop/1: refund({"order":"7","cents":400})' in said.out
    assert "run shop can go on: cairn resume shop --app module:name, or" in said.out
    granted = next(e for e in cairn("trace", "shop", "--json").objects if e["type"] == 61)
    assert (granted["actor"], granted["data"]) == ("ada", {"n": 1, "message": "order is known"})
    assert status(cairn, "shop") == "running"


@pytest.mark.usefixtures("bare")
def test_deciding_without_a_name_keeps_the_login_name(cairn: Cairn) -> None:
    cairn("approve", "shop/1", LOGNAME="grace")
    assert cairn("trace", "shop", "--json").objects[-1]["actor"] == "grace"


@pytest.mark.usefixtures("bare")
def test_several_requests_are_decided_at_once_and_one_bad_name_stops_none(cairn: Cairn) -> None:
    said = cairn("approve", "both/1", "nope/1", "both/2", "shop/9", "shop")
    assert said.code == 2
    assert said.out.count("approved both/") == 2
    assert [line.split(":")[1].strip() for line in said.err.splitlines()] == [
        "there is no run 'nope' in this store",
        "there is no request shop/9",
        "request",
    ]


@pytest.mark.usefixtures("bare")
def test_an_approval_with_a_digest_holds_for_what_was_shown_and_nothing_else(cairn: Cairn) -> None:
    shown = {item["id"]: item["digest"] for item in cairn("inbox", "--json").objects}
    said = cairn("approve", "both/2", "--digest", shown["both/1"])
    assert said.code == 1
    assert "both/2" in said.err
    assert status(cairn, "both") == "waiting"
    assert cairn("approve", "both/2", "--digest", shown["both/2"]).code == 0
    said = cairn("approve", "both/1", "shop/1", "--digest", shown["both/1"])
    assert said.code == 2
    assert "--digest: it is of one request" in said.err
    assert len(cairn("inbox", "--json").objects) == len(shown) - 1


@pytest.mark.usefixtures("bare")
def test_deny_tells_why_and_a_decision_stands(cairn: Cairn) -> None:
    assert cairn("deny", "shop/1", "-m", "too much").code == 0
    assert "Reason: too much" not in cairn("deny", "shop/1").out
    said = cairn("approve", "shop/1")
    assert said.code == 1
    assert "shop/1 was already" in said.err


def test_the_model_goes_on_after_a_refusal(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("deny", "a/1", "-m", "too much")
    said = cairn("run", "shop", "go", "--id", "a")
    assert said.code == 0
    assert not Path("effects.txt").exists()


@pytest.mark.usefixtures("bare")
def test_an_answer_is_kept_as_typed_and_can_be_piped_in(cairn: Cairn) -> None:
    assert cairn("answer", "asker/1", "-", input="order\nseven\n").code == 0
    assert cairn("trace", "asker", "--json").objects[-1]["data"]["text"] == "order\nseven"
    assert cairn("answer", "asker/1", "eight").code == 1
    assert cairn("approve", "asker/1").code == 1


@pytest.mark.usefixtures("bare")
def test_an_unknown_effect_is_resolved_with_result_and_evidence(cairn: Cairn) -> None:
    said = cairn(
        "resolve", "unsure/c1", "--happened", "--result", "it is paid", "--evidence", "the bank"
    )
    assert said.code == 0
    last = cairn("trace", "unsure", "--json").objects[-1]
    assert last["data"] == {
        "call": "c1",
        "verdict": "happened",
        "result": "it is paid",
        "evidence": "the bank",
    }
    assert cairn("resolve", "unsure/c1", "--happened").code == 1


@pytest.mark.usefixtures("bare")
def test_that_nothing_happened_cannot_be_said_too_early(cairn: Cairn) -> None:
    said = cairn("resolve", "unsure/c1", "--not-happened")
    assert said.code == 1
    assert "may still be at work" in said.err


@pytest.mark.usefixtures("bare")
def test_giving_up_an_unknown_effect_lets_the_run_fail(cairn: Cairn) -> None:
    assert cairn("resolve", "unsure/c1", "--give-up").code == 0
    assert cairn("trace", "unsure", "--json").objects[-1]["data"]["verdict"] == "given_up"


CANNOT_BE_ASKED = (
    ("resolve", "unsure/c1"),
    ("resolve", "unsure/c1", "--happened", "--give-up"),
    ("resolve", "unsure/c1", "--not-happened", "--result", "x"),
    ("resolve", "unsure/c9", "--happened"),
    ("resolve", "unsure", "--happened"),
    ("approve",),
    ("approve", "nope/1"),
    ("deny", "nope/1"),
    ("answer", "nope/1", "x"),
    ("pause", "nope"),
    ("cancel", "nope"),
)


@pytest.mark.usefixtures("bare")
def test_what_cannot_be_asked_exits_2_in_one_line(cairn: Cairn) -> None:
    for words in CANNOT_BE_ASKED:
        said = cairn(*words)
        assert said.code == 2, (words, said)
        assert "Traceback" not in said.err
        assert said.out == "", words


@pytest.mark.usefixtures("bare")
def test_a_paused_run_says_how_to_go_on_and_an_ended_one_cannot_be_paused(cairn: Cairn) -> None:
    assert "cairn resume shop goes on" in cairn("pause", "shop", "-m", "lunch").out
    assert status(cairn, "shop") == "paused"
    assert "run shop is paused" in cairn("approve", "shop/1").out
    cairn("cancel", "shop")
    said = cairn("pause", "shop")
    assert said.code == 1
    assert "can no longer pause" in said.err


@pytest.mark.usefixtures("bare")
def test_cancel_ends_a_run_without_its_agent_and_is_told_twice_the_same(cairn: Cairn) -> None:
    assert cairn("cancel", "shop", "-m", "wrong order").code == 0
    assert status(cairn, "shop") == "cancelled"
    assert cairn("cancel", "shop").code == 0
    assert cairn("approve", "shop/1").code == 1


@pytest.mark.usefixtures("bare")
def test_cancel_names_the_calls_that_stay_unknown_and_how_to_settle_them(cairn: Cairn) -> None:
    said = cairn("cancel", "unsure")
    assert said.code == 0
    assert "unsure/c1 · doubt · in doubt: did it happen?" in said.out
    assert "    cairn resolve unsure/c1 --not-happened\n" in said.out
    assert "unsure/c1" in cairn("inbox").out
    assert cairn("resolve", "unsure/c1", "--not-happened").code == 0
    assert "unsure/c1" not in cairn("inbox").out


def test_cancelling_what_is_over_changes_nothing_and_says_so(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    said = cairn("cancel", "a")
    assert said.code == 1
    assert "run a is completed; it was over before" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("approve", "a/1"),
        ("deny", "a/1"),
        ("answer", "a/1", "x"),
        ("resolve", "a/c1", "--happened"),
        ("pause", "a"),
        ("cancel", "a"),
        ("runs",),
        ("trace", "a"),
        ("inbox",),
        ("export", "a"),
        ("verify",),
        ("prune", "--older-than", "1d"),
        ("backup", "copy.db"),
    ],
)
def test_without_a_store_file_none_is_made_and_the_fix_is_named(
    cairn: Cairn, desk: Path, words: tuple[str, ...]
) -> None:
    said = cairn(*words)
    assert said.code == 2
    assert said.err == ("cairn: --store: there is no store desk.db. Name another with --store\n")
    assert [p.name for p in desk.iterdir()] == ["desk.py"]
