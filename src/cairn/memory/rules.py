"""What a deployment decides about memory: who shares what, and what a person has to look at."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from cairn.core.messages import Principal, Record
from cairn.core.names import listed, nearest
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, safe_repr, words_of
from cairn.memory.embedding import LONGEST_S, TIMEOUT_S, Embedding
from cairn.memory.facts import MAX_NAME_CHARS, Scope, is_number, user_scope
from cairn.memory.port import Embedder, Memory

Review = Literal["untrusted", "all", "none"]
REVIEWS = ("untrusted", "all", "none")
Project = str | Callable[[Principal], str]
Asks = Callable[..., Awaitable[Any]]
"""Calls a function that a deployment lends: its name for messages, itself, what it is given."""


async def at_once(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it here and now: the way of who has no threads to lend."""
    given = function(*arguments)
    return await given if inspect.isawaitable(given) else given


class MemoryRules(Record, gc=True):
    """What a deployment decides about the memory of its runs.

    Args:
        review: Which facts that a run keeps wait until a person has accepted them: those that may
            come from `untrusted` content (default), `all`, or `none`. One that would replace a
            fact of more trust waits whatever stands here.
        project: Name of the project whose runs share facts of the scope `project`, within a
            tenant; or a function of a `Principal` that gives it, empty for none, in 10 seconds
            at most (it runs in a thread). Default: each run's own, where it was said for the run
            (`rt.run(..., project="shop")`).
        projects: Names of the projects that a run may say. By default any, or, where `project`
            is given, no other than that one.
        agents: Names of agents whose runs share facts of the scope `agent`, whoever they work
            for, within a tenant. Default: none.
        embedder: Gives texts a meaning in numbers, for ranking; None for full text only.
        embed_timeout: Seconds it may take; after that it is full text. Default 3.
        memory: Where facts live; the runtime's own store by default.

    Raises:
        ConfigError: a value is not usable.
    """

    review: Review = "untrusted"
    project: Project = ""
    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    embedder: Embedder | None = None
    embed_timeout: float = TIMEOUT_S
    memory: Memory | None = None

    def __post_init__(self) -> None:
        review, project, agents = _given(self)
        if review not in REVIEWS:
            fix = f"Use {', '.join(REVIEWS)}"
            raise ConfigError("MemoryRules.review", f"{safe_repr(review)} is unknown", fix)
        if not isinstance(project, str) and not callable(project):
            fix = "Give a name, or a function of a Principal"
            raise ConfigError("MemoryRules.project", f"{safe_repr(project)} is neither", fix)
        if callable(project):
            check_taker("MemoryRules.project", project, "a Principal")
        if isinstance(project, str):
            check_project("MemoryRules.project", project)
        named: object = self.projects
        if not isinstance(named, tuple):
            fix = 'Give names, as ("shop",)'
            raise ConfigError("MemoryRules.projects", f"{safe_repr(named)} are none", fix)
        for name in self.projects:
            if not check_project("MemoryRules.projects", name):
                raise ConfigError("MemoryRules.projects", "a name is empty", "Leave it out")
        if not isinstance(agents, tuple) or not all(isinstance(name, str) for name in agents):
            fix = 'Give names, as ("support",)'
            raise ConfigError("MemoryRules.agents", f"{safe_repr(agents)} are none", fix)
        if not is_number(self.embed_timeout) or not 0 < self.embed_timeout <= LONGEST_S:
            problem = f"{safe_repr(self.embed_timeout)} s cannot be"
            raise ConfigError("MemoryRules.embed_timeout", problem, f"Give 0.1 to {LONGEST_S} s")
        self.embedding()

    def embedding(self) -> Embedding | None:
        """The embedder made safe; None when there is none."""
        if self.embedder is None:
            return None
        return Embedding(self.embedder, self.embed_timeout)

    def on(self, store: Any) -> Memory | None:
        """The memory: as given, else in this store; None for a store that has none."""
        if self.memory is not None:
            return self.memory
        make = getattr(store, "memory", None)
        made: Memory | None = None if make is None else make(self.embedding())
        return made

    def waits(self, trust: str) -> bool:
        """Whether a fact of this trust, kept by a run, waits for a person."""
        return self.review == "all" or (self.review == "untrusted" and trust == "untrusted")

    def scopes(
        self, principal: Principal, agent: str, project: str = "", own: str | None = None
    ) -> dict[str, Scope]:
        """The scopes that a run of an agent for a principal sees, by their kind.

        `project` is what was said for the run. One that the rules do not let it say is no scope.
        `own` is what the method of this name gave; without it, a function is called in place.

        Raises:
            ConfigError: the function that names the project failed.
        """
        found = {"user": user_scope(principal)}
        name = self._project(principal) if own is None else own
        if project:
            name = project if self._may_say(project, name) else ""
        if name:
            found["project"] = Scope(kind="project", name=name, tenant=principal.tenant)
        if agent in self.agents:
            found["agent"] = Scope(kind="agent", name=agent, tenant=principal.tenant)
        return found

    async def check_said(self, principal: Principal, project: str, asks: Asks = at_once) -> str:
        """The project that is said for a run of this principal, if it may be; empty for none.

        `asks` calls the function that names the project, where there is one.

        Raises:
            ConfigError: it is no name, or the rules know other ones.
        """
        if not check_project("project", project):
            return ""
        own = await self.own(principal, asks)
        if self._may_say(project, own):
            return project
        known = tuple(dict.fromkeys(filter(None, (own, *self.projects))))
        close = nearest(project, known)
        fix = (
            f"Name it in MemoryRules(projects=...), or use {listed(known)}"
            if known
            else ("Name it in MemoryRules(projects=...)")
        )
        if close:
            fix = f"Did you mean {' or '.join(map(repr, close))}? {fix}"
        problem = f"the memory rules let no run for {principal.id!r} say {safe_repr(project)}"
        raise ConfigError("project", problem, fix)

    def _may_say(self, project: str, own: str) -> bool:
        if self.projects:
            return project == own or project in self.projects
        return not self.project or project == own

    def scope(
        self,
        kind: str,
        principal: Principal,
        agent: str,
        project: str = "",
        own: str | None = None,
    ) -> Scope:
        """The scope of this kind that a run of an agent for a principal sees. See `scopes`.

        Raises:
            ConfigError: nobody shares such a scope, or it is not said whose it is.
        """
        scopes = self.scopes(principal, agent, project, own)
        if kind in scopes:
            return scopes[kind]
        if kind == "agent" and self.agents and not agent:
            fix = f"Name it with agent=: {listed(self.agents)}"
            raise ConfigError("scope", "facts of the scope 'agent' are those of one agent", fix)
        whose = f" by agent {safe_repr(agent)}" if kind == "agent" and agent else ""
        problem = f"facts of the scope {safe_repr(kind)} are not shared here{whose}"
        fix = f"Use {' or '.join(scopes)}"
        if kind == "project":
            fix += ", or have the project said (project=) where the run is handed over"
        raise ConfigError("scope", problem, fix)

    def strangers(self, known: Sequence[str]) -> tuple[str, ...]:
        """What there is to say of names in `agents` that none of these agents has."""
        said = []
        for name in self.agents:
            if name not in known:
                close = nearest(name, known)
                meant = f"did you mean {close[0]!r}?" if close else "another process may have it"
                said.append(f"MemoryRules.agents names {name!r}, which is not here; {meant}")
        return tuple(said)

    async def own(self, principal: Principal, asks: Asks = at_once) -> str:
        """The project that the rules name for a principal; empty for none.

        Args:
            principal: For whom a run works.
            asks: Calls the function that names it, where there is one.

        Raises:
            ConfigError: the function failed, took too long, or gave no name.
        """
        if isinstance(self.project, str):
            return self.project
        try:
            named = await asks("MemoryRules.project", self.project, principal)
        except (asyncio.CancelledError, GeneratorExit):  # it is who waits here that ends
            raise
        except BaseException as error:  # the deployment's own; even SystemExit shares no mistake
            raise _failed(error) from error
        return _named(named)

    def _project(self, principal: Principal) -> str:
        if isinstance(self.project, str):
            return self.project
        try:
            named: object = self.project(principal)
        except BaseException as error:  # the deployment's own; even SystemExit shares no mistake
            raise _failed(error) from error
        return _named(named)


def _failed(error: BaseException) -> ConfigError:
    problem = f"the function failed: {words_of(error)}"
    return ConfigError("MemoryRules.project", problem, "Look at it")


def _named(given: object) -> str:
    if not isinstance(given, str):
        problem = f"the function gave {type(given).__name__}"
        raise ConfigError("MemoryRules.project", problem, "Let it give a name, or ''")
    return given


def check_project(field: str, name: object) -> str:
    """The name of a project itself, if it is one; empty for none.

    Raises:
        ConfigError: names the field; it is no text, is blank or too long, or has signs in it that
            nobody sees.
    """
    if not isinstance(name, str):
        raise ConfigError(field, f"{safe_repr(name)} is no text", "Give a name, as 'shop'")
    if name and (len(name) > MAX_NAME_CHARS or name.strip() != name or not name.isprintable()):
        fix = f"Use 1 to {MAX_NAME_CHARS} plain characters, without blanks around them"
        raise ConfigError(field, f"{safe_repr(name, 60)} is no name of a project", fix)
    return name


def _given(rules: MemoryRules) -> tuple[object, object, object]:
    """What was given, whatever its types say."""
    return rules.review, rules.project, rules.agents


DEFAULT_RULES = MemoryRules()
