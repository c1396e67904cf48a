"""Checks that need the store: the chain, the run's row, what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from cairn.core import events as ev
from cairn.core.codec import encode, header
from cairn.core.evolve import fold
from cairn.core.index import index_of, pending_of
from cairn.core.messages import Record
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.engine.fold_cache import forget
from cairn.engine.load import start_of
from cairn.errors import CorruptJournal, IllegalTransition, UnknownRun
from cairn.ports import RunFilter, Store
from cairn.testing.invariants.case import Violation
from cairn.testing.invariants.journal import examine, origin_of
from cairn.testing.invariants.sessions import check_sessions

ALL = 1_000_000_000


class Acknowledged(Record):
    """An event that a store said was durable; `print_` is its `fingerprint`."""

    run: str
    seq: int
    print_: str


def fingerprint(run: str, entry: ev.Entry) -> str:
    """What an event says, as a hash without its salt: the same wherever it is stored."""
    event = entry.event
    head = header(run, entry, event.TYPE, event.V)
    return sha256(head + b"\0" + encode(event)).hexdigest()[:32]


async def check_store(
    store: Store, *, rules: Mapping[str, Rules] | None = None, runs: Iterable[str] = ()
) -> list[Violation]:
    """What does not hold in a store's runs: their journals, chains and rows.

    Args:
        store: Any store; it is only read.
        rules: By agent, for runs that were driven by these rules from beginning to end.
        runs: Only these runs; all by default.
    """
    forget(store)
    known = rules or {}
    found: list[Violation] = []
    wanted = set(runs)
    for info in await store.runs(RunFilter(limit=ALL)):
        if not wanted or info.run in wanted:
            found += await _check_run(store, info.run, known.get(info.agent))
    return found if wanted else [*found, *await check_sessions(store)]


async def check_run(store: Store, run: str, *, rules: Rules | None = None) -> list[Violation]:
    """What does not hold in one run of a store; of an erased one little can be said."""
    forget(store)
    return await _check_run(store, run, rules)


async def _check_run(store: Store, run: str, rules: Rules | None) -> list[Violation]:
    found: list[Violation] = []

    def say(name: str, text: str) -> None:
        found.append(Violation(name=name, run=run, seq=0, text=text))

    try:
        verified = await store.verify(run)
        info = await store.info(run)
        entries = [] if info.erased else await store.read(run)
    except CorruptJournal as error:
        say("chain", str(error))
        return found
    if info.erased:
        listed = [p.id for p in await store.pending(ALL) if p.id.rpartition("/")[0] == run]
        if listed or info.waits or info.leased or verified != info.head:
            say("index", f"it was erased, and its line says {info}, the inbox {listed}")
        return found
    if verified != len(entries) or info.head != len(entries):
        say("chain", f"{verified} of {len(entries)} events are verified, its head is {info.head}")
    try:
        # what a run goes on from is said by its first event, or by its own run.continued
        head = [entries[0], *(e for e in entries if isinstance(e.event, ev.RunContinued))]
        first = fold(await start_of(store, origin_of(entries, run), head), entries[:1])
    except (CorruptJournal, IllegalTransition, UnknownRun) as error:
        say("legal", str(error))
        return found
    wrong, state = examine(entries, rules, first)
    found += [Violation(name=v.name, run=run, seq=v.seq, text=v.text) for v in wrong]
    if state is None:
        return found
    row = index_of(state)
    told = (info.status, info.waits, info.wake_at, info.steps, info.tokens, info.micro_usd)
    said = (row.status, row.waits, row.wake_at, row.steps, row.tokens, row.micro_usd)
    if told != said:
        say("index", f"the row says {told}, its events say {said}")
    await _pending(store, state, say)
    return found


async def _pending(store: Store, state: RunState, say: object) -> None:
    assert callable(say)  # noqa: S101 - narrows the type
    listed = [p for p in await store.pending(ALL) if p.id.rpartition("/")[0] == state.run]
    wanted = list(pending_of(state))
    if sorted(listed, key=str) != sorted(wanted, key=str):
        say("index", f"the inbox lists {[p.id for p in listed]} of {[p.id for p in wanted]}")


def check_acknowledged(
    journals: Mapping[str, Iterable[ev.Entry]], acknowledged: Iterable[Acknowledged]
) -> list[Violation]:
    """What was said to be durable and is not there, or is there otherwise.

    Args:
        journals: The own events of every run, as they are now.
        acknowledged: What the store had acknowledged.
    """
    there = {
        (run, entry.seq): fingerprint(run, entry)
        for run, entries in journals.items()
        for entry in entries
    }
    return [
        Violation(
            name="acknowledged",
            run=each.run,
            seq=each.seq,
            text="it was acknowledged and is "
            + ("another one now" if (each.run, each.seq) in there else "gone"),
        )
        for each in acknowledged
        if there.get((each.run, each.seq)) != each.print_
    ]
