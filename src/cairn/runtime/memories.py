"""The verbs of memory: what people add, look up, accept, remove and take away with them."""

from __future__ import annotations

from cairn.core.messages import Principal, clean
from cairn.engine.given import person_of, principal_of
from cairn.errors import ConfigError
from cairn.memory.desk import DAY_US, MAX_DAYS, MAX_TOKENS, Desk, Told
from cairn.memory.facts import (
    Erased,
    Fact,
    FactFilter,
    Kept,
    NewFact,
    Trust,
    fact_number,
)
from cairn.memory.port import Memory
from cairn.memory.rules import DEFAULT_RULES, MemoryRules
from cairn.runtime.ground import Ground
from cairn.runtime.twins import twin

ALL = 10_000


def memory_rules_of(given: MemoryRules | Memory | None) -> MemoryRules:
    """The rules that `Runtime(memory=...)` means.

    Raises:
        ConfigError: it is neither rules nor a memory.
    """
    if given is None:
        return DEFAULT_RULES
    if isinstance(given, MemoryRules):
        return given
    if not all(hasattr(given, verb) for verb in ("keep", "recall", "forget", "erase")):
        fix = "Give MemoryRules(...), or an object that is a cairn.Memory"
        raise ConfigError("Runtime.memory", f"{given!r:.200} is neither", fix)
    return MemoryRules(memory=given)


