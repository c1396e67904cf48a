"""What a message must have, and what is said where it has it not."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.kit import names
from typer.testing import CliRunner

from cairn import (
    Agent,
    ConfigError,
    Intake,
    Need,
    NoRoute,
    Principal,
    Refused,
    Route,
    RunConflict,
    Runtime,
    Scripted,
    UnknownRun,
    call,
    tool,
)
from cairn.cli.entry import app
from cairn.core.views import timeline
from cairn.tools.builtin import ask_user


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


WHO = ["", " ", Principal(id=""), Principal(id="ann", tenant=" ")]


def runtime(script, routes=(), store=":memory:"):
    """A runtime with one agent, `a`, that may have to ask before it pays."""
    agent = Agent("a", Scripted(script), tools=[pay, ask_user])
    return Runtime(store, [agent], routes=[*routes])


BLANK = ["", "  ", ["", " "]]
VERBS = {
    "run": lambda rt, text, who: rt.run("a", text, principal=who),
    "enqueue": lambda rt, text, who: rt.enqueue("a", text, principal=who),
    "start": lambda rt, text, who: rt.start("a", text, principal=who),
    "send": lambda rt, text, who: rt.send("s", text, agent="a", principal=who),
    "post": lambda rt, text, who: rt.post("s", text, agent="a", principal=who),
    "receive": lambda rt, text, who: rt.receive(text=text, principal=who),
}


def desk(*said):
    """A runtime with one agent that takes whatever comes."""
    return runtime([*said] if said else lambda request: "done", [Route(agent="a")])


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("text", BLANK, ids=repr)
def test_a_message_that_says_nothing_is_refused_and_leaves_no_run(verb, text):
    with desk() as rt:
        with pytest.raises(ConfigError, match="input"):
            verb(rt, text, "ann")
        assert rt.runs() == []


def test_a_file_alone_is_a_message(tmp_path):
    Path(tmp_path / "note.txt").write_text("hello")
    with desk() as rt:
        assert rt.run("a", tmp_path / "note.txt").ok


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize(
    "who", ["", " ", Principal(id=""), Principal(id="ann", tenant=" ")], ids=repr
)
def test_nobody_is_no_principal_for_what_is_kept_for_nobody_cannot_be_erased(verb, who):
    with desk() as rt:
        with pytest.raises(ConfigError, match="principal"):
            verb(rt, "hello", who)
        assert rt.runs() == []


@pytest.mark.parametrize("session", ["", " "])
def test_a_message_names_its_session(session):
    with desk() as rt:
        for say in (rt.send, rt.post):
            with pytest.raises(ConfigError, match="session"):
                say(session, "hello", agent="a")


def test_conversations_of_nobody_are_not_those_of_everybody():
    with desk() as rt:
        rt.send("s", "hello", agent="a", principal="ann")
        assert [info.session for info in rt.sessions()] == ["s"]
        with pytest.raises(ConfigError, match="principal"):
            rt.sessions(principal="")


def test_another_text_under_an_id_is_refused_by_the_senders_own_id():
    with desk() as rt:
        rt.send("s", "hello", agent="a", id="mail-7")
        with pytest.raises(RunConflict, match="'mail-7'"):
            rt.send("s", "good bye", id="mail-7")


def test_who_begins_a_session_is_told_how():
    with desk() as rt, pytest.raises(UnknownRun, match=r"--agent NAME.*agents here: a"):
        rt.post("new", "hello")


def test_a_mode_that_a_run_has_not_is_refused_with_those_it_has():
    with desk() as rt, pytest.raises(ConfigError, match="Use one of queue, interrupt, or leave"):
        rt.run("a", "hello", session="s", mode="steer")


def test_the_nearest_route_is_the_one_that_was_almost_named():
    routes = [
        Route(agent="a", channel="mail", principal="boss"),
        Route(agent="a", channel="chat", key="42"),
        Route(agent="a", channel="slack"),
    ]
    with runtime(lambda request: "done", routes) as rt:
        with pytest.raises(NoRoute, match=r"nearest is .*slack"):
            rt.route(channel="slak", principal="ann")
        with pytest.raises(NoRoute, match=r"none comes near\. The routes are .*boss.*slack"):
            rt.route(channel="fax", principal="ann")


# ---------------------------------------------------------------- a run that is being interrupted


def waiting(rt):
    """A run that waits for approval while it is to be ended, and has not ended yet."""

    async def main():
        first = await rt.send_async("s", "pay", agent="a")
        await rt.post_async("s", "no, leave it", mode="interrupt")
        return first

    return main()


def test_a_run_that_is_ending_takes_no_decision_and_asks_for_none():
    async def main():
        async with desk(call("pay", order="7"), "left") as rt:
            first = await waiting(rt)
            request = first.pending[0].id
            assert (await rt.get_async(first.id)).pending == ()
            assert await rt.pending_async() == []
            for decide in (rt.approve_async, rt.deny_async):
                with pytest.raises(Refused, match="is ending: interrupted by"):
                    await decide(request)
            await rt.drive_async(first.id)
            assert (await rt.get_async(first.id)).status == "cancelled"
            entries = await rt.trace_async(first.id)
            assert "approval.granted" not in names(entries)
            told = timeline(entries)
            (asked,) = [a for s in told.steps for c in s.calls for a in c.approvals]
            assert (asked.decision, asked.message) == ("void", "the run ended: cancelled")

    asyncio.run(main())


def test_a_question_of_a_run_that_is_ending_needs_no_answer():
    async def main():
        async with desk(call("ask_user", question="?"), "left") as rt:
            first = await waiting(rt)
            with pytest.raises(Refused, match="is ending"):
                await rt.answer_async(first.pending[0].id, "two")

    asyncio.run(main())


# ---------------------------------------------------------------- commands


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with conversations that wait, and no application."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    with runtime([call("pay", order="7")], store=tmp_path / "s.db") as rt:
        rt.send("s", "pay", agent="a", principal="ann")
    return tmp_path


def cairn(*words):
    """What a command prints, and its exit code."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output, result.exit_code


