"""How facts are put in order: by their words, by their meaning, or by both.

All of it is arithmetic on what it is given; the same facts and the same question always come out
in the same order.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from types import MappingProxyType

K1, B = 1.2, 0.75
"""The usual constants of BM25: how soon repeated words stop counting, and how much length does."""
FUSION = 60
"""Of reciprocal rank fusion: how little the first places differ."""
FLOOR = 0.2
"""A cosine below this is no likeness, however few facts there are."""
DAY_US = 86_400_000_000
HALF_LIFE_DAYS = 90.0
NUDGE = 0.00009
"""The most that youth and trust add: less than a place is worth among the first forty."""

Posting = tuple[int, str, int, int]
"""Number of a fact, a word in it, how often it stands there, and how many words the fact has."""


def by_words(
    asked: Mapping[str, float],
    postings: Iterable[Posting],
    count: int,
    total: int,
    kin: Mapping[str, Iterable[str]] = MappingProxyType({}),
    kin_counts: float = 0.5,
) -> dict[int, float]:
    """BM25 of each fact that holds a word of the question, or a word related to one.

    Args:
        asked: The words of the question and what each counts.
        postings: Where they stand, in facts that may be recalled.
        count, total: How many such facts there are, and how many words they have together.
        kin: For a word of the question those that are related to it.
        kin_counts: What one of them counts where the word itself would count 1.
    """
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for fact, word, times, length in postings:
        found[word].append((fact, times, length))
    mean = max(total / count, 1.0) if count else 1.0
    scores: dict[int, float] = defaultdict(float)
    for word, weight in asked.items():  # in the question's order: sums of floats depend on it
        there = {fact: (float(times), length) for fact, times, length in found.get(word, ())}
        for other in kin.get(word, ()):
            for fact, times, length in found.get(other, ()):
                there[fact] = (there.get(fact, (0.0, 0))[0] + kin_counts * times, length)
        rarity = math.log(1 + (count - len(there) + 0.5) / (len(there) + 0.5))
        for fact, (count_of, length) in there.items():
            weighed = count_of * (K1 + 1) / (count_of + K1 * (1 - B + B * length / mean))
            scores[fact] += weight * rarity * weighed
    return dict(scores)


def by_meaning(vector: Sequence[float], others: Iterable[tuple[int, bytes]]) -> dict[int, float]:
    """Cosine of each fact whose vector is like the question's; all of them have length 1."""
    found = {}
    for fact, stored in others:
        other = array("f")
        other.frombytes(stored)
        likeness: float = sum(map(mul, vector, other))
        if likeness >= FLOOR:
            found[fact] = likeness
    return found


def fused(rankings: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Reciprocal rank fusion; facts with the same score share a place."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        place, last = 0, math.inf
        for at, (fact, score) in enumerate(_sorted(ranking), 1):
            if not math.isclose(score, last, rel_tol=1e-9):
                place, last = at, score
            scores[fact] += 1 / (FUSION + place)
    return dict(scores)


def _sorted(ranking: Mapping[int, float]) -> list[tuple[int, float]]:
    return sorted(ranking.items(), key=lambda each: (-each[1], -each[0]))


def nudge(age_us: int, *, trusted: bool) -> float:
    """What youth and trust add to a score: they decide between equals and nothing else."""
    days = max(age_us, 0) / DAY_US
    youth: float = 0.5 ** (days / HALF_LIFE_DAYS)
    return NUDGE * (0.6 * youth + 0.4 * trusted)


# ---------------------------------------------------------------- vectors


def packed(vector: Sequence[float], dimensions: int) -> bytes | None:
    """A vector brought to length 1, as 32-bit floats; None for what is no vector of this size."""
    if len(vector) != dimensions:
        return None
    try:
        length = math.hypot(*vector)
        if not math.isfinite(length) or length == 0.0:
            return None
        return array("f", [each / length for each in vector]).tobytes()
    except (TypeError, ValueError, OverflowError):
        return None


def unpacked(stored: bytes) -> array[float]:
    """The same as numbers."""
    vector = array("f")
    vector.frombytes(stored)
    return vector
