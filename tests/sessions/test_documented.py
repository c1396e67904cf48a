"""What docs/sessions.md says beside its examples, and no other test holds it to."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.engine.kit import FREE_HAND, Recorder, events, names, results, runtime, texts
from tests.sessions.test_sessions_command import cairn

from cairn import Agent, Limits, Principal, Route, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Policy, Rule

REFUSING = Policy(rules=(Rule(name="none", decide="deny", tools=("pay",)),))
ANN = Principal(id="ann", roles=("boss",), tenant="acme")


@tool(effect="write")
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def waits_then(more):
    """Asks a person about the first message, and then does something else."""

    def answer(request):
        if len(texts(request)) == 1 and not results(request):
            return call("ask_user", question="?")
        return more(request)

    return answer


def pays(request):
    return f"done: {[*results(request).values()][-1]}" if request.turn else call("pay", n=1)


def test_the_run_that_takes_messages_over_works_for_the_same_person_under_the_same_bounds():
    async def main():
        rt = runtime(waits_then(pays), [pay])
        limits = Limits(steps=4, tokens=90_000)
        given = {"principal": ANN, "limits": limits, "policy": REFUSING, "kind": "generate"}
        await rt.run_async("a", "one", id="r1", session="s", **given)
        steered = await rt.post_async("s", "two", principal=ANN)
        await rt.cancel_async("r1")
        run = await rt.follow_async(steered)
        made = events(await rt.trace_async(run.id), ev.RunCreated)[0]
        first = events(await rt.trace_async("r1"), ev.RunCreated)[0]
        for field in ("principal", "limits", "policy", "kind", "approvals", "session", "agent"):
            assert getattr(made, field) == getattr(first, field), field
        assert made.policy is not None
        assert "paid" not in run.text, "its policy holds for what is told it later"

    asyncio.run(main())


def test_a_task_that_is_queued_works_under_its_own_bounds_and_policy():
    async def main():
        rt = runtime(waits_then(pays), [pay])
        await rt.run_async("a", "one", id="r1", session="s")
        options = {"limits": {"steps": 3}, "policy": REFUSING, "mode": "queue"}
        await rt.run_async("a", "two", id="r2", session="s", **options)
        await rt.cancel_async("r1")
        run = await rt.drive_async("r2")
        assert run.status == "completed"
        assert "paid" not in run.text
        created = events(await rt.trace_async("r2"), ev.RunCreated)[0]
        assert created.limits.steps == 3

    asyncio.run(main())


def test_a_run_that_completes_has_read_every_message():
    """It is told something while its last reply is on the way."""

    async def main():
        asked = asyncio.Event()
        go = asyncio.Event()

        async def answer(request):
            if request.turn == 0:
                asked.set()
                await go.wait()
            return "read " + "; ".join(texts(request))

        rt = runtime(answer)
        first = asyncio.create_task(rt.run_async("a", "one", id="r1", session="s"))
        await asked.wait()
        await rt.post_async("s", "two")
        go.set()
        run = await first
        assert (run.id, run.text) == ("r1", "read one; two")
        assert len(await rt.runs_async(session="s")) == 1

    asyncio.run(main())


def test_the_model_is_sent_the_whole_conversation_and_no_run_copies_it():
    async def main():
        model = Recorder(lambda r: f"read {texts(r)[-1]}", repeat=True)
        rt = runtime(model)
        for text in ("lamps", "chairs", "tables"):
            run = await rt.send_async("s", text, agent="a")
        assert texts(model.last) == ["lamps", "chairs", "tables"]
        entries = await rt.trace_async(run.id)
        assert "lamps" not in str(entries)
        assert names(entries)[0] == "run.created"

    asyncio.run(main())


def test_an_export_holds_superseded_and_waiting_runs_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")

    async def main():
        async with runtime(waits_then(lambda r: "fine"), store="s.db") as rt:
            for n in (1, 2):
                await rt.run_async("a", f"word {n}", id=f"r{n}", session="s")
                if n == 1:
                    await rt.cancel_async("r1")
                    await rt.drive_async("r1")
            await rt.rewind_async("s", "r1")
            await rt.fork_session_async("s", "f", at="r1")
            await rt.run_async("a", "ask", id="f1", session="f")
            return await rt.post_async("f", "later", mode="queue")

    waits = asyncio.run(main())
    assert cairn("sessions", "export", "s", "out").exit_code == 0
    assert runs_in("out") == {"r1", "r2"}
    assert "word 2" in Path("out/transcript.md").read_text()
    assert cairn("sessions", "export", "f", "forked").exit_code == 0
    assert runs_in("forked") == {"r1", "f1", waits.run}
    assert "later" in Path("forked/transcript.md").read_text()


def runs_in(folder):
    lines = Path(folder, "events.jsonl").read_text().splitlines()
    return {json.loads(line)["run"] for line in lines}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("UPDATE event SET data = CAST(replace(CAST(data AS TEXT), 'one', 'won') AS BLOB)", "r1"),
        ("DELETE FROM event WHERE id & 4294967295 = 4", "r1"),
        ("DELETE FROM run WHERE id = 'r1'", "r1"),
    ],
)
def test_an_export_finds_what_was_changed_cut_off_or_removed_since(
    tmp_path, monkeypatch, what, said
):
    import apsw

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    with Runtime("s.db", [Agent("a", Scripted(["read"]))], policy=FREE_HAND) as rt:
        rt.run("a", "one", id="r1", session="s")
    assert cairn("sessions", "export", "s", "out").exit_code == 0
    assert cairn("verify", "--heads", "out/events.jsonl").exit_code == 0
    connection = apsw.Connection("s.db")
    connection.execute(what)
    connection.close()
    found = cairn("verify", "--heads", "out/events.jsonl")
    assert (found.exit_code, said in found.stderr) == (1, True)


def test_words_that_were_altered_in_an_export_are_found_and_its_transcript_vouches_for_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_APP", raising=False)
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    with Runtime("s.db", [Agent("a", Scripted(["read"]))]) as rt:
        rt.run("a", "one", id="r1", session="s")
    assert cairn("sessions", "export", "s", "out").exit_code == 0
    file = Path("out/events.jsonl")
    file.write_text(file.read_text().replace("one", "won"))
    assert cairn("verify", "--heads", str(file)).exit_code == 1


def test_a_runtime_has_no_verb_that_exports_or_prunes_one_session():
    verbs = [name for name in dir(Runtime) if not name.startswith("_")]
    assert not [name for name in verbs if "prune" in name]
    exports = {name for name in verbs if "export" in name}
    assert exports >= {"export_principal", "export_principal_async"}
    assert not [name for name in exports if "session" in name]


def test_a_message_is_accepted_as_soon_as_it_is_kept():
    with Runtime(
        ":memory:",
        [Agent("a", Scripted(["read"]))],
        routes=[Route(agent="a", channel="mail")],
    ) as rt:
        posted = rt.accept(channel="mail", principal="ann", text="hello")
        assert rt.get(posted.run).status == "queued"
        assert rt.follow(posted).text == "read"
        received = rt.receive(channel="mail", principal="bob", text="hello")
        assert received.status == "completed"


def test_the_same_id_of_two_senders_of_a_shared_session_is_two_messages():
    route = Route(agent="desk", channel="room", session="channel", shared=True)
    with Runtime(":memory:", [Agent("desk", Scripted(lambda _: "ok"))], routes=[route]) as rt:
        posted = [
            rt.accept(channel="room", principal=who, text="yes", id="1")
            for who in ("ann", "bob", "ann", "bob")
        ]
        assert posted[0] == posted[2]
        assert posted[1] == posted[3]
        assert (posted[0].run, posted[0].seq) != (posted[1].run, posted[1].seq)
        assert len(rt.holdings("bob").shared) == 1


def test_an_exported_session_is_for_the_eyes_of_whoever_wrote_it_only(tmp_path):
    with Runtime(tmp_path / "s.db", [Agent("desk", Scripted(["Hello."]))]) as rt:
        rt.send("s", "hi", agent="desk")
    store = ("--store", str(tmp_path / "s.db"))
    assert cairn("sessions", "export", "s", "", *store).exit_code == 2
    assert cairn("sessions", "export", "s", str(tmp_path / "out"), *store).exit_code == 0
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()}
    assert modes == {"events.jsonl": 0o600, "transcript.md": 0o600}


@pytest.mark.parametrize("behind", [False, True])
def test_a_message_cancelled_before_its_turn_is_no_part_of_the_conversation_one_after_it_is(behind):
    """In a session where nothing is at work its turn comes at once, driven or not."""
    seen: list[str] = []

    def model(request):
        seen[:] = [part.content for each in request.messages for part in each.parts]
        return "ok"

    with Runtime(":memory:", [Agent("desk", Scripted(model))]) as rt:
        first = rt.send("s", "hello", agent="desk", principal="ann")
        posted = [rt.post("s", "one", principal="ann", mode="queue")]
        if behind:
            posted.append(rt.post("s", "two", principal="ann", mode="queue"))
        assert [each.how for each in posted] == ["started", "queued"][: len(posted)]
        for each in reversed(posted):
            rt.cancel(each.run)
        rt.send("s", "next", principal="ann")
        assert seen == ["hello", "ok", "one", "next"]
        rt.rewind("s", first.id, principal="ann")
        rt.send("s", "last", principal="ann")
        assert seen == ["hello", "ok", "last"]
