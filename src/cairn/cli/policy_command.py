"""The commands `policy check`, `policy explain` and `policy test`: a policy before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from cairn.cli import exits, options
from cairn.cli.outcome import print_json
from cairn.cli.paint import console
from cairn.cli.place import Place, locate, open_app, open_existing
from cairn.cli.plain import count, visible_line
from cairn.cli.policy_check import File, check
from cairn.cli.policy_tools import OfflineOption, reach_all, servers_of
from cairn.cli.say import print_line
from cairn.cli.verbs import Verbs
from cairn.core.evolve_context import KINDS
from cairn.core.messages import Principal, Record, parse_object
from cairn.core.names import nearest
from cairn.core.policy import DEFAULTS, Intent, Opinion, Policy, Verdict, opinions, strictest
from cairn.core.rules import Problem, ToolSpec
from cairn.core.visible import as_read
from cairn.engine.given import check_call
from cairn.engine.load import start_of
from cairn.errors import ConfigError, UnknownAgent, UnknownRun
from cairn.governance.backtest import WAS, Judged, backtest, counted
from cairn.governance.policy_file import load_policy
from cairn.governance.tool_names import could_offer, is_known, meant
from cairn.ports import RunFilter, Store

if TYPE_CHECKING:
    from cairn.runtime import Runtime

T = TypeVar("T")
ALL = "all"
SHOWN = 400
"""Characters of a line that are shown."""

policy = Verbs(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check policies, say why a call was decided, try them on runs.",
)

policy.command()(check)

PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy", metavar="FILE", help="A policy as YAML, in place of the application's."
    ),
]


class Ground(Record, gc=True):
    """What a command judges by: the store, and what is known of agents and their tools."""

    store: Store
    runtime: Any = None
    policy: Policy | None = None
    offline: bool = False

    async def reach(self, agent: str) -> None:
        """Know the tools that an agent's servers bring.

        Raises:
            ToolsUnready: one cannot be reached.
        """
        if self.runtime is not None and not self.offline:
            what = f"Its tools are needed to judge calls of agent {agent!r}"
            await reach_all(servers_of(self.runtime, [agent]), what)

    async def check_agent(self, agent: str) -> None:
        """Refuse an agent that neither the application nor a run of the store knows.

        Raises:
            UnknownAgent: names what may have been meant.
        """
        known = list(self.runtime.host.agents) if self.runtime is not None else []
        if not agent or agent in known or await self.store.runs(RunFilter(agent=agent, limit=1)):
            return
        known += [info.agent for info in await self.store.runs(RunFilter(limit=1_000))]
        close = nearest(agent, sorted(set(known)))
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownAgent(f"neither a run here nor the application has agent {agent!r}{meant}")

    def specs(self, agent: str) -> Mapping[str, ToolSpec] | None:
        """The tools of an agent, None when it is not known here."""
        known = self.runtime is not None and agent in self.runtime.host.agents
        return self.runtime.host.crew(agent).rules.tools if known else None

    def policies(self, agent: str) -> tuple[Policy, Policy | None]:
        """The deployment's policy and the agent's own."""
        known = self.runtime is not None and agent in self.runtime.host.agents
        rules = self.runtime.host.crew(agent).rules if known else None
        deployed = self.policy if self.policy is not None else rules and rules.policy
        if deployed is None:
            hint = "Pass --policy FILE, or --app with the application that knows it"
            raise ConfigError("--policy", f"no policy is known for agent {agent!r}", hint)
        return deployed, rules.agent_policy if rules else None


# ---------------------------------------------------------------- explain


@policy.command()
def explain(  # noqa: PLR0913 - one parameter for each option of the command
    call: Annotated[
        str,
        typer.Argument(metavar="[RUN/CALL]", help="A recorded call, as r/c4.", show_default=False),
    ] = "",
    *,
    tool: Annotated[str, typer.Option("--tool", help="A tool, for a call that was not made.")] = "",
    arguments: Annotated[
        str, typer.Option("--arguments", metavar="JSON", help="Its arguments.")
    ] = "{}",
    effect: Annotated[
        str, typer.Option("--effect", help="Its effect, where the application does not say.")
    ] = "",
    agent: Annotated[str, typer.Option("--agent", help="Who would call it.")] = "",
    principal: Annotated[str, typer.Option("--principal", help="For whom.")] = "local",
    role: Annotated[list[str] | None, typer.Option("--role", help="A role of theirs.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Their tenant.")] = "",
    taint: Annotated[
        list[str] | None, typer.Option("--taint", help="A label of what the run has read.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="The kind of task.")] = "operate",
    policy_file: PolicyOption = "",
    offline: OfflineOption = False,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Say layer by layer why a call is decided as it is.

    Of a recorded call it says how it was decided then, by which rule, and what the policy of now
    says of it, in the state that the run had at that point.
    """
    if bool(call) is bool(tool):
        raise ConfigError("RUN/CALL", "one call", "Name a recorded call, or pass --tool")
    place = locate(store, app)
    if call:
        work = partial(_recorded, of=check_call(call))
        found = _on(place, policy_file, work, offline=offline)
        for each in found:
            if json:
                print_json(judged_object(each, layers=True))
            else:
                _print_judged(each)
        return
    if kind not in KINDS:
        raise ConfigError("--kind", f"{kind!r} is unknown", f"Use one of {', '.join(KINDS)}")
    who = Principal(id=principal, roles=tuple(role or ()), tenant=tenant)
    given = parse_object(arguments)
    if given is None:
        raise ConfigError("--arguments", "they are no JSON object", "Write {} or {...}")
    intent = Intent(
        tool=tool,
        arguments=given,
        agent=agent,
        principal=who,
        taint=frozenset(taint or ()),
        kind=kind,
    )
    layers, problem = _asked(place, policy_file, intent, effect, offline=offline)
    if not layers:
        _no_verdict(f"{tool} {arguments}", problem, json=json)
    verdict = strictest(layers)
    if json:
        print_json({**_verdict(verdict), "problem": problem, "layers": _layers(layers)})
        return
    print_line(f"{tool} {arguments}")
    if problem:
        print_line(f"  the call is invalid before it is judged: {problem}")
    _print_layers(layers)
    print_line(f"  so: {said(verdict)}")


