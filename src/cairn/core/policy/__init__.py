"""May this call run: allow, ask, redirect or deny, and the rule that said so."""

from __future__ import annotations

from cairn.core.policy.form import (
    DEFAULTS,
    STRICTNESS,
    Decision,
    Effect,
    Intent,
    Opinion,
    TaskKind,
    Verdict,
)
from cairn.core.policy.layers import (
    DEFAULT_POLICY,
    FLOOR,
    Policy,
    opinions,
    strictest,
    weigh,
)
from cairn.core.policy.predicates import (
    AllOf,
    Amount,
    Command,
    Equals,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Predicate,
    Range,
)
from cairn.core.policy.rule import From, Redirect, Rule, Spend, Value

__all__ = [
    "DEFAULTS",
    "DEFAULT_POLICY",
    "FLOOR",
    "STRICTNESS",
    "AllOf",
    "Amount",
    "Command",
    "Decision",
    "Effect",
    "Equals",
    "From",
    "Host",
    "IfGiven",
    "Inside",
    "Intent",
    "Items",
    "Matches",
    "Not",
    "OneOf",
    "Opinion",
    "Policy",
    "Predicate",
    "Range",
    "Redirect",
    "Rule",
    "Spend",
    "TaskKind",
    "Value",
    "Verdict",
    "opinions",
    "strictest",
    "weigh",
]