class Remembering(Ground):
    """What outlasts runs."""

    @property
    def memory(self) -> Memory:
        """Where facts live.

        Raises:
            ConfigError: the store has none, and none was given.
        """
        found = self.host.memory(self.store)
        if found is None:
            fix = "Give Runtime(memory=MemoryRules(memory=...))"
            raise ConfigError("Runtime.memory", "this store keeps no facts", fix)
        return found

    async def remember_async(
        self,
        text: str,
        *,
        principal: Principal | str = "local",
        scope: str = "user",
        agent: str = "",
        days: float = 0.0,
        supersedes: str = "",
        tags: tuple[str, ...] = (),
        by: Principal | str = "",
    ) -> Kept:
        """Have a fact remembered that a person vouches for.

        Args:
            text: The fact; at most 4,000 characters. Secrets are taken out of it.
            principal: For whom.
            scope: `user`, or `project` or `agent` where the deployment shares them.
            agent: Whose facts, in the scope `agent`.
            days: After how many days it counts no more; 0 for never.
            supersedes: The fact it replaces, as `m7`.
            tags: Words to sort and find it by.
            by: Who adds it, kept as the fact's actor; the principal by default.

        Raises:
            ConfigError: a value is not usable, or nobody shares such a scope.
            UnknownRun, Refused: the fact to be replaced is not there, or was replaced before.
        """
        whose = principal_of(principal)
        scopes = self.host.memory_rules.scopes(whose, agent)
        if scope not in scopes:
            fix = f"Use {' or '.join(scopes)}"
            raise ConfigError("scope", f"facts of the scope {scope!r} are not shared here", fix)
        if not 0 <= days <= MAX_DAYS:
            raise ConfigError("days", f"{days} cannot be", f"Give 0 to {MAX_DAYS:,}")
        now = self.host.clock.now_us()
        redact = self.host.secrets.of(whose).text
        new = NewFact(
            text=redact(clean(text)),
            scope=scopes[scope],
            principal=whose.id,
            trust="owner",
            expires_at=now + round(days * DAY_US) if days else 0,
            supersedes=fact_number(supersedes) if supersedes else 0,
            tags=tuple(redact(clean(tag)) for tag in tags),
        )
        actor = person_of(by, ()).id or whose.id
        return await self.memory.keep(new, "", now, actor)

    async def recall_async(
        self,
        query: str,
        *,
        principal: Principal | str = "local",
        scope: str = "all",
        agent: str = "",
        limit: int = 5,
    ) -> Told:
        """What a run of this principal would be told.

        Args:
            query: What to look for.
            principal: For whom.
            scope: `all` that they see, or one of `user`, `project` and `agent`.
            agent: Whose facts are among them, where the deployment shares them.
            limit: How many facts at most, up to 50.

        Raises:
            ConfigError: a value is not usable, or nobody shares such a scope.
        """
        desk = Desk(
            self.memory,
            self.host.memory_rules,
            principal=principal_of(principal),
            now=self.host.clock.now_us,
            agent=agent,
        )
        return await desk.recall(query, scope, limit, MAX_TOKENS)

    async def facts_async(
        self, principal: Principal | str | None = None, *, state: str = ""
    ) -> list[Fact]:
        """Facts, the oldest first, whatever their scope.

        Args:
            principal: Only those kept for this one; all by default.
            state: Only `live`, `waiting` or `superseded` ones; all by default.
        """
        where = FactFilter(limit=ALL, state=_state(state))
        if principal is not None:
            whose = principal_of(principal)
            where = FactFilter(
                principal=whose.id, tenant=whose.tenant, state=_state(state), limit=ALL
            )
        return await self.memory.facts(where)

    async def accept_fact_async(
        self,
        fact: str,
        *,
        by: Principal | str = "",
        trust: Trust = "owner",
        reason: str = "",
    ) -> None:
        """Accept a fact: from here on it counts, with this trust. Nothing else raises it.

        Args:
            fact: Its id, as `m7`. It waits, or it is remembered already.
            by: Who accepts it; kept.
            trust: `owner` (default), `agent`, or `untrusted` for material that stays such.
            reason: Why; kept.

        Raises:
            UnknownRun: there is no such fact. Refused: it was replaced.
        """
        actor, said = person_of(by, ()).id, self.host.secrets.anyones().text(reason)
        now = self.host.clock.now_us()
        await self.memory.review(
            fact_number(fact), "accepted", now, actor=actor, trust=trust, reason=said
        )

    async def reject_fact_async(
        self, fact: str, *, by: Principal | str = "", reason: str = ""
    ) -> None:
        """Reject a fact: it is removed, and its tombstone says by whom.

        Raises:
            UnknownRun: there is no such fact. Refused: it was replaced.
        """
        actor, said = person_of(by, ()).id, self.host.secrets.anyones().text(reason)
        now = self.host.clock.now_us()
        await self.memory.review(fact_number(fact), "rejected", now, actor=actor, reason=said)

    async def forget_fact_async(
        self, fact: str, *, by: Principal | str = "", reason: str = ""
    ) -> list[str]:
        """Remove a fact, and those that it had replaced; the ids of all that went.

        Raises:
            UnknownRun: there is no such fact.
        """
        actor, said = person_of(by, ()).id, self.host.secrets.anyones().text(reason)
        now = self.host.clock.now_us()
        gone = await self.memory.forget(fact_number(fact), now, actor=actor, reason=said)
        return [f"m{n}" for n in gone]

    async def export_facts_async(self, principal: Principal | str) -> list[str]:
        """All facts kept for a principal, whatever their scope and state, as lines of JSON."""
        return await self.memory.export(principal_of(principal))

    async def erase_facts_async(
        self, principal: Principal | str, *, by: Principal | str = "", reason: str = ""
    ) -> Erased:
        """Remove all facts kept for a principal, so that no byte of them is left in the file.

        What runs wrote into their own journals stays there: that goes with the runs.
        """
        actor, said = person_of(by, ()).id, self.host.secrets.anyones().text(reason)
        now = self.host.clock.now_us()
        return await self.memory.erase(principal_of(principal), now, actor=actor, reason=said)

    remember = twin(remember_async)
    recall = twin(recall_async)
    facts = twin(facts_async)
    accept_fact = twin(accept_fact_async)
    reject_fact = twin(reject_fact_async)
    forget_fact = twin(forget_fact_async)
    export_facts = twin(export_facts_async)
    erase_facts = twin(erase_facts_async)


def _state(state: str) -> str:
    if state not in {"", "live", "waiting", "superseded"}:
        fix = "Use live, waiting or superseded"
        raise ConfigError("state", f"{state!r} is none", fix)
    return state
