"""What somebody who decides is shown and told: in the inbox, in Python, in the trace."""

import asyncio
import json
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from tests.engine.kit import Ledger, Watched, runtime
from typer.testing import CliRunner

from cairn import ApprovalTerms, Policy, Principal, Refused, Rule, Runtime, call, tool
from cairn.cli.entry import app as shell
from cairn.core.messages import Principal as Person
from cairn.core.terms import BoundFile
from cairn.core.views import timeline
from cairn.store.inmemory import InMemoryStore

STRICT = ApprovalTerms(roles=("lead",), other_person=True, further=(("clerk", "cashier"),))
ASKS = Rule(
    name="scripts are read first", decide="ask", tools=("execute",), reason="it runs on the till",
    approval=STRICT,
)  # fmt: skip
ANN = Principal(id="ann", roles=("seller",), tenant="acme")


def executor(ledger: Ledger):
    @tool(name="execute", effect="dangerous", binds="script")
    async def execute(script: str) -> str:
        return ledger.add(f"ran {script}")

    return execute


def asking(ledger: Ledger, path: Path, **options) -> Runtime:
    options.setdefault("policy", Policy(rules=(ASKS,)))
    lines = [call("execute", script=str(path)), "done"]
    return runtime(lines, [executor(ledger)], **options)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "deploy.sh"
    path.write_text("echo hello")
    return path


HASH = sha256(b"echo hello").hexdigest()
RULE = "deployment: scripts are read first"


# ---------------------------------------------------------------- in Python


def test_what_waits_says_who_asks_by_which_rule_why_on_what_terms_and_bound_to_what(script):
    async def main():
        rt = asking(Ledger(), script)
        run = await rt.run_async("a", "t", id="r", principal=ANN)
        for (item,) in (run.pending, await rt.pending_async(), await rt.client.pending()):
            assert (item.id, item.tool, item.agent) == ("r/1", "execute", "a")
            assert item.principal == Person(id="ann", roles=("seller",), tenant="acme")
            assert (item.rule, item.reason) == (RULE, "it runs on the till")
            assert item.terms == STRICT
            assert item.files == (BoundFile(path=str(script), hash=HASH),)
            assert item.asked_at > 0
        assert run.pending == tuple(await rt.pending_async())

    asyncio.run(main())


def test_the_list_of_what_waits_folds_no_journal_and_reads_only_the_ends_of_them():
    async def main():
        ledger, store, seen = Ledger(), Watched(), []

        @tool(effect="read")
        async def look(n: int) -> str:
            return f"looked at {n}"

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        many = 60
        lines = [*(call("look", n=n) for n in range(many)), call("pay"), "done"]
        rt = runtime(lines, [look, pay], store=store, policy=Policy())
        rt.agent("a").limits = rt.agent("a").limits.changed({"steps": 500, "no_progress": 99})
        run = await rt.run_async("a", "t", id="r", limits={"steps": 500})
        assert run.status == "waiting", run.text
        whole = len(await rt.trace_async("r"))

        read = store.inner.read

        async def counted(*args, **options):
            found = await read(*args, **options)
            seen.extend(found)
            return found

        store.inner.read = counted
        (item,) = await rt.pending_async()
        assert item.rule == "default: write"
        assert 0 < len(seen) <= 65 < whole

    asyncio.run(main())


def test_what_was_asked_long_ago_in_a_long_journal_is_found_too():
    """Messages that came meanwhile stand behind the request."""

    async def main():
        from cairn.core import commands as cmd
        from cairn.core.messages import Text

        @tool(effect="write")
        async def pay() -> str:
            return "paid"

        rt = runtime([call("pay"), "done"], [pay], policy=Policy())
        await rt.run_async("a", "t", id="r", principal="ann")
        for n in range(400):
            await rt.client.submit("r", cmd.Queue(parts=(Text(str(n)),)))
        (item,) = await rt.pending_async()
        assert (item.id, item.rule, item.principal.id) == ("r/1", "default: write", "ann")

    asyncio.run(main())


def test_a_fork_says_of_its_requests_what_stands_in_what_it_shares():
    async def main():
        @tool(effect="write")
        async def pay() -> str:
            return "paid"

        rt = runtime([call("pay"), "done"], [pay], policy=Policy())
        await rt.run_async("a", "t", id="r", principal=ANN)
        first = next(
            e.seq for e in await rt.trace_async("r") if e.event.NAME == "approval.requested"
        )
        await rt.fork_async("r", first - 1, id="f")
        found = {item.id: item for item in await rt.pending_async()}
        assert set(found) == {"r/1", "f/1"}
        assert {item.principal.id for item in found.values()} == {"ann"}
        assert {item.rule for item in found.values()} == {"default: write"}

    asyncio.run(main())


