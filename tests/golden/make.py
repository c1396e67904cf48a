"""Writes the golden journals of a release: runs in which every kind of event happens once.

    python -m tests.golden.make 0.3

Salts and times are fixed, so the same code writes the same bytes. A release's journals are made
once, before it is published, and never again: later releases must read them as they are.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from tests.core.play import DAY, MODEL, SECOND, START, Play, need, raw, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.budgets import Cap
from cairn.core.codec import GENESIS, Row, check_chain, open_row, seal
from cairn.core.evolve import fold
from cairn.core.fingerprint import PartChange
from cairn.core.index import pending_of
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits, Price, Usage
from cairn.core.messages import PlanItem, Principal, Reasoning, Source, Text
from cairn.core.outcomes import Called, Reply
from cairn.core.policy import From, Policy, Redirect, Rule, Value
from cairn.core.rules import Feed, IntakeRules, ModelSpec
from cairn.core.state import RunState
from cairn.core.summaries import SECTIONS
from cairn.core.terms import ApprovalTerms
from cairn.errors import ErrorClass

FOLDER = Path(__file__).resolve().parent
INDEX = "index.json"
E = ErrorClass
PRICED = ModelSpec(
    name="openai:gpt-5", price=Price(input=1_250_000, output=10_000_000, version="1")
)
TOOLS = (
    tool("search", sources=True, fallback="grep", retries=1),
    tool("grep"),
    tool("note", "write", recovery="repeat", conflict_key=lambda values: values["file"]),
    tool("charge", "write", recovery="keyed", key_ttl_us=DAY),
    tool("book", "write", recovery="probe", settle_us=2 * SECOND),
    tool("mail", "write"),
    tool("drop", "dangerous", check=need("table")),
    tool("ask_user", kind="question", check=need("question")),
)
ANNE = Principal(id="anne", roles=("support", "billing"), tenant="north")


def answered() -> Play:
    """An answer with sources, a plan, an artifact, wide text and priced tokens: completed."""
    play = Play(
        rules_of(*TOOLS, models=(PRICED, MODEL), checks=("complete",)),
        run="answered",
        agent="librarian",
        input=(Text("Was steht in Kapitel 3? 第三章写了什么？"),),
        principal=ANNE,
        session="s-1",
        fingerprint="f0",
    )
    action = play.settle()
    requested = ev.ModelRequested(
        model=action.model,
        reserved=action.reserved,
        blocks=(ev.Block(name="instructions", text="Be exact. 请准确。"),),
        messages=1,
        tools="5f2c",
    )
    play.add(requested, action.step)
    said = (Reasoning(content="I should look it up.", opaque="sig=="), Text("Let me look."))
    asked = (
        Called(name="search", arguments='{"query": "Kapitel 3"}', alias="call_1"),
        Called(name="grep", arguments="null", alias="call_2"),
    )
    usage = Usage(input_tokens=900, cached_tokens=600, output_tokens=40, reasoning_tokens=12)
    play.outcome(Reply(parts=said, calls=asked, finish="tool_calls", usage=usage, request_id="q1"))
    play.start()
    play.add(ev.PlanUpdated(items=(PlanItem(text="look it up", status="doing", steps=(1,)),)), 1)
    found = (Source(uri="book.md", text="…über Steinmännchen", span="40-44", score=0.5),)
    play.add(ev.ToolCompleted(call="c1", sources=found, duration_us=20_000), 1)
    artifact = ev.ArtifactCreated(
        id="a1", name="grep-c2", media_type="text/plain", size=9, content="石头\n…"
    )
    play.add(artifact, 1)
    play.returns("c2", "石头\n[…]", artifact="a1", duration_us=700, micro_usd=2)
    play.says("It is about trails [s7].")  # a source that was never given
    play.says("It is about cairns [s1]. 这一章讲石堆 [s1]。", usage=Usage(output_tokens=30))
    play.step()
    play.refuses("say which chapter")
    play.says("Chapter 3 is about cairns [s1].", usage=Usage(input_tokens=1_200, output_tokens=9))
    play.step()
    play.accepts()
    play.settle()
    return play


def approved() -> Play:
    """Approvals in every way they can end, and a question: waiting for the next one."""
    play = Play(rules_of(*TOOLS, policy=Policy()), run="approved", principal=ANNE)
    play.calls(("note", {"file": "a"}), ("note", {"file": "b"}), ("drop", {"table": "old"}))
    play.add(ev.ApprovalGranted(n=2, message="fine"), 1, actor="p-17")
    for call in play.start():
        play.returns(call, {"written": True})
    play.add(ev.ApprovalDenied(n=1, message="use the staging host"), 1, actor="p-17")
    play.settle()
    play.now += 8 * DAY
    play.settle()
    play.calls(("ask_user", {"question": "Which table?"}))
    play.submit(cmd.Answer(n=4, text="die zweite, 第二张"))
    play.calls(("drop", {"table": "second"}))
    return play


def doubtful() -> Play:
    """A process that died at the worst moments; effects in doubt; one given up: failed."""
    play = Play(rules_of(*TOOLS, checks=("complete",)), run="doubtful")
    play.ask()
    play.crash()
    play.says("", "grep", ("charge", {"cents": 400}), ("book", {"seat": 12}), ("note", '{"fi'))
    play.start()
    play.crash()
    play.start()
    play.raises("c1", E.TOOL_UNAVAILABLE)
    play.now += 5 * SECOND
    play.start()
    play.returns("c1", ["x"])
    for _ in range(2):
        play.start()
        play.vanishes("c2", "timeout")
    play.settle()
    play.submit(cmd.Resolve(call="c2", verdict="happened", evidence="seen on the statement"))
    play.start()
    play.crash(gone=False)
    play.now += 100 * SECOND
    play.probe("unknown")
    play.submit(cmd.Resolve(call="c3", verdict="not_happened"))
    play.start()
    play.vanishes("c3", "unsure", gone=True)
    play.submit(cmd.Late(call="c3", ok=True, result=raw({"seat": 12})))
    play.settle()
    play.says("Booked.")
    play.step()
    play.crash()
    play.step()
    play.accepts()
    play.submit(cmd.Queue(parts=(Text("and tell her"),)))
    play.calls(("mail", {"to": "her"}), ("grep", {}))
    play.vanishes("c5", "unsure")
    play.submit(cmd.Resolve(call="c5", verdict="given_up", evidence="nobody can tell"))
    play.settle()
    return play


def circling() -> Play:
    """A model that goes round in circles: hinted at, blocked, stopped."""
    play = Play(rules_of(*TOOLS), run="circling", kind="query", limits=Limits(no_progress=2))
    for _ in range(4):
        for call in play.calls(("grep", '{"pattern": "x", "in": "y"}')):
            play.returns(call, "nothing")
    play.calls(("grep", '{"in":"y","pattern":"x"}'), ("mail", {}))
    play.settle()
    return play


def faulty() -> Play:
    """Faults of models and tools, up to a failed run."""
    play = Play(rules_of(*TOOLS, models=(MODEL, PRICED)), run="faulty", approvals="none")
    play.fails(E.RATE_LIMITED, "slow down", retry_after_us=3 * SECOND)
    later = ev.RetryScheduled(subject="model", at=play.now + 9 * SECOND)
    play.add(later)  # the provider's cool-down is longer than the run knew
    play.now += 9 * SECOND
    play.fails(E.QUOTA_EXHAUSTED, "the account is empty")
    play.says("")
    play.says("x" * 50, "mail", finish="length")
    play.add(ev.ErrorRaised(error_class=E.STORAGE, message="a webhook failed", where="on_wait"))
    play.calls("search", "web_search", ("drop", {"table": "t"}))
    play.raises("c1", E.TOOL_ERROR, "index is busy")
    play.now += SECOND
    play.start()
    play.raises("c1", E.TOOL_ERROR, "index is gone")
    play.start()
    play.raises("c1", E.TOOL_ERROR, "grep is gone")
    play.settle()
    play.says("I refuse.", finish="content_filter")
    play.settle()
    return play


def cancelled() -> Play:
    """Paused, resumed, spoken to and cancelled, with a message left unread."""
    play = Play(rules_of(*TOOLS), run="cancelled", session="s-2", on_loop="ask")
    play.submit(cmd.Queue(parts=(Text("first this"),)))
    play.calls(("mail", {"to": "all"}), ("drop", {"table": "t"}))
    play.submit(cmd.Pause(reason="lunch"))
    play.returns("c1")
    play.now += 3_600 * SECOND
    play.submit(cmd.Resume())
    play.settle()
    play.submit(cmd.Queue(parts=(Text("one more thing"),)))
    play.submit(cmd.Cancel(reason="enough"))
    play.settle()
    return play


def retried(parent: Play) -> Play:
    """A run that goes on from just before the end of another one: completed."""
    play = Play(parent.rules, run="cancelled", lawful=False, session="s-2", on_loop="ask")
    play.journal = parent.journal[:-1]
    play.now, play.state = parent.now + DAY, fold(RunState(run="cancelled"), play.journal)
    at = play.state.seq
    forked = ev.RunForked(run="retried", parent="cancelled", at=at, reason="retry", grants="void")
    play.add(forked, actor="p-1")
    play.journal = play.journal[at:]
    play.submit(cmd.Approve(n=1, message="after all"))
    for call in play.start():
        play.returns(call, "dropped")
    play.says("It is gone.")
    play.settle()
    return play


def asking() -> Play:
    """A run that asks what to do instead of stopping, and goes on: running, a call at work."""
    play = Play(rules_of(*TOOLS), run="asking", on_loop="ask", limits=Limits(no_progress=1))
    while play.settle() and not play.state.question:
        for call in play.calls(("grep", {})):
            play.returns(call, "nothing")
    play.submit(cmd.Answer(n=play.state.question, text="look in the cellar"))
    newer = PartChange(part="prompt", before="3f2a91c0d4e5", after="77ab01de9f10")
    play.add(ev.RunVersionChanged(changes=(newer,), driver="desk:41, cairn 0.2"))
    (call,) = play.calls(("charge", {"cents": 1}))
    play.vanishes(call, "timeout")
    play.start()
    return play


def edited() -> Play:
    """A call and the plan changed by a person before anything ran: completed."""
    play = Play(rules_of(*TOOLS, policy=Policy()), run="edited", principal=ANNE)
    play.calls(("note", {"file": "a"}), ("note", {"file": "b"}))
    play.submit(cmd.Approve(n=1))
    play.submit(cmd.EditCall(call="c1", arguments='{"file": "b, 第二"}'))
    play.submit(cmd.SetPlan(items=(PlanItem(text="note it", status="doing"),)))
    play.settle()
    for n in (3, 2):
        play.submit(cmd.Approve(n=n))
        for call in play.start():
            play.returns(call, {"written": True})
    play.says("Noted.")
    play.settle()
    return play


def redirected() -> Play:
    """A call that a rule had another tool carry out, and content that taints: completed."""
    draft = Redirect(tool="draft", arguments={"to": From(path="to"), "note": Value(value="held")})
    rule = Rule(
        name="drafts only",
        decide="redirect",
        reason="a person sends it",
        tools=("mail",),
        taint=("web",),
        redirect=draft,
    )
    tools = (tool("fetch", taint=("web",)), tool("mail", "write"), tool("draft", "write"))
    policy = Policy(rules=(rule,), effects={"write": "allow"})
    narrow = Policy(tools={"fetch": "allow"}, name="run")
    play = Play(rules_of(*tools, policy=policy), run="redirected", policy=narrow)
    play.calls("fetch")
    play.returns("c1", "a page")
    play.calls(("mail", {"to": "kim"}))
    play.returns("c2", "draft 7")
    play.add(ev.SandboxChosen(rung="landlock", tool="shell"), 2)
    play.says("Drafted.")
    play.settle()
    return play


def handed_over() -> Play:
    """Approved with a change, bound to a file that changed, finished by a person: completed."""
    terms = ApprovalTerms(roles=("lead", "admin"), expires_in=3_600)
    play = Play(
        rules_of(*TOOLS, policy=Policy(), approval=terms), run="handed-over", principal=ANNE
    )
    play.calls(("note", {"file": "a"}), ("note", {"file": "b"}))
    lead: dict[str, Any] = {"by": "bert", "roles": ("lead",)}
    changed = '{"file": "c, 第三"}'
    play.submit(cmd.Approve(n=1, message="c, 第三", arguments=changed, **lead))
    for started in play.start():
        play.returns(started, {"written": True})
    play.settle()
    n = play.state.requests
    play.submit(cmd.Approve(n=n, **lead))
    play.add(ev.ApprovalVoided(n=n, message="b.sh was changed after it was approved"), 1)
    play.settle()
    play.submit(cmd.TakeOver(by="bert", reason="it is stuck"))
    play.submit(cmd.DoneByHand(by="bert", call="c2", result=raw("noted"), evidence="on paper"))
    play.submit(cmd.TakeTurn(by="bert", text="I look myself.", calls=(("grep", "{}"),)))
    for started in play.start():
        play.returns(started, "nothing")
    play.submit(cmd.HandBack(message="go on", by="bert"))
    play.settle()
    play.says("Noted.")
    play.settle()
    return play


FACTS: tuple[ev.Event, ...] = (
    ev.BudgetsSet(budgets=(Cap(name="day", micro_usd=5_000_000),)),
    ev.GrantMade(
        n=1,
        tool="note",
        effect="write",
        arguments='{"file":"a"}',
        uses=2,
        until=START * 2,
        roles=("lead",),
        reason="known",
    ),
    ev.GrantUsed(n=1, run="edited", call="c1"),
    ev.GrantRevoked(n=1, reason="enough"),
    ev.MemoryKept(fact=1, hash="ab" * 32, trust="untrusted", waits=True, key="k"),
    ev.MemoryReviewed(fact=1, hash="ab" * 32, verdict="accepted", trust="owner", reason="asked"),
    ev.MemoryForgotten(fact=1, hash="ab" * 32, reason="wrong"),
    ev.MemoryErased(facts=(2, 3), reason="asked to"),
    ev.SessionTitled(session="s-1", title="灯具 lamps"),
    ev.SessionRewound(session="s-1", run="answered", newest="approved"),
    ev.SessionForked(session="s-2", run="answered", of="s-1"),
    ev.SessionRemoved(notes=(12, 13)),
    ev.PrincipalErased(
        whose="cd" * 32,
        salt="ef" * 16,
        runs=1,
        events=5,
        sessions=1,
        facts=1,
        grants=1,
        notes=(2,),
        reason="asked to",
    ),
    ev.MemoryKept(fact=4, hash="ab" * 32, trust="owner", supersedes=2, also=(3,)),
    ev.MemoryReviewed(fact=4, hash="ab" * 32, verdict="rejected", restores=(2, 3)),
    ev.MemoryErased(facts=(3, 5), restores=(2,), moves=((6, 7),)),
)
"""What else stands in the journal of the store."""


def condensed() -> Play:
    """Classified, fed, its tools chosen, condensed twice and taken back once: completed."""
    rules = rules_of(
        tool("search", sources=True),
        tool("grep"),
        models=(ModelSpec(name="m1", window=1_600, max_output=300),),
        summary=ModelSpec(name="cheap"),
        intake=IntakeRules(model=ModelSpec(name="sorter")),
        feeds=(Feed(tool="search", arguments='{"query":"$input"}'),),
        catalogue={name: Counter({name: 1}) for name in ("search", "grep")},
        tool_tokens={"search": 10, "grep": 10},
    )
    play = Play(rules, run="condensed", input=(Text("Grep for AB-4711. 请查找。"),))
    play.says("query")  # what kind of task it is
    (fed,) = play.start()
    play.returns(fed, sources=(Source(uri="book.md", text="Nothing."),))
    summaries = iter(["\n".join(f"## {name}\nNone" for name in SECTIONS), "words", "words"])
    for n in range(40):
        while (due := play.settle()) and isinstance(due, AskModel) and due.purpose == "summary":
            play.says(next(summaries))
        if play.count(ev.ContextCompacted) == 2:
            break
        (found,) = play.calls(("grep", {"n": n}))
        if n == 1:
            told = ev.MemoryRecalled(call=found, facts=(1,), taint=("memory", "web"))
            play.add(told, play.state.step)
        play.returns(found, f"line {n}: " + "words " * 60)
        if n == 0:
            play.add(ev.ToolsOffered(names=("grep",), why="search"), play.state.step)
    play.submit(cmd.Restore())
    while isinstance(due := play.settle(), AskModel) and due.purpose == "summary":
        play.says("words")
    hours = ev.Block(name="hours", text="Until six.", source="computed", tokens=3)
    play.add(ev.ContextUpdated(blocks=(hours,)))
    play.says("It is nowhere.")
    play.settle()
    assert play.state.status is Status.COMPLETED
    return play


def remembering() -> Play:
    """About a project: it looks up, keeps what waits for a review, and forgets: completed."""
    rules = rules_of(
        tool("recall", taint=("memory", "memory:unchecked")),
        tool("remember", "write", recovery="keyed", key_ttl_us=DAY),
        tool("forget", "write", recovery="keyed", key_ttl_us=DAY),
    )
    play = Play(rules, run="remembering", session="s-3", project="shop", principal=ANNE)
    (found,) = play.calls(("recall", {"query": "hours 营业时间"}))
    play.start()
    told = ev.MemoryRecalled(
        call=found,
        facts=(3, 1),
        taint=("memory", "memory:untrusted", "web"),
        degraded="one fact has no vector yet and was found by its words alone",
    )
    play.add(told, play.state.step)
    play.returns(found, "m3: Opens at nine. m1: Opens at eight.")
    keep = {"text": "Opens at ten.", "scope": "project", "supersedes": "m3"}
    (kept,) = play.calls(("remember", keep))
    play.start()
    play.returns(kept, "m4 is noted, but not remembered before a person has accepted it.")
    (gone,) = play.calls(("forget", {"id": "m1"}))
    play.start()
    play.raises(gone, message="m1 is trusted, and this run has read untrusted content")
    play.says("It is noted.")
    play.settle()
    assert play.state.status is Status.COMPLETED
    assert "web" in play.state.taint
    return play


def flushed() -> Play:
    """Condensed twice, with facts that are kept, denied, and then known already: completed."""
    rules = rules_of(
        tool("grep"),
        tool("remember", "write", recovery="keyed"),
        models=(ModelSpec(name="m1", window=1_600, max_output=300),),
        summary=ModelSpec(name="cheap"),
        keeps=True,
        policy=Policy(tools={"remember": "ask"}),
    )
    play = Play(rules, run="flushed", input=(Text("Grep for AB-4711. 请查找。"),), principal=ANNE)
    body = "\n".join(f"## {name}\nNone" for name in SECTIONS)
    facts = "- Anne likes green tea. 安妮喜欢绿茶。\n- Anne works at night."
    for n in range(40):
        while (due := play.settle()) and isinstance(due, AskModel) and due.purpose == "summary":
            play.says(f"{body}\n## To remember\n{facts}")
            play.settle()
            if play.count(ev.TurnKept) == 1:
                play.submit(cmd.Approve(n=1))
                (kept,) = play.start()
                play.returns(kept, "Remembered as m1.")
                play.settle()
                play.submit(cmd.Deny(n=2))
        if play.count(ev.TurnKept) == 2:
            break
        (found,) = play.calls(("grep", {"n": n}))
        play.returns(found, f"line {n}: " + "words " * 60)
    play.says("It is nowhere.")
    play.settle()
    assert play.state.status is Status.COMPLETED
    assert play.count(ev.TurnKept) == 2
    return play


def continued() -> Play:
    """A run that waited behind another of its session: completed."""
    play = Play(run="continued", session="s-2", behind="answered")
    play.add(ev.RunContinued(previous=ev.RunRef(run="answered", seq=9), note="It was cut off."))
    play.says("Gone on.")
    play.settle()
    return play


STORIES: tuple[Callable[[], Play], ...] = (
    answered,
    approved,
    doubtful,
    circling,
    faulty,
    cancelled,
    asking,
    edited,
    redirected,
    handed_over,
    condensed,
    remembering,
    flushed,
    continued,
)


def sealed(run: str, entries: list[ev.Entry], previous: bytes = GENESIS) -> list[Row]:
    """Entries as rows, each with a salt that follows from its place."""
    rows: list[Row] = []
    for entry in entries:
        salt = sha256(f"{run}/{entry.seq}".encode()).digest()[:16]
        rows.append(seal(run, entry, salt, previous))
        previous = rows[-1].hash
    return rows


def line_of(row: Row) -> str:
    """A row as one line of JSON; `data` is text, since its very bytes are hashed."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    fields["data"] = (row.data or b"").decode()
    fields["salt"], fields["hash"] = row.salt.hex(), row.hash.hex()
    return json.dumps(fields, ensure_ascii=False)


