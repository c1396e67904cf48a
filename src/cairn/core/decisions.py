"""A decision about a request for approval: by whom, of what, and the one outcome of each case."""

from __future__ import annotations

from cairn.core import events as ev
from cairn.core.edits import EDITED
from cairn.core.evolve_people import BY_PERSON, GRANTED, VOID, fingerprint
from cairn.core.gate import call_digest
from cairn.core.guard import canonical
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Record, parse_object
from cairn.core.state import Call, RunState, authors, ending
from cairn.core.terms import BoundFile, unmet
from cairn.errors import Refused, UnknownRun

_CHANGED = frozenset({EDITED, VOID})
_S = CallStatus
ALREADY = "was already"
"""Stands in what is said of a decision that stands."""


class Approve(Record):
    """Let request `n` run, once, as shown, or with other arguments.

    Args:
        n: Number of the request.
        message: Why; kept.
        digest: Binds the decision to what was shown, if given.
        by: Who decides; empty for nobody in particular.
        roles: The roles of who decides.
        arguments: JSON text to run in place of what was shown; empty for what was shown.
        files: The content of the files that those name.
    """

    n: int
    message: str = ""
    digest: str = ""
    by: str = ""
    roles: tuple[str, ...] = ()
    arguments: str = ""
    files: tuple[BoundFile, ...] = ()


class Deny(Record):
    """Refuse request `n`; the model reads the message."""

    n: int
    message: str = ""
    by: str = ""
    roles: tuple[str, ...] = ()


def decide_request(
    state: RunState, command: Approve | Deny, now: int
) -> ev.ApprovalGranted | ev.ApprovalDenied | None:
    """The event that a decision becomes; None when the same was decided before.

    Raises:
        UnknownRun: there is no such request.
        Refused: it was decided otherwise, it has expired, or this person may not decide it.
    """
    name = f"{state.run}/{command.n}"
    if not 1 <= command.n <= state.requests:
        raise UnknownRun(f"there is no request {name}")
    call = next((c for c in state.calls.values() if c.approval == command.n), None)
    before = state.decided.get(command.n)
    if before is not None:
        _again(name, before, command, call)
        return None
    if why := ending(state):
        raise Refused(f"run {state.run} {why}. Nothing more is started in it, so {name} is void")
    question = call is not None and call.status is _S.QUESTION
    if state.end is None and (question or state.question == command.n):
        raise Refused(f"{name} is a question: answer it")
    if call is None or call.status is not _S.ASKING:
        over = ended(state)
        so = f": {over}, so nothing more is started in it" if over else ""
        raise Refused(f"{name} {ALREADY} settled{so}")
    if now >= call.expires_at:
        raise Refused(f"{name} has expired; nothing was executed")
    if missing := unmet(call.terms, command.by, command.roles, authors(state, call)):
        raise Refused(f"{name} {missing}")
    if isinstance(command, Deny):
        return ev.ApprovalDenied(n=command.n, message=command.message, roles=command.roles)
    return _granted(name, call, command)


def ended(state: RunState) -> str:
    """How a run has ended and why, as the beginning of a sentence; empty for one that has not."""
    if state.end is None:
        return ""
    why = state.end.message or (f"limit {state.end.limit}" if state.end.limit else "")
    said = f" ({why})" if why else ""
    return f"run {state.run} is {state.end.status.value}{said}"


def _granted(name: str, call: Call, yes: Approve) -> ev.ApprovalGranted:
    if yes.digest and yes.digest != call.digest:
        raise Refused(f"{name} no longer asks for what was shown; look at it again")
    granted = ev.ApprovalGranted(n=yes.n, message=yes.message, roles=yes.roles)
    if not yes.arguments or canonical(yes.arguments) == canonical(call.arguments):
        return granted
    if parse_object(yes.arguments) is None:
        raise Refused(f"the new arguments of {name} are no JSON object: {yes.arguments[:80]!r}")
    if call.attempt:
        raise Refused(f"{name} has been started before; its arguments can no longer be changed")
    if call.terms is not None and call.terms.other_person:
        raise Refused(
            f"{name} needs another person than the one who changes it: edit the call, and have "
            "somebody else approve what is asked then"
        )
    if call.files and not yes.files:
        raise Refused(
            f"{name} is bound to the content of files: edit the call, "
            "and approve what is asked then"
        )
    return ev.ApprovalGranted(
        n=yes.n,
        message=yes.message,
        roles=yes.roles,
        arguments=yes.arguments,
        digest=call_digest(call.tool, yes.arguments, yes.files),
        files=yes.files,
    )


def _again(name: str, before: str, command: Approve | Deny, call: Call | None) -> None:
    """The same decision once more changes nothing; any other is refused.

    Raises:
        Refused: it is another one.
    """
    if before in _CHANGED:
        raise Refused(f"{name} asked for what has changed since; look at it again")
    if before == BY_PERSON:
        raise Refused(f"{name} {ALREADY} {before}")
    how, _, changed = before.partition(" ")
    if how != (GRANTED if isinstance(command, Approve) else "denied"):
        raise Refused(f"{name} {ALREADY} {how}")
    if isinstance(command, Approve) and not _same(command, changed, call):
        how = "with other arguments than these" if changed else "as it was asked, not like this"
        raise Refused(f"{name} {ALREADY} granted, {how}")


def _same(yes: Approve, changed: str, call: Call | None) -> bool:
    """Whether a second yes is about the same arguments; `changed` is of those that were given."""
    if yes.digest and not changed and call is not None and call.digest != yes.digest:
        return False
    if yes.arguments and changed:
        return fingerprint(yes.arguments) == changed
    if yes.arguments:
        return call is not None and canonical(yes.arguments) == canonical(call.arguments)
    return not changed or (call is not None and call.digest == yes.digest)
