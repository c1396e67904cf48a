"""A standing grant before it stands: what it could never answer is refused, or said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cairn.core import events as ev
from cairn.core.messages import Principal, Record, parse_object
from cairn.core.policy import Intent, Policy, Rule, Verdict, weigh
from cairn.core.rules import Rules, ToolSpec
from cairn.core.terms import narrowed, unmet
from cairn.errors import ConfigError, Refused
from cairn.governance.arguments import KnownTool, missing
from cairn.governance.policy_file import SECTIONS
from cairn.governance.schema_paths import NAMED, NUMBERS, place_at


class Holder(Record, gc=True):
    """An agent in the scope of a grant that has its tool.

    Args:
        agent: Its name.
        rules: What it works by.
        schema: JSON Schema of the tool's arguments.
    """

    agent: str
    rules: Rules
    schema: Mapping[str, Any]


def looked_at(scope: ev.GrantMade, who: str, holders: Sequence[Holder]) -> tuple[str, ...]:
    """What is to be known of a grant before it is made.

    Args:
        scope: The grant.
        who: Id of the person who would make it; the roles stand in the scope.
        holders: The agents it is for that have the tool.

    Raises:
        ConfigError: it names an argument that the tool does not have.
        Refused: who makes it may not give the approvals that it stands for.
    """
    given = parse_object(scope.arguments or "{}") or {}
    warnings = [*_arguments(scope, given, holders)]
    refusals: list[str] = []
    for holder in holders:
        intent = _intent(scope, given, holder)
        verdict = weigh(holder.rules.policy, intent, holder.rules.agent_policy)
        if verdict.decision in {"deny", "redirect"}:
            warnings.append(_denied(holder, verdict, intent))
            continue
        refused, warned = _terms(scope, who, holder, verdict, intent)
        refusals += refused
        warnings += warned
    if refusals and len(refusals) == len(holders):
        raise Refused(refusals[0])
    return tuple(dict.fromkeys([*warnings, *refusals]))


def _intent(scope: ev.GrantMade, given: Mapping[str, Any], holder: Holder) -> Intent:
    spec: ToolSpec = holder.rules.tools[scope.tool]
    return Intent(
        tool=scope.tool,
        effect=spec.effect,
        arguments=given,
        agent=holder.agent,
        principal=Principal(id=scope.principal, tenant=scope.tenant),
    )


# ---------------------------------------------------------------- arguments


def _arguments(
    scope: ev.GrantMade, given: Mapping[str, Any], holders: Sequence[Holder]
) -> Iterator[str]:
    for name, value in given.items():
        places = [place_at(holder.schema, [name]) for holder in holders]
        if not any(place.there for place in places):
            tools = [
                KnownTool(name=scope.tool, agent=h.agent, effect=scope.effect, schema=h.schema)
                for h in holders
            ]
            said = missing(name, places, tools)
            raise ConfigError("grant.arguments", said, "Name arguments that it has")
        kind = NAMED.get(type(value), "")
        fitting = NUMBERS if kind in NUMBERS else {kind}
        types = [place.types for place in places if place.there]
        if kind and all(types) and not any(fitting & each for each in types):
            known = " or ".join(sorted(set().union(*types)))
            yield f"argument {name} is {known}: no call has {value!r}"


# ---------------------------------------------------------------- the policy


def _denied(holder: Holder, verdict: Verdict, intent: Intent) -> str:
    speaking = [rule for rule in _speaking(holder, intent) if rule.decide == verdict.decision]
    hangs = [rule for rule in speaking if _is_open(rule, intent)]
    named = [rule for rule in hangs if verdict.rule.endswith(f": {rule.name}")]
    does = "denies" if verdict.decision == "deny" else "redirects"
    if named:
        may = "may deny" if verdict.decision == "deny" else "may redirect"
        why = "by arguments that the grant leaves open"
        return f"the policy {may} {intent.tool} of agent {holder.agent} ({verdict.rule}), {why}"
    what = f"the policy {does} {intent.tool} of agent {holder.agent} ({verdict.rule})"
    return f"{what}: a grant answers only where it asks"


def _terms(
    scope: ev.GrantMade, who: str, holder: Holder, verdict: Verdict, intent: Intent
) -> tuple[list[str], list[str]]:
    """What is surely missing for the approvals, and what may be."""
    sure = narrowed(holder.rules.approval, holder.rules.tools[scope.tool].approval)
    asked = narrowed(sure, verdict.terms)
    hangs = any(r.approval and _is_open(r, intent) for r in _speaking(holder, intent))
    if lacks := unmet(sure if hangs else asked, who, scope.roles, ()):
        return [f"a grant for {scope.tool} of agent {holder.agent} {lacks}"], []
    if lacks := unmet(asked, who, scope.roles, ()):
        what = f"where the policy asks for it ({verdict.rule}), {scope.tool} {lacks}"
        return [], [f"{what}: the grant does not answer there"]
    return [], []


def _speaking(holder: Holder, intent: Intent) -> Iterator[Rule]:
    """The rules of all layers that have something to say, as far as is known."""
    given: list[Any] = [holder.rules.policy, holder.rules.agent_policy]
    policies = [policy for policy in given if isinstance(policy, Policy)]
    for section in SECTIONS:
        policies += [p for policy in policies[:2] for p in getattr(policy, section).values()]
    for policy in policies:
        yield from (rule for rule in policy.rules if rule.speaks(intent))


def _is_open(rule: Rule, intent: Intent) -> bool:
    """Whether it asks for an argument that the grant does not name."""
    return any(path.partition(".")[0] not in intent.arguments for path in rule.arguments)
