"""SQLite keeps the store's contract; a second object on the file stands for a second process."""

import os

import pytest

from cairn.store import open_store
from cairn.store.sqlite.owners import LONG_AGO
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.path = tmp_path / "cairn.db"

    def open(self):
        return open_store(self.path)

    def beside(self, store):
        return SqliteStore(store.settings)

    def die(self, store):
        """What the end of a process does: its threads are gone and its lock is free."""
        store._watch.stop()
        os.close(store._owners._lock)
        store._owners._lock = None

    def freeze(self, store):
        """What the clock does to a process that renews nothing."""
        connection = store._writer._connection
        connection.execute("UPDATE owner SET beat = ?", (LONG_AGO,))