def _no_verdict(call: str, problem: str, *, json: bool) -> NoReturn:
    """Nothing is concluded of a tool that is not there."""
    if json:
        print_json({"decision": "", "problem": problem, "layers": []})
    else:
        print_line(call)
        print_line(f"  no verdict: {problem}")
    raise typer.Exit(exits.REFUSED)


def _no_tool(runtime: Runtime, agent: str, tool: str) -> str:
    """That neither the agent nor, where none is named, any other has the tool."""
    names = [agent] if agent else sorted(runtime.host.agents)
    known = {name for each in names for name in runtime.host.crew(each).rules.tools}
    if tool in known:
        return ""
    fix = meant(tool, sorted(known), servers_of(runtime, names))
    said = f"agent {agent!r} has no tool {tool!r}" if agent else f"no agent has a tool {tool!r}"
    return f"{said}. {fix}"


def _asked(
    place: Place, file: str, intent: Intent, effect: str, *, offline: bool
) -> tuple[tuple[Opinion, ...], str]:
    """What each layer says of a call that was not made, and why it is none."""
    runtime = open_app(place) if place.has_app and not (file and effect) else None
    try:
        deployed = load_policy(file) if file else None
        agent, own, problem = intent.agent, None, ""
        if runtime is not None and not agent and len(runtime.host.agents) == 1:
            (agent,) = runtime.host.agents
        spec = None
        if runtime is not None:
            servers = servers_of(runtime, [agent] if agent else None)
            needed = [s for s in servers if could_offer(s, intent.tool)]
            if not offline:
                what = f"So the tool {intent.tool!r} is not known"
                runtime.portal.call(reach_all(needed, what))
            problem = _no_tool(runtime, agent, intent.tool)
            if problem and not effect and all(map(is_known, needed)):
                return (), problem
        if runtime is not None and agent:
            rules = runtime.host.crew(agent).rules
            deployed, own = deployed or rules.policy, rules.agent_policy
            spec = rules.tools.get(intent.tool)
        if deployed is None:
            fix = "Pass --policy FILE, or --app and --agent"
            raise ConfigError("--policy", "no policy is known", fix)
        given = dict(intent.arguments)
        if spec is not None:
            checked = spec.check(_json(given))
            problem = checked.message if isinstance(checked, Problem) else ""
            given = given if isinstance(checked, Problem) else checked
        effect = effect or (spec.effect if spec is not None else "dangerous")
        if effect not in DEFAULTS:
            raise ConfigError("--effect", f"{effect!r} is none", f"Use {', '.join(DEFAULTS)}")
        asked = Intent(
            tool=intent.tool,
            effect=effect,
            arguments=given,
            agent=agent,
            principal=intent.principal,
            kind=intent.kind,
            taint=intent.taint,
        )
        return opinions(deployed, asked, own), problem
    finally:
        if runtime is not None:
            runtime.close()


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


