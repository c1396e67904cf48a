"""What a process lends to the runs it drives: agents, dependencies, time, and who watches."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import platform
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from cairn.agent import Agent
from cairn.core.budgets import Cap
from cairn.core.events import PrincipalErased
from cairn.core.grants import NO_GRANTS, Grants, fold_grants
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import WORST_CASE, Price
from cairn.core.messages import Record
from cairn.core.names import listed
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.core.state import Call, RunState
from cairn.crew import Crew, prepare
from cairn.engine.client import new_id
from cairn.engine.clock import SystemClock
from cairn.engine.deployed import namings
from cairn.engine.walls import Walls
from cairn.engine.watchers import Watchers
from cairn.errors import (
    ConfigError,
    DepsFailed,
    ModelUnready,
    NotDone,
    ToolsUnready,
    UnknownAgent,
    UnknownTools,
    safe_repr,
    said_by,
    words_of,
)
from cairn.governance.secrets import Secrets
from cairn.governance.tool_names import (
    Naming,
    check_offered,
    could_offer,
    is_known,
    names_there,
    servers_to_reach,
)
from cairn.hooks import Hook
from cairn.memory.desk import Desk
from cairn.memory.port import Memory
from cairn.memory.rules import DEFAULT_RULES, MemoryRules
from cairn.ports import Clock, Model, Store
from cairn.tools.blocking import called, contained
from cairn.tools.runner import Threads, in_a_thread
from cairn.tools.slots import SLOTS, Slots
from cairn.version import __version__
from cairn.workspace import GivesWorkspaces

if TYPE_CHECKING:
    from cairn.sandbox import Minimum

OnChange = Literal["continue", "pin", "refuse"]
ON_CHANGE = ("continue", "pin", "refuse")
ASKED_S = 10.0
"""How long a small function of the deployment's may take, where somebody can wait for it."""

log = logging.getLogger("cairn")
CHANCE = Random()  # noqa: S311 - it spreads waits and guards nothing
"""No application's seed makes processes act in step, and no draw of ours moves its chance."""
os.register_at_fork(after_in_child=CHANCE.seed)  # nor do a process and its child draw alike


class Deployment(Record, gc=True):
    """What the deployer decides for all runs of a runtime.

    Args:
        policy: What may run unasked.
        ladder: What is done about each class of fault.
        deps: Value, or function of a Principal (sync, in a thread then, or async), that tools
            get as `ctx.deps`; built once per run and process, never journaled.
        unknown_price: What a model is counted at whose price nobody knows.
        on_change: What becomes of a run that another version of its agent has worked on:
            `continue` with it and say so in its journal, `pin` it to that version, or `refuse`
            it, so that it fails.
        budgets: What all runs together may use over time, set in the store before it is worked
            on; None leaves those that stand there.
        workspaces: Knows the workspace of each run (`cairn.workspace.GivesWorkspaces`); None for
            runs without one.
        secrets: The registered secrets; None for none.
        memory: Where facts live that outlast a run, and who shares what.
        hooks: Asked before the hooks of the agents.
        sandbox: What is asked of every sandbox that tools run commands in; None for nothing.
    """

    policy: Policy = DEFAULT_POLICY
    ladder: Ladder = DEFAULT_LADDER
    deps: Any = None
    unknown_price: Price = WORST_CASE
    on_change: OnChange = "continue"
    budgets: tuple[Cap, ...] | None = None
    workspaces: Any = None
    secrets: Secrets | None = None
    memory: MemoryRules = DEFAULT_RULES
    hooks: tuple[Hook, ...] = ()
    sandbox: Minimum | None = None


