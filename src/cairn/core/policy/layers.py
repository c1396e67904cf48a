"""The layers of a policy, and the one verdict that comes of them (law 6).

The deployment says allow, ask, redirect or deny; where it is silent the effect's default holds.
All other layers (what the deployment says of an agent, principal, role or tenant; the agent's own
policy; the run's) only narrow: what they allow changes nothing. The strictest verdict wins, and
above all stands the floor: a dangerous call is never better than `ask`.

Within one layer a deny that speaks always wins, wherever it stands; else the first rule that
speaks decides, then the table of tools, then that of effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cairn.core.declaration import Declaration
from cairn.core.messages import Principal, Record
from cairn.core.policy.form import (
    DEFAULTS,
    STRICTNESS,
    Decision,
    Effect,
    Intent,
    Opinion,
    Verdict,
)
from cairn.core.policy.rule import Rule
from cairn.core.policy.shape import several
from cairn.core.terms import ApprovalTerms, narrowed
from cairn.errors import ConfigError, safe_repr

TABLED = ("allow", "ask", "deny")
PARTS = ("agents", "principals", "roles", "tenants")
FLOOR = Verdict(decision="ask", rule="floor: dangerous")


class Policy(Record, gc=True, metaclass=Declaration):
    """What may run unasked, by tool, by effect and by rules.

    As `Runtime(policy=...)` it is the deployment's. As `Agent(policy=...)` or `run(policy=...)`
    it only narrows: what it allows changes nothing.

    Args:
        tools: Decision by tool name: allow, ask or deny; wins over `effects`.
        effects: Decision by effect: read, write or dangerous.
        name: How its rules are called in the journal.
        rules: Looked at in order, before `tools` and `effects`. A deny always wins.
        agents: What narrows the work of an agent, by its name.
        principals: What narrows the work for a principal, by its id.
        roles: What narrows the work for whoever has a role.
        tenants: What narrows the work for a tenant.
        labels: Further labels of taint that its rules may name, beside those of the agents' tools
            and servers and of memory: those that runs of other processes bring.

    Raises:
        ConfigError: a key or decision is not one of the allowed words, two rules share a name,
            or a narrowing part has such parts itself.
    """

    tools: Mapping[str, Decision] = {}
    effects: Mapping[Effect, Decision] = {}
    name: str = "deployment"
    rules: tuple[Rule, ...] = ()
    agents: Mapping[str, Policy] = {}
    principals: Mapping[str, Policy] = {}
    roles: Mapping[str, Policy] = {}
    tenants: Mapping[str, Policy] = {}
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_shape()
        for field, table in (("tools", self.tools), ("effects", self.effects)):
            for key, decision in table.items():
                if decision not in TABLED:
                    raise ConfigError(
                        f"policy.{field}.{key}",
                        f"{safe_repr(decision)} is no decision",
                        "Write allow, ask or deny; a redirect is a rule",
                    )
        for effect in self.effects:
            if effect not in DEFAULTS:
                raise ConfigError(
                    f"policy.effects.{effect}",
                    "there is no such effect",
                    "Write read, write or dangerous",
                )
        given: Any = self.rules
        if type(given) is not tuple or not all(isinstance(rule, Rule) for rule in given):
            raise ConfigError(
                "policy.rules", f"{safe_repr(given, 80)} are none", "Give a tuple of Rule"
            )
        names = [rule.name for rule in self.rules]
        if doubled := [name for name in names if names.count(name) > 1]:
            said = f"two rules are named {doubled[0]!r}"
            raise ConfigError("policy.rules", said, "Give each its own name")
        for part in PARTS:
            narrowing: Mapping[str, Any] = getattr(self, part)
            for key, inner in narrowing.items():
                if not isinstance(inner, Policy) or inner.parts:
                    fix = "Give a Policy of tools, effects and rules"
                    raise ConfigError(f"policy.{part}.{key}", "it cannot narrow", fix)

    def _check_shape(self) -> None:
        for field in ("tools", "effects", *PARTS):
            table: Any = getattr(self, field)
            if not isinstance(table, Mapping):
                fix = 'Write {"refund": "ask"}' if field == "tools" else "Write {name: ...}"
                raise ConfigError(f"policy.{field}", f"{safe_repr(table, 80)} is no mapping", fix)
        several("policy.labels", self.labels)

    @property
    def parts(self) -> bool:
        """Whether it says something of single agents, principals, roles or tenants."""
        return bool(self.agents or self.principals or self.roles or self.tenants)

    @property
    def plain(self) -> bool:
        """Whether it decides by tool and effect alone."""
        return not self.rules and not self.parts

    def names(self) -> list[tuple[str, str, str]]:
        """The tools and agents it names one by one: kind, name, and where it stands."""
        found = [("tool", name, f"tools.{name}") for name in self.tools]
        for rule in self.rules:
            place = f"rules.{rule.name}"
            found += [("tool", n, f"{place}.tools.{n}") for n in rule.tools if "*" not in n]
            found += [("agent", name, f"{place}.agents.{name}") for name in rule.agents]
            if rule.redirect is not None:
                found.append(("tool", rule.redirect.tool, f"{place}.redirect.tool"))
        found += [("agent", name, f"agents.{name}") for name in self.agents]
        for part in PARTS:
            narrowing: Mapping[str, Policy] = getattr(self, part)
            for key, inner in narrowing.items():
                found += [(k, n, f"{part}.{key}.{place}") for k, n, place in inner.names()]
        return found

    def judge(self, tool: str, effect: Effect, arguments: Mapping[str, Any]) -> Verdict:
        """The verdict on one call by what it does alone; a policy of your own may override this.

        To see all of an `Intent` (for whom, taint, spend), override `spoken` in its place.

        Args:
            tool: Name of the tool that would run.
            effect: Its declared effect.
            arguments: The validated arguments.
        """
        intent = Intent(tool=tool, effect=effect, arguments=arguments)
        found = self.spoken(intent) or default_for(effect)
        return FLOOR if effect == "dangerous" and found.decision == "allow" else found

    def spoken(self, intent: Intent) -> Verdict | None:
        """What this layer alone says; None when it is silent."""
        found: Verdict | None = None
        for rule in self.rules:
            if (found is None or rule.decide == "deny") and rule.speaks(intent):
                found = Verdict(
                    decision=rule.decide,
                    rule=f"{self.name}: {rule.name}",
                    reason=rule.reason,
                    redirect=rule.redirect,
                    terms=rule.approval,
                )
                if rule.decide == "deny":
                    return found
        listed = self.tools.get(intent.tool)
        if listed is not None and (found is None or listed == "deny"):
            return Verdict(decision=listed, rule=f"{self.name}: tool {intent.tool}")
        if found is None and intent.effect in self.effects:
            decision = self.effects[intent.effect]
            return Verdict(decision=decision, rule=f"{self.name}: effect {intent.effect}")
        return found


DEFAULT_POLICY = Policy()


_BY_EFFECT = {
    effect: Verdict(decision=decision, rule=f"default: {effect}")
    for effect, decision in DEFAULTS.items()
}


def default_for(effect: Effect) -> Verdict:
    """What holds for an effect where the deployment is silent."""
    return _BY_EFFECT[effect]


def opinions(
    policy: Policy, intent: Intent, agent: Policy | None = None, run: Policy | None = None
) -> tuple[Opinion, ...]:
    """What each layer says of a call, the deployment first and the floor last.

    Args:
        policy: The deployment's.
        intent: What would be done.
        agent: The agent's own policy.
        run: The policy that the run was started with.
    """
    deployed = _said(policy, intent) or default_for(intent.effect)
    found = [Opinion(layer="deployment", verdict=deployed)]
    if getattr(policy, "parts", False):
        found += _narrowing(policy, intent)
    for layer, own in ((f"agent {intent.agent}, its own", agent), ("run", run)):
        if own is not None:
            found.append(Opinion(layer=layer, verdict=_named(own, layer, intent)))
    if intent.kind == "query":
        query = Verdict(decision="deny", rule="task kind: query")
        verdict = query if intent.effect != "read" else None
        found.append(Opinion(layer="task kind", verdict=verdict))
    floor = FLOOR if intent.effect == "dangerous" else None
    return (*found, Opinion(layer="floor", verdict=floor))


def weigh(
    policy: Policy, intent: Intent, agent: Policy | None = None, run: Policy | None = None
) -> Verdict:
    """The verdict on a call: the strictest of all layers; the arguments are those of `opinions`."""
    return strictest(opinions(policy, intent, agent, run))


def strictest(found: tuple[Opinion, ...]) -> Verdict:
    """The strictest verdict; of several, that of the upper layer.

    Whoever says yes must fulfil the terms of all layers that ask.
    """
    verdicts = [each.verdict for each in found if each.verdict is not None]
    decisive = max(verdicts, key=lambda verdict: STRICTNESS[verdict.decision])
    if decisive.decision != "ask":
        return decisive
    terms: ApprovalTerms | None = None
    for verdict in verdicts:
        if verdict.decision == "ask":
            terms = narrowed(terms, verdict.terms)
    return decisive if terms == decisive.terms else replace(decisive, terms=terms)


def _said(policy: Policy, intent: Intent) -> Verdict | None:
    """What a layer says, by its rules or by code of the deployment's own."""
    kind: Any = type(policy)
    if kind is Policy or kind.judge is Policy.judge:
        return policy.spoken(intent)
    return policy.judge(intent.tool, intent.effect, intent.arguments)


def _narrowing(policy: Policy, intent: Intent) -> list[Opinion]:
    who: Principal = intent.principal
    wanted = [
        ("agent", policy.agents, (intent.agent,)),
        ("principal", policy.principals, (who.id,)),
        ("role", policy.roles, who.roles),
        ("tenant", policy.tenants, (who.tenant,)),
    ]
    return [
        Opinion(layer=f"{kind} {name}", verdict=_named(parts[name], f"{kind} {name}", intent))
        for kind, parts, names in wanted
        for name in names
        if name in parts
    ]


def _named(layer: Policy, label: str, intent: Intent) -> Verdict | None:
    """What a narrowing layer says, under the layer's name."""
    found = _said(layer, intent)
    if found is None or found.decision == "allow":
        return None
    rule = found.rule.removeprefix(f"{layer.name}: ")
    return Verdict(
        decision=found.decision,
        rule=f"{label}: {rule}",
        reason=found.reason,
        redirect=found.redirect,
        terms=found.terms,
    )
