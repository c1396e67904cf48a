"""Every error Cairn raises on purpose, in one tree.

    CairnError
    ├── UsageError                 the developer asked for something impossible
    │   ├── ConfigError            a named field has a bad value (carries field and fix)
    │   │   ├── ModelUnready       a key, a package or an address of a model is missing here
    │   │   └── UnknownTools       a policy or a declaration names tools that nobody offers
    │   ├── ToolDefinitionError    a tool cannot be declared like this
    │   ├── SyncInsideLoop         a sync verb was called inside a running event loop
    │   └── UnsupportedStore       this file or platform cannot hold a store
    ├── RunError                   a run and what was asked of it do not fit
    │   ├── UnknownRun
    │   │   └── RunErased          what the run said was erased; its place and hashes stay
    │   ├── UnknownAgent
    │   ├── NoRoute                no route takes a message from there
    │   ├── DepsFailed             the deployment's factory of dependencies raised
    │   │   └── ToolsUnready       a server of tools cannot be reached
    │   ├── VersionMismatch        the run is pinned to another version of its agent
    │   ├── RunConflict            the id is taken by a run with another input or terms
    │   ├── SessionBusy            the session already has an active run
    │   ├── IllegalTransition      the event or command is not allowed in this state
    │   ├── BudgetReached          a budget over time has no room for what was to begin
    │   └── Refused                the command is legal in form, but too late or too early
    ├── StoreError
    │   ├── StoreBusy              other processes held the file too long; nothing was written
    │   ├── StoreFailed            the disk failed; what was acknowledged is there on reopening
    │   ├── StoreClosed · SchemaTooNew · CorruptJournal
    │   ├── BudgetUnknown          what was spent cannot be told; nothing paid is begun
    │   ├── Fenced                 another owner has the run; drop everything
    │   └── Moved                  only the head moved; read the tail and try again
    ├── ModelError                 a model call failed, with its class
    └── ToolSignal                 raised by tools to say what is known about the effect
        ├── ToolError              it failed, and the failure is certain
        ├── NotDone                it certainly did not happen; it may be tried again
        └── Unsure                 it may have happened

What goes wrong inside a run is data, not an exception: see `ErrorClass`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

SHOWN_CHARS = 200
"""How much of a wrong value a message shows."""
INTEGER_BITS = 4_096
"""Python writes out no whole number of more than 4,300 digits."""


class ErrorClass(StrEnum):
    """What kind of fault it was; the ladder decides by it."""

    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    NETWORK = "network"
    STREAM_INTERRUPTED = "stream_interrupted"
    CONTEXT_OVERFLOW = "context_overflow"
    REQUEST_TOO_LARGE = "request_too_large"
    INVALID_REQUEST = "invalid_request"
    AUTH = "auth"
    MODEL_NOT_FOUND = "model_not_found"
    CONTENT_FILTERED = "content_filtered"
    MALFORMED_OUTPUT = "malformed_output"
    TRUNCATED_OUTPUT = "truncated_output"
    EMPTY_OUTPUT = "empty_output"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    TOOL_ERROR = "tool_error"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_UNAVAILABLE = "tool_unavailable"
    DEPENDENCY_FAILED = "dependency_failed"
    RESULT_TOO_LARGE = "result_too_large"
    IN_DOUBT = "in_doubt"
    PERMISSION_DENIED = "permission_denied"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    MCP_DISCONNECTED = "mcp_disconnected"
    INPUT_INCOMPLETE = "input_incomplete"
    LIMIT_REACHED = "limit_reached"
    NO_PROGRESS = "no_progress"
    LOOP_DETECTED = "loop_detected"
    STORAGE = "storage"
    CANCELLED = "cancelled"
    COMPACTION_FAILED = "compaction_failed"
    INTERNAL = "internal"


class _Short(reprlib.Repr):
    """Shows a part of any value, and never raises."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 10
        self.maxstring = SHOWN_CHARS

    def repr1(self, x: object, level: int) -> str:
        try:
            return super().repr1(x, level)
        except BaseException:  # a stranger's __repr__: even SystemExit only leaves this unshown
            return f"<{type(x).__name__} that cannot be shown>"

    def repr_instance(self, x: object, level: int) -> str:
        return repr(x)

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= INTEGER_BITS else f"<int of {x.bit_length():,} bits>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[:SHOWN_CHARS])


