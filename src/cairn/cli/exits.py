"""What a command's exit code says (law 9 of the design), and which error is which."""

from __future__ import annotations

from cairn.errors import CairnError, RunConflict, UnknownAgent, UnknownRun, UsageError

DONE = 0
REFUSED = 1
USAGE = 2
LEFT = 5
"""The run is not over and is not driven from here: it waits for a driver, or for people."""
INTERRUPTED = 130
"""128 and the number of SIGINT, when nothing was being driven."""
TERMINATED = 143
"""128 and the number of SIGTERM: the run goes on when it is asked for again."""

ENDED = frozenset({"completed", "failed", "stopped", "cancelled"})
OF_STATUS = {
    "completed": 0,
    "failed": 1,
    "stopped": 3,
    "cancelled": 4,
    "waiting": 5,
    "paused": 6,
}


def of_run(status: str) -> int:
    """The exit code for a run that was driven and now stands like this."""
    return OF_STATUS.get(status, TERMINATED)


def of_error(error: CairnError) -> int:
    """2 for what cannot be asked for, 1 for what was refused or failed."""
    usage = isinstance(error, UsageError | UnknownRun | UnknownAgent | RunConflict)
    return USAGE if usage else REFUSED
