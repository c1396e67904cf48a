"""What waits for people, as whoever decides it is shown it: with who asks, why, and on what terms.

The index row of a run (`core.index`) holds what decides and binds; the rest stands in the journal,
in `run.created` and in the event that asked, and is read from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.index import Pending
from cairn.core.messages import Principal, calls_of
from cairn.core.terms import ApprovalTerms, BoundFile


class Request(Pending):
    """Something that waits for a person, with all that they need to know to decide it.

    Args:
        agent: Who wants it.
        principal: For whom the agent works, with roles and tenant.
        asked_at: When it was asked, microseconds since 1970.
        rule: The rule of the policy that asks.
        reason: Why, as that rule says.
        terms: Who may decide it; None for anybody.
        files: The files a yes is bound to, each with the hash of its content; no hash for one
            that is not there.
        question: What is asked, of a question.
        instead_of: The tool that the agent asked for, where the policy has put this one in its
            place; `redirected` is why, as that rule says.
    """

    agent: str = ""
    principal: Principal = Principal()
    asked_at: int = 0
    rule: str = ""
    reason: str = ""
    terms: ApprovalTerms | None = None
    files: tuple[BoundFile, ...] = ()
    question: str = ""
    instead_of: str = ""
    redirected: str = ""

    @property
    def wanted(self) -> str:
        """What is to be decided: a call with its arguments, or a question."""
        return " ".join(self.question.split()) or Pending.wanted.__get__(self)


def number_of(item: Pending) -> int:
    """The number of a request or question in its run; 0 for what has none."""
    number = item.id.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def requests_of(
    found: Sequence[Pending], created: ev.RunCreated | None, entries: Iterable[ev.Entry]
) -> tuple[Request, ...]:
    """What waits in one run, told by the events that asked, as far as `entries` hold them."""
    asked: dict[int, ev.Entry] = {}
    names: dict[str, str] = {}
    instead: dict[str, dict[str, str]] = {}
    for entry in entries:
        match entry.event:
            case ev.ApprovalRequested(n=n) | ev.InputRequested(n=n):
                asked[n] = entry
            case turn if isinstance(turn, ev.Turn):
                names |= {part.id: part.name for part in calls_of(turn.parts)}
            case ev.ToolRedirected(call=call, rule=rule, reason=reason):
                instead[call] = {"instead_of": names.get(call, ""), "redirected": reason or rule}
            case _:
                pass
    return tuple(
        msgspec.structs.replace(
            _told(item, created, asked.get(number_of(item))), **instead.get(item.call, {})
        )
        for item in found
    )


def _told(item: Pending, created: ev.RunCreated | None, asked: ev.Entry | None) -> Request:
    fields: dict[str, Any] = {name: getattr(item, name) for name in Pending.__struct_fields__}
    if created is not None:
        fields |= {"agent": created.agent, "principal": created.principal}
    told = Request(**fields)
    if asked is None:
        return told
    match asked.event:
        case ev.ApprovalRequested(rule=rule, reason=reason, terms=terms, files=files):
            why = {"rule": rule, "reason": reason, "terms": terms, "files": files}
            return msgspec.structs.replace(told, asked_at=asked.at, **why)
        case ev.InputRequested(question=question):
            return msgspec.structs.replace(told, asked_at=asked.at, question=question)
    return told
