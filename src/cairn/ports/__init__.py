"""The seams of the house: what a store, a model, a clock and an observer promise.

A contract says what must never happen, not only the types. The store's has a suite in
`cairn.testing` that every store passes whole.
"""

from __future__ import annotations

from cairn.core.erasing import Erasure, Holdings
from cairn.core.run_table import Beside, Claim, NewRun, Pruned, RunFilter, RunInfo, SessionInfo
from cairn.ports.model import (
    Lane,
    Model,
    ModelReply,
    ModelRequest,
    OnDelta,
    Permit,
    ReplyCall,
    ToolSchema,
)
from cairn.ports.observing import Clock, Delta, Discard, Observed, Observer, Progress
from cairn.ports.store import SessionLists, Store

__all__ = [
    "Beside",
    "Claim",
    "Clock",
    "Delta",
    "Discard",
    "Erasure",
    "Holdings",
    "Lane",
    "Model",
    "ModelReply",
    "ModelRequest",
    "NewRun",
    "Observed",
    "Observer",
    "OnDelta",
    "Permit",
    "Progress",
    "Pruned",
    "ReplyCall",
    "RunFilter",
    "RunInfo",
    "SessionInfo",
    "SessionLists",
    "Store",
    "ToolSchema",
]
