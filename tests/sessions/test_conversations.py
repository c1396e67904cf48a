"""What a message costs depends on what is new, and what nobody has read is what a run begins with.

Reads of the store and folded events are counted, not timed.
"""

import asyncio

import pytest
from tests.engine.kit import runtime, texts

from cairn import Agent, Principal, Runtime, Scripted, call
from cairn.core.events import RunRef
from cairn.core.sizes import size_of
from cairn.core.state import RunState
from cairn.engine import conversation, fold_cache
from cairn.engine.fold_cache import CachedConversation, Conversations
from cairn.engine.load import load
from cairn.store.inmemory import InMemoryStore

LONG = "with a view, code 4711, no smokers, and near the lift please"


class CountingStore(InMemoryStore):
    """Counts the events that are read."""

    def __init__(self):
        super().__init__()
        self.events_read = 0

    async def read(self, run, after=0, upto=None):
        entries = await super().read(run, after, upto)
        self.events_read += len(entries)
        return entries


def desk(sent, **options):
    """Waits for a person where a room is wanted; notes what it was sent."""

    def play(request):
        said = texts(request)
        sent.append(said)
        return call("ask_user", question="?") if said[-1] == "book a room" else "Done."

    model = Scripted(play, **{k: options.pop(k) for k in ("window", "max_output") if k in options})
    return Agent("desk", model, **options)


# ---------------------------------------------------------------- what nobody has read


@pytest.mark.parametrize("history", ["all", 1, 2, "summary"])
@pytest.mark.parametrize("mode", ["interrupt", "queue"])
def test_a_message_taken_over_is_sent_whole_however_little_history_the_agent_has(history, mode):
    async def main():
        sent = []
        async with Runtime(":memory:", agents=[desk(sent, history=history)]) as rt:
            await rt.send_async("s", "hello " * 300, agent="desk")
            waits = await rt.send_async("s", "book a room")
            note = await rt.post_async("s", LONG)
            sent.clear()
            later = await rt.post_async("s", "on Friday", mode=mode)
            if mode == "queue":
                await rt.cancel_async(waits.id)
            run = await rt.follow_async(later)
            assert (await rt.follow_async(note)).id == run.id, "who reads it is who was named"
        assert any(LONG in said for said in sent[-1])
        assert sent[-1][-1] == "on Friday"

    asyncio.run(main())


def test_what_was_taken_over_is_not_condensed_before_it_was_read():
    async def main():
        sent = []
        agent = desk(sent, window=6_000, max_output=600)
        async with Runtime(":memory:", agents=[agent]) as rt:
            for n in range(8):
                await rt.send_async("s", f"{n} " + "words " * 300, agent="desk")
            waits = await rt.send_async("s", "book a room")
            steered = "the whole list: " + ", ".join(f"item {n}" for n in range(600))
            await rt.post_async("s", steered)
            await rt.post_async("s", "on Friday", mode="queue")
            await rt.cancel_async(waits.id)
            sent.clear()
            run = await rt.send_async("s", "and soon")
            assert run.status == "completed"
        assert any(steered in text for said in sent for text in said)

    asyncio.run(main())


# ---------------------------------------------------------------- what a message costs


def test_a_message_reads_as_little_in_a_long_conversation_as_in_a_short_one():
    async def main():
        store = CountingStore()
        rt = runtime(lambda r: "ok", store=store)
        costs = []
        for n in range(60):
            before = store.events_read
            await rt.send_async("s", f"message {n}", agent="a")
            costs.append(store.events_read - before)
        assert len(set(costs[2:])) == 1, "from the third one on all of them cost the same"

    asyncio.run(main())


def test_only_what_a_run_has_added_is_measured_and_renamed(monkeypatch):
    measured = []
    tokens_of = conversation.tokens_of
    monkeypatch.setattr(conversation, "tokens_of", lambda m: measured.append(m) or tokens_of(m))

    async def main():
        store = InMemoryStore()
        rt = runtime(lambda r: "ok", store=store)
        for n in range(40):
            await rt.send_async("s", f"message {n}", agent="a")
        last = (await store.session_head("s")).run
        fold_cache._of_store.clear()
        measured.clear()
        await load(store, last)
        assert len(measured) == 2 * 39, "each message of the runs before once"

    asyncio.run(main())


def test_what_is_kept_is_what_would_be_folded_anew():
    async def main():
        store = InMemoryStore()
        model = Scripted(lambda r: "again " * 50, window=1_400, max_output=300)
        rt = runtime(model, store=store)
        for n in range(30):
            await rt.send_async("s", f"message {n} " + "words " * 40, agent="a")
            last = (await store.session_head("s")).run
            known = await load(store, last)
            fold_cache._of_store.clear()
            assert await load(store, last) == known
            before = (
                await conversation.conversation_before(store, RunRef(run=last, seq=known.seq))
            ).size
            assert before == size_of(known.messages, known.view, known.summary)

    asyncio.run(main())


def test_the_process_that_erases_keeps_nothing_of_what_it_had_read():
    async def main():
        async with Runtime(":memory:", agents=[desk([])]) as rt:
            ann = Principal(id="ann")
            for text in ("my number is 4711", "thanks"):
                run = await rt.send_async("s", text, agent="desk", principal=ann)
            assert "4711" in str((await load(rt.store, run.id)).messages)
            await rt.erase_async(ann)
            assert rt.store not in fold_cache._of_store

    asyncio.run(main())


# ---------------------------------------------------------------- bounds


def ended(chars):
    return CachedConversation(state=RunState(run="r"), began=0, size=0, chars=chars)


def test_only_so_many_conversations_are_kept():
    held = Conversations(most=3)
    for n in range(5):
        held.find(1, RunRef(run="r0", seq=1))
        held.keep(1, RunRef(run=f"r{n}", seq=1), ended(10))
    found = [n for n in range(5) if held.find(1, RunRef(run=f"r{n}", seq=1)) is not None]
    assert found == [0, 3, 4], "those used last"


def test_only_so_much_text_is_kept_but_never_less_than_two_conversations():
    held = Conversations(chars=100)
    held.find(1, RunRef(run="r0", seq=1))
    for n, chars in enumerate((30, 30, 30, 400, 500)):
        held.keep(1, RunRef(run=f"r{n}", seq=1), ended(chars))
    found = [n for n in range(5) if held.find(1, RunRef(run=f"r{n}", seq=1)) is not None]
    assert found == [3, 4]


def test_what_was_read_before_something_was_erased_is_not_kept():
    held = Conversations()
    assert held.find(7, RunRef(run="r", seq=1)) is None
    held.find(8, RunRef(run="r", seq=1))  # meanwhile another one has seen that something went
    held.keep(7, RunRef(run="r", seq=1), ended(10))
    assert held.find(8, RunRef(run="r", seq=1)) is None
    held.keep(8, RunRef(run="r", seq=1), ended(10))
    assert held.find(8, RunRef(run="r", seq=1)) is not None
    assert held.find(9, RunRef(run="r", seq=1)) is None
