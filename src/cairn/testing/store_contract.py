"""What every store promises, as tests: a back end subclasses `StoreContract` and runs it whole.

class TestMyStore(StoreContract):
    def open(self): ...       # an empty store
    def beside(self, store): ...  # the same journals, as another process opens them
    def die(self, store): ...     # the process of this object is gone
    def freeze(self, store): ...  # it lives, but was not heard of for too long
"""

from __future__ import annotations

from cairn.testing.store_budgets import BudgetPromises
from cairn.testing.store_claims import ClaimPromises
from cairn.testing.store_commands import CommandPromises
from cairn.testing.store_erasing import ErasingPromises
from cairn.testing.store_journals import JournalPromises
from cairn.testing.store_lists import ListPromises
from cairn.testing.store_retention import RetentionPromises
from cairn.testing.store_sessions import SessionPromises


class StoreContract(
    JournalPromises,
    ClaimPromises,
    CommandPromises,
    ListPromises,
    RetentionPromises,
    SessionPromises,
    BudgetPromises,
    ErasingPromises,
):
    """All promises of a store."""
