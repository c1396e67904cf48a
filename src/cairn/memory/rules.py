"""What a deployment decides about memory: who shares what, and what a person has to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from cairn.core.messages import Principal, Record
from cairn.core.names import listed, nearest
from cairn.errors import ConfigError
from cairn.memory.embedding import LONGEST_S, TIMEOUT_S, Embedding
from cairn.memory.facts import Scope, is_number, user_scope
from cairn.memory.port import Embedder, Memory

Review = Literal["untrusted", "all", "none"]
REVIEWS = ("untrusted", "all", "none")
Project = str | Callable[[Principal], str]


class MemoryRules(Record, gc=True):
    """What a deployment decides about the memory of its runs.

    Args:
        review: Which facts that a run keeps wait until a person has accepted them: those that may
            come from `untrusted` content (default), `all`, or `none`. One that would replace a
            fact of more trust waits whatever stands here.
        project: Name of the project whose runs share facts of the scope `project`, within a
            tenant; or a function of a `Principal` that gives it, empty for none. Default: none.
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
    embedder: Embedder | None = None
    embed_timeout: float = TIMEOUT_S
    memory: Memory | None = None

    def __post_init__(self) -> None:
        review, project, agents = _given(self)
        if review not in REVIEWS:
            fix = f"Use {', '.join(REVIEWS)}"
            raise ConfigError("MemoryRules.review", f"{review!r} is unknown", fix)
        if not isinstance(project, str) and not callable(project):
            fix = "Give a name, or a function of a Principal"
            raise ConfigError("MemoryRules.project", f"{project!r} is neither", fix)
        if not isinstance(agents, tuple) or not all(isinstance(name, str) for name in agents):
            fix = 'Give names, as ("support",)'
            raise ConfigError("MemoryRules.agents", f"{agents!r} are none", fix)
        if not is_number(self.embed_timeout) or not 0 < self.embed_timeout <= LONGEST_S:
            problem = f"{self.embed_timeout!r} s cannot be"
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

    def scopes(self, principal: Principal, agent: str) -> dict[str, Scope]:
        """The scopes that a run of an agent for a principal sees, by their kind.

        Raises:
            ConfigError: the function that names the project failed.
        """
        found = {"user": user_scope(principal)}
        project = self._project(principal)
        if project:
            found["project"] = Scope(kind="project", name=project, tenant=principal.tenant)
        if agent in self.agents:
            found["agent"] = Scope(kind="agent", name=agent, tenant=principal.tenant)
        return found

    def scope(self, kind: str, principal: Principal, agent: str) -> Scope:
        """The scope of this kind that a run of an agent for a principal sees.

        Raises:
            ConfigError: nobody shares such a scope, or it is not said whose it is.
        """
        scopes = self.scopes(principal, agent)
        if kind in scopes:
            return scopes[kind]
        if kind == "agent" and self.agents and not agent:
            fix = f"Name it with agent=: {listed(self.agents)}"
            raise ConfigError("scope", "facts of the scope 'agent' are those of one agent", fix)
        whose = f" by agent {agent!r}" if kind == "agent" and agent else ""
        problem = f"facts of the scope {kind!r} are not shared here{whose}"
        raise ConfigError("scope", problem, f"Use {' or '.join(scopes)}")

    def strangers(self, known: Sequence[str]) -> tuple[str, ...]:
        """What there is to say of names in `agents` that none of these agents has."""
        said = []
        for name in self.agents:
            if name not in known:
                close = nearest(name, known)
                meant = f"did you mean {close[0]!r}?" if close else "another process may have it"
                said.append(f"MemoryRules.agents names {name!r}, which is not here; {meant}")
        return tuple(said)

    def _project(self, principal: Principal) -> str:
        if isinstance(self.project, str):
            return self.project
        try:
            named: object = self.project(principal)
        except Exception as error:  # the deployment's own function; nothing is shared by mistake
            problem = f"the function failed: {type(error).__name__}: {error}"
            raise ConfigError("MemoryRules.project", problem, "Look at it") from error
        if not isinstance(named, str):
            problem = f"the function gave {type(named).__name__}"
            raise ConfigError("MemoryRules.project", problem, "Let it give a name, or ''")
        return named


def _given(rules: MemoryRules) -> tuple[object, object, object]:
    """What was given, whatever its types say."""
    return rules.review, rules.project, rules.agents


DEFAULT_RULES = MemoryRules()
