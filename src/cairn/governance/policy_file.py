"""A policy as a YAML file: read whole, every fault said with its line and the fix."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cairn.core.messages import Record
from cairn.core.policy import Policy, Rule
from cairn.errors import ConfigError
from cairn.governance.nodes import MOST_BYTES, Fault, Node, Reader
from cairn.governance.written_rules import argument_lines, build, rule_of

SECTIONS = ("agents", "principals", "roles", "tenants")
LAYER = ("tools", "effects", "rules")


class PolicyFile(Record, gc=True):
    """A policy, and where its rules stand.

    Args:
        path: As it was named.
        policy: What it says.
        lines: Line of each rule by its place, as `rules.NAME` or `agents.shop.rules.NAME`.
        parts: Line of what stands in tables and of arguments, as `tools.NAME` or
            `rules.NAME.arguments.PATH`.
    """

    path: str
    policy: Policy
    lines: dict[str, int] = {}
    parts: dict[str, int] = {}

    def line(self, place: str) -> int:
        """Where something stands: itself, or what it stands in; 0 when nobody knows."""
        known = {**self.lines, **self.parts}
        fitting = [p for p in known if place == p or place.startswith(f"{p}.")]
        return known[max(fitting, key=len)] if fitting else 0


class PolicyFileError(ConfigError):
    """A policy file cannot be used; `faults` are all that is wrong with it.

    `rest` is what could be made out of it all the same, to look for what else is wrong; it is not
    to be used as a policy.
    """

    def __init__(
        self, path: str, faults: tuple[Fault, ...], rest: PolicyFile | None = None
    ) -> None:
        Exception.__init__(self, "\n".join(fault.said(path) for fault in faults))
        self.field = path
        self.fix = faults[0].fix
        self.faults = faults
        self.rest = rest


_loaded: OrderedDict[int, PolicyFile] = OrderedDict()
"""The files that were read last, by the identity of their policies, which they keep alive."""
MOST_LOADED = 64


def file_of(policy: Policy) -> PolicyFile | None:
    """The file that a policy was read from; None when there is none, or nobody remembers."""
    return _loaded.get(id(policy))


def at_line(policy: Policy, place: str) -> str:
    """` (policy.yaml:7)` for a policy that was read from a file."""
    file = file_of(policy)
    line = file.line(place) if file is not None else 0
    return f" ({file.path}:{line})" if file is not None and line else ""


def load_policy(path: str | Path) -> Policy:
    """The policy of a YAML file.

    Raises:
        PolicyFileError: says all that is wrong with it, each with its line.
        ConfigError: the file cannot be read.
    """
    read = read_policy_file(path)
    _loaded[id(read.policy)] = read
    while len(_loaded) > MOST_LOADED:
        _loaded.popitem(last=False)
    return read.policy


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
    places = Places(lines={}, parts={})
    policy = _whole(root, places) if root is not None else None
    read = None
    if policy is not None:
        read = PolicyFile(path=path, policy=policy, lines=places.lines, parts=places.parts)
    if reader.faults or read is None:
        faults = tuple(sorted(reader.faults, key=lambda fault: fault.line))
        raise PolicyFileError(path, faults, read)
    return read


class Places(Record, gc=True):
    """Where everything stands; filled while the file is read."""

    lines: dict[str, int]
    parts: dict[str, int]


def _whole(root: Node, lines: Places) -> Policy | None:
    given = root.mapping(("version", "name", "labels", *LAYER, *SECTIONS))
    if "version" in given and given["version"].whole() != 1:
        given["version"].fault("this version is not known", "Write version: 1")
    fields: dict[str, Any] = _layer(given, lines, "")
    if "name" in given:
        fields["name"] = given["name"].text()
    if "labels" in given:
        fields["labels"] = given["labels"].texts()
    for section in SECTIONS:
        if section in given:
            fields[section] = {
                key: build(node, lambda inner: Policy(**inner), _section(node, lines))
                for key, node in given[section].mapping().items()
            }
            lines.parts.update(given[section].key_lines())
    return build(root, lambda found: Policy(**found), fields)


def _section(node: Node, lines: Places) -> dict[str, Any]:
    return _layer(node.mapping(LAYER), lines, f"{node.field}.")


def _layer(given: dict[str, Node], at: Places, place: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for table in ("tools", "effects"):
        if table in given:
            fields[table] = _table(given[table], at, effects=table == "effects")
    if "rules" in given:
        rules: dict[str, Rule] = {}
        for node in given["rules"].items():
            rule = rule_of(node)
            if rule is None:
                continue
            if rule.name in rules:
                first = at.lines[f"{place}rules.{rule.name}"]
                node.fault(f"the name {rule.name!r} stands in line {first} already", "Take another")
                rule = replace(rule, name=node.field)
            rules[rule.name] = rule
            own = f"{place}rules.{rule.name}"
            at.lines[own] = node.line
            at.parts.update(
                {f"{own}.arguments.{path}": line for path, line in argument_lines(node).items()}
            )
        fields["rules"] = tuple(rules.values())
    return fields


def _table(node: Node, at: Places, *, effects: bool) -> dict[str, Any]:
    known = ("read", "write", "dangerous") if effects else None
    found = {}
    for key, value in node.mapping(known).items():
        at.parts[value.field] = value.line
        decision = value.text()
        if decision and decision not in {"allow", "ask", "deny"}:
            value.fault(f"{decision!r} is no decision", "Write allow, ask or deny")
        elif "*" in key:
            value.fault("a table takes names only", "Write a rule with tools: " + repr(key))
        elif decision:
            found[key] = decision
    return found
