"""A list and a mapping that are only ever added to, shared by all their earlier versions.

`added` behaves as if it copied: an older version never sees what a newer one added. It costs
O(1) all the same, because versions share one list and each knows its own length; only the
second branch from the same version copies. That keeps a turn's work independent of a run's
length without giving up values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class History(Sequence[T], Generic[T]):
    """An immutable sequence with cheap growth."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Sequence[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def added(self, item: T) -> History[T]:
        """This history and one more item; this one stays as it is."""
        new: History[T] = History.__new__(History)
        items = self._items
        if len(items) != self._length:  # somebody else has gone on from here: branch off
            items = items[: self._length]
        items.append(item)
        if items[self._length] is not item:  # another thread went on from here at this moment
            items = [*items[: self._length], item]
        new._items = items
        new._length = self._length + 1
        return new

    def shares(self, other: History[T]) -> bool:
        """Whether both are versions in one line: what one adds costs the other nothing."""
        return self._items is other._items

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return self._items[start:stop]
            return [self._items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return self._length == other._length and self[:] == other[:]

    def __hash__(self) -> int:
        return hash((self._length, self[-1] if self._length else None))

    def __repr__(self) -> str:
        return f"History({self[:]!r})"


class Growing(Mapping[K, V], Generic[K, V]):
    """An immutable mapping in the order of its keys' coming, with cheap growth as a `History` has.

    Looking a key up is as cheap as in a dict; taking keys out copies what stays.
    """

    __slots__ = ("_at", "_items")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: History[tuple[K, V]] = History(() if items is None else tuple(items.items()))
        self._at = {key: at for at, (key, _) in enumerate(self._items)}

    def added(self, key: K, value: V) -> Growing[K, V]:
        """This mapping and one more key; this one stays as it is."""
        if key in self:
            return Growing({**self, key: value})
        new: Growing[K, V] = Growing.__new__(Growing)
        new._items = self._items.added((key, value))
        if new._items.shares(self._items):
            new._at = self._at
        else:
            new._at = {known: at for at, (known, _) in enumerate(self._items)}
        new._at[key] = len(self)
        return new

    def without(self, keys: Collection[K]) -> Growing[K, V]:
        """This mapping without some of its keys."""
        gone = frozenset(keys)
        return Growing({key: value for key, value in self._items if key not in gone})

    def __getitem__(self, key: K) -> V:
        at = self._at[key]
        if at >= len(self._items):  # a later version has it
            raise KeyError(key)
        return self._items[at][1]

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Growing({dict(self)!r})"
