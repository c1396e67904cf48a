"""Embedders as they are: plain functions, slow, down, or bad at one text. Nothing else suffers."""

import asyncio
import threading
import time
from itertools import pairwise

import pytest
from tests.engine.kit import beside
from tests.memory.kit import ANN, NOW, fact

from cairn import Agent, ConfigError, Runtime, Scripted, call
from cairn.core.events import ToolCompleted
from cairn.memory import FactFilter, MemoryRules
from cairn.memory.embedding import THREADS, Embedding
from cairn.memory.facts import user_scope
from cairn.memory.inmemory import InMemoryMemory
from cairn.store import open_store
from cairn.testing.memory_promises import Meaning
from cairn.toolkit import MEMORY_TOOLS

SCOPE = [user_scope(ANN)]


class Plain(Meaning):
    """An embedder whose function is not async, as most that run on the machine itself."""

    def __init__(self, takes_s=0.0):
        super().__init__()
        self.takes_s = takes_s
        self.threads = set()
        self.let_go = threading.Event()

    def embed(self, texts):
        self.threads.add(threading.current_thread())
        if self.takes_s:
            self.let_go.wait(self.takes_s)
        if self.down is not None:
            raise self.down
        self.asked += texts
        return [
            [text.lower().count(each) + 0.001 for each in "abcdefghijklmnopqrstuvwxyz"]
            for text in texts
        ]


class Mute(Exception):
    """An exception whose own text would end the process."""

    def __str__(self):
        raise SystemExit(9)

    __repr__ = __str__


class MuteEnd(BaseException):
    """The same, of a kind that nobody catches by chance."""

    __str__ = __repr__ = Mute.__str__


