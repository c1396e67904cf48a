"""`Runtime`: the one object users make. It opens the store, knows the agents, and has the verbs.

Every verb has an `_async` twin and is written once. A sync verb runs in a background loop of the
runtime; inside a running event loop use the twin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from cairn.agent import Agent
from cairn.core.budgets import Budget, agents_in, caps_of
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import WORST_CASE, Price
from cairn.core.names import nearest
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.engine.client import Client
from cairn.engine.clock import check_clock
from cairn.engine.deployed import check_deployment, check_hooks
from cairn.engine.host import ON_CHANGE, Deployment, Host, OnChange, check_deps
from cairn.engine.notify import Notifier, OnWait
from cairn.engine.portal import Portal, refuse_inside_loop
from cairn.errors import ConfigError, safe_repr
from cairn.governance.policy_file import load_policy
from cairn.governance.secrets import Secrets
from cairn.hooks import Hook
from cairn.memory.port import Memory
from cairn.memory.rules import MemoryRules
from cairn.ports import Clock, Store
from cairn.runtime.erasing import Erasing
from cairn.runtime.grants import Granting
from cairn.runtime.looks import Looks
from cairn.runtime.memories import memory_rules_of
from cairn.runtime.routing import Route, Routing, check_routes
from cairn.runtime.takeovers import Takeovers
from cairn.store import store_of

if TYPE_CHECKING:
    from cairn.sandbox import Minimum, Rung

log = logging.getLogger("cairn")


class Runtime(Routing, Erasing, Takeovers, Granting, Looks):
    """Takes tasks over and carries them through.

    Args:
        store: Path of a SQLite file, `":memory:"`, or a `Store`.
        agents: Who can work; found by name.
        deps: What tools get as `ctx.deps`: a value, or a function of a `Principal`, sync (it then
            runs in a thread) or async, which may take 60 seconds.
        policy: What may run unasked, as a `Policy` or the path of a YAML file; by default reads
            only.
        ladder: What is done about each class of fault.
        on_wait: Told, at least once, when a run waits for people: a function of a `Run`, sync (it
            then runs in a thread) or async, which may take 60 seconds; or a command as a list of
            arguments (JSON on its input), or a URL, which may take 10.
        durability: `full` survives power loss; `process` survives the death of the process only.
        unknown_price: What a model is counted at whose price nobody knows.
        on_change: What becomes of a run that another version of its agent has worked on:
            `continue` goes on and says in the journal what changed, `pin` leaves it to a process
            of that version (`VersionMismatch`), `refuse` ends it as failed.
        budgets: What all runs together may use over time. They stand in the store from then on,
            for every process that uses it, until others are set; an empty list removes them.
            None leaves those that stand there.
        workspace: Where tools for files work, as `ctx.workspace`: a folder that gets one for each
            run, a `Workspace` for all, or `Workspaces`. None for no workspace.
        workspace_per: `run`, or `session`: its runs then share one. It is for a folder;
            `Workspaces` say it themselves, as `per`.
        routes: Which agent messages from outside go to, and into which session; see `receive`.
        secrets: Values that are kept nowhere and given only to tools that declare them:
            `Secrets`, or a mapping of names and values.
        hooks: Functions made with `before_tool` and `before_model`, asked in this order and
            before those of the agent.
        sandbox: The least that tools run commands behind: a `cairn.sandbox.Minimum`, or a rung as
            `"landlock"`. Where this machine does not reach it, agents with such tools do not run
            (`ToolsUnready`). None leaves it to the tools, which refuse where there are no walls.
        memory: What runs remember, and who shares it: `MemoryRules`, or a `Memory` for the facts.
            By default they live in the store, nobody shares any, and what may come from untrusted
            content waits for a person.
        clock: Where time comes from; it counts in microseconds.

    Raises:
        ConfigError: a value is not usable, two agents share a name, or a tool insists on a weaker
            sandbox than is asked for. A policy, a tool or a budget names what is not there.
        UnsupportedStore, SchemaTooNew: the file cannot be used.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        store: str | Path | Store = "cairn.db",
        agents: Sequence[Agent] = (),
        *,
        deps: Any = None,
        policy: Policy | str | Path = DEFAULT_POLICY,
        ladder: Ladder = DEFAULT_LADDER,
        on_wait: OnWait | None = None,
        durability: Literal["full", "process"] = "full",
        unknown_price: Price = WORST_CASE,
        on_change: OnChange = "continue",
        budgets: Sequence[Budget] | None = None,
        workspace: Any = None,
        workspace_per: Literal["run", "session"] = "run",
        routes: Sequence[Route] = (),
        secrets: Secrets | Mapping[str, Any] | None = None,
        hooks: Sequence[Hook] = (),
        sandbox: Minimum | Rung | None = None,
        memory: MemoryRules | Memory | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(policy, str | Path):
            policy = load_policy(policy)
        crew = check_deployment(agents, policy, ladder)
        if on_change not in ON_CHANGE:
            fix = f"Use one of {', '.join(ON_CHANGE)}"
            raise ConfigError("Runtime.on_change", f"{safe_repr(on_change)} is unknown", fix)
        if workspace is not None:
            from cairn.workspace.folders import workspaces

            workspace = workspaces(workspace, workspace_per)
        if sandbox is not None:
            from cairn.sandbox.minimum import minimum_of

            sandbox = minimum_of(sandbox)
        secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        for each in (tool for agent in crew for tool in agent.tools.values()):
            secrets.check_tool(each.name, [name for _, name in each.spec.secrets])
        secrets.guard_logs()
        self.routes = check_routes(routes, [agent.name for agent in crew])
        self._notifier = Notifier(on_wait) if on_wait is not None else None
        self.portal = Portal(self._interrupted)
        caps = None if budgets is None else caps_of(budgets)
        for budget, name in agents_in(caps or ()):
            if name not in (known := [agent.name for agent in crew]):
                close = nearest(name, known)
                meant = f"did you mean {close[0]!r}?" if close else "another process may have it"
                log.warning("budget %s counts agent %r, which is not here; %s", budget, name, meant)
        deployment = Deployment(
            policy=policy,
            ladder=ladder,
            deps=check_deps(deps),
            unknown_price=unknown_price,
            on_change=on_change,
            budgets=caps,
            workspaces=workspace,
            secrets=secrets,
            memory=memory_rules_of(memory, [agent.name for agent in crew]),
            hooks=check_hooks(hooks, crew),
            sandbox=sandbox,
        )
        check_clock(clock)
        # behind all checks: what is refused opens no file, and makes none
        self.store: Store = store_of(store, durability)
        self.host = Host({a.name: a for a in crew}, deployment, clock)
        self.client = Client(self.store, self.host.clock, secrets)
        self._driven: dict[str, asyncio.Task[Any]] = {}
        self._background: set[str] = set()
        self._again: set[str] = set()

    def _interrupted(self, now: bool) -> None:
        """Ctrl-C in a sync verb: let what is in flight land and start nothing new meanwhile."""
        if now:
            log.warning("finishing what is in flight; Ctrl-C again ends it at once")
        self.host.draining = now

    async def close_async(self) -> None:
        """Let what is in flight land, start nothing new, and close the store."""
        self.host.draining = True
        if self._driven:
            await asyncio.wait(set(self._driven.values()))
        await self.host.close()
        await self.store.close()

    def close(self) -> None:
        """Let what is in flight land, start nothing new, and close the store."""
        self.portal.call(self.close_async(), "close")
        self.portal.close()

    def __enter__(self) -> Self:
        refuse_inside_loop("with")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()
