"""`cairn sessions` needs no application: conversations are listed, moved, written out, removed."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.engine.kit import runtime, texts
from typer.testing import CliRunner

from cairn import call
from cairn.cli.entry import app


def answer(request):
    """Asks once where it is told to wait, calls nothing else."""
    said = texts(request)[-1]
    return call("ask_user", question="?") if said == "wait" else f"read {said}"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with a session of two runs, `s`, and one of bob's, `t`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")

    async def main():
        async with runtime(answer, store=tmp_path / "s.db") as rt:
            await rt.run_async("a", "Refund order 7", id="r1", session="s", principal="ann")
            await rt.run_async("a", "# and\n```\nsix", id="r2", session="s", principal="ann")
            await rt.run_async("a", "hello", id="b1", session="t", principal="bob")

    asyncio.run(main())
    return tmp_path


def cairn(*words):
    """Run a command; its exit code and what it said."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_sessions_are_listed_with_their_titles(store):
    said = cairn("sessions", "list").stdout
    assert [line.split()[0] for line in said.splitlines()] == ["session", "t", "s"]
    assert "Refund order 7" in said
    lines = [json.loads(x) for x in cairn("sessions", "list", "--json").stdout.splitlines()]
    assert [(x["session"], x["title"], x["runs"]) for x in lines] == [
        ("t", "hello", 1),
        ("s", "Refund order 7", 2),
    ]
    assert "hello" not in cairn("sessions", "list", "--principal", "ann").stdout
    assert "there are more" in cairn("sessions", "list", "--limit", "1").stdout


def test_a_title_is_given_and_taken_back(store):
    assert cairn("sessions", "title", "s", "Lamps", "--by", "ada").exit_code == 0
    assert "Lamps" in cairn("sessions", "show", "s").stdout
    assert "had this title" in cairn("sessions", "title", "s", "Lamps").stdout
    assert cairn("sessions", "title", "s", "").exit_code == 0
    assert "Refund order 7" in cairn("sessions", "show", "s").stdout
    audit = cairn("audit").stdout
    assert "session titled" in audit
    assert "ada" in audit
    said = cairn("sessions", "title", "nobody", "x")
    assert (said.exit_code, "no session" in said.stderr) == (2, True)
    said = cairn("sessions", "title", "s", "ghp_" + "a8Kd92Lm4Qx7Zt1Vb6Nc3Rf5Yw0Jh8Ps2Gu")
    assert said.exit_code == 2
    assert "title" in said.stderr


def test_a_session_is_rewound_and_the_later_run_is_listed_as_superseded(store):
    assert cairn("sessions", "rewind", "s", "r1").stdout == "session s goes on from r1\n"
    assert "stands there already" in cairn("sessions", "rewind", "s", "r1").stdout
    shown = cairn("sessions", "show", "s").stdout
    assert shown.index("runs:") < shown.index("r1 ") < shown.index("superseded:")
    assert shown.index("superseded:") < shown.index("r2 ")
    seen = json.loads(cairn("sessions", "show", "s", "--json").stdout)
    assert [r["run"] for r in seen["chain"]] == ["r1"]
    assert [r["run"] for r in seen["superseded"]] == ["r2"]
    assert cairn("sessions", "rewind", "s", "b1").exit_code == 2
    assert cairn("verify").exit_code == 0


def test_a_session_is_forked(store):
    assert cairn("sessions", "fork", "s", "f", "--at", "r1").stdout == (
        "session f goes on from r1\n"
    )
    said = cairn("sessions", "fork", "s", "t")
    assert (said.exit_code, "there is a session" in said.stderr) == (2, True)
    assert "of session s" in cairn("sessions", "show", "f").stdout
    assert cairn("verify").exit_code == 0


def test_who_waits_is_shown_behind_whom(store):
    async def main():
        async with runtime(answer, store=store / "s.db") as rt:
            await rt.send_async("s", "wait", principal="ann")
            await rt.post_async("s", "later", principal="ann", mode="queue", id="x")

    asyncio.run(main())
    shown = cairn("sessions", "show", "s").stdout
    assert "waiting:" in shown
    assert "queued, behind" in shown
    assert "(+1 waiting)" in cairn("sessions", "list").stdout
    assert ", behind " in cairn("runs").stdout
    assert cairn("verify").exit_code == 0


def test_an_exported_session_can_be_checked_against_and_read(store):
    assert cairn("sessions", "rewind", "s", "r1").exit_code == 0
    said = cairn("sessions", "export", "s", "out")
    assert said.exit_code == 0
    events = [json.loads(x) for x in Path("out/events.jsonl").read_text().splitlines()]
    assert {x["run"] for x in events} == {"r1", "r2"}
    assert cairn("verify", "--heads", "out/events.jsonl").exit_code == 0
    text = Path("out/transcript.md").read_text()
    assert text.startswith("# Refund order 7\n")
    assert "## r1" in text
    assert "# Superseded" in text
    assert "**ann**" in text
    assert "> read Refund order 7" in text
    assert "\n# and" not in text, "what was said makes no heading"
    assert "> ````" in text, "nor ends its own quotation"
    again = cairn("sessions", "export", "s", "out")
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    assert cairn("sessions", "export", "s", "out", "--force").exit_code == 0
    assert cairn("sessions", "export", "nobody", "other").exit_code == 2
    assert not Path("other").exists()
    assert cairn("sessions", "prune", "s").exit_code == 0
    assert cairn("verify", "--heads", "out/events.jsonl").exit_code == 0, "tombstones fit"


