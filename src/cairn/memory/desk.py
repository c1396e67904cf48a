"""A memory as one run may use it: its own scopes, its trust, its taint, its principal.

The model chooses words, never an owner: for whom a fact is kept and who may see it is the run's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cairn.core.evolve_calls import UNCHECKED
from cairn.core.messages import Principal, Record
from cairn.errors import ConfigError, Refused, UnknownRun, safe_repr
from cairn.memory.facts import Fact, Hit, Kept, NewFact, Scope, fact_number, tokens_of
from cairn.memory.port import Memory
from cairn.memory.rules import Asks, MemoryRules, at_once

FROM_MEMORY = "memory"
"""The label of everything that was recalled."""
UNTRUSTED = "memory:untrusted"
"""The label of what was recalled and is not trusted; the fact's own labels stand beside it."""
MAY_COME = (FROM_MEMORY, UNCHECKED)
"""What a tool that recalls declares: the worst, until it is known what it recalls."""
DAY_US = 86_400_000_000
MAX_DAYS = 3_650
MAX_TOKENS = 8_000
Where = Literal["all", "user", "project", "agent"]


def end_of(days: object, now: int, field: str) -> int:
    """When a fact counts no more that is kept now for so many days; 0 for never, as None says.

    Raises:
        ConfigError: it is no number above 0 and of up to 3,650, or no time at all; names the field.
    """
    if days is None:
        return 0
    fine = isinstance(days, int | float) and not isinstance(days, bool) and 0 < days <= MAX_DAYS
    us = round(days * DAY_US) if fine else 0  # type: ignore[operator]  # a number, if it is fine
    if not us:
        fix = f"Give days above 0, {MAX_DAYS:,} at most, or leave it out: then it counts for ever"
        raise ConfigError(field, f"{safe_repr(days, 60)} cannot be", fix)
    return now + us


class Told(Record, gc=True):
    """What a run is told of a question.

    Args:
        hits: Facts, the best first, each with the trust this run may have in it.
        labels: The taint that they bring.
        degraded: Why they may not be the best there are.
        more: How many further facts did not fit.
    """

    hits: tuple[Hit, ...] = ()
    labels: tuple[str, ...] = ()
    degraded: str = ""
    more: int = 0