_SHORT = _Short()


def safe_repr(value: object, most: int = SHOWN_CHARS) -> str:
    """A value as a message shows it: on one line, and of any value at all.

    Args:
        value: It may be of any type, endless in size, or raise when it is shown.
        most: How many characters at most.
    """
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in _SHORT.repr(value)[:most])
    return shown if len(shown) < most else f"{shown[: most - 1]}…"


def said_by(error: BaseException) -> str:
    """What an exception says, without its type; empty if it says nothing or cannot be asked."""
    try:
        return str.strip(str(error))
    except BaseException:  # a stranger's __str__: even SystemExit only leaves this unsaid
        return ""


def words_of(error: BaseException) -> str:
    """Any exception as a message shows it: its type, and what it says if it says anything."""
    name, said = type(error).__name__, said_by(error)
    return f"{name}: {said}" if said else name


class CairnError(Exception):
    """The root of everything Cairn raises on purpose."""


class UsageError(CairnError):
    """The developer asked for something that cannot be."""


class ConfigError(UsageError):
    """A setting has a bad value.

    Attributes:
        field: The dotted name of the setting, as the user writes it.
        fix: What to write instead.
    """

    def __init__(self, field: str, problem: str, fix: str) -> None:
        stop = "" if problem.endswith("?") else "."
        super().__init__(f"{field}: {problem}{stop} {fix}")
        self.field = field
        self.fix = fix


class ModelUnready(ConfigError):
    """A model cannot be asked by this process: a key, a package or an address is missing.

    The run is as it was, and can be driven again when it is there.
    """

    @classmethod
    def of(cls, error: ConfigError) -> ModelUnready:
        """The same, said of a run that needs the model now."""
        unready = cls.__new__(cls)
        Exception.__init__(unready, str(error))
        unready.field, unready.fix = error.field, error.fix
        return unready


class UnknownTools(ConfigError):
    """A policy, or what is declared of a server, names tools that nobody offers.

    A run that needs them is as it was, and can be driven again when the names are mended.

    Attributes:
        names: The names, as they are written.
    """

    def __init__(self, field: str, problem: str, fix: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(field, problem, fix)
        self.names = names

    @classmethod
    def of(cls, found: Sequence[tuple[str, str, str, str]]) -> UnknownTools:
        """Several of them in one error, a line for each.

        Args:
            found: Of each the field, the name, the problem and the fix; at least one.
        """
        field, _, problem, fix = found[0]
        error = cls(field, problem, fix, tuple(name for _, name, _, _ in found))
        error.args = ("\n".join(f"{where}: {said}. {do}" for where, _, said, do in found),)
        return error


class UnknownLabels(UnknownTools):
    """Rules of a policy ask for labels of taint that nothing brings into a run; `names` are they.

    Labels that come from elsewhere are declared with `Policy(labels=...)`.
    """


class UnknownArguments(UnknownTools):
    """Rules of a policy ask for arguments that none of their tools has; `names` are they."""


class ToolDefinitionError(UsageError):
    """A function cannot become a tool as declared; the message names the tool and the fix."""


class SyncInsideLoop(UsageError):
    """A sync verb was called where an event loop is running; use its `_async` twin."""


class UnsupportedStore(UsageError):
    """This file, filesystem, library or platform cannot hold a store safely."""


class RunError(CairnError):
    """A run, and what was asked of it, do not fit together."""


class UnknownRun(RunError):
    """No run, session, call or request has this id in the store."""


class UnknownGrant(UnknownRun):
    """No standing grant has this number in the store."""


class RunErased(UnknownRun):
    """What the run said was erased with its principal; its line, times and hashes stay.

    Nothing goes on from it: it is neither read, driven, forked, retried nor written to again.

    Attributes:
        run: Its id.
    """

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run!r} was erased: what it said is gone, and nothing goes on from it"
        )
        self.run = run


class UnknownAgent(RunError):
    """No agent of this name is known to this runtime; the message lists the known ones."""


class DepsFailed(RunError):
    """The `deps` factory raised. The run is as it was and can be driven again."""


class ToolsUnready(DepsFailed):
    """A server of tools cannot be reached. The run is as it was and can be driven again."""


