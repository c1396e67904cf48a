"""What the next run of a session goes on from: the conversation so far, folded once.

A journal does not change once its run is over, so neither does what it leaves to the next one.
That is kept for a while: what a message costs then depends on what is new, not on how long the
conversation is.
"""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.history import Growing, History
from cairn.core.messages import CallPart, Message, Part, ResultPart, Text
from cairn.core.sizes import size_of, tokens_of
from cairn.core.state import RunState, add_message, add_request, transcript
from cairn.engine.fold_cache import CachedConversation, cache_of, chars_of
from cairn.ports import Store

replace = msgspec.structs.replace


async def conversation_before(store: Store, last: ev.RunRef | None) -> CachedConversation | None:
    """The conversation up to the end of a run, folded behind all the runs before that one.

    Raises:
        StoreError, CorruptJournal: a journal of the chain cannot be read.
    """
    if last is None:
        return None
    cache = cache_of(store)
    ends, age = cache.ends, await cache.age(store)
    chain: list[tuple[ev.RunRef, list[ev.Entry]]] = []
    at: ev.RunRef | None = last
    known: CachedConversation | None = None
    while at is not None:
        known = ends.find(age, at)
        if known is not None:
            break
        entries = await store.read(at.run, upto=at.seq)
        chain.append((at, entries))
        at = previous_of(entries)
    for ref, entries in reversed(chain):
        known = _ended(beginning(ref.run, entries, known), entries, known)
        ends.keep(age, ref, known)
    return known


def _ended(
    first: RunState, entries: list[ev.Entry], before: CachedConversation | None
) -> CachedConversation:
    """What a run has left, that began so."""
    state = fold(first, entries)
    messages = transcript(state)
    own = messages[len(first.messages) :]
    if (state.view, state.summary) == (first.view, first.summary):
        size = first.tokens + sum(map(tokens_of, own))
    else:
        size = size_of(messages, state.view, state.summary)
    chars = before.chars if before is not None else 0
    return CachedConversation(
        state=state,
        began=len(first.messages),
        size=size,
        chars=chars + sum(map(chars_of, own)),
    )


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


def beginning(run: str, entries: list[ev.Entry], before: CachedConversation | None) -> RunState:
    """The state before the first entry: empty, or holding the session's conversation so far."""
    origin = next((e.event.parent for e in entries if isinstance(e.event, ev.RunForked)), run)
    if before is None:
        return RunState(run=origin)
    base = before.state
    messages = transcript(base)
    state = RunState(
        run=origin,
        messages=History(
            [*messages[: before.began], *_renamed(messages[before.began :], base.run)]
        ),
        tokens=before.size,
        asked=base.asked,
        tasks=base.tasks,
        view=base.view,
        summary=base.summary,
        by_model=base.by_model,
        condensed_in=base.condensed_in,
        gist=base.gist,
        kept=base.kept,
        sources=base.sources,
        voices=Growing(dict.fromkeys(base.voices, 0)),  # they led to what is done from here on, too
        taint=base.taint,  # what was read before is read again
    )
    return _taken_over(state, base, _continued(entries))


def _taken_over(state: RunState, base: RunState, continued: ev.RunContinued | None) -> RunState:
    """With what the run before left unread: the new run's task begins there."""
    if continued is None:
        return state
    parts = [part for seq in continued.consumes for part in base.queued[seq]]
    parts += [Text(continued.note)] if continued.note else []
    if not parts:
        return state
    message = Message(role="user", parts=tuple(parts))
    state = replace(state, opened=True, own=len(state.asked))
    if continued.consumes:
        return add_request(state, message)
    return add_message(replace(state, tasks=state.tasks.added(len(state.messages))), message)


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
