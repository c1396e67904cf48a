"""Whether anybody drives a run, and the commands that take over one that nobody drives."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.cli.hints import Hints
from cairn.cli.plain import reasons
from cairn.engine.clock import SystemClock
from cairn.ports import RunFilter, RunInfo, Store

MOVING = ("queued", "running", "waiting")
ALL = 1_000_000_000
NAMED = 5


def undriven(info: RunInfo, now: int) -> bool:
    """Whether a run could go on at once and no living process drives it."""
    if info.leased or info.behind:
        return False
    if info.status == "waiting":
        return 0 < info.wake_at <= now
    return info.status in {"queued", "running"}


def aside(info: RunInfo, now: int) -> str:
    """What belongs behind a run's status: what it waits for, and whether anybody drives it."""
    waits = f" ({reasons(info.waits)})" if info.waits else ""
    if info.leased:
        return f"{waits}, driven"
    if info.behind:
        return f"{waits}, behind {info.behind}"
    return f"{waits}, not driven" if undriven(info, now) else waits


async def find_undriven(store: Store) -> list[RunInfo]:
    """All runs that could go on and that nobody drives, the newest first."""
    now = SystemClock().now_us()
    moving = await store.runs(RunFilter(status=MOVING, limit=ALL))
    return [info for info in moving if undriven(info, now)]


def takeover(left: Sequence[RunInfo], hints: Hints) -> str:
    """A line on runs that nobody drives, with the commands that take them over; empty for none."""
    if not left:
        return ""
    work = f"cairn work{hints.drive}"
    if len(left) == 1:
        (info,) = left
        resume = f"cairn resume {info.run}{hints.drive}"
        return (
            f"run {info.run} is {info.status} and nobody drives it. To go on: {resume}, or {work}"
        )
    names = ", ".join(info.run for info in left[:NAMED])
    more = " …" if len(left) > NAMED else ""
    return f"{len(left)} runs could go on and nobody drives them: {names}{more}. To go on: {work}"
