"""`advance`: the only loop's front door. Claim, fold, drive, and say what should happen next.

Every way of driving a run, embedded or by a scheduler, calls this function.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from cairn.core.state import RunState
from cairn.crew import Crew
from cairn.engine.drive import Directive, Drive
from cairn.engine.ends import as_fault, asked_for
from cairn.engine.flights import Flights
from cairn.engine.host import Host
from cairn.engine.journal import PATIENCE
from cairn.engine.load import load
from cairn.engine.turns import begin_turn
from cairn.errors import (
    DepsFailed,
    Fenced,
    ModelUnready,
    StoreBusy,
    StoreError,
    UnknownAgent,
    UnknownTools,
    VersionMismatch,
)
from cairn.ports import Claim, Store

log = logging.getLogger("cairn")


async def advance(store: Store, run: str, host: Host, *, slice_s: float = 0.0) -> Directive:
    """Drive a run as far as it goes, or for about `slice_s` seconds if that is not 0.

    When the caller is cancelled, what is at work is stopped, what came of it is recorded, and
    the run is given back; only then does the cancellation go on. A second one does not wait.

    Raises:
        UnknownRun: there is no such run.
        UnknownAgent, UnknownTools, DepsFailed, VersionMismatch: it cannot be driven from here
            now; the claim is given back.
        StoreError: the store failed; what was acknowledged is safe.
    """
    directive, _ = await carry(store, run, host, slice_s)
    return directive


async def carry(
    store: Store, run: str, host: Host, slice_s: float = 0.0
) -> tuple[Directive, RunState | None]:
    """`advance`, and the state it left the run in, for who needs no second look at the journal."""
    flights = Flights()
    task = asyncio.get_running_loop().create_task(_advance(store, run, host, slice_s, flights))
    try:
        with host.secrets.scrubbed():
            return await asyncio.shield(task)
    except asyncio.CancelledError:
        flights.stop()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
        if task.done() and not task.cancelled():
            task.exception()  # seen, so that nobody is told it was not
        raise


async def _advance(
    store: Store, run: str, host: Host, slice_s: float, flights: Flights
) -> tuple[Directive, RunState | None]:
    task = asyncio.current_task()
    await host.uphold(store)
    claim = await store.claim(run)
    if claim is None:
        return Directive(kind="busy"), None
    drive: Drive | None = None
    try:
        state = await load(store, run)
        state = await begin_turn(store, claim, state, host)
        if state.end is None and state.cancel is None:
            await host.ready(state.agent)
        drive = Drive(store, host, claim, state, _crew(host, state), flights)
        return await drive.loop(slice_s), drive.state
    except Fenced:
        if drive is not None:
            await drive.leave()
        return Directive(kind="busy"), None
    except StoreError:
        await flights.halt()
        with suppress(StoreError):  # it may have been busy only: the run must not stay ours
            await _give_back(store, run, claim)
        raise
    except (UnknownAgent, DepsFailed, ModelUnready, UnknownTools, VersionMismatch):
        # not here and now; elsewhere or later it can be driven
        if drive is not None:
            await drive.stop()
        else:
            await _give_back(store, run, claim)
        raise
    except BaseException as error:  # a fault within ends this run, said in its journal, no other
        wanted = asked_for(error, task)
        if wanted and not isinstance(error, asyncio.CancelledError):
            raise
        if wanted and drive is not None:  # the loop is being closed, or somebody would not wait
            await drive.stop()
            raise
        if drive is None:
            await _give_back(store, run, claim)
            if wanted:
                raise
            raise as_fault(error, f"run {run}")  # noqa: B904 - it names its cause itself
        log.exception("run %s failed inside the runtime", run)
        return await _failed(store, claim, drive, error), None
    finally:
        flights.close()


async def _failed(store: Store, claim: Claim, drive: Drive, error: BaseException) -> Directive:
    """End the run with a fault; where even that cannot be written, leave it to others."""
    run, task = drive.state.run, asyncio.current_task()
    try:
        return await drive.fail(as_fault(error, f"run {run}"))
    except BaseException as another:  # whatever it is, the run must not stay ours
        if asked_for(another, task):
            raise
        with suppress(StoreError):
            await _give_back(store, run, claim)
        raise as_fault(another, f"run {run}")  # noqa: B904 - it names its cause itself


async def _give_back(store: Store, run: str, claim: Claim) -> None:
    """Give the claim up: kept, it would shut the run to everybody while this process lives."""
    for _ in range(PATIENCE - 1):
        with suppress(StoreBusy):
            return await store.append(run, claim.epoch, (), None, release=True)
    return await store.append(run, claim.epoch, (), None, release=True)


def _crew(host: Host, state: RunState) -> Crew | None:
    try:
        return host.working(state.agent)
    except (UnknownAgent, UnknownTools):
        if state.end is None and state.cancel is None:
            raise
        return None