class Host:
    """The process's side of driving runs. One per runtime; used by all its runs at once."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        deployment: Deployment,
        clock: Clock | None = None,
        jitter: Callable[[], float] = CHANCE.random,
    ) -> None:
        self.agents = dict(agents)
        self.clock: Clock = clock or SystemClock()
        self.jitter = jitter
        self.threads: Threads = in_a_thread
        """What sync tools run in, and how many may at once."""
        self.slots: Slots = SLOTS
        self.new_id: Callable[[], str] = new_id
        """What runs are called that the runtime itself begins."""
        self.draining = False
        self._deployment = deployment
        self._crews: dict[str, Crew] = {}
        self._named: dict[str, Crew] = {}
        """The crews whose policies' names of tools were checked."""
        self._seen: set[str] = set()
        """Names of tools in policies that were there once."""
        self._checked: set[int] = set()
        self._loaded: set[int] = set()
        self._upheld = deployment.budgets is None
        self.watchers = Watchers()
        self.secrets = deployment.secrets if deployment.secrets is not None else Secrets()
        self.workspaces: GivesWorkspaces | None = deployment.workspaces
        """Where the runs' workspaces are; bound files are then looked for there."""
        self.walls = Walls(deployment.sandbox)
        self.walls.check(self.agents.values())
        self._grants: tuple[Store | None, Grants] = (None, NO_GRANTS)
        self._memory: tuple[Store | None, Memory | None] = (None, None)

    def crew(self, name: str) -> Crew:
        """The agent of this name, made ready once, and anew when its servers offer other tools.

        Raises:
            UnknownAgent: this process does not know it.
        """
        crew = self._crews.get(name)
        agent = self.agents.get(name)
        if crew is None or agent is None or crew.stock != agent.stock:
            if agent is None:
                known = ", ".join(sorted(self.agents)) or "none"
                raise UnknownAgent(f"there is no agent {name!r} here (known: {known})")
            deployment = self._deployment
            crew = prepare(
                agent,
                deployment.policy,
                deployment.ladder,
                deployment.unknown_price,
                deployment.hooks,
            )
            self._crews[name] = crew
        return crew

    def working(self, name: str) -> Crew:
        """As `crew`, for calls of tools: never under a policy whose names were not checked.

        Raises:
            UnknownAgent: this process does not know it.
            UnknownTools: the policy names tools that the agent's servers do not offer, or could
                offer and were not reached, or labels or arguments that nothing has.
        """
        crew = self.crew(name)
        agent = self.agents[name]
        if not agent.servers or self._named.get(name) is crew:
            return crew
        for naming in self._namings(agent):
            gone, waiting = check_offered(naming, agent, seen=self._seen)
            self._seen |= names_there(naming)
            for said, names in (("are no longer there", gone), ("were not checked yet", waiting)):
                if names:
                    log.warning("%s names tools that %s: %s", naming.where, said, listed(names))
        self._named[name] = crew
        return crew

    def _namings(self, agent: Agent) -> list[Naming]:
        """The policies that an agent works under, with whom else each is for."""
        return namings(self._deployment.policy, tuple(self.agents.values()), (agent,))

    @property
    def policed(self) -> tuple[tuple[Agent, ...], Policy]:
        """All agents, and the deployment's policy."""
        return tuple(self.agents.values()), self._deployment.policy

    async def ready(self, name: str) -> None:
        """Reach the servers of an agent's tools, those that were never reached.

        Also those of others that are needed to tell whether a name in the policy is misspelt. And
        see that this machine reaches the sandbox that the deployment asks for.

        Raises:
            ToolsUnready: one that is needed cannot be reached, or the sandbox cannot.
            UnknownTools: what is declared of one of them names what it does not have.
        """
        agent = self.agents.get(name)
        if agent is None:
            return
        await self.walls.ready(agent)
        if not agent.servers:
            return
        done = name in self._named and self._named[name] is self._crews.get(name)
        if done and all(agent.stock):
            return
        try:
            await asyncio.gather(*(server.ready() for server in agent.servers))
            others = {s for n in self._namings(agent) for s in servers_to_reach(n, agent)}
            await asyncio.gather(*(server.ready() for server in others - {*agent.servers}))
        except UnknownTools:
            raise
        except (NotDone, ConfigError) as error:
            raise ToolsUnready(f"agent {name}: {error}") from error

    async def reach(self, agent: str, tools: Iterable[str]) -> str:
        """Reach the servers that may have these tools of an agent; why one could not be reached."""
        known = self.agents.get(agent)
        if known is None:
            return ""
        wanted = [name for name in tools if name not in known.tools]
        servers = [s for s in known.servers if any(could_offer(s, name) for name in wanted)]
        for server in servers:
            try:
                await server.ready()
            except (NotDone, ConfigError) as error:
                return str(error)
            if not is_known(server):
                fault = str(getattr(server, "fault", ""))
                return fault or f"the server {server.name} cannot be reached"
        return ""

    @property
    def policy(self) -> Policy:
        """What may run unasked, as the deployment decides."""
        return self._deployment.policy

    @property
    def on_change(self) -> OnChange:
        """What becomes of a run that another version of its agent has worked on."""
        return self._deployment.on_change

    async def grants(self, store: Store) -> Grants:
        """The standing grants of a store as they are now; only what is new of them is read.

        Raises:
            StoreError: they cannot be read.
        """
        of, known = self._grants
        head = (await store.info("store")).head
        if of is not store:
            known = NO_GRANTS
        if head != known.head:
            news = await store.read("store", after=known.head)
            if any(isinstance(entry.event, PrincipalErased) for entry in news):
                known, news = NO_GRANTS, await store.read("store")  # some are there no more
            known = fold_grants(known, news)
            self._grants = (store, known)
        return known

    async def uphold(self, store: Store) -> None:
        """Have the deployment's budgets stand in the store, once.

        Raises:
            StoreError: they could not be set, so nothing may be spent.
        """
        budgets = self._deployment.budgets
        if self._upheld or budgets is None:
            return
        await store.set_budgets(budgets, self.clock.now_us(), self.driver())
        self._upheld = True

    @staticmethod
    def driver() -> str:
        """How this process is called in a journal."""
        return f"{platform.node()}:{os.getpid()}, cairn {__version__}"

    def variant(
        self,
        agent: str | Agent,
        policy: Policy | None = None,
        ladder: Ladder | None = None,
    ) -> Crew:
        """An agent made ready under another policy or ladder than this process drives by.

        Raises:
            UnknownAgent: this process does not know it.
            ConfigError: the policy or the ladder is none.
        """
        deployment = self._deployment
        if policy is not None and not callable(getattr(policy, "judge", None)):
            raise ConfigError("policy", f"{safe_repr(policy)} is none", "Give a cairn.Policy")
        if ladder is not None and not isinstance(ladder, Ladder):
            raise ConfigError("ladder", f"{safe_repr(ladder)} is none", "Give a cairn.Ladder")
        if isinstance(agent, str):
            crew = self.crew(agent)
            if policy is None and ladder is None:
                return crew
            agent = crew.agent
        return prepare(
            agent,
            policy if policy is not None else deployment.policy,
            ladder if ladder is not None else deployment.ladder,
            deployment.unknown_price,
            deployment.hooks,
        )

    def check(self, model: Model) -> None:
        """Look, once, whether a crew's model could be asked by this process.

        Raises:
            ModelUnready: a key, a package or an address is missing.
        """
        check = getattr(model, "check", None)
        if check is None or id(model) in self._checked:
            return
        try:
            check()
        except ConfigError as error:
            raise ModelUnready.of(error) from error
        self._checked.add(id(model))

    def loading(self, model: Model) -> Coroutine[Any, Any, None] | None:
        """What loads a crew's model before its first request; None when there is nothing to load.

        It raises `ModelUnready` as `check` does.
        """
        ready = getattr(model, "ready", None)
        if ready is None or id(model) in self._loaded:
            return None
        return self._load(model, ready)

    async def _load(self, model: Model, ready: Callable[[], Awaitable[None]]) -> None:
        try:
            await contained(f"loading what {model.name} needs", ready())
        except ConfigError as error:
            raise ModelUnready.of(error) from error
        self._loaded.add(id(model))

    async def close(self) -> None:
        """Give back what models hold open in this loop, and what servers of tools hold at all."""
        self._loaded.clear()
        for crew in self._crews.values():
            for model in crew.models:
                close = getattr(model, "close", None)
                if close is not None:
                    closed = close()
                    if inspect.isawaitable(closed):
                        await closed
        for server in {s for agent in self.agents.values() for s in agent.servers}:
            await server.close()

    def desk(
        self,
        store: Store,
        state: RunState,
        call: Call | None = None,
        redact: Callable[[str], str] = str,
    ) -> Desk | None:
        """What this run, or one call of it, gets as its memory; None where there is none.

        Args:
            store: Where the run lives; its memory too, unless the deployment has another.
            state: The run as it is now: what it has read says how far it is trusted.
            call: The call; None for what the runtime itself looks up.
            redact: Takes secrets out of what is kept.
        """
        rules, memory = self.memory_rules, self.memory(store)
        if memory is None:
            return None
        return Desk(
            memory,
            rules,
            principal=state.principal,
            now=self.clock.now_us,
            agent=state.agent,
            project=state.created.project if state.created else "",
            run=state.run,
            call=call.id if call is not None else "",
            taint=state.taint,
            key=lambda: call.key if call is not None else "",
            redact=redact,
            asks=self.asks,
        )

    async def asks(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a small function of the deployment's gives, for at most 10 seconds.

        Raises:
            TimeoutError, RuntimeError: as `called`; and whatever it raises itself.
        """
        return await called(name, function, *arguments, seconds=ASKED_S, threads=self.threads)

    def memory(self, store: Store) -> Memory | None:
        """Where facts live, for runs of this store; None where there is no memory."""
        of, memory = self._memory
        if of is not store:
            memory = self.memory_rules.on(store)
            self._memory = (store, memory)
        return memory

    @property
    def memory_rules(self) -> MemoryRules:
        """What the deployment decides about memory."""
        return self._deployment.memory

    @property
    def makes_deps(self) -> bool:
        """Whether `deps` calls code of the deployment, which may take its time."""
        return callable(self._deployment.deps)

    async def deps(self, state: RunState) -> Any:
        """What the tools of this run get as `ctx.deps`.

        Raises:
            DepsFailed: the deployment's factory raised.
        """
        deps = self._deployment.deps
        if not callable(deps):
            return deps
        try:
            given = (state.principal,) if _needs(deps) else ()
            return await called("the deps factory", deps, *given, threads=self.threads)
        except Exception as error:  # the deployment's fault, not the run's: it stays resumable
            said = f"the deps factory failed for run {state.run}: {words_of(error)}"
            if isinstance(error, RuntimeError) and "no running event loop" in said_by(error):
                said += ". Declare it with async def: a plain factory runs in a thread"
            raise DepsFailed(said) from error


def check_deps(deps: Any) -> Any:
    """What a deployment lends its tools, itself.

    Raises:
        ConfigError: it is a factory that needs more than a principal.
    """
    if callable(deps):
        _needs(deps)
    return deps


def _needs(deps: Callable[..., Any]) -> int:
    """How many arguments a factory needs: none, or a principal."""
    try:
        needed = [each for each in inspect.signature(deps).parameters.values() if _is_needed(each)]
    except ValueError:  # some callables of C have no signature to be read
        return 0
    if len(needed) > 1 or any(each.kind is inspect.Parameter.KEYWORD_ONLY for each in needed):
        raise ConfigError(
            "Runtime.deps",
            f"the factory needs {len(needed)} arguments",
            "Give a function of one Principal, or of nothing",
        )
    return len(needed)


def _is_needed(parameter: inspect.Parameter) -> bool:
    various = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return parameter.default is inspect.Parameter.empty and parameter.kind not in various
