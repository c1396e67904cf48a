"""Both memories keep the same contract: the one in a store's file, and the one in memory."""

import pytest

from cairn.memory.inmemory import InMemoryMemory
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore
from cairn.testing.memory_contract import MemoryContract


async def nothing():
    """There is nothing to close."""


class TestInMemory(MemoryContract):
    def open(self, embedding=None):
        return InMemoryMemory(embedding=embedding), nothing


class TestMemoryOfAStoreInMemory(MemoryContract):
    def open(self, embedding=None):
        store = InMemoryStore()
        return store.memory(embedding), store.close


class TestMemoryInAStoresFile(MemoryContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.count = 0
        self.path = tmp_path

    def open(self, embedding=None):
        self.count += 1
        store = open_store(self.path / f"{self.count}.db")
        return store.memory(embedding), store.close
