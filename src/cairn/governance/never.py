"""Rules that can never matter: hidden by another, against themselves, or against the floor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cairn.core.messages import Record
from cairn.core.names import listed, nearest
from cairn.core.policy import (
    AllOf,
    Amount,
    Command,
    Effect,
    Equals,
    Host,
    IfGiven,
    Inside,
    Items,
    Not,
    OneOf,
    Policy,
    Predicate,
    Range,
    Rule,
)
from cairn.core.policy.hosts import fits_host
from cairn.core.policy.paths import is_inside
from cairn.core.policy.predicates import test
from cairn.core.policy.rule import ANY, NONE, fits_glob
from cairn.governance.policy_file import SECTIONS, PolicyFile


class Finding(Record):
    """A part of a policy that can never matter, and why.

    Args:
        line: In the file, 0 when there is none.
        place: As `rules.small refunds` or `agents.shop.tools.pay`.
        problem: Why it never matters.
        level: `never`; `error` or `warning` for what is found out about arguments.
    """

    line: int
    place: str
    problem: str
    level: str = "never"

    def said(self, path: str) -> str:
        """As `file:line: place: problem`."""
        at = f":{self.line}" if self.line else ""
        warning = "warning: " if self.level == "warning" else ""
        return f"{path}{at}: {warning}{self.place}: {self.problem}"


Said = tuple[str, str]
"""Where, and why."""


def findings(
    file: PolicyFile,
    tools: Mapping[str, Effect] | None = None,
    agents: Collection[str] | None = None,
    beyond: Collection[str] = (),
) -> list[Finding]:
    """All that can never matter in a policy, in the order of its lines.

    Args:
        file: The policy.
        tools: Effect of every tool there is, by name; None when that is not known.
        agents: Names of the agents there are; None when that is not known.
        beyond: How names of tools begin that may be there all the same.
    """
    found = [*_layer(file.policy, "", tools, beyond, narrows=False)]
    for section in SECTIONS:
        parts: Mapping[str, Policy] = getattr(file.policy, section)
        for name, policy in parts.items():
            found += _layer(policy, f"{section}.{name}.", tools, beyond, narrows=True)
    found += _unknown(file.policy, tools, agents, beyond)
    return _sorted(file, found)


def unknown_names(
    file: PolicyFile,
    tools: Mapping[str, Effect] | None,
    agents: Collection[str] | None,
    beyond: Collection[str] = (),
) -> list[Finding]:
    """The tools and agents alone that a policy names and that are not there; as `findings`."""
    return _sorted(file, _unknown(file.policy, tools, agents, beyond))


def may_be(name: str, beyond: Collection[str]) -> bool:
    """Whether a name, or one that fits it, may begin like one of these."""
    head, star, _ = name.partition("*")
    return any(head.startswith(each) or (star and each.startswith(head)) for each in beyond)


def _sorted(file: PolicyFile, found: Iterable[Said]) -> list[Finding]:
    lined = [Finding(line=file.line(place), place=place, problem=said) for place, said in found]
    return sorted(lined, key=lambda each: (each.line, each.place))


def _layer(
    policy: Policy,
    place: str,
    tools: Mapping[str, Effect] | None,
    beyond: Collection[str],
    *,
    narrows: bool,
) -> Iterator[Said]:
    for n, rule in enumerate(policy.rules):
        whole = not any(may_be(glob, beyond) for glob in rule.tools)
        said = _alone(rule, tools if whole else None, narrows=narrows) or _hidden(policy, n)
        if said:
            yield f"{place}rules.{rule.name}", said
    for tool, decision in policy.tools.items():
        where = f"{place}tools.{tool}"
        if narrows and decision == "allow":
            yield where, "what a narrowing layer allows changes nothing"
        elif decision == "allow" and (tools or {}).get(tool) == "dangerous":
            yield where, "the tool is dangerous, and so never better than ask (the floor)"
        elif by := next((r for r in policy.rules if _covers_tool(r, tool, decision)), None):
            yield where, f"rule {by.name!r} always decides before it"
    for effect, decision in policy.effects.items():
        where = f"{place}effects.{effect}"
        if narrows and decision == "allow":
            yield where, "what a narrowing layer allows changes nothing"
        elif decision == "allow" and effect == "dangerous":
            yield where, "a dangerous call is never better than ask (the floor)"


def _covers_tool(rule: Rule, tool: str, decision: str) -> bool:
    if decision == "deny" and rule.decide != "deny":
        return False
    return covers(rule, Rule(name="table", decide="deny", tools=(tool,)))


def _unknown(
    policy: Policy,
    tools: Mapping[str, Effect] | None,
    agents: Collection[str] | None,
    beyond: Collection[str],
) -> Iterator[Said]:
    known = {"tool": None if tools is None else [*tools], "agent": agents}
    for kind, name, place in policy.names():
        there = known[kind]
        if kind == "tool" and may_be(name, beyond):
            continue
        if there is not None and name not in there:
            close = nearest(name, there)
            meant = f"did you mean {close[0]!r}?" if close else f"there are {listed(sorted(there))}"
            yield place, f"there is no {kind} {name!r}; {meant}"


# ---------------------------------------------------------------- one rule


def _alone(rule: Rule, tools: Mapping[str, Effect] | None, *, narrows: bool) -> str:
    """Why a rule can never matter, whatever stands beside it; empty when it can."""
    if narrows and rule.decide == "allow":
        return "what a narrowing layer allows changes nothing"
    if rule.decide == "allow" and rule.effects == ("dangerous",):
        return "a dangerous call is never better than ask (the floor)"
    only_query = rule.decide != "deny" and rule.kinds == ("query",)
    if only_query and rule.effects and "read" not in rule.effects:
        return "in a query only reads may run"
    if tools is not None and rule.tools:
        named = {t: e for t, e in tools.items() if any(fits_glob(t, g) for g in rule.tools)}
        if not named and any("*" in glob for glob in rule.tools):
            return f"no tool is named like {', '.join(rule.tools)}"
        if named and rule.effects and not set(named.values()) & set(rule.effects):
            return f"none of its tools is {' or '.join(rule.effects)}"
        if named and rule.decide == "allow" and set(named.values()) == {"dangerous"}:
            return "its tools are dangerous, and so never better than ask (the floor)"
    for path, predicate in rule.arguments.items():
        if said := contradiction(predicate):
            return f"argument {path}: {said}"
    return ""


def contradiction(predicate: Predicate) -> str:
    """Why no value can ever be so; empty when one can."""
    parts = [*_flat(predicate)]
    for part in parts:
        if isinstance(part, Not) and any(part.predicate == other for other in parts):
            return "it must be so and must not be so"
    ranges = [p for p in parts if isinstance(p, Range)]
    low = max((r.min for r in ranges if r.min is not None), default=None)
    high = min((r.max for r in ranges if r.max is not None), default=None)
    if _empty(low, high):
        return f"nothing is at least {low} and at most {high}"
    for part in parts:
        if isinstance(part, Equals | OneOf):
            values = part.values if isinstance(part, OneOf) else (part.value,)
            fits = [
                v for v in values if all(test(p, v, {}, every=True) is not False for p in parts)
            ]
            if not fits:
                return f"no value it names is all it must be ({', '.join(map(repr, values))})"
    return ""


def _empty(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _flat(predicate: Predicate) -> Iterator[Predicate]:
    match predicate:
        case AllOf():
            for each in predicate.predicates:
                yield from _flat(each)
        case Items() | IfGiven():
            yield from _flat(predicate.predicate)
        case _:
            yield predicate


# ---------------------------------------------------------------- one rule behind another


def _hidden(policy: Policy, n: int) -> str:
    """By what a rule is always hidden; empty when it is not."""
    rule = policy.rules[n]
    for m, other in enumerate(policy.rules):
        first = m < n if rule.decide == "deny" or other.decide != "deny" else m != n
        if rule.decide == "deny" and other.decide != "deny":
            continue  # a deny always wins
        if first and covers(other, rule):
            how = "denies" if other.decide == "deny" else "decides"
            return f"rule {other.name!r} always {how} where it would speak"
    if rule.decide != "deny" and rule.tools:
        denied = [tool for tool, decision in policy.tools.items() if decision == "deny"]
        if all(tool in denied for tool in rule.tools):
            return f"tools.{rule.tools[0]} is deny, and a deny always wins"
    return ""


def covers(one: Rule, other: Rule) -> bool:
    """Whether `one` surely speaks wherever `other` does. When that is not sure, it does not."""
    for field in ("effects", "agents", "principals", "roles", "tenants", "kinds"):
        mine, theirs = getattr(one, field), getattr(other, field)
        if mine and not (theirs and set(theirs) <= set(mine)):
            return False
    if one.tools and not (
        other.tools and all(any(_glob_covers(g, t) for g in one.tools) for t in other.tools)
    ):
        return False
    if not (_taint_covers(one.taint, other.taint) and _spend_covers(one, other)):
        return False
    if one.decide == "allow" and other.decide != "allow" and one.arguments:
        return False  # what cannot be told lets the other speak, and not the one
    alike = (one.decide == "allow") is (other.decide == "allow")
    return all(
        path in other.arguments
        and (alike or _is_simple(predicate))
        and _follows(other.arguments[path], predicate, allows=other.decide == "allow")
        for path, predicate in one.arguments.items()
    )


def _is_simple(predicate: Predicate) -> bool:
    """Whether it says the same of an argument in a rule that allows and in any other."""
    match predicate:
        case Not():
            return _is_simple(predicate.predicate)
        case AllOf():
            return all(map(_is_simple, predicate.predicates))
    return not isinstance(predicate, Command | IfGiven | Items)


def _glob_covers(glob: str, other: str) -> bool:
    if glob in {other, "*"}:
        return True
    if "*" not in other:
        return fits_glob(other, glob)
    head, star, tail = glob.partition("*")
    return bool(star) and not tail and other.partition("*")[0].startswith(head)


def _taint_covers(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    if not mine or mine == theirs:
        return True
    if not theirs or NONE in mine or NONE in theirs:
        return False
    if mine == (ANY,):
        return True
    return ANY not in theirs and all(any(_glob_covers(m, t) for m in mine) for t in theirs)


def _spend_covers(one: Rule, other: Rule) -> bool:
    mine, theirs = one.spend, other.spend
    if mine is None:
        return True
    return theirs is not None and all(
        getattr(theirs, name) >= getattr(mine, name) for name in ("micro_usd", "calls", "tokens")
    )


def _follows(known: Predicate, wanted: Predicate, *, allows: bool) -> bool:
    """Whether what is known of an argument makes the wanted predicate true as well.

    Unless the rule that knows it `allows`, what cannot be told must stay so.
    """
    if known == wanted:
        return True
    if isinstance(known, AllOf):
        return any(_follows(each, wanted, allows=allows) for each in known.predicates)
    certain = allows or isinstance(wanted, Equals | OneOf | Range)
    match known, wanted:
        case Range(), Range():
            low = wanted.min is None or (known.min is not None and known.min >= wanted.min)
            high = wanted.max is None or (known.max is not None and known.max <= wanted.max)
            return low and high
        case (Equals(), _) if certain and not isinstance(wanted, IfGiven | Items | Not | Amount):
            return test(wanted, known.value, {}, every=True) is True
        case (OneOf(), _) if certain and not isinstance(wanted, IfGiven | Items | Not | Amount):
            return all(test(wanted, v, {}, every=True) is True for v in known.values)
        case Host(), Host():
            inside = all(any(_host_covers(w, k) for w in wanted.hosts) for k in known.hosts)
            ports = set(known.ports) <= set(wanted.ports) if allows else known.ports == wanted.ports
            return inside and ports
        case Inside(), Inside():
            return all(any(is_inside(k, w) for w in wanted.roots) for k in known.roots)
    return False


def _host_covers(pattern: str, other: str) -> bool:
    return pattern == other or fits_host(other.removeprefix("*."), pattern)
