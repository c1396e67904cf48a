"""Facts that a summary says are to be remembered, from the model to the store and back."""

import pytest
from tests.engine.kit import events
from tests.memory.kit import ALLOW, told

from cairn import Agent, Limits, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.summaries import SECTIONS
from cairn.toolkit import MEMORY_TOOLS

BODY = "\n".join(f"## {name}\nNone" for name in SECTIONS)
TEA, NIGHT = "Likes green tea.", "Works at night."
ENDLESS = Limits(steps=10_000, calls=10_000, tokens=10**9, no_progress=10_000)
LAST = 40


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: " + "words and more words " * 20


@tool(effect="read", taint="web")
def fetch(n: int) -> str:
    """Read a page."""
    return f"page {n}: " + "words and more words " * 20


def reader(request):
    """Reads long, and answers in the end."""
    return call("look", n=request.turn) if request.turn < LAST else "All seen."


def scribe(*facts, asked=None):
    """Says of each conversation that these are to be remembered."""

    def condense(request):
        if asked is not None:
            asked.append(request)
        return f"{BODY}\n## To remember\n" + "\n".join(f"- {fact}" for fact in facts)

    return Scripted(condense, name="scribe", summarises=True)


def desk(store, facts, script=reader, *, policy=ALLOW, asked=None, more=None, **options):
    model = Scripted(script, window=6_000, max_output=500)
    worker = Agent(
        "desk",
        model,
        tools=[*MEMORY_TOOLS, look, fetch],
        summary_model=scribe(*facts, asked=asked),
        keeps_facts=True,
        limits=ENDLESS,
        **(more or {}),
    )
    return Runtime(store, [worker], policy=policy, **options)


def kept(rt, run="r"):
    return events(rt.trace(run), ev.TurnKept)


@pytest.mark.parametrize("place", ["file", ":memory:"])
def test_facts_of_a_summary_are_in_memory_for_later_conversations(tmp_path, place):
    store = str(tmp_path / "c.db") if place == "file" else place
    asked = []
    with desk(store, (TEA, NIGHT), asked=asked) as rt:
        assert rt.run("desk", "Look at all.", id="r", principal="ann").status == "completed"
        assert [(f.text, f.trust, f.state) for f in rt.facts("ann")] == [
            (TEA, "agent", "live"),
            (NIGHT, "agent", "live"),
        ]
        assert all("## To remember" in request.system for request in asked)
        assert len(kept(rt)[0].parts) == 2
        assert not any(each.parts for each in kept(rt)[1:])
        (hit,) = rt.recall("Which tea does she like?", principal="ann").hits[:1]
        assert hit.fact.text == TEA
        assert rt.recall("tea", principal="bob").hits == ()


def test_the_next_run_of_the_session_does_not_keep_them_again_and_recalls_them(tmp_path):
    def model(request):
        if request.run == "r2" and request.turn == 0:
            return call("recall", query="tea")
        return reader(request)

    with desk(str(tmp_path / "c.db"), (TEA,), model) as rt:
        rt.run("desk", "Look.", id="r", principal="ann", session="s")
        rt.run("desk", "Look again.", id="r2", principal="ann", session="s")
        assert TEA in told(rt.trace("r2"), "recall")[0]
        assert len(rt.facts("ann")) == 1
        assert kept(rt, "r2")
        assert all(each.why.startswith("1 asked for before") for each in kept(rt, "r2"))
        assert rt.client is not None


def test_a_run_that_has_read_the_untrusted_keeps_what_a_person_must_look_at():
    def model(request):
        return call("fetch", n=request.turn) if request.turn < LAST else "All read."

    with desk(":memory:", (TEA,), model) as rt:
        assert rt.run("desk", "Read.", id="r", principal="ann").status == "completed"
        (fact,) = rt.facts("ann", state="waiting")
        assert (fact.text, fact.trust, fact.content.taint) == (TEA, "untrusted", ("web",))
        assert rt.recall("tea", principal="ann").hits == ()


