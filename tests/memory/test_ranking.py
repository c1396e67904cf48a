"""How facts are put in order, as arithmetic."""

import asyncio
import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import ConfigError
from cairn.memory.embedding import Embedding
from cairn.memory.ranking import (
    DAY_US,
    FUSION,
    NUDGE,
    by_meaning,
    by_words,
    fused,
    nudge,
    packed,
    unpacked,
)
from cairn.testing.memory_promises import Meaning


def test_a_rare_word_counts_more_than_a_common_one_and_a_short_fact_more_than_a_long_one():
    postings = [(1, "common", 1, 4), (2, "common", 1, 4), (2, "rare", 1, 4), (3, "common", 1, 9)]
    found = by_words({"common": 1.0, "rare": 1.0}, postings, 3, 17)
    assert found[2] > found[1] > found[3] > 0
    assert by_words({"absent": 1.0}, postings, 3, 17) == {}
    assert by_words({}, [], 0, 0) == {}


@given(st.dictionaries(st.integers(1, 50), st.floats(0, 10), max_size=20))
def test_fusing_one_ranking_keeps_its_order_and_equals_share_a_place(ranking):
    scores = fused([ranking])
    for one, first in ranking.items():
        for other, second in ranking.items():
            if math.isclose(first, second, rel_tol=1e-9):
                continue
            assert (first > second) == (scores[one] > scores[other])
    assert fused([{1: 2.0, 2: 2.0}]) == {1: 1 / (FUSION + 1), 2: 1 / (FUSION + 1)}


def test_what_two_rankings_agree_on_comes_before_what_one_of_them_prefers():
    scores = fused([{1: 9.0, 2: 8.0}, {3: 0.9, 2: 0.8}])
    assert max(scores, key=scores.__getitem__) == 2


def test_a_nudge_never_overturns_a_place_at_the_top():
    assert nudge(0, trusted=True) == pytest.approx(NUDGE)
    assert 1 / (FUSION + 1) - 1 / (FUSION + 2) > NUDGE
    assert nudge(90 * DAY_US, trusted=False) < nudge(0, trusted=False)
    assert nudge(-5, trusted=True) == nudge(0, trusted=True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_vectors_are_kept_with_length_one(vector):
    stored = packed(vector, 3)
    if math.hypot(*vector) == 0:
        assert stored is None
        return
    assert stored is not None
    assert len(stored) == 12
    assert math.hypot(*unpacked(stored)) == pytest.approx(1, abs=1e-3)


def test_likeness_is_the_cosine_and_what_is_unlike_is_left_out():
    same, other = packed([1.0, 0.0], 2), packed([0.0, 1.0], 2)
    assert by_meaning(array("f", [1.0, 0.0]), [(1, same), (2, other)]) == {1: 1.0}
    for wrong in ([1.0], [math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0], ["x", "y"], [1e200, 1e200]):
        found = packed(wrong, 2)
        assert found is None or all(map(math.isfinite, unpacked(found)))


def test_an_embedder_that_cannot_be_used_is_refused_by_name():
    class Odd:
        name = ""
        dimensions = 3

        async def embed(self, texts):
            return [[1.0] * 3 for _ in texts]

    with pytest.raises(ConfigError, match=r"MemoryRules\.embedder"):
        Embedding(object())
    with pytest.raises(ConfigError, match=r"Embedder\.name"):
        Embedding(Odd())
    Odd.name, Odd.dimensions = "odd", 0
    with pytest.raises(ConfigError, match=r"Embedder\.dimensions"):
        Embedding(Odd())
    Odd.dimensions = 3
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="embed_timeout"):
            Embedding(Odd(), wrong)


def test_an_embedder_that_has_just_failed_is_left_alone_for_a_while():
    meaning = Meaning()
    asked = []

    async def embed(texts):
        asked.append(texts)
        raise OSError("unplugged")

    meaning.embed = embed

    async def whole():
        embedding = Embedding(meaning, rest_s=60)
        return [await embedding.of_question("tea") for _ in range(3)]

    answers = asyncio.run(whole())
    assert len(asked) == 1
    assert all("unplugged" in why for _, why in answers)
