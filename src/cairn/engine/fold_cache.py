"""A cache of what this process has folded of a store's journals.

A journal never changes before its head, except that erasing and pruning take things out of it. Both
are written to the journal `store` in the same transaction: what was kept before is used no more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from cairn.core import events as ev
from cairn.core.messages import (
    Blob,
    CallPart,
    Message,
    Part,
    Reasoning,
    Record,
    ResultPart,
    Text,
)
from cairn.core.state import RunState
from cairn.errors import StoreError
from cairn.ports import Store

KEPT = 64
"""So many ends of conversations are kept for a store, and as many states of runs."""
KEPT_CHARS = 64_000_000
"""So many characters they may have together, those of each kind."""
MESSAGE_CHARS = 200
"""What a message takes beside its text."""

HARMLESS = (
    *(ev.MemoryKept, ev.MemoryReviewed, ev.MemoryForgotten, ev.MemoryErased),
    *(ev.GrantMade, ev.GrantRevoked, ev.BudgetsSet),
    *(ev.SessionTitled, ev.SessionRewound, ev.SessionForked),
)
"""Events of the journal `store` that take nothing out of the journal of a run."""

K = TypeVar("K", bound=Hashable)


class CachedConversation(Record):
    """A conversation as a run has left it.

    Args:
        state: Of that run, at its end.
        began: How many of its messages it had not added itself.
        size: Estimated tokens of what is sent of its messages.
        chars: How long all of them are, about.
    """

    state: RunState
    began: int
    size: int
    chars: int


class CachedRun(Record):
    """A run as it was when somebody looked last.

    Args:
        state: At that time.
        chars: How long its messages are, about, and what it was sent.
    """

    state: RunState
    chars: int


V = TypeVar("V", CachedConversation, CachedRun)


class LastUsed(Generic[K, V]):
    """What was used last, by what it is called.

    Args:
        most: How much.
        chars: How long it may be together; the last two are kept however long they are.
    """

    def __init__(self, most: int = KEPT, chars: int = KEPT_CHARS) -> None:
        self._most = most
        self._chars = chars
        self._age = 0
        self._held: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, age: int | None, name: K) -> V | None:
        """What was kept of it; `age` is from `FoldCache.age`, and nothing older is used."""
        if age is None:
            return None
        with self._lock:
            if age > self._age:
                self._held.clear()
                self._age = age
            found = self._held.get(name) if age == self._age else None
            if found is not None:
                self._held.move_to_end(name)
            return found

    def keep(self, age: int | None, name: K, value: V) -> None:
        """Keep what was read since `FoldCache.age` said so, unless something was erased since."""
        with self._lock:
            if age != self._age:
                return
            self._held[name] = value
            self._held.move_to_end(name)
            total = sum(each.chars for each in self._held.values())
            while len(self._held) > self._most or (total > self._chars and len(self._held) > 2):
                total -= self._held.popitem(last=False)[1].chars


class Conversations(LastUsed[ev.RunRef, CachedConversation]):
    """Conversations by the end of their last run, those used last."""


class Runs(LastUsed[str, CachedRun]):
    """Runs as they stand, those used last."""


class FoldCache:
    """What is kept for one store: how runs have left a conversation, and how runs stand."""

    def __init__(self) -> None:
        self.ends = Conversations()
        self.runs = Runs()
        self._head = -1
        self._age = 0
        self._lock = threading.Lock()

    async def age(self, store: Store) -> int | None:
        """How often something was taken out of a journal, as far as this process has looked.

        None where that cannot be told: then nothing is kept, and nothing that was kept is used.
        """
        known = self._head
        try:
            head = (await store.info("store")).head
            news = await store.read("store", after=known) if -1 < known < head else []
        except StoreError:
            return None
        with self._lock:
            fell = head < known or any(not isinstance(e.event, HARMLESS) for e in news)
            self._age += fell
            self._head = head if fell else max(head, self._head)
            return self._age


_of_store: WeakKeyDictionary[Store, FoldCache] = WeakKeyDictionary()


def cache_of(store: Store) -> FoldCache:
    """What this process keeps for a store."""
    try:
        return _of_store.setdefault(store, FoldCache())
    except TypeError:  # one that cannot be referred to weakly: nothing is kept for it
        return FoldCache()


def forget(store: Store) -> None:
    """Keep nothing of a store any more: something of it was erased."""
    with suppress(TypeError):  # see `cache_of`
        _of_store.pop(store, None)


def chars_of(message: Message) -> int:
    """How long a message is, about."""
    return MESSAGE_CHARS + sum(map(_chars_of, message.parts))


def chars_sent(entries: list[ev.Entry]) -> int:
    """How long the messages are that were sent by these events, about."""
    return sum(
        MESSAGE_CHARS + sum(map(_chars_of, entry.event.parts))
        for entry in entries
        if isinstance(entry.event, ev.InputQueued)
    )


def _chars_of(part: Part) -> int:
    match part:
        case ResultPart(result=text) | CallPart(arguments=text) | Text(content=text):
            return len(text)
        case Reasoning(content=text):
            return len(text)
        case Blob(content=data):
            return len(data)
        case _:
            return 0
