"""`runs`, `trace` and `inbox`: what people and programs see of a store."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Cairn

from cairn.cli.drivers import aside
from cairn.ports import RunInfo


def test_runs_are_listed_newest_first_and_can_be_filtered(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a", "--session", "s")
    cairn("run", "shop", "go", "--id", "b")
    cairn("run", "quick", "go", "--id", "c")

    def names(*words: str) -> list[str]:
        return [r["run"] for r in cairn("runs", "--json", *words).objects]

    assert names() == ["c", "b", "a"]
    assert names("--limit", "2") == ["c", "b"]
    assert names("--status", "waiting") == ["b"]
    assert names("--status", "waiting", "--status", "completed") == ["c", "b", "a"]
    assert names("--status", "waiting,completed", "--agent", "quick") == ["c", "a"]
    assert names("--session", "s") == ["a"]
    assert names("--agent", "nobody") == []
    assert "there are more: --limit 10" in cairn("runs", "--limit", "2").out
    assert "there are more" not in cairn("runs", "--limit", "3").out


def test_the_list_of_runs_shows_what_they_wait_for_and_cost(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a-run-with-quite-a-long-name-that-is-never-cut", "-q")
    said = cairn("runs")
    head, row = said.out.splitlines()
    assert head.split() == ["run", "agent", "status", "steps", "tokens", "cost", "last", "event",
                            "session"]  # fmt: skip
    assert row.startswith("a-run-with-quite-a-long-name-that-is-never-cut")
    assert "waiting (approval)" in row
    assert "$0.00303" in row


def test_a_run_that_could_go_on_and_is_not_driven_is_shown_as_such(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "shop", "go", "--id", "a")
    assert "not driven" not in cairn("runs").out, "it waits for a person"
    assert cairn("inbox").out.count("cairn resume") == 0
    cairn("approve", "a/1")
    hint = "run a is running and nobody drives it. To go on: cairn resume a, or cairn work"
    out = cairn("runs").out
    assert "running, not driven" in out
    assert out.splitlines()[-1] == hint
    assert cairn("inbox").out.splitlines() == ["nothing waits", hint]
    assert cairn("runs", "--json").objects[0]["leased"] is False
    assert cairn("inbox", "--json").out == ""
    monkeypatch.delenv("CAIRN_APP")
    for words, where in (
        ((), " --app module:name"),
        (("--store", "desk.db"), " --store desk.db --app module:name"),
        (("--app", "desk:rt"), " --app desk:rt"),
    ):
        hint = f"To go on: cairn resume a{where}, or cairn work{where}"
        for command in ("runs", "inbox"):
            assert cairn(command, *words).out.splitlines()[-1].endswith(hint)


def test_several_runs_that_nobody_drives_are_named_together(cairn: Cairn) -> None:
    for run in ("a", "b"):
        cairn("run", "shop", "go", "--id", run)
        cairn("approve", f"{run}/1")
    last = cairn("inbox").out.splitlines()[-1]
    assert last == "2 runs could go on and nobody drives them: b, a. To go on: cairn work"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (RunInfo(run="a", status="queued"), ", not driven"),
        (RunInfo(run="a", status="running", leased=True), ", driven"),
        (RunInfo(run="a", status="waiting", waits=("approval",)), " (approval)"),
        (RunInfo(run="a", status="waiting", waits=("retry_at",), wake_at=11), " (retry_at)"),
        (
            RunInfo(run="a", status="waiting", waits=("retry_at",), wake_at=10),
            " (retry_at), not driven",
        ),
        (RunInfo(run="a", status="paused"), ""),
        (RunInfo(run="a", status="completed"), ""),
    ],
)
def test_a_run_is_not_driven_when_its_time_has_come_and_nobody_holds_it(
    info: RunInfo, expected: str
) -> None:
    assert aside(info, 10) == expected


def test_an_unknown_status_is_usage_and_the_known_ones_are_named(cairn: Cairn) -> None:
    cairn("run", "quick", "go")
    said = cairn("runs", "--status", "done")
    assert said.code == 2
    assert "Use one of cancelled, completed, failed" in said.err


def test_an_empty_list_says_so(cairn: Cairn) -> None:
    cairn("run", "quick", "go")
    assert cairn("runs", "--agent", "nobody").out == "no runs\n"
    assert cairn("inbox").out == "nothing waits\n"
    assert cairn("inbox", "--json").out == ""


# ---------------------------------------------------------------- trace


def traced(cairn: Cairn, *words: str) -> str:
    """A trace as one long line, whatever was wrapped where."""
    said = cairn("trace", *words)
    assert said.code == 0, said
    return " ".join(said.out.replace("│", " ").split())


def test_a_trace_shows_verdict_approval_attempts_costs_and_the_end(cairn: Cairn) -> None:
    cairn("run", "shop", "Refund order 7", "--id", "a")
    cairn("approve", "a/1", "--by", "ada", "-m", "fine")
    cairn("run", "shop", "Refund order 7", "--id", "a")
    out = traced(cairn, "a")
    for part in (
        "a · completed · shop for local · operate",
        "2 of 50 steps · 1 of 200 calls · 1,880 of 2,000,000 tokens · $0.00606 of $5.00",
        "input · Refund order 7",
        "step 1 · turn · completed",
        "model scripted · completed",
        "900 in (100 cached), 40 out",
        'c1 refund({"order":"7","cents":400}) · completed',
        "verdict · ask · by default: write",
        "approval a/1 · granted · by ada",
        "attempt 1 · refund · write, once · by approval 1 · completed",
        "result · refunded 400 cents for order 7",
        "state changes",
        "event 1 · queued · run.created",
        "event 4 · waiting · approval · approval.requested",
        "approval.granted · by ada",
        "end · completed",
        "Order 7 is paid back.",
    ):
        assert part in out, part


def test_a_trace_fits_its_columns(cairn: Cairn) -> None:
    cairn("run", "large", "word " * 100, "--id", "a")
    for columns in ("80", "120"):
        said = cairn("trace", "a", COLUMNS=columns)
        assert max(map(len, said.out.splitlines())) <= int(columns)


def test_a_trace_in_a_pipe_is_not_wrapped(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    text = "word " * 30
    cairn("run", "quick", text, "--id", "a")
    out = cairn("trace", "a").out
    assert f"input · {text.strip()}" in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_a_trace_shows_faults_with_class_and_what_was_done(cairn: Cairn) -> None:
    cairn("run", "twice", "go", "--id", "a")
    out = traced(cairn, "a")
    assert "network · gone · → retry · again at +" in out
    assert "model scripted · attempt 2 · completed" in out
    cairn("run", "broken", "go", "--id", "b")
    assert "auth · no key · → end" in traced(cairn, "b")
    assert "end · failed · auth · no key" in traced(cairn, "b")


def test_a_trace_shows_limits_doubts_and_who_settled_them(cairn: Cairn) -> None:
    cairn("run", "endless", "go", "--id", "a")
    assert "limit.reached · steps: 3 of 3" in traced(cairn, "a")
    cairn("run", "unsure", "go", "--id", "b")
    cairn("approve", "b/1")
    cairn("resume", "b")
    assert "takeover" in traced(cairn, "b")
    assert re.search(r"· unknown · (under 1|\d+) ms · the line went dead", traced(cairn, "b"))
    cairn("resolve", "b/c1", "--happened", "--evidence", "the bank", "--by", "ada")
    assert "happened · says ada · the bank" in traced(cairn, "b")


def test_one_step_is_shown_with_its_texts_whole(cairn: Cairn) -> None:
    cairn("run", "large", "go", "--id", "a")
    short, whole = traced(cairn, "a"), traced(cairn, "a", "--step", "1")
    assert whole.count("x") > 1000 > short.count("x")
    assert "step 2" not in whole
    assert cairn("trace", "a", "--step", "9").code == 2


def test_a_trace_as_json_is_one_event_a_line_with_header_and_name(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    events = cairn("trace", "a", "--json").objects
    assert [e["seq"] for e in events] == [1, 2, 3, 4]
    assert [e["name"] for e in events][-1] == "approval.requested"
    assert set(events[0]) == {
        *("run", "seq", "at", "step", "actor", "type", "name", "v", "data"),
    }
    assert [e["seq"] for e in cairn("trace", "a", "--json", "--step", "1").objects] == [2, 3, 4]


def test_an_unknown_run_cannot_be_traced(cairn: Cairn) -> None:
    cairn("run", "quick", "go")
    said = cairn("trace", "nope")
    assert said.code == 2
    assert said.err == "cairn: there is no run 'nope' in this store\n"


def test_the_stores_own_journal_is_told_in_lines(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("prune", "--older-than", "0s")
    assert "store.pruned" in traced(cairn, "store")


# ---------------------------------------------------------------- inbox


def test_the_inbox_names_what_waits_and_how_to_decide_it(cairn: Cairn) -> None:
    for agent in ("shop", "asker", "unsure", "looping"):
        cairn("run", agent, "go", "--id", agent)
    cairn("approve", "unsure/1")
    cairn("resume", "unsure")
    out = cairn("inbox").out
    for part in (
        "shop/1 · refund · approval · expires in 6 d 23 h",
        "cairn approve shop/1",
        "cairn deny shop/1 -m REASON",
        "Which order?",
        "cairn answer asker/1 TEXT",
        "cairn resolve unsure/c1 --not-happened",
        "No progress for several turns. What should the agent do?",
        "cairn answer looping/1 TEXT",
    ):
        assert part in out, part
    items = cairn("inbox", "--json").objects
    assert {i["kind"] for i in items} == {"approval", "input", "in_doubt"}
    assert {i["run"] for i in items} == {"shop", "asker", "unsure", "looping"}
    assert next(i for i in items if i["run"] == "looping")["question"].startswith("No progress")


def test_what_is_left_out_of_a_long_request_is_said(cairn: Cairn) -> None:
    cairn("run", "long", "go", "--id", "a")
    out = cairn("inbox").out
    assert "[3,022 more characters: cairn inbox --json]" in out
    assert "7" * 5_000 in cairn("inbox", "--json").out


# ---------------------------------------------------------------- hostile text

BAD = ("\x1b", "\x07", "\x9b", "\u202e", "\r")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "hostile", "go\x1b[2J [red]x", "--id", "a"),
        ("run", "hostile", "go\x1b[2J [red]x", "--id", "a", "--json"),
        ("trace", "a"),
        ("trace", "a", "--step", "1"),
        ("trace", "a", "--json"),
        ("inbox",),
        ("inbox", "--json"),
        ("runs",),
        ("runs", "--json"),
        ("export", "a"),
        ("approve", "a/1", "-m", "\x1b[31m"),
        ("deny", "a\x1b[31m/1"),
        ("trace", "\x1b[31m"),
    ],
)
def test_no_text_of_a_model_or_person_reaches_the_terminal_as_a_command(
    cairn: Cairn, words: tuple[str, ...]
) -> None:
    cairn("run", "hostile", "go\x1b[2J [red]x", "--id", "a", "--session", "\x1b[31ms")
    said = cairn(*words)
    for bad in BAD:
        assert bad not in said.out, said
        assert bad not in said.err, said
    if "--json" in words:
        assert all(isinstance(o, dict) for o in said.objects)
    elif words[0] in {"run", "trace"} and said.code in {0, 5}:
        assert "[bold]loud[/bold]" in " ".join(said.out.split())


def test_a_final_answer_is_shown_with_its_markup_and_without_its_escapes(cairn: Cairn) -> None:
    cairn("run", "hostile", "go", "--id", "a")
    cairn("approve", "a/1")
    said = cairn("run", "hostile", "go", "--id", "a", "-q")
    assert said.code == 0
    assert said.out.startswith("␛[31mred␛]0;owned␇ [bold]loud[/bold]")
    assert all(bad not in said.out for bad in BAD)
    assert json.loads(cairn("run", "hostile", "go", "--id", "a", "--json").out)["text"].startswith(
        "\x1b[31m"
    ), "JSON keeps what was said, escaped"


def test_reading_from_another_folder_needs_only_the_store(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cairn("run", "quick", "go", "--id", "a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("trace", "a", "--store", "../desk.db")
    assert said.code == 0
    assert not list(elsewhere.iterdir())
