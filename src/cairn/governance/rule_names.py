"""Labels and arguments that rules name, against the tools there are: a misspelt one finds nothing.

Of servers of tools that were not reached yet only what they say beforehand is known; what they
offer is looked at once they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cairn.core.evolve_calls import UNCHECKED
from cairn.core.names import listed, nearest
from cairn.core.policy import Policy
from cairn.core.policy.rule import ANY, NONE, fits_glob
from cairn.errors import UnknownArguments, UnknownLabels
from cairn.governance.arguments import KnownTool, schema_of, unknown_arguments
from cairn.governance.policy_file import SECTIONS, at_line
from cairn.tools.registry import ToolServer

MEMORY_LABELS = frozenset({"memory", "memory:untrusted", UNCHECKED})
"""What recalled facts bring, beside the labels that untrusted ones carry."""
OF_SERVERS = "mcp:*"
"""Means all servers, also where there is none."""


def labels_of(agents: Iterable[Any]) -> tuple[frozenset[str], bool]:
    """The labels that may come into a run of one of these agents, and whether these are all.

    A run goes on in the session of another agent's, so all agents of a runtime belong together.
    """
    found, whole = set(MEMORY_LABELS), True
    for agent in agents:
        for tool in agent.tools.values():
            found |= set(tool.spec.taint)
        for server in agent.servers:
            said = getattr(server, "labels", None)
            whole = whole and (said is not None or known_server(server))
            found |= set(said or ())
            for tool in server.tools():
                found |= set(tool.spec.taint)
    return frozenset(found), whole


def known_server(server: ToolServer) -> bool:
    """Whether the server was ever reached, so that its tools are known."""
    return bool(server.version) or bool(server.tools())


def declared_labels(policy: Policy) -> frozenset[str]:
    """Further labels that a policy and its parts declare."""
    found = set(policy.labels)
    for section in SECTIONS:
        parts: Mapping[str, Policy] = getattr(policy, section)
        for part in parts.values():
            found |= set(part.labels)
    return frozenset(found)


def unknown_labels(policy: Policy, known: frozenset[str]) -> Iterator[tuple[str, str, str, str]]:
    """Labels in its rules that nothing brings: where, which, that it is none, and the fix."""
    known |= declared_labels(policy)
    layers = [("", policy)]
    for section in SECTIONS:
        parts: Mapping[str, Policy] = getattr(policy, section)
        layers += [(f"{section}.{name}.", part) for name, part in parts.items()]
    for place, layer in layers:
        for rule in layer.rules:
            for label in rule.taint:
                if label in {ANY, NONE, OF_SERVERS} or any(fits_glob(k, label) for k in known):
                    continue
                where = f"{place}rules.{rule.name}.taint.{label}"
                yield where, label, "nothing brings this label into a run", _meant(label, known)


def _meant(label: str, known: frozenset[str]) -> str:
    close = nearest(label, sorted(known))
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    fix = "Name those that come from elsewhere in the policy's labels"
    return f"The labels are {listed(sorted(known))}. {fix}"


def tools_of(agents: Iterable[Any]) -> list[KnownTool]:
    """All tools of these agents, as far as they are known."""
    return [
        KnownTool(name=tool.name, agent=agent.name, effect=tool.spec.effect, schema=schema_of(tool))
        for agent in agents
        for tool in (*agent.tools.values(), *(t for s in agent.servers for t in s.tools()))
    ]


def check_rules(
    policy: Policy,
    where: str,
    agents: Sequence[Any],
    everybody: Sequence[Any] = (),
    further: frozenset[str] = frozenset(),
) -> None:
    """Refuse rules that name a label which nothing brings, or an argument that no tool has.

    Args:
        policy: The policy.
        where: How it is called in messages.
        agents: Whose calls it judges.
        everybody: All agents of the runtime, whose runs may come before theirs in a session; by
            default the same.
        further: Labels that come from elsewhere, beside those that the policy declares.

    Raises:
        UnknownLabels, UnknownArguments: says each with its place, its line and what may have been
            meant.
    """
    labels, whole = labels_of(everybody or agents)
    if whole:
        wrong = [
            (f"{where}.{place}", label, f"{said} ({label!r}){at_line(policy, place)}", fix)
            for place, label, said, fix in unknown_labels(policy, labels | further)
        ]
        if wrong:
            raise UnknownLabels.of(wrong)
    servers = [server for agent in agents for server in agent.servers]
    beyond = [str(getattr(s, "prefix", "")) for s in servers if not known_server(s)]
    missing = [
        (f"{where}.{place}", path, f"{said}{at_line(policy, place)}", fix)
        for place, path, said, fix in unknown_arguments(policy, tools_of(agents), beyond)
    ]
    if missing:
        raise UnknownArguments.of(missing)
