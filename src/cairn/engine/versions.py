"""What is done when another version of its agent has worked on a run: said, pinned or refused."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.fingerprint import PartChange, changes_between, contract_changed
from cairn.core.gate import judge
from cairn.core.lifecycle import CallStatus
from cairn.core.state import Call, RunState
from cairn.crew import Crew
from cairn.engine.host import Host
from cairn.errors import VersionMismatch


def version_change(state: RunState, crew: Crew, host: Host) -> ev.RunVersionChanged | None:
    """The event that says what is not as it was; None when all is.

    Raises:
        VersionMismatch: this process leaves such a run to the version it was begun by.
    """
    changes = changes_between(state.fingerprint, crew.fingerprint)
    if not changes:
        return None
    refuse_pinned(state, crew, host)
    refused = host.on_change == "refuse" and state.fingerprint is not None
    return ev.RunVersionChanged(
        changes=changes,
        decision="refuse" if refused else "continue",
        calls=() if refused else _to_judge(state, crew, changes),
        driver=host.driver(),
        unread=crew.fingerprint.unread,
    )


def refuse_pinned(state: RunState, crew: Crew, host: Host) -> None:
    """Leave a run alone that is pinned to another version; an unknown one fits any.

    Raises:
        VersionMismatch: it is.
    """
    if host.on_change != "pin" or state.fingerprint is None or state.cancel is not None:
        return
    changes = changes_between(state.fingerprint, crew.fingerprint)
    if changes:
        raise VersionMismatch(state.run, tuple(change.part for change in changes))


def _to_judge(state: RunState, crew: Crew, changes: tuple[PartChange, ...]) -> tuple[str, ...]:
    """Open calls that nothing said before is valid for any more."""
    if state.fingerprint is None:
        return ()
    return tuple(c.id for c in state.calls.values() if _is_void(state, c, crew, changes))


def _is_void(state: RunState, call: Call, crew: Crew, changes: tuple[PartChange, ...]) -> bool:
    if call.closed or call.status is CallStatus.QUESTION:
        return False
    if contract_changed(changes, call.tool):
        return True
    # who still waits for a person would not pass the gate again before they have answered
    asking = call.status is CallStatus.ASKING
    return asking and isinstance(
        judge(state, call, crew.rules), ev.ToolRejected | ev.ToolRedirected
    )
