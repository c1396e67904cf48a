"""Long work stays inside its window, and nothing that matters is lost on the way."""

import asyncio
import re

import pytest
from tests.engine.kit import events, texts, until

from cairn import Agent, Delta, ErrorClass, Limits, ModelError, Runtime, Scripted, call, tool
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.compaction import INSTRUCTIONS
from cairn.core.context import faults, messages_of
from cairn.core.history import History
from cairn.core.limits import estimate_tokens
from cairn.core.messages import parse_object
from cairn.core.sizes import tokens_of
from cairn.core.summaries import SECTIONS
from cairn.core.views import timeline
from cairn.engine.load import load
from cairn.errors import Refused
from cairn.store.inmemory import InMemoryStore
from cairn.store.retention import settled

ENDLESS = Limits(steps=10_000, calls=10_000, tokens=10**9, no_progress=10_000)
HEADS = "\n".join(f"## {name}\nNone" for name in SECTIONS)


@tool(effect="read")
def look(n: int) -> str:
    """Look at a record."""
    return f"record {n}: its code is K{n * 7919 % 100_000:05d}-{n}. " + "And so on. " * 40


def said(request):
    """All text a model could read in its request."""
    assert faults(request.messages) == []
    return "\n".join(
        getattr(part, "content", "") or getattr(part, "result", "")
        for message in request.messages
        for part in message.parts
        if not hasattr(part, "mime_type")
    )


def size(request):
    schemas = estimate_tokens(str([t.parameters for t in request.tools]))
    return sum(map(tokens_of, request.messages)) + estimate_tokens(request.system) + schemas


class Clerk:
    """Looks at many records, then tells a code it can only know from what it reads."""

    def __init__(self, turns: int, asked: int) -> None:
        self.turns, self.asked, self.sizes = turns, asked, []

    def __call__(self, request):
        self.sizes.append(size(request) + request.max_output)
        if request.turn < self.turns:
            return call("look", n=request.turn)
        found = re.search(
            rf"record {self.asked}: its code is (K\d{{5}}-{self.asked})\b", said(request)
        )
        if found:
            return f"The code is {found[1]}."
        assert request.turn < self.turns + 3, "it is nowhere to be found"
        return call("search_history", query=f"record {self.asked} code")


def agent(model, *tools, **options):
    options.setdefault("limits", ENDLESS)
    return Agent("a", model, tools=[look, *tools], **options)


@pytest.mark.timeout(120)
def test_two_thousand_turns_stay_in_a_small_window_and_turn_3_is_not_forgotten(monkeypatch):
    read = [0]
    get = History.__getitem__

    def counting(self, index):
        value = get(self, index)
        read[0] += len(value) if isinstance(index, slice) else 1
        return value

    monkeypatch.setattr(History, "__getitem__", counting)
    clerk, costs = Clerk(2_000, 3), []

    def model(request):
        if request.turn in {200, 600, 1_500, 1_900}:
            costs.append(read[0])
        return clerk(request)

    async def main():
        rt = Runtime(":memory:", [agent(Scripted(model, window=8_000, max_output=1_000))])
        run = await rt.run_async("a", "Look at all records, then tell me the code of record 3.")
        assert (run.status, run.text) == ("completed", f"The code is K{3 * 7919:05d}-3.")
        assert max(clerk.sizes) <= 8_000
        compactions = events(await rt.trace_async(run.id), ev.ContextCompacted)
        assert len(compactions) > 50
        early, late = costs[1] - costs[0], costs[3] - costs[2]
        assert late <= early * 1.1, "what a turn reads does not grow with the run"

    asyncio.run(main())


def test_a_models_summary_is_checked_adopted_and_charged_like_any_request():
    summaries = []

    def summarise(request):
        summaries.append(request)
        return HEADS.replace("## Done\nNone", "## Done\n- looked at some records")

    async def main():
        clerk = Clerk(80, 2)
        model = Scripted(clerk, window=8_000, max_output=1_000)
        other = Scripted(summarise, name="cheap", window=8_000, summarises=True)
        rt = Runtime(":memory:", [agent(model, summary_model=other)])
        run = await rt.run_async("a", "Look, then tell me about order AB-4711.")
        assert run.status == "completed"
        entries = await rt.trace_async(run.id)
        compactions = events(entries, ev.ContextCompacted)
        assert {event.by for event in compactions} == {"model"}
        asked = [e for e in events(entries, ev.ModelRequested) if e.purpose == "summary"]
        assert [e.model for e in asked] == ["cheap"] * len(compactions)
        assert all(event.reserved.tokens > 0 for event in asked)
        assert summaries[0].system == INSTRUCTIONS
        assert summaries[0].tools == ()
        assert "AB-4711" in said(summaries[0])
        assert "<summary so far>" in said(summaries[1])
        assert max(clerk.sizes) <= 8_000

    asyncio.run(main())