def test_by_default_a_person_is_asked_and_a_no_changes_nothing_else():
    with desk(":memory:", (TEA, NIGHT), policy=Policy()) as rt:
        run = rt.run("desk", "Look.", id="r", principal="ann")
        assert run.status == "waiting"
        (first,) = run.pending
        assert (first.tool, TEA in first.detail) == ("remember", True)
        rt.approve(first.id)
        (second,) = rt.drive("r").pending
        rt.deny(second.id, "no")
        run = rt.drive("r")
        assert (run.status, run.degraded) == ("completed", ())
        assert [fact.text for fact in rt.facts("ann")] == [TEA]


@pytest.mark.parametrize("approvals", ["ask", "none"])
def test_denied_by_the_policy_or_with_nobody_to_ask_the_run_completes_all_the_same(approvals):
    policy = Policy(tools={"remember": "deny" if approvals == "ask" else "ask"})
    with desk(":memory:", (TEA,), policy=policy, more={"repairs": 0}) as rt:
        run = rt.run("desk", "Look.", id="r", principal="ann", approvals=approvals)
        assert run.status == "completed"
        assert rt.facts() == []
        (rejected,) = events(rt.trace("r"), ev.ToolRejected)
        assert rejected.kind == "denied"


def test_a_secret_is_kept_nowhere():
    key = "ghp_" + "a9K2m4Qx7ZtB1vN8cL5pR3wY6sD0fG2hJ4kE"
    facts = (f"The token is {key}.", "The word of the day is opensesame.", TEA)
    with desk(":memory:", facts, secrets={"word": "opensesame"}) as rt:
        assert rt.run("desk", "Look.", id="r", principal="ann").status == "completed"
        assert [fact.text for fact in rt.facts()] == [TEA]
        written = "".join(repr(entry) for entry in rt.trace("r"))
        assert key not in written
        assert "opensesame" not in written


def test_a_memory_that_fails_harms_no_run(monkeypatch):
    from cairn.memory.inmemory import InMemoryMemory

    async def broken(self, *args, **more):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(InMemoryMemory, "keep", broken)
    with desk(":memory:", (TEA,)) as rt:
        assert rt.run("desk", "Look.", id="r", principal="ann").status == "completed"
        assert events(rt.trace("r"), ev.ToolFailed) or events(rt.trace("r"), ev.ToolUnknown)


def test_a_query_is_asked_for_no_facts():
    asked = []
    with desk(":memory:", (TEA,), asked=asked) as rt:
        assert rt.run("desk", "Look.", id="r", kind="query").status == "completed"
        assert asked
        assert not any("To remember" in request.system for request in asked)
        assert kept(rt) == []


def test_the_runtimes_own_calls_are_not_the_first_call_of_the_model():
    chosen = []

    def model(request):
        chosen.append((request.run, request.turn, request.tool_choice))
        if request.run == "r1":
            return "word " * 900
        return call("look", n=1) if request.turn == 0 else "Done."

    more = {"tool_choice": "required", "history": "summary", "builtins": ()}
    with desk(":memory:", (TEA,), model, more=more) as rt:
        rt.run("desk", "word " * 400, id="r1", principal="ann", session="s")
        rt.run("desk", "Go on.", id="r2", principal="ann", session="s")
        assert kept(rt, "r2")[0].parts
        assert ("r2", 0, "required") in chosen
        assert ("r2", 1, "auto") in chosen


def test_the_trace_and_the_manifest_tell_of_it(tmp_path):
    with desk(str(tmp_path / "c.db"), (TEA,)) as rt:
        rt.run("desk", "Look.", id="r", principal="ann")
        (entry,) = [e for e in rt.trace("r") if isinstance(e.event, ev.TurnKept)][:1]
        held = rt.context("r", step=entry.step + 1)
        (line,) = [line for line in held.lines if line.name == "summary"]
        assert line.why == "1 fact of it to be remembered"
        assert not any(TEA in str(each) for each in held.lines)
