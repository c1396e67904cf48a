"""Memory and condensing: a fact is in the store before anything that led to it can be condensed."""

from functools import partial

import pytest
from tests.engine.kit import events
from tests.memory.kit import ALLOW, told

from cairn import Agent, Limits, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.toolkit import MEMORY_TOOLS

ENDLESS = Limits(steps=10_000, calls=10_000, tokens=10**9, no_progress=10_000)
FACT = "The gate code of the harbour is K4711."
TURNS = 40


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: " + "words and more words " * 20


@tool(effect="read", taint="web")
def fetch() -> str:
    """Read a page."""
    return "a page of the web"


def clerk(request, first):
    """Keeps a fact in its first turn, reads long, and then knows it from memory alone."""
    if request.turn == 0:
        return first
    if request.turn < TURNS:
        return call("look", n=request.turn)
    if request.turn == TURNS:
        text = "\n".join(getattr(p, "content", "") for m in request.messages for p in m.parts)
        assert FACT not in text, "it was condensed away"
        return call("recall", query="gate code harbour")
    return "done"


def desk(first, **options):
    model = Scripted(partial(clerk, first=first), window=6_000, max_output=500)
    tools = [*MEMORY_TOOLS, look, fetch]
    worker = Agent("desk", model, tools=tools, summary_model=None, limits=ENDLESS)
    return Runtime(":memory:", [worker], **options)


def kept_at(rt):
    return [e.at for e in rt.trace("store") if isinstance(e.event, ev.MemoryKept)]


def condensed(rt):
    found = events(rt.trace("r"), ev.ContextCompacted)
    assert found, "nothing was condensed"
    assert found[0].start > 1, "the turn that kept the fact was not among it"
    return [e.at for e in rt.trace("r") if isinstance(e.event, ev.ContextCompacted)]


@pytest.mark.parametrize("beside", [0, 3])
def test_a_fact_kept_in_the_batch_that_is_condensed_is_found_by_recall_afterwards(beside):
    batch = [call("remember", text=FACT), *(call("look", n=100 + n) for n in range(beside))]
    with desk(batch, policy=ALLOW) as rt:
        assert rt.run("desk", "Look at all of it.", id="r").status == "completed"
        assert kept_at(rt)[0] <= condensed(rt)[0]
        assert FACT in told(rt.trace("r"), "recall")[0]


def test_a_fact_that_waited_for_approval_is_kept_before_its_turn_can_be_condensed():
    batch = [call("remember", text=FACT), call("look", n=100)]
    with desk(batch) as rt:
        run = rt.run("desk", "Look at all of it.", id="r")
        assert run.status == "waiting"
        assert events(rt.trace("r"), ev.ContextCompacted) == []
        assert rt.facts() == []
        rt.approve(run.pending[0].id)
        assert rt.drive("r").status == "completed"
        assert kept_at(rt)[0] <= condensed(rt)[0]
        assert FACT in told(rt.trace("r"), "recall")[0]


def test_a_fact_that_waits_for_a_review_outlasts_the_condensing_and_is_found_once_accepted():
    def model(request):
        if request.turn == 0:
            return call("fetch")
        if request.turn == 1:
            return call("remember", text=FACT)
        if request.turn < TURNS:
            return call("look", n=request.turn)
        if request.turn == TURNS:
            return call("recall", query="gate code harbour")
        if request.turn == TURNS + 1:
            return call("ask")
        return (
            call("recall", query="the harbour's gate code") if request.turn == TURNS + 2 else "done"
        )

    @tool(effect="read")
    def ask() -> str:
        """Have a person look."""
        (waiting,) = rt.facts(state="waiting")
        assert waiting.text == FACT
        rt.accept_fact(waiting.id, by="ada")
        return "she has"

    scripted = Scripted(model, window=6_000, max_output=500)
    tools = [*MEMORY_TOOLS, look, fetch, ask]
    worker = Agent("desk", scripted, tools=tools, summary_model=None, limits=ENDLESS)
    with Runtime(":memory:", [worker], policy=ALLOW) as rt:
        assert rt.run("desk", "Look at all of it.", id="r").status == "completed"
        condensed(rt)
        before, after = told(rt.trace("r"), "recall")
        assert FACT not in before
        assert FACT in after
