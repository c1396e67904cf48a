"""The command `policy check`: a file's faults, names, arguments, and rules that never matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.outcome import print_json
from cairn.cli.place import locate, open_app
from cairn.cli.plain import count
from cairn.cli.policy_tools import (
    OFFLINE,
    OfflineOption,
    left_out,
    reach,
    servers_of,
    tools_of,
    unchecked,
    words_of,
)
from cairn.cli.say import complain, print_line
from cairn.core.messages import Record
from cairn.core.policy import DEFAULTS, Policy
from cairn.errors import CairnError
from cairn.governance.arguments import KnownTool, argument_findings
from cairn.governance.never import Finding, findings, unknown_names
from cairn.governance.nodes import Fault
from cairn.governance.policy_file import PolicyFile, PolicyFileError, read_policy_file
from cairn.governance.rule_names import labels_of, unknown_labels
from cairn.governance.tool_names import is_known

File = Annotated[str, typer.Argument(metavar="FILE", help="A policy as YAML.")]


def check(
    file: File,
    *,
    offline: OfflineOption = False,
    json: options.Json = False,
    app: options.App = "",
) -> None:
    """Say what is wrong with a policy file, and which of its rules can never matter.

    Faults are said as file:line: field: problem: fix, all of them. Only with --app can the names
    of tools and agents be checked, and the arguments that rules speak of; MCP servers are reached
    for that. Exit code 0: it is fine, warnings aside; 1: it is not, or a server cannot be reached.
    """
    faults: tuple[Fault, ...] = ()
    read: PolicyFile | None
    try:
        read = read_policy_file(file)
    except PolicyFileError as error:
        faults, read = error.faults, error.rest
    for fault in faults:
        _tell(file, fault, "error", json=json)
    try:
        ground = _ground(app, offline=offline) if app else None
    except CairnError as error:  # it may well be this file that the application cannot be made with
        if not faults:
            raise
        complain(f"names of tools were not checked: {error}")
        raise typer.Exit(exits.REFUSED) from error
    found: list[Finding] = []
    if read is not None:
        found = _found(read, ground, whole=not faults)
    for each in found:
        _tell(file, each, each.level, json=json)
    missing = _unreached(file, read, ground, json=json)
    if faults or missing or any(each.level != "warning" for each in found):
        raise typer.Exit(exits.REFUSED)
    if not json and read is not None:
        _print_fine(file, read.policy, found, ground)


def _tell(file: str, each: Fault | Finding, level: str, *, json: bool) -> None:
    if json:
        print_json({"file": file, **_object(each), "level": level})
    else:
        print_line(each.said(file))


class Offer(Record, gc=True):
    """What an application has, for a check of names.

    Args:
        tools: All tools of all agents, as far as they are known.
        agents: Names of the agents.
        left_out: Names of tools that servers have and that are not offered.
        failed: Why, for servers that could not be reached.
        unknown: Servers whose tools are not known.
        labels: The labels of taint that may come into a run; None when that cannot be told.
    """

    tools: list[KnownTool]
    agents: list[str]
    left_out: set[str]
    failed: dict[str, str]
    unknown: list[Any]
    labels: frozenset[str] | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The mildest effect of each tool."""
        found: dict[str, Any] = dict.fromkeys(self.left_out, "dangerous")
        for tool in self.tools:
            known = found.get(tool.name, "dangerous")
            found[tool.name] = min(tool.effect, known, key=[*DEFAULTS].index)
        return found

    @property
    def beyond(self) -> list[str]:
        """How the names of tools begin that are not known."""
        return [str(getattr(server, "prefix", "")) for server in self.unknown]


def _ground(app: str, *, offline: bool) -> Offer:
    runtime = open_app(locate("", app))
    try:
        servers = servers_of(runtime)
        failed = {} if offline else runtime.portal.call(reach(servers))
        labels, whole = labels_of(runtime.host.agents.values())
        return Offer(
            tools=tools_of(runtime),
            agents=list(runtime.host.agents),
            left_out=left_out(servers),
            failed={server.name: said for server, said in failed.items()},
            unknown=[server for server in servers if not is_known(server)],
            labels=labels if whole else None,
        )
    finally:
        runtime.close()


def _found(read: PolicyFile, ground: Offer | None, *, whole: bool) -> list[Finding]:
    """What is wrong beside the shape; of a file with faults only what these have no part in."""
    if ground is None:
        return findings(read) if whole else []
    look = findings if whole else unknown_names
    found = look(read, ground.names, ground.agents, ground.beyond)
    found += argument_findings(read, ground.tools, ground.beyond)
    if ground.labels is not None:
        found += [
            Finding(line=read.line(place), place=place, problem=f"{said}; {fix}", level="error")
            for place, _, said, fix in unknown_labels(read.policy, ground.labels)
        ]
    return sorted(found, key=lambda each: (each.line, each.place))


def _unreached(file: str, read: PolicyFile | None, ground: Offer | None, *, json: bool) -> bool:
    """Say which names could not be checked because a server is not there; whether there are."""
    for name, problem in (ground.failed if ground is not None else {}).items():
        servers = [s for s in (ground.unknown if ground is not None else ()) if s.name == name]
        names = unchecked(read.policy, servers, ()) if read is not None else []
        if json:
            said = {"file": file, "level": "unchecked", "server": name, "names": names}
            print_json({**said, "problem": problem})
        complain(f"{problem}. So {words_of(names)}; {OFFLINE}")
    return bool(ground is not None and ground.failed)


def _print_fine(file: str, whole: Policy, found: list[Finding], ground: Offer | None) -> None:
    layers = [whole, *(p for part in _parts(whole) for p in part.values())]
    rules = sum(len(layer.rules) for layer in layers)
    names = "; names of tools were not checked (that needs --app)" if ground is None else ""
    if ground is not None and ground.unknown:
        left = words_of(unchecked(whole, ground.unknown, ()))
        names = f"; {', '.join(s.name for s in ground.unknown)} was not reached: {left}"
    wrong = count(len(found), "warning") if found else "nothing wrong"
    print_line(f"{file}: {count(rules, 'rule')}, {wrong}{names}")


def _parts(whole: Policy) -> tuple[Mapping[str, Policy], ...]:
    return whole.agents, whole.principals, whole.roles, whole.tenants


def _object(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
