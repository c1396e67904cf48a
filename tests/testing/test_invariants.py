"""Every invariant has a journal that breaks it, and a good journal breaks none."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.core.play import SECOND, Play, rules_of, tool
from tests.golden.make import INDEX, STORIES, flushed, row_of
from tests.golden.test_golden import RELEASES, index

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn import tool as as_tool
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.codec import open_row
from cairn.core.limits import Limits, Usage
from cairn.core.messages import CallPart, Text
from cairn.core.rules import Feed, IntakeRules, ModelSpec
from cairn.errors import CorruptJournal, ErrorClass
from cairn.store.inmemory import InMemoryStore
from cairn.testing.invariants import (
    NAMES,
    Acknowledged,
    Effect,
    check,
    check_acknowledged,
    check_effects,
    check_run,
    check_store,
    fingerprint,
)
from cairn.testing.invariants.context import HEADINGS

replace = msgspec.structs.replace
RULES = rules_of(
    tool("look"),
    tool("post", "write"),
    tool("pay", "write", recovery="keyed"),
    tool("send", "write", recovery="probe"),
    tool("wipe", "dangerous"),
    tool("note", "write", conflict_key=lambda values: str(values.get("n"))),
    checks=("complete",),
)


def completed():
    """Reads, writes in order, an approval, a message, a check: completed."""
    play = Play(RULES, limits=Limits(calls=5, steps=8, calls_per_reply=3))
    for each in play.calls(("look", {}), ("post", {"n": 1}), ("wipe", {"n": 2})):
        play.returns(each)
    for each in play.start():
        play.returns(each)
    play.settle()
    play.submit(cmd.Approve(n=1))
    for each in play.start():
        play.returns(each)
    play.submit(cmd.Queue(parts=(Text("hurry"),)))
    play.fails(ErrorClass.RATE_LIMITED, retry_after_us=3 * SECOND)
    play.now += 10 * SECOND
    play.says("Done.", usage=Usage(input_tokens=40, output_tokens=5))
    play.step()
    play.accepts()
    play.settle()
    return play.journal


def doubtful():
    """Unknown effects of each recovery, a cancel, and a late outcome after the end."""
    play = Play(RULES)
    for each in play.calls(("post", {}), ("pay", {"n": 1}), ("send", {"n": 2})):
        play.vanishes(each)
    play.submit(cmd.Resolve(call="c1", verdict="happened"))
    for each in play.start():
        play.vanishes(each)
    for each in play.start():
        play.returns(each)
    for each in play.start():
        play.vanishes(each)
    play.submit(cmd.Cancel())
    play.settle()
    play.submit(cmd.Late(call="c3", ok=True))
    return play.journal


SHORT_OF_ROOM = rules_of(
    tool("look"),
    tool("post", "write"),
    models=(ModelSpec(name="small", window=3_400, max_output=600),),
    summary=ModelSpec(name="scribe", window=8_000, max_output=600),
    feeds=(Feed(tool="look", arguments="{}"),),
    intake=IntakeRules(model=ModelSpec(name="sorter")),
)
HEADS = "\n".join(f"## {name}\nNone" for name in HEADINGS)


def condensed():
    """Classified, fed, condensed by a model after a useless summary, and taken back once."""
    play = Play(SHORT_OF_ROOM, kind="operate")
    play.says("generate")
    for each in play.start():
        play.returns(each)
    for letters in (3_000, 5_000):
        for each in play.calls(("look", {"about": "a" * letters})):
            play.returns(each)
    play.says("It went well.")
    play.says(HEADS)
    play.settle()
    play.submit(cmd.Pause())
    play.submit(cmd.Restore())
    play.submit(cmd.Resume())
    play.says(HEADS)
    play.says("Done.")
    play.settle()
    return play.journal


def at(entries, kind, nth=0):
    """Where the nth event of a kind stands."""
    return [n for n, e in enumerate(entries) if isinstance(e.event, kind)][nth]


def numbered(entries):
    """The same events without a gap."""
    return [replace(e, seq=n) for n, e in enumerate(entries, 1)]


def without(entries, kind, nth=0):
    n = at(entries, kind, nth)
    return numbered([*entries[:n], *entries[n + 1 :]])


def changed(entries, kind, nth=0, /, **fields):
    n = at(entries, kind, nth)
    entry = replace(entries[n], event=replace(entries[n].event, **fields))
    return [*entries[:n], entry, *entries[n + 1 :]]


def after(entries, kind, event, nth=0):
    """One more event right after the nth of a kind."""
    n = at(entries, kind, nth)
    more = replace(entries[n], event=event)
    return numbered([*entries[: n + 1], more, *entries[n + 1 :]])


def again(entries, kind, nth=0):
    return after(entries, kind, entries[at(entries, kind, nth)].event, nth)


def earlier(entries, kind, micros, nth=0):
    n = at(entries, kind, nth)
    return [*entries[:n], replace(entries[n], at=entries[n].at - micros), *entries[n + 1 :]]


def started(entries, call_id):
    """Which of the starts is the first of this call."""
    found = [e.event.call for e in entries if isinstance(e.event, ev.ToolStarted)]
    return found.index(call_id)


def as_reply(entries, *parts):
    return changed(entries, ev.ModelCompleted, parts=parts)


GOOD, DOUBT, CONDENSED = completed(), doubtful(), condensed()
FLUSHED = flushed().journal
KEEP = FLUSHED[at(FLUSHED, ev.TurnKept)].event
REPLY = GOOD[at(GOOD, ev.ModelCompleted)].event
LAST = at(GOOD, ev.ModelCompleted, -1)
BROKEN = {
    "gapless": [*GOOD[:4], *GOOD[5:]],
    "time": earlier(GOOD, ev.RunCompleted, 60 * SECOND),
    "legal": changed(GOOD, ev.RunCompleted, answer=3),
    "legal: a retry nobody waits for": after(
        GOOD, ev.RunCreated, ev.RetryScheduled(subject="c9", at=1)
    ),
    "final": again(GOOD, ev.ToolCompleted),
    "final: left open": without(GOOD, ev.ToolCompleted),
    "once": after(
        DOUBT,
        ev.ToolUnknown,
        ev.ToolStarted(call="c1", effect="write", recovery="once", rule="test", attempt=2),
    ),
    "once: the attempt is not counted": changed(GOOD, ev.ToolStarted, attempt=2),
    "once: unknown is called failed": after(
        DOUBT,
        ev.ToolUnknown,
        ev.ToolFailed(
            call="c1", error_class=ErrorClass.TOOL_ERROR, message="", disposition="repair"
        ),
    ),
    "verdict": changed(GOOD, ev.ToolStarted, rule=""),
    "verdict: not as declared": changed(GOOD, ev.ToolStarted, recovery="keyed"),
    "approval": without(GOOD, ev.ApprovalGranted),
    "approval: of another request": changed(
        GOOD, ev.ToolStarted, started(GOOD, "c3"), rule="approval 7"
    ),
    "approval: expired": changed(GOOD, ev.ApprovalRequested, expires_at=1),
    "approval: of other arguments": changed(GOOD, ev.ApprovalRequested, digest="other"),
    "approval: granted twice": again(GOOD, ev.ApprovalGranted),
    "order": as_reply(GOOD, *(replace(p, after=()) for p in REPLY.parts)),
    "limits": changed(GOOD, ev.RunCreated, limits=Limits(calls=1)),
    "limits: steps": changed(GOOD, ev.RunCreated, limits=Limits(steps=1)),
    "limits: calls of a reply": changed(GOOD, ev.RunCreated, limits=Limits(calls_per_reply=2)),
    "limits: tokens": changed(GOOD, ev.RunCreated, limits=Limits(tokens=500)),
    "limits: money": changed(
        changed(GOOD, ev.RunCreated, limits=Limits(micro_usd=10)), ev.ToolCompleted, micro_usd=99
    ),
    "limits: running time": changed(GOOD, ev.RunCreated, limits=Limits(running_s=0)),
    "messages": after(GOOD, ev.ModelCompleted, GOOD[at(GOOD, ev.ModelRequested)].event),
    "messages: an id twice": as_reply(GOOD, *[replace(p, id="c1", after=()) for p in REPLY.parts]),
    "input": again(GOOD, ev.InputGiven),
    "input: left unread": without(GOOD, ev.InputGiven),
    "intent": without(GOOD, ev.ModelRequested),
    "intent: of a call": without(GOOD, ev.ToolStarted),
    "intent: of a task": without(GOOD, ev.StepStarted),
    "stopped": after(GOOD, ev.ToolCompleted, ev.RunPauseRequested(), -1),
    "stopped: cancelled": after(GOOD, ev.ToolCompleted, ev.RunCancelRequested(), -1),
    "end": [*GOOD, replace(GOOD[-1], seq=len(GOOD) + 1, event=ev.InputQueued(parts=()))],
    "alive": without(GOOD, ev.StepCompleted),
    "inside": after(
        GOOD, ev.RunCreated, ev.ErrorRaised(error_class=ErrorClass.INTERNAL, message="a bug")
    ),
    "context": changed(CONDENSED, ev.ContextCompacted, start=6),
    "context: the last request is gone": changed(CONDENSED, ev.ContextCompacted, -1, asked=-1),
    "context: an unchecked summary": changed(CONDENSED, ev.ContextCompacted, text="It went well."),
    "context: a summary nobody wrote": changed(CONDENSED, ev.ModelRequested, 4, cut=3),
    "context: no smaller": changed(CONDENSED, ev.ContextCompacted, after=9_000),
    "context: another compaction is taken back": changed(CONDENSED, ev.ContextRestored, of=3),
    "context: a summary calls": changed(
        CONDENSED, ev.ModelCompleted, 3, parts=(CallPart(id="c4", name="post"),)
    ),
    "context: a summary in the midst of a turn": after(
        CONDENSED, ev.ToolStarted, CONDENSED[at(CONDENSED, ev.ContextCompacted)].event, -1
    ),
    "context: a message is not among those sent": changed(
        CONDENSED, ev.ModelRequested, 2, messages=2
    ),
    "context: asked without end": without(CONDENSED, ev.ModelRejected),
    "intake": again(CONDENSED, ev.TurnFed),
    "intake: it is not fed": without(CONDENSED, ev.TurnFed),
    "intake: widened": changed(
        changed(CONDENSED, ev.RunCreated, kind="query"), ev.TaskClassified, kind="generate"
    ),
    "intake: classified twice": again(CONDENSED, ev.TaskClassified),
    "memory": again(FLUSHED, ev.TurnKept),
    "memory: asked before the facts were kept": without(FLUSHED, ev.TurnKept, 1),
    "memory: of a summary that does not stand": changed(FLUSHED, ev.TurnKept, of=2),
    "memory: a fact that no summary says": changed(
        FLUSHED, ev.ContextCompacted, keep=("Anne likes coffee.",)
    ),
    "memory: facts of a rule": changed(FLUSHED, ev.ContextCompacted, by="rule"),
    "memory: another fact": changed(
        FLUSHED, ev.TurnKept, parts=(replace(KEEP.parts[0], arguments='{"text":"x"}'),)
    ),
    "memory: left out without a reason": changed(FLUSHED, ev.TurnKept, parts=KEEP.parts[:1]),
    "memory: by another tool": changed(
        FLUSHED, ev.TurnKept, parts=(replace(KEEP.parts[0], name="grep"), KEEP.parts[1])
    ),
    "patience": earlier(
        changed(GOOD, ev.ModelFailed, retry_at=GOOD[LAST].at + 1), ev.RunCompleted, 0
    ),
}


def test_the_good_journals_of_this_file_break_nothing():
    assert check(GOOD, rules=RULES) == []
    assert check(DOUBT, rules=RULES) == []
    assert check(GOOD) == []
    assert check(CONDENSED, rules=SHORT_OF_ROOM) == []
    assert check(CONDENSED) == []
    assert check(GOOD[:7], rules=RULES) == []


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_would_make_a_release_breaks_nothing(story):
    play = story()
    assert check(play.journal, rules=play.rules) == []


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_the_journals_of_every_release_break_nothing(folder: Path):
    rows = {
        path.stem: [row_of(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in folder.glob("*.jsonl")
        if path.name != INDEX and path.stem != "store"
    }
    for name, said in index(folder).items():
        if name == "store":
            continue
        prefix = rows[said["parent"]][: said["parent_at"]] if said.get("parent") else []
        assert check([open_row(row) for row in (*prefix, *rows[name])]) == []


@pytest.mark.parametrize("broken", sorted(BROKEN))
def test_a_journal_that_breaks_a_promise_is_caught(broken):
    name = broken.partition(":")[0]
    of_small = name in {"context", "intake"}
    found = check(BROKEN[broken], rules=SHORT_OF_ROOM if of_small else RULES)
    assert name in {v.name for v in found}, found
    assert all(v.text and v.name in NAMES for v in found)
    assert all(str(v).startswith(f"[{v.name}]") for v in found)


def test_usage_that_the_state_does_not_sum_is_caught(monkeypatch):
    from cairn.core import evolve

    monkeypatch.setattr(evolve, "add_usage", lambda a, b: a)
    assert {v.name for v in check(GOOD, rules=RULES)} == {"usage"}


def test_a_lost_request_that_is_not_charged_is_caught():
    play = Play(RULES)
    play.ask()
    play.crash()
    assert check(play.journal, rules=RULES) == []
    free = changed(play.journal, ev.ModelFailed, usage=Usage())
    assert "usage" in {v.name for v in check(free, rules=RULES)}


def test_a_word_that_came_too_early_is_caught():
    resolved = ev.ToolResolved(call="c3", verdict="not_happened", by="probe")
    play = Play(RULES)
    play.calls(("send", {}))
    play.vanishes("c1")
    early = after(play.journal, ev.ToolUnknown, replace(resolved, call="c1"))
    assert "patience" in {v.name for v in check(early, rules=RULES)}


def test_a_write_in_a_query_is_caught():
    query = changed(GOOD, ev.RunCreated, kind="query")
    assert "verdict" in {v.name for v in check(query, rules=RULES)}


def test_without_rules_a_dangerous_call_still_needs_its_approval():
    unasked = changed(GOOD, ev.ToolStarted, started(GOOD, "c3"), rule="anything")
    assert "approval" in {v.name for v in check(unasked)}


def test_a_denied_call_that_starts_is_caught():
    strict = replace(RULES, policy=Policy(effects={"write": "deny"}, name="test"))
    assert "verdict" in {v.name for v in check(GOOD, rules=strict)}


# ---------------------------------------------------------------- the world as a witness


def effect(times=1, **fields):
    given = {"run": "r1", "call": "c1", "attempt": 1, "tool": "post", "key": "k", **fields}
    return [Effect(**given) for _ in range(times)]


def test_an_effect_that_happened_once_breaks_nothing():
    made = [*effect(), *effect(call="c2", key="k2", tool="note")]
    assert check_effects({"r1": GOOD}, made, {"post": "once", "note": "once"}) == []


@pytest.mark.parametrize("recovery", ["once", "probe"])
def test_an_effect_that_happened_twice_is_caught(recovery):
    made = [*effect(), *effect(attempt=2)]
    (found,) = check_effects({"r1": GOOD}, made, {"post": recovery})
    assert found.name == "once"
    assert "happened 2 times" in found.text


def test_an_effect_may_happen_anew_after_somebody_said_that_it_did_not():
    said = ev.ToolResolved(call="c1", verdict="not_happened")
    journal = [*GOOD, replace(GOOD[-1], event=said)]
    made = [*effect(), *effect(attempt=2)]
    assert check_effects({"r1": journal}, made, {"post": "once"}) == []
    assert check_effects({"r1": journal}, [*made, *effect(attempt=3)], {"post": "once"})


def test_what_may_be_repeated_may_happen_often_and_an_attempt_only_once():
    made = [*effect(), *effect(attempt=2), *effect(attempt=3)]
    assert check_effects({"r1": GOOD}, made, {"post": "repeat"}) == []
    (found,) = check_effects({"r1": GOOD}, effect(2), {"post": "repeat"})
    assert "attempt 1 of c1 was made 2 times" in found.text


def test_a_key_that_changes_is_caught():
    made = [*effect(), *effect(attempt=2, key="other")]
    (found,) = check_effects({"r1": GOOD}, made, {"post": "keyed"})
    assert "2 keys" in found.text


# ---------------------------------------------------------------- stores


@as_tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


def a_store():
    store = InMemoryStore()
    script = Scripted([call("look", n=1), "Done.", call("look", n=2), "Done again."])
    rt = Runtime(store, agents=[Agent("a", script, tools=[look])])

    async def work():
        await rt.run_async("a", "first", id="r1", session="s")
        await rt.run_async("a", "second", id="r2", session="s")

    asyncio.run(work())
    return store


def found_in(store, **options):
    return asyncio.run(check_store(store, **options))


def test_the_runs_of_a_store_break_nothing():
    store = a_store()
    assert found_in(store) == []
    assert asyncio.run(check_run(store, "r2")) == []


def test_a_row_that_says_something_else_is_caught():
    store = a_store()
    line = store.journals.runs["r1"]
    line.index = replace(line.index, status="running", tokens=7)
    (found,) = found_in(store)
    assert (found.name, found.run) == ("index", "r1")


def test_a_row_whose_inbox_is_not_empty_is_caught():
    from cairn.core.index import Pending

    store = a_store()
    store.journals.inbox["r1/1"] = Pending(id="r1/1", kind="approval")
    (found,) = found_in(store, runs=["r1"])
    assert (found.name, found.run) == ("index", "r1")


def test_a_changed_row_is_caught():
    store = a_store()
    asyncio.run(store.verify("r1"))
    sealed = store.journals.runs["r1"].sealed
    sealed[2] = replace(sealed[2], data=b'{"model":"other"}')
    (found,) = found_in(store, runs=["r1"])
    assert (found.name, found.run) == ("chain", "r1")
    assert "event 3 was changed" in found.text


def test_a_journal_that_cannot_be_folded_is_caught():
    store = a_store()
    line = store.journals.runs["r2"]
    line.entries[0] = replace(line.entries[0], event=ev.RunResumed())
    found = found_in(store, runs=["r2"])
    assert {v.run for v in found} == {"r2"}
    assert "legal" in {v.name for v in found}
    with pytest.raises(CorruptJournal):
        asyncio.run(Runtime(store).resume_async("r2"))


def test_the_runs_of_a_store_with_erased_ones_break_nothing():
    store = a_store()
    rt = Runtime(store, agents=[Agent("a", Scripted(["done"]))])
    asyncio.run(rt.run_async("a", "of ann", id="r3", principal="ann"))
    asyncio.run(rt.erase_async("ann"))
    assert found_in(store) == []
    assert asyncio.run(check_run(store, "r3")) == []


def test_an_erased_run_that_people_are_still_asked_about_is_caught():
    from cairn.core.index import Pending

    store = a_store()
    asyncio.run(Runtime(store).erase_async("local"))
    store.journals.inbox["r1/1"] = Pending(id="r1/1", kind="approval")
    (found,) = found_in(store, runs=["r1"])
    assert (found.name, found.run) == ("index", "r1")
    assert "it was erased" in found.text


def test_what_was_acknowledged_and_is_gone_or_changed_is_caught():
    kept = [Acknowledged(run="r1", seq=e.seq, print_=fingerprint("r1", e)) for e in GOOD]
    assert check_acknowledged({"r1": GOOD}, kept) == []
    lost = check_acknowledged({"r1": GOOD[:-1]}, kept)
    assert [(v.name, v.seq, v.text) for v in lost] == [
        ("acknowledged", len(GOOD), "it was acknowledged and is gone")
    ]
    (other,) = check_acknowledged({"r1": changed(GOOD, ev.ToolCompleted, micro_usd=1)}, kept)
    assert other.text == "it was acknowledged and is another one now"


def test_every_invariant_is_broken_by_some_journal_or_world():
    here = {name.partition(":")[0] for name in BROKEN}
    elsewhere = {"usage", "chain", "index", "acknowledged", "settled", "known", "fenced"}
    elsewhere |= {"session", "memory", "rewound", "shown", "erased"}
    assert here | elsewhere == set(NAMES)
    assert isinstance(REPLY.parts[0], CallPart)
