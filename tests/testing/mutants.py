"""Broken variants of the real code, each of which the simulator must catch.

    python -m tests.testing.mutants [NAME …] [--seeds N]

Each variant takes one promise out of the code by patching it in this process. The table says which
seed caught it, by which invariant, and how long that took.
"""

import argparse
import sys
import time
from contextlib import ExitStack

import msgspec
from tests.testing import mutants_context, mutants_memory  # noqa: F401 - they register more
from tests.testing.variants import SEEDS, VARIANTS, broken, caught, put, variant

from cairn.core import (
    commands,
    decide_calls,
    evolve,
    evolve_calls,
    evolve_people,
    index,
    outcomes,
    state,
)
from cairn.core import events as ev
from cairn.core.gate import Ask, Go
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Usage
from cairn.engine import advance, backs, calls, drive, journal
from cairn.errors import Moved, StoreBusy
from cairn.store.inmemory import InMemoryStore
from cairn.store.memory_sessions import Sessions
from cairn.testing.simulation.stores import FaultyStore

__all__ = ["SEEDS", "VARIANTS", "broken", "caught"]
replace = msgspec.structs.replace


# ---------------------------------------------------------------- intent and outcome


def _held_back(stack: ExitStack, kind: type[ev.Event]) -> None:
    flush = journal.OpenJournal.flush

    async def late(self, *, release=False):
        if not release and self._entries and isinstance(self._entries[-1].event, kind):
            return True
        return await flush(self, release=release)

    put(stack, journal.OpenJournal, "flush", late)


@variant
def request_before_its_intent(stack):
    """A model request is made before its intent is durable."""
    _held_back(stack, ev.ModelRequested)


@variant
def effect_before_its_intent(stack):
    """A tool runs before its intent is durable."""
    _held_back(stack, ev.ToolStarted)


@variant
def outcome_written_late(stack):
    """An outcome waits for the next decision."""
    flush = journal.OpenJournal.flush

    async def late(self, *, release=False):
        if not release and self._entries and len(self._entries) == len(self._outcomes):
            return True
        return await flush(self, release=release)

    put(stack, journal.OpenJournal, "flush", late)


@variant
def outcome_recorded_twice(stack):
    """What came back is taken in two times."""
    record = journal.OpenJournal.record
    put(stack, journal.OpenJournal, "record", lambda self, found: record(self, [*found] * 2))


@variant
def late_outcome_dropped(stack):
    """What comes after the time-out is forgotten."""
    put(stack, calls.CallRunner, "_late", lambda *_: None)


@variant
def finished_work_not_handed_over(stack):
    """Who lost the claim drops what it finished."""
    put(stack, drive, "late_command", lambda event: None)
    put(stack, calls.CallRunner, "_late", lambda *_: None)


# ---------------------------------------------------------------- the store


@variant
def epoch_not_checked(stack):
    """An owner that lost the claim may still write."""
    append = InMemoryStore.append

    async def unchecked(self, run, epoch, entries, index, *, release=False):
        current = self.journals.find(run).epoch
        await append(self, run, current, entries, index, release=release)

    put(stack, InMemoryStore, "append", unchecked)


@variant
def epoch_not_bumped(stack):
    """A claim leaves the epoch as it was."""
    claim = InMemoryStore.claim

    async def same(self, run):
        found = await claim(self, run)
        if found is None or found.epoch == 1:
            return found
        self.journals.find(run).epoch -= 1
        return replace(found, epoch=found.epoch - 1)

    put(stack, InMemoryStore, "claim", same)


@variant
def stale_head_accepted(stack):
    """An append at an old head is taken, at the end."""
    append = InMemoryStore.append

    async def anyhow(self, run, epoch, entries, index, *, release=False):
        try:
            await append(self, run, epoch, entries, index, release=release)
        except Moved:
            head = self.journals.find(run).head
            moved = [replace(e, seq=head + n) for n, e in enumerate(entries, 1)]
            await append(self, run, epoch, moved, index, release=release)

    put(stack, InMemoryStore, "append", anyhow)


@variant
def commit_error_swallowed(stack):
    """A write that failed counts as done."""
    append = FaultyStore.append

    async def silent(self, *args, **kwargs):
        try:
            await append(self, *args, **kwargs)
        except StoreBusy:
            return

    put(stack, FaultyStore, "append", silent)


@variant
def acknowledged_before_the_commit(stack):
    """The last event of a long append is lost although it was acknowledged."""
    append = InMemoryStore.append

    async def torn(self, run, epoch, entries, index, *, release=False):
        kept = entries[:-1] if len(entries) > 3 else entries
        await append(self, run, epoch, kept, index, release=release)

    put(stack, InMemoryStore, "append", torn)


