"""Broken variants of memory, of searches, of sessions that are moved, and of erasing."""

from contextlib import ExitStack

import msgspec
from tests.testing.variants import of_memory, put

from cairn.core import evolve, state
from cairn.core.erasing import Erasure
from cairn.core.events import ContextCompacted, SessionRewound, TurnKept
from cairn.core.keeping import parted
from cairn.engine import calls, host
from cairn.memory import reviewing, shelf
from cairn.memory.desk import Desk
from cairn.memory.facts import Erased, Fact, Scope
from cairn.memory.inmemory import InMemoryMemory, Tables
from cairn.memory.rules import MemoryRules
from cairn.runtime import erasing
from cairn.store import inmemory
from cairn.store.erasing import Erasing, facts_of
from cairn.store.inmemory import InMemoryStore
from cairn.store.memory_sessions import Sessions
from cairn.tools import runner
from cairn.tools.slots import Slots

replace = msgspec.structs.replace


# ---------------------------------------------------------------- facts


@of_memory
def fact_lost_after_its_answer(stack: ExitStack) -> None:
    """A fact that was acknowledged is kept."""
    keep = InMemoryMemory.keep

    async def forgetful(self, new, key, now, actor=""):
        kept = await keep(self, new, key, now, actor)
        if kept.n == 2 and not kept.known:
            self.tables.unindex(self.tables.rows.pop(2))
        return kept

    put(stack, InMemoryMemory, "keep", forgetful)


@of_memory
def fact_kept_again_by_a_repeated_call(stack: ExitStack) -> None:
    """A call that is repeated after a crash keeps its fact once."""
    put(stack, Tables, "keyed", lambda self, key: 0)
    put(stack, shelf, "_same_words", lambda *_: None)


@of_memory
def forgotten_fact_still_found(stack: ExitStack) -> None:
    """What was forgotten is found by nothing any more."""
    put(stack, Tables, "drop", lambda self, fact, gone: self.tombs.update({fact.n: gone}))
    put(stack, Tables, "unindex", lambda self, fact: None)


@of_memory
def replaced_fact_still_recalled(stack: ExitStack) -> None:
    """What was replaced is not recalled."""

    def goes_live(place, fact, supersedes):
        place.index(fact, shelf.found_by(fact))
        old = place.fact(supersedes) if supersedes else None
        if old is not None:
            place.put(replace(old, successor=fact.n))

    put(stack, shelf, "goes_live", goes_live)
    put(stack, reviewing, "goes_live", goes_live)


@of_memory
def replaced_fact_hidden_for_good(stack: ExitStack) -> None:
    """What was replaced by a fact that is rejected or erased lives again."""
    put(stack, shelf, "lives_again", lambda place, old: None)
    put(stack, reviewing, "lives_again", lambda place, old: None)


@of_memory
def older_facts_survive_a_forgetting(stack: ExitStack) -> None:
    """Forgetting a fact forgets those that it had replaced."""
    put(stack, shelf, "_with_all_before", lambda place, fact: [fact])


@of_memory
def expired_fact_recalled(stack: ExitStack) -> None:
    """A fact counts no more once its time is up."""
    put(stack, Fact, "expired", lambda self, now: False)


@of_memory
def facts_of_others_recalled(stack: ExitStack) -> None:
    """A run sees its own scopes."""
    scopes = Desk.scopes

    def every(self):
        own = scopes(self)
        others = (Scope(kind="user", name=name) for name in ("ann", "bob"))
        return tuple(dict.fromkeys((*own, *others)))

    put(stack, Desk, "scopes", every)


@of_memory
def tainted_run_trusted(stack: ExitStack) -> None:
    """What a run keeps that has read the untrusted is untrusted."""
    put(stack, host, "Desk", lambda *a, **given: Desk(*a, **{**given, "taint": frozenset()}))


@of_memory
def nobody_looks_at_the_untrusted(stack: ExitStack) -> None:
    """What may come from anybody waits for a person."""
    put(stack, MemoryRules, "waits", lambda self, trust: False)


@of_memory
def trusted_fact_replaced_by_anybody(stack: ExitStack) -> None:
    """The untrusted replaces nothing that is trusted more."""
    put(stack, shelf, "_why_it_waits", lambda place, new: "")
    put(stack, MemoryRules, "waits", lambda self, trust: False)


# ---------------------------------------------------------------- facts of summaries


