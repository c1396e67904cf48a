"""The register of broken variants: how one is put in the place of the real code, and caught."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from cairn.testing.simulation import Outcome, Simulation

SEEDS = 600
Variant = Callable[[ExitStack], None]
VARIANTS: dict[str, Variant] = {}
THEMES: dict[str, str] = {}
"""What the worlds are about that a variant shows in, where not every world will do."""


def variant(make: Variant) -> Variant:
    """Register one; its docstring is what the code no longer does."""
    VARIANTS[make.__name__] = make
    return make


def of_memory(make: Variant) -> Variant:
    """As `variant`, for what shows only in worlds of memory."""
    THEMES[make.__name__] = "memory"
    return variant(make)


def put(stack: ExitStack, place: object, name: str, value: object) -> None:
    stack.enter_context(patch.object(place, name, value))


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The code without that promise."""
    with ExitStack() as stack:
        VARIANTS[name](stack)
        yield


def caught(name: str, seeds: int = SEEDS, first: int = 0) -> Outcome | None:
    """The first seed's outcome in which the variant shows, None if it never does."""
    with broken(name):
        for seed in range(first, first + seeds):
            outcome = Simulation(seed=seed, theme=THEMES.get(name, "")).run()
            if not outcome.ok:
                return outcome
            if seed % 20 == 0:
                gc.collect()
    return None