def test_a_question_is_told_with_its_words_whoever_asks_it():
    async def main():
        rt = runtime([call("ask_user", question="Which one?"), "done"], [], policy=Policy())
        run = await rt.run_async("a", "t", id="r")
        for (item,) in (run.pending, await rt.pending_async()):
            assert (item.kind, item.question) == ("input", "Which one?")

    asyncio.run(main())


def test_one_journal_that_cannot_be_read_does_not_hide_what_else_waits(tmp_path):
    import apsw

    @tool(effect="write")
    async def pay() -> str:
        return "paid"

    path = tmp_path / "s.db"
    with runtime([call("pay"), "done"], [pay], policy=Policy(), store=path) as rt:
        rt.run("a", "t", id="bad")
        rt.run("a", "t", id="good")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE event SET data = x'00' WHERE id = (1 << 32) + 1")
    connection.close()
    with Runtime(path) as rt:
        found = {item.id: item for item in rt.pending()}
    assert found["good/1"].rule == "default: write"
    assert "its journal cannot be read" in found["bad/1"].reason


# ---------------------------------------------------------------- twice


def test_a_second_yes_writes_nothing_and_says_whose_stands_and_since_when(script):
    async def main():
        rt = asking(Ledger(), script, policy=Policy())
        await rt.run_async("a", "t", id="r")
        first = await rt.client.approve("r/1", actor="ann")
        assert (first.entry.actor, first.note) == ("ann", "")
        head = len(await rt.trace_async("r"))
        again = await rt.client.approve("r/1", actor="ann")
        assert again.entry is None
        assert again.note.startswith("was already granted by you at 20")
        run = await rt.approve_async("r/1", by="bob")
        assert run.note.startswith("r/1 was already granted by ann at 20")
        assert len(await rt.trace_async("r")) == head
        assert (await rt.get_async("r")).note == ""

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_a_second_decision_of_somebody_who_may_not_decide_is_refused(script, verb):
    async def main():
        rt = asking(Ledger(), script)
        await rt.run_async("a", "t", id="r", principal="ann")
        decide = getattr(rt, f"{verb}_async")
        await decide("r/1", by="bob", roles=("lead", "clerk"))
        head = len(await rt.trace_async("r"))
        how = {"approve": "granted", "deny": "denied"}[verb]
        for by, roles, lacks in (
            ("eve", (), "needs a person with the role lead"),
            ("eve", ("lead",), "needs a person with one of clerk, cashier"),
            ("ann", ("lead", "clerk"), "needs another person than ann"),
            ("", ("lead", "clerk"), "needs to know who decides"),
        ):
            with pytest.raises(Refused, match=f"{lacks}.*; it was already {how} by bob at"):
                await decide("r/1", by=by, roles=roles)
        again = await decide("r/1", by="bob", roles=("lead", "clerk"))
        assert again.note.startswith(f"r/1 was already {how} by you at 20")
        assert len(await rt.trace_async("r")) == head

    asyncio.run(main())


def test_who_may_decide_is_also_known_when_the_call_is_long_done(script):
    async def main():
        rt = asking(Ledger(), script)
        await rt.run_async("a", "t", id="r", principal="ann")
        await rt.approve_async("r/1", by="bob", roles=("lead", "clerk"))
        assert (await rt.run_async("a", "t", id="r", principal="ann")).status == "completed"
        with pytest.raises(Refused, match="the role lead"):
            await rt.approve_async("r/1", by="eve")
        run = await rt.approve_async("r/1", by="cat", roles=("lead", "cashier"))
        assert run.note.startswith("r/1 was already granted by bob")

    asyncio.run(main())


# ---------------------------------------------------------------- files at the yes


def test_a_file_that_changed_is_told_to_who_says_yes(script):
    async def main():
        ledger = Ledger()
        rt = asking(ledger, script, policy=Policy())
        await rt.run_async("a", "t", id="r")
        script.write_text("rm -rf /")
        head = len(await rt.trace_async("r"))
        with pytest.raises(Refused, match=f"changed since it was asked: {script}"):
            await rt.approve_async("r/1", by="ann")
        with pytest.raises(Refused, match="changed since it was asked"):
            await rt.approve_async("r/1", by="ann", arguments={"script": str(script)})
        assert len(await rt.trace_async("r")) == head
        script.unlink()
        script.mkdir()
        with pytest.raises(Refused, match="is no file"):
            await rt.approve_async("r/1", by="ann")
        script.rmdir()
        script.write_text("echo hello")
        await rt.approve_async("r/1", by="ann")
        script.write_text("rm -rf /")  # and the start looks once more
        assert [p.id for p in (await rt.run_async("a", "t", id="r")).pending] == ["r/2"]
        assert ledger.lines == []

    asyncio.run(main())