def test_what_must_be_exact_is_added_to_a_summary_that_leaves_it_out():
    async def main():
        other = Scripted(lambda _: HEADS, name="cheap", summarises=True)
        model = Scripted(Clerk(80, 2), window=8_000, max_output=1_000)
        store = InMemoryStore()
        rt = Runtime(store, [agent(model, summary_model=other)])
        await rt.run_async("a", "Order AB-4711 goes to ann@example.org. " + "Look at it. " * 40)
        first = events(await rt.trace_async((await rt.runs_async())[0].run), ev.ContextCompacted)[0]
        assert "AB-4711" in first.text
        assert "ann@example.org" in first.text

    asyncio.run(main())


@pytest.mark.parametrize(
    "cue",
    ["", "just words", ModelError(ErrorClass.OVERLOADED, "busy"), call("look", n=1)],
    ids=["empty", "no headings", "refused", "a call"],
)
def test_a_summary_that_fails_twice_is_written_by_rule_and_nothing_is_lost(cue):
    """B55."""

    async def main():
        model = Scripted(Clerk(80, 2), window=8_000, max_output=1_000)
        other = Scripted(lambda _: cue, name="cheap", summarises=True)
        clock = Quick()
        rt = Runtime(":memory:", [agent(model, summary_model=other)], clock=clock)
        run = await rt.run_async("a", "Look, then tell me the code of record 2.")
        assert run.status == "completed"
        entries = await rt.trace_async(run.id)
        first = next(e for e in entries if isinstance(e.event, ev.ContextCompacted))
        before = [e.event for e in entries if e.seq < first.seq]
        assert sum(getattr(e, "purpose", "") == "summary" for e in before) == 2
        assert first.event.by == "rule"
        assert "look" in first.event.text

    asyncio.run(main())


