"""From a store to a run's state: fold the journal, behind the conversation it continues."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.finding import passage
from cairn.core.history import History
from cairn.core.messages import CallPart, Message, Part, ResultPart, Text
from cairn.core.names import listed
from cairn.core.sizes import size_of
from cairn.core.state import RunState, transcript
from cairn.core.views.context import Manifest, manifest
from cairn.errors import CorruptJournal, UnknownRun
from cairn.ports import Store


async def load(store: Store, run: str) -> RunState:
    """The run's present state.

    Raises:
        UnknownRun: there is no such run.
        CorruptJournal: the journal cannot be read.
    """
    entries = await store.read(run)
    return await fold_entries(store, run, entries)


async def fold_entries(store: Store, run: str, entries: list[ev.Entry]) -> RunState:
    """The state after `entries`, which start at the journal's first."""
    return fold(await start_of(store, run, entries), entries)


async def start_of(store: Store, run: str, entries: list[ev.Entry]) -> RunState:
    """The state before the first of `entries`, which start at the journal's first."""
    if not entries or not isinstance(entries[0].event, ev.RunCreated):
        raise CorruptJournal(f"{run}: the journal does not start with run.created")
    base = await _conversation(store, previous_of(entries))
    return _begin(run, entries, base)


def previous_of(entries: list[ev.Entry]) -> ev.RunRef | None:
    """Where the run that these are the first entries of goes on from, None for a new beginning."""
    continued = _continued(entries)
    if continued is not None:
        return continued.previous
    created = entries[0].event
    return created.previous if isinstance(created, ev.RunCreated) else None


def _continued(entries: list[ev.Entry]) -> ev.RunContinued | None:
    created = entries[0].event
    if not isinstance(created, ev.RunCreated) or not created.behind:
        return None
    return next((e.event for e in entries if isinstance(e.event, ev.RunContinued)), None)


def _begin(run: str, entries: list[ev.Entry], base: RunState | None) -> RunState:
    """The state before the first entry: empty, or holding the session's conversation so far."""
    origin = next((e.event.parent for e in entries if isinstance(e.event, ev.RunForked)), run)
    if base is None:
        return RunState(run=origin)
    messages = _renamed(transcript(base), base.run)
    continued = _continued(entries)
    if continued is not None:
        between = [part for seq in continued.consumes for part in base.queued[seq]]
        between += [Text(continued.note)] if continued.note else []
        messages += [Message(role="user", parts=tuple(between))] if between else []
    return RunState(
        run=origin,
        messages=History(messages),
        tokens=size_of(messages, base.view, base.summary),
        asked=base.asked,
        tasks=base.tasks,
        view=base.view,
        summary=base.summary,
        by_model=base.by_model,
        condensed_in=base.condensed_in,
        gist=base.gist,
        sources=base.sources,
        voices=dict.fromkeys(base.voices, 0),  # they led to what is done from here on, too
        taint=base.taint,  # what was read before is read again
    )


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


async def _conversation(store: Store, last: ev.RunRef | None) -> RunState | None:
    """The state of the session's run before, folded behind all the runs before that one."""
    chain: list[tuple[str, list[ev.Entry]]] = []
    while last is not None:
        entries = await store.read(last.run, upto=last.seq)
        chain.append((last.run, entries))
        last = previous_of(entries)
    state: RunState | None = None
    for run, entries in reversed(chain):
        state = fold(_begin(run, entries, state), entries)
    return state


def _renamed(messages: tuple[Message, ...], run: str) -> list[Message]:
    """Messages of an earlier run with call ids that no later run can repeat (law 8)."""
    return [
        message
        if message.role not in {"assistant", "tool"}
        else Message(role=message.role, parts=tuple(_tagged(p, run) for p in message.parts))
        for message in messages
    ]


def _tagged(part: Part, run: str) -> Part:
    if isinstance(part, CallPart) and "." not in part.id:
        return CallPart(
            id=f"{run}.{part.id}",
            name=part.name,
            arguments=part.arguments,
            alias=part.alias,
            after=tuple(f"{run}.{a}" for a in part.after),
        )
    if isinstance(part, ResultPart) and "." not in part.id:
        return ResultPart(id=f"{run}.{part.id}", result=part.result, ok=part.ok)
    return part