class Time:
    """The clock of the back-off, moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "file"])
def within(request, tmp_path):
    """Runs some work on a memory with an embedding."""

    def run(work, embedding):
        async def whole():
            if request.param == "memory":
                return await work(InMemoryMemory(embedding=embedding))
            store = open_store(tmp_path / "cairn.db")
            try:
                return await work(store.memory(embedding))
            finally:
                await store.close()

        return asyncio.run(whole())

    return run


def test_a_plain_function_is_an_embedder_and_runs_beside_the_loop(within):
    plain = Plain()

    async def work(memory):
        await memory.keep(fact("zzzz zzzz"), "", NOW)
        await memory.keep(fact("aabb abab"), "", NOW)
        found = await memory.recall("zz zzz", SCOPE, 5, NOW)
        assert (found.hits[0].fact.text, found.degraded) == ("zzzz zzzz", "")

    within(work, Embedding(plain))
    assert plain.threads
    assert threading.main_thread() not in plain.threads


def test_the_loop_goes_on_while_a_plain_function_takes_its_time_and_the_answer_comes_in_time():
    plain = Plain(takes_s=30.0)

    async def work():
        memory = InMemoryMemory(embedding=Embedding(plain, timeout_s=0.3))
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        beating = asyncio.ensure_future(beat())
        found = await memory.recall("tea", SCOPE, 5, NOW)
        beating.cancel()
        assert "no answer within 0.3 s" in found.degraded
        assert beats > 5

    begun = time.monotonic()
    asyncio.run(work())  # the end of the loop does not wait for the thread either
    assert time.monotonic() - begun < 10
    plain.let_go.set()


def test_calls_that_never_return_keep_no_more_than_a_few_threads():
    plain = Plain(takes_s=30.0)

    async def work():
        embedding = Embedding(plain, timeout_s=0.05, rest_s=0)
        said = [(await embedding.of_question("tea"))[1] for _ in range(THREADS + 3)]
        assert [f"{THREADS} calls of it are still at work" in each for each in said] == (
            [False] * THREADS + [True] * 3
        )
        plain.let_go.set()
        plain.takes_s = 0.0
        for _ in range(500):
            if not (await embedding.of_question("tea"))[1]:
                break
            await asyncio.sleep(0.01)
        assert (await embedding.of_question("tea"))[1] == ""

    asyncio.run(work())
    assert len(plain.threads) <= THREADS + 10


def test_an_async_function_that_swallows_its_cancelling_is_not_waited_for():
    stubborn = Meaning()
    over = asyncio.Event()

    async def embed(texts):
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    stubborn.embed = embed

    async def work():
        embedding = Embedding(stubborn, timeout_s=0.05)
        found = await asyncio.wait_for(embedding.of_question("tea"), 5)
        assert "no answer within" in found[1]
        over.set()

    asyncio.run(work())


@pytest.mark.parametrize("error", [SystemExit("x"), KeyboardInterrupt(), StopIteration("x")])
def test_whatever_a_plain_function_raises_is_told_and_ends_nothing(error):
    plain = Plain()
    plain.down = error

    async def work():
        found = await Embedding(plain, timeout_s=5).of_question("tea")
        assert "letters failed" in found[1]

    asyncio.run(work())


class Odd(BaseException):
    """What a library of somebody else may raise."""


@pytest.mark.parametrize(
    "error", [SystemExit("x"), KeyboardInterrupt(), asyncio.CancelledError(), Odd("x")]
)
def test_whatever_an_async_function_raises_costs_neither_the_fact_nor_the_answer(within, error):
    meaning = Meaning()
    meaning.down = error

    async def work(memory):
        assert (await memory.keep(fact("Likes tea."), "", NOW)).state == "live"
        found = await memory.recall("tea", SCOPE, 5, NOW)
        assert [hit.fact.text for hit in found.hits] == ["Likes tea."]
        assert f"letters failed: RuntimeError: {type(error).__name__}" in found.degraded

    within(work, Embedding(meaning))


def test_an_error_without_words_is_named_by_its_type():
    class Wordless(Exception):
        def __str__(self):
            raise ValueError("none")

    meaning = Meaning()
    meaning.down = Wordless()
    found = asyncio.run(Embedding(meaning).of_question("tea"))
    assert "Wordless" in found[1]


# ---------------------------------------------------------------- down, and up again


def test_who_is_down_is_tried_less_and_less_often_and_at_once_used_when_up():
    clock, meaning, calls = Time(), Meaning(), []

    async def embed(texts):
        calls.append(clock.now)
        if meaning.down:
            raise meaning.down
        return [[1.0] * 26 for _ in texts]

    meaning.embed, meaning.down = embed, OSError("unplugged")

    async def work():
        embedding = Embedding(meaning, rest_s=10, clock=clock)
        for _ in range(3_600):
            clock.now += 1
            assert "unplugged" in (await embedding.of_question("tea"))[1]
        tried = [at - calls[0] for at in calls]
        assert tried[:6] == [0, 10, 30, 70, 150, 310]
        assert len(tried) < 20
        assert max(b - a for a, b in pairwise(tried)) == 300
        meaning.down = None
        clock.now += 300
        assert (await embedding.of_question("tea"))[1] == ""
        meaning.down = OSError("unplugged")
        await embedding.of_question("tea")
        clock.now += 10
        before = len(calls)
        await embedding.of_question("tea")
        assert len(calls) == before + 1, "after an answer the rest is short again"

    asyncio.run(work())


def test_only_one_of_many_finds_out_whether_it_is_up_again():
    clock, meaning, asked = Time(), Meaning(), []

    async def embed(texts):
        asked.append(texts)
        await asyncio.sleep(0.05)
        raise OSError("unplugged")

    meaning.embed = embed

    async def work():
        embedding = Embedding(meaning, rest_s=10, clock=clock)
        await embedding.of_question("tea")
        clock.now += 11
        said = await asyncio.gather(*(embedding.of_question(f"tea {n}") for n in range(20)))
        assert all("unplugged" in why for _, why in said)
        assert len(asked) == 2

    asyncio.run(work())


def test_many_failures_at_the_same_time_are_one_failure():
    clock, meaning = Time(), Meaning()
    meaning.down, meaning.delay_s = OSError("unplugged"), 0.02

    async def work():
        embedding = Embedding(meaning, rest_s=10, clock=clock)
        await asyncio.gather(*(embedding.of_question("tea") for _ in range(20)))
        meaning.down = None
        clock.now += 11
        assert (await embedding.of_question("tea"))[1] == ""

    asyncio.run(work())


def test_a_question_that_was_given_up_does_not_keep_others_from_asking():
    clock, meaning = Time(), Meaning()

    async def work():
        embedding = Embedding(meaning, rest_s=10, clock=clock)
        meaning.down = OSError("unplugged")
        await embedding.of_question("tea")
        clock.now += 11
        meaning.down, meaning.delay_s = None, 60.0
        asking = asyncio.ensure_future(embedding.of_question("tea"))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        meaning.delay_s = 0.0
        assert (await embedding.of_question("tea"))[1] == ""

    asyncio.run(work())


# ---------------------------------------------------------------- vectors that are missing


def test_facts_kept_while_it_was_down_get_their_vectors_when_somebody_asks(within):
    meaning = Meaning()
    meaning.down = OSError("unplugged")

    async def work(memory):
        for n in range(5):
            await memory.keep(fact(f"zzzz z{'ab' * n}"), "", NOW)
        await memory.keep(fact("qqqq"), "", NOW)
        found = await memory.recall("zz", SCOPE, 5, NOW)
        assert (found.hits, "unplugged" in found.degraded) == ((), True)
        meaning.down = None
        found = await memory.recall("zz", SCOPE, 5, NOW)
        assert (found.hits[0].fact.text, found.degraded) == ("zzzz z", "")
        before = len(meaning.asked)
        await memory.recall("zz", SCOPE, 5, NOW)
        assert meaning.asked[before:] == ["zz"], "no fact is asked about twice"

    within(work, Embedding(meaning, rest_s=0))


def test_while_vectors_are_missing_the_answer_says_so(within):
    meaning = Meaning()
    meaning.down = OSError("unplugged")

    async def embed(texts):
        if any("qqqq" in text for text in texts):
            raise ValueError("no q")
        return [
            [text.count(each) + 0.001 for each in "abcdefghijklmnopqrstuvwxyz"] for text in texts
        ]

    meaning.embed = embed

    async def work(memory):
        await memory.keep(fact("qqqq"), "", NOW)
        found = await memory.recall("zz", SCOPE, 5, NOW)
        assert found.degraded == "one fact has no vector yet and was found by its words alone"

    within(work, Embedding(meaning, rest_s=0))


def test_a_fact_that_the_embedder_cannot_take_keeps_none_of_the_others_from_their_vectors(within):
    meaning, tries = Meaning(), []

    async def embed(texts):
        tries.append(texts)
        if any("qqqq" in text for text in texts):
            raise ValueError("no q")
        return [
            [text.count(each) + 0.001 for each in "abcdefghijklmnopqrstuvwxyz"] for text in texts
        ]

    async def down(texts):
        raise OSError("unplugged")

    async def work(memory):
        meaning.embed = down
        for n in range(9):
            await memory.keep(fact("qqqq" if n == 4 else f"zzzz z{'ab' * n}"), "", NOW)
        meaning.embed = embed
        done = await memory.index(NOW)
        assert (done.made, done.left, "no q" in done.why) == (8, 1, True)
        for _ in range(3):
            await memory.recall("zz", SCOPE, 5, NOW)
        alone = [texts for texts in tries if texts == ["qqqq"]]
        assert len(alone) == 1, "it is not tried at every recall"
        found = await memory.recall("zz", SCOPE, 50, NOW)
        assert len(found.hits) == 8

    within(work, Embedding(meaning, rest_s=0))


def test_an_embedder_that_is_too_slow_for_many_facts_is_given_fewer(within):
    meaning = Meaning()

    async def embed(texts):
        await asyncio.sleep(0.02 * len(texts))
        return [
            [text.count(each) + 0.001 for each in "abcdefghijklmnopqrstuvwxyz"] for text in texts
        ]

    async def down(texts):
        raise OSError("unplugged")

    async def work(memory):
        meaning.embed = down
        for n in range(32):
            await memory.keep(fact(f"zzzz z{'ab' * n}"), "", NOW)
        meaning.embed = embed
        for _ in range(40):
            found = await memory.recall("zz", SCOPE, 5, NOW)
            if not found.degraded:
                break
        assert found.degraded == ""

    within(work, Embedding(meaning, timeout_s=0.25, rest_s=0))


def test_another_model_gets_its_own_vectors_without_anything_being_kept(within):
    meaning, other = Meaning(), Meaning()
    other.name = "other"

    async def first(memory):
        await memory.keep(fact("zzzz"), "", NOW)

    async def second(memory):
        if not await memory.facts(FactFilter()):
            await memory.keep(fact("zzzz"), "", NOW)
        found = await memory.recall("zz", SCOPE, 5, NOW)
        assert ([hit.fact.text for hit in found.hits], found.degraded) == (["zzzz"], "")

    within(first, Embedding(meaning))
    within(second, Embedding(other))
    assert "zzzz" in other.asked


def test_indexing_gives_all_facts_of_all_scopes_their_vectors_at_once(tmp_path):
    meaning = Meaning()
    agent = Agent("desk", Scripted(["done"]))
    path = tmp_path / "cairn.db"
    with Runtime(path, [agent]) as rt:
        for n in range(70):
            rt.remember(f"zzzz {n}", principal=f"p{n % 3}")
        with pytest.raises(ConfigError, match=r"MemoryRules\.embedder: there is none"):
            rt.index_facts()
    with Runtime(path, [agent], memory=MemoryRules(embedder=meaning)) as rt:
        meaning.down = OSError("unplugged")
        done = rt.index_facts()
        assert (done.made, done.left, "unplugged" in done.why) == (0, 70, True)
        meaning.down = None
        assert rt.recall("zz", principal="p1").degraded, "it is left alone for a while"
        done = rt.index_facts()  # a person does not have to wait for that
        assert (done.made, done.left, done.why) == (70, 0, "")
        assert rt.recall("zz", principal="p1").degraded == ""
        assert (rt.index_facts().made, rt.index_facts().left) == (0, 0)


def test_a_memory_of_ones_own_without_an_index_says_so():
    class Bare:
        def __getattr__(self, name):
            if name == "index":
                raise AttributeError(name)
            return getattr(InMemoryMemory(), name)

    no_index = pytest.raises(ConfigError, match=r"MemoryRules\.memory: this memory has no index")
    with Runtime(":memory:", [], memory=MemoryRules(memory=Bare())) as rt, no_index:
        rt.index_facts()


def test_what_cannot_be_called_is_no_embedder():
    class Odd:
        name, dimensions, embed = "odd", 3, "no function"

    with pytest.raises(ConfigError, match=r"Embedder\.embed: it cannot be called"):
        MemoryRules(embedder=Odd())


ENDS = [SystemExit, GeneratorExit, asyncio.CancelledError, Mute, MuteEnd]


@pytest.mark.parametrize("how", ["plain", "async", "in a vector"])
@pytest.mark.parametrize("error", ENDS)
def test_an_embedder_that_would_end_the_process_costs_neither_the_fact_nor_the_recall(
    error, how, caplog
):
    def embed(texts):
        raise error

    async def awaited(texts):
        raise error

    class Number:
        def __float__(self):
            raise error

    async def unreadable(texts):
        return [[Number()] * embedder.dimensions for _ in texts]

    embedder = Meaning()
    embedder.embed = {"plain": embed, "async": awaited, "in a vector": unreadable}[how]
    model = Scripted([call("recall", query="tea"), "done"])
    agent = Agent("a", model, tools=[*MEMORY_TOOLS])
    rules = MemoryRules(embedder=embedder)

    def used():
        with Runtime(":memory:", [agent], memory=rules) as rt:
            rt.remember("The tea is green.")
            run = rt.run("a", "go", id="r")
            found = [e.event for e in rt.trace("r") if isinstance(e.event, ToolCompleted)]
            return run.status, [bytes(each.result) for each in found]

    came = beside(used)
    assert not isinstance(came, BaseException), type(came)
    assert came[0] == "completed"
    assert "The tea is green." in came[1][0].decode()
    assert error.__name__ in caplog.text
