"""The verbs of standing grants: what people allow from now on, for all runs of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from cairn.core import events as ev
from cairn.core.grants import Grant
from cairn.core.messages import Principal, clean
from cairn.engine.given import arguments_of, check_text, person_of
from cairn.engine.granting import GrantShown, grants_of, make_grant, revoke_grant, show_grant
from cairn.engine.numbers import check_flag
from cairn.errors import ConfigError, ToolsUnready, safe_repr
from cairn.governance.arguments import schema_of
from cairn.governance.grant_scope import Holder, looked_at, reader
from cairn.governance.tool_names import could_offer, meant
from cairn.runtime.checked import checked
from cairn.runtime.ground import Ground, said_in
from cairn.runtime.twins import twin

HOUR_US = 3_600_000_000
STRICTNESS: list[ev.Effect] = ["read", "write", "dangerous"]


class GrantOptions(TypedDict, total=False):
    """The scope of a grant, and who makes it; see `Runtime.grant`."""

    arguments: Mapping[str, Any] | str | None
    exact: bool
    agent: str
    principal: Principal | str
    hours: float
    uses: int
    reason: str
    by: Principal | str
    roles: tuple[str, ...]


class Granting(Ground):
    """Standing grants."""

    @checked
    async def show_grant_async(self, tool: str, **scope: Unpack[GrantOptions]) -> GrantShown:
        """Exactly what a grant would allow, and what it would have answered; nothing is written.

        Takes what `grant` takes, and raises what it raises.
        """
        wanted, warnings, holders = await self._wanted(tool, scope)
        now, read = self.host.clock.now_us(), reader(holders)
        return await show_grant(self.store, wanted, now, warnings, read)

    @checked
    async def grant_async(self, tool: str, **scope: Unpack[GrantOptions]) -> int:
        """Answer requests for approval of a tool from now on; the number of the grant.

        It answers where the policy asks, never a dangerous call and never one whose approval is
        bound to files. Terms of an approval hold for it as for a person: who makes it needs the
        roles, and is another person than the run's where that is asked for. Requests that are
        open already stay open.

        Args:
            tool: Name of a tool of one of this runtime's agents.
            **scope: All of them optional.

                * arguments: Those that must be equal, type and all; any by default. They are
                  kept as the tool validates them, and calls are compared as validated.
                * exact: Whether no other argument may stand beside them. An argument that is left
                  out counts as given with its default.
                * agent: Only for runs of this agent.
                * principal: Only for runs for this principal.
                * hours: How long it holds; 0 until it is revoked.
                * uses: How many calls it answers; 0 for any number.
                * reason: Why; kept.
                * by, roles: Who makes it, kept as the fact's actor, and their roles.

        Raises:
            Refused: the tool is dangerous, or who makes it may not approve its calls.
            ConfigError: there is no such tool, argument or agent, or a value is not usable.
            ToolsUnready: the tool may be of a server that cannot be reached.
        """
        wanted, _, _ = await self._wanted(tool, scope)
        who = person_of(scope.get("by", ""), ())
        names = {"principal": wanted.principal, "tenant": wanted.tenant}
        names |= {"role": "\n".join(wanted.roles), "actor": who.id}
        self.client.check_names(None, **names)
        wanted = self.host.secrets.anyones().value(wanted)
        return await make_grant(self.store, self.host.clock, wanted, who.id)

    @checked
    async def revoke_grant_async(
        self, n: int, reason: str = "", *, by: Principal | str = ""
    ) -> bool:
        """Let a grant answer nothing any more, in no process; False when it had ended already.

        Raises:
            UnknownGrant: there is no grant of this number.
            ConfigError: `n` is no number.
        """
        who, given = person_of(by, ()), object() if isinstance(n, bool) else n
        if not isinstance(given, int):
            raise ConfigError(
                "n", f"{safe_repr(n)} is no number of a grant", "Give it as in grants()"
            )
        self.client.check_names(None, actor=who.id)
        reason = self.host.secrets.anyones().text(reason)
        return await revoke_grant(self.store, self.host.clock, n, reason, who.id)

    @checked
    async def grants_async(self) -> list[Grant]:
        """All grants ever made in the store, as they are now, oldest first."""
        return list((await grants_of(self.store)).known.values())

    async def _wanted(
        self, tool: str, scope: GrantOptions
    ) -> tuple[ev.GrantMade, tuple[str, ...], list[Holder]]:
        """The grant, what is to be known of it, and the agents that have its tool."""
        check_text("grant.agent", scope.get("agent", ""))
        said_in("grant.reason", scope.get("reason", ""))
        check_flag("grant.exact", scope.get("exact", False))
        named = self._named(scope.get("agent", ""))
        for agent in named:
            servers = self.host.agents[agent].servers
            if any(could_offer(server, tool) for server in servers):
                await self.host.ready(agent)
                if why := await self.host.reach(agent, [tool]):
                    raise ToolsUnready(f"whether agent {agent} has a tool {tool!r}: {why}")
        wanted = self._scope(tool, scope)
        crews = [crew for crew in map(self.host.crew, named) if tool in crew.rules.tools]
        holders = [
            Holder(agent=c.agent.name, rules=c.rules, schema=schema_of(c.agent.tools[tool]))
            for c in crews
        ]
        wanted, warnings = looked_at(wanted, person_of(scope.get("by", ""), ()).id, holders)
        return wanted, warnings, holders

    def _named(self, agent: str) -> list[str]:
        """The agents in the scope."""
        if agent and agent not in self.host.agents:
            known = ", ".join(sorted(self.host.agents)) or "none"
            raise ConfigError(
                "grant.agent", f"there is no agent {safe_repr(agent)}", f"Known: {known}"
            )
        return [agent] if agent else sorted(self.host.agents)

    def _scope(self, tool: str, scope: GrantOptions) -> ev.GrantMade:
        if unknown := set(scope) - set(GrantOptions.__annotations__):
            fix = f"Use {', '.join(GrantOptions.__annotations__)}"
            raise ConfigError("grant", f"there is no option {min(unknown)!r}", fix)
        agent, hours = scope.get("agent", ""), scope.get("hours", 0.0)
        uses, arguments = scope.get("uses", 0), scope.get("arguments")
        _check_number("hours", hours, float)
        _check_number("uses", uses, int)
        whose = person_of(scope.get("principal", ""), (), "principal")
        until = self.host.clock.now_us() + round(hours * HOUR_US) if hours else 0
        return ev.GrantMade(
            n=0,
            tool=tool,
            effect=self._effect(tool, agent),
            arguments="" if arguments is None else arguments_of(arguments),
            exact=scope.get("exact", False),
            agent=agent,
            principal=whose.id,
            tenant=whose.tenant,
            until=until,
            uses=uses,
            roles=person_of(scope.get("by", ""), scope.get("roles", ())).roles,
            reason=clean(scope.get("reason", "")),
        )

    def _effect(self, tool: str, agent: str) -> ev.Effect:
        """The strictest effect that the tool has with the agents in the scope."""
        crews = [self.host.crew(name) for name in self._named(agent)]
        specs = [spec for crew in crews if (spec := crew.rules.tools.get(tool)) is not None]
        if not specs:
            known = sorted({name for crew in crews for name in crew.rules.tools})
            servers = [server for crew in crews for server in crew.agent.servers]
            fix = meant(tool, known, list(dict.fromkeys(servers)))
            raise ConfigError("grant.tool", f"no agent has a tool {safe_repr(tool)}", fix)
        if any(spec.binds is not None for spec in specs):
            said = f"approvals of {safe_repr(tool)} are bound to the content of files"
            raise ConfigError("grant.tool", said, "Approve each of its calls")
        return max((spec.effect for spec in specs), key=STRICTNESS.index)

    show_grant = twin(show_grant_async)
    grant = twin(grant_async)
    revoke_grant = twin(revoke_grant_async)
    grants = twin(grants_async)


def _check_number(field: str, value: object, kind: type) -> None:
    known = isinstance(value, int | kind) and not isinstance(value, bool)
    if not known or not 0 <= value < 1e9:  # type: ignore[operator]  # it is a number by now
        raise ConfigError(
            f"grant.{field}", f"{safe_repr(value)} cannot be used", "Give a number, 0 or more"
        )
