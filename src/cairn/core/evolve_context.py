"""How facts of the context change a state: requests and what they hold, summaries, feeding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.feeding import Fed
from cairn.core.gist import extended
from cairn.core.keeping import mark_of
from cairn.core.messages import Message, Part, calls_of, parse_object, sendable, text_of
from cairn.core.sizes import size_of
from cairn.core.state import Call, Condensed, Draft, RunState, add_message
from cairn.core.view import View
from cairn.errors import IllegalTransition

KINDS: tuple[ev.TaskKind, ...] = ("query", "generate", "operate")
"""From the narrowest to the widest."""
UNDONE_KEPT = 8
"""So many compactions can be taken back."""

MARKS_KEPT = 64
"""So many facts are known again whose keeping was asked for."""
FOUND_KEPT = 24
"""So many of the tools offered first stay on offer, and as many of those found last."""

replace = msgspec.structs.replace


def seen(state: RunState, event: ev.ModelRequested) -> RunState:
    """What a request changes of the context it is made of."""
    if event.view is not None:
        _check_view(state, event.view)
        state = replace(state, view=event.view, overflowed="")
        if not event.view.summary:
            state = replace(state, summary="", by_model=False)
        state = replace(state, tokens=_size(state, event.view))
    if event.withheld != state.withheld:
        state = replace(state, withheld=event.withheld)
    return replace(with_blocks(state, event.blocks), measured=False)


def with_blocks(state: RunState, changed: tuple[ev.Block, ...]) -> RunState:
    """A state whose blocks are those of the next request."""
    if changed:
        blocks = {**state.blocks, **{block.name: block for block in changed}}
        kept = {name: block for name, block in blocks.items() if block.text or block.why}
        state = replace(state, blocks=kept)
    return replace(state, measured=True)


def _size(state: RunState, view: View) -> int:
    return state.tokens if state.alone else size_of(state.messages, view, state.summary)


def _check_view(state: RunState, view: View) -> None:
    if state.alone:
        return
    at = len(state.messages)
    apart = view.start < at and state.messages[view.start].role == "tool"
    if view.start > at or view.asked >= at or apart:
        raise IllegalTransition(f"{state.run}: a view from message {view.start} parts a call")


def drafted(state: RunState, event: ev.ModelCompleted) -> RunState:
    """What was asked beside the turns has come: it is checked before it stands for anything."""
    request = state.request
    assert request is not None  # noqa: S101 - only called for an open request
    text = text_of(event.parts)
    return replace(
        state, request=None, draft=Draft(text=text, purpose=request.purpose, cut=request.cut)
    )


def undrafted(state: RunState, retry_at: int = 0) -> RunState:
    """What was asked beside the turns did not come, or is not adopted."""
    tries = state.summary_tries + 1
    return replace(state, request=None, draft=None, summary_tries=tries, retry_at=retry_at)


def _compacted(state: RunState, entry: ev.Entry, event: ev.ContextCompacted) -> RunState:
    if state.request is not None or state.calls:
        raise IllegalTransition(f"{state.run}: nothing is condensed while something is at work")
    known = event.start if state.alone else len(state.messages)
    if not state.view.start < event.start <= known:
        raise IllegalTransition(f"{state.run}: message {event.start} is condensed already")
    view = View(
        start=event.start,
        summary=entry.seq,
        asked=event.asked,
        whole=event.whole,
        kept=event.kept,
    )
    _check_view(state, view)
    before = Condensed(
        seq=entry.seq,
        view=state.view,
        summary=state.summary,
        by_model=state.by_model,
        gist=state.gist,
        condensed_in=state.condensed_in,
    )
    state = replace(
        state,
        view=view,
        summary=event.text,
        by_model=event.by == "model",
        condensed_in=state.run,
        gist=extended(state.gist, state.messages, state.asked, event.start),
        draft=None,
        summary_tries=0,
        summary_misses=_misses(state, event),
        squeezes=state.squeezes + 1,
        overflowed="",
        compactions=(*state.compactions[1 - UNDONE_KEPT :], before),
        keeping=event.keep,
    )
    return replace(state, tokens=_size(state, view))


def _misses(state: RunState, event: ev.ContextCompacted) -> int:
    """Compactions in a row whose summaries all failed; one that nobody was asked for is neither."""
    if event.by == "model":
        return 0
    return state.summary_misses + (state.summary_tries > 0)


def _restored(state: RunState, entry: ev.Entry, event: ev.ContextRestored) -> RunState:
    if state.request is not None or not state.compactions:
        raise IllegalTransition(f"{state.run}: there is no compaction to take back now")
    last = state.compactions[-1]
    if event.of != last.seq:
        raise IllegalTransition(f"{state.run}: the last compaction is event {last.seq}")
    state = replace(
        state,
        view=last.view,
        summary=last.summary,
        by_model=last.by_model,
        gist=last.gist,
        condensed_in=last.condensed_in,
        compactions=state.compactions[:-1],
        keeping=(),
        draft=None,
        squeezes=0,
    )
    return replace(state, tokens=_size(state, last.view))


def _updated(state: RunState, entry: ev.Entry, event: ev.ContextUpdated) -> RunState:
    if state.request is not None or state.calls or state.task is not None:
        raise IllegalTransition(f"{state.run}: blocks are made before a request")
    return with_blocks(state, event.blocks)


def _fed(state: RunState, entry: ev.Entry, event: ev.TurnFed) -> RunState:
    working = state.request is not None or state.calls or state.task is not None
    if working or state.fed or state.answer or entry.step != state.step + 1:
        raise IllegalTransition(f"{state.run}: it is fed once, before the model is asked")
    at = len(state.messages)
    feeding = (
        Fed(block=name, call=part.id, tool=part.name, at=at)
        for name, part in zip(event.blocks, event.parts, strict=False)
    )
    return replace(
        add_calls(state, entry, event.parts),
        step=entry.step,
        spent=replace(state.spent, steps=state.spent.steps + 1),
        fed=True,
        feeding=tuple(feeding),
    )


def _kept(state: RunState, entry: ev.Entry, event: ev.TurnKept) -> RunState:
    working = state.request is not None or state.calls or state.task is not None
    due = state.keeping and event.of == state.compactions[-1].seq
    if working or not due or (event.parts and entry.step != state.step + 1):
        raise IllegalTransition(f"{state.run}: nothing of event {event.of} is to be kept now")
    state = replace(state, keeping=())
    if not event.parts:
        return state
    said = (parse_object(part.arguments) or {} for part in event.parts)
    marks = (mark_of(str(each.get("text", ""))) for each in said)
    return replace(
        with_calls(state, entry, event.parts, kept=True),
        step=entry.step,
        spent=replace(state.spent, steps=state.spent.steps + 1),
        kept=tuple(dict.fromkeys((*state.kept, *marks)))[-MARKS_KEPT:],
        kept_calls=state.kept_calls + len(event.parts),
    )


def add_calls(state: RunState, entry: ev.Entry, parts: tuple[Part, ...], **more: Any) -> RunState:
    """A message of the agent, and its calls as they stand when they were just requested."""
    state = with_calls(state, entry, parts, **more)
    return add_message(state, Message(role="assistant", parts=sendable(parts)))


def with_calls(state: RunState, entry: ev.Entry, parts: tuple[Part, ...], **more: Any) -> RunState:
    """Calls that were just requested; of a message, or beside the conversation."""
    calls: dict[str, Call] = {}
    for n, part in enumerate(calls_of(parts), state.last_call + 1):
        if part.id != f"c{n}":
            raise IllegalTransition(f"{state.run}: call {part.id} should be c{n}")
        calls[part.id] = Call(
            id=part.id,
            name=part.name,
            arguments=part.arguments,
            step=entry.step,
            origin=state.run,
            after=part.after,
            tool=part.name,
            **more,
        )
    return replace(state, calls=calls, last_call=state.last_call + len(calls))


def _classified(state: RunState, entry: ev.Entry, event: ev.TaskClassified) -> RunState:
    if state.replies or state.request is not None or state.classified is not None:
        raise IllegalTransition(f"{state.run}: its kind is settled once, before work starts")
    if KINDS.index(event.kind) > KINDS.index(state.kind):
        raise IllegalTransition(f"{state.run}: {event.kind} would widen {state.kind}")
    return replace(state, classified=event.kind, draft=None, summary_tries=0)


def _offered(state: RunState, entry: ev.Entry, event: ev.ToolsOffered) -> RunState:
    if event.why == "search":
        names = tuple(dict.fromkeys((*state.offered, *event.names)))
        if len(names) > 2 * FOUND_KEPT:  # else searching alone would fill the window
            names = (*names[:FOUND_KEPT], *names[-FOUND_KEPT:])
        return replace(state, offered=names)
    if state.request is not None or state.calls:
        raise IllegalTransition(f"{state.run}: tools are chosen between turns")
    last = state.asked[-1] if len(state.asked) else 0
    return replace(state, offered=event.names, offered_for=last)


CONTEXT_HANDLERS: dict[type[ev.Event], Callable[[RunState, ev.Entry, Any], RunState]] = {
    ev.ContextCompacted: _compacted,
    ev.ContextRestored: _restored,
    ev.ContextUpdated: _updated,
    ev.TurnFed: _fed,
    ev.TurnKept: _kept,
    ev.TaskClassified: _classified,
    ev.ToolsOffered: _offered,
}