class VersionMismatch(RunError):
    """The run was begun by another version of its agent and is left alone; it can be resumed.

    Attributes:
        run: Its id.
        parts: What differs, such as `prompt` or `tool refund`.
    """

    def __init__(self, run: str, parts: tuple[str, ...]) -> None:
        super().__init__(
            f"run {run!r} is kept, but not driven from here: it is left to the version it was "
            f"begun by, and here these differ: {', '.join(parts)}. To go on: cairn resume {run} "
            "with that version, or set on_change='continue'"
        )
        self.run = run
        self.parts = parts


class NoRoute(RunError):
    """No route takes the message; it names what was asked for, and the nearest route.

    Attributes:
        channel, principal, key: Where the message came from.
    """

    def __init__(self, channel: str, principal: str, key: str, hint: str = "") -> None:
        super().__init__(
            f"no route takes a message from channel {channel!r}, principal {principal!r}, "
            f"key {key!r}{hint}"
        )
        self.channel = channel
        self.principal = principal
        self.key = key


class RunConflict(RunError):
    """The run id is taken by a run with another agent, input or principal, or on other terms.

    Terms are its session, kind, bounds, approvals and policy, as far as the call names them.
    """


class SessionBusy(RunError):
    """The session already has an active run.

    Attributes:
        run: The id of that run.
    """

    def __init__(self, session: str, run: str) -> None:
        super().__init__(
            f"session {session!r} already has the active run {run!r}. "
            "Send the message to it, or wait until it ends"
        )
        self.run = run


class IllegalTransition(RunError):
    """An event or command is not allowed in the present state; nothing was changed."""


class Refused(RunError):
    """A command came too late, too early, or for something already decided; nothing changed."""


class BudgetReached(RunError):
    """A budget over time has no room for what was to begin; nothing was written.

    Attributes:
        budget: Its name.
        measure: What is used up: `calls`, `tokens` or `micro_usd`.
        bound, used: The cap, and what is used or reserved of it.
        room: A `cairn.core.budgets.Room`: what the budgets leave a smaller request.
    """

    def __init__(
        self, message: str, *, budget: str, measure: str, bound: int, used: int, room: Any
    ) -> None:
        super().__init__(message)
        self.budget = budget
        self.measure = measure
        self.bound = bound
        self.used = used
        self.room = room


class StoreError(CairnError):
    """The store could not do what was asked."""


class StoreBusy(StoreError):
    """Other processes held the file for longer than the patience of 10 s; nothing was written."""


class StoreFailed(StoreError):
    """The disk refused a write. Open the store again: what was acknowledged is there."""


class StoreClosed(StoreError):
    """The store was used after it was closed."""


class SchemaTooNew(StoreError):
    """The file was written by a newer Cairn; it was not touched."""


class CorruptJournal(StoreError):
    """A stored record cannot be read, or the hash chain does not fit it."""


class BudgetUnknown(StoreError):
    """The store cannot tell what a budget has left: nothing that costs is begun until it can."""


class Fenced(StoreError):
    """Another owner has claimed the run since; everything this owner still holds is void."""


class Moved(StoreError):
    """The journal has grown since it was read: read the tail, fold, and append again."""


class ModelError(CairnError):
    """A model call failed.

    Args:
        error_class: What kind of fault it was; the ladder decides by it.
        message: What happened, for people.
        retry_after_s: Seconds the provider asked to wait, if it did.
        status: HTTP status, if there was one.
        request_id: The provider's id of the request, if known.
        usage: The `Usage` of a reply that came whole and cannot be used; None if unknown.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        message: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        request_id: str = "",
        usage: Any = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry_after_s = retry_after_s
        self.status = status
        self.request_id = request_id
        self.usage = usage


class ToolSignal(CairnError):
    """The base of what a tool may raise to say what is known about its effect."""


class ToolError(ToolSignal):
    """The tool failed and the failure is certain: the model is told the message.

    Args:
        message: What went wrong, for the model and for people.
        error_class: The fault's class, `tool_error` by default.
    """

    def __init__(self, message: str, *, error_class: ErrorClass = ErrorClass.TOOL_ERROR) -> None:
        super().__init__(message)
        self.error_class = error_class


class NotDone(ToolSignal):
    """The effect certainly did not happen; it may be tried again or elsewhere.

    Raise it `from` a time-out or connection error to say that nothing reached the other side.
    """


class Unsure(ToolSignal):
    """The effect may have happened; the call becomes unknown and is never repeated by itself."""
