"""What a policy asks of arguments, against the schemas of the tools it speaks of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cairn.core.messages import Record
from cairn.core.names import listed, nearest
from cairn.core.policy import (
    AllOf,
    Amount,
    Command,
    Effect,
    Equals,
    From,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Policy,
    Predicate,
    Range,
    Rule,
)
from cairn.core.policy.rule import fits_glob
from cairn.governance.never import Finding, may_be
from cairn.governance.policy_file import SECTIONS, PolicyFile
from cairn.governance.schema_paths import NAMED, NUMBERS, Place, Schema, place_of

TEXT = frozenset({"string"})


class KnownTool(Record, gc=True):
    """A tool of an agent, as far as a policy is concerned.

    Args:
        name: As the model calls it.
        agent: Whose it is.
        effect: What it is treated as.
        schema: JSON Schema of its arguments.
    """

    name: str
    agent: str
    effect: Effect
    schema: Mapping[str, Any]


Said = tuple[str, str, str]
"""The level, where it stands, and what is wrong."""
Unknown = tuple[str, str, str, str]
"""Where it stands, the argument, that there is none, and what may have been meant."""


def argument_findings(
    file: PolicyFile, tools: Sequence[KnownTool], beyond: Collection[str] = ()
) -> list[Finding]:
    """Arguments that no tool has of which a rule speaks, and predicates that never fit them.

    What no value of an argument can be is an `error`; what only some can be, a `warning`.

    Args:
        file: The policy.
        tools: All tools of all agents.
        beyond: How names of tools begin that may be there all the same.
    """
    found = [*_layer(file.policy, "", tools, beyond)]
    for section in SECTIONS:
        parts: Mapping[str, Policy] = getattr(file.policy, section)
        for name, policy in parts.items():
            own = [t for t in tools if t.agent == name] if section == "agents" else tools
            found += _layer(policy, f"{section}.{name}.", own, beyond)
    lined = [
        Finding(line=file.line(place), place=place, problem=problem, level=level)
        for level, place, problem in found
    ]
    return sorted(lined, key=lambda each: (each.line, each.place))


def unknown_arguments(
    policy: Policy, tools: Sequence[KnownTool], beyond: Collection[str] = ()
) -> list[Unknown]:
    """Arguments of which its rules speak and that none of the tools they cover has.

    Args:
        policy: The policy, with its parts.
        tools: All tools of the agents it is for.
        beyond: How names of tools begin that may be there all the same; rules that may be about
            one of those are left out.
    """
    found = [*_unknown(policy, "", tools, beyond)]
    for section in SECTIONS:
        parts: Mapping[str, Policy] = getattr(policy, section)
        for name, part in parts.items():
            own = [t for t in tools if t.agent == name] if section == "agents" else tools
            found += _unknown(part, f"{section}.{name}.", own, beyond)
    return found


def _unknown(
    policy: Policy, place: str, tools: Sequence[KnownTool], beyond: Collection[str]
) -> Iterator[Unknown]:
    for rule, own, covered in _covering(policy, place, tools, beyond):
        for path, predicate in rule.arguments.items():
            yield from _missing(f"{own}.arguments.{path}", (path,), covered)
            yield from _missing(f"{own}.arguments.{path}", _currencies(predicate), covered)
        yield from _redirect(rule, own, covered, tools)


def _covering(
    policy: Policy, place: str, tools: Sequence[KnownTool], beyond: Collection[str]
) -> Iterator[tuple[Rule, str, list[KnownTool]]]:
    """The rules, each with where it stands and the tools it is about, where all are known."""
    for rule in policy.rules:
        if any(may_be(glob, beyond) for glob in rule.tools or ("*",)):
            continue  # one of the tools that are not known may have what it asks for
        covered = [tool for tool in tools if _speaks_of(rule, tool)]
        yield rule, f"{place}rules.{rule.name}", covered


def _layer(
    policy: Policy, place: str, tools: Sequence[KnownTool], beyond: Collection[str]
) -> Iterator[Said]:
    for rule, own, covered in _covering(policy, place, tools, beyond):
        for path, predicate in rule.arguments.items():
            yield from _types(f"{own}.arguments.{path}", path, predicate, covered)
    for where, _, problem, meant in _unknown(policy, place, tools, beyond):
        yield "error", where, f"{problem}; {meant[0].lower()}{meant[1:]}"


def _speaks_of(rule: Rule, tool: KnownTool) -> bool:
    named = not rule.tools or any(fits_glob(tool.name, glob) for glob in rule.tools)
    effects = not rule.effects or tool.effect in rule.effects
    return named and effects and (not rule.agents or tool.agent in rule.agents)


def _types(
    where: str, path: str, predicate: Predicate, covered: Sequence[KnownTool]
) -> Iterator[Said]:
    there = [place for tool in covered if (place := place_of(tool.schema, path)).there]
    told = [found for place in there if (found := _unfit(predicate, place)) is not None]
    if told and len(told) == len(there):
        worst = "error" if all(level == "error" for level, _ in told) else "warning"
        yield worst, where, next(said for level, said in told if level == worst)


def _missing(where: str, paths: Iterable[str], tools: Sequence[KnownTool]) -> Iterator[Unknown]:
    """Which of the paths no tool has; where there is no tool at all, that is said elsewhere."""
    for path in paths:
        places = [place_of(tool.schema, path) for tool in tools]
        if tools and not any(place.there for place in places):
            yield where, path, *missing(path, places, tools)


def missing(path: str, places: Sequence[Place], tools: Sequence[KnownTool]) -> tuple[str, str]:
    """That no tool has an argument of this name, and what may have been meant."""
    near = list(dict.fromkeys(name for place in places for name in place.near))
    names = sorted({tool.name for tool in tools})
    who = f"tool {names[0]!r} has" if len(names) == 1 else f"none of its {len(names)} tools has"
    negated = "no" if len(names) == 1 else "an"
    close = nearest(path, near)
    if close:
        meant = f"Did you mean {' or '.join(map(repr, close))}?"
    else:
        meant = f"There are {listed(sorted(near))}" if near else "There are none"
    return f"{who} {negated} argument {path!r}", meant


def _redirect(
    rule: Rule, own: str, covered: Sequence[KnownTool], tools: Sequence[KnownTool]
) -> Iterator[Unknown]:
    """What a redirect takes from the old call, and what the new one has no place for."""
    if rule.redirect is None or rule.redirect.arguments is None:
        return
    targets = [tool for tool in tools if tool.name == rule.redirect.tool]
    for name, source in rule.redirect.arguments.items():
        where = f"{own}.redirect.arguments.{name}"
        yield from _missing(where, (name,), targets)
        if isinstance(source, From) and not any(map(str.isdigit, source.path.split("."))):
            yield from _missing(where, (source.path,), covered)


def _currencies(predicate: Predicate) -> Iterator[str]:
    match predicate:
        case AllOf():
            for each in predicate.predicates:
                yield from _currencies(each)
        case Not() | Items() | IfGiven():
            yield from _currencies(predicate.predicate)
        case Amount(currency_argument=name) if name:
            yield name


# ---------------------------------------------------------------- types


def _unfit(predicate: Predicate, place: Place) -> tuple[str, str] | None:
    """Why no value, or hardly one, of this place can be told to be so; None when one can."""
    types = place.types - {"null"}
    if place.open or not types:
        return None
    match predicate:
        case AllOf():
            told = [_unfit(each, place) for each in predicate.predicates]
            return next((each for each in told if each), None)
        case Not() | Items() | IfGiven():
            return _unfit(predicate.predicate, place)
        case Range() if not types & NUMBERS:
            return "error", f"min and max want a number, and it is {_said(types)}"
        case Amount() if not types & NUMBERS:
            level = "warning" if types & TEXT else "error"
            return level, f"an amount is a number, and it is {_said(types)}{_only_plain(level)}"
        case Matches() | Inside() | Host() if not types & TEXT:
            return "error", f"it wants text, and it is {_said(types)}"
        case Command() if not types & (TEXT | {"array"}):
            return "error", f"a command is text or a list of texts, and it is {_said(types)}"
        case Equals() | OneOf():
            return _no_value(predicate, types, place)
    return None


def _only_plain(level: str) -> str:
    return ": only texts like '9.50' can be told" if level == "warning" else ""


def _no_value(
    predicate: Equals | OneOf, types: frozenset[str], place: Place
) -> tuple[str, str] | None:
    values = predicate.values if isinstance(predicate, OneOf) else (predicate.value,)
    given = [value for value in values if value is not None]
    if len(given) < len(values):
        return None  # null may be given, or meant for what is absent
    fitting = [v for v in given if _kinds(v) & types]
    shown = ", ".join(map(repr, given))
    if not fitting:
        return "error", f"it is {_said(types)}, and never {shown}"
    if place.values is not None and not any(v in place.values for v in fitting):
        known = listed([repr(value) for value in place.values])
        return "error", f"it is one of {known}, and never {shown}"
    return None


def _kinds(value: Any) -> frozenset[str]:
    kind = NAMED.get(type(value), "")
    return NUMBERS if kind in NUMBERS else frozenset({kind})


def _said(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))


def schema_of(tool: Any) -> Schema:
    """The whole schema of a tool's arguments; a server's tool has more than models are shown."""
    found: Schema = getattr(tool, "whole", None) or tool.schema.parameters
    return found