def row_of(line: str) -> Row:
    """The row that stands in a line."""
    fields = json.loads(line)
    fields["data"] = fields["data"].encode()
    fields["salt"], fields["hash"] = bytes.fromhex(fields["salt"]), bytes.fromhex(fields["hash"])
    return Row(**fields)


def gist(state: RunState) -> dict[str, Any]:
    """What of a state must be the same for ever."""
    return {
        "status": state.status.value,
        "text": state.answer_text,
        "usage": msgspec.to_builtins(state.usage),
        "steps": state.spent.steps,
        "calls": state.spent.calls,
        "pending": [[p.id, p.kind, p.tool] for p in pending_of(state)],
        "open": {c.id: c.status.value for c in state.calls.values()},
        "messages": "".join(m.role[0] for m in state.messages),
        "degraded": list(state.degraded),
    }


def write(folder: Path) -> None:
    """Write all stories of this release into a folder that is not there yet."""
    folder.mkdir(parents=True)
    index: dict[str, dict[str, Any]] = {}
    heads: dict[str, list[Row]] = {}

    def put(name: str, rows: list[Row], said: dict[str, Any]) -> None:
        text = "".join(f"{line_of(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        heads[name] = rows
        index[name] = {"head": rows[-1].hash.hex(), **said}

    plays = {play.state.run: play for play in (story() for story in STORIES)}
    for name, play in plays.items():
        put(name, sealed(name, play.journal), gist(play.state))
    again = retried(plays["cancelled"])
    at = again.journal[0].seq - 1
    rows = sealed("retried", again.journal, heads["cancelled"][at - 1].hash)
    put("retried", rows, {"parent": "cancelled", "parent_at": at, **gist(again.state)})
    pruned = ev.StorePruned(
        run="circling",
        head=len(heads["circling"]),
        hash=heads["circling"][-1].hash.hex(),
        status="stopped",
    )
    erased = ev.StoreErased(run="circling", head=pruned.head, hash=pruned.hash)
    facts = [
        ev.Entry(seq=seq, at=START + 90 * DAY, event=event)
        for seq, event in enumerate((pruned, *FACTS, erased), 1)
    ]
    put("store", sealed("store", facts), {})
    described = json.dumps(index, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / INDEX).write_text(described + "\n", encoding="utf-8")


def check(folder: Path, name: str, said: dict[str, Any]) -> RunState | None:
    """Read a journal back: rows decode, the chain verifies, the fold is what was recorded."""
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row_of(line) for line in lines]
    prefix: list[Row] = []
    if said.get("parent"):
        parent = (folder / f"{said['parent']}.jsonl").read_text(encoding="utf-8").splitlines()
        prefix = [row_of(line) for line in parent[: said["parent_at"]]]
    last = check_chain(name, rows, prefix[-1].hash if prefix else GENESIS)
    assert last.hex() == said["head"], f"{name}: the chain ends elsewhere"
    entries = [open_row(row) for row in (*prefix, *rows)]
    if name == "store":
        return None
    state = fold(RunState(run=said.get("parent") or name), entries)
    recorded = {key: said[key] for key in said.keys() - {"head", "parent", "parent_at"}}
    assert gist(state) == recorded, f"{name} folds to something else"
    return state


def main(arguments: list[str]) -> int:
    """Write the journals of the release that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", help="for example 0.2")
    folder = FOLDER / parser.parse_args(arguments).release
    if folder.exists():
        print(f"{folder.name} is there already, and what was written is never written again.")
        return 1
    write(folder)
    print(f"{len(list(folder.glob('*.jsonl')))} journals written to {folder.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