async def _recorded(ground: Ground, of: tuple[str, str]) -> list[Judged]:
    run, call = of
    found = [each for each in await _judge(ground, run) if each.call == call]
    if not found:
        fix = "was never judged: it is not there, or it was not fit to be judged"
        raise UnknownRun(f"{run}/{call} {fix} (look with: cairn trace {run})")
    return found


# ---------------------------------------------------------------- test


@policy.command("test")
def try_on_runs(  # noqa: PLR0913 - one parameter for each option of the command
    file: File,
    *,
    runs: Annotated[
        list[str] | None,
        typer.Option("--runs", metavar="RUN,...", help="Ids of runs, or all (the newest)."),
    ] = None,
    agent: Annotated[str, typer.Option("--agent", help="Only runs of this agent.")] = "",
    limit: options.Limit = 100,
    everything: Annotated[bool, typer.Option("--all", help="Also what would not change.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if any would.")] = False,
    offline: OfflineOption = False,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Judge the calls of recorded runs by another policy, as they were: nothing is run or written.

    Each call is judged in the state of its run at that point: taint, spend and principal are as
    they were. With --app tools are as they are declared now, else as they are recorded.
    """
    wanted = [name for each in runs or [ALL] for name in each.split(",") if name]

    async def whole(ground: Ground) -> tuple[list[str], list[Judged]]:
        await ground.check_agent(agent)
        names = wanted
        if ALL in wanted:
            infos = await ground.store.runs(RunFilter(agent=agent, limit=limit))
            names = [info.run for info in infos if not info.erased]
        found: list[Judged] = []
        for name in names:
            found += await _judge(ground, name)
        return names, found

    names, found = _on(locate(store, app), file, whole, offline=offline)
    changed = [each for each in found if each.changed]
    shown = found if everything else changed
    if json:
        for each in shown:
            print_json(judged_object(each))
        print_json({"runs": len(names), "calls": len(found), "table": counted(found)})
    else:
        _print_table(shown)
        _print_sum(names, found, changed)
    if strict and changed:
        raise typer.Exit(exits.REFUSED)


# ---------------------------------------------------------------- runs


def _on(
    place: Place,
    file: str,
    work: Callable[[Ground], Coroutine[Any, Any, T]],
    *,
    offline: bool,
) -> T:
    """What `work` finds out with the store, and the application if one is named."""
    deployed = load_policy(file) if file else None

    async def whole() -> T:
        runtime: Runtime | None = open_app(place) if place.has_app else None
        opened = runtime.store if runtime is not None else open_existing(place)
        try:
            return await work(
                Ground(store=opened, runtime=runtime, policy=deployed, offline=offline)
            )
        finally:
            await (runtime.close_async() if runtime is not None else opened.close())

    return asyncio.run(whole())


async def _judge(ground: Ground, run: str) -> list[Judged]:
    entries = await ground.store.read(run)
    start = await start_of(ground.store, run, entries)
    info = await ground.store.info(run)
    await ground.reach(info.agent)
    deployed, own = ground.policies(info.agent)
    return backtest(run, start, entries, deployed, ground.specs, own)


# ---------------------------------------------------------------- shown


def judged_object(judged: Judged, *, layers: bool = False) -> dict[str, Any]:
    """A decision as one JSON object."""
    found = {
        "run": judged.run,
        "call": judged.call,
        "seq": judged.seq,
        "tool": judged.tool,
        "effect": judged.effect,
        "arguments": judged.arguments,
        "was": judged.was,
        "was_rule": judged.was_rule,
        "now": judged.becomes,
        "changed": judged.changed,
        "verdict": _verdict(judged.now),
        "assumed": judged.assumed,
    }
    return {**found, "layers": _layers(judged.layers)} if layers else found


def _verdict(verdict: Verdict) -> dict[str, Any]:
    to = verdict.redirect.tool if verdict.redirect is not None else ""
    return {
        "decision": verdict.decision,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "redirect": to,
    }


def _layers(layers: tuple[Opinion, ...]) -> list[dict[str, Any]]:
    return [
        {"layer": each.layer, **(_verdict(each.verdict) if each.verdict is not None else {})}
        for each in layers
    ]


def said(verdict: Verdict) -> str:
    """A verdict in words: `deny by deployment: no payments (they go by hand)`."""
    to = f" to {verdict.redirect.tool}" if verdict.redirect is not None else ""
    reason = f" ({verdict.reason})" if verdict.reason else ""
    return f"{verdict.decision}{to} by {verdict.rule}{reason}"


def _print_layers(layers: tuple[Opinion, ...]) -> None:
    width = max(len(each.layer) for each in layers)
    for each in layers:
        what = said(each.verdict) if each.verdict is not None else "silent"
        print_line(f"    {each.layer:<{width}}  {what}"[:SHOWN])


def _print_judged(judged: Judged) -> None:
    called = f"{judged.run}/{judged.call} {judged.tool} {as_read(judged.arguments)}"
    print_line(visible_line(called, SHOWN))
    print_line(f"  recorded in event {judged.seq}: {judged.was} by {judged.was_rule}")
    if judged.assumed:
        print_line(f"  {judged.assumed}")
    print_line("  the policy of now:")
    _print_layers(judged.layers)
    then = "other than then" if judged.changed else "as then"
    print_line(f"  so: {said(judged.now)}, {then}")


def _print_table(shown: list[Judged]) -> None:
    from rich.table import Table

    if not shown:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("call", "tool", "was", "by", "now", "by"):
        table.add_column(name, overflow="fold")
    for each in shown:
        to = f" to {each.now.redirect.tool}" if each.now.redirect is not None else ""
        cells = (f"{each.run}/{each.call}", each.tool, each.was, each.was_rule)
        table.add_row(
            *(visible_line(c, 200) for c in (*cells, f"{each.becomes}{to}", each.now.rule))
        )
    console(table=True).print(table)


def _print_sum(names: list[str], found: list[Judged], changed: list[Judged]) -> None:
    table = counted(found)
    moves = [
        f"{table[was][now]} from {was} to {now}"
        for was in WAS
        for now in WAS
        if was != now and table[was][now]
    ]
    what = ", ".join(moves) if changed else "none would change"
    print_line(f"{count(len(names), 'run')}, {count(len(found), 'decision')}: {what}")
    if unsure := sum(bool(each.assumed) for each in found):
        hint = "tools and defaults of arguments are known with --app"
        print_line(f"{unsure} of them on assumptions (--json says which); {hint}")
