"""Why the runs of a session were not removed, as people are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cairn.ports import RunInfo
from cairn.store.retention import ENDED_VALUES


def why_kept(
    newest_first: Iterable[RunInfo],
    session: str,
    before: int,
    begun: Mapping[str, str],
    after: Mapping[str, str],
) -> dict[str, str]:
    """Why each run of a session was not removed, newest first.

    Args:
        newest_first: The runs that are there.
        session: Whose.
        before: Only what nobody wrote to since was to go.
        begun: Sessions that were forked from a run, by the run.
        after: Of the runs of it those that are there and go on from another one, by that one.
    """
    lines = list(newest_first)
    forks = {line.parent: line.run for line in reversed(lines) if line.parent}
    kept: dict[str, str] = {}
    later = ""
    for line in lines:
        if line.session != session:
            continue
        kept[line.run] = _on_its_own(line, before) or _held(line, later, forks, begun, after)
        later = line.run
    return kept


def _on_its_own(line: RunInfo, before: int) -> str:
    """Why a run stays whatever becomes of the others; empty if it need not."""
    if line.status not in ENDED_VALUES:
        return f"it is {line.status}"
    if line.leased:
        return "it is being driven"
    if line.updated_at >= before:
        return "it was written to since"
    return "it has messages that nobody has read" if line.unread else ""


def _held(
    line: RunInfo,
    later: str,
    forks: Mapping[str, str],
    begun: Mapping[str, str],
    after: Mapping[str, str],
) -> str:
    """Why a run stays that could go if it stood alone."""
    if line.run in forks:
        return f"run {forks[line.run]} was forked from it"
    if begun.get(line.run, line.session) != line.session:
        return f"session {begun[line.run]} was forked from it"
    if line.run in after:
        return f"run {after[line.run]} of the session stays, and goes on from it"
    if later:
        return f"run {later} of the session is newer, and stays"
    return "nobody knows what came of one of its calls, or its journal cannot be read"
