"""What a runtime is made of, checked: its agents, policy, ladder and hooks, and a run's policy."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.agent import Agent
from cairn.core.ladder import Ladder
from cairn.core.policy import Policy
from cairn.errors import ConfigError, safe_repr
from cairn.governance.rule_names import declared_labels
from cairn.governance.tool_names import Naming, check_names, check_offered
from cairn.hooks import Hook, checked_hooks, joined


def check_deployment(agents: object, policy: object, ladder: object) -> list[Agent]:
    """The agents, if they, the policy and the ladder can work together.

    A name in the policy that no tool has or can have is refused: a misspelt deny would deny
    nothing. Those that servers of tools may have are looked at when these were reached.

    Raises:
        ConfigError: something is of another kind, doubled, or misspelt.
    """
    if not isinstance(agents, list | tuple) or not all(isinstance(a, Agent) for a in agents):
        raise ConfigError(
            "Runtime.agents", f"{safe_repr(agents)} cannot be used", "Give a list of Agent"
        )
    names = [agent.name for agent in agents]
    if doubled := sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(
            "Runtime.agents", f"two agents are named {doubled[0]!r}", "Rename one of them"
        )
    if not callable(getattr(policy, "judge", None)):
        raise ConfigError("Runtime.policy", f"{safe_repr(policy)} is none", "Give a cairn.Policy")
    if not isinstance(ladder, Ladder):
        raise ConfigError("Runtime.ladder", f"{safe_repr(ladder)} is none", "Give a cairn.Ladder")
    for naming in namings(policy, agents, agents) if agents else ():
        check_names(naming)
    return list(agents)


def check_hooks(hooks: object, agents: Sequence[Agent]) -> tuple[Hook, ...]:
    """The hooks that are asked for all agents, if they are some.

    One that waits for a tool which no agent has is refused: it would guard nothing. Where servers
    of tools are used, what they offer is not known yet.

    Raises:
        ConfigError: one is none, or two that are asked about the same run share a name.
    """
    known = bool(agents) and not any(agent.servers for agent in agents)
    there = {name for agent in agents for name in agent.tools} if known else None
    found = checked_hooks(hooks, "Runtime.hooks", there)
    for agent in agents:
        joined(found, agent.hooks, f"Agent({agent.name!r}).hooks")
    return found


def namings(policy: object, everybody: Sequence[Agent], of: Sequence[Agent]) -> list[Naming]:
    """A deployment's policy and those of these agents, with whom else each is for."""
    whole, found = tuple(everybody), []
    labels: frozenset[str] = frozenset()
    if isinstance(policy, Policy):  # code of the deployment's own names nothing
        labels = declared_labels(policy)
        found.append(Naming(policy=policy, agents=whole, where="Runtime.policy"))
    for agent in of:
        if agent.policy is not None:
            where = f"Agent({agent.name!r}).policy"
            found.append(
                Naming(
                    policy=agent.policy,
                    agents=(agent,),
                    where=where,
                    everybody=whole,
                    labels=labels,
                )
            )
    return found


def check_run_policy(
    given: object, agent: Agent, everybody: Sequence[Agent] = (), deployed: object = None
) -> Policy | None:
    """The policy that narrows a run, if it is one that its journal can hold.

    Args:
        given: The policy.
        agent: Whose run it is.
        everybody: All agents of the runtime, whose labels may come into the session.
        deployed: The deployment's policy, whose further labels it may name.

    Raises:
        ConfigError: it is none, decides by code, or names what is not there.
    """
    if given is None:
        return None
    if type(given) is not Policy or given.parts:
        fix = "Give a cairn.Policy of tools, effects and rules"
        raise ConfigError("policy", f"{safe_repr(given)} cannot narrow a run", fix)
    labels = declared_labels(deployed) if isinstance(deployed, Policy) else frozenset()
    naming = Naming(
        policy=given,
        agents=(agent,),
        where="policy",
        everybody=tuple(everybody),
        labels=labels,
    )
    check_names(naming)
    check_offered(naming, agent, strict=True)
    return given
