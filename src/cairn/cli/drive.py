"""Driving one run in front of somebody: stream it to a screen, heed Ctrl-C, say how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from cairn.cli import exits
from cairn.cli.drivers import aside, undriven
from cairn.cli.hints import Hints, hints_for
from cairn.cli.interrupts import RunInterrupts
from cairn.cli.outcome import print_json, print_outcome, run_object
from cairn.cli.place import Place
from cairn.cli.plain import reasons
from cairn.cli.say import complain, print_line
from cairn.cli.screen import screen_for
from cairn.core.messages import Record
from cairn.engine.clock import SystemClock
from cairn.errors import UnknownRun
from cairn.ports import Observed, RunInfo, Store

if TYPE_CHECKING:
    from cairn.engine.result import Run
    from cairn.runtime import Runtime

Source = Callable[[], AsyncIterator[Observed]]
"""Drives a run and yields what happens, from its first event on."""


class Shown(Record):
    """How a driven run is shown.

    Args:
        place: Where the command works.
        json: The result as one JSON object, and nothing else.
        quiet: The result only.
        by: Who presses Ctrl-C.
        only: Beginnings of the names of events that are shown; an empty one means all.
        left: Whether nothing is driven because that was said, and not for want of an application.
    """

    place: Place
    json: bool = False
    quiet: bool = False
    by: str = ""
    only: tuple[str, ...] = ("",)
    left: bool = False


async def drive_shown(runtime: Runtime, run: str, source: Source, shown: Shown) -> Run:
    """Drive a run and show what happens in it; then say how it stands."""
    before = await _found(runtime.store, run)
    known = before.head if before is not None else 0
    with screen_for(run, known, shown.only, quiet=shown.quiet or shown.json) as screen:
        interrupts = RunInterrupts(runtime, run, shown.by, screen.say)
        begun = False
        with interrupts.signals():
            async for what in source():
                if before is not None and not begun and "" in shown.only:
                    screen.say(_going_on(before, SystemClock().now_us()))
                begun = True
                screen.show(what)
    return await runtime.get_async(run)


async def _found(store: Store, run: str) -> RunInfo | None:
    """The line of a run, None when there is no such run yet."""
    try:
        return await store.info(run)
    except UnknownRun:
        return None


def _going_on(before: RunInfo, now: int) -> str:
    if before.status in exits.ENDED:
        return f"{before.run} is {before.status}: this is its stored result"
    if before.status == "waiting" and not before.leased and not undriven(before, now):
        return f"{before.run} is waiting ({reasons(before.waits)}), and so far nothing has come"
    return f"{before.run} goes on after event {before.head}"


def drive_to_report(
    runtime: Runtime,
    prepare: Callable[[], Awaitable[str]],
    source: Callable[[str], AsyncIterator[Observed]],
    shown: Shown,
) -> int:
    """Prepare a run, drive it if its agent is known here, report, and give the exit code."""

    async def whole() -> int:
        try:
            run = await prepare()
            agent = (await runtime.store.info(run)).agent
            if agent not in runtime.host.agents:
                return await leave_to_others(runtime.store, run, shown)
            result = await drive_shown(runtime, run, lambda: source(run), shown)
        finally:
            await runtime.close_async()
        report(result, shown, runtime.store)
        return exits.of_run(result.status)

    return asyncio.run(whole())


def start_to_report(runtime: Runtime, run: str, source: Source, shown: Shown) -> int:
    """Drive a run that `source` starts or finds, report, and give the exit code."""

    async def whole() -> Run:
        try:
            return await drive_shown(runtime, run, source, shown)
        finally:
            await runtime.close_async()

    result = asyncio.run(whole())
    report(result, shown, runtime.store)
    return exits.of_run(result.status)


async def leave_to_others(store: Store, run: str, shown: Shown) -> int:
    """Say how a run stands that cannot be driven here, and who has to go on with it.

    The words on who has to go on are on standard error, and the exit code is that of waiting.
    """
    from cairn.engine.result import result_of

    info = await store.info(run)
    if info.status in exits.ENDED or shown.json:
        report(await result_of(store, run), shown, store)
    if info.status in exits.ENDED:
        return exits.of_run(info.status)
    now = SystemClock().now_us()
    if not shown.json:
        print_line(f"run {run} is {info.status}{aside(info, now)}")
    hints = hints_for(shown.place, store)
    if shown.left and shown.place.has_app:
        hints = msgspec.structs.replace(hints, elsewhere=hints.drive)
    complain(_who_goes_on(info, now, hints))
    return exits.LEFT


def _who_goes_on(info: RunInfo, now: int, hints: Hints) -> str:
    run = info.run
    if info.leased:
        return f"run {run} is not driven from here: another process drives it"
    how = (
        f"cairn resume {run}{hints.elsewhere}, or cairn work{hints.elsewhere}, "
        f"with an application that has the agent {info.agent!r}"
    )
    if undriven(info, now):
        return f"nobody drives run {run}. To go on: {how}"
    if "retry_at" in info.waits:
        return f"nobody drives run {run}, which waits for a time. To go on then: {how}"
    return f"run {run} waits for people: see cairn inbox{hints.decide}. To go on after that: {how}"


def report(result: Run, shown: Shown, store: Store) -> None:
    """Print how a run of this store stands."""
    if shown.json:
        print_json(run_object(result))
    else:
        print_outcome(result, hints_for(shown.place, store))
