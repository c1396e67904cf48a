"""What is done about each class of fault: a table of rungs, tried in order, each a few times.

A row is data and can be overridden. Whatever it says, a call that was started is only ever
repeated as its `recovery` allows; see `decide`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairn.core.events import Disposition
from cairn.core.messages import Record
from cairn.errors import ConfigError, ErrorClass, safe_repr

ALWAYS = 1_000_000_000
_E = ErrorClass


class Rung(Record):
    """One thing to do, and how often at most.

    Args:
        disposition: What to do.
        times: How often, per turn or call.
        backoff_us: Wait before the first; doubles each time, jittered.
    """

    disposition: Disposition
    times: int = ALWAYS
    backoff_us: int = 500_000


CAP_US = 60_000_000
"""No single back-off is longer than this, unless the provider asked for more."""
RETRY_AFTER_CAP_US = 600_000_000
"""A provider's wish to wait is honoured up to ten minutes."""

MODEL_CLASSES = frozenset(
    {
        _E.RATE_LIMITED,
        _E.QUOTA_EXHAUSTED,
        _E.OVERLOADED,
        _E.UNAVAILABLE,
        _E.TIMEOUT,
        _E.NETWORK,
        _E.STREAM_INTERRUPTED,
        _E.CONTEXT_OVERFLOW,
        _E.REQUEST_TOO_LARGE,
        _E.INVALID_REQUEST,
        _E.AUTH,
        _E.MODEL_NOT_FOUND,
        _E.CONTENT_FILTERED,
        _E.MALFORMED_OUTPUT,
        _E.TRUNCATED_OUTPUT,
        _E.EMPTY_OUTPUT,
    }
)
MODEL_RUNGS = frozenset({"retry", "repair", "switch", "end"})
TOOL_RUNGS = frozenset({"retry", "repair", "switch", "degrade", "ask_user", "takeover", "end"})


def _row(*rungs: tuple[Disposition, int]) -> tuple[Rung, ...]:
    return tuple(Rung(disposition=d, times=n) for d, n in rungs)


TELL = _row(("repair", ALWAYS))
RESORT = (Rung(disposition="switch", times=1), Rung(disposition="end"))
TABLE: dict[ErrorClass, tuple[Rung, ...]] = {
    _E.RATE_LIMITED: (Rung(disposition="retry", times=6, backoff_us=1_000_000), *RESORT),
    _E.QUOTA_EXHAUSTED: RESORT,
    _E.OVERLOADED: (Rung(disposition="retry", times=5, backoff_us=1_000_000), *RESORT),
    _E.UNAVAILABLE: (Rung(disposition="retry", times=5), *RESORT),
    _E.TIMEOUT: (Rung(disposition="retry", times=2), *RESORT),
    _E.NETWORK: (Rung(disposition="retry", times=5), *RESORT),
    _E.STREAM_INTERRUPTED: (Rung(disposition="retry", times=3), *RESORT),
    _E.CONTEXT_OVERFLOW: _row(("retry", 3), ("switch", 1), ("end", 1)),
    _E.REQUEST_TOO_LARGE: _row(("end", 1)),
    _E.INVALID_REQUEST: _row(("end", 1)),
    _E.AUTH: RESORT,
    _E.MODEL_NOT_FOUND: RESORT,
    _E.CONTENT_FILTERED: _row(("end", 1)),
    _E.MALFORMED_OUTPUT: _row(("repair", 3), ("switch", 1), ("end", 1)),
    _E.TRUNCATED_OUTPUT: _row(("repair", 2), ("switch", 1), ("end", 1)),
    _E.EMPTY_OUTPUT: _row(("repair", 2), ("switch", 1), ("end", 1)),
    _E.UNKNOWN_TOOL: _row(("repair", 3), ("end", 1)),
    _E.INVALID_ARGUMENTS: _row(("repair", 3), ("end", 1)),
    _E.TOOL_ERROR: _row(("switch", 1), ("repair", ALWAYS)),
    _E.TOOL_TIMEOUT: _row(("retry", 1), ("switch", 1), ("repair", ALWAYS)),
    _E.TOOL_UNAVAILABLE: _row(("retry", 3), ("switch", 1), ("repair", ALWAYS)),
    _E.DEPENDENCY_FAILED: _row(("switch", 1), ("repair", ALWAYS)),
    _E.RESULT_TOO_LARGE: TELL,
    _E.IN_DOUBT: _row(("retry", 3), ("takeover", 1)),
    _E.PERMISSION_DENIED: TELL,
    _E.APPROVAL_DENIED: TELL,
    _E.APPROVAL_EXPIRED: TELL,
    _E.MCP_DISCONNECTED: _row(("retry", 2), ("repair", ALWAYS)),
    _E.INPUT_INCOMPLETE: _row(("ask_user", 2), ("end", 1)),
    _E.LIMIT_REACHED: _row(("end", 1)),
    _E.NO_PROGRESS: _row(("end", 1)),
    _E.LOOP_DETECTED: TELL,
    _E.STORAGE: _row(("end", 1)),
    _E.CANCELLED: _row(("end", 1)),
    _E.COMPACTION_FAILED: _row(("retry", 1), ("degrade", 1)),
    _E.INTERNAL: _row(("end", 1)),
}


