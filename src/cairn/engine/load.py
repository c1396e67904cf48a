"""From a store to a run's state: fold the journal, behind the conversation it continues."""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.finding import passage
from cairn.core.history import History
from cairn.core.names import listed
from cairn.core.state import RunState
from cairn.core.views.context import Manifest, manifest
from cairn.engine.conversation import beginning, conversation_before, previous_of
from cairn.engine.fold_cache import CachedRun, cache_of, chars_of, chars_sent
from cairn.errors import CorruptJournal, UnknownRun
from cairn.ports import Store

BEGINS = (ev.RunForked, ev.RunContinued)
"""Events that say what a run goes on from, which is there before its first one."""


async def load(store: Store, run: str) -> RunState:
    """The run's present state, from where this process knew it last if it did.

    Raises:
        UnknownRun: there is no such run.
        CorruptJournal: the part of the journal that had to be read cannot be decoded.
    """
    cache = cache_of(store)
    runs, age = cache.runs, await cache.age(store)
    known = runs.find(age, run)
    if known is not None:
        before = _apart(known.state)
        entries = await store.read(run, after=before.seq)
        if not entries:
            return before
        if not any(isinstance(entry.event, BEGINS) for entry in entries):
            state = fold(before, entries)
            own = state.messages[len(before.messages) :]
            chars = known.chars + sum(map(chars_of, own)) + chars_sent(entries)
            runs.keep(age, run, CachedRun(state=_apart(state), chars=chars))
            return state
    entries = await store.read(run)
    state = await fold_entries(store, run, entries)
    if state.created is not None and not state.created.behind:  # else it begins elsewhere yet
        chars = sum(map(chars_of, state.messages)) + chars_sent(entries)
        runs.keep(age, run, CachedRun(state=_apart(state), chars=chars))
    return state


def _apart(state: RunState) -> RunState:
    """The state with a list of messages of its own.

    Versions of a history share one list: what is kept would grow with who goes on from it, and
    nobody would count that.
    """
    return msgspec.structs.replace(state, messages=History(state.messages))


async def fold_entries(store: Store, run: str, entries: list[ev.Entry]) -> RunState:
    """The state after `entries`, which start at the journal's first."""
    return fold(await start_of(store, run, entries), entries)


async def start_of(store: Store, run: str, entries: list[ev.Entry]) -> RunState:
    """The state before the first of `entries`, which start at the journal's first."""
    if not entries or not isinstance(entries[0].event, ev.RunCreated):
        raise CorruptJournal(f"{run}: the journal does not start with run.created")
    return beginning(run, entries, await conversation_before(store, previous_of(entries)))


async def read_artifact(state: RunState, store: Store, wanted: str) -> ev.ArtifactCreated | None:
    """One of the run's artifacts by its id, `a3`; None if there is none of this id."""
    number = wanted[1:]
    if wanted[:1] != "a" or not number.isdecimal():
        return None
    if not 1 <= int(number) <= len(state.artifacts):
        return None
    seq = state.artifacts[int(number) - 1]
    (entry,) = await store.read(state.run, after=seq - 1, upto=seq)
    made: ev.ArtifactCreated = entry.event
    return made


async def read_stored(state: RunState, store: Store, wanted: str) -> tuple[str, str] | None:
    """Name and text of an artifact, a call's result or a message of the run."""
    made = await read_artifact(state, store, wanted)
    if made is not None:
        return made.name, made.content
    text = passage(state.messages, wanted)
    return None if text is None else (wanted, text)


async def manifest_of(store: Store, run: str, step: int) -> Manifest:
    """What the model request of a step held.

    Raises:
        UnknownRun: there is no such run, or the step made no request.
    """
    entries = await store.read(run)
    found = manifest(await start_of(store, run, entries), entries, step)
    if found is None:
        asked = sorted({e.step for e in entries if isinstance(e.event, ev.ModelRequested)})
        others = f"made some in step {listed([*map(str, asked)])}" if asked else "made none"
        raise UnknownRun(f"run {run} made no model request in step {step}; it {others}")
    return found
