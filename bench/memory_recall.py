"""How often memory finds the fact that answers a question, by full text alone.

    python bench/memory_recall.py          print the figures, language by language
    python bench/memory_recall.py --misses also each question whose fact is not found first
    python bench/memory_recall.py --many   how long it takes in a store of 10,000 facts

A small set with labels, written for this: facts of one person and one project, several of them
close to each other on purpose, and questions that do not repeat a fact's words. English, Chinese,
both mixed, Japanese and Korean. No embedder takes part, so the figures are the floor.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from memory_questions import (  # noqa: E402 - found beside this file
    CASES,
    FACTS,
    HELD_CASES,
    LATER_CASES,
    LATER_FACTS,
    Case,
)

from cairn.core.messages import Principal  # noqa: E402 - as above
from cairn.memory import Memory, NewFact  # noqa: E402 - as above
from cairn.memory.embedding import Embedding  # noqa: E402 - as above
from cairn.memory.facts import user_scope  # noqa: E402 - as above
from cairn.memory.inmemory import InMemoryMemory  # noqa: E402 - as above
from cairn.store import open_store  # noqa: E402 - as above

WHO = Principal(id="bench")
NOW = 1_750_000_000_000_000
DEPTH = 50


class Figures(NamedTuple):
    """How a set of questions was answered.

    Attributes:
        count: How many questions.
        at_1, at_5: Share whose fact was found first, or among the first five.
        mrr: Mean of 1/place, 0 for a fact that was not found.
    """

    count: int
    at_1: float
    at_5: float
    mrr: float


class Questions(NamedTuple):
    """Labelled questions, and all the facts that are known when they are asked."""

    cases: list[Case]
    facts: dict[str, str]


SETS = {
    "first": Questions(CASES, FACTS),
    "later": Questions(LATER_CASES, FACTS | LATER_FACTS),
    "held": Questions(HELD_CASES, FACTS | LATER_FACTS),
}
"""The first set was written along with the code. The later one was written before the words of a
question were looked at again, but what it missed was seen before that was changed. The held one
was written before the change was tried, and what it missed has changed nothing: it is the one to
go by."""


async def places(memory: Memory, asked: Questions = SETS["first"]) -> list[tuple[Case, int]]:
    """For each question the place its fact was found at; 0 for nowhere."""
    scope, number = user_scope(WHO), {}
    for at, (name, text) in enumerate(asked.facts.items()):
        new = NewFact(text=text, scope=scope, principal=WHO.id, trust="owner")
        number[name] = (await memory.keep(new, "", NOW + at)).n
    found = []
    for case in asked.cases:
        told = await memory.recall(case.query, [scope], DEPTH, NOW + len(asked.facts))
        numbers = [hit.fact.n for hit in told.hits]
        wanted = number[case.fact]
        found.append((case, numbers.index(wanted) + 1 if wanted in numbers else 0))
    return found


def figures(found: list[tuple[Case, int]]) -> dict[str, Figures]:
    """The figures of each language, and of all of them."""
    by_language: dict[str, list[int]] = defaultdict(list)
    for case, place in found:
        by_language[case.language].append(place)
        by_language["all"].append(place)
    return {
        language: Figures(
            count=len(there),
            at_1=sum(place == 1 for place in there) / len(there),
            at_5=sum(1 <= place <= 5 for place in there) / len(there),
            mrr=sum(1 / place for place in there if place) / len(there),
        )
        for language, there in by_language.items()
    }


def measure(name: str = "first") -> list[tuple[Case, int]]:
    """Where full text alone finds each fact of a set."""
    return asyncio.run(places(InMemoryMemory(), SETS[name]))


class Hashed:
    """An embedder for `--many`: vectors of a usual size, that cost nothing to make."""

    name, dimensions = "hashed", 384

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """As many numbers as a small model gives."""
        found = []
        for text in texts:
            chance = random.Random(text)  # noqa: S311 - the same numbers each time, for a bench
            found.append([chance.gauss(0, 1) for _ in range(self.dimensions)])
        return found


async def many(count: int, embedding: Embedding | None) -> dict[str, list[float]]:
    """Milliseconds of each keep and each recall, once a store's file has so many facts."""
    chance = random.Random(7)  # noqa: S311 - the same facts each time, for a bench
    texts = [*(FACTS | LATER_FACTS).values()]
    taken: dict[str, list[float]] = defaultdict(list)
    scope = user_scope(WHO)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "cairn.db", durability="process")
        memory = store.memory(embedding)
        for n in range(count):
            text = f"{chance.choice(texts)} {chance.choice(texts)} Number {n}."
            begun = perf_counter()
            await memory.keep(
                NewFact(text=text, scope=scope, principal=WHO.id, trust="owner"), "", NOW + n
            )
            if n >= count - 200:
                taken["keep"].append((perf_counter() - begun) * 1e3)
        for case in [*CASES, *LATER_CASES, *HELD_CASES]:
            begun = perf_counter()
            await memory.recall(case.query, [scope], 5, NOW + count)
            taken["recall"].append((perf_counter() - begun) * 1e3)
        await store.close()
    return taken


def _print_many(count: int) -> None:
    for title, embedding in (("words alone", None), ("with vectors", Embedding(Hashed()))):
        for what, times in asyncio.run(many(count, embedding)).items():
            worst = sorted(times)[int(len(times) * 0.95)]
            print(
                f"{count:,} facts, {title:<13} {what:<7} median {median(times):.1f} ms, "
                f"95 % below {worst:.1f} ms"
            )


def main(argv: list[str]) -> int:
    """Print the figures of each set."""
    if "--many" in argv:
        _print_many(10_000)
        return 0
    for name, asked in SETS.items():
        found = measure(name)
        counted = f"{len(asked.facts)} facts, {len(asked.cases)} questions"
        print(f"the {name} set: {counted}, full text alone")
        _print(found, misses="--misses" in argv)
    return 0


def _print(found: list[tuple[Case, int]], *, misses: bool) -> None:
    print(f"{'language':<10}{'questions':>10}{'recall@1':>10}{'recall@5':>10}{'MRR':>8}")
    for language, each in figures(found).items():
        numbers = f"{each.at_1:>10.3f}{each.at_5:>10.3f}{each.mrr:>8.3f}"
        print(f"{language:<10}{each.count:>10}{numbers}")
    for case, place in found if misses else ():
        if place != 1:
            print(f"{place or 'not found':>10}  {case.query}  ({case.fact})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
