"""`Run`: what a run is worth to its caller, read from its journal."""

from __future__ import annotations

from typing import Any

from cairn.core import events as ev
from cairn.core.index import pending_of
from cairn.core.lifecycle import Status
from cairn.core.limits import Usage
from cairn.core.messages import Record, Source
from cairn.core.report import ArtifactRef, Citation, cited, summary
from cairn.core.requests import Request, requests_of
from cairn.core.state import RunState, waits
from cairn.crew import Crew
from cairn.engine.conversation import previous_of
from cairn.engine.load import load
from cairn.ports import Store
from cairn.tools.blocking import Overdue


class Run(Record, gc=True):
    """A run as it stands.

    Args:
        id: Its run id.
        status: queued, running, waiting, paused, completed, failed, stopped or cancelled.
        reason: Why it waits, or why it ended other than completed; empty otherwise.
        text: The answer; for any other status, what was done, what was not, what is unknown.
        output: The typed answer, when the agent has an output type and the run completed.
        pending: What waits for people, each with the id to decide it by, who asks, why, and who
            may decide it.
        usage: Tokens and cost so far.
        citations: The sources the answer cites.
        artifacts: Contents the run made.
        degraded: What had to be left out, by name.
        error_class: Class of the fault, when it failed.
        limit: The limit that stopped it.
        note: Of the verb that gave this: a decision that had been taken before, by whom and when,
            or why new arguments were not checked.
    """

    id: str
    status: str
    reason: str = ""
    text: str = ""
    output: Any = None
    pending: tuple[Request, ...] = ()
    usage: Usage = Usage()
    steps: int = 0
    calls: int = 0
    citations: tuple[Citation, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    degraded: tuple[str, ...] = ()
    error_class: str = ""
    limit: str = ""
    session: str = ""
    note: str = ""

    @property
    def cost_usd(self) -> float:
        """What it has cost so far, in US dollars."""
        return self.usage.micro_usd / 1_000_000

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.status == Status.COMPLETED.value


async def result_of(store: Store, run: str, crew: Crew | None = None) -> Run:
    """The run as its journal says it stands.

    Raises:
        UnknownRun: there is no such run.
        Overdue: see `run_of`.
    """
    return await run_of(store, await load(store, run), crew)


async def run_of(
    store: Store, state: RunState, crew: Crew | None, entries: list[ev.Entry] | None = None
) -> Run:
    """The result for a state; the journal is only read for what the state does not hold.

    Raises:
        Overdue: the validators of the output type took longer than 30 seconds.
    """
    completed = state.status is Status.COMPLETED
    if entries is None:
        bare = completed and not state.artifacts and not state.sources
        entries = [] if bare else await store.read(state.run, upto=state.seq)
    text = state.answer_text if completed else summary(state, entries)
    output = None
    if completed and crew is not None and crew.output is not None:
        try:
            output = await crew.output.value_of(state.answer_text)
        except Overdue:  # it may come out next time, so it is not left out in silence
            raise
        except Exception:  # the type or its validators may be others by now; the text stays
            output = None
    end = state.end
    return Run(
        id=state.run,
        status=state.status.value,
        reason=_reason(state),
        text=text,
        output=output,
        pending=requests_of(pending_of(state), state.created, entries),
        usage=state.usage,
        steps=state.spent.steps,
        calls=state.spent.calls,
        citations=cited(text, await _sources(store, state, entries)) if completed else (),
        artifacts=tuple(
            ArtifactRef(
                id=e.event.id,
                name=e.event.name,
                media_type=e.event.media_type,
                size=e.event.size,
            )
            for e in entries
            if isinstance(e.event, ev.ArtifactCreated)
        ),
        degraded=state.degraded,
        error_class=end.error_class.value if end and end.error_class else "",
        limit=end.limit if end else "",
        session=state.created.session if state.created else "",
    )


def _reason(state: RunState) -> str:
    if state.end is None:
        return ", ".join(sorted(waits(state)))
    if state.end.status is Status.COMPLETED:
        return ""
    return state.end.message or state.end.limit


async def _sources(store: Store, state: RunState, entries: list[ev.Entry]) -> list[Source]:
    """All sources a citation may name, those of the session's earlier runs first."""
    if not state.sources:
        return []
    found: list[Source] = []
    for entry in reversed(entries):
        if isinstance(entry.event, ev.ToolCompleted):
            found.extend(reversed(entry.event.sources))
    previous = previous_of(entries)
    while len(found) < state.sources and previous is not None:
        earlier = await store.read(previous.run, upto=previous.seq)
        for entry in reversed(earlier):
            if isinstance(entry.event, ev.ToolCompleted):
                found.extend(reversed(entry.event.sources))
        previous = previous_of(earlier)
    found.reverse()
    return found
