"""What a question reaches beyond its own words, and which of its words ask for nothing."""

import asyncio
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory.kit import ANN, NOW, fact

from cairn.core.words import MOST_TERMS, asked, stem, words
from cairn.memory.facts import user_scope
from cairn.memory.inmemory import InMemoryMemory
from cairn.memory.wording import SHORTEST_ROOT, asked_for, forms, root
from cairn.store import open_store

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=300)


@pytest.fixture(params=["memory", "file"])
def found(request, tmp_path):
    """What a question finds among some facts, the best first."""

    files = count()

    def run(query, *texts):
        async def whole():
            name = f"cairn-{next(files)}.db"
            store = open_store(tmp_path / name) if request.param == "file" else None
            memory = InMemoryMemory() if store is None else store.memory()
            try:
                for text in texts:
                    await memory.keep(fact(text), "", NOW)
                told = await memory.recall(query, [user_scope(ANN)], 9, NOW)
                return [hit.fact.text for hit in told.hits]
            finally:
                if store is not None:
                    await store.close()

        return asyncio.run(whole())

    return run


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("does she teach", "She is a teacher."),
        ("which allergies", "Is allergic to peanuts."),
        ("who approves it", "It needs the approval of Priya."),
        ("when was it bought", "Will buy a bicycle in May."),
        ("is the child at home", "The children sleep upstairs."),
        ("responsibilities of Tomas", "Tomas is responsible for the frontend."),
        ("how is the migration done", "Migrate the tables by hand."),
        ("optional settings", "The option verbose is off."),
    ],
)
def test_words_made_of_the_same_word_find_each_other(found, query, text):
    assert found(query, "Something else entirely.", text) == [text]
    assert found(text, query) == [query]


def test_the_word_itself_goes_before_its_relatives(found):
    texts = ("The teacher is ill.", "She wants to teach.", "Teaching is hard.")
    assert found("teach", *texts)[-1] == "The teacher is ill."


def test_a_word_that_only_begins_alike_is_no_relative(found):
    assert found("insurance", "The insurgents fled.", "An island in the sun.") == []
    assert found("port", "She lives in Porto.", "A portfolio of paintings.") == []


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("最近在准备什么考试", "下个月考试。", "不知道准备做什么，什么都没有准备。"),
        ("为什么要打伞", "打伞是因为怕晒。", "为什么呢？为什么呀？"),
        ("為什麼要打傘", "打傘是因為怕曬。", "為什麼呢？為什麼呀？"),
        ("どんな薬がありますか", "薬は毎朝飲みます。", "ありますか、どんなことがありますか。"),
        ("무슨 약을 먹나요", "약은 아침에.", "무슨 일이 있나요, 무슨 말이 있나요."),
    ],
)
def test_phrases_that_only_ask_do_not_weigh_in_any_script(found, query, right, wrong):
    assert found(query, right, wrong)[0] == right


def test_a_question_of_nothing_but_such_phrases_is_asked_as_it_stands(found):
    assert found("什么", "不知道为什么。") == ["不知道为什么。"]
    assert asked_for("什么时候") == asked("什么时候")


@given(ANYTHING)
def test_any_text_can_be_asked_and_asks_for_words_that_it_has(query):
    found = asked_for(query)
    assert len(found) <= MOST_TERMS
    assert bool(found) is bool(words(query))
    for word, weight in found.items():
        word.encode()
        assert 0 < weight <= 1


@given(st.text("abcdefgilmnorstuvyz", min_size=1, max_size=20))
def test_a_root_is_how_its_word_begins_and_its_own_root(word):
    word = stem(word)
    found = root(word)
    assert word.startswith(found)
    assert root(found) == found
    assert found == word or len(found) >= SHORTEST_ROOT


def test_irregular_forms_know_each_other_and_no_one_else():
    assert stem("bought") in forms(stem("buy"))
    assert stem("mice") in forms(stem("mouse"))
    assert forms("tea") == frozenset()