class Quick:
    """A clock whose waits take no time."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)
        await asyncio.sleep(0)


def test_a_process_that_dies_while_a_summary_is_made_loses_nothing_and_pays_for_it():
    """B55."""

    async def main():
        store, begun = InMemoryStore(), asyncio.Event()

        async def hangs(request):
            begun.set()
            await asyncio.Event().wait()

        model = Scripted(Clerk(80, 2), window=8_000, max_output=1_000)
        first = Runtime(
            store, [agent(model, summary_model=Scripted(hangs, name="cheap", summarises=True))]
        )
        dying = asyncio.create_task(first.run_async("a", "Look, then tell me the code.", id="r"))
        await begun.wait()
        store.crash()
        well = Scripted(lambda _: HEADS, name="cheap", summarises=True)
        rt = Runtime(store.beside(), [agent(model, summary_model=well)])
        run = await rt.run_async("a", "Look, then tell me the code.", id="r")
        assert run.status == "completed"
        entries = await rt.trace_async("r")
        lost = [e for e in events(entries, ev.ModelFailed) if e.lost]
        assert len(lost) == 1
        assert lost[0].usage.tokens > 0
        assert [e.call for e in events(entries, ev.ToolStarted)][:80] == [
            f"c{n}" for n in range(1, 81)
        ]
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)

    asyncio.run(main())


def test_a_request_the_provider_finds_too_large_is_made_smaller_and_made_again():
    """B36: too long is a reason to condense, once for each refusal."""
    refused = []

    def model(request):
        if request.turn < 30:
            return call("look", n=request.turn)
        if size(request) > 1_500 and len(refused) < 3:
            refused.append(size(request))
            raise ModelError(ErrorClass.CONTEXT_OVERFLOW, "maximum context length is 1000")
        return "done"

    async def main():
        rt = Runtime(":memory:", [agent(Scripted(model, window=100_000, max_output=500))])
        run = await rt.run_async("a", "Look at some." + " Please." * 50)
        assert (run.status, run.text) == ("completed", "done")
        assert refused == sorted(set(refused), reverse=True)
        failed = events(await rt.trace_async(run.id), ev.ModelFailed)
        assert {e.error_class for e in failed} <= {ErrorClass.CONTEXT_OVERFLOW}

    asyncio.run(main())


def test_a_provider_that_finds_every_request_too_large_ends_the_run_with_its_words():
    """B56: limited tries, then a clear overflow."""

    def model(request):
        if request.turn < 30:
            return call("look", n=request.turn)
        raise ModelError(ErrorClass.CONTEXT_OVERFLOW, "too many tokens, sorry")

    async def main():
        rt = Runtime(":memory:", [agent(Scripted(model, window=100_000, max_output=500))])
        run = await rt.run_async("a", "Look at some.")
        assert (run.status, run.error_class) == ("failed", "context_overflow")
        assert "too many tokens, sorry" in run.reason
        asked = events(await rt.trace_async(run.id), ev.ModelFailed)
        assert len(asked) <= 4

    asyncio.run(main())


def test_a_message_that_comes_in_during_long_work_is_still_in_front_of_the_model_later():
    seen = []

    def model(request):
        seen.append("blue folder" in said(request))
        return call("look", n=request.turn) if request.turn < 60 else "done"

    async def main():
        rt = Runtime(":memory:", [agent(Scripted(model, window=6_000, max_output=500))])
        await rt.enqueue_async("a", "Look at many.", id="r")
        working = asyncio.create_task(rt.run_async("a", "Look at many.", id="r"))
        await until(lambda: len(seen) > 5)
        await rt.client.submit("r", cmd.Queue(parts=parts("Put them into the blue folder.")))
        assert (await working).status == "completed"
        first = seen.index(True)
        assert all(seen[first:])
        assert len(events(await rt.trace_async("r"), ev.ContextCompacted)) > 3

    asyncio.run(main())


def parts(text):
    from cairn.engine.given import parts_of

    return parts_of(text)


def test_the_last_compaction_can_be_taken_back_and_what_it_stood_for_is_sent_again():
    requests = []

    def model(request):
        requests.append(said(request))
        if request.turn < 31:
            return call("look", n=request.turn)
        return call("ask_user", question="?") if request.turn == 31 else "done"

    async def main():
        rt = Runtime(":memory:", [agent(Scripted(model, window=6_000, max_output=500))])
        run = await rt.run_async("a", "Look at many.", id="r")
        assert run.status == "waiting"
        await rt.pause_async("r")
        await rt.answer_async(run.pending[0].id, "go on")
        last = [e for e in await rt.trace_async("r") if isinstance(e.event, ev.ContextCompacted)]
        await rt.client.submit("r", cmd.Restore())
        state = await load(rt.store, "r")
        assert state.view.start < last[-1].event.start
        assert faults(messages_of(state)) == []
        run = await rt.resume_async("r")
        assert run.status == "completed"

    asyncio.run(main())


def test_nothing_can_be_taken_back_where_nothing_was_condensed():
    async def main():
        rt = Runtime(":memory:", [agent(Scripted([call("ask_user", question="?"), "done"]))])
        await rt.run_async("a", "Ask.", id="r")
        with pytest.raises(Refused, match="nothing of run r was condensed"):
            await rt.client.submit("r", cmd.Restore())

    asyncio.run(main())


def test_search_history_is_offered_as_soon_as_something_is_not_sent_any_more():
    async def main():
        offered = []

        def model(request):
            offered.append("search_history" in {t.name for t in request.tools})
            return call("look", n=request.turn) if request.turn < 60 else "done"

        rt = Runtime(":memory:", [agent(Scripted(model, window=6_000, max_output=500))])
        await rt.run_async("a", "Look at many.", id="r")
        assert offered == sorted(offered)
        assert (offered[0], offered[-1]) == (False, True)

    asyncio.run(main())


def test_what_was_shortened_or_condensed_can_be_read_again_whole():
    async def main():
        read = []

        def model(request):
            if request.turn < 30:
                return call("look", n=request.turn)
            if request.turn == 30:
                return [call("read_artifact", id="c2"), call("read_artifact", id="m1")]
            read.extend(
                parse_object(part.result)["text"]
                for part in request.messages[-1].parts
                if hasattr(part, "result")
            )
            return "done"

        rt = Runtime(":memory:", [agent(Scripted(model, window=6_000, max_output=500))])
        run = await rt.run_async("a", "Look at many.", id="r")
        assert run.status == "completed"
        assert read[0].startswith("record 1: its code is K07919-1.")
        assert read[1] == "Look at many."

    asyncio.run(main())


def test_a_summary_is_not_shown_as_the_answers_words():
    async def main():
        other = Scripted(lambda _: HEADS, name="cheap", summarises=True)
        model = Scripted(Clerk(60, 2), window=6_000, max_output=500)
        rt = Runtime(":memory:", [agent(model, summary_model=other)])
        asked = "Look, then tell me the code of record 2."
        shown = [item async for item in rt.stream_async("a", asked)]
        words = "".join(item.text for item in shown if isinstance(item, Delta))
        assert "The code is" in words
        assert "## Goal" not in words

    asyncio.run(main())


def test_a_session_goes_on_with_what_was_condensed_in_the_run_before():
    async def main():
        requests = []

        def model(request):
            requests.append(request)
            return call("look", n=request.turn) if request.turn < 30 else "done"

        rt = Runtime(":memory:", [agent(Scripted(model, window=6_000, max_output=500))])
        await rt.run_async("a", "Look at many.", session="s")
        last = await rt.run_async("a", "And now?", session="s")
        assert last.status == "completed"
        first = requests[-31]
        assert "[runtime] The conversation before this point was condensed" in said(first)
        assert texts(first)[-1] == "And now?"
        assert size(first) < 6_000
        entries = await rt.trace_async(last.id)
        assert events(entries, ev.ContextCompacted)
        told = timeline(entries, last.id)
        assert (told.status, told.head) == ("completed", entries[-1].seq)
        assert settled(last.id, lambda: entries)

    asyncio.run(main())


def test_a_large_result_is_stored_sooner_where_the_window_is_small():
    async def main():
        @tool(effect="read")
        def read() -> str:
            """Read."""
            return "word " * 2_000

        for window, stored in ((4_000, True), (128_000, False)):
            script = Scripted([call("read"), "done"], window=window, max_output=300)
            rt = Runtime(":memory:", [Agent("a", script, tools=[read])])
            run = await rt.run_async("a", "Read it.")
            assert run.status == "completed"
            assert bool(run.artifacts) is stored

    asyncio.run(main())
