"""Hypothesis profiles: CAIRN_HYPOTHESIS_PROFILE=dev (50 examples, the default) or ci (300)."""

import functools
import gc
import os
from collections.abc import Generator

import pytest
import typer.testing
from hypothesis import is_hypothesis_test, settings

# The promises of stores and models are tests as well: what they assert is shown when it fails.
for part in ("journals", "claims", "commands", "lists", "retention", "budgets", "story"):
    pytest.register_assert_rewrite(f"cairn.testing.store_{part}")
for part in ("contract", "faults", "promises", "replies"):
    pytest.register_assert_rewrite(f"cairn.testing.model_{part}")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=300, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("CAIRN_HYPOTHESIS_PROFILE", "dev"))

# A process builds the tree of its commands once. So do the tests: it costs more than most commands.
typer.testing._get_command = functools.lru_cache(8)(typer.testing._get_command)

DRAWN_S = 300
"""A test that draws hundreds of examples may take longer than one that tries a single case."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        machine = item.name == "runTest"  # a state machine draws as well
        if machine or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.timeout(DRAWN_S))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while importing, and never again in what was imported."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