@variant
def lease_never_expires(stack):
    """The runs of the dead stay theirs."""
    put(
        stack,
        InMemoryStore,
        "_leased",
        lambda self, line: line.owner is not None,
    )


@variant
def row_not_updated(stack):
    """The run's row is not written with its events."""
    append = InMemoryStore.append

    async def without(self, run, epoch, entries, index, *, release=False):
        keep = index if index is None or index.status != "waiting" else None
        await append(self, run, epoch, entries, keep, release=release)

    put(stack, InMemoryStore, "append", without)


@variant
def claim_kept_after_a_fault(stack):
    """Who failed to write keeps the run."""

    async def keep(*_):
        return None

    put(stack, advance, "_give_back", keep)


# ---------------------------------------------------------------- unknown effects


@variant
def once_is_repeated(stack):
    """What may run once is declared as something to repeat."""
    started = decide_calls._start

    def lax(call, verdict):
        return replace(started(call, verdict), recovery="repeat")

    put(stack, decide_calls, "_start", lax)


@variant
def timeout_taken_for_not_done(stack):
    """A tool whose time is up counts as one that did nothing."""
    tool = backs._tool

    def lax(back, call, *rest):
        if back.kind == "unknown":
            back = replace(back, kind="failed", not_done=True)
        return tool(back, call, *rest)

    put(stack, backs, "_tool", lax)


@variant
def lost_call_not_closed(stack):
    """A call whose process died stays at work for ever."""
    lost = outcomes.lost_events

    def some(*args):
        return [x for x in lost(*args) if not isinstance(x[1], ev.ToolUnknown)]

    put(stack, drive, "lost_events", some)


@variant
def lost_call_called_failed(stack):
    """A call whose process died counts as one that failed."""

    def gone(run, rules, now, gone):
        return [
            (step, ev.ToolCompleted(call=fact.call) if isinstance(fact, ev.ToolUnknown) else fact)
            for step, fact in outcomes.lost_events(run, rules, now, gone)
        ]

    put(stack, drive, "lost_events", gone)


@variant
def said_not_done_too_early(stack):
    """A probe's word counts while the call may still be at work."""
    unknown = evolve_calls._unknown

    def now(run, entry, event):
        return unknown(run, entry, replace(event, not_before=0))

    handlers = {**evolve.HANDLERS, ev.ToolUnknown: now}
    put(stack, evolve, "HANDLERS", handlers)


@variant
def key_with_the_attempt(stack):
    """The idempotency key changes with every attempt."""
    key = state.Call.key.fget
    put(stack, state.Call, "key", property(lambda self: f"{key(self)}{self.attempt}"))


# ---------------------------------------------------------------- people and policy


@variant
def verdict_skipped(stack):
    """Whatever would be asked runs unasked."""
    judge = decide_calls.judge

    def lax(*args):
        found = judge(*args)
        if isinstance(found, Ask):
            return Go(spec=found.spec, arguments=found.arguments, rule="skipped")
        return found

    put(stack, decide_calls, "judge", lax)


@variant
def approval_used_twice(stack):
    """One approval lets later calls run as well."""
    judge = decide_calls.judge

    def lax(run, call, rules, now=0):
        found = judge(run, call, rules, now)
        granted = [n for n, how in run.decided.items() if how == "granted"]
        if isinstance(found, Ask) and granted:
            return Go(spec=found.spec, arguments=found.arguments, rule=f"approval {granted[0]}")
        return found

    put(stack, decide_calls, "judge", lax)


@variant
def expiry_forgotten(stack):
    """A request for approval never gets too old."""

    def endless(run, entry, event):
        return asked(run, entry, replace(event, expires_at=1 << 60))

    asked = evolve_people._approval_requested
    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, ev.ApprovalRequested: endless})


@variant
def denied_tool_runs(stack):
    """A rule that denies is not looked at."""
    judge = decide_calls.judge

    def lax(run, call, rules, now=0):
        found = judge(run, call, rules, now)
        if isinstance(found, ev.ToolRejected) and found.kind == "denied":
            spec = rules.tools[call.tool]
            return Go(spec=spec, arguments={}, rule=found.rule)
        return found

    put(stack, decide_calls, "judge", lax)


@variant
def decision_accepted_twice(stack):
    """What was decided can be decided otherwise by who comes later."""

    def lax(run, command, now):
        if isinstance(command, commands.Deny):
            return ev.ApprovalDenied(n=command.n)
        return accept(run, command, now)

    from cairn.store import submission

    accept = commands.accept
    put(stack, submission, "accept", lax)
    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, ev.ApprovalDenied: lambda s, *_: s})


