"""What became of each call."""

from __future__ import annotations

from typing import Literal

import msgspec

from cairn.core.events.form import EMPTY, Disposition, Effect, Event, Recovery
from cairn.core.messages import Source
from cairn.core.terms import ApprovalTerms
from cairn.errors import ErrorClass


class ToolStarted(Event):
    """The intent: from here on the effect may have happened."""

    TYPE = 40
    NAME = "tool.started"
    call: str
    effect: Effect
    recovery: Recovery
    rule: str
    """The policy rule that allowed it; a grant is named by its request, as `approval 3`."""
    attempt: int = 1
    tool: str = ""  # only when a fallback runs in place of the tool that was asked for
    timeout_us: int = 0
    micro_usd: int = 0  # what the call is going to cost
    taint: tuple[str, ...] = ()  # labels of the untrusted content its outcome brings in


class ToolCompleted(Event):
    """The tool returned. `result` is strict JSON; sources are numbered on in the run."""

    TYPE = 41
    NAME = "tool.completed"
    call: str
    result: msgspec.Raw = EMPTY
    sources: tuple[Source, ...] = ()
    artifact: str = ""
    """The artifact that holds the whole result, when `result` is only its head and tail."""
    why: str = ""
    """Of a call that feeds a context block: why the block is cut, or left out."""
    duration_us: int = 0
    micro_usd: int = 0


class ToolFailed(Event):
    """The tool raised: a known failure."""

    TYPE = 42
    NAME = "tool.failed"
    call: str
    error_class: ErrorClass
    message: str
    disposition: Disposition
    switch_to: str = ""
    """The declared fallback tool, when the disposition is `switch`."""
    duration_us: int = 0
    retry_at: int = 0


class ToolRejected(Event):
    """The call was not run: it is malformed, forbidden, over a limit, or a loop."""

    TYPE = 43
    NAME = "tool.rejected"
    call: str
    kind: Literal["invalid", "denied", "limit", "loop"]
    error_class: ErrorClass
    message: str
    rule: str = ""
    disposition: Disposition = "repair"


class ToolUnknown(Event):
    """The effect may have happened. "It did not" may be said from `not_before` on."""

    TYPE = 44
    NAME = "tool.unknown"
    call: str
    reason: Literal["timeout", "cancelled", "lost", "unsure"]
    message: str = ""
    not_before: int = 0
    duration_us: int = 0
    micro_usd: int = 0  # what the call costs, for it may have happened


class ToolResolved(Event):
    """A person or a probe settled an unknown effect."""

    TYPE = 45
    NAME = "tool.resolved"
    call: str
    verdict: Literal["happened", "not_happened", "unknown", "given_up"]
    """`unknown` is a probe that could not tell: a person is asked next."""
    by: Literal["person", "probe"] = "person"
    result: msgspec.Raw = EMPTY
    evidence: str = ""


class ToolEdited(Event):
    """A person, or a hook, changed what a call that has not started will be asked to do.

    The call keeps its name and its place; approvals given before are void.
    """

    TYPE = 47
    NAME = "tool.edited"
    call: str
    arguments: str
    rule: str = ""  # `hook:` and its name, when a hook of the deployment did it
    terms: ApprovalTerms | None = None  # on which a person is asked though the policy may allow it


class ToolRedirected(Event):
    """The policy has another tool run in the place of the one that was asked for.

    It is a call as any other from here on: validated, judged and approved by what it is now.
    """

    TYPE = 48
    NAME = "tool.redirected"
    call: str
    tool: str
    arguments: str
    rule: str
    reason: str = ""


class ToolLate(Event):
    """An outcome that came after time-out, lost claim or the run's end."""

    TYPE = 46
    NAME = "tool.late"
    call: str
    ok: bool
    result: msgspec.Raw = EMPTY
    message: str = ""
    attempt: int = 0  # which one brought it; 0 where that is not known
