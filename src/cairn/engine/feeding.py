"""What a context block is fed with: as much of a tool's result as the block may have."""

from __future__ import annotations

import msgspec

from cairn.core import events as ev
from cairn.core.evolve_calls import result_text
from cairn.core.fence import fenced
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Source
from cairn.core.rules import Feed, Rules
from cairn.core.state import Call, RunState
from cairn.errors import ErrorClass
from cairn.tools.results import clip, to_json

LEAST_BYTES = 16
"""To less than this nothing is cut."""


def feed_of(state: RunState, rules: Rules, call: Call) -> Feed | None:
    """What the block that a call feeds may have; None for a call that feeds none."""
    if not state.feeding:
        return None
    block = next((fed.block for fed in state.feeding if fed.call == call.id), "")
    return next((feed for feed in rules.feeds if block and feed.block == block), None)


def fitted(events: list[ev.Event], feed: Feed, state: RunState, made: int) -> list[ev.Event]:
    """The events of a call that returned, with its result within the budget of its block.

    What is longer is kept whole as an artifact; the model is sent a part of it, or a note only.
    The budget is for the text of the result as it is sent, with its note and with the marks around
    what is not trusted. The note alone is sent however small the budget is.

    Args:
        events: As for any call, `tool.completed` last.
        feed: What the block may have.
        state: Of the run.
        made: How many artifacts the call has made itself.
    """
    done = events[-1]
    if not isinstance(done, ev.ToolCompleted) or not feed.tokens:
        return events
    stored = next((e for e in events if isinstance(e, ev.ArtifactCreated)), None)
    whole = stored.content if stored is not None else result_text(done, state.sources)
    tokens = estimate_tokens(whole)
    room = feed.tokens - _around(state, done.call)
    if tokens <= room:
        return events
    said = f"about {tokens} tokens, and {feed.tokens} are allowed"
    if feed.over == "out" and feed.needed:
        failed = ev.ToolFailed(
            call=done.call,
            error_class=ErrorClass.RESULT_TOO_LARGE,
            message=f"the result has {said} in the context block {feed.block}",
            disposition="repair",
            duration_us=done.duration_us,
        )
        return [failed]
    artifact = done.artifact
    if not artifact and stored is None:
        artifact = f"a{len(state.artifacts) + made + 1}"
        events = [_stored(artifact, feed, done, whole), done]
    shown: ev.ToolCompleted
    if feed.over == "out":
        note = f"[… left out of the context: {said}{_more(artifact)} …]"
        shown = msgspec.structs.replace(done, result=to_json(note), sources=())
    elif done.sources:
        shown = _cited(done, room, artifact, state.sources)
    else:
        shown = msgspec.structs.replace(done, result=to_json(_cut(whole, room, artifact)))
    shown = msgspec.structs.replace(shown, artifact=artifact, why=f"{feed.over}: {said}")
    return [*events[:-1], shown]


def _around(state: RunState, call_id: str) -> int:
    """Tokens of the marks that the result of a call will stand between."""
    call = state.calls.get(call_id)
    if call is None or not call.taint:
        return 0
    return estimate_tokens(fenced("", call.taint, call.key))


def _more(artifact: str) -> str:
    return f'; read_artifact("{artifact}") shows all of it' if artifact else ""


def _stored(artifact: str, feed: Feed, done: ev.ToolCompleted, whole: str) -> ev.ArtifactCreated:
    return ev.ArtifactCreated(
        id=artifact,
        name=f"{feed.tool}-{done.call}",
        media_type="text/plain",
        size=len(whole.encode()),
        content=whole,
    )


def _cut(whole: str, tokens: int, artifact: str) -> str:
    room = max(tokens, 0) * 4
    shown, _ = clip(whole, room, artifact)
    while estimate_tokens(shown) > tokens and room > LEAST_BYTES:
        room = room * 8 // 10
        shown, _ = clip(whole, room, artifact)
    return shown


def _cited(done: ev.ToolCompleted, tokens: int, artifact: str, known: int) -> ev.ToolCompleted:
    """Sources with less of each text; where that is not enough, the first of them."""
    note = to_json(f"[… shortened{_more(artifact)} …]")
    room, sources = max(tokens, 0) * 4 // len(done.sources), done.sources
    while True:
        texts = tuple(_shorter(source, room) for source in sources)
        shown = msgspec.structs.replace(done, result=note, sources=texts)
        if estimate_tokens(result_text(shown, known)) <= tokens:
            return shown
        if room > LEAST_BYTES:
            room = room * 8 // 10
        elif len(sources) > 1:
            sources = sources[: len(sources) * 8 // 10]
        else:
            return shown


def _shorter(source: Source, room: int) -> Source:
    return msgspec.structs.replace(source, text=clip(source.text, max(room, 1), "")[0])