def test_a_no_and_a_process_that_knows_no_agent_look_at_no_file(script):
    async def main():
        store = InMemoryStore()
        rt = asking(Ledger(), script, policy=Policy(), store=store)
        await rt.run_async("a", "t", id="r")
        await rt.run_async("a", "t", id="s")
        script.write_text("rm -rf /")
        await rt.deny_async("r/1", by="ann")
        await Runtime(store.beside()).approve_async("s/1", by="ann")
        assert [p.id for p in (await rt.run_async("a", "t", id="s")).pending] == ["s/2"]

    asyncio.run(main())


# ---------------------------------------------------------------- in a shell

APP = '''
from cairn import Agent, ApprovalTerms, Policy, Rule, Runtime, Scripted, call, tool


@tool(effect="dangerous", binds="script")
def execute(script: str) -> str:
    """Run a script."""
    return "ran"


@tool(effect="dangerous", binds="script")
def wipe(script: str) -> str:
    """Run a script that anybody may approve."""
    return "wiped"


@tool(effect="write")
def pay(order: str, cents: int = 100) -> str:
    """Pay."""
    return "paid"


rules = [
    Rule(name="scripts are read first", decide="ask", tools=("execute",),
         reason="it runs on the till",
         approval=ApprovalTerms(roles=("lead",), other_person=True)),
]
agents = [
    Agent("ops", Scripted([call("execute", script="deploy.sh"), "done"]), tools=[execute]),
    Agent("free", Scripted([call("wipe", script="deploy.sh"), "done"]), tools=[wipe]),
    Agent("shop", Scripted([call("pay", order="7"), "done"]), tools=[pay]),
]
rt = Runtime("s.db", agents=agents, policy=Policy(rules=tuple(rules)))
'''


@pytest.fixture
def cairn(tmp_path, monkeypatch):
    module = f"till{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{module}.py").write_text(APP)
    (tmp_path / "deploy.sh").write_text("echo hello")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_APP", f"{module}:rt")
    monkeypatch.setenv("CAIRN_STORE", "s.db")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(*arguments, code=0, **options):
        sys.modules.pop(module, None)
        said = CliRunner().invoke(shell, [*arguments], catch_exceptions=False, **options)
        assert said.exit_code == code, f"{said.exit_code}: {said.output} {said.stderr}"
        return said.output + said.stderr

    run.bare = lambda: monkeypatch.delenv("CAIRN_APP")
    return run


FOR_ANN = ("--principal", "ann", "--role", "seller", "--role", "driver", "--tenant", "acme")


def test_the_inbox_shows_all_that_there_is_to_know_in_one_column(cairn):
    said = cairn("run", "ops", "go", "--id", "r", *FOR_ANN, code=5)
    for shown in (said, cairn("inbox")):
        lines = [line for line in shown.splitlines() if line.startswith("    ")]
        assert lines[:6] == [
            '    execute({"script":"deploy.sh"})',
            "    asked by    agent ops for ann (seller, driver; tenant acme)",
            f"    rule        {RULE}",
            "    reason      it runs on the till",
            "    may decide  role lead, and another person than who asked for it or led to it",
            f"    bound to    deploy.sh, sha256 {HASH}",
        ]
    cairn("run", "shop", "go", "--id", "s", code=5)
    assert "    may decide  anybody\n" in cairn("inbox")
    assert "reason" not in cairn("inbox").partition("s/1")[2]


def test_the_inbox_gives_programs_typed_fields(cairn):
    cairn("run", "ops", "go", "--id", "r", *FOR_ANN, code=5)
    (found,) = map(json.loads, cairn("inbox", "--json").splitlines())
    assert found["principal"] == {"id": "ann", "roles": ["seller", "driver"], "tenant": "acme"}
    assert (found["rule"], found["reason"]) == (RULE, "it runs on the till")
    assert (found["terms"]["roles"], found["terms"]["other_person"]) == (["lead"], True)
    assert found["files"] == [{"path": "deploy.sh", "hash": HASH}]


def test_the_trace_shows_on_what_terms_and_bound_to_what_something_was_asked(cairn):
    cairn("run", "ops", "go", "--id", "r", *FOR_ANN, code=5)
    for decided in (False, True):
        if decided:
            cairn("approve", "r/1", "--as", "bob", "--role", "lead")
        shown = cairn("trace", "r", env={"COLUMNS": "120"})
        assert "ops for ann (seller, driver; tenant acme)" in shown
        assert f"asked by {RULE} · it runs on the till" in shown
        assert "may decide: role lead, and another person than who asked" in shown
        assert f"bound to deploy.sh, sha256 {HASH}" in shown
        assert ("until 20" in shown) is not decided
    (view,) = timeline(Runtime("s.db").trace("r"), "r").steps[0].calls
    assert view.approvals[0].reason == "it runs on the till"


