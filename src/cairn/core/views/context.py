"""What a request held: each block and each part of the conversation, in or out, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from cairn.core import events as ev
from cairn.core.context import END_NOTE, messages_of, system_text
from cairn.core.evolve import evolve
from cairn.core.feeding import Fed
from cairn.core.limits import estimate_tokens
from cairn.core.messages import CallPart, Message, Record, ResultPart, user
from cairn.core.sizes import tokens_of
from cairn.core.state import RunState
from cairn.core.view import LEFT_OUT_NOTE, SUMMARY_NOTE, shortened


class Line(Record):
    """A piece of a request.

    Args:
        name: Its name.
        source: Where it is from.
        place: `head`, `history` or `end`.
        tokens: How many it is estimated at, with what stands around it: of a block fed by a tool
            the call, of a summary the note before it.
        hash: Of its text, 12 hexadecimal digits; empty for what is out.
        sent: Whether it is in the request.
        why: Why it is cut, or out; of a summary, why a rule wrote it where a model should have, or
            how many facts stand beside it.
    """

    name: str
    source: str
    place: str
    tokens: int
    hash: str = ""
    sent: bool = True
    why: str = ""


class Manifest(Record):
    """What the request of a step held.

    Args:
        step: The step.
        seq: Seq of its `model.requested`.
        model: The model it was made to.
        purpose: `turn`, or `summary` of the messages before.
        lines: Its pieces, in the order they are sent.
        tokens: Estimate of all that is sent, without the tools.
        tools: Hash of the tools on offer; empty for none.
        unchanged: How much of the bytes of the run's request before stands unchanged at the
            beginning of this one, 0 to 1: what a provider's cache can serve. 1 for the first.
        before: Seq of that request; 0 when there is none to compare this one with.
    """

    step: int
    seq: int
    model: str
    purpose: str
    lines: tuple[Line, ...]
    tokens: int
    tools: str = ""
    unchanged: float = 1.0
    before: int = 0


def manifest(start: RunState, entries: Iterable[ev.Entry], step: int) -> Manifest | None:
    """What the last request of a step held; None when the step made none.

    Args:
        start: The state before the first of the entries.
        entries: The run's journal from its first event on.
        step: Which step.
    """
    state, before, found = start, None, None
    alone: dict[tuple[str, int], str] = {}
    for entry in entries:
        state = evolve(state, entry)
        if isinstance(entry.event, ev.ContextCompacted):
            alone[state.run, entry.seq] = _told_of(entry.event)
        if not isinstance(entry.event, ev.ModelRequested):
            continue
        if entry.step == step:
            found = (entry, entry.event, state)
        elif found is None and entry.event.purpose == "turn":
            before = state, entry.seq
        elif found is not None:
            break
    if found is None:
        return None
    seen = found[2]
    return _manifest(*found, before, alone.get((seen.condensed_in, seen.view.summary), ""))


def _manifest(
    entry: ev.Entry,
    event: ev.ModelRequested,
    state: RunState,
    before: tuple[RunState, int] | None,
    why: str,
) -> Manifest:
    lines = _summary_lines(state, event) if event.purpose == "summary" else _lines(state, why)
    unchanged, seq = 1.0, 0
    if event.purpose == "turn" and before is not None:
        earlier, seq = before
        unchanged = share_unchanged(bytes_of(earlier), bytes_of(state))
    return Manifest(
        step=entry.step,
        seq=entry.seq,
        model=event.model,
        purpose=event.purpose,
        lines=lines,
        tokens=sum(line.tokens for line in lines if line.sent),
        tools=state.tools if event.purpose == "turn" else "",
        unchanged=unchanged,
        before=seq,
    )


def _summary_lines(state: RunState, event: ev.ModelRequested) -> tuple[Line, ...]:
    start = state.view.start
    part = state.messages[start : event.cut]
    source = f"messages {start + 1} to {event.cut}"
    lines = [Line(name="part", source=source, place="history", tokens=_tokens(part))]
    if state.summary:
        lines.insert(0, _summary(state))
    return tuple(lines)


def _lines(state: RunState, why: str) -> tuple[Line, ...]:
    return (
        *(_block(b) for b in state.blocks.values() if b.place == "head"),
        *_history(state, why),
        *_at_end(state),
    )


def _at_end(state: RunState) -> list[Line]:
    """The blocks at the end, and what is said before them."""
    lines = [_block(b) for b in state.blocks.values() if b.place == "end"]
    if any(line.sent for line in lines):
        note = _part("end note", [user(f"{END_NOTE}\n\n")], 0, "the runtime")
        lines.insert(0, msgspec.structs.replace(note, place="end"))
    return lines


def _block(block: ev.Block) -> Line:
    return Line(
        name=block.name,
        source=block.source or "static",
        place=block.place,
        tokens=block.tokens or (estimate_tokens(block.text) if block.text else 0),
        hash=_hash(block.text) if block.text else "",
        sent=bool(block.text),
        why=block.why,
    )


def _history(state: RunState, alone: str) -> list[Line]:
    view, messages = state.view, state.messages
    lines: list[Line] = []
    if view.start:
        left = messages[: view.start]
        lines.append(
            Line(
                name="earlier messages",
                source=f"messages 1 to {view.start}",
                place="history",
                tokens=_tokens(left),
                sent=False,
                why=_why_out(state),
            )
        )
    if view.summary:
        lines.append(_summary(state, alone))
    elif view.start:
        lines.append(_part("left out note", [user(LEFT_OUT_NOTE)], 0, "the runtime"))
    if view.asked >= 0:
        lines.append(_part("request", messages[view.asked : view.asked + 1], view.asked))
    lines += [_gone(fed, state) for fed in state.feeding if fed.at < view.start]
    whole = max(view.whole, view.start)
    old = [shortened(m, view.kept) for m in messages[view.start : whole]]
    if old:
        why = f"results shortened to {view.kept} characters"
        for line in _parts("history", old, view.start, state):
            lines.append(line if line.why else msgspec.structs.replace(line, why=why))
    last = state.asked[-1] if len(state.asked) else 0
    if last > whole:
        lines += _parts("history", messages[whole:last], whole, state)
        whole = last
    name = "input" if whole == last else "history"
    lines += _parts(name, messages[whole : whole + 1], whole, state)
    if whole + 1 < len(messages):
        lines += _parts("turns since", messages[whole + 1 :], whole + 1, state)
    return lines


def _parts(name: str, messages: list[Message], first: int, state: RunState) -> Iterator[Line]:
    """A stretch of the conversation, with what was fed into it as lines of its own."""
    at = state.feeding[0].at - first if state.feeding else -1
    if not 0 <= at < len(messages):
        yield _part(name, messages, first)
        return
    if at:
        yield _part(name, messages[:at], first)
    held = messages[at : at + 2]
    for n, fed in enumerate(state.feeding):
        yield from _fed_lines(fed, held, first=n == 0)
    rest = messages[at + 2 :]
    if rest:
        yield _part(name, rest, first + at + 2)


def _fed_lines(fed: Fed, held: list[Message], *, first: bool) -> Iterator[Line]:
    """What a block was fed with; of one that is out, the call and the note that are sent for it."""
    line = _fed_line(fed, held, first=first)
    if not fed.out:
        yield line
        return
    yield msgspec.structs.replace(line, sent=False, hash="", tokens=0)
    yield msgspec.structs.replace(line, name=f"{fed.block}: call and note", why="")


def _fed_line(fed: Fed, held: list[Message], *, first: bool = False) -> Line:
    """A call and its answer. The `first` counts the two messages that hold all of them."""
    parts = tuple(
        part
        for message in held
        for part in message.parts
        if isinstance(part, CallPart | ResultPart) and part.id == fed.call
    )
    text = "".join(part.result for part in parts if isinstance(part, ResultPart))
    alone = _tokens([Message(role="tool", parts=parts)]) - _tokens([Message(role="tool", parts=())])
    return Line(
        name=fed.block,
        source=f"{fed.tool}, call {fed.call}",
        place="history",
        tokens=alone + (_tokens([Message(role="tool", parts=())] * 2) if first else 0),
        hash=_hash(text),
        why=fed.why,
    )


def _gone(fed: Fed, state: RunState) -> Line:
    held = state.messages[fed.at : fed.at + 2]
    out = _fed_line(fed, held)
    return msgspec.structs.replace(out, sent=False, hash="", why=_why_out(state))


def _why_out(state: RunState) -> str:
    return f"condensed in {_place(state)}" if state.view.summary else "not the last requests"


def _place(state: RunState) -> str:
    """Where the summary stands; in a session that may be the journal of an earlier run."""
    return f"event {state.view.summary} of run {state.condensed_in}"


def _summary(state: RunState, why: str = "") -> Line:
    return Line(
        name="summary",
        source=_place(state),
        place="history",
        tokens=_tokens([user(f"{SUMMARY_NOTE}\n\n{state.summary}")]),
        hash=_hash(state.summary),
        why=why,
    )


def _told_of(event: ev.ContextCompacted) -> str:
    """What is said of a summary beside its text: why a rule wrote it, what was taken out of it."""
    if event.why:
        return f"by a rule: {event.why}"
    kept = len(event.keep)
    return f"{kept} {'fact' if kept == 1 else 'facts'} of it to be remembered" if kept else ""


def _part(name: str, messages: list[Message], first: int, source: str = "") -> Line:
    last = first + len(messages)
    if not source:
        source = f"message {last}" if len(messages) == 1 else f"messages {first + 1} to {last}"
    text = msgspec.json.encode(messages).decode()
    return Line(
        name=name, source=source, place="history", tokens=_tokens(messages), hash=_hash(text)
    )


def _tokens(messages: list[Message]) -> int:
    return sum(map(tokens_of, messages))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def bytes_of(state: RunState) -> list[bytes]:
    """A request as it is sent: tools, head, then message after message."""
    head = f"{state.tools}\n{system_text(state)}".encode()
    return [head, *map(msgspec.json.encode, messages_of(state))]


def share_unchanged(before: list[bytes], now: list[bytes]) -> float:
    whole = sum(map(len, before))
    same = 0
    for old, new in zip(before, now, strict=False):
        if old == new:
            same += len(old)
            continue
        same += next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
        break
    return round(same / whole, 4) if whole else 1.0