def test_a_changed_run_shows_against_the_export(store):
    import apsw

    assert cairn("sessions", "export", "s", "out").exit_code == 0
    connection = apsw.Connection(str(store / "s.db"))
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("DELETE FROM run WHERE id = 'r2'")
    connection.close()
    assert cairn("verify", "--heads", "out/events.jsonl").exit_code == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE place SET title = 'other'",
        "UPDATE place SET run = 'r2'",
        "DELETE FROM place",
        "INSERT INTO place (session, title) VALUES ('x', 'y')",
        "UPDATE run SET behind = 1 WHERE id = 'r1'",
        "UPDATE run SET unread = 3 WHERE id = 'r1'",
    ],
)
def test_verify_finds_what_is_said_of_sessions_and_not_by_the_journals(store, change):
    import apsw

    cairn("sessions", "title", "s", "Lamps")
    cairn("sessions", "rewind", "s", "r1")
    assert cairn("verify").exit_code == 0
    connection = apsw.Connection(str(store / "s.db"))
    connection.execute(change)
    connection.close()
    assert cairn("verify").exit_code == 1


def test_a_session_is_pruned_and_the_others_stay(store):
    assert "to be removed: 2 runs" in cairn("sessions", "prune", "s", "--dry-run").stdout
    assert (
        "removed: 0 runs; 2 runs left"
        in cairn("sessions", "prune", "s", "--older-than", "1h").stdout
    )
    assert cairn("sessions", "fork", "s", "f", "--at", "r1").exit_code == 0
    assert "removed: 1 run; 1 run left" in cairn("sessions", "prune", "s").stdout
    assert cairn("sessions", "show", "f").exit_code == 0


def test_a_fork_that_is_pruned_without_a_run_of_its_own_is_named(store):
    assert cairn("sessions", "fork", "s", "f", "--at", "r1").exit_code == 0
    named = "f: a fork in which nothing was said"
    would = cairn("prune", "--older-than", "0s", "--dry-run").stdout
    assert f"{named}\nto be removed: 3 runs, 1 fork" in would
    assert cairn("sessions", "prune", "f").stdout == f"{named}\nremoved: 0 runs, 1 fork\n"
    assert cairn("sessions", "fork", "s", "g", "--at", "r1").exit_code == 0
    (line,) = [
        json.loads(each) for each in cairn("sessions", "prune", "g", "--json").stdout.splitlines()
    ]
    assert (line["did"], line["id"], line["fork"]) == ("removed", "g", True)
    assert "hello" in cairn("sessions", "list").stdout
    assert cairn("sessions", "prune", "nobody").exit_code == 2
    assert cairn("verify").exit_code == 0


def test_a_message_is_posted_and_kept_for_a_worker(store):
    (store / "talk_app.py").write_text(
        "from cairn import Agent, Runtime, Scripted\n"
        "def rt():\n"
        "    return Runtime('s.db', agents=[Agent('a', Scripted(lambda request: 'read'))])\n"
    )
    words = ("--app", "talk_app:rt", "--principal", "ann", "--id", "mail-7", "--json")
    said = cairn("sessions", "post", "s", "hello", *words)
    assert said.exit_code == 0
    posted = json.loads(said.stdout)
    assert (posted["how"], posted["session"]) == ("started", "s")
    waiting = cairn("sessions", "post", "s", "more", *words[:4], "--mode", "queue")
    assert waiting.stdout.startswith("queued: ")
    again = json.loads(cairn("sessions", "post", "s", "hello", *words).stdout)
    assert again["run"] == posted["run"]
    foreign = cairn("sessions", "post", "s", "hello", "--app", "talk_app:rt", "--principal", "eve")
    assert (foreign.exit_code, "no session" in foreign.stderr) == (2, True)
    assert cairn("work", "--app", "talk_app:rt", "--until-idle").exit_code == 0
    assert "waiting:" not in cairn("sessions", "show", "s").stdout


@pytest.mark.parametrize(
    "change", ["DELETE FROM message", "UPDATE message SET seq = 1", "UPDATE message SET id = 'x'"]
)
def test_verify_finds_a_message_that_is_listed_otherwise_than_it_was_queued(store, change):
    import apsw

    async def main():
        async with runtime(answer, store=store / "s.db") as rt:
            await rt.send_async("s", "wait", principal="ann")
            posted = await rt.post_async("s", "more", principal="ann", id="mail-7")
            assert posted.how == "steered"

    asyncio.run(main())
    assert cairn("verify").exit_code == 0
    connection = apsw.Connection(str(store / "s.db"))
    connection.execute(change)
    connection.close()
    assert cairn("verify").exit_code == 1