class Desk:
    """What a call of a run gets as `ctx.memory`.

    Args:
        memory: Where facts live.
        rules: What the deployment decides.
        principal, agent, run, call: Whose call it is.
        project: What the run is about, where that was said; empty for what the rules say.
        taint: Labels of the untrusted content that the run has read.
        key: Names the call, whatever its attempt.
        now: Tells the time, in microseconds since 1970.
        redact: Takes secrets out of a text.
        asks: Calls a function that the deployment lends, by a name for messages.
    """

    def __init__(  # noqa: PLR0913 - the engine hands over plain values, each by its name
        self,
        memory: Memory,
        rules: MemoryRules,
        *,
        principal: Principal,
        now: Callable[[], int],
        agent: str = "",
        project: str = "",
        run: str = "",
        call: str = "",
        taint: frozenset[str] = frozenset(),
        key: Callable[[], str] = str,
        redact: Callable[[str], str] = str,
        asks: Asks = at_once,
    ) -> None:
        self.memory = memory
        self.principal = principal
        self.now = now
        self.asks = asks
        self._rules = rules
        self._agent = agent
        self._project = project
        self._own: str | None = None
        self._run = run
        self._call = call
        self._taint = taint
        self._key = key
        self._redact = redact

    async def remember(
        self,
        text: str,
        where: str = "user",
        *,
        days: float | None = None,
        supersedes: str = "",
        tags: tuple[str, ...] = (),
    ) -> Kept:
        """Keep a fact of this run.

        Raises:
            ConfigError: a value is not usable, or the deployment shares no such scope.
            UnknownRun, Refused: see `Memory.keep`.
        """
        await self._ask_whose()
        now = self.now()
        labels = self._untrusted()
        trust: Literal["untrusted", "agent"] = "untrusted" if labels else "agent"
        new = NewFact(
            text=self._redact(text),
            scope=self._scope(where),
            principal=self.principal.id,
            trust=trust,
            taint=labels,
            run=self._run,
            call=self._call,
            expires_at=end_of(days, now, "expires_days"),
            supersedes=fact_number(supersedes) if supersedes.strip() else 0,
            tags=tuple(map(self._redact, tags)),
            waits=self._rules.waits(trust),
        )
        return await self.memory.keep(new, self._key(), now)

    async def recall(
        self, query: str, where: str = "all", limit: int = 5, tokens: int = 2_000
    ) -> Told:
        """What is known of a question, within a number of tokens.

        Raises:
            ConfigError: a value is not usable, or the deployment shares no such scope.
        """
        if not 1 <= tokens <= MAX_TOKENS:
            raise ConfigError("tokens", f"{tokens} cannot be", f"Give 1 to {MAX_TOKENS:,}")
        await self._ask_whose()
        scopes = self.scopes() if where == "all" else (self._scope(where),)
        found = await self.memory.recall(query, scopes, limit, self.now())
        hits: list[Hit] = []
        for hit in found.hits:
            tokens -= tokens_of(hit.fact)
            if tokens < 0 and hits:
                break
            hits.append(hit)
        more = len(found.hits) - len(hits)
        facts = [hit.fact for hit in hits]
        return Told(hits=tuple(hits), labels=self.labels(facts), degraded=found.degraded, more=more)

    async def forget(self, id: str) -> list[int]:
        """Remove a fact that was kept for this run's principal, and those it had replaced.

        Raises:
            UnknownRun: there is no such fact that this run could see.
            Refused: it, or one that it had replaced, was kept for another principal, or is trusted
                while this run has read untrusted content.
        """
        n = fact_number(id)
        await self._ask_whose()
        try:
            fact = await self.memory.get(n)
        except UnknownRun:
            fact = None
        if fact is None or not self.sees(fact):  # whether there is one is nobody else's business
            raise UnknownRun(f"there is no fact m{n}")
        if not fact.of(self.principal):
            raise Refused(f"m{n} was kept for another principal: a person can remove it")
        return await self.memory.forget(
            n,
            self.now(),
            reason=f"{self._run}/{self._call}",
            of=self.principal,
            trusted=not self._untrusted(),
        )

    async def is_gone(self, id: str) -> bool:
        """Whether a fact was removed: what a repeated call of `forget` goes by."""
        return await self.memory.gone(fact_number(id)) is not None

    # ------------------------------------------------------------ whose it is

    def scopes(self) -> tuple[Scope, ...]:
        """All scopes that this run sees."""
        found = self._rules.scopes(self.principal, self._agent, self._project, self._own)
        return tuple(found.values())

    def sees(self, fact: Fact) -> bool:
        """Whether a fact is in one of them."""
        return fact.scope in self.scopes()

    def trusts(self, fact: Fact) -> bool:
        """Whether this run may take a fact for more than material."""
        return fact.trust_for(self.principal) != "untrusted"

    def labels(self, facts: list[Fact]) -> tuple[str, ...]:
        """The taint that facts bring to this run."""
        found = {FROM_MEMORY} if facts else set()
        for fact in facts:
            if not self.trusts(fact):
                found |= {UNTRUSTED, *fact.content.taint}
        return tuple(sorted(found))

    def _untrusted(self) -> tuple[str, ...]:
        """Labels of the untrusted content that the run has read."""
        return tuple(sorted(self._taint - {FROM_MEMORY}))

    def _scope(self, where: str) -> Scope:
        return self._rules.scope(where, self.principal, self._agent, self._project, self._own)

    async def _ask_whose(self) -> None:
        """Have the rules name their project, once for all that is asked here."""
        if self._own is None:
            self._own = await self._rules.own(self.principal, self.asks)