class Ladder(Record, gc=True):
    """The table in force: the built-in one with the deployment's rows on top.

    Raises:
        ConfigError: a row names something that cannot be done about that class.
    """

    rows: Mapping[ErrorClass, tuple[Rung, ...]] = {}

    def __post_init__(self) -> None:
        rows: object = self.rows
        if not isinstance(rows, Mapping):
            fix = 'Write {ErrorClass.TIMEOUT: (Rung(disposition="retry", times=3),)}'
            raise ConfigError("ladder.rows", f"{safe_repr(rows)} is no mapping", fix)
        for key, rungs in rows.items():
            if key not in TABLE:
                raise ConfigError(
                    f"ladder.{safe_repr(key) if not isinstance(key, str) else key}",
                    "there is no such class of fault",
                    "Use a cairn.ErrorClass",
                )
            _check_row(ErrorClass(key), rungs)

    def row(self, error_class: ErrorClass) -> tuple[Rung, ...]:
        """The rungs for a class."""
        return self.rows.get(error_class) or TABLE[error_class]

    def choose(
        self, error_class: ErrorClass, tries: Mapping[str, int], possible: frozenset[str]
    ) -> Rung:
        """The first rung that is possible and not used up; `end` when none is left."""
        for rung in self.row(error_class):
            used = tries.get(f"{error_class.value}:{rung.disposition}", 0)
            if rung.disposition in possible and used < rung.times:
                return rung
        return Rung(disposition="end", times=1)


def _check_row(error_class: ErrorClass, rungs: object) -> None:
    where = f"ladder.{error_class.value}"
    if not isinstance(rungs, list | tuple) or not all(isinstance(r, Rung) for r in rungs):
        fix = 'Give a tuple of them, as (Rung(disposition="retry", times=3),)'
        raise ConfigError(where, f"{safe_repr(rungs)} are no rungs", fix)
    allowed = sorted(MODEL_RUNGS if error_class in MODEL_CLASSES else TOOL_RUNGS)
    for rung in rungs:
        if rung.disposition not in allowed:
            raise ConfigError(
                where,
                f"{safe_repr(rung.disposition)} cannot be done about it",
                f"Use one of {', '.join(allowed)}",
            )
        for field in ("times", "backoff_us"):
            value = getattr(rung, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                problem = f"{safe_repr(value)} is no whole number of 0 or more"
                raise ConfigError(f"{where}.{field}", problem, "Give 0, 1, 2 or more")


DEFAULT_LADDER = Ladder()


def backoff_us(base_us: int, used: int, jitter: float) -> int:
    """Wait before the next attempt: doubling, capped, spread by `jitter` in [0, 1)."""
    full = min(base_us * 2 ** min(used, 16), CAP_US)
    return int(full * (0.5 + jitter / 2))