@of_memory
def facts_of_a_summary_kept_twice(stack: ExitStack) -> None:
    """What a summary says is to be remembered is asked for once, whoever goes on with the run."""
    kept = evolve.HANDLERS[TurnKept]

    def again(state, entry, event):
        after = kept(state, entry, event)
        twice = event.parts and not state.kept_calls
        return replace(after, keeping=state.keeping, kept=()) if twice else after

    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, TurnKept: again})


@of_memory
def facts_of_a_summary_lost(stack: ExitStack) -> None:
    """What an adopted summary says is to be remembered is asked for before the next request."""
    compacted = evolve.HANDLERS[ContextCompacted]

    def forgetful(*args):
        return replace(compacted(*args), keeping=())

    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, ContextCompacted: forgetful})


@of_memory
def facts_of_a_refused_summary_kept(stack: ExitStack) -> None:
    """What a summary says counts for nothing until it is adopted."""
    drafted = evolve.drafted

    def hasty(state, event):
        after = drafted(state, event)
        facts = parted(after.draft.text)[1] if state.compactions else ()
        return replace(after, keeping=facts)

    put(stack, evolve, "drafted", hasty)


# ---------------------------------------------------------------- searches and threads


@of_memory
def search_of_what_is_still_seen(stack: ExitStack) -> None:
    """A search looks at all that was said, also what is not sent any more."""
    search = calls.search
    put(stack, calls, "search", lambda told, query, limit, _: search(told[-3:], query, limit))


@of_memory
def search_of_another_conversation(stack: ExitStack) -> None:
    """A search looks at its own conversation."""
    search, heard = calls.search, []

    def elsewhere(told, query, limit, _):
        heard.extend(told)
        return search(heard, query, limit)

    put(stack, calls, "search", elsewhere)


@of_memory
def thread_never_given_back(stack: ExitStack) -> None:
    """A thread is given back when it ends, also when nobody waits for it any more."""
    serve = runner.Running._serve

    def kept(self, variables):
        if self.abandoned:
            self._slots = Slots()
            self._slots.try_acquire()
        serve(self, variables)

    put(stack, runner.Running, "_serve", kept)


# ---------------------------------------------------------------- sessions


@of_memory
def rewind_without_effect(stack: ExitStack) -> None:
    """A session goes on from where it was put."""
    keep = Sessions.keep

    def deaf(self, entries):
        keep(self, [e for e in entries if not isinstance(e.event, SessionRewound)])

    put(stack, Sessions, "keep", deaf)


@of_memory
def calls_of_two_runs_share_a_key(stack: ExitStack) -> None:
    """A call's key is its own, whatever run a session goes on from."""
    put(stack, state.Call, "key", property(lambda self: self.id))


@of_memory
def run_pruned_while_it_works(stack: ExitStack) -> None:
    """Only what is over is pruned."""

    def anything(lines, *_):
        lines = list(lines)
        named = {line.parent for line in lines}
        return [line.run for line in lines if not line.session and line.run not in named]

    put(stack, inmemory, "prunable", anything)


# ---------------------------------------------------------------- erasing


@of_memory
def erased_run_keeps_its_words(stack: ExitStack) -> None:
    """What a run said is gone when its principal is erased."""
    put(stack, Erasing, "_empty", lambda self, journal, seqs=None: 0)


@of_memory
def facts_left_by_an_erasing(stack: ExitStack) -> None:
    """Facts go with their principal."""

    async def nothing(self, principal, now, *, actor="", reason=""):
        return Erased(facts=0)

    put(stack, InMemoryMemory, "erase", nothing)


@of_memory
def erasing_takes_what_is_not_over(stack: ExitStack) -> None:
    """Nothing is erased that still works."""
    put(stack, Erasing, "check", lambda self: None)
    put(stack, erasing, "check_over", lambda *_: None)


@of_memory
def fork_left_by_an_erasing(stack: ExitStack) -> None:
    """Forks and retries go with the run that they were made from."""
    theirs = Erasing._theirs

    def whole(self):
        return (journal for journal in theirs(self) if not journal.new.parent)

    put(stack, Erasing, "_theirs", whole)


@of_memory
def erasing_lost_behind_its_answer(stack: ExitStack) -> None:
    """What is called erased is erased."""

    async def nothing(self, principal, now, *, actor="", reason=""):
        held = await self.holdings(principal)
        if held.live:
            raise AssertionError(held.live)
        facts = len(facts_of(self.journals, principal))
        return Erasure(runs=tuple(info.run for info in held.runs), facts=facts)

    put(stack, InMemoryStore, "erase", nothing)
