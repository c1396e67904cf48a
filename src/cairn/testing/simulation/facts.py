"""What a simulated world sees of memory: each fact as it became durable, and all that became of it.

The book is written at the moment of each change, with the store's own answer; a crash right behind
it changes nothing of that. Every answer is compared with it: what is recalled, what is listed in
the end, and what runs say that they were told.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from cairn.core import events as ev
from cairn.core.messages import CallPart, Principal, Record, calls_of
from cairn.engine.conversation import previous_of
from cairn.memory.facts import (
    TRUSTS,
    Erased,
    Fact,
    FactFilter,
    Gone,
    Kept,
    NewFact,
    Recall,
    Scope,
    State,
    Trust,
)
from cairn.memory.port import Memory
from cairn.ports import Store
from cairn.testing.invariants import Violation

T = TypeVar("T")
replace = msgspec.structs.replace
ABOUT = ("kiwi", "plum", "fig")
"""What facts are about: each begins with one of these words, which are found as they stand."""
WEB = "fetch"
"""The tool that brings what nobody vouches for."""


class Known(Record):
    """A fact as the world knows it."""

    n: int
    new: NewFact
    key: str
    state: State
    trust: Trust
    actor: str
    successor: int = 0


class FactBook:
    """All facts that were ever kept."""

    def __init__(self) -> None:
        self.there: dict[int, Known] = {}
        self.gone: dict[int, Known] = {}
        self.told: set[int] = set()
        """Those of which somebody was told that they are kept."""
        self.found: list[Violation] = []
        self.seen: Counter[str] = Counter()
        self._keys: dict[str, int] = {}
        self._last = 0

    def say(self, text: str, run: str = "", seq: int = 0) -> None:
        """Note a broken promise."""
        self.found.append(Violation(name="memory", run=run, seq=seq, text=text))

    # ------------------------------------------------------------ as it becomes durable

    def kept(self, new: NewFact, key: str, kept: Kept, actor: str) -> None:
        """A fact was kept, or was there already."""
        if kept.known:
            self.seen["fact known already"] += 1
            self._known(new, key, kept)
            return
        self.seen["fact kept by a person" if actor else "fact kept by a run"] += 1
        self.seen["fact waits"] += kept.state == "waiting"
        if key and key in self._keys:
            self.say(f"m{self._keys[key]} is kept again as m{kept.n}", new.run)
        if kept.n <= self._last:
            self.say(f"m{kept.n} is kept after m{self._last}", new.run)
        if new.run and kept.state == "live" and new.trust == "untrusted":
            self.say(f"m{kept.n} may come from anybody, and nobody has looked at it", new.run)
        if kept.state == "live" and new.supersedes and new.supersedes not in kept.replaced:
            self.say(f"m{kept.n} was to replace m{new.supersedes}, and did not", new.run)
        for n in kept.replaced:
            self._replaced(new, self.there.get(n), kept)
        if key:
            self._keys[key] = kept.n
        self._last = max(self._last, kept.n)
        state: State = "waiting" if kept.state == "waiting" else "live"
        self.there[kept.n] = Known(
            n=kept.n, new=new, key=key, state=state, trust=new.trust, actor=actor
        )

    def _known(self, new: NewFact, key: str, kept: Kept) -> None:
        known = self.there.get(kept.n) or self.gone.get(kept.n)
        if known is None or (known.new.text, known.new.scope) != (new.text, new.scope):
            self.say(f"m{kept.n} is called known, and says something else", new.run)
        elif key != known.key and (known.new.principal, known.trust) != (new.principal, new.trust):
            self.say(f"m{kept.n} is called known, and is another's", new.run)
        if (kept.state == "gone") != (kept.n in self.gone):
            self.say(f"m{kept.n} is called {kept.state}", new.run)

    def _replaced(self, new: NewFact, old: Known | None, kept: Kept) -> None:
        self.seen["fact replaced"] += 1
        if old is None:
            self.say(f"m{kept.n} replaces what is not there", new.run)
            return
        if old.n != new.supersedes:
            self.seen["fact of the same words replaced"] += 1
            if (old.new.text, old.new.scope) != (new.text, new.scope):
                self.say(f"m{kept.n} replaces m{old.n}, which says something else", new.run)
        if old.state != "live":
            self.say(f"m{kept.n} replaces m{old.n}, which is {old.state}", new.run)
        if new.trust == "untrusted" and old.trust != "untrusted":
            self.say(f"m{kept.n}, which nobody trusts, replaces m{old.n}", new.run)
        self.there[old.n] = replace(old, state="superseded", successor=kept.n)

    def reviewed(self, n: int, verdict: str, trust: Trust, now: int) -> None:
        """A person has said what becomes of a fact."""
        fact = self.there.get(n)
        self.seen[f"fact {verdict}"] += 1
        if fact is None:
            self.say(f"m{n} is reviewed and is not there")
        elif verdict == "rejected":
            going = self._with_the_same_behind(fact)
            self.seen["fact rejected with one of the same words"] += len(going) > 1
            for each in going:
                self._goes(each)
            self._left_behind(going)
        else:
            self._accepted(fact, trust, now)

    def _with_the_same_behind(self, fact: Known) -> dict[int, Known]:
        """A fact, and those that stand behind it, one after the other, in its own words."""
        going, before = {fact.n: fact}, 0
        while len(going) > before:
            before = len(going)
            going |= {
                each.n: each
                for each in self.there.values()
                if each.successor in going and _whats_said(each) == _whats_said(fact)
            }
        return going

    def _accepted(self, fact: Known, trust: Trust, now: int) -> None:
        """From here on it counts, or of those that say the same the one which lasts the longest."""
        old = self.there.get(fact.new.supersedes)
        if fact.state == "waiting" and old is not None and old.state == "live":
            self.there[old.n] = replace(old, state="superseded", successor=fact.n)
        same = [
            each
            for each in self.there.values()
            if fact.state != "live" and each.state == "live"
            if not 0 < each.new.expires_at <= now
            if _whats_said(each) == _whats_said(fact)
        ]
        best = max((trust, *(each.trust for each in same)), key=TRUSTS.index)
        self.there[fact.n] = replace(fact, state="live", trust=trust)
        self.seen["fact confirmed in the same words"] += bool(same)
        ends = [(each.new.expires_at or sys.maxsize, each.n) for each in (*same, fact)]
        longest = max(end for end, _ in ends)
        stands = next(n for end, n in ends if end == longest)
        for each in (*same, fact):
            if each.n != stands:
                known = self.there[each.n]
                self.there[each.n] = replace(known, state="superseded", successor=stands)
        self.there[stands] = replace(self.there[stands], trust=best)

    def forgotten(self, n: int, gone: Sequence[int]) -> None:
        """A fact went, and with it those that it had replaced."""
        if n not in gone:
            self.say(f"m{n} is forgotten, and {gone} went")
        for known in self.there.values():
            if known.successor in gone and known.n not in gone:
                self.say(f"m{known.successor} is forgotten, and m{known.n} before it is not")
        self.seen["fact forgotten"] += len(gone)
        for each in gone:
            self._goes(each)

    def erased(self, principal: Principal, facts: int) -> None:
        """All facts of a principal went."""
        theirs = [
            fact.n
            for fact in self.there.values()
            if fact.new.scope.tenant == principal.tenant
            and (
                fact.new.principal == principal.id
                or (fact.new.scope.kind, fact.new.scope.name) == ("user", principal.id)
            )
        ]
        if len(theirs) != facts:
            self.say(f"{facts} facts of {principal.id} are erased, of {len(theirs)}")
        self.seen["fact erased"] += len(theirs)
        going = {n: self.there[n] for n in theirs}
        for n in theirs:
            self._goes(n)
        self._left_behind(going)

    def _left_behind(self, going: Mapping[int, Known]) -> None:
        """What those that went had replaced lives again, unless one is left that replaces it."""
        for n, known in self.there.items():
            by = known.successor
            while by in going:
                by = going[by].successor
            if by != known.successor:
                self.seen["fact lives again" if not by else "fact replaced by another"] += 1
                state: State = "superseded" if by else "live"
                self.there[n] = replace(known, state=state, successor=by)

    def _goes(self, n: int) -> None:
        fact = self.there.pop(n, None)
        if fact is None:
            self.say(f"m{n} goes and is not there")
        else:
            self.gone[n] = fact

    # ------------------------------------------------------------ as it is asked for

    def recalled(
        self, query: str, scopes: Sequence[Scope], limit: int, now: int, found: Recall
    ) -> None:
        """Somebody was told what fits a question."""
        self.seen["recall with facts" if found.hits else "recall without facts"] += 1
        for hit in found.hits:
            why = self._not_to_be_told(hit.fact, scopes, now)
            if why:
                self.say(f"m{hit.fact.n} is recalled, and {why}")
        if query in ABOUT:
            fit = [f.n for f in self.there.values() if self._fits(f, query, scopes, now)]
            told = {hit.fact.n for hit in found.hits}
            if len(told) < min(limit, len(fit)):
                self.say(f"{len(told)} facts about {query} are recalled, of {len(fit)}")

    def _fits(self, fact: Known, query: str, scopes: Sequence[Scope], now: int) -> bool:
        live = fact.state == "live" and not 0 < fact.new.expires_at <= now
        return live and fact.new.scope in scopes and query in fact.new.text.split()

    def _not_to_be_told(self, fact: Fact, scopes: Sequence[Scope], now: int) -> str:
        known = self.there.get(fact.n)
        if known is None:
            return "it was forgotten" if fact.n in self.gone else "nobody has kept it"
        if known.new.scope not in scopes:
            return f"it belongs to {known.new.scope}"
        if known.state != "live":
            return f"it is {known.state}"
        if 0 < known.new.expires_at <= now:
            return "it is expired"
        if known.new.text != fact.text:
            return "says something else"
        return "" if known.trust == fact.trust else f"is called {fact.trust}"


# ---------------------------------------------------------------- in the end


async def check_facts(
    look: Store, book: FactBook, journals: Mapping[str, Sequence[ev.Entry]], project: str
) -> list[Violation]:
    """What does not hold of a world's memory.

    Args:
        look: The store; its memory is only read.
        book: What the world saw.
        journals: The own events of every run that can be read.
        project: Which project all share.
    """
    end = FactBook()
    memory: Memory = look.memory()  # type: ignore[attr-defined]  # both kinds of store have one
    there = {fact.n: fact for fact in await memory.facts(FactFilter(limit=0))}
    for n, known in book.there.items():
        fact = there.get(n)
        if fact is None:
            said = "was acknowledged and is gone" if n in book.told else "is gone"
            end.say(f"m{n} {said}", known.new.run)
        elif (fact.state, fact.trust, fact.text) != (known.state, known.trust, known.new.text):
            end.say(f"m{n} is {fact.state} and {fact.trust}, not {known.state} and {known.trust}")
        elif fact.successor != known.successor:
            end.say(f"m{n} is replaced by m{fact.successor}, not by m{known.successor}")
    for n in there.keys() - book.there.keys():
        end.say(f"m{n} is there, and " + ("was removed" if n in book.gone else "nobody kept it"))
    notes = Counter(
        entry.event.fact
        for entry in await look.read("store")
        if isinstance(entry.event, ev.MemoryKept)
    )
    for n in {*book.there, *book.gone}:
        if notes[n] != 1:
            end.say(f"the journal of the store says {notes[n]} times that m{n} was kept")
    for run, entries in journals.items():
        await _told(look, run, entries, book, end, project)
    return end.found


async def _told(
    look: Store,
    run: str,
    entries: Sequence[ev.Entry],
    book: FactBook,
    end: FactBook,
    project: str,
) -> None:
    """What a run says that it kept, and that it was told."""
    whole = await look.read(run)
    created = whole[0].event
    if not isinstance(created, ev.RunCreated):
        return
    whose = created.principal
    names = {part.id: part for e in whole for part in _asked_for(e.event)}
    shared = {("user", whose.id), ("project", project), ("agent", created.agent)}
    every = book.there | book.gone
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.MemoryRecalled):
            for n in event.facts:
                scope = every[n].new.scope if n in every else None
                if scope is None or (scope.kind, scope.name) not in shared:
                    end.say(f"it was told of m{n}, which belongs to {scope}", run, entry.seq)
        elif isinstance(event, ev.ToolCompleted) and event.call in names:
            _kept_or_gone(run, entry, names[event.call], book, end)
    for known in every.values():
        if known.new.run == run and known.new.trust == "agent" and not known.actor:
            read = await _untrusted(look, whole, known.new.call)
            if read:
                end.say(f"m{known.n} is trusted, and {read} had been read before", run)


def _whats_said(fact: Known) -> tuple[object, ...]:
    """By what two facts are one: the words and tags, of one scope and one principal."""
    new = fact.new
    return new.text, new.scope, new.principal, frozenset(new.tags)


def _asked_for(event: ev.Event) -> Sequence[CallPart]:
    if isinstance(event, ev.Turn):
        return calls_of(event.parts)
    return ()


def _kept_or_gone(run: str, entry: ev.Entry, call: CallPart, book: FactBook, end: FactBook) -> None:
    """A call of memory that is called completed has done what it says."""
    said = _said(entry.event)
    if call.name == "remember" and said.startswith("Remembered as m"):
        n = int(said.removeprefix("Remembered as m").rstrip("."))
        known = book.there.get(n) or book.gone.get(n)
        mine = known is not None and (known.new.run, known.new.call) == (run, call.id)
        if not mine:
            end.say(f"{call.id} says that it kept m{n}, and it did not", run, entry.seq)
    elif call.name == "forget" and " is forgotten" in said:
        n = int(said.split()[0].removeprefix("m"))
        if n not in book.gone:
            end.say(f"{call.id} says that m{n} is forgotten, and it is not", run, entry.seq)


def _said(event: Any) -> str:
    result = msgspec.json.decode(event.result) if event.result else ""
    return result if isinstance(result, str) else ""


async def _untrusted(look: Store, entries: Sequence[ev.Entry], call: str) -> str:
    """What of the untrusted a model had read when it asked for this call; empty if nothing."""
    names: dict[str, str] = {}
    done: list[str] = []
    for entry in entries:
        asked = _asked_for(entry.event)
        if call in {part.id for part in asked}:
            break
        names |= {part.id: part.name for part in asked}
        if isinstance(entry.event, ev.ToolCompleted):
            done.append(entry.event.call)
        elif isinstance(entry.event, ev.MemoryRecalled) and set(entry.event.taint) - {"memory"}:
            return ", ".join(entry.event.taint)
    if any(names.get(each) == WEB for each in done):
        return WEB
    last = previous_of(list(entries))
    return await _untrusted(look, await look.read(last.run, upto=last.seq), "") if last else ""


# ---------------------------------------------------------------- failing


class _Write(Protocol):
    async def __call__(self, what: str, work: Callable[[], Awaitable[T]]) -> T: ...


class _Read(Protocol):
    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T: ...


class FaultyMemory:
    """One process's memory: the real one, which fails as the process's store does.

    Args:
        inner: The real one, as the process's store has it now.
        write, read: How the store lets a change and a look go wrong.
        book: What the world sees of it.
    """

    def __init__(
        self, inner: Callable[[], Memory], write: _Write, read: _Read, book: FactBook
    ) -> None:
        self._inner = inner
        self._write = write
        self._read = read
        self._book = book

    async def keep(self, new: NewFact, key: str, now: int, actor: str = "") -> Kept:
        async def work() -> Kept:
            kept = await self._inner().keep(new, key, now, actor)
            self._book.kept(new, key, kept, actor)
            return kept

        kept = await self._write("remember", work)
        self._book.told.add(kept.n)
        return kept

    async def review(
        self,
        n: int,
        verdict: Literal["accepted", "rejected"],
        now: int,
        *,
        actor: str,
        trust: Trust = "owner",
        reason: str = "",
    ) -> None:
        async def work() -> None:
            await self._inner().review(n, verdict, now, actor=actor, trust=trust, reason=reason)
            self._book.reviewed(n, verdict, trust, now)

        await self._write("review", work)

    async def forget(
        self,
        n: int,
        now: int,
        *,
        actor: str = "",
        reason: str = "",
        of: Principal | None = None,
        trusted: bool = True,
    ) -> list[int]:
        async def work() -> list[int]:
            gone = await self._inner().forget(
                n, now, actor=actor, reason=reason, of=of, trusted=trusted
            )
            self._book.forgotten(n, gone)
            return gone

        return await self._write("forget", work)

    async def erase(
        self, principal: Principal, now: int, *, actor: str = "", reason: str = ""
    ) -> Erased:
        async def work() -> Erased:
            erased = await self._inner().erase(principal, now, actor=actor, reason=reason)
            self._book.erased(principal, erased.facts)
            return erased

        return await self._write("erase facts", work)

    async def recall(self, query: str, scopes: Sequence[Scope], limit: int, now: int) -> Recall:
        async def work() -> Recall:
            found = await self._inner().recall(query, scopes, limit, now)
            self._book.recalled(query, scopes, limit, now, found)
            return found

        return await self._read(work)

    async def get(self, n: int) -> Fact:
        return await self._read(lambda: self._inner().get(n))

    async def gone(self, n: int) -> Gone | None:
        return await self._read(lambda: self._inner().gone(n))

    async def facts(self, where: FactFilter) -> list[Fact]:
        return await self._read(lambda: self._inner().facts(where))

    async def export(self, principal: Principal) -> list[str]:
        return await self._read(lambda: self._inner().export(principal))
