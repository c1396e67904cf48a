"""Replaying a run: its journal is read, and every decision is taken anew. Nothing is driven.

What is handed to the walk can only read: there is no writer, no claim, and nothing in here knows
how to call a model, a tool or a probe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cairn.block import Briefing, text_of
from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.grants import recorded_in
from cairn.core.limits import Limits
from cairn.core.messages import clean
from cairn.core.replay import Replay, Replayer
from cairn.core.state import RunState
from cairn.crew import Crew
from cairn.engine.attend import TASK_S
from cairn.engine.load import start_of
from cairn.errors import CorruptJournal, words_of
from cairn.ports import Store

BREATH = 500
"""After how many events others in the event loop have their turn."""


class Reader:
    """What of a store a replay gets: reading, and nothing else."""

    __slots__ = ("info", "read")

    def __init__(self, store: Store) -> None:
        self.info = store.info
        self.read: Callable[..., Awaitable[list[ev.Entry]]] = store.read


async def replay_run(
    reader: Reader,
    run: str,
    crew: Crew,
    *,
    limits: Limits | Mapping[str, int] | Literal["agent"] | None = None,
    prompts: bool = False,
    ignore: Sequence[str] = (),
    pause: Callable[[float], Awaitable[Any]] | None = None,
) -> Replay:
    """Take every decision of a run anew.

    Args:
        reader: Where its journal is read.
        run: Its id.
        crew: The agent as it is now.
        limits: Bounds in place of the recorded ones, or only those that a mapping names;
            `agent` also holds the run to the bounds its agent has now.
        prompts: Whether instructions that are a function are computed anew, for each request.
        ignore: What of a decision leads nowhere else: `model`, the name of the model asked.
        pause: Lets others in the event loop have their turn, now and then.

    Raises:
        UnknownRun: there is no such run.
        CorruptJournal: its journal cannot be read.
        ConfigError: one of `ignore` cannot be overlooked.
    """
    entries = await reader.read(run)
    if not entries:
        raise CorruptJournal(f"{run}: the journal is empty")
    store: Any = reader
    # what the run goes on from is said by its first event, or later by its own run.continued
    head = [entries[0], *(e for e in entries if isinstance(e.event, ev.RunContinued))]
    first = fold(await start_of(store, run, head), entries[:1])
    bounds = None
    if isinstance(limits, str):
        bounds = first.limits.narrowed(crew.agent.limits)
    elif limits is not None:
        bounds = first.limits.changed(limits)
    rules = msgspec.structs.replace(crew.rules, grants=recorded_in(entries))
    walk = Replayer(first, rules, bounds, ignore)
    for n, entry in enumerate(entries[1:]):
        text = None
        if isinstance(entry.event, ev.ModelRequested) and not walk.diverged:
            text = await _prompt(walk.state, crew, entry.step, computed=prompts)
        walk.feed(entry, text)
        if pause is not None and n % BREATH == BREATH - 1:
            await pause(0)
    return walk.result(run, len(entries))


async def _prompt(state: RunState, crew: Crew, step: int, *, computed: bool) -> str | None:
    """The instructions a request would hold now; None when nobody asked to compute them."""
    agent = crew.agent
    if isinstance(agent.instructions, str):
        return clean(agent.instructions)
    if not computed:
        return None
    briefing = Briefing(
        run=state.run,
        agent=state.agent,
        principal=state.principal,
        session=state.created.session if state.created else "",
        step=step,
    )
    try:
        what = f"the instructions of agent {state.agent}"
        return clean(await text_of(agent.instructions, briefing, what, seconds=TASK_S))
    except Exception as error:  # the deployer's function may raise anything: that is a finding
        return f"(the function raised {words_of(error)})"
