"""Which tools a run can use at all: of the others no call is let through, whatever it says."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.core.gate import intent_of
from cairn.core.policy import DEFAULT_POLICY, Policy, Rule, weigh
from cairn.core.rules import Rules
from cairn.core.state import RunState

PARTS = ("agents", "principals", "roles", "tenants")


class Usable:
    """Tells it of one tool after the other, for a run as it stands.

    What a policy says may depend on the arguments, which nobody knows before there is a call:
    then the tool counts as one that can be used, and so it does where the policy is code.

    Args:
        state: The run.
        rules: Of its agent.
    """

    def __init__(self, state: RunState, rules: Rules) -> None:
        created = state.created
        run = created.policy if created is not None else None
        self._state, self._tools = state, rules.tools
        self._policy = _kindest(rules.policy) or DEFAULT_POLICY
        self._own = [_kindest(layer) for layer in (rules.agent_policy, run)]

    def __call__(self, name: str) -> bool:
        """Whether some call of the tool of this name may be let through."""
        spec = self._tools.get(name)
        if spec is None:
            return False
        if self._state.kind == "query" and spec.effect != "read":
            return False
        intent = intent_of(self._state, spec, {})
        return weigh(self._policy, intent, *self._own).decision != "deny"


def _kindest(policy: Policy | None) -> Policy | None:
    """A policy as kind as it can be to any arguments; None where that cannot be told."""
    if type(policy) is not Policy:
        return None
    rules = tuple(_open(r) if r.arguments else r for r in policy.rules if not _narrow(r))
    parts = {
        part: {
            name: kind for name, each in getattr(policy, part).items() if (kind := _kindest(each))
        }
        for part in PARTS
    }
    return replace(policy, rules=rules, **parts)


def _narrow(rule: Rule) -> bool:
    """Whether it denies some arguments only."""
    return rule.decide == "deny" and bool(rule.arguments)


def _open(rule: Rule) -> Rule:
    """A rule for some arguments, as if they were those."""
    return replace(rule, arguments={}, decide="ask", redirect=None, approval=None)
