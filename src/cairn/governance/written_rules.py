"""Rules of a policy file: each field read by itself, so that no fault hides another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from cairn.core.policy import (
    DEFAULTS,
    AllOf,
    Amount,
    Command,
    Equals,
    From,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Predicate,
    Range,
    Redirect,
    Rule,
    Spend,
    TaskKind,
    Value,
)
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError
from cairn.governance.nodes import Node

T = TypeVar("T")
LISTS = ("tools", "effects", "agents", "principals", "roles", "tenants", "kinds", "taint")
RULE = ("name", "decide", "reason", *LISTS, "arguments", "spend", "redirect", "approval")
COMMAND = ("programs", "first", "only_flags", "no_flags", "with_flags", "words", "most_words")
PLAIN = ("equals", "one_of", "matches", "min", "max", "amount", "inside", "outside", "host")
PREDICATE = (*PLAIN, "ports", "command", "not", "all", "any", "optional")
OWN_KEYS = {
    **dict.fromkeys((*COMMAND, "command"), "command"),
    **dict.fromkeys(("currency", "currency_argument"), "amount"),
}
"""Words that stand inside one predicate, and which."""
LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|m|h|d)")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_TRIES = 64
"""More wrong words than this in one list are not said one by one."""


def rule_of(node: Node) -> Rule | None:
    """The rule that a node says.

    When something is wrong with it, that is a fault, and the rule is what could be made of the
    rest, with a stand-in for what it cannot do without: good for finding out what else is wrong.
    None when nothing can be made of it.
    """
    given = node.mapping(RULE)
    fields: dict[str, Any] = {}
    faulty: set[str] = set()
    for needed in ("name", "decide"):
        if needed not in given and node.kind == "a mapping":
            node.fault("it is missing", "Write it", f"{node.field}.{needed}")
    for name, value in given.items():
        before = len(node.reader.faults)
        fields[name] = _field(name, value)
        if len(node.reader.faults) > before:
            faulty.add(name)
    if node.kind != "a mapping":
        return None
    kept = {name: value for name, value in fields.items() if name not in faulty}
    for name in faulty & {*LISTS, "arguments"}:
        if left := _good_items(fields[name]):
            kept[name] = left
    return _whole_rule(node, kept, given, faulty)


def argument_lines(node: Node) -> dict[str, int]:
    """The line of each argument that a rule asks something of, by its path."""
    found = [value for key, value in _pairs(node) if key == "arguments"]
    return {key: value.line for each in found for key, value in _pairs(each)}


def _pairs(node: Node) -> list[tuple[str, Node]]:
    """Keys and values of a mapping, saying nothing of its faults: that has been done."""
    if node.kind != "a mapping":
        return []
    pairs = ((key.value, value) for key, value in node.yaml.value)
    return [(key, node.inside(key, value)) for key, value in pairs if isinstance(key, str)]


def _field(name: str, value: Node) -> Any:
    match name:
        case "name" | "decide" | "reason":
            return value.text()
        case "arguments":
            found = {path: _predicate(each) for path, each in value.mapping().items()}
            if not found and value.kind == "a mapping":
                value.fault("it is empty", "Name an argument, or leave the field out")
            return {path: p for path, p in found.items() if p is not None}
        case "spend":
            return _spend(value)
        case "redirect":
            return _redirect(value)
        case "approval":
            return _terms(value)
    return value.texts()


def _good_items(value: Any) -> Any:
    return value if isinstance(value, dict) else tuple(item for item in value if item)


def _whole_rule(
    node: Node, fields: dict[str, Any], given: dict[str, Node], faulty: set[str]
) -> Rule | None:
    """The rule of these fields; each that it cannot have is a fault, and taken out."""
    fields.setdefault("name", node.field)
    if "decide" not in fields:
        fields["decide"] = "redirect" if "redirect" in given else "ask"
    if "redirect" in faulty and fields["decide"] == "redirect":
        fields["decide"] = "deny"  # whither is not known; a fault was said of it
    for _ in range(len(LISTS) * MOST_TRIES):
        try:
            return Rule(**fields)
        except ConfigError as error:
            last = error.field.rpartition(".")[2]
            _tell(node, error, given)
            if not _mended(fields, last, node):
                return None
    return None


def _mended(fields: dict[str, Any], last: str, node: Node) -> bool:
    """Take out what the rule cannot have in this field; whether there was something."""
    match last:
        case "name":
            fields["name"] = node.field
        case "decide":
            fields["decide"] = "redirect" if "redirect" in fields else "ask"
        case "redirect" if "redirect" not in fields:
            fields["decide"] = "deny"
        case "effects" | "kinds":
            known = DEFAULTS if last == "effects" else get_args(TaskKind)
            wrong = next(word for word in fields[last] if word not in known)
            fields[last] = tuple(word for word in fields[last] if word != wrong)
        case "arguments":
            fields[last] = {path: p for path, p in fields[last].items() if all(path.split("."))}
        case _ if last in fields:
            del fields[last]
        case _:
            return False
    return True


def build(
    node: Node,
    make: Callable[[dict[str, Any]], T],
    fields: dict[str, Any],
    given: dict[str, Node] | None = None,
) -> T | None:
    """What the fields make; what is wrong with them is a fault of the node they stand in."""
    try:
        return make(fields)
    except ConfigError as error:
        _tell(node, error, given)
        return None


def _tell(node: Node, error: ConfigError, given: dict[str, Node] | None) -> None:
    problem = str(error).removeprefix(f"{error.field}: ").removesuffix(f". {error.fix}")
    last = error.field.rpartition(".")[2]
    place = (given or {}).get(last, node)
    place.fault(problem, error.fix, place.field if place is not node else _under(node, last))


def _under(node: Node, last: str) -> str:
    own = node.field.rpartition(".")[2] == last
    return node.field if own or last in node.field else f"{node.field}.{last}".lstrip(".")


def _spend(node: Node) -> Spend | None:
    given = node.mapping(("usd", "micro_usd", "calls", "tokens"))
    fields: dict[str, Any] = {}
    for name in ("micro_usd", "calls", "tokens"):
        if name in given:
            fields[name] = given[name].whole()
    if "usd" in given:
        if "micro_usd" in given:
            given["usd"].fault("usd and micro_usd say the same", "Keep one of them")
        fields["micro_usd"] = _micro(given["usd"])
    return build(node, lambda found: Spend(**found), fields, given)


def _micro(node: Node) -> int:
    value = float(node.number())
    if not 0 <= value < 1e12:
        node.fault("it is no amount", "Write US dollars, as in 1.5")
        return 0
    return round(value * 1_000_000)


def _redirect(node: Node) -> Redirect | None:
    given = node.mapping(("tool", "arguments"))
    if "tool" not in given:
        node.fault("it is missing", "Name the tool", f"{node.field}.tool")
        return None
    arguments = None
    if "arguments" in given:
        arguments = {n: _source(each) for n, each in given["arguments"].mapping().items()}
    return Redirect(tool=given["tool"].text(), arguments=arguments)


def _source(node: Node) -> From | Value:
    given = node.mapping(("from", "value"))
    if len(given) != 1:
        node.fault("it says not where the value is from", "Write {from: PATH} or {value: ...}")
        return Value()
    if "from" in given:
        return From(path=given["from"].text())
    return Value(value=given["value"].plain())


def _terms(node: Node) -> ApprovalTerms | None:
    given = node.mapping(("roles", "other_person", "expires_in"))
    fields: dict[str, Any] = {}
    if "roles" in given:
        fields["roles"] = given["roles"].texts()
    if "other_person" in given:
        fields["other_person"] = given["other_person"].truth()
    if "expires_in" in given:
        fields["expires_in"] = _seconds(given["expires_in"])
    return build(node, lambda found: ApprovalTerms(**found), fields, given)


def _seconds(node: Node) -> float:
    """A length of time: seconds, 0 after a fault."""
    if node.kind == "a number":
        return float(node.number())
    found = LENGTH.fullmatch(str(node.yaml.value)) if node.kind == "text" else None
    seconds = f"{float(found[1]) * UNITS[found[2]]:g}" if found is not None else ""
    fix = f"Write {seconds}" if seconds else "Write a number without quotes: 3600 is an hour"
    node.fault(f"it is {node.kind}, and a length of time is a number of seconds", fix)
    return 0.0


# ---------------------------------------------------------------- predicates


def _predicate(node: Node, *, outermost: bool = True) -> Predicate | None:
    """What is asked of one argument; several words in one mapping must all hold."""
    known = PREDICATE if outermost else PREDICATE[:-3]
    if node.kind != "a mapping":
        node.fault(f"it is {node.kind}", "Write what it must be, as in {equals: ...}")
        return None
    faults = len(node.reader.faults)
    given = node.mapping(known, _inside(known))
    found = [made for made in _parts(node, given) if made is not None]
    if not found:
        if len(node.reader.faults) == faults:
            node.fault("it asks for nothing", "Write what it must be, as in {equals: ...}")
        return None
    if len(found) > 1 and any(isinstance(each, Items) for each in found):
        node.fault("all and any stand alone", "Put the other words inside")
        return None
    whole = found[0] if len(found) == 1 else AllOf(predicates=tuple(found))
    if "optional" in given and given["optional"].truth():
        return IfGiven(predicate=whole)
    return whole


def _inside(known: tuple[str, ...]) -> dict[str, str]:
    """What to write where a predicate's own word stands without the predicate's name."""
    return {
        key: f"It belongs inside {name}: write {name}: {{{key}: ...}} below the argument's name"
        for key, name in OWN_KEYS.items()
        if key not in known and name in known
    }


def _parts(node: Node, given: dict[str, Node]) -> list[Predicate | None]:
    found: list[Predicate | None] = []
    if "min" in given or "max" in given:
        bounds: dict[str, Any] = {
            key: given[key].number() for key in ("min", "max") if key in given
        }
        found.append(build(node, lambda b: Range(**b), bounds, given))
    if "host" in given:
        ports = _ports(given["ports"]) if "ports" in given else ()
        hosts = {"hosts": given["host"].texts(), "ports": ports}
        found.append(build(given["host"], lambda h: Host(**h), hosts))
    elif "ports" in given:
        given["ports"].fault("ports belong to a host", "Add host, or leave it out")
    for key, value in given.items():
        match key:
            case "equals":
                found.append(Equals(value=value.scalar()))
            case "one_of":
                values = {"values": tuple(item.scalar() for item in value.items())}
                found.append(build(value, lambda v: OneOf(**v), values))
            case "matches":
                found.append(build(value, lambda v: Matches(**v), {"pattern": value.text()}))
            case "inside":
                found.append(build(value, lambda v: Inside(**v), {"roots": value.texts()}))
            case "outside":
                inside = build(value, lambda v: Inside(**v), {"roots": value.texts()})
                found.append(None if inside is None else Not(predicate=inside))
            case "amount":
                found.append(_amount(value))
            case "command":
                found.append(_command(value))
            case "not":
                inner = _predicate(value, outermost=False)
                found.append(None if inner is None else Not(predicate=inner))
            case "all" | "any":
                inner = _predicate(value, outermost=False)
                found.append(None if inner is None else Items(mode=key, predicate=inner))
    return found


def _ports(node: Node) -> tuple[int, ...]:
    nodes = node.items() if node.kind == "a list" else [node]
    return tuple(each.whole() for each in nodes)


def _amount(node: Node) -> Amount | None:
    given = node.mapping(("min", "max", "currency", "currency_argument"))
    fields: dict[str, Any] = {k: given[k].number() for k in ("min", "max") if k in given}
    fields |= {k: given[k].text() for k in ("currency", "currency_argument") if k in given}
    return build(node, lambda found: Amount(**found), fields, given)


def _command(node: Node) -> Command | None:
    given = node.mapping(COMMAND)
    fields: dict[str, Any] = {}
    if "programs" not in given:
        node.fault("it is missing", "Name the program", f"{node.field}.programs")
        return None
    for name, value in given.items():
        if name == "words":
            fields[name] = _predicate(value, outermost=False)
        elif name == "most_words":
            fields[name] = value.whole()
        elif name == "only_flags" and value.kind == "a list" and not value.items():
            fields[name] = ()
        else:
            fields[name] = value.texts()
    return build(node, lambda found: Command(**found), fields, given)
