"""Memory: facts that outlive a run, each with its scope, its source, its trust and its end.

`Memory` is the port, `MemoryRules` is what a deployment decides about it, `memory_block` feeds
what is known into the context. The tools are in `cairn.toolkit`: `MEMORY_TOOLS`.
"""

from __future__ import annotations

from cairn.memory.block import memory_block
from cairn.memory.facts import (
    Erased,
    Fact,
    FactFilter,
    Gone,
    Hit,
    Indexed,
    Kept,
    NewFact,
    Recall,
    Scope,
)
from cairn.memory.port import Embedder, Indexing, Memory
from cairn.memory.rules import MemoryRules

__all__ = [
    "Embedder",
    "Erased",
    "Fact",
    "FactFilter",
    "Gone",
    "Hit",
    "Indexed",
    "Indexing",
    "Kept",
    "Memory",
    "MemoryRules",
    "NewFact",
    "Recall",
    "Scope",
    "memory_block",
]