@variant
def message_given_twice(stack):
    """A message that came during the run is read two times."""
    given = evolve._given

    def twice(run, entry, event):
        after = given(run, entry, event)
        first = not any(seq < 0 for seq in run.queued)
        return replace(after, queued=run.queued.added(-1, ())) if first else after

    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, ev.InputGiven: twice})


@variant
def paused_run_works(stack):
    """A pause is not looked at."""
    decide = drive.decide
    put(stack, drive, "decide", lambda run, *rest: decide(replace(run, paused=False), *rest))
    put(stack, evolve, "LEGAL", {kind: frozenset(evolve.Status) for kind in evolve.LEGAL})


@variant
def cancelled_run_goes_on(stack):
    """The wish to cancel is not looked at."""
    decide = drive.decide
    put(stack, drive, "decide", lambda run, *rest: decide(replace(run, cancel=None), *rest))
    put(stack, evolve, "_ending", lambda run: False)


# ---------------------------------------------------------------- limits, sums, order


@variant
def call_limit_skipped(stack):
    """No limit is looked at before a call starts."""
    put(stack, decide_calls, "_over", lambda *_: "")


@variant
def reply_limit_skipped(stack):
    """A reply may hold any number of calls."""
    wrong = outcomes._wrong

    def lax(run, reply):
        return wrong(replace(run, limits=replace(run.limits, calls_per_reply=999)), reply)

    put(stack, outcomes, "_wrong", lax)


@variant
def retry_at_ignored(stack):
    """Nothing is waited for between attempts."""
    decide = drive.decide

    def hasty(run, rules, now):
        later = [run.retry_at, *(c.retry_at for c in run.calls.values())]
        return decide(run, rules, max(now, *later))

    put(stack, drive, "decide", hasty)


@variant
def usage_not_summed(stack):
    """What failed requests used is forgotten."""
    add = evolve.add_usage
    put(stack, evolve, "add_usage", lambda a, b: add(a, b) if b.output_tokens < 100 else a)


@variant
def lost_request_not_charged(stack):
    """A request whose process died costs nothing."""
    lost = outcomes.lost_model
    put(stack, outcomes, "lost_model", lambda *args: replace(lost(*args), usage=Usage()))


@variant
def order_of_writes_not_kept(stack):
    """Two writes of one reply may overtake each other."""
    put(stack, outcomes, "_ordered", lambda *_: False)


@variant
def answer_left_out(stack):
    """The message of results forgets the last of several."""
    results = state.results_message

    def fewer(found):
        message = results(found)
        return replace(message, parts=message.parts[:-1] or message.parts)

    put(stack, evolve_calls, "results_message", fewer)


@variant
def wake_forgotten(stack):
    """The row does not say when time is news."""
    put(stack, index, "wake_at", lambda run: 0)


@variant
def unknown_call_forgotten_at_the_end(stack):
    """A run ends over an unknown call and calls it closed."""

    def closed(run):
        for call in run.calls.values():
            if not call.closed:
                shut = replace(call, status=CallStatus.FAILED, result="over")
                run = replace(run, calls={**run.calls, call.id: shut})
        return run

    put(stack, evolve, "close_at_end", closed)


# ---------------------------------------------------------------- sessions


@variant
def a_run_of_a_session_waits_behind_nobody(stack: ExitStack) -> None:
    """Runs of a session go on one by one."""
    put(stack, Sessions, "before", lambda self, journal: "")


@variant
def what_was_left_unread_is_owed_to_nobody(stack: ExitStack) -> None:
    """A message that its run ended without reading starts the next run."""
    put(stack, Sessions, "unread", lambda self, agents: iter(()))


@variant
def a_message_has_no_name_of_its_own(stack: ExitStack) -> None:
    """The same message twice is one."""
    put(stack, Sessions, "taken", lambda self, id_: id_ if id_ in self._runs else "")


# ---------------------------------------------------------------- the table


def table(names: list[str], seeds: int) -> int:
    """Print which seed catches each; how many were not caught."""
    missed = 0
    for name in names:
        begun = time.perf_counter()
        outcome = caught(name, seeds)
        seconds = time.perf_counter() - begun
        if outcome is None:
            missed += 1
            print(f"{name:36} not caught by {seeds} seeds {seconds:6.1f} s", flush=True)
            continue
        kinds = ", ".join(sorted({v.name for v in outcome.violations}))
        print(f"{name:36} seed {outcome.seed:4} {seconds:6.1f} s  {kinds}", flush=True)
    print(f"{len(names) - missed} of {len(names)} variants are caught")
    return missed


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if a variant is not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.testing.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="all by default")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    return 1 if table(given.names or list(VARIANTS), given.seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