def test_a_chat_shows_it_before_it_asks_for_a_yes(cairn):
    said = cairn("chat", "ops", *FOR_ANN, input="go\nlater\n", code=5)
    assert "asked by    agent ops for ann (seller, driver; tenant acme)" in said
    assert f"bound to    deploy.sh, sha256 {HASH}" in said


def test_a_repeated_yes_is_not_said_to_have_been_given(cairn):
    cairn("run", "ops", "go", "--id", "r", "--principal", "ann", code=5)
    given = ("approve", "r/1", "--as", "bob", "--role", "lead")
    assert "approved r/1" in cairn(*given)
    again = cairn(*given)
    assert "approved" not in again
    assert "r/1 was already granted by you at 20" in again
    other = cairn("approve", "r/1", "--as", "cat", "--role", "lead")
    assert "r/1 was already granted by bob at 20" in other
    said = cairn("approve", "r/1", "--as", "eve", code=1)
    assert "r/1 needs a person with the role lead, and eve has none" in said
    assert "it was already granted by bob" in said
    assert cairn("trace", "r", "--json").count("approval.granted") == 1
    cairn("pause", "r")
    assert "r was paused before" in cairn("pause", "r")


def test_a_repeated_yes_with_a_change_is_told_the_same_way(cairn):
    cairn("run", "shop", "go", "--id", "s", code=5)
    new = ("approve", "s/1", "--as", "bob", "--arguments", '{"order": "8"}')
    assert "approved s/1 with" in cairn(*new)
    assert "s/1 was already granted by you at 20" in cairn(*new)
    assert "approved" not in cairn(*new)


def test_new_arguments_that_nobody_here_can_check_are_said_to_be_unchecked(cairn):
    cairn("run", "shop", "go", "--id", "s", code=5)
    cairn("run", "shop", "go", "--id", "t", code=5)
    wrong = '{"order": "7", "cents": "many"}'
    said = cairn("approve", "s/1", "--arguments", wrong, code=2)
    assert "cents" in said
    assert "not checked" not in cairn("approve", "s/1", "--arguments", '{"order": "8"}')
    cairn.bare()
    said = cairn("approve", "t/1", "--arguments", wrong)
    assert "the new arguments were not checked here" in said
    assert "--app module:name" in said


def test_a_file_that_changed_is_told_in_a_shell_that_knows_the_application(cairn):
    cairn("run", "ops", "go", "--id", "r", "--principal", "ann", code=5)
    cairn("run", "ops", "go", "--id", "s", "--principal", "ann", code=5)
    Path("deploy.sh").write_text("rm -rf /")
    yes = ("approve", "r/1", "--as", "bob", "--role", "lead")
    assert "changed since it was asked: deploy.sh" in cairn(*yes, code=1)
    assert "changed since it was asked: deploy.sh" in cairn(*yes, "--app", _app(), code=1)
    assert "approval.granted" not in cairn("trace", "r", "--json")
    Path("deploy.sh").write_text("echo hello")
    assert "approved r/1" in cairn(*yes)
    Path("deploy.sh").write_text("rm -rf /")
    assert "r/1 was already granted by you" in cairn(*yes)
    cairn.bare()
    assert "approved s/1" in cairn("approve", "s/1", "--as", "bob", "--role", "lead")


def _app() -> str:
    import os

    return os.environ["CAIRN_APP"]


def test_a_takeover_with_an_answer_over_an_open_call_begins_nothing(cairn):
    cairn("run", "shop", "go", "--id", "s", code=5)
    before = cairn("trace", "s", "--json")
    answer = ("takeover", "s", "-m", "the shop is down", "--as", "ann", "--answer", "Paid.")
    for words in (answer, (*answer, "--hand-back"), (*answer, "--did", "c9", "--result", "x")):
        cairn(*words, code=2 if "c9" in words else 1)
        assert cairn("trace", "s", "--json") == before
    assert "c1 must end first" in cairn(*answer, code=1)
    cairn(*answer, "--did", "c1", "--result", "paid at the desk")
    assert "Paid." in cairn("resume", "s")


def test_a_file_that_changed_is_told_at_the_yes_of_a_chat(cairn, monkeypatch):
    def typed(prompt):
        if prompt.startswith("allow it?"):
            Path("deploy.sh").write_text("rm -rf /")
            return "y"
        return next(lines)

    lines = iter(["go", "/quit"])
    monkeypatch.setattr("cairn.cli.chat_command.ask", typed)
    monkeypatch.setattr("cairn.cli.choosing.ask", typed)
    said = cairn("chat", "free", "--session", "s", code=5)
    assert "changed since it was asked: deploy.sh" in said
