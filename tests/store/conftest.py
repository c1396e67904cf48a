"""The shipped contract's assertions explain themselves, as those of test files do."""

import pytest

for part in ("journals", "claims", "commands", "lists", "retention", "story"):
    pytest.register_assert_rewrite(f"cairn.testing.store_{part}")
