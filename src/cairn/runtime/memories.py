"""The verbs of memory: what people add, look up, accept, remove and take away with them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cairn.core.messages import Principal
from cairn.engine.given import check_text, person_of, principal_of
from cairn.errors import ConfigError, safe_repr
from cairn.memory.desk import MAX_TOKENS, Desk, Told, end_of
from cairn.memory.facts import (
    Erased,
    Fact,
    FactFilter,
    Indexed,
    Kept,
    NewFact,
    Trust,
    checked_tags,
    fact_number,
    typed,
)
from cairn.memory.listing import facts_as_of, state_of
from cairn.memory.port import Indexing, Memory
from cairn.memory.rules import DEFAULT_RULES, MemoryRules
from cairn.runtime.checked import checked
from cairn.runtime.ground import Ground, said_in
from cairn.runtime.twins import twin

ALL = 10_000
log = logging.getLogger("cairn")


def memory_rules_of(given: MemoryRules | Memory | None, agents: Sequence[str] = ()) -> MemoryRules:
    """The rules that `Runtime(memory=...)` means.

    Args:
        given: The argument.
        agents: Names of the runtime's agents, if it has any. A warning says which of those that
            share facts are not among them.

    Raises:
        ConfigError: it is neither rules nor a memory.
    """
    if given is None:
        return DEFAULT_RULES
    if isinstance(given, MemoryRules):
        for said in given.strangers(agents) if agents else ():
            log.warning("%s", said)
        return given
    if not all(hasattr(given, verb) for verb in ("keep", "recall", "forget", "erase")):
        fix = "Give MemoryRules(...), or an object that is a cairn.Memory"
        raise ConfigError("Runtime.memory", f"{safe_repr(given)} is neither", fix)
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

    @checked
    async def remember_async(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        text: str,
        *,
        principal: Principal | str = "local",
        scope: str = "user",
        agent: str = "",
        project: str = "",
        days: float | None = None,
        supersedes: str = "",
        tags: tuple[str, ...] = (),
        by: Principal | str = "",
    ) -> Kept:
        """Have a fact remembered that a person vouches for.

        Args:
            text: The fact; at most 4,000 characters. Registered secrets are taken out of it.
            principal: For whom.
            scope: `user`, or `project` or `agent` where the deployment shares them.
            agent: Whose facts, in the scope `agent`; needed there, and refused elsewhere.
            project: Of which project, in the scope `project`, and refused elsewhere; by default
                the one that `MemoryRules` names.
            days: After how many days it counts no more, above 0 and up to 3,650; None for never.
            supersedes: The fact it replaces, as `m7`.
            tags: Words to sort and find it by.
            by: Who adds it, kept as the fact's actor; the principal by default.

        Raises:
            ConfigError: a value is not usable, nobody shares such a scope, or text or tags hold
                what looks like a key.
            UnknownRun, Refused: the fact to be replaced is not there, or was replaced before.
        """
        whose = principal_of(principal)
        rules = self.host.memory_rules
        named = await rules.check_said(whose, project, self.host.asks)
        own = await rules.own(whose, self.host.asks)
        for kind, name in (("agent", check_text("agent", agent)), ("project", named)):
            if name and scope != kind:  # kept for somebody else than is said, it would not be found
                fix = f'Write scope="{kind}" beside it, or leave it out'
                raise ConfigError(kind, f"facts of the scope {safe_repr(scope)} have none", fix)
        within = rules.scope(scope, whose, agent, named, own)
        self.client.check_names(whose, project=named)
        now = self.host.clock.now_us()
        redact = self.host.secrets.of(whose).text
        new = NewFact(
            text=typed(text, redact, "text"),
            scope=within,
            principal=whose.id,
            trust="owner",
            expires_at=end_of(days, now, "days"),
            supersedes=fact_number(supersedes, "supersedes") if supersedes else 0,
            tags=checked_tags(tags, redact, "tags"),
        )
        actor = _actor(by) or whose.id
        return await self.memory.keep(new, "", now, actor)

    @checked
    async def recall_async(
        self,
        query: str,
        *,
        principal: Principal | str = "local",
        scope: str = "all",
        agent: str = "",
        project: str = "",
        limit: int = 5,
    ) -> Told:
        """What a run of this principal would be told.

        Args:
            query: What to look for.
            principal: For whom.
            scope: `all` that they see, or one of `user`, `project` and `agent`.
            agent: Whose facts are among them, where the deployment shares them.
            project: Of which project; by default the one that `MemoryRules` names.
            limit: How many facts at most, up to 50.

        Raises:
            ConfigError: a value is not usable, or nobody shares such a scope.
        """
        whose, rules = principal_of(principal), self.host.memory_rules
        desk = Desk(
            self.memory,
            rules,
            principal=whose,
            now=self.host.clock.now_us,
            agent=check_text("agent", agent),
            project=await rules.check_said(whose, project, self.host.asks),
            asks=self.host.asks,
        )
        return await desk.recall(said_in("query", query), scope, limit, MAX_TOKENS)

    @checked
    async def facts_async(
        self, principal: Principal | str | None = None, *, state: str = ""
    ) -> list[Fact]:
        """Facts, the oldest first, whatever their scope.

        Args:
            principal: Only those kept for this one; all by default.
            state: Only `live`, `expired`, `waiting` or `superseded` ones; all by default.
        """
        wanted = state_of(state, "state")
        where = FactFilter(limit=ALL, state=wanted)
        if principal is not None:
            whose = principal_of(principal)
            where = FactFilter(principal=whose.id, tenant=whose.tenant, state=wanted, limit=ALL)
        return await facts_as_of(self.memory, where, self.host.clock.now_us())

    @checked
    async def accept_fact_async(
        self,
        fact: str,
        *,
        by: Principal | str = "",
        trust: Trust = "owner",
        reason: str = "",
    ) -> None:
        """Accept a fact: from here on it counts, with this trust. Nothing else raises it.

        Where the principal has a live fact of the same words, one is left: that which counts
        longer, with the better trust of both. The other stands behind it as replaced by it.

        Args:
            fact: Its id, as `m7`. It waits, or it is remembered already.
            by: Who accepts it; kept.
            trust: `owner` (default), `agent`, or `untrusted` for material that stays such.
            reason: Why; kept.

        Raises:
            UnknownRun: there is no such fact. Refused: it was replaced, or it has expired.
        """
        actor, said = self._why(by, reason)
        now = self.host.clock.now_us()
        await self.memory.review(
            fact_number(fact), "accepted", now, actor=actor, trust=trust, reason=said
        )

    @checked
    async def reject_fact_async(
        self, fact: str, *, by: Principal | str = "", reason: str = ""
    ) -> None:
        """Reject a fact: it is removed, and its tombstone says by whom.

        What it had replaced lives again, as it was; what stood behind it in the same words is
        rejected with it.

        Raises:
            UnknownRun: there is no such fact. Refused: it was replaced.
        """
        actor, said = self._why(by, reason)
        now = self.host.clock.now_us()
        await self.memory.review(fact_number(fact), "rejected", now, actor=actor, reason=said)

    @checked
    async def forget_fact_async(
        self, fact: str, *, by: Principal | str = "", reason: str = ""
    ) -> list[str]:
        """Remove a fact, and those that it had replaced; the ids of all that went.

        Raises:
            UnknownRun: there is no such fact.
        """
        actor, said = self._why(by, reason)
        now = self.host.clock.now_us()
        gone = await self.memory.forget(fact_number(fact), now, actor=actor, reason=said)
        return [f"m{n}" for n in gone]

    @checked
    async def export_facts_async(self, principal: Principal | str) -> list[str]:
        """All facts kept for a principal, whatever their scope and state, as lines of JSON."""
        return await self.memory.export(principal_of(principal))

    @checked
    async def index_facts_async(self) -> Indexed:
        """Give vectors to the facts that have none, as those kept while the embedder was down.

        It happens by itself too, bit by bit, as facts are kept and recalled.

        Raises:
            ConfigError: there is no embedder, or this memory has no vectors.
        """
        memory = self.memory
        if not isinstance(memory, Indexing):
            fix = "Have it filled where it lives"
            raise ConfigError("MemoryRules.memory", "this memory has no index", fix)
        return await memory.index(self.host.clock.now_us())

    @checked
    async def erase_facts_async(
        self, principal: Principal | str, *, by: Principal | str = "", reason: str = ""
    ) -> Erased:
        """Remove all facts kept for a principal, so that no byte of them is left in the file.

        What runs wrote into their own journals stays there: that goes with the runs.
        """
        actor, said = self._why(by, reason)
        now = self.host.clock.now_us()
        return await self.memory.erase(principal_of(principal), now, actor=actor, reason=said)

    def _why(self, by: Principal | str, reason: str) -> tuple[str, str]:
        """Who decides, and why, as it may be kept."""
        said = self.host.secrets.anyones().text(said_in("reason", reason))
        return _actor(by), said

    remember = twin(remember_async)
    recall = twin(recall_async)
    facts = twin(facts_async)
    accept_fact = twin(accept_fact_async)
    reject_fact = twin(reject_fact_async)
    forget_fact = twin(forget_fact_async)
    export_facts = twin(export_facts_async)
    erase_facts = twin(erase_facts_async)
    index_facts = twin(index_facts_async)


def _actor(by: object) -> str:
    """Who a fact says has handled it: a name as a principal's is, and never altered."""
    return person_of(check_text("by", by) if isinstance(by, str) else by, ()).id
