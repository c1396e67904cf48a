"""The reference model keeps the store's contract."""

from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore
from cairn.testing.store_contract import StoreContract


class TestInMemoryStore(StoreContract):
    def open(self):
        store = open_store(":memory:")
        assert isinstance(store, InMemoryStore)
        return store

    def beside(self, store):
        return store.beside()

    def die(self, store):
        store.crash()

    def freeze(self, store):
        store.freeze()
