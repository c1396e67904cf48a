"""The words of a policy: what is judged, and what a judgement says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cairn.core.messages import Principal, Record
from cairn.core.terms import ApprovalTerms

if TYPE_CHECKING:
    from cairn.core.policy.rule import Redirect

Effect = Literal["read", "write", "dangerous"]
TaskKind = Literal["query", "generate", "operate"]
Decision = Literal["allow", "ask", "redirect", "deny"]
STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "redirect": 2, "deny": 3}
"""A redirect stands above ask: what was asked for does not run, whoever says yes."""
DEFAULTS: dict[Effect, Decision] = {"read": "allow", "write": "ask", "dangerous": "ask"}


class Intent(Record, gc=True):
    """What is about to be done, for whom, and how far the run has come: all a policy goes by.

    Args:
        tool: Name of the tool that would run.
        effect: Its declared effect.
        arguments: The validated arguments.
        agent: Name of the agent.
        principal: For whom the run works.
        kind: The run's kind of task.
        taint: Labels of the untrusted content that the run has read.
        micro_usd: Money the run has spent, in millionths of a US dollar.
        calls: Tool calls it has started.
        tokens: Tokens it has used.
    """

    tool: str
    effect: Effect = "dangerous"
    arguments: Mapping[str, Any] = {}
    agent: str = ""
    principal: Principal = Principal()
    kind: TaskKind = "operate"
    taint: frozenset[str] = frozenset()
    micro_usd: int = 0
    calls: int = 0
    tokens: int = 0


class Verdict(Record, gc=True):
    """A decision and the rule that made it.

    Args:
        decision: allow, ask, redirect or deny.
        rule: Name of the rule, with its layer in front.
        reason: Why, in words for people and for the model; empty for none.
        redirect: What is to be done in the call's place, when it is redirected.
        terms: Who may say yes, when it asks.
    """

    decision: Decision
    rule: str
    reason: str = ""
    redirect: Redirect | None = None
    terms: ApprovalTerms | None = None


class Opinion(Record, gc=True):
    """What one layer says; no verdict when it is silent."""

    layer: str
    verdict: Verdict | None = None