def test_a_transcript_says_of_a_call_that_waits_that_it_waits(store):
    assert cairn("sessions", "export", "s", "out")[1] == 0
    text = (store / "out" / "transcript.md").read_text()
    assert "`pay` waits for approval" in text
    assert "the run ended" not in text


def test_a_transcript_holds_what_the_runtime_has_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    need = Need(name="order", question="Which order?", pattern="AB-")
    agent = Agent("a", Scripted(["done"]), intake=Intake(needs=[need]))
    with Runtime(tmp_path / "s.db", [agent]) as rt:
        rt.send("s", "Send it", agent="a")
        assert cairn("sessions", "export", "s", "open", "--store", "s.db")[1] == 0
        rt.send("s", "AB-1")
        assert cairn("sessions", "export", "s", "over", "--store", "s.db")[1] == 0
    for folder in ("open", "over"):
        assert "Which order?" in (tmp_path / folder / "transcript.md").read_text()
    text = (tmp_path / "over" / "transcript.md").read_text()
    assert text.index("Send it") < text.index("Which order?") < text.index("AB-1")


def test_a_list_of_nobodys_sessions_is_refused_and_of_a_stranger_says_so(store):
    told, code = cairn("sessions", "list", "--principal", "")
    assert (code, "principal" in told, "pay" in told) == (2, True, False)
    assert cairn("sessions", "list", "--principal", "bob") == ("no sessions of bob\n", 0)


def test_pruning_a_session_says_why_runs_stay(store):
    told, code = cairn("sessions", "prune", "s")
    assert code == 0
    assert "removed: 0 runs; 1 run left" in told
    assert "stays: it is waiting" in told
