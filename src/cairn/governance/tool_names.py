"""Names in a policy against the tools there are: a misspelt deny would deny nothing.

What servers of tools offer is known only once they were reached. A name that one of them could
offer is then looked at again, before any of the agent's calls can be judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from cairn.core.messages import Record
from cairn.core.names import listed, nearest
from cairn.core.policy import Policy
from cairn.errors import ConfigError, UnknownTools
from cairn.governance.policy_file import at_line
from cairn.governance.rule_names import check_rules, known_server
from cairn.tools.registry import ToolServer

Said = tuple[str, str, str, str]
"""The field, the name, what is wrong, and the fix."""


class Staff(Protocol):
    """What is needed of an agent here."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    @property
    def tools(self) -> Mapping[str, Any]:
        """Its own tools by name."""
        ...

    @property
    def servers(self) -> Sequence[ToolServer]:
        """The servers of tools it works with."""
        ...


class Naming(Record, gc=True):
    """A policy, whose agents it is for, and how it is called in messages.

    `everybody` are all agents of the runtime, whose labels may come before it in a session, by
    default the same; `labels` are those that come from elsewhere, beside the policy's own.
    """

    policy: Policy
    agents: tuple[Any, ...]
    where: str
    everybody: tuple[Any, ...] = ()
    labels: frozenset[str] = frozenset()

    def check_rules(self) -> None:
        """Refuse rules that name a label which nothing brings, or an argument that no tool has.

        Raises:
            UnknownLabels, UnknownArguments: as `rule_names.check_rules`.
        """
        check_rules(self.policy, self.where, self.agents, self.everybody, self.labels)

    def tool_names(self) -> dict[str, list[str]]:
        """The tools it names one by one, and where each of them stands."""
        found: dict[str, list[str]] = {}
        for kind, name, place in self.policy.names():
            if kind == "tool":
                found.setdefault(name, []).append(place)
        return found

    def known(self) -> set[str]:
        """All tools of its agents that are known by now."""
        return {name for each in self.agents for name in offers_of(each)}


def could_offer(server: ToolServer, name: str) -> bool:
    """Whether a tool of this name could be one of the server's; it may say how they begin."""
    return name.startswith(str(getattr(server, "prefix", "")))


def is_known(server: ToolServer) -> bool:
    """Whether the server was ever reached, so that its tools are known."""
    return known_server(server)


def offers_of(agent: Staff) -> set[str]:
    """The names of an agent's tools, as far as they are known; also of those left out."""
    names = set(agent.tools)
    for server in agent.servers:
        names |= {tool.name for tool in server.tools()}
        names |= set(getattr(server, "left_out", ()))
    return names


# ---------------------------------------------------------------- when the runtime is made


def check_names(naming: Naming) -> None:
    """Refuse a policy that names an agent, a tool, a label or an argument which cannot be there.

    What a server could offer may be there; `check_offered` looks at that when it was reached.

    Raises:
        UnknownTools, ConfigError: names the place, its line, and what may have been meant.
    """
    policy, agents, where = naming.policy, naming.agents, naming.where
    static = sorted({name for agent in agents for name in agent.tools})
    servers = [server for agent in agents for server in agent.servers]
    found: list[Said] = []
    for kind, name, place in policy.names():
        if kind == "agent":
            _check_agent(policy, name, f"{where}.{place}", place, [a.name for a in agents])
        elif name not in static and not any(could_offer(server, name) for server in servers):
            fix = meant(name, static, servers)
            said = f"no agent has this tool{at_line(policy, place)}"
            found.append((f"{where}.{place}", name, said, fix))
    if found:
        raise UnknownTools.of(found)
    naming.check_rules()


def _check_agent(policy: Policy, name: str, field: str, place: str, known: list[str]) -> None:
    if name not in known:
        close = nearest(name, known)
        fix = f"Did you mean {close[0]!r}?" if close else f"The agents are {listed(sorted(known))}"
        raise ConfigError(field, f"there is no agent {name!r}{at_line(policy, place)}", fix)


# ---------------------------------------------------------------- when servers were reached


def servers_to_reach(naming: Naming, agent: Staff) -> list[ToolServer]:
    """Other agents' servers that must be asked before a name can be told from a misspelt one."""
    return [server for name in _open(naming, agent) for server in _unknown(naming, name)]


def check_offered(
    naming: Naming, agent: Staff, *, seen: Collection[str] = (), strict: bool = False
) -> tuple[list[str], list[str]]:
    """Refuse a policy that names tools which the servers of an agent could have and do not.

    Then its rules are looked at again: the labels and arguments of those tools are known now.

    Args:
        naming: The policy.
        agent: Who is about to work. Only names that tools of its servers could have matter: no
            call of this agent can be of another.
        seen: Names that were there once. They may have gone since: a rule for them denies nothing
            then, but no call of theirs can be made either.
        strict: Whether a name of a server that was not reached is refused too. Else it is handed
            back: without the server none of its tools can be called.

    Returns:
        The names that have gone, and those that cannot be checked yet.

    Raises:
        UnknownTools: names the places, their lines, and what may have been meant.
    """
    known = sorted(naming.known())
    gone = [name for name in naming.tool_names() if name in seen and name not in known]
    waiting: list[str] = []
    found: list[Said] = []
    for name, places in naming.tool_names().items():
        mine = [server for server in agent.servers if could_offer(server, name)]
        if name in known or name in gone or not mine:
            continue
        missing = _unknown(naming, name)
        if missing and not strict and not any(map(is_known, mine)):
            waiting.append(name)
            continue
        said, fix = "no agent has this tool", meant(name, known, mine)
        if missing:
            said = "nobody can tell yet whether this tool is there"
            fix = f"Let the server {missing[0].name!r} be reached, or take the name out"
        for place in places:
            at = f"{said}{at_line(naming.policy, place)}"
            found.append((f"{naming.where}.{place}", name, at, fix))
    if found:
        raise UnknownTools.of(found)
    naming.check_rules()
    return gone, waiting


def names_there(naming: Naming) -> set[str]:
    """The tools that a policy names and that are there now."""
    return naming.known() & set(naming.tool_names())


def _open(naming: Naming, agent: Staff) -> list[str]:
    known = naming.known()
    return [
        name
        for name in naming.tool_names()
        if name not in known and any(could_offer(server, name) for server in agent.servers)
    ]


def _unknown(naming: Naming, name: str) -> list[ToolServer]:
    servers = dict.fromkeys(server for each in naming.agents for server in each.servers)
    return [each for each in servers if could_offer(each, name) and not is_known(each)]


# ---------------------------------------------------------------- words


def meant(name: str, known: Sequence[str], servers: Sequence[ToolServer]) -> str:
    """What to write instead of a name that is not there."""
    prefixes = [str(getattr(server, "prefix", "")) for server in servers]
    offered = [tool.name for server in servers for tool in server.tools()]
    bare = [f"{p}{name}" for p in prefixes if f"{p}{name}" in {*known, *offered}]
    close = bare or nearest(name, [*known, *offered])
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    begin = sorted({f"{prefix}..." for prefix in prefixes if prefix})
    more = f"; those of servers begin with {listed(begin)}" if begin else ""
    return f"The tools are {listed(known) or 'none'}{more}"
