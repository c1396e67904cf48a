"""Cairn: an agent runtime. Every step leaves a stone, and nobody has to start over.

The public names are loaded on first use, so that `import cairn` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cairn.version import __version__

if TYPE_CHECKING:
    from cairn.agent import Agent, Answer
    from cairn.block import Briefing, ContextBlock
    from cairn.core.budgets import Budget
    from cairn.core.events import Entry
    from cairn.core.ladder import Ladder, Rung
    from cairn.core.limits import Limits, Price, Tier, Usage
    from cairn.core.messages import Blob, Principal, Source, Text, Uri
    from cairn.core.policy import Policy, Rule
    from cairn.core.rules import Need
    from cairn.core.terms import ApprovalTerms
    from cairn.engine.result import Run
    from cairn.errors import (
        BudgetUnknown,
        CairnError,
        ConfigError,
        ErrorClass,
        IllegalTransition,
        ModelError,
        NoRoute,
        NotDone,
        Refused,
        RunConflict,
        RunErased,
        SessionBusy,
        StoreBusy,
        StoreError,
        SyncInsideLoop,
        ToolError,
        UnknownAgent,
        UnknownRun,
        Unsure,
        VersionMismatch,
    )
    from cairn.governance.secrets import Secrets
    from cairn.hooks import Deny, HookCall, HookRequest, Narrow, Rewrite, before_model, before_tool
    from cairn.intake import Intake
    from cairn.mcp.server import McpServer
    from cairn.memory import Embedder, Fact, Memory, MemoryRules, memory_block
    from cairn.models.cassette import Cassette
    from cairn.models.remote import RemoteModel
    from cairn.models.scripted import Scripted, call
    from cairn.models.traffic import TrafficLimits
    from cairn.ports import Delta, Discard, Progress
    from cairn.runtime import Runtime
    from cairn.runtime.routing import Route
    from cairn.skills import Skills
    from cairn.tools.context import Context
    from cairn.tools.tool import Tool, tool
    from cairn.tools.verdicts import NOT_HAPPENED, UNKNOWN, happened

_HOMES = {
    "cairn.agent": ("Agent", "Answer"),
    "cairn.block": ("Briefing", "ContextBlock"),
    "cairn.core.rules": ("Need",),
    "cairn.intake": ("Intake",),
    "cairn.core.budgets": ("Budget",),
    "cairn.core.events": ("Entry",),
    "cairn.core.ladder": ("Ladder", "Rung"),
    "cairn.core.limits": ("Limits", "Price", "Tier", "Usage"),
    "cairn.core.messages": ("Blob", "Principal", "Source", "Text", "Uri"),
    "cairn.core.policy": ("Policy", "Rule"),
    "cairn.core.terms": ("ApprovalTerms",),
    "cairn.engine.result": ("Run",),
    "cairn.errors": (
        "BudgetUnknown",
        "CairnError",
        "ConfigError",
        "ErrorClass",
        "IllegalTransition",
        "ModelError",
        "NoRoute",
        "NotDone",
        "Refused",
        "RunConflict",
        "RunErased",
        "SessionBusy",
        "StoreBusy",
        "StoreError",
        "SyncInsideLoop",
        "ToolError",
        "UnknownAgent",
        "UnknownRun",
        "Unsure",
        "VersionMismatch",
    ),
    "cairn.governance.secrets": ("Secrets",),
    "cairn.hooks": (
        "Deny",
        "HookCall",
        "HookRequest",
        "Narrow",
        "Rewrite",
        "before_model",
        "before_tool",
    ),
    "cairn.mcp.server": ("McpServer",),
    "cairn.memory": ("Embedder", "Fact", "Memory", "MemoryRules", "memory_block"),
    "cairn.models.cassette": ("Cassette",),
    "cairn.models.remote": ("RemoteModel",),
    "cairn.models.scripted": ("Scripted", "call"),
    "cairn.models.traffic": ("TrafficLimits",),
    "cairn.ports": ("Delta", "Discard", "Progress"),
    "cairn.runtime": ("Runtime",),
    "cairn.runtime.routing": ("Route",),
    "cairn.skills": ("Skills",),
    "cairn.tools.context": ("Context",),
    "cairn.tools.tool": ("Tool", "tool"),
    "cairn.tools.verdicts": ("NOT_HAPPENED", "UNKNOWN", "happened"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NOT_HAPPENED",
    "UNKNOWN",
    "Agent",
    "Answer",
    "ApprovalTerms",
    "Blob",
    "Briefing",
    "Budget",
    "BudgetUnknown",
    "CairnError",
    "Cassette",
    "ConfigError",
    "Context",
    "ContextBlock",
    "Delta",
    "Deny",
    "Discard",
    "Embedder",
    "Entry",
    "ErrorClass",
    "Fact",
    "HookCall",
    "HookRequest",
    "IllegalTransition",
    "Intake",
    "Ladder",
    "Limits",
    "McpServer",
    "Memory",
    "MemoryRules",
    "ModelError",
    "Narrow",
    "Need",
    "NoRoute",
    "NotDone",
    "Policy",
    "Price",
    "Principal",
    "Progress",
    "Refused",
    "RemoteModel",
    "Rewrite",
    "Route",
    "Rule",
    "Run",
    "RunConflict",
    "RunErased",
    "Rung",
    "Runtime",
    "Scripted",
    "Secrets",
    "SessionBusy",
    "Skills",
    "Source",
    "StoreBusy",
    "StoreError",
    "SyncInsideLoop",
    "Text",
    "Tier",
    "Tool",
    "ToolError",
    "TrafficLimits",
    "UnknownAgent",
    "UnknownRun",
    "Unsure",
    "Uri",
    "Usage",
    "VersionMismatch",
    "__version__",
    "before_model",
    "before_tool",
    "call",
    "happened",
    "memory_block",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _NAMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cairn' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
