"""A conversation as people read it: Markdown, in which nothing that was said can pose as ours."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Blob, CallPart, Message, Part, ResultPart, Text, Uri, text_of
from cairn.core.moments import in_utc
from cairn.core.state import Call, RunState, transcript
from cairn.core.visible import as_read, by_number
from cairn.engine.load import start_of
from cairn.engine.sessions import Conversation
from cairn.errors import CairnError
from cairn.ports import RunInfo, Store

RESULT_CHARS = 400
"""As much of what a tool said as is shown; the events hold all of it."""
STANDS = {
    CallStatus.ASKING: "waits for approval",
    CallStatus.APPROVED: "is approved, and has not been started yet",
    CallStatus.QUESTION: "waits for an answer",
    CallStatus.STARTED: "is at work",
    CallStatus.RETRYING: "failed, and will be tried again",
    CallStatus.UNKNOWN: "was started, and nobody knows what came of it",
    CallStatus.TAKEOVER: "waits for a person to say what came of it",
}
"""How a call stands that has no outcome."""
NOTE = "[runtime]"
"""How a message begins that the runtime has for the model, and nobody else has sent."""


async def transcript_of(store: Store, seen: Conversation) -> str:
    """What was said in a session, run by run, in Markdown."""
    whose = f"`{_plain(seen.info.session)}` of `{_plain(seen.info.principal)}`"
    lines = [f"# {_plain(seen.title) or 'Untitled'}", "", f"Session {whose}.", ""]
    for run in seen.chain:
        lines += await _run(store, run)
    if seen.superseded:
        lines += ["# Superseded", ""]
        for run in seen.superseded:
            lines += await _run(store, run)
    return "\n".join(lines).rstrip() + "\n"


async def _run(store: Store, run: RunInfo) -> list[str]:
    when = in_utc(run.created_at, "%Y-%m-%d %H:%M UTC")
    lines = [f"## {run.run}", "", f"{_plain(run.agent)}, {run.status}, {when}", ""]
    try:
        entries = await store.read(run.run)
        first = await start_of(store, run.run, entries)
        state, questions = _folded(first, entries)
    except CairnError as error:
        return [*lines, f"It cannot be read: {_plain(str(error))}", ""]
    begin, asked = _before(entries, first), set(state.asked)
    said = [*(state.messages if state.end is None else transcript(state))]
    for n, message in enumerate(said[begin:], begin):
        lines += questions.pop(n, [])
        noted = n not in asked and text_of(message.parts).startswith(NOTE)
        lines += _message(message, run, "runtime" if noted else run.principal)
    for question in questions.values():
        lines += question
    if state.end is None and state.calls:
        lines += [line for call in state.calls.values() for line in _open(call)]
    end = state.end
    if end is not None and end.message:
        lines += [f"Ended: {_plain(end.message)}", ""]
    return lines


def _folded(state: RunState, entries: list[ev.Entry]) -> tuple[RunState, dict[int, list[str]]]:
    """The run, and what the runtime has asked in it: by the message that was said next."""
    questions: dict[int, list[str]] = {}
    for entry in entries:
        state = evolve(state, entry)
        if isinstance(entry.event, ev.InputRequested) and not entry.event.call:
            asked = questions.setdefault(len(state.messages), [])
            asked += ["**the runtime asks**", "", *_quoted(entry.event.question), ""]
    return state, questions


def _open(call: Call) -> list[str]:
    """How a call of a run that is not over stands."""
    if call.closed:
        ok = "" if call.status is CallStatus.COMPLETED else " (not done)"
        return [f"- result of `{_plain(call.name)}`{ok}", "", *_cut(call.result), ""]
    return [f"- `{_plain(call.name)}` {STANDS.get(call.status, 'has not been started yet')}", ""]


def _cut(result: str) -> list[str]:
    more = ["> …"] if len(result) > RESULT_CHARS else []
    return [*_quoted(result[:RESULT_CHARS]), *more]


def _before(entries: list[ev.Entry], first: RunState) -> int:
    """How many messages are those of the runs before; what it took over from them is its own."""
    took = any(
        isinstance(e.event, ev.RunContinued) and (e.event.consumes or e.event.note) for e in entries
    )
    return len(first.messages) - took


def _message(message: Message, run: RunInfo, person: str) -> list[str]:
    who = {"user": person, "assistant": run.agent}.get(message.role, message.role)
    lines: list[str] = []
    for part in message.parts:
        lines += _part(part, who)
    return lines


def _part(part: Part, who: str) -> list[str]:
    match part:
        case Text(content=content):
            return [f"**{_plain(who)}**", "", *_quoted(content), ""]
        case CallPart():
            return [f"- calls `{_plain(part.name)}`", "", *_quoted(as_read(part.arguments)), ""]
        case ResultPart():
            ok = "" if part.ok else " (not done)"
            return [f"- result{ok}", "", *_cut(part.result), ""]
        case Blob():
            return [f"**{_plain(who)}** sent `{_plain(part.name or part.mime_type)}`", ""]
        case Uri():
            return [f"**{_plain(who)}** sent `{_plain(part.uri)}`", ""]
        case _:
            return []


def _quoted(text: str) -> list[str]:
    """Text as a quotation, in a fence longer than any in it: nothing in it takes effect.

    What nobody sees in it, and what a terminal would obey, stands there by its number.
    """
    text = by_number(text.replace("\r\n", "\n"))
    fence = "`" * max(3, 1 + _longest_run(text))
    return [f"> {line}".rstrip() for line in (fence, *text.splitlines(), fence)]


def _longest_run(text: str) -> int:
    longest = here = 0
    for char in text:
        here = here + 1 if char == "`" else 0
        longest = max(longest, here)
    return longest


def _plain(text: str) -> str:
    """A name on one line, without what Markdown would take for a mark."""
    line = " ".join(by_number(text).split()).replace("`", "'")
    for mark in ("\\", "*", "_", "<", "[", "#"):
        line = line.replace(mark, f"\\{mark}")
    return line
