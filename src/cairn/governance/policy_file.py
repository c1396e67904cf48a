"""A policy as a YAML file: read whole, every fault said with its line and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cairn.core.messages import Record
from cairn.core.policy import (
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
    Policy,
    Predicate,
    Range,
    Redirect,
    Rule,
    Spend,
    Value,
)
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError
from cairn.governance.nodes import MOST_BYTES, Fault, Node, Reader

T = TypeVar("T")
SECTIONS = ("agents", "principals", "roles", "tenants")
LAYER = ("tools", "effects", "rules")
LISTS = ("tools", "effects", "agents", "principals", "roles", "tenants", "kinds", "taint")
RULE = ("name", "decide", "reason", *LISTS, "arguments", "spend", "redirect", "approval")
COMMAND = ("programs", "first", "only_flags", "no_flags", "with_flags", "words", "most_words")
PLAIN = ("equals", "one_of", "matches", "min", "max", "amount", "inside", "outside", "host")
PREDICATE = (*PLAIN, "ports", "command", "not", "all", "any", "optional")


class PolicyFile(Record, gc=True):
    """A policy, and where its rules stand.

    Args:
        path: As it was named.
        policy: What it says.
        lines: Line of each rule by its place, as `rules.NAME` or `agents.shop.rules.NAME`.
    """

    path: str
    policy: Policy
    lines: dict[str, int] = {}


class PolicyFileError(ConfigError):
    """A policy file cannot be used; `faults` are all that is wrong with it."""

    def __init__(self, path: str, faults: tuple[Fault, ...]) -> None:
        Exception.__init__(self, "\n".join(fault.said(path) for fault in faults))
        self.field = path
        self.fix = faults[0].fix
        self.faults = faults


def load_policy(path: str | Path) -> Policy:
    """The policy of a YAML file.

    Raises:
        PolicyFileError: says all that is wrong with it, each with its line.
        ConfigError: the file cannot be read.
    """
    return read_policy_file(path).policy


def read_policy_file(path: str | Path) -> PolicyFile:
    """As `load_policy`, with the lines of the rules."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        said = f"{name} cannot be read ({error.strerror or error})"
        raise ConfigError("policy", said, "Name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise ConfigError("policy", f"{name} is no UTF-8 text", "Save it as UTF-8") from error
    return parse_policy(text, name)


def parse_policy(text: str, path: str = "policy.yaml") -> PolicyFile:
    """The policy that a YAML text says; `path` is how it is called in messages.

    Raises:
        PolicyFileError: says all that is wrong with it, each with its line.
    """
    reader = Reader(text)
    root = reader.root()
    lines: dict[str, int] = {}
    policy = _whole(root, lines) if root is not None else None
    if reader.faults or policy is None:
        faults = tuple(sorted(reader.faults, key=lambda fault: fault.line))
        raise PolicyFileError(path, faults)
    return PolicyFile(path=path, policy=policy, lines=lines)


def _whole(root: Node, lines: dict[str, int]) -> Policy | None:
    given = root.mapping(("version", "name", *LAYER, *SECTIONS))
    if "version" in given and given["version"].whole() != 1:
        given["version"].fault("this version is not known", "Write version: 1")
    fields: dict[str, Any] = _layer(given, lines, "")
    if "name" in given:
        fields["name"] = given["name"].text()
    for section in SECTIONS:
        if section in given:
            fields[section] = {
                key: _build(node, lambda inner: Policy(**inner), _section(node, lines))
                for key, node in given[section].mapping().items()
            }
    return _build(root, lambda found: Policy(**found), fields)


def _section(node: Node, lines: dict[str, int]) -> dict[str, Any]:
    return _layer(node.mapping(LAYER), lines, f"{node.field}.")


def _layer(given: dict[str, Node], lines: dict[str, int], place: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for table in ("tools", "effects"):
        if table in given:
            fields[table] = _table(given[table], effects=table == "effects")
    if "rules" in given:
        rules: dict[str, Rule] = {}
        for node in given["rules"].items():
            rule = _rule(node)
            if rule is None:
                continue
            if rule.name in rules:
                first = lines[f"{place}rules.{rule.name}"]
                node.fault(f"the name {rule.name!r} stands in line {first} already", "Take another")
                continue
            rules[rule.name] = rule
            lines[f"{place}rules.{rule.name}"] = node.line
        fields["rules"] = tuple(rules.values())
    return fields


def _table(node: Node, *, effects: bool) -> dict[str, Any]:
    known = ("read", "write", "dangerous") if effects else None
    found = {}
    for key, value in node.mapping(known).items():
        decision = value.text()
        if decision and decision not in {"allow", "ask", "deny"}:
            value.fault(f"{decision!r} is no decision", "Write allow, ask or deny")
        elif "*" in key:
            value.fault("a table takes names only", "Write a rule with tools: " + repr(key))
        elif decision:
            found[key] = decision
    return found


# ---------------------------------------------------------------- rules


def _rule(node: Node) -> Rule | None:
    faults = len(node.reader.faults)
    given = node.mapping(RULE)
    fields: dict[str, Any] = {}
    for needed in ("name", "decide"):
        if needed not in given and node.kind == "a mapping":
            node.fault("it is missing", "Write it", f"{node.field}.{needed}")
    for name, value in given.items():
        match name:
            case "name" | "decide" | "reason":
                fields[name] = value.text()
            case "arguments":
                found = {path: _predicate(each) for path, each in value.mapping().items()}
                fields[name] = {path: p for path, p in found.items() if p is not None}
                if not found and value.kind == "a mapping":
                    value.fault("it is empty", "Name an argument, or leave the field out")
            case "spend":
                fields[name] = _spend(value)
            case "redirect":
                fields[name] = _redirect(value)
            case "approval":
                fields[name] = _terms(value)
            case _:
                fields[name] = value.texts()
    if len(node.reader.faults) > faults:
        return None
    return _build(node, lambda found: Rule(**found), fields, given)


def _build(
    node: Node,
    make: Callable[[dict[str, Any]], T],
    fields: dict[str, Any],
    given: dict[str, Node] | None = None,
) -> T | None:
    """What the fields make; what is wrong with them is a fault of the node they stand in."""
    try:
        return make(fields)
    except ConfigError as error:
        problem = str(error).removeprefix(f"{error.field}: ").removesuffix(f". {error.fix}")
        last = error.field.rpartition(".")[2]
        place = (given or {}).get(last, node)
        place.fault(problem, error.fix, place.field if place is not node else _under(node, last))
        return None


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
    return _build(node, lambda found: Spend(**found), fields, given)


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
        fields["expires_in"] = float(given["expires_in"].number())
    return _build(node, lambda found: ApprovalTerms(**found), fields, given)


# ---------------------------------------------------------------- predicates


def _predicate(node: Node, *, outermost: bool = True) -> Predicate | None:
    """What is asked of one argument; several words in one mapping must all hold."""
    known = PREDICATE if outermost else PREDICATE[:-3]
    if node.kind != "a mapping":
        node.fault(f"it is {node.kind}", "Write what it must be, as in {equals: ...}")
        return None
    faults = len(node.reader.faults)
    given = node.mapping(known)
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


def _parts(node: Node, given: dict[str, Node]) -> list[Predicate | None]:
    found: list[Predicate | None] = []
    if "min" in given or "max" in given:
        bounds: dict[str, Any] = {
            key: given[key].number() for key in ("min", "max") if key in given
        }
        found.append(_build(node, lambda b: Range(**b), bounds, given))
    if "host" in given:
        ports = _ports(given["ports"]) if "ports" in given else ()
        hosts = {"hosts": given["host"].texts(), "ports": ports}
        found.append(_build(given["host"], lambda h: Host(**h), hosts))
    elif "ports" in given:
        given["ports"].fault("ports belong to a host", "Add host, or leave it out")
    for key, value in given.items():
        match key:
            case "equals":
                found.append(Equals(value=value.scalar()))
            case "one_of":
                values = {"values": tuple(item.scalar() for item in value.items())}
                found.append(_build(value, lambda v: OneOf(**v), values))
            case "matches":
                found.append(_build(value, lambda v: Matches(**v), {"pattern": value.text()}))
            case "inside":
                found.append(_build(value, lambda v: Inside(**v), {"roots": value.texts()}))
            case "outside":
                inside = _build(value, lambda v: Inside(**v), {"roots": value.texts()})
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
    return _build(node, lambda found: Amount(**found), fields, given)


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
    return _build(node, lambda found: Command(**found), fields, given)
