"""Chance from a seed, by place: what is drawn at one place never shifts what another one draws.

Everything that may go wrong is an *incident* with a name of its own, `place#n=kind`. So a story
can be told again with only some of its incidents: that is how a failing seed is made shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
UNIT = 1 / (1 << 64)
WILDNESS = (0.4, 1.0, 1.0, 2.0, 4.0)
"""By how much the likelihood of everything that goes wrong is multiplied, drawn per seed."""


def mixed(value: int) -> int:
    """64 bits that look like chance and follow from `value` (splitmix64)."""
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Chance:
    """All chance of one simulation.

    Args:
        seed: What everything follows from.
        keep: The only incidents that may happen; all by default.
    """

    def __init__(self, seed: int, keep: frozenset[str] | None = None) -> None:
        self._seed = mixed(seed)
        self._places: dict[str, int] = {}
        self._drawn: dict[str, int] = {}
        self._keep = keep
        self._wildness = self.pick("wildness", WILDNESS)
        self.quiet = False
        """Whether nothing may go wrong any more."""
        self.incidents: list[str] = []
        """What went wrong, in order."""
        self.counts: Counter[str] = Counter()

    def _bits(self, place: str) -> int:
        base = self._places.get(place)
        if base is None:
            base = self._places[place] = mixed(self._seed ^ (crc32(place.encode()) * GOLDEN & MASK))
        n = self._drawn.get(place, 0)
        self._drawn[place] = n + 1
        return mixed(base + n * GOLDEN)

    def draw(self, place: str) -> float:
        """A number from 0 up to 1."""
        return self._bits(place) * UNIT

    def between(self, place: str, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + self._bits(place) % (high - low + 1)

    def pick(self, place: str, items: Sequence[T]) -> T:
        """One of them."""
        return items[self._bits(place) % len(items)]

    def some(self, place: str, items: Sequence[T], most: int) -> list[T]:
        """Up to `most` of them, each once, in order."""
        ranked = sorted(items, key=lambda _: self._bits(place))
        chosen = ranked[: self.between(place, 0, min(most, len(items)))]
        return [item for item in items if item in chosen]

    def incident(self, place: str, kinds: Mapping[str, float]) -> str:
        """What goes wrong at this place now, empty for nothing.

        Args:
            place: Where; it is counted.
            kinds: How likely each kind is in an ordinary world; some seeds are calmer or wilder.
        """
        n = self._drawn.get(place, 0)
        left = self.draw(place)
        if self.quiet:
            return ""
        for kind, likely in kinds.items():
            left -= likely * self._wildness
            if left < 0:
                name = f"{place}#{n}={kind}"
                if self._keep is not None and name not in self._keep:
                    return ""
                self.incidents.append(name)
                self.counts[kind] += 1
                return kind
        return ""
