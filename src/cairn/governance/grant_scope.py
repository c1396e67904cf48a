"""A standing grant before it stands: what it could never answer is refused, or said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.grants import Asked, Read, in_json
from cairn.core.messages import Principal, Record, parse_object
from cairn.core.policy import Intent, Policy, Rule, Verdict, weigh
from cairn.core.policy.rule import fits_glob
from cairn.core.rules import Problem, Rules, ToolSpec
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


def looked_at(
    scope: ev.GrantMade, who: str, holders: Sequence[Holder]
) -> tuple[ev.GrantMade, tuple[str, ...]]:
    """A grant as it is kept, and what is to be known of it before it is made.

    Its arguments are kept as the tool validates them, for so are those of calls when the two are
    compared.

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
    scope, unfit = _fitted(scope, given, holders)
    if not warnings:
        warnings += unfit
    given = parse_object(scope.arguments or "{}") or {}
    refusals: list[str] = []
    for holder in holders:
        intent = _intent(scope, given, holder)
        verdict = weigh(holder.rules.policy, intent, holder.rules.agent_policy)
        if verdict.decision in {"deny", "redirect"}:
            warnings.append(_denied(holder, verdict, intent))
            continue
        if verdict.decision == "allow" and not _may_ask(holder, intent):
            warnings.append(
                f"the policy allows {intent.tool} of agent {holder.agent} unasked "
                f"({verdict.rule}): "
                "a grant answers only where it asks, so this one can answer nothing there"
            )
            continue
        refused, warned = _terms(scope, who, holder, verdict, intent)
        refusals += refused
        warnings += warned
    if refusals and len(refusals) == len(holders):
        raise Refused(refusals[0])
    return scope, tuple(dict.fromkeys([*warnings, *refusals]))


def reader(holders: Sequence[Holder]) -> Read:
    """Validates the arguments of recorded calls by the tool that their agent has now."""
    by_agent = {holder.agent: holder for holder in holders}

    def read(asked: Asked) -> Mapping[str, Any] | None:
        holder = by_agent.get(asked.agent, holders[0])
        found = holder.rules.tools[asked.tool].check(asked.arguments)
        return None if isinstance(found, Problem) else found

    return read


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
            said, meant = missing(name, places, tools)
            said = f"{said}; {meant[0].lower()}{meant[1:]}"
            raise ConfigError("grant.arguments", said, "Name arguments that it has")
        kind = NAMED.get(type(value), "")
        fitting = NUMBERS if kind in NUMBERS else {kind}
        types = [place.types for place in places if place.there]
        if kind and all(types) and not any(fitting & each for each in types):
            known = " or ".join(sorted(set().union(*types)))
            yield f"argument {name} is {known}: no call has {value!r}"


def _fitted(
    scope: ev.GrantMade, given: Mapping[str, Any], holders: Sequence[Holder]
) -> tuple[ev.GrantMade, list[str]]:
    """The grant with its arguments as they are validated, and what no call can be like."""
    if not holders or not (scope.arguments or scope.exact):
        return scope, []
    found = [_read(scope, given, holder.rules.tools[scope.tool]) for holder in holders]
    texts = [_text(values) for values, _ in found]
    said = [problem for _, problem in found if problem]
    said += [
        f"agent {holder.agent} reads these arguments otherwise than {holders[0].agent}: name one"
        for holder, text in zip(holders, texts, strict=True)
        if text != texts[0]
    ]
    return msgspec.structs.replace(scope, arguments=texts[0]), said


def _read(
    scope: ev.GrantMade, given: Mapping[str, Any], spec: ToolSpec
) -> tuple[dict[str, Any], str]:
    """Arguments as a tool validates them, one by one, and why no call has them."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        text = _text({name: value})
        values = spec.check_some(text) if spec.check_some is not None else {name: value}
        if isinstance(values, Problem):
            told = values.message.partition("\n- ")[2].partition("\n")[0] or values.message
            return dict(given), f"no call has these arguments: {told}"
        found |= in_json(text, values)
    if not scope.exact:
        return found, ""
    whole = spec.check(_text(given))
    if isinstance(whole, Problem):
        told = whole.message.partition("\n- ")[2].partition("\n")[0] or whole.message
        return found, f"no call has these arguments and no other: {told}"
    return in_json(_text(given), whole), ""


def _text(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode(values, order="sorted").decode()


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
    for policy in _layers(holder):
        yield from (rule for rule in policy.rules if rule.speaks(intent))


def _layers(holder: Holder) -> list[Policy]:
    given: list[Any] = [holder.rules.policy, holder.rules.agent_policy]
    policies = [policy for policy in given if isinstance(policy, Policy)]
    for section in SECTIONS:
        policies += [p for policy in policies[:2] for p in getattr(policy, section).values()]
    return policies


def _may_ask(holder: Holder, intent: Intent) -> bool:
    """Whether some layer may ask about the tool: in another run, or with other arguments."""
    given: list[Any] = [holder.rules.policy, holder.rules.agent_policy]
    if any(policy is not None and not isinstance(policy, Policy) for policy in given):
        return True  # code decides, and may decide anything
    layers = _layers(holder)
    return any(
        (policy is not holder.rules.policy and _table_asks(policy, intent))
        or any(_asks_about(rule, intent) for rule in policy.rules)
        for policy in layers
    )


def _table_asks(policy: Policy, intent: Intent) -> bool:
    return "ask" in {policy.tools.get(intent.tool), policy.effects.get(intent.effect)}


def _asks_about(rule: Rule, intent: Intent) -> bool:
    named = not rule.tools or any(fits_glob(intent.tool, glob) for glob in rule.tools)
    return rule.decide == "ask" and named and (not rule.effects or intent.effect in rule.effects)


def _is_open(rule: Rule, intent: Intent) -> bool:
    """Whether it asks for an argument that the grant does not name."""
    return any(path.partition(".")[0] not in intent.arguments for path in rule.arguments)
